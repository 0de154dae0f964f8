"""VisoGender (Hall et al., 2023): what its authors annotated of photos that are in a user's folder.

Its files are ``OO_Visogender_<date>.tsv``, a person with an object, and
``OP_Visogender_<date>.tsv``, a person at work with a participant. They hold addresses, no images:
the photo of a row is the image below the folder that is called by the row's IDX, such as
``OO_images/OO_1.jpeg``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cfaug.data.sources.folders import file_digest, images_below
from cfaug.data.sources.lists import list_records
from cfaug.data.sources.row import Description, ErrorCollector, Row, files_identity
from cfaug.data.sources.values import caption, clean_key
from cfaug.errors import UserError, name_some

MASCULINE, FEMININE = "masculine", "feminine"
"""How people perceived a person's gender presentation: all that the annotation tells apart."""

GENDERS: Mapping[str, str] = {
    "masculine": MASCULINE, "man": MASCULINE, "male": MASCULINE,
    "feminine": FEMININE, "woman": FEMININE, "female": FEMININE,
}  # fmt: skip
"""What files say, those of June 2023 "man" and "woman", later ones "masculine" and "feminine"."""

SINGLE, TWO = "OO", "OP"
"""Contexts: one person with an object, and two people."""

NOTHING = ("", "na", "n/a", "nan", "none", "null")
"""What stands where there is nothing; "Type NA if can't find" is what the header itself says."""

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
"""What is read, and what the versions of the files call it, in letters alone."""

NAMED = 8
"""Photos that a message names."""


