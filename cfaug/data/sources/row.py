"""What every reader yields, and how it reports errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from cfaug.data.sources.image_check import Digest
from cfaug.errors import UserError

NEGATIVES = "negatives"
"""Of a member's ``extra``: a list of captions that are wrong about its image."""

NAMED_AT_ONCE = 5
"""Culprits one message names: enough to see a pattern, few enough to read."""


class Row(NamedTuple):
    """One image-text pair: where its image lies, and whom it belongs to.

    Rows of a set follow each other, ``member`` counting from 0, and only they share an image: where
    they do, their ``image_id`` is equal. ``digest`` stands for the image's content; ``where`` names
    it for a message. ``edited`` says that the caption is an edit of another member's; ``negatives``
    are captions that are wrong about the image and have no image of their own; ``extra`` is what
    else the source says of the pair, JSON under names, which becomes columns of the index. ``box``
    is what is shown of the image (left, top, right, bottom in pixels), where that is not all; the
    digest is then that of the box, ``Digest.of_box``.
    """

    set: str
    member: int
    group: str
    text: str
    label: str | None
    image_id: str
    file: str
    offset: int
    length: int
    digest: Digest
    where: str
    edited: bool = False
    negatives: tuple[str, ...] = ()
    extra: Mapping[str, Any] = MappingProxyType({})
    box: tuple[int, int, int, int] | None = None


@dataclass(frozen=True)
class Description:
    """What a reader takes of a folder, and what it leaves.

    Attributes:
        used: the columns that are read, by the names they have there; empty for a form without
            columns.
        unused: the columns that are there and are not read.
        left_out: what else lies there and is not read, a phrase each.
    """

    used: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @classmethod
    def of_columns(cls, used: Iterable[str], there: Iterable[str]) -> Description:
        """Divide the columns that are there, each once, in their order.

        >>> Description.of_columns(["image", "text"], ["image", "width", "text"])
        Description(used=('image', 'text'), unused=('width',), left_out=())
        """
        names, wanted = tuple(dict.fromkeys(there)), set(used)
        return cls(
            tuple(name for name in names if name in wanted),
            tuple(name for name in names if name not in wanted),
        )


class Reader(Protocol):
    """One form that data comes in.

    Attributes:
        kind: its name in an index.
        form: what it is called in a report: "112 images read as FORM".
        description: what a folder of this form holds, for the error that lists the forms.
    """

    kind: str
    form: str
    description: str

    def recognises(self, path: Path) -> bool:
        """Say whether a folder has this form, from its names alone."""
        ...

    def files(self, path: Path) -> list[Path]:
        """Return the files that hold the images, in the order they are read."""
        ...

    def describe(self, path: Path) -> Description:
        """Return what is read of a folder and what is not; asked once, when it is scanned."""
        ...

    def identity(self, path: Path) -> Any:
        """Return JSON that changes when the content may have changed."""
        ...

    def rows(self, path: Path) -> Iterator[Row]:
        """Yield every pair, or raise UserError naming the invalid example."""
        ...


class ErrorCollector:
    """Collects what is wrong with single examples, so that one error names several of them."""

    def __init__(self) -> None:
        self._messages: list[str] = []

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Note a UserError and go on, until there are enough of them."""
        try:
            yield
        except UserError as error:
            self._messages.append(str(error))
            if len(self._messages) == NAMED_AT_ONCE:
                self._messages.append("(there may be more)")
                self.report()

    def report(self) -> None:
        """Raise what was noted, if anything was."""
        if self._messages:
            raise UserError("\n".join(self._messages))


def files_identity(files: list[Path]) -> list[list[Any]]:
    """Return name, size and time of each file: what a cached index was made of."""
    about = ((file, file.stat()) for file in files)
    return [[str(file), stat.st_size, stat.st_mtime_ns] for file, stat in about]
