"""VisoGender (Hall et al., 2023): its authors' annotations, with the photos in the user's folder.

Its files are ``OO_Visogender_<date>.tsv``, a person with an object, and
``OP_Visogender_<date>.tsv``, a person at work with a participant. They have addresses instead of
images: the photo of a row is the image below the folder that is named after the row's IDX, such as
``OO_images/OO_1.jpeg``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError, name_some
from cfaug.data.sources.folders import file_digest, images_below
from cfaug.data.sources.lists import list_records
from cfaug.data.sources.row import (
    Description,
    ErrorCollector,
    Reader,
    Row,
    caption,
    clean_key,
    files_identity,
)

MASCULINE, FEMININE = "masculine", "feminine"
"""A person's perceived gender presentation: the annotation has only these values."""

GENDERS: Mapping[str, str] = {
    "masculine": MASCULINE, "man": MASCULINE, "male": MASCULINE,
    "feminine": FEMININE, "woman": FEMININE, "female": FEMININE,
}  # fmt: skip
"""Values in the files: "man" and "woman" in June 2023, later "masculine" and "feminine"."""

SINGLE, TWO = "OO", "OP"
"""Contexts: one person with an object, and two people."""

NOTHING = ("", "na", "n/a", "nan", "none", "null")
"""Values of an empty cell; the header itself says "Type NA if can't find"."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "idx": ("idx",),
    "sector": ("sector",),
    "specialisation": ("specialisation", "specialization"),
    "occupation": ("occupation",),
    "object": ("object",),
    "participant": ("participant",),
    "url": ("url", "urltypetypenaifcantfind"),
    "gender": ("occupationperceivedgender", "occupationgender"),
    "other_gender": ("participantperceivedgender", "participantgender"),
}
"""The fields that are read, and their names in the versions of the files, letters only."""

NAMED = 8
"""Number of photos that a message names."""

NOT_KEPT = ("url", "where")
"""Fields of an annotation that do not become columns of the index."""


@dataclass(frozen=True)
class Annotation:
    """One row of the annotations.

    Attributes:
        idx: the name of the row, such as ``OP_17``.
        context: the number of people: ``SINGLE`` or ``TWO``.
        gender: perceived gender of the person at work; "" if not annotated.
        other_gender: perceived gender of the participant; "" for an object, or if not annotated.
        sector: sector of the occupation; "" if the file lacks it.
        specialisation: specialisation within the sector; "" if the file lacks it.
        url: original address of the photo; "" if unknown.
    """

    idx: str
    context: str
    occupation: str
    other: str
    gender: str
    other_gender: str
    sector: str
    specialisation: str
    url: str
    where: str

    @property
    def is_labelled(self) -> bool:
        """Whether the gender of each person to whom a pronoun may refer was annotated."""
        return bool(self.gender) and (self.context == SINGLE or bool(self.other_gender))


def read_annotations(files: Sequence[Path]) -> list[Annotation]:
    """Read VisoGender's files, in the given order.

    Columns may be in any order and have the names of any version; others are ignored.

    Args:
        files: tsv (or csv) files; all rows of a file have one context, determined by its columns.
    """
    by_idx: dict[str, Annotation] = {}
    errors = ErrorCollector()
    for file in files:
        for where, record in list_records(file):
            with errors.collect():
                annotation = _annotation(record, where)
                before = by_idx.setdefault(annotation.idx, annotation)
                if before is not annotation:
                    raise UserError(
                        f"{where}: IDX={annotation.idx} is duplicated, see {before.where}"
                    )
    errors.report()
    if not by_idx:
        raise UserError(f"{', '.join(map(str, files))}: there is no annotation")
    return list(by_idx.values())


def _annotation(record: Mapping[str, Any], where: str) -> Annotation:
    there = {re.sub(r"[^a-z]", "", name.lower()): name for name in record}
    names = {
        field: next((there[name] for name in known if name in there), None)
        for field, known in COLUMNS.items()
    }
    two = names["participant"] is not None
    needed = {"idx": "IDX", "occupation": "Occupation", "gender": "Occupation_perceived_gender"}
    needed |= {"other_gender": "Participant_perceived_gender"} if two else {"object": "Object"}
    missing = [shown for field, shown in needed.items() if names[field] is None]
    if missing:
        lacking = "Object or Participant" if missing == ["Object"] else ", ".join(missing)
        raise UserError(
            f"{where}: the column {lacking} is missing; VisoGender's files have IDX, Occupation, "
            "Object, Occupation_perceived_gender, or IDX, Occupation, Participant, "
            "Occupation_perceived_gender, Participant_perceived_gender; there are "
            f"{', '.join(record)}"
        )

    def text(field: str) -> str:
        name = names[field]
        value = "" if name is None else " ".join(str(record[name] or "").split())
        return "" if value.lower() in NOTHING else value

    other = "participant" if two else "object"
    for field in ("idx", "occupation", other):
        if not text(field):
            raise UserError(f"{where}: {names[field]} is missing")
    return Annotation(
        idx=text("idx"),
        context=TWO if two else SINGLE,
        # The published files have "mixing_spoon" once.
        occupation=caption(text("occupation").replace("_", " "), where),
        other=caption(text(other).replace("_", " "), where),
        gender=_gender(text("gender"), where, names["gender"]),
        other_gender=_gender(text("other_gender"), where, names["other_gender"]) if two else "",
        sector=text("sector"),
        specialisation=text("specialisation"),
        url=text("url"),
        where=where,
    )


def _gender(value: str, where: str, column: str | None) -> str:
    gender = value.lower()
    if not gender or gender == "neutral":
        return ""
    if gender not in GENDERS:
        raise UserError(
            f"{where}: {column}={value[:40]!r} is invalid: choose from {', '.join(GENDERS)}, "
            "neutral or NA"
        )
    return GENDERS[gender]


def find_photos(folder: Path) -> dict[str, Path]:
    """Return the images below a folder by their names without extension."""
    if not folder.is_dir():
        raise UserError(
            f"there is no folder {folder}: name that of the photos with benchmark.images=FOLDER"
        )
    photos: dict[str, Path] = {}
    for file in images_below(folder):
        before = photos.setdefault(file.stem, file)
        if before != file:
            raise UserError(
                f"{folder}: two images are called {file.stem!r}, {before.relative_to(folder)} and "
                f"{file.relative_to(folder)}: remove one"
            )
    return photos


class VisoGenderPhotos(Reader):
    """A folder of photos with VisoGender's annotations, which become columns of its index.

    Args:
        without_missing: whether to leave out photos that are missing or cannot be read.
    """

    kind = "visogender"
    form = "VisoGender's annotations of photos"
    description = "VisoGender's tsv files (benchmark=visogender), with a folder of their photos"

    def __init__(self, files: Sequence[Path], without_missing: bool = False) -> None:
        self.lists = tuple(files)
        self.without_missing = without_missing
        self._unreadable: list[str] = []

    def recognises(self, path: Path) -> bool:
        """Return ``True``: the user names the folder together with the annotations."""
        return True

    def files(self, path: Path) -> list[Path]:
        """Return the annotated photos."""
        photos = find_photos(path)
        return [photos[annotation.idx] for annotation in self._labelled if annotation.idx in photos]

    def describe(self, path: Path) -> Description:
        """Return the number of annotations that are left out, with reasons."""
        photos = find_photos(path)
        reasons = {
            "photos without a gender": [
                annotation.idx for annotation in self._annotations if not annotation.is_labelled
            ],
            f"photos that are not in {path}": [
                annotation.idx for annotation in self._labelled if annotation.idx not in photos
            ],
            "files that are not images": self._unreadable,
        }
        return Description(
            left_out=tuple(
                f"{len(names):,} {reason} ({name_some(names, NAMED)})"
                for reason, names in reasons.items()
                if names
            )
        )

    def identity(self, path: Path) -> Any:
        return [self.without_missing, *files_identity([*self.lists, *self.files(path)])]

    @cached_property
    def _annotations(self) -> list[Annotation]:
        return read_annotations(self.lists)

    @cached_property
    def _labelled(self) -> list[Annotation]:
        return [annotation for annotation in self._annotations if annotation.is_labelled]

    def open(self, path: Path) -> Iterator[Row]:
        """Yield a row for each annotated photo, its caption with the neutral pronoun."""
        photos, annotations = find_photos(path), self._labelled
        if not annotations:
            every = ", ".join(map(str, self.lists))
            raise UserError(
                f"{every}: of no photo the gender of everyone was noted: nothing to ask"
            )
        # A row without an address has no photo anywhere.
        gone = [
            annotation.idx
            for annotation in annotations
            if annotation.idx not in photos and annotation.url
        ]
        if gone and not self.without_missing:
            raise UserError(
                f"{len(gone):,} of {len(annotations):,} photos are missing in {path}: "
                f"{name_some(gone, NAMED)}; put them there under these names, such as OO_1.jpg, "
                "or leave them out with benchmark.without_missing=true"
            )
        errors = ErrorCollector()
        for annotation in annotations:
            if annotation.idx not in photos:
                continue
            file, key = photos[annotation.idx], clean_key(annotation.idx.lower())
            try:
                digest = file_digest(file)
            except UserError as error:
                self._unreadable.append(annotation.idx)
                with errors.collect():
                    if not self.without_missing:
                        raise UserError(f"{error} (or benchmark.without_missing=true)") from error
                continue
            extra = {
                name: value for name, value in vars(annotation).items() if name not in NOT_KEPT
            }
            yield Row(
                set=key, member=0, group=annotation.url or annotation.idx,
                label=annotation.occupation, image_id=key,
                text=f"The {annotation.occupation} and their {annotation.other}",
                file=str(file), offset=0, length=file.stat().st_size, digest=digest,
                where=str(file), extra=extra,
            )  # fmt: skip
        errors.report()
