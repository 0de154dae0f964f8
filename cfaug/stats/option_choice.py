"""Which option a model ranks first: four reductions of likelihoods; parsing of written answers.

Published code differs silently in the reduction (CFMM cites SEED-Bench-2's, where LLaVA's options
are ranked by the mean over tokens and BLIP-2's by the sum), and rankings may depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import numpy as np

Reduction = Literal["token_mean", "sum", "char_norm", "pmi"]

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
"""Words that count as digits, as in VQAv2's evaluation."""

_LEAD = re.compile(
    r"^(?:(?:so|therefore|thus)[, ]+)?(?:the )?(?:right |correct |final )?answer(?: is)?[: ]\s*"
)
_END_OF_CLAUSE = re.compile(r"[,;:!?\n]|\.(?!\d)")
_EDGES = " \t\n\r\"'`*_.,;:!?()[]"


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
        tokens_K: number of tokens of each option.
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
        found: np.ndarray = nll / np.asarray(tokens_K, np.float64)
        return found
    if reduction == "sum":
        return nll
    if reduction == "char_norm":
        return np.asarray(nll / np.array([len(one) for one in options], np.float64))
    if reduction == "pmi" and blind_nll_K is not None:
        return np.asarray(nll - np.asarray(blind_nll_K, np.float64))
    raise ValueError(f"no scores for the reduction {reduction!r}")


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
        text: answer as the model wrote it.
        options: texts of the options, any number; a duplicated option is never the answer.
    """
    plain = [_plain(one) for one in options]
    said = _LEAD.sub("", text.strip().casefold())
    for part in (said, _END_OF_CLAUSE.split(said.strip(_EDGES), maxsplit=1)[0]):
        found = [place for place, one in enumerate(plain) if one and one == _plain(part)]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _plain(text: str) -> str:
    words = re.sub(r"\s+", " ", text.casefold()).strip(_EDGES).split(" ")
    if len(words) > 1 and words[0] in ("a", "an", "the"):
        words = words[1:]
    return " ".join(str(NUMBERS.index(one)) if one in NUMBERS else one for one in words)
