"""One image, several captions; two images, two captions; options of a question: who is right?"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, get_args

import numpy as np

from cfaug.stats.ranking import as_array, finite, unit

# One image, several captions: can a model tell which of them are true (SugarCrepe, ARO)?
#
# An item is right if every true caption scores above every false one. If the worst true caption
# ties with the best false one, a rule decides, and published programs use different rules:
#
# * ``miss``: wrong. SugarCrepe's ``main_eval.py`` (``pos > neg``) and ARO, whose ``argmax`` finds
#   the false caption first;
# * ``hit``: right. CLIP_benchmark and MTEB, whose ``argmax`` finds the true caption first;
# * ``half``: half an item, the expected value of a coin toss between two captions.
#
# Captions are (items, captions); an item with fewer captions than others is padded with ``ABSENT``,
# and the scores there are ignored.

Ties = Literal["miss", "half", "hit"]
TRUE, FALSE, ABSENT = 1, 0, -1
"""Codes of captions: true or false of the image, or padding."""
WORTH: Mapping[str, float] = {"miss": 0.0, "half": 0.5, "hit": 1.0}
"""The fraction of an item that a tie counts, by rule."""


def choice_hits(scores_NK: Any, truth_NK: Any, ties: Ties = "miss") -> np.ndarray:
    """Return which items are right, float64 (items,) of 0, 1, and 0.5 where ties are half a hit.

    >>> choice_hits([[0.9, 0.1], [0.5, 0.5]], [[1, 0], [1, 0]], "half").tolist()
    [1.0, 0.5]

    Args:
        scores_NK: score of each caption, (items, captions); larger is better.
        truth_NK: ``TRUE``, ``FALSE`` or ``ABSENT`` for each caption, (items, captions).
        ties: rule for a tie between the worst true caption and the best false one: ``"miss"``,
            ``"half"`` or ``"hit"``.

    Raises:
        ValueError: if a score is not finite, an item lacks a true or a false caption, or the rule
            is unknown.
    """
    worst, best = extremes(scores_NK, truth_NK)
    if ties not in WORTH:
        raise ValueError(f"ties={ties!r} is invalid: choose {', '.join(get_args(Ties))}")
    return np.where(worst == best, WORTH[ties], (worst > best).astype(np.float64))


def original_hits(scores_NK: Any, truth_NK: Any, ties: Ties = "miss") -> np.ndarray:
    """Return which items are right if only the first true caption counts, float64 (items,).

    Original accuracy of hard positives (Kamath et al., 2024, section 4.1), whose augmented accuracy
    is ``choice_hits``.

    >>> original_hits([[0.9, 0.1, 0.5]], [[1, 1, 0]]).tolist()
    [1.0]

    Args:
        scores_NK: score of each caption, (items, captions); larger is better.
        truth_NK: ``TRUE``, ``FALSE`` or ``ABSENT`` for each caption, (items, captions).

    Raises:
        ValueError: as ``choice_hits`` does.
    """
    truth = np.array(truth_NK)
    later = (truth == TRUE) & (np.cumsum(truth == TRUE, axis=1) > 1)
    return choice_hits(scores_NK, np.where(later, ABSENT, truth), ties)


def brittle(scores_NK: Any, truth_NK: Any) -> np.ndarray:
    """Return which items have true captions on both sides of the best false one, bool (items,).

    Brittleness of hard positives (Kamath et al., 2024, section 4.1): caption > negative >
    paraphrase, or paraphrase > negative > caption. Both comparisons are strict, as in the authors'
    code, so an item with a tie is not brittle.

    >>> brittle([[0.9, 0.1, 0.5], [0.9, 0.8, 0.5]], [[1, 1, 0], [1, 1, 0]]).tolist()
    [True, False]

    Args:
        scores_NK: score of each caption, (items, captions); larger is better.
        truth_NK: ``TRUE``, ``FALSE`` or ``ABSENT`` for each caption, (items, captions).

    Raises:
        ValueError: if a score is not finite, or an item lacks a true or a false caption.
    """
    worst, false = extremes(scores_NK, truth_NK)
    best = np.where(np.asarray(truth_NK) == TRUE, as_array(scores_NK), -np.inf).max(axis=1)
    mask: np.ndarray = (worst < false) & (best > false)
    return mask


def text_only_hits(similar_NKK: Any, truth_NK: Any, ties: Ties = "miss") -> np.ndarray:
    """Return which items have true captions more similar to each other than to any false one.

    The text-only test (TOT) of SugarCrepe++: s(P1, P2) > s(P1, N) and s(P1, P2) > s(P2, N).

    >>> text_only_hits([[[1.0, 0.8, 0.3], [0.8, 1.0, 0.7], [0.3, 0.7, 1.0]]], [[1, 1, 0]]).tolist()
    [1.0]

    Args:
        similar_NKK: similarity of every two captions of an item, (items, captions, captions).
        truth_NK: ``TRUE``, ``FALSE`` or ``ABSENT`` for each caption, (items, captions).

    Returns:
        float64 (items,).

    Raises:
        ValueError: as ``choice_hits`` does, or if an item has a single true caption.
    """
    similar, truth = as_array(similar_NKK), np.asarray(truth_NK)
    first, second = np.triu_indices(truth.shape[1], k=1)
    left, right = truth[:, first], truth[:, second]
    pairs = np.where(left == right, TRUE, FALSE)
    pairs[((left == FALSE) & (right == FALSE)) | (left == ABSENT) | (right == ABSENT)] = ABSENT
    return choice_hits(similar[:, first, second], pairs, ties)


def mean_by(hits_N: Any, categories: Sequence[str | None]) -> dict[str, float]:
    """Return the mean of each category, in alphabetical order; items without one do not count.

    >>> mean_by([1.0, 0.0, 1.0], ["swap", "swap", "add"])
    {'add': 1.0, 'swap': 0.5}

    Args:
        hits_N: value of each item, float (items,); NaN values do not count.
        categories: category of each item, (items,); ``None`` for an item without one.
    """
    hits = np.asarray(hits_N, np.float64)
    labels = np.array(categories, object)
    names = sorted({category for category in categories if category is not None})
    by_category = {name: hits[(labels == name) & ~np.isnan(hits)] for name in names}
    return {name: float(values.mean()) for name, values in by_category.items() if len(values)}


def categories_that_count(
    categories: Sequence[str | None], at_least: int = 1, drop: Collection[str] = ()
) -> list[str]:
    """Return the categories that enter a macro average, in alphabetical order.

    ARO drops symmetric relations, whose swapped captions are just as true (the list is only in a
    notebook of the authors), and pairs of attributes with fewer than 25 cases
    (``aro_datasets.py``).

    >>> categories_that_count(["on", "on", "near", "in", None], at_least=1, drop=["near"])
    ['in', 'on']

    Args:
        categories: category of each item, (items,); ``None`` for an item without one.
        at_least: smallest number of items that a category needs to count.
    """
    named = [category for category in categories if category is not None]
    names, counts = np.unique(np.array(named, dtype=object), return_counts=True)
    return [
        str(name)
        for name, count in zip(names, counts.tolist(), strict=True)
        if count >= at_least and name not in drop
    ]


def group_means(
    means: Mapping[str, float], groups: Mapping[str, Collection[str]]
) -> dict[str, float]:
    """Return the mean of the categories of each group; a group without any of them is left out.

    Papers that print SugarCrepe's replace, swap and add average the categories of each, and then
    these three.

    >>> group_means({"swap_obj": 0.5, "swap_att": 0.75}, {"swap": ["swap_obj", "swap_att"]})
    {'swap': 0.625}

    Args:
        groups: categories of each group, by the group's name.
    """
    by_group = {}
    for name, members in groups.items():
        values = [means[member] for member in members if member in means]
        if values:
            by_group[name] = float(np.mean(values))
    return by_group


def extremes(scores_NK: Any, truth_NK: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the score of each item's worst true caption, and of its best false one.

    Args:
        scores_NK: score of each caption, (items, captions); larger is better.
        truth_NK: ``TRUE``, ``FALSE`` or ``ABSENT`` for each caption, (items, captions).

    Raises:
        ValueError: as ``choice_hits`` does, except for its rule.
    """
    scores, truth = as_array(scores_NK), np.asarray(truth_NK)
    if scores.ndim != 2 or scores.shape != truth.shape or not len(scores):
        raise ValueError(f"scores and truth should be items x captions, not {scores.shape}")
    if not np.isin(truth, (TRUE, FALSE, ABSENT)).all():
        raise ValueError(f"a caption is {TRUE}, {FALSE} or {ABSENT} (true, false or absent)")
    finite(scores[truth != ABSENT], "scores")
    for kind, value in (("true", TRUE), ("false", FALSE)):
        lacking = np.flatnonzero(~(truth == value).any(axis=1))
        if len(lacking):
            raise ValueError(f"item {lacking[0]} has no {kind} caption")
    worst = np.where(truth == TRUE, scores, np.inf).min(axis=1)
    best = np.where(truth == FALSE, scores, -np.inf).max(axis=1)
    return worst, best


