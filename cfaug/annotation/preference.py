"""Which of two captions of a photo is better? Two methods side by side (XMAI, section 5.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cfaug.annotation.attention import ASKS, PREFIX, Checks, draw_check
from cfaug.annotation.findings import Findings
from cfaug.annotation.question import AnnotationQuestion, ImageItem
from cfaug.annotation.sections import ReportSection
from cfaug.annotation.two_texts import TwoTexts, known_truth, read_two_texts
from cfaug.core.errors import UserError
from cfaug.data.index import Index
from cfaug.report.numbers import p_text
from cfaug.stats.item_tests import mcnemar


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
        """Return the photos whose text the two methods changed differently; then the checks.

        Args:
            index: the index of the first method's sets.
            other: the index of the second method's sets.

        Raises:
            UserError: if the sets of a folder do not have two texts, or there is no such photo.
        """
        theirs = {one.key: one for one in read_two_texts(other)}
        found = [
            ImageItem(one.key, 1, (one.texts[1], theirs[one.key].texts[1]), one.rows[1])
            for one in read_two_texts(index)
            if _differ(one, theirs.get(one.key))
        ]
        if not found:
            raise UserError(
                f"{index.source} and {other.source} have no photo whose text they changed "
                "differently: make both of the same data.source"
            )
        return found + [self._check(n, [one.row for one in found]) for n in range(self.attention)]

    def _check(self, number: int, rows: Sequence[int]) -> ImageItem:
        expected, row = draw_check(number, self.captions, rows)
        right, wrong = f"{ASKS}choose this caption.", f"{ASKS}do not choose this caption."
        texts = (right, wrong) if expected == self.captions[0] else (wrong, right)
        return ImageItem(f"{PREFIX}-{number}", 0, texts, row, expected=expected)

    def count(self, findings: Findings) -> ReportSection:
        """Count the photos for which most annotators chose each method; add the sign test.

        Args:
            findings: the answers, without those to checks.
        """
        first, second = self.captions
        counts = {first: 0, second: 0, "neither": 0}
        for place in findings.by_item:
            labels = findings.outcomes_of(place)
            most = [name for name in self.captions if 2 * labels.count(name) > len(labels)]
            counts[most[0] if most else "neither"] += 1
        p = mcnemar(counts[first], counts[second])
        said = (
            f"Of {sum(counts.values()):,} photos most annotators prefer the caption of {first} for "
            f"{counts[first]:,}, that of {second} for {counts[second]:,}; sign test of these: "
            f"p = {p_text(p)}."
        )
        return ReportSection(
            title="Which caption most annotators prefer",
            columns=("", "photos"),
            rows=tuple((name, f"{count:,}") for name, count in counts.items()),
            notes=("A majority is more than half of a photo's answers.",),
            sentences=(said,),
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
            items: the items to ask about.
            ours: {key of the set: its scores} for the first method.
            theirs: {key of the set: its scores} for the second method.

        Raises:
            UserError: if the question offers no answer for equal captions.
        """
        if not self.options:
            raise UserError(f"the question {self.title!r} has no answer for equal captions")
        equal = next(iter(self.options))
        found: list[str | None] = []
        for item in items:
            if item.expected:
                found.append(item.expected)
                continue
            first, second = (known_truth(scores, item.key, 1) for scores in (ours, theirs))
            if first is None or second is None:
                found.append(None)
                continue
            found.append(equal if first == second else self.captions[0 if first > second else 1])
        return found


def _differ(one: TwoTexts, other: TwoTexts | None) -> bool:
    return (
        other is not None and one.is_changed and other.is_changed and one.texts[1] != other.texts[1]
    )
