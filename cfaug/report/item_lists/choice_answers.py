"""Answers of multiple choice in logs: which choice had the largest likelihood, and its text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def find_choice(answer: Any) -> int | None:
    """Return the most likely choice of an item; ``None`` if no pairs are there.

    Args:
        answer: a pair for each choice, its log-likelihood and whether it is what the model would
            write, as lm-evaluation-harness logs them; the first of equal ones is taken, as there.

    >>> find_choice([["-13.1", "False"], ["-12.0", "False"]]), find_choice(["a", "b"])
    (1, None)
    """
    if not isinstance(answer, list) or len(answer) < 2:
        return None
    likelihoods = []
    for pair in answer:
        if not isinstance(pair, list) or len(pair) != 2 or str(pair[1]) not in ("True", "False"):
            return None
        try:
            likelihoods.append(float(pair[0]))
        except (TypeError, ValueError):
            return None
    return max(range(len(likelihoods)), key=likelihoods.__getitem__)


def read_choices(line: Mapping[str, Any], count: int) -> list[str]:
    """Return the texts of the choices that a line of a log was asked with; empty if unknown.

    Args:
        line: a line of lm-evaluation-harness, whose arguments are a context and a continuation for
            each choice; the continuations are its texts, unless they are equal.
    """
    given = line.get("arguments")
    requests = [*given.values()] if isinstance(given, Mapping) else given
    if not isinstance(requests, list) or len(requests) != count:
        return []
    texts = []
    for request in requests:
        parts = [*request.values()] if isinstance(request, Mapping) else request
        if not isinstance(parts, Sequence) or len(parts) < 2 or not isinstance(parts[1], str):
            return []
        texts.append(parts[1].strip())
    return texts if len({*texts}) == count and all(texts) else []


def describe_choice(index: int, texts: Sequence[str], count: int) -> str:
    """Return a choice for a reader.

    >>> describe_choice(2, [], 4), describe_choice(1, ["cat", "dog"], 2)
    ('2 of 0-3', '1: dog')
    """
    return f"{index}: {texts[index]}" if texts else f"{index} of 0-{count - 1}"


def describe_target(target: Any, texts: Sequence[str], count: int) -> str:
    """Return the right answer for a reader; it is a choice only if it cannot be anything else.

    >>> describe_target("1", ["cat", "dog"], 2), describe_target("dog", ["cat", "dog"], 2)
    ('1: dog', 'dog')
    """
    said = str(target).strip()
    if said.isdecimal() and said not in texts and int(said) < count:
        return describe_choice(int(said), texts, count)
    return said