# Two images, two captions: which belongs to which (Thrush et al., 2022, Winoground, section 4).


def pair_similarities(text_NKD: Any, image_NMD: Any) -> np.ndarray:
    """Return cosines (items, captions, images) from embeddings (items, captions or images, dim).

    Equal captions or equal images of an item score exactly the same, on every processor.

    Args:
        text_NKD: caption embeddings, (items, captions, dim).
        image_NMD: image embeddings, (items, images, dim).

    >>> import numpy as np
    >>> pair_similarities(np.eye(2)[None], np.eye(2)[None, :1]).tolist()
    [[[1.0], [0.0]]]
    """
    texts, images = as_array(text_NKD), as_array(image_NMD)
    sim: np.ndarray = unit(texts, "text embeddings") @ np.swapaxes(
        unit(images, "image embeddings"), -1, -2
    )
    for left, right in combinations(range(texts.shape[1]), 2):
        same = (texts[:, left] == texts[:, right]).all(axis=-1)
        sim[same, right] = sim[same, left]
    for left, right in combinations(range(images.shape[1]), 2):
        same = (images[:, left] == images[:, right]).all(axis=-1)
        sim[same, :, right] = sim[same, :, left]
    return sim


def winoground(sim_N22: Any) -> dict[str, float]:
    """Return text, image and group score, fractions of pairs.

    Text score: for both images the right caption scores higher; image score: for both captions the
    right image does; group score: both. Comparisons are strict, as in the paper, so a tie is a
    miss. Chance is 1/4, 1/4 and 1/6.

    Args:
        sim_N22: similarities, (pairs, captions, images); caption i belongs to image i.

    Raises:
        ValueError: if the shape is wrong or a score is not finite.

    >>> winoground([[[0.9, 0.5], [0.1, 0.6]], [[0.5, 0.5], [0.5, 0.5]]])
    {'text_score': 0.5, 'image_score': 0.5, 'group_score': 0.5}
    """
    return {name: float(hits.mean()) for name, hits in winoground_hits(sim_N22).items()}


