"""Forms that people fill in: about an edited image beside its photo, and about captions of photos.

LANCE, section 4.2 and Figure 13, asks five questions about each of 50 images, ten per kind of edit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from cfaug.annotation.answers import CHECK_TEXT, PREFIX, Checks, draw_check
from cfaug.annotation.findings import Findings, ReportSection
from cfaug.annotation.question import AnnotationQuestion, check_field
from cfaug.annotation.records import ImageItem, draw_each
from cfaug.core.errors import UserError
from cfaug.core.rng import derive
from cfaug.core.validation import Positive, check_fields
from cfaug.data.index import Index
from cfaug.data.index.index import pair_rows
from cfaug.report.page import p_text
from cfaug.settings.read_if import GIVEN, ReadIf
from cfaug.stats.item_tests import mcnemar

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
    """the statement or question that people rate"""
    kind: Kind
    low: Annotated[int, ReadIf({"kind": ("scale",)})] = 1
    high: Annotated[int, ReadIf({"kind": ("scale",)})] = 5
    ends: Annotated[Sequence[str], ReadIf({"kind": ("scale",)})] = ()

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
        text: instructions shown before people begin.
        fields: the questions by the names of their answers, in order.
        per_kind: number of images of each kind of edit to ask about, drawn at random; ``None`` for
            all.
        leave_out: kinds of edits without questions, such as controls.

    Raises:
        UserError: if a field or a setting is invalid.
    """

    title: str
    """the heading"""
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
        names = (EDIT_KIND, EDIT_BEFORE, EDIT_AFTER)
        edited = EDIT_KIND in index.extra_names
        kinds, before, after = (index.extra(name).to_pylist() if edited else [] for name in names)
        photos: dict[int, int] = {}
        for row, kind in enumerate(kinds):
            if kind is None:
                photos.setdefault(int(index.sets[row]), row)
        left_out = {None, *self.leave_out}
        items: list[EditedItem] = []
        for row, kind in enumerate(kinds):
            if kind in left_out:
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
        if not items:
            raise UserError(
                f"{index.source} has no edited image to ask about: name the shards that `python "
                "generate.py recipe=...` made from photos"
            )
        if self.per_kind is None:
            return items
        return draw_each(items, [item.kind for item in items], self.per_kind, seed, "form")

    def script_data(self) -> dict[str, Any]:
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


ORIGINAL = "original"
"""The kind of an unchanged caption."""


