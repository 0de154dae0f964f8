"""A form about single captions of photos: how good are original and changed ones (XMAI, 5.1)?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from cfaug.annotation.answers import ASKS, PREFIX, Checks, draw_check
from cfaug.annotation.findings import Findings, ReportSection
from cfaug.annotation.forms import (
    EDIT_KIND,
    EditedItem,
    Field,
    Form,
    TwoTexts,
    known_truth,
    read_two_texts,
)
from cfaug.annotation.question import AnnotationQuestion, ImageItem
from cfaug.core.binding import GIVEN, ReadWith
from cfaug.core.errors import UserError
from cfaug.core.rng import derive
from cfaug.data.index import Index
from cfaug.report.page import p_text
from cfaug.stats.item_tests import mcnemar

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
        attention: number of attention checks for everyone (A.1).
        examples: number of photos with original captions that are shown first as a reference,
            without questions.
    """

    attention: Checks = 3
    examples: Checks = 5

    read_with: ClassVar[ReadWith] = {
        "examples": {"per_kind": GIVEN},
        "leave_out": (),  # a caption is original or changed, by whatever kind of edit
    }

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
            text = f"{ASKS}choose {expected}."
            items.append(
                EditedItem(
                    f"{PREFIX}-{number}", 0, (text,), row, text,
                    photo=row, kind=PREFIX, expected=expected,
                )
            )  # fmt: skip
        return items

    def example_items(self, index: Index, seed: int = 0) -> list[EditedItem]:
        """Return reference photos with their original captions, about which nothing is asked."""
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
        """Return the row of the photo and its name."""
        return {item.row: item.name}

    def shown(self, item: ImageItem) -> dict[str, Any]:
        """Return the caption below the photo."""
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
            ``data.counterfactual``, then the method it is compared with.
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
        """Return every outcome."""
        return [*self.captions, *self.options]

    def wording(self, outcome: str) -> str:
        """Return the name of an outcome in tables and figures."""
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
            texts = f"{ASKS}choose this caption.", f"{ASKS}do not choose this caption."
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
