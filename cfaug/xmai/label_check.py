"""Is the right answer still the same after an edit? An oracle or people decide.

A method that changes a text may change the right answer: a wrong word makes a true caption false,
or a hypothesis no longer follows. If the model's answer changes as well, that is the text's fault
and not the model's, so such items are counted separately.

The oracle's answers are scores of the sets: ``truth_0`` and ``truth_1``, 1 or 0 (is the text true
of its image?), or ``entailment_0`` and ``entailment_1``, numbers of ``ENTAILMENT``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from cfaug.annotation.human_answers import HumanAnswers, read_human_answers
from cfaug.core.errors import UserError
from cfaug.core.types import ENTAILMENT
from cfaug.core.validation import check
from cfaug.xmai.text_pair_items import CHANGED, KEPT, UNKNOWN
from cfaug.xmai.text_pairs import TextPairs

Question = Literal["truth", "entailment"]

UNSURE = "unsure"
"""The answer of people who cannot tell; it counts as no answer."""

ANSWERS: Mapping[Question, Mapping[str, float]] = {
    "truth": {"yes": 1.0, "no": 0.0},
    "entailment": {label: float(number) for number, label in enumerate(ENTAILMENT)},
}
"""Meanings of people's answers: those of ``annotate.question=caption_true``, or a label."""


def read_right_answers(file: str, question: Question) -> HumanAnswers:
    """Read people's answers about texts, as ``annotate=read`` writes them: the majority for each.

    Args:
        file: ``labels.jsonl``, with ``key``, ``member`` (0 before, 1 after), ``annotator`` and
            ``label``.
        question: ``truth``, answered by ``yes``, ``no`` or ``unsure``; or ``entailment``, answered
            by one of its labels or ``unsure``.

    Raises:
        UserError: as ``read_human_answers`` does.
    """
    return read_human_answers(file, (*ANSWERS[question], UNSURE))


def check_labels(
    pairs: TextPairs, question: Question, answers: HumanAnswers | None = None
) -> list[str]:
    """Return for each set whether the right answer to its second text is that to its first.

    People's answers take precedence over the oracle's. Without an answer to the original text, the
    data decide: a caption is true of its photo, a hypothesis has its label. Equal texts have equal
    answers.

    Args:
        pairs: the texts before and after.
        question: ``truth`` for captions, ``entailment`` for hypotheses.
        answers: people's answers; ``None`` for the oracle's alone.

    Returns:
        ``kept``, ``changed`` or ``unknown`` for each set.

    Raises:
        UserError: if the question is unknown, people answered about other sets, or a score is not
            an answer.
    """
    check(question, Question, "question")
    said = {} if answers is None else answers.labels
    if answers is not None:
        names = [f"{key}_{member}" for key in pairs.keys for member in (0, 1)]
        answers.check_images(names, pairs.source)
    found = []
    for at, differs in enumerate(pairs.is_changed.tolist()):
        if not differs:
            found.append(KEPT)
            continue
        before, after = (_right(pairs, at, said, question, member) for member in (0, 1))
        before = _usual(pairs.labels[at], question) if before is None else before
        unknown = before is None or after is None
        found.append(UNKNOWN if unknown else KEPT if before == after else CHANGED)
    return found


def _right(
    pairs: TextPairs, at: int, said: Mapping[str, str], question: Question, member: int
) -> float | None:
    """Return the right answer to a text by people or the oracle; ``None`` without either."""
    label = said.get(f"{pairs.keys[at]}_{member}", UNSURE)
    if label != UNSURE:
        return ANSWERS[question][label]
    score = pairs.scores[at].get(f"{question}_{member}")
    if score is not None and score not in ANSWERS[question].values():
        raise UserError(
            f"{pairs.source}: set {pairs.keys[at]!r}: the score {question}_{member} is {score}; it "
            f"should be one of {', '.join(f'{one:g}' for one in ANSWERS[question].values())}"
        )
    return score


def _usual(label: str, question: Question) -> float | None:
    """Return the right answer to an original text according to the data."""
    return 1.0 if question == "truth" else ANSWERS[question].get(label)