@dataclass(frozen=True)
class CaptionForm(Form):
    """A form about a caption; other arguments as for ``Form``.

    Some photos are shown with their original caption and as many others with the changed one;
    annotators are not told which.

    Args:
        per_kind: number of photos for each kind of caption, drawn at random; ``None`` for every
            caption of every photo.
        attention: number of attention checks for everyone (A.1); annotators who fail one are left
            out.
        examples: number of photos with original captions that are shown first as a reference,
            without questions.
    """

    attention: Checks = 3
    leave_out: Sequence[str] = dataclasses.field(default=(), init=False)
    examples: Annotated[Checks, ReadIf({"per_kind": GIVEN})] = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not any(field.kind == "scale" for field in self.fields.values()):
            raise UserError(f"the form {self.title!r} asks for no scale: give it one")

    def items(self, index: Index, seed: int = 0) -> list[EditedItem]:
        """Return the captions to ask about, in the order of the source; then the checks."""
        sets = read_two_texts(index)
        changed, original = self._draw(sets, seed)
        kinds: Sequence[Any] = [None] * len(index)
        if EDIT_KIND in index.extra_names:
            kinds = index.extra(EDIT_KIND).to_pylist()
        items = [
            _item(texts, member, str(kinds[texts.rows[1]] or "changed") if member else ORIGINAL)
            for texts in sets
            for member, chosen in ((0, original), (1, changed))
            if texts.key in chosen
        ]
        for number in range(self.attention):
            expected, row = draw_check(number, self.labels, [texts.rows[0] for texts in sets])
            text = f"{CHECK_TEXT}choose {expected}."
            items.append(
                EditedItem(
                    f"{PREFIX}-{number}", 0, (text,), row, text,
                    photo=row, kind=PREFIX, expected=expected,
                )
            )  # fmt: skip
        return items

    def example_items(self, index: Index, seed: int = 0) -> list[EditedItem]:
        """Return reference photos with their original captions, without questions."""
        sets = read_two_texts(index)
        if self.per_kind is None:
            return []
        taken = set.union(*self._draw(sets, seed))
        free = [texts for texts in _shuffled(sets, seed) if texts.key not in taken]
        return [_item(texts, 0, ORIGINAL) for texts in free[: self.examples]]

    def _draw(self, sets: list[TwoTexts], seed: int) -> tuple[set[str], set[str]]:
        """Return the keys of photos shown with the changed and with the original caption."""
        eligible = [texts.key for texts in _shuffled(sets, seed) if texts.is_changed]
        if self.per_kind is None:
            return set(eligible), {texts.key for texts in sets}
        count = min(self.per_kind, len(eligible) // 2)
        return set(eligible[:count]), set(eligible[count : 2 * count])

    @property
    def _scale(self) -> tuple[str, Field]:
        return next((name, field) for name, field in self.fields.items() if field.kind == "scale")

    @property
    def field(self) -> str:
        """The name of the first scale in the files."""
        return self._scale[0]

    @property
    def labels(self) -> tuple[str, ...]:
        """The numbers of the first scale."""
        scale = self._scale[1]
        return tuple(str(value) for value in range(scale.low, scale.high + 1))

    def oracle_answers(
        self, items: Sequence[ImageItem], scores: Mapping[str, Mapping[str, float]]
    ) -> list[str | None]:
        """Return an oracle's answers: the best number for true captions, the worst for false ones.

        Returns:
            One answer per item; ``None`` if the sets do not say whether the caption is true.
        """
        answers: list[str | None] = []
        for item in items:
            if item.expected:
                answers.append(item.expected)
                continue
            truth = known_truth(scores, item.key, item.member)
            answers.append(None if truth is None else self.labels[-1 if truth else 0])
        return answers

    def rows_shown(self, item: ImageItem) -> dict[int, str]:
        return {item.row: item.name}

    def shown(self, item: ImageItem) -> dict[str, Any]:
        return {"c": [item.text], "s": -1}


def _item(pair: TwoTexts, member: int, kind: str) -> EditedItem:
    text = pair.texts[member]
    return EditedItem(
        pair.key, member, (text,), pair.rows[member], text, photo=pair.rows[0], kind=kind
    )


def _shuffled(sets: list[TwoTexts], seed: int) -> list[TwoTexts]:
    return sorted(sets, key=lambda texts: derive(seed, "caption_form", texts.key))


# Which of two captions of a photo is better? Two methods side by side (XMAI, section 5.1).


@dataclass(frozen=True)
class Preference(AnnotationQuestion):
    """Which of two methods' captions is better; other arguments as for ``Question``.

    The two captions of a photo were made by two methods from the same text; each annotator sees
    both orders equally often.

    Args:
        captions: names of the answers that choose a caption: first the method of
            the pairs, then the method it is compared with.
        against: the folder of the other method's sets.
        attention: number of attention checks for everyone (A.1).
        balanced: whether both orders are offered equally often.
    """

    against: str | None = None
    attention: Checks = 3
    balanced: bool = True

    def __post_init__(self) -> None:
        if len(self.captions) != 2:
            raise self._invalid("captions", list(self.captions), "names of two methods")
        super().__post_init__()

    def outcome(self, item: ImageItem, label: str) -> str:
        """Return the outcome of an answer: the answer itself."""
        return label

    def chosen(self) -> list[str]:
        return [*self.captions, *self.options]

    def wording(self, outcome: str) -> str:
        return self.options.get(outcome, f"Caption of {outcome}")

    def items_of_two(self, index: Index, other: Index) -> list[ImageItem]:
        """Return the photos whose text the two methods changed differently; then the checks."""
        theirs = {pair.key: pair for pair in read_two_texts(other) if pair.is_changed}
        items = [
            ImageItem(ours.key, 1, (ours.texts[1], theirs[ours.key].texts[1]), ours.rows[1])
            for ours in read_two_texts(index)
            if ours.is_changed and ours.key in theirs and ours.texts[1] != theirs[ours.key].texts[1]
        ]
        if not items:
            raise UserError(
                f"{index.source} and {other.source} have no photo whose text they changed "
                "differently: make both of the same data.source"
            )
        rows = [item.row for item in items]
        for number in range(self.attention):
            expected, row = draw_check(number, self.captions, rows)
            texts = f"{CHECK_TEXT}choose this caption.", f"{CHECK_TEXT}do not choose this caption."
            if expected != self.captions[0]:
                texts = texts[::-1]
            items.append(ImageItem(f"{PREFIX}-{number}", 0, texts, row, expected=expected))
        return items

    def count(self, findings: Findings) -> ReportSection:
        """Count the photos for which most annotators chose each method; add the sign test."""
        first, second = self.captions
        counts = {first: 0, second: 0, "neither": 0}
        for i in findings.by_item:
            labels = findings.outcomes_of(i)
            most = [name for name in self.captions if 2 * labels.count(name) > len(labels)]
            counts[most[0] if most else "neither"] += 1
        p = mcnemar(counts[first], counts[second])
        sentence = (
            f"Of {sum(counts.values()):,} photos most annotators prefer the caption of {first} for "
            f"{counts[first]:,}, that of {second} for {counts[second]:,}; sign test of these: "
            f"p = {p_text(p)}."
        )
        return ReportSection(
            title="Which caption most annotators prefer",
            columns=("", "photos"),
            rows=tuple((name, f"{count:,}") for name, count in counts.items()),
            notes=("A majority is more than half of a photo's answers.",),
            sentences=(sentence,),
            data={"preference": {"first": first, "second": second, "counts": counts, "p": p}},
        )

    def oracle_answers(
        self,
        items: Sequence[ImageItem],
        ours: Mapping[str, Mapping[str, float]],
        theirs: Mapping[str, Mapping[str, float]],
    ) -> list[str | None]:
        """Return the answers of an oracle that knows which captions are true; ``None`` if unknown.

        Args:
            ours: {key of the set: its scores} for the first method.
            theirs: {key of the set: its scores} for the second method.
        """
        if not self.options:
            raise UserError(f"the question {self.title!r} has no answer for equal captions")
        equal = next(iter(self.options))
        answers: list[str | None] = []
        for item in items:
            if item.expected:
                answers.append(item.expected)
                continue
            first, second = (known_truth(scores, item.key, 1) for scores in (ours, theirs))
            if first is None or second is None:
                answers.append(None)
                continue
            answers.append(equal if first == second else self.captions[0 if first > second else 1])
        return answers
