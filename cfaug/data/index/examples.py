"""The content of a source as examples for generation, whichever reader reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from cfaug.core.types import Example
from cfaug.data.index.index import Index
from cfaug.data.sources.row import NEGATIVES


@dataclass(frozen=True)
class IndexedImage:
    """The image of a row: a ``cfaug.core.types.SourceImage``, read in place on demand.

    Attributes:
        index: the index of the source.
        row: the row of the image.
    """

    index: Index
    row: int

    @property
    def digest(self) -> str:
        """The digest of all bytes of the encoded image, hexadecimal."""
        return self.index.digests[self.index.images[self.row]].tobytes().hex()

    def read(self) -> bytes:
        """Return the encoded image, by one read of one range of one file.

        Raises:
            UserError: if the file is missing, or changed since it was indexed.
        """
        return self.index.read_image(self.row)


def examples(index: Index, per: Literal["image", "text"] = "image") -> Iterator[Example]:
    """Yield the content of a source, in its order; no image is read.

    The key of an example is that of its (first) row, ``<set>_<member>``, its group the name with
    the code in ``Index.groups``, so that generated sets always stay with their example. ``extra``
    has the other columns of the (first) row, see ``Index.extra_row``, and under ``negatives`` the
    captions that are wrong about the image.

    Args:
        index: the index of the source.
        per: the unit of an example: ``image``, with all its captions, or ``text``, a caption with
            its image.

    Raises:
        UserError: if the index is of an older format, without names of groups.
    """
    for _, rows in groupby(range(len(index)), key=lambda row: int(index.sets[row])):
        if per == "text":
            yield from (_example(index, [row]) for row in rows)
            continue
        images: dict[int, list[int]] = {}
        for row in rows:
            images.setdefault(int(index.images[row]), []).append(row)
        yield from (_example(index, together) for together in images.values())


def _example(index: Index, rows: list[int]) -> Example:
    first = rows[0]
    extra: dict[str, Any] = index.extra_row(first)
    if negatives := [text for row in rows for text in index.negatives(row)]:
        extra[NEGATIVES] = negatives
    return Example(
        key=index.key(first),
        group=index.group_name(first),
        texts=tuple(index.text(row) for row in rows),
        image=IndexedImage(index, first),
        label=index.label(first),
        extra=extra,
    )
