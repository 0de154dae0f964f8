"""Checks of questions, and the right answers to them (CFMM, section 3.4)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from cfaug.data.questions import (
    CLOSED,
    COUNTERFACTUAL,
    DISPUTED,
    EXPECTED_BIAS,
    FEWEST_OPTIONS,
    PRESUPPOSITION,
    QuestionImage,
    SourceQuestion,
)
from cfaug.editing.baselines.checklist import ONES
from cfaug.editing.sentence import normalise
from cfaug.stats.choices import mean_or_nan
from cfaug.stats.significance import holm

# Checks of questions: an answer in the condition, equal options, and more.
#
# CFMM discards questions whose condition contains the answer (section 3.3, information leakage):
# "If I painted this bus blue, what color would it be?" can be answered without the image.

NO_ANSWER, NOT_AN_OPTION, FEW_OPTIONS, EQUAL_OPTIONS = (
    "answer missing", "answer is no option", "fewer than two options", "equal options",
)  # fmt: skip
SIMILAR_OPTIONS, LEAK, NO_CONDITION, DUPLICATED, UNBALANCED, DISPUTED_ANSWER, NO_BIAS = (
    "options differ in case or space only", "answer in the condition", "condition missing",
    "duplicated question", "position of the answer", "answer disputed",
    "expected_bias is no wrong option",
)  # fmt: skip
FATAL = frozenset({NOT_AN_OPTION, FEW_OPTIONS, EQUAL_OPTIONS})
"""Problems with which a question cannot be scored."""
EXAMPLES = 3
"""Number of questions that a problem names."""
SIGNIFICANT = 0.01
"""The p-value, corrected by Holm's method, below which right answers' positions are unbalanced."""
MARKER = re.compile(
    r"\b(?:if|unless|suppos(?:e|ing)|imagin(?:e|ing)|assum(?:e|ing)|provided|pretend(?:ing)?"
    r"|without|in case)\b|^\s*(?:had|were|should)\b",
    re.IGNORECASE,
)
"""The beginnings of conditions."""
CONDITION_ENDS = re.compile(
    r",\s*(?:then\s+)?(?=(?:how|what|which|who|whose|whom|where|when|why|would|will|could|can|might"
    r"|is|are|do|does|should|in\s+(?:which|what)|on\s+(?:which|what)|at\s+what|to\s+which)\b)"
    r"|[.?!](?:\s|$)",
    re.IGNORECASE,
)
NUMBERS = {word: str(number) for number, word in enumerate((*ONES, "twenty"))}
ARTICLES = frozenset({"a", "an", "the"})
YES_OR_NO = frozenset({"yes", "no"})
"""Answers that a condition may contain without giving them away: "if there were no dog, ..."."""


@dataclass(frozen=True)
class QuestionProblem:
    """A problem of some questions.

    Attributes:
        count: the number of questions with it; for positions, of right answers at the most frequent
            one.
        of: the total number of questions; for positions, of tested ones.
        examples: the first questions with the problem, each with its place and the details.
        fatal: whether questions with the problem cannot be scored.
    """

    what: str
    count: int
    of: int
    examples: tuple[str, ...] = field(default=())
    fatal: bool = False

    def __str__(self) -> str:
        named = "; ".join(self.examples)
        return f"{self.what}: {self.count:,} of {self.of:,}" + (f" ({named})" if named else "")


def validate(images: Sequence[QuestionImage]) -> list[QuestionProblem]:
    """Return the problems of a question set, fatal ones first, with counts and examples.

    Args:
        images: the images of a set with their questions; they are not decoded.
    """
    by_problem: dict[str, list[str]] = {}
    total = 0
    seen: dict[Hashable, str] = {}
    for image in images:
        # Equal for entries about the same image, which is not decoded.
        shown = image.image if isinstance(image.image, Hashable) else None
        same_image = image.key if shown is None else shown
        for question in image.questions:
            total += 1
            name = f"{image.key}/{question.id}"
            for problem, why in check_question(question):
                by_problem.setdefault(problem, []).append(f"{name}: {why}")
            same = (same_image, normalise(question.text).casefold())
            if (first := seen.setdefault(same, name)) != name:
                by_problem.setdefault(DUPLICATED, []).append(f"{name}: as {first}")
    problems = [
        QuestionProblem(problem, len(some), total, tuple(some[:EXAMPLES]), problem in FATAL)
        for problem, some in by_problem.items()
    ]
    problems.sort(key=lambda problem: (not problem.fatal, problem.what))
    return problems + list(_unbalanced(images))


def check_question(question: SourceQuestion) -> Iterator[tuple[str, str]]:
    """Yield (problem, reason) for one question by itself.

    Args:
        question: a question of any kind; only a counterfactual one has a condition.
    """
    options = question.options
    if len(options) < FEWEST_OPTIONS:
        yield FEW_OPTIONS, ", ".join(options) or "none"
    if question.answer is None:
        yield NO_ANSWER, repr(question.text)
    elif question.right is None:
        given = question.extra.get("answer", question.answer)
        yield NOT_AN_OPTION, f"{given!r} of {len(options)} options"
    twice = [option for option, count in Counter(options).items() if count > 1]
    if twice:
        yield EQUAL_OPTIONS, repr(twice[0])
    elif len({"".join(option.split()).casefold() for option in options}) < len(options):
        yield SIMILAR_OPTIONS, ", ".join(map(repr, options))
    if DISPUTED in question.extra:
        yield DISPUTED_ANSWER, str(question.extra[DISPUTED])
    memorised = question.extra.get(EXPECTED_BIAS)
    if memorised is not None and memorised not in {*options} - {question.right}:
        yield NO_BIAS, f"{memorised!r} of {', '.join(map(repr, options))}"
    if question.kind != COUNTERFACTUAL:
        return
    clause = condition(question)
    if not clause:
        yield NO_CONDITION, repr(question.text)
    elif question.right is not None and leaks(question.right, clause):
        yield LEAK, f"{question.right!r} stands in {clause!r}"


def condition(question: SourceQuestion) -> str:
    """Return the condition of a counterfactual question, from its set or from its text.

    >>> text = "If I painted this bus blue, what color would it be?"
    >>> condition(SourceQuestion("c1", "counterfactual", text, ("blue", "red"), 0))
    'If I painted this bus blue'

    Returns:
        The condition, with its marker if it is part of the text; empty if there is none.
    """
    part = find_condition(question.text)
    if not part:
        return ""
    stated = question.extra.get(PRESUPPOSITION)
    return stated.strip() if isinstance(stated, str) and stated.strip() else part


def find_condition(text: str) -> str:
    """Return the part of a text that states a condition; empty if there is none.

    >>> find_condition("How many would there be if two left? Count.")
    'if two left'
    """
    match = MARKER.search(text)
    if match is None:
        return ""
    rest = text[match.start() :]
    end = CONDITION_ENDS.search(rest)
    return rest[: None if end is None else end.start()].strip()


def leaks(answer: str, clause: str) -> bool:
    """Return whether a condition contains an answer as whole words; numbers as words or digits.

    >>> leaks("blue", "If I painted this bus blue"), leaks("3", "if three dogs came")
    (True, True)
    >>> leaks("red", "if it were covered"), leaks("no", "if there were no dogs")
    (False, False)
    """
    wanted, words = plain(answer).split(), plain(clause).split()
    if not wanted or " ".join(wanted) in YES_OR_NO:
        return False
    return any(words[at : at + len(wanted)] == wanted for at in range(len(words)))


def plain(text: str) -> str:
    """Return the words of a text for comparison: without case, articles and punctuation.

    >>> plain("The TWO  dogs' tails!")
    '2 dogs tails'
    """
    words = re.findall(r"\w+", text.casefold())
    return " ".join(NUMBERS.get(word, word) for word in words if word not in ARTICLES)


def _unbalanced(images: Sequence[QuestionImage]) -> Iterator[QuestionProblem]:
    """Yield a problem for each kind of question whose right answers prefer a position.

    The test of equally likely positions is a chi-squared test, or exact for two options. Questions
    with fixed options, such as yes and no, are left out: their text determines the position.
    """
    from scipy.stats import binomtest, chisquare

    counts: dict[tuple[str, int], np.ndarray] = {}
    for question in chain.from_iterable(image.questions for image in images):
        n = len(question.options)
        fixed = question.extra.get(CLOSED) or {*map(plain, question.options)} <= YES_OR_NO
        if question.right is not None and n > 1 and not fixed:
            counts.setdefault((question.kind, n), np.zeros(n, int))[question.answer] += 1
    tested = sorted(counts.items())
    p_values = [
        binomtest(int(tally[0]), int(tally.sum())).pvalue
        if len(tally) == 2
        else chisquare(tally).pvalue
        for _, tally in tested
    ]
    for ((kind, n), tally), p in zip(tested, holm(p_values) if p_values else (), strict=True):
        if p < SIGNIFICANT:
            at = int(tally.argmax())
            example = f"{kind}, {n} options: the right answer is number {at} (p = {p:.2g})"
            yield QuestionProblem(UNBALANCED, int(tally[at]), int(tally.sum()), (example,))


# Intervals of phi, whose value is ``cfaug.stats.choices.accuracies``'s; totals, and whole groups.
#
# ``scipy.stats.bootstrap`` of the clusters' counts takes ten times as long (0.2 s for 600 images)
# as drawing the number of clusters of each kind.

RESAMPLES = 10_000
"""Default number of bootstrap resamples."""
DRAWN_AT_ONCE = 2**20
"""Counts drawn at once: 8 MB."""


def phi_interval(
    basic_N: np.ndarray,
    counterfactual_NK: Sequence[np.ndarray],
    clusters_N: Sequence[Any] | np.ndarray,
    rng: np.random.Generator,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
) -> tuple[float, float]:
    """Return the percentile interval of ``phi`` from a bootstrap over whole clusters of images.

    Args:
        basic_N: whether the basic question of each image was answered right, (images,).
        counterfactual_NK: whether each counterfactual question was answered right, an array
            (questions,) for each image.
        clusters_N: the cluster each image was sampled in, any comparable values, (images,).
        level: nominal coverage, between 0 and 1.
        resamples: number of resamples; one in which all answers of a kind are alike has no phi and
            is left out.

    Returns:
        The ends of the interval; NaN with a single cluster, or if no resample has a phi.
    """
    basic = np.asarray(basic_N, dtype=np.int64)
    pairs, right = (
        np.array([count(part) for part in counterfactual_NK], dtype=np.int64)
        for count in (np.size, np.count_nonzero)
    )
    names, inverse = np.unique(np.asarray(clusters_N), return_inverse=True)
    if len(names) < 2:
        return float("nan"), float("nan")
    sums_G4 = np.zeros((len(names), 4), dtype=np.int64)
    np.add.at(
        sums_G4, inverse.reshape(-1), np.stack([pairs, basic * pairs, right, basic * right], axis=1)
    )
    # Clusters with equal sums cannot be told apart: the number drawn of each kind is enough.
    kinds, counts = np.unique(sums_G4, axis=0, return_counts=True)
    at_once = max(1, DRAWN_AT_ONCE // len(kinds))
    drawn = np.concatenate([
        rng.multinomial(len(names), counts / len(names), size=min(at_once, resamples - at)) @ kinds
        for at in range(0, resamples, at_once)
    ])  # fmt: skip
    n, b, c, both = drawn.T.astype(np.float64)
    spread = b * (n - b) * c * (n - c)
    known = spread > 0
    if not known.any():
        return float("nan"), float("nan")
    phi = (both * n - b * c)[known] / np.sqrt(spread[known])
    low, high = np.quantile(phi, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def total(by_category: Mapping[str, float]) -> float:
    """Return the sum of the categories' percentages, the paper's score of up to 600.

    >>> total({"count": 0.5, "color": 0.25})
    75.0

    Args:
        by_category: accuracy of each category, as a fraction.
    """
    return 100.0 * float(sum(by_category.values()))


def whole_groups(right_N: np.ndarray, groups_N: Sequence[Any]) -> np.ndarray:
    """Mark the groups without a mistake, each at the position of its first answer.

    The mean of the values that are not NaN is the share of groups without a mistake: ``qAcc`` of
    HallusionBench where a group is a question about several figures, ``fAcc`` where it is the
    questions about one figure (Guan et al., 2024, section 4.1).

    >>> import numpy as np
    >>> whole_groups(np.array([1.0, 1.0, 0.0, 1.0]), ["a", "a", "b", None]).tolist()
    [1.0, nan, 0.0, nan]

    Args:
        right_N: 1 for a right and 0 for a wrong answer, (answers,); NaN for an answer that was left
            out, whose group does not count.
        groups_N: the group of each answer; ``None`` for an answer without one.

    Returns:
        float64 (answers,): 1 or 0 at the first answer of a group that counts, else NaN.
    """
    whole = np.full(len(right_N), np.nan)
    places: dict[Any, list[int]] = {}
    for position, group in enumerate(groups_N):
        if group is not None:
            places.setdefault(group, []).append(position)
    for members in places.values():
        values = right_N[members]
        if not np.isnan(values).any():
            whole[members[0]] = float(values.all())
    return whole


def group_accuracies(right_G22: np.ndarray) -> dict[str, float]:
    """Return NaturalBench's accuracies of two questions about two images (section 3).

    >>> import numpy as np
    >>> group_accuracies(np.array([[[1, 1], [1, 0]]]))
    {'acc': 0.75, 'q_acc': 0.5, 'i_acc': 0.5, 'g_acc': 0.0}

    Args:
        right_G22: whether each answer is right, (groups, questions, images).

    Returns:
        ``acc`` over answers; ``q_acc`` of questions that are right about both images; ``i_acc`` of
        images about which both questions are right; ``g_acc`` of groups without a mistake. By
        chance, of two options: 1/2, 1/4, 1/4, 1/16.
    """
    right = np.asarray(right_G22, dtype=bool)
    if right.ndim != 3 or right.shape[1:] != (2, 2):
        raise ValueError(f"answers should be groups x 2 questions x 2 images, not {right.shape}")
    return {
        "acc": mean_or_nan(right),
        "q_acc": mean_or_nan(np.asarray(right.all(axis=2))),
        "i_acc": mean_or_nan(np.asarray(right.all(axis=1))),
        "g_acc": mean_or_nan(np.asarray(right.all(axis=(1, 2)))),
    }