def winoground_hits(sim_N22: Any) -> dict[str, np.ndarray]:
    """Return which pairs are right by each score of ``winoground``, bool (pairs,).

    Args:
        sim_N22: similarities, (pairs, captions, images); caption i belongs to image i.

    Raises:
        ValueError: if the shape is wrong or a score is not finite.
    """
    sim = finite(as_array(sim_N22), "scores")
    if sim.ndim != 3 or sim.shape[1:] != (2, 2) or not len(sim):
        raise ValueError(f"scores should be pairs x 2 captions x 2 images, not {sim.shape}")
    right_0, right_1 = sim[:, 0, 0], sim[:, 1, 1]
    caption_1_image_0, caption_0_image_1 = sim[:, 1, 0], sim[:, 0, 1]
    text = (right_0 > caption_1_image_0) & (right_1 > caption_0_image_1)
    image = (right_0 > caption_0_image_1) & (right_1 > caption_1_image_0)
    return {"text_score": text, "image_score": image, "group_score": text & image}


def pair_hits(sim_N22: Any) -> dict[str, np.ndarray]:
    """Return which pairs are right by each score of ``winoground``, and by five more.

    * ``group_matching``: the right assignment has the largest total similarity; chance is 1/2
      (Test-Time Matching, arXiv 2510.07632, which argues that the group score hides capability);
    * ``text_score_i0``, ``text_score_i1``: image 0 or image 1 scores higher with its own caption;
    * ``image_score_c0``, ``image_score_c1``: caption 0 or caption 1 scores higher with its own
      image. Chance is 1/2 for these four; their names are those of BiVLC's released files.

    >>> {name: hits.tolist() for name, hits in pair_hits([[[0.9, 0.5], [0.8, 0.7]]]).items()}
    ... # doctest: +NORMALIZE_WHITESPACE
    {'text_score': [True], 'image_score': [False], 'group_score': [False],
     'group_matching': [True], 'text_score_i0': [True], 'text_score_i1': [True],
     'image_score_c0': [True], 'image_score_c1': [False]}

    Args:
        sim_N22: similarities, (pairs, captions, images); caption i belongs to image i.

    Returns:
        bool (pairs,) by name; a tie is a miss.

    Raises:
        ValueError: if the shape is wrong or a score is not finite.
    """
    sim = as_array(sim_N22)
    return {
        **winoground_hits(sim),
        "group_matching": sim[:, 0, 0] + sim[:, 1, 1] > sim[:, 0, 1] + sim[:, 1, 0],
        "text_score_i0": sim[:, 0, 0] > sim[:, 1, 0],
        "text_score_i1": sim[:, 1, 1] > sim[:, 0, 1],
        "image_score_c0": sim[:, 0, 0] > sim[:, 0, 1],
        "image_score_c1": sim[:, 1, 1] > sim[:, 1, 0],
    }


