"""Forms that people fill in: about an edited image beside its photo, and about captions of photos.

LANCE, section 4.2 and Figure 13, asks five questions about each of 50 images, ten per kind of edit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from cfaug.annotation.question import ImageItem, check_field, draw_each
from cfaug.core.binding import ReadWith
from cfaug.core.errors import UserError
from cfaug.core.validation import Positive, check_fields
from cfaug.data.index import Index
from cfaug.data.index.index import pair_rows

Kind = Literal["scale", "check", "text"]
Value = int | bool | str
"""An entered value: a number on a scale, whether a box is checked, or a remark."""
MOST_STEPS = 9
"""The highest number of a scale: each number is one key of the keyboard."""
LONGEST = 2000
"""Maximum number of characters in a remark."""
EDIT_KIND, EDIT_BEFORE, EDIT_AFTER = "edit_kind", "edit_before", "edit_after"
"""The columns of an index that describe a member's edit."""


@dataclass(frozen=True)
class Field:
    """One question of a form.

    Args:
        title: the name of the question in tables.
        text: the question as shown to people.
        kind: ``scale`` is a whole number from ``low`` to ``high``; ``check`` a box, yes or no;
            ``text`` a remark that may be left empty.
        low: the worst value of a scale.
        high: the best value of a scale.
        ends: names of the two ends of a scale; empty for none.

    Raises:
        UserError: if the kind is invalid, or a scale has fewer than two numbers or too many.
    """

    title: str
    text: str
    kind: Kind
    low: int = 1
    high: int = 5
    ends: Sequence[str] = ()

    read_with: ClassVar[ReadWith] = {name: {"kind": ("scale",)} for name in ("low", "high", "ends")}

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise self._invalid("kind", self.kind, f"choose from {', '.join(get_args(Kind))}")
        if not 0 <= self.low < self.high <= MOST_STEPS:
            raise self._invalid(
                "low, high", f"{self.low}, {self.high}", f"two numbers from 0 to {MOST_STEPS}"
            )
        if len(self.ends) not in (0, 2):
            raise self._invalid("ends", list(self.ends), "names of both ends, or none")

    def _invalid(self, name: str, value: object, choices: str) -> UserError:
        return UserError(f"the question {self.title!r}: {name}={value} is invalid: {choices}")

    def parse(self, given: Any) -> Value | None:
        """Parse a value from the JSON or CSV of an answer; return ``None`` if it is invalid."""
        if self.kind == "text":
            text = "" if given is None else str(given).strip()
            return text if len(text) <= LONGEST else None
        if self.kind == "check":
            word = str(given).strip().lower()
            if word in ("true", "1", "yes"):
                return True
            return False if word in ("false", "0", "no") else None
        number = str(given).strip() if not isinstance(given, bool) else ""
        fits = number.isdecimal() and self.low <= int(number) <= self.high
        return int(number) if fits else None

    @property
    def choices(self) -> str:
        """The valid values, for a message."""
        if self.kind == "scale":
            return f"a whole number from {self.low} to {self.high}"
        return "true or false" if self.kind == "check" else f"up to {LONGEST:,} characters"


@dataclass(frozen=True)
class EditedItem(ImageItem):
    """An edited image to ask about, and the photo shown beside it.

    Attributes:
        photo: the row of the photo, the unedited member of its set.
    """

    photo: int = -1
    kind: str = ""
    label: str = ""
    change: str = ""


