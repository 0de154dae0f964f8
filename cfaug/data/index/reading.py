"""Reports of what was recognised in a source before it is used, in words and as JSON."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from cfaug.core.errors import name_some
from cfaug.core.types import RECONSTRUCTION
from cfaug.data.sources import Row
from cfaug.data.sources.fields import fields_phrase
from cfaug.data.sources.odd_texts import MissingTexts, OddTexts
from cfaug.data.sources.row import Description, class_caption, one_class_error
from cfaug.data.sources.verdicts import CaptionVerdicts

SHOWN = 80
"""Number of characters of a caption that a line shows."""
NAMED = 8
"""Number of columns that a line names."""
SELDOM = ("notes", "renamed", "columns")
"""What a reading has in JSON only if there is any."""
MEMBERS = 4
"""Number of captions of a set that a line shows: a grid has dozens."""


@dataclass(frozen=True)
class ScanReport:
    """The reading of a source: its form, columns and counts.

    Attributes:
        rows: number of image-text pairs.
        images: number of different images; captions of one photo share it.
        counterfactual_sets: number of sets whose members show different images, or edit the caption
            of one image; sets of copies of one image under several names do not count.
        negatives: number of captions without an image, besides those of the rows.
        example: the captions of the first counterfactual set, or the caption of the first row if
            there is no such set.
        used: columns that were read, by their names in the source.
        kept: columns that are kept only as extra columns of the index.
        notes: sentences about rows that were read and may not be meant.
        renamed: ``NAME=COLUMN`` of each column that ``data.fields`` renamed.
        columns: all columns by their own names, kept with ``data.fields`` alone.
        left_out: other content that was not read, a phrase each.
        one_caption: whether several images all have the same caption, from which little can be
            learned.
    """

    kind: str
    form: str
    rows: int
    images: int
    sets: int
    counterfactual_sets: int
    classes: int
    negatives: int
    example: tuple[str, ...]
    used: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    one_caption: bool = False
    kept: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    renamed: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    @property
    def single_sets(self) -> int:
        """Number of other sets: a photo with its captions, or with one caption."""
        return self.sets - self.counterfactual_sets

    def json(self) -> dict[str, Any]:
        """Return the reading as JSON, with lists in place of tuples; what is seldom only if any."""
        values = {k: v for k, v in asdict(self).items() if k not in SELDOM or v}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    @classmethod
    def of_json(cls, record: Mapping[str, Any]) -> ScanReport:
        """Restore a reading from ``json``.

        Raises:
            KeyError: if another field is missing.
            TypeError: if a field has another type.
        """
        values: dict[str, Any] = {}
        for field in fields(cls):
            value: Any = record.get(field.name, []) if field.name in SELDOM else record[field.name]
            wanted = {"str": str, "int": int, "bool": bool}.get(str(field.type), list)
            many = isinstance(value, list)
            texts: list[Any] = value if many else []
            if not isinstance(value, wanted) or not all(isinstance(text, str) for text in texts):
                raise TypeError(f"{field.name} of a reading is {value!r}")
            values[field.name] = tuple(texts) if many else value
        return cls(**values)

    def line(self, role: str, source: str) -> str:
        """Return the reading in one line.

        Args:
            role: the source's name in the settings.
        """
        captions = "" if self.rows == self.images else f" with {self.rows:,} captions"
        inside = [f"{self.classes:,} classes"] if self.classes else []
        if self.counterfactual_sets:
            inside.append(f"{self.counterfactual_sets:,} counterfactual sets")
            inside += [f"{self.single_sets:,} single ones"] if self.single_sets else []
        inside += [f"{self.negatives:,} negatives without an image"] if self.negatives else []
        counted = f" ({', '.join(inside)})" if inside else ""
        more = f" / ... ({len(self.example)})" if len(self.example) > MEMBERS else ""
        parts = [
            f"{role}: {self.images:,} images{captions} of {source} read as {self.form}{counted}",
            f"first: {' / '.join(map(shorten, self.example[:MEMBERS]))}{more}",
        ]
        if self.one_caption:
            parts.append("warning: all images have this one caption")
        parts += [fields_phrase(self.renamed)] if self.renamed else []
        for title, names in (("columns not used", self.unused), ("other columns kept", self.kept)):
            if names:
                parts.append(f"{title}: {name_some(names, NAMED)}")
        parts += [f"not read: {phrase}" for phrase in self.left_out]
        parts += [f"note: {note}" for note in self.notes]
        return "; ".join(parts)


def shorten(text: str) -> str:
    """Return a caption in quotes, shortened for a line."""
    return repr(text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}...")


class RowCounts:
    """Counts a stream of rows for a ``ScanReport``; keeps their classes and a code of each row."""

    def __init__(self) -> None:
        self._codes, self._turned = array("Q"), 0
        self._rows = self._images = self._sets = self._counterfactual = self._negatives = 0
        self._labels = set[str]()
        self._classes_alone = self._one_caption = True
        self._first: tuple[str, ...] = ()
        self._example: tuple[str, ...] = ()
        self._set: list[Row] = []
        self._missing, self._verdicts = MissingTexts(), CaptionVerdicts()
        self._odd = OddTexts()

    def count(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows while counting them; the rows of a set must be adjacent."""
        for row in rows:
            if self._set and (row.set != self._set[0].set or row.member == 0):
                self._close()
            self._set.append(row)
            self._missing.count(row)
            self._odd.count(row)
            if row.label is None:
                self._verdicts.count(row.extra, row.negatives)
                self._verdicts.count_text(row.text, None)
            elif row.text != class_caption(row.label):
                self._verdicts.count_text(row.text, row.label)
            yield row
        self._close()

    def _close(self) -> None:
        if not self._set:
            return
        texts = tuple(row.text for row in self._set)
        images = len({(row.image_id, row.digest.whole) for row in self._set})
        self._rows += len(self._set)
        self._negatives += sum(len(row.negatives) for row in self._set)
        self._images += images
        self._sets += 1
        self._first = self._first or texts[:1]
        self._one_caption = self._one_caption and set(texts) == set(self._first)
        first = self._set[0]
        differ = any(row.digest.whole != first.digest.whole for row in self._set)
        if differ or (
            any(row.edited for row in self._set)
            and all(row.image_id == first.image_id for row in self._set)
        ):
            self._counterfactual += 1
            self._example = self._example or texts
            same_set = "".join(row.digest.whole + row.text for row in self._set)
        else:
            same_set = ""  # captions of a photo are rows of their own
        self._turned += len({row.digest.whole for row in self._set if row.digest.turned})
        for row in self._set:
            if row.label is not None:
                self._labels.add(row.label)
            if self._classes_alone:
                self._classes_alone = row.label is not None and row.text == class_caption(row.label)
            if row.extra.get("edit_kind") == RECONSTRUCTION:
                continue  # which may well be its photo, byte for byte
            content = "\0".join((row.digest.whole, row.text, row.label or "", same_set))
            code = hashlib.blake2b(content.encode(errors="surrogatepass"), digest_size=8).digest()
            self._codes.append(int.from_bytes(code, "little"))
        self._set = []

    def reading(
        self, kind: str, form: str, described: Description, extra: Sequence[str] = ()
    ) -> ScanReport:
        """Return the counts with the reader's description.

        Args:
            extra: the names of the extra columns of the index.
        """
        notes = [
            *described.notes, *self._missing.notes(), *self._odd.notes(), *self._verdicts.notes(),
        ]  # fmt: skip
        unread = described.unused
        codes = np.sort(np.frombuffer(self._codes, np.uint64))
        again = int((codes[1:] == codes[:-1]).sum())
        if again:
            notes.append(
                f"{again:,} of {self._rows:,} rows repeat image and caption of another row: these "
                "are trained on and tested more than once"
            )
        if self._turned:
            notes.append(
                f"{self._turned:,} image{'s' * (self._turned > 1)} with an EXIF orientation, which "
                "is ignored, as by CLIP's own transform"
            )
        return ScanReport(
            kind, form, self._rows, self._images, self._sets, self._counterfactual,
            len(self._labels), self._negatives, self._example or self._first, described.used,
            tuple(name for name in unread if name not in extra), described.left_out,
            self._images > 1 and self._one_caption and not self._labels,
            tuple(name for name in unread if name in extra), tuple(notes),
            described.renamed, described.columns,
        )  # fmt: skip

    def check(self, source: str, form: str) -> None:
        """Refuse images of a single class, and captions that are missing."""
        self._missing.check(source)
        self._verdicts.check(source)
        if self._rows and self._classes_alone and len(self._labels) == 1:
            raise one_class_error(source, form, self._images, *self._labels)
