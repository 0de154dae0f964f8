"""What made-up models answer to basic and counterfactual questions, as the benchmark writes it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from cfaug.evaluation.questions.question_items import QuestionItems
from cfaug.report.items import Items

IMAGES: Mapping[str, int] = {"count": 9, "color": 6, "other": 4}
"""How many there are of each category."""

SKILL = (0.85, 0.5)
"""The share of basic and of counterfactual questions that a model answers right, about."""

ASKED = 4
"""Counterfactual questions an image."""


def question_items(
    model: str = "llava",
    skill: tuple[float, float] = SKILL,
    *,
    seed: int = 0,
    left_out: Sequence[str] = (),
    benchmark: str = "own_vqa",
    blind: bool = False,
    images: Mapping[str, int] = IMAGES,
) -> QuestionItems:
    """Return answers to five questions an image."""
    rng, guesses = np.random.default_rng([seed, len(model)]), np.random.default_rng([seed, 99])
    rows = []
    for category, many in images.items():
        for number in range(many):
            rows += _image(
                f"{category}-{number}", category, skill, rng, left_out, guesses if blind else None
            )
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return QuestionItems(model, Items(benchmark, f"weights of {model}", benchmark, columns))


def _image(
    key: str,
    category: str,
    skill: tuple[float, float],
    rng: np.random.Generator,
    left_out: Sequence[str],
    guesses: np.random.Generator | None,
) -> list[dict]:
    kinds = ["basic"] + ["counterfactual"] * ASKED
    names = [f"{key}/{'b' if kind == 'basic' else f'c{place}'}" for place, kind in enumerate(kinds)]
    right = {
        name: math.nan if name in left_out else float(rng.random() < skill[kind != "basic"])
        for name, kind in zip(names, kinds, strict=True)
    }
    columns = _accuracies(right, kinds)
    if guesses is not None:
        guess = {name: float(guesses.random() < 0.5) for name in right}
        columns |= {f"blind_{name}": values for name, values in _accuracies(guess, kinds).items()}
    return [
        {
            "item": name, "cluster": key, "image": f"digest of {key}", "category": category,
            "kind": kinds[place], "question": f"what, {name}?", "answer": "red",
            "right": right[name], "left_out": "too long" if name in left_out else "",
            **{column: values[place] for column, values in columns.items()},
        }
        for place, name in enumerate(names)
    ]  # fmt: skip


def _accuracies(right: Mapping[str, float], kinds: Sequence[str]) -> dict[str, list[float]]:
    basic, *others = right.values()
    known = not math.isnan(basic)
    return {
        "acc_b": [basic, *[math.nan] * len(others)],
        "acc_c": [math.nan, *(hit if known else math.nan for hit in others)],
        "acc_plus": [math.nan, *(hit * basic for hit in others)],
    }
