"""Classification of the embedded world's scenes by any of their factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from cfaug.core.errors import UserError
from cfaug.evaluation.classification import Classes, ZeroShot

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.evaluation.context import EvaluationContext

Factor = Literal["subject", "colour", "background"]


@dataclass
class WorldClassification(ZeroShot):
    """Zero-shot classification of a test whose captions name every factor.

    Subjects are prompted with the world's own templates; colours and backgrounds with a template
    for each subject, so that no subject is favoured.

    Args:
        data: ``shapescapes:PART``, a test, or ``shapescapes:PART@STYLE``.
        name: the name in tables, ending in "_classification".
        batch_size: number of images or prompts embedded at once.
        without_leaks: unused, as the world's tests are drawn separately from its training scenes.
        factor: the factor to predict: ``subject``, ``colour`` or ``background``.
        among: the values to choose from; images with other values are left out. ``None`` uses all.

    Raises:
        UserError: for an unknown factor or value.
    """

    factor: Factor = "subject"
    among: Sequence[str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        from cfaug.shapescapes.oracle import CHOICES

        if self.factor not in CHOICES:
            raise UserError(f"{self.name}: factor={self.factor}: choose from {', '.join(CHOICES)}")
        unknown = set(self.among or ()) - set(CHOICES[self.factor])
        if unknown:
            raise UserError(
                f"{self.name}: among={sorted(unknown)}: choose from "
                f"{', '.join(CHOICES[self.factor])}"
            )

    def prepare(self, context: EvaluationContext, index: Index, rows: np.ndarray | None) -> None:
        """Store the data that ``run`` evaluates."""
        said, templates = _language(self.factor)
        values = list(said) if self.among is None else list(self.among)
        shown = _shown(index, said) if self.factor != "subject" else _subjects(index)
        chosen = range(len(index)) if rows is None else rows.tolist()
        kept = np.array([row for row in chosen if shown[row] in values])
        classes = Classes(values, [said[value] for value in values], templates)
        self.ask(index, classes, kept, shown)


def _language(factor: Factor) -> tuple[Mapping[str, str], Sequence[str]]:
    """Return the words in captions for each value of a factor, and the prompt templates."""
    from cfaug.shapescapes.vocabulary import COLOURS, PLACES, PROMPTS, SUBJECTS

    if factor == "subject":
        return {subject: subject for subject in SUBJECTS}, PROMPTS
    if factor == "background":
        return PLACES, [f"a {subject} {{c}}" for subject in SUBJECTS]
    articles = {c: f"{'an' if c[0] in 'aeiou' else 'a'} {c}" for c in COLOURS}
    return articles, [f"{{c}} {subject}" for subject in SUBJECTS]


def _subjects(index: Index) -> list[str | None]:
    return [index.label(row) for row in range(len(index))]


def _shown(index: Index, said: Mapping[str, str]) -> list[str | None]:
    """Return the value that each caption names; the captions of the tests name one."""
    texts = [index.text(row) for row in range(len(index))]
    return [next((v for v, words in said.items() if words in text), None) for text in texts]