# Which option a model ranks first: four reductions of likelihoods; parsing of written answers.
#
# Published code differs silently in the reduction (CFMM cites SEED-Bench-2's, where LLaVA's options
# are ranked by the mean over tokens and BLIP-2's by the sum), and rankings may depend on it.

Reduction = Literal["token_mean", "sum", "char_norm", "pmi"]
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
"""Words that count as digits, as in VQAv2's evaluation."""
_LEAD = re.compile(
    r"^(?:(?:so|therefore|thus)[, ]+)?(?:the )?(?:right |correct |final )?answer(?: is)?[: ]\s*"
)
_END_OF_CLAUSE = re.compile(r"[,;:!?\n]|\.(?!\d)")
_EDGES = " \t\n\r\"'`*_.,;:!?()[]{}"


def reduce_scores(
    nll_K: Sequence[float],
    tokens_K: Sequence[int],
    options: Sequence[str],
    reduction: Reduction,
    blind_nll_K: Sequence[float] | None = None,
) -> np.ndarray:
    """Return the scores that rank options, the smallest first, float64 (options,).

    >>> reduce_scores([2.0, 3.0], [1, 3], ["no", "not at all"], "token_mean").tolist()
    [2.0, 1.0]

    Args:
        nll_K: negative log-likelihood of each option, summed over its tokens, in nats.
        options: text of each option; ``char_norm`` counts its characters.
        reduction: rule: ``token_mean`` divides by the number of tokens, ``char_norm`` by the number
            of characters, ``sum`` does not divide; ``pmi`` subtracts the option's likelihood
            without the image.
        blind_nll_K: negative log-likelihood of each option without the image, for ``pmi`` only.

    Raises:
        ValueError: if the reduction is unknown, or ``pmi`` has no blind scores.
    """
    nll = np.asarray(nll_K, np.float64)
    if reduction == "token_mean":
        scores: np.ndarray = nll / np.asarray(tokens_K, np.float64)
        return scores
    if reduction == "sum":
        return nll
    if reduction == "char_norm":
        return np.asarray(nll / np.array([len(option) for option in options], np.float64))
    if reduction == "pmi" and blind_nll_K is not None:
        return np.asarray(nll - np.asarray(blind_nll_K, np.float64))
    raise ValueError(f"no scores for the reduction {reduction!r}")


def probability_of_first(nll_K: Sequence[float]) -> float:
    """Return the probability of the first option if one of the options is the answer.

    >>> round(probability_of_first([0.0, np.log(3)]), 12)  # likelihoods of 1 and 1/3
    0.75

    Args:
        nll_K: negative log-likelihood of each option, summed over its tokens, in nats.
    """
    nll = np.asarray(nll_K, np.float64)
    return float(np.exp(-np.logaddexp.reduce(nll[0] - nll)))


def choose(scores_K: np.ndarray) -> int | None:
    """Return the index of the smallest score; ``None`` if several are smallest.

    >>> choose(np.array([2.0, 1.0, 3.0])), choose(np.array([1.0, 1.0, 3.0]))
    (1, None)

    Args:
        scores_K: score of each option, (options,).
    """
    smallest = np.flatnonzero(scores_K == scores_K.min())
    return int(smallest[0]) if len(smallest) == 1 else None


def parse_answer(text: str, options: Sequence[str]) -> int | None:
    """Return the index of the option that a written answer gives; ``None`` unless it is just one.

    The answer, or its first clause, must be the option and nothing else, apart from case,
    punctuation, an article, "the answer is", and numbers as words. An option that is merely
    mentioned is not an answer.

    >>> parse_answer("Yes, there are.", ["yes", "no"]), parse_answer("Two", ["2", "3"])
    (0, 0)
    >>> parse_answer("It is red, not blue", ["red", "blue"]) is None
    True

    Args:
        options: texts of the options, any number; a duplicated option is never the answer.
    """
    plain = [_plain(option) for option in options]
    answer = _LEAD.sub("", text.strip().casefold())
    for part in (answer, _END_OF_CLAUSE.split(answer.strip(_EDGES), maxsplit=1)[0]):
        matches = [i for i, option in enumerate(plain) if option and option == _plain(part)]
        if matches:
            return matches[0] if len(matches) == 1 else None
    return None


