"""Is a question about an image good? People verify it before it counts (CFMM, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cfaug.annotation.question import AnnotationQuestion, ImageItem
from cfaug.core.errors import UserError
from cfaug.core.question_sets import QUESTION, VERIFIED, AskedQuestion, question_of
from cfaug.data.index import Index

GOOD = "good"
"""The answer that verifies a question."""

ANSWERS = (GOOD, "wrong_answer", "ambiguous", "leak", "not_counterfactual")
"""All possible answers; a question may offer fewer."""


@dataclass(frozen=True)
class QuestionItem(ImageItem):
    """A question to review; ``note`` lists its options, the right one first."""

    note: str = ""


@dataclass(frozen=True)
class QuestionReview(AnnotationQuestion):
    """The review of every question of a set; other arguments as for ``Question``.

    Args:
        only_new: whether to ask only about questions that nobody has verified, or about all.
    """

    only_new: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if GOOD not in self.options or not set(self.options) <= set(ANSWERS) or self.captions:
            raise self._invalid(
                "options", list(self.options), f"{GOOD} and some of {', '.join(ANSWERS[1:])}"
            )

    def items(self, index: Index) -> list[QuestionItem]:
        """Return the questions of sets that ``generate.py recipe=cfmm`` made, in order.

        Args:
            index: the index of the sets.

        Raises:
            UserError: if the sets have no questions, or there is nothing to ask.
        """
        if QUESTION not in index.extra_names:
            raise UserError(
                f"{index.source} holds no questions: name sets that `python generate.py "
                "recipe=cfmm` made"
            )
        found = []
        for row in range(len(index)):
            about = index.extra_row(row).get(QUESTION)
            asked = question_of(index.text(row), about, f"{index.source}, {index.key(row)}")
            if self.only_new and asked.extra.get(VERIFIED) is not False:
                continue
            key, _, member = index.key(row).rpartition("_")
            # The texts of an answer: the question, its right option and all options.
            texts = (asked.text, asked.right or "", *asked.options)
            found.append(QuestionItem(key, int(member), texts, row, asked.text, note=_note(asked)))
        if not found:
            raise UserError(
                f"{index.source} has no question that nobody verified; to ask about all: "
                "annotate.question.only_new=false"
            )
        return found

    def shown(self, item: ImageItem) -> dict[str, Any]:
        """Return the question below the picture, and its options."""
        assert isinstance(item, QuestionItem)
        return {"c": [item.text], "s": -1, "n": item.note}


def _note(asked: AskedQuestion) -> str:
    if asked.right is None:
        return f"Options: {'; '.join(asked.options)}. No right answer is known."
    wrong = [one for number, one in enumerate(asked.options) if number != asked.answer]
    return f"Right answer: {asked.right}. Wrong: {'; '.join(wrong)}."