@dataclass(frozen=True)
class Annotation:
    """One row.

    Attributes:
        idx: its name, such as ``OP_17``.
        context: ``SINGLE`` or ``TWO``.
        occupation: of the person.
        other: the object or participant.
        gender: of the person at work, as perceived; "" where none was noted.
        other_gender: of the participant, as perceived; "" of an object, or where none was noted.
        sector: of the occupation; "" where the file does not say.
        specialisation: within the sector; "" where the file does not say.
        url: where the photo was; "" where nobody knows.
        where: file and line.
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
        """Whether the gender of everyone whom a pronoun may refer to was noted."""
        return bool(self.gender) and (self.context == SINGLE or bool(self.other_gender))


def read_annotations(files: Sequence[Path]) -> list[Annotation]:
    """Read VisoGender's files, in the order they are given.

    Columns may stand in any order and be called as in any version; others are passed over.

    Args:
        files: tsv (or csv) files; one file's rows are of one context, told by its columns.

    Raises:
        UserError: naming file and line of what is missing, invalid or duplicated.
    """
    found: dict[str, Annotation] = {}
    errors = ErrorCollector()
    for file in files:
        for where, record in list_records(file):
            with errors.collect():
                one = _annotation(record, where)
                before = found.setdefault(one.idx, one)
                if before is not one:
                    raise UserError(f"{where}: IDX={one.idx} is duplicated, see {before.where}")
    errors.report()
    if not found:
        raise UserError(f"{', '.join(map(str, files))}: there is no annotation")
    return list(found.values())


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
        said = "Object or Participant" if missing == ["Object"] else ", ".join(missing)
        raise UserError(
            f"{where}: the column {said} is missing; VisoGender's files have IDX, Occupation, "
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
        occupation=_words(text("occupation"), where),
        other=_words(text(other), where),
        gender=_gender(text("gender"), where, names["gender"]),
        other_gender=_gender(text("other_gender"), where, names["other_gender"]) if two else "",
        sector=text("sector"),
        specialisation=text("specialisation"),
        url=text("url"),
        where=where,
    )


def _words(value: str, where: str) -> str:
    """Return words as captions have them: the published files write "mixing_spoon" once."""
    return caption(value.replace("_", " "), where)


def _gender(value: str, where: str, column: str | None) -> str:
    found = value.lower()
    if not found or found == "neutral":
        return ""
    if found not in GENDERS:
        raise UserError(
            f"{where}: {column}={value[:40]!r} is invalid: choose from {', '.join(GENDERS)}, "
            "neutral or NA"
        )
    return GENDERS[found]


def find_photos(folder: Path) -> dict[str, Path]:
    """Return the images below a folder by their names without ending.

    Raises:
        UserError: if there is no folder, or two images have one name.
    """
    if not folder.is_dir():
        raise UserError(
            f"there is no folder {folder}: name that of the photos with benchmark.images=FOLDER"
        )
    found: dict[str, Path] = {}
    for file in images_below(folder):
        before = found.setdefault(file.stem, file)
        if before != file:
            raise UserError(
                f"{folder}: two images are called {file.stem!r}, {before.relative_to(folder)} and "
                f"{file.relative_to(folder)}: remove one"
            )
    return found


class VisoGenderPhotos:
    """A folder of photos, read by VisoGender's annotations; an index of it has them as columns.

    Args:
        files: the annotations.
        without_missing: leave out photos that are missing or cannot be read.
    """

    kind = "visogender"
    form = "VisoGender's annotations of photos"
    description = "VisoGender's tsv files (benchmark=visogender), with a folder of their photos"

    def __init__(self, files: Sequence[Path], without_missing: bool = False) -> None:
        self.lists = tuple(files)
        self.without_missing = without_missing
        self._unreadable: list[str] = []

    def recognises(self, path: Path) -> bool:
        """Say yes: the folder is named by who names the annotations."""
        return True

    def files(self, path: Path) -> list[Path]:
        """Return the photos that are annotated."""
        photos = find_photos(path)
        return [photos[one.idx] for one in self._asked() if one.idx in photos]

    def describe(self, path: Path) -> Description:
        """Return how many annotations are left out, and why."""
        return Description(left_out=tuple(self.left_out(path)))

    def identity(self, path: Path) -> Any:
        """Return name, size and time of the annotations and of every photo."""
        return [self.without_missing, *files_identity([*self.lists, *self.files(path)])]

    def left_out(self, path: Path) -> Iterator[str]:
        """Yield a phrase for each reason for which annotations have no row, once they are read."""
        photos = find_photos(path)
        unlabelled = [one.idx for one in self._annotations if not one.is_labelled]
        if unlabelled:
            yield f"{len(unlabelled):,} photos without a gender ({name_some(unlabelled, NAMED)})"
        gone = [one.idx for one in self._asked() if one.idx not in photos]
        if gone:
            yield f"{len(gone):,} photos that are not in {path} ({name_some(gone, NAMED)})"
        if self._unreadable:
            named = name_some(self._unreadable, NAMED)
            yield f"{len(self._unreadable):,} files that are not images ({named})"

    @cached_property
    def _annotations(self) -> list[Annotation]:
        return read_annotations(self.lists)

    def _asked(self) -> list[Annotation]:
        return [one for one in self._annotations if one.is_labelled]

    def rows(self, path: Path) -> Iterator[Row]:
        """Yield a row for each annotated photo, its caption with the neutral pronoun.

        Raises:
            UserError: naming photos that are missing or cannot be read, unless ``without_missing``.
        """
        photos, asked = find_photos(path), self._asked()
        if not asked:
            every = ", ".join(map(str, self.lists))
            raise UserError(
                f"{every}: of no photo the gender of everyone was noted: nothing to ask"
            )
        # Of what has no address there is no photo anywhere.
        gone = [one.idx for one in asked if one.idx not in photos and one.url]
        if gone and not self.without_missing:
            raise UserError(
                f"{len(gone):,} of {len(asked):,} photos are missing in {path}: "
                f"{name_some(gone, NAMED)}; put them there under these names, such as OO_1.jpg, "
                "or leave them out with benchmark.without_missing=true"
            )
        errors = ErrorCollector()
        for one in asked:
            if one.idx not in photos:
                continue
            try:
                row = _row(one, photos[one.idx])
            except UserError as error:
                self._unreadable.append(one.idx)
                with errors.collect():
                    if not self.without_missing:
                        raise UserError(f"{error} (or benchmark.without_missing=true)") from error
                continue
            yield row
        errors.report()


def _row(one: Annotation, file: Path) -> Row:
    key = clean_key(one.idx.lower())
    return Row(
        set=key, member=0, group=one.url or one.idx, label=one.occupation, image_id=key,
        text=f"The {one.occupation} and their {one.other}", file=str(file), offset=0,
        length=file.stat().st_size, digest=file_digest(file), where=str(file),
        extra={
            "idx": one.idx, "context": one.context, "occupation": one.occupation,
            "other": one.other, "gender": one.gender, "other_gender": one.other_gender,
            "sector": one.sector, "specialisation": one.specialisation,
        },
    )  # fmt: skip