def _plain(text: str) -> str:
    words = re.sub(r"\s+", " ", text.casefold()).strip(_EDGES).split(" ")
    if len(words) > 1 and words[0] in ("a", "an", "the"):
        words = words[1:]
    return " ".join(str(NUMBERS.index(word)) if word in NUMBERS else word for word in words)


# Right answers to basic and counterfactual questions about one image (CFMM, section 3.4).
#
# ``acc_b`` is over images, ``acc_c`` over counterfactual questions, ``acc_plus`` over pairs of the
# basic and one counterfactual question that are both right: 4n pairs of n images, as every cell of
# the paper's Table 2 shows. A total is the plain sum of the categories' percentages.


@dataclass(frozen=True)
class Accuracies:
    """Fractions of right answers, and their correlation ``phi``; NaN without questions.

    Attributes:
        acc_plus: fraction of pairs, the basic and one counterfactual question, with both answers
            right; by chance 1/4.
        strict: fraction of images with every question answered right.
        consistency: accuracy on the counterfactual questions of images with a right basic answer:
            acc_plus over acc_b, if all images have equally many questions.
        drop: acc_b minus acc_c.
        phi: correlation of right answers over the pairs, -1 to 1; NaN where all basic or all
            counterfactual answers are alike.
    """

    images: int
    acc_b: float
    acc_c: float
    acc_plus: float
    strict: float
    consistency: float
    drop: float
    phi: float


def accuracies(basic_N: np.ndarray, counterfactual_NK: Sequence[np.ndarray]) -> Accuracies:
    """Return the accuracies of one category, or of all images together (micro).

    >>> import numpy as np
    >>> shares = accuracies(np.array([1, 0]), [np.array([1, 0]), np.array([1, 1])])
    >>> shares.acc_b, shares.acc_c, shares.acc_plus, shares.strict
    (0.5, 0.75, 0.25, 0.0)

    Args:
        basic_N: whether the basic question of each image was answered right, (images,).
        counterfactual_NK: whether each counterfactual question was answered right, an array
            (questions,) for each image; the number may vary.

    Raises:
        ValueError: if the numbers of images differ.
    """
    basic = np.asarray(basic_N, dtype=bool)
    if len(basic) != len(counterfactual_NK):
        raise ValueError(f"{len(basic)} images have {len(counterfactual_NK)} counterfactual parts")
    parts = [np.asarray(part, dtype=bool).reshape(-1) for part in counterfactual_NK]
    counterfactual = np.concatenate([np.zeros(0, dtype=bool), *parts])
    repeated = np.repeat(basic, [len(part) for part in parts])
    acc_b, acc_c = mean_or_nan(basic), mean_or_nan(counterfactual)
    acc_plus = mean_or_nan(repeated & counterfactual)
    every = np.array(
        [b and bool(part.all()) for b, part in zip(basic, parts, strict=True)], dtype=bool
    )
    return Accuracies(
        images=len(basic),
        acc_b=acc_b,
        acc_c=acc_c,
        acc_plus=acc_plus,
        strict=mean_or_nan(every),
        consistency=mean_or_nan(counterfactual[repeated]),
        drop=acc_b - acc_c,
        phi=phi_from_margins(mean_or_nan(repeated), acc_c, acc_plus),
    )


def phi_from_margins(p_basic: float, p_counterfactual: float, p_both: float) -> float:
    """Return the correlation of two right-or-wrong answers from three fractions of the same pairs.

    >>> round(phi_from_margins(0.8, 0.5, 0.35), 3)
    -0.25

    Args:
        p_basic: fraction of pairs with the basic question answered right.
        p_counterfactual: fraction of pairs with the counterfactual question answered right.
        p_both: fraction of pairs with both questions answered right.

    Returns:
        -1 to 1; NaN where a fraction of one kind is 0 or 1.
    """
    spread = p_basic * (1 - p_basic) * p_counterfactual * (1 - p_counterfactual)
    if not spread > 0:
        return float("nan")
    return float((p_both - p_basic * p_counterfactual) / np.sqrt(spread))


def mean_or_nan(values: np.ndarray) -> float:
    """Return the mean of all values; NaN without any."""
    return float(values.mean()) if values.size else float("nan")