@dataclass(frozen=True)
class Form:
    """The questions about every edited image.

    Args:
        title: heading of the page.
        text: instructions shown before people begin.
        fields: the questions by the names of their answers, in order.
        per_kind: number of images of each kind of edit to ask about, drawn at random; ``None`` for
            all.
        leave_out: kinds of edits that are not asked about, such as controls.

    Raises:
        UserError: if a field or a setting is invalid.
    """

    title: str
    text: str
    fields: Mapping[str, Field]
    per_kind: Positive | None = 10
    leave_out: Sequence[str] = ("reconstruction",)

    captions: Sequence[str] = dataclasses.field(default=(), init=False, repr=False)
    balanced: bool = dataclasses.field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(self, "annotate.question")
        if not any(field.kind != "text" for field in self.fields.values()):
            raise UserError(f"the form {self.title!r} has no scale and no check: give it fields")
        for name in self.fields:
            if not check_field(name):
                raise UserError(
                    f"the form {self.title!r}: a field called {name!r} is invalid: choose a word "
                    "of a-z, 0-9 and _ that is not key, member, annotator, texts or seconds"
                )

    def items(self, index: Index, seed: int = 0) -> list[EditedItem]:
        """Return the edited images of a source to ask about, in its order.

        Args:
            index: the index of joined sets, each with an unedited member, the photo.
        """
        items = _edited_items(index, set(self.leave_out))
        if not items:
            raise UserError(
                f"{index.source} has no edited image to ask about: name the shards that `python "
                "generate.py recipe=...` made from photos"
            )
        if self.per_kind is None:
            return items
        return draw_each(items, [item.kind for item in items], self.per_kind, seed, "form")

    def asked(self) -> dict[str, Any]:
        """Return the questions in the form that the page's script reads."""
        return {
            "field": "",
            "options": (),
            "file": "answers",
            "fields": [
                {"n": name, "k": field.kind, "t": field.text, "a": field.low, "b": field.high,
                 "e": list(field.ends)}
                for name, field in self.fields.items()
            ],
        }  # fmt: skip

    def identity(self) -> list[Any]:
        """Return JSON that identifies the questions to which answers in a browser belong."""
        return [[name, field.kind, field.low, field.high] for name, field in self.fields.items()]

    def rows_shown(self, item: ImageItem) -> dict[int, str]:
        """Return the rows of a source whose pictures are shown, and their names."""
        assert isinstance(item, EditedItem)
        return {item.photo: f"the photo of {item.name}", item.row: item.name}

    def shown(self, item: ImageItem) -> dict[str, Any]:
        """Return the captions of the pictures, the index of the one in question, and the class."""
        assert isinstance(item, EditedItem)
        about = f"Class: {item.label}. " if item.label else ""
        return {"c": list(item.texts), "s": 1, "n": f"{about}Edit ({item.kind}): {item.change}."}


def _edited_items(index: Index, leave_out: set[str]) -> list[EditedItem]:
    if EDIT_KIND not in index.extra_names:
        return []
    kinds, before, after = (
        index.extra(name).to_pylist() for name in (EDIT_KIND, EDIT_BEFORE, EDIT_AFTER)
    )
    photos: dict[int, int] = {}
    for row, kind in enumerate(kinds):
        if kind is None:
            photos.setdefault(int(index.sets[row]), row)
    items = []
    for row, kind in enumerate(kinds):
        if kind is None or kind in leave_out:
            continue
        key, _, member = index.key(row).rpartition("_")
        photo = photos.get(int(index.sets[row]))
        if photo is None:
            raise UserError(f"{index.source}: set {key!r} has no photo, only edited images")
        change = f"{before[row] or '(nothing)'} → {after[row] or '(nothing)'}"
        texts = (index.text(photo), index.text(row))
        label = index.label(row) or index.label(photo) or ""
        item = EditedItem(
            key, int(member), texts, row, texts[1],
            photo=photo, kind=str(kind), label=label, change=change,
        )  # fmt: skip
        items.append(item)
    return items


# Sets of two texts on one photo: the original, and a method's changed text.


@dataclass(frozen=True)
class TwoTexts:
    """A photo's text before and after a change.

    Attributes:
        rows: the rows of the original and of the changed text in the index.
    """

    key: str
    rows: tuple[int, int]
    texts: tuple[str, str]

    @property
    def is_changed(self) -> bool:
        """Whether the method changed the text."""
        return self.texts[0] != self.texts[1]


def known_truth(scores: Mapping[str, Mapping[str, float]], key: str, member: int) -> float | None:
    """Return whether a text of a set is true of its photo, by an oracle: 1 or 0, or ``None``.

    Args:
        scores: {key of the set: scores}; the score ``truth_0`` is for the original text,
            ``truth_1`` for the changed one. Scores that the oracle cannot give are missing.
        member: the number of the text: 0 for the original, 1 for the changed one.
    """
    return scores.get(key, {}).get(f"truth_{member}")


def read_two_texts(index: Index) -> list[TwoTexts]:
    """Return the sets of a folder that a recipe for texts made."""
    keys, rows = pair_rows(index)
    return [
        TwoTexts(key, (before, after), (index.text(before), index.text(after)))
        for key, (before, after) in zip(keys, rows.tolist(), strict=True)
    ]
