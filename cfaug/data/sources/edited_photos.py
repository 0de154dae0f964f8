"""Photos and edits of them that were made elsewhere: what their readers have in common.

A set is a photo and all its edits, the photo first. The columns ``edit_kind``, ``edit_before`` and
``edit_after`` are those of shards of ``generate.py``, so that whatever reads these reads such sets.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError, name_some
from cfaug.core.types import ORIGINAL, RECONSTRUCTION
from cfaug.data.sources.folders import file_digest
from cfaug.data.sources.row import Row, class_caption, clean_key

EDITED = "edited"
"""The kind of edits of which no kind is known."""
RECONSTRUCTIONS = (RECONSTRUCTION, "reconstructions", "reconstructed", "recon")
"""Names of the kind of edit that changes nothing: photos that were only made again."""
NAMED = 12
"""Number of kinds, classes and files that a note names."""


@dataclass(frozen=True)
class MadeEdit:
    """An edit of a photo.

    Attributes:
        kind: the kind of the edit, such as ``fog``; ``reconstruction`` if nothing was changed.
        before: the words that it replaces; "" if none are known.
        after: the words that replace them; "" takes the kind and the severity in words.
        severity: the strength of the edit, as it was written; "" without one.
        text: the caption of the edited photo; "" takes the photo's.
        extra: {name: value}, further values of a list, JSON.
    """

    file: Path
    kind: str
    before: str = ""
    after: str = ""
    severity: str = ""
    text: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> tuple[str, str]:
        """The words before and after the edit.

        >>> MadeEdit(Path("1.png"), "blur/gaussian_blur", severity="3").words
        ('', 'gaussian blur, severity 3')
        """
        if self.before or self.after or self.kind == RECONSTRUCTION:
            return self.before, self.after
        level = f", severity {self.severity}" if self.severity else ""
        return "", f"{' '.join(re.split('[ _-]+', self.kind.rpartition('/')[2]))}{level}".strip()


@dataclass
class EditedPhoto:
    """A photo and its edits.

    Attributes:
        name: the name that identifies it in its source.
        label: the photo's class; ``None`` without one.
        text: its caption; "" takes that of its class.
        group: the name of its group; "" takes ``name``.
    """

    name: str
    file: Path
    where: str
    label: str | None = None
    text: str = ""
    group: str = ""
    edits: list[MadeEdit] = field(default_factory=list)


def edited_rows(photo: EditedPhoto) -> Iterator[Row]:
    """Check the images of a photo and its edits, and yield them as a set.

    Raises:
        UserError: if the photo has no class, or an image cannot be read.
    """
    if photo.label is None:
        raise UserError(
            f"{photo.where}: the photo {photo.name!r} has no class: neither a list nor a folder "
            "says it"
        )
    key, text = clean_key(photo.name), photo.text or class_caption(photo.label)

    def make_row(number: int, file: Path, caption: str, extra: Mapping[str, Any]) -> Row:
        return Row(
            set=key, member=number, group=photo.group or photo.name, text=caption,
            label=photo.label, image_id=str(number), file=str(file), offset=0,
            length=file.stat().st_size, digest=file_digest(file), where=str(file),
            edited=number > 0, extra=extra,
        )  # fmt: skip

    yield make_row(0, photo.file, text, {})
    for number, edit in enumerate(photo.edits, 1):
        before, after = edit.words
        about = {"edit_kind": edit.kind, "edit_before": before, "edit_after": after}
        if edit.severity:
            about["severity"] = edit.severity
        yield make_row(number, edit.file, edit.text or text, {**edit.extra, **about})


def read_kind(name: str, where: str) -> str:
    """Return the kind of an edit; every name of a reconstruction as one.

    >>> read_kind("Reconstructed", "line 2"), read_kind("motion_blur", "line 3")
    ('reconstruction', 'motion_blur')
    """
    kind = " ".join(name.split())
    if kind.lower() in RECONSTRUCTIONS:
        return RECONSTRUCTION
    if kind.lower() == ORIGINAL:
        raise UserError(
            f"{where}: {ORIGINAL!r} is the kind of photos, not of an edit: which edit is it? Name "
            f"its kind, or {RECONSTRUCTION} for a photo that was made again without an edit"
        )
    return kind


def describe_edits(photos: Sequence[EditedPhoto]) -> tuple[str, ...]:
    """Return what was read in sentences: photos by class, edits by kind, what is not there."""
    edits = [edit for photo in photos for edit in photo.edits]
    kinds = Counter(edit.kind for edit in edits)
    controls = kinds.pop(RECONSTRUCTION, 0)
    classes = Counter(str(photo.label) for photo in photos)
    notes = [
        f"{len(photos):,} photos by class ({_counted(classes)}), {len(edits) - controls:,} edits "
        f"by kind ({_counted(kinds)}), {controls or 'no'} reconstruction{'s' * (controls != 1)}"
    ]
    levels = Counter(edit.severity for edit in edits if edit.severity)
    if levels:
        notes.append(f"edits by severity ({_counted(levels)})")
    bare = [photo.name for photo in photos if not photo.edits]
    if bare:
        notes.append(f"{len(bare):,} photos have no edit ({name_some(bare)})")
    return tuple(notes)


def _counted(counts: Counter[str]) -> str:
    return name_some((f"{name}: {counts[name]:,}" for name in sorted(counts)), NAMED) or "none"
