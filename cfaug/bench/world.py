"""Classification of the embedded world's scenes by any of their factors: config nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from cfaug.bench.classification import ZeroShot
from cfaug.errors import UserError

if TYPE_CHECKING:
    from cfaug.bench.context import EvaluationContext
    from cfaug.data.index import Index
    from cfaug.protocols import Benchmark

Factor = Literal["subject", "colour", "background"]


@dataclass(frozen=True)
class WorldClassification:
    """Zero-shot classification of a test whose captions name every factor.

    Subjects are prompted with the world's own templates, colours and backgrounds with a template
    for every subject, so that no subject is favoured.

    Args:
        data: ``shapescapes:PART``, a test, or ``shapescapes:PART@STYLE``.
        name: what tables call it, "_classification" added.
        factor: what is to be told: ``subject``, ``colour`` or ``background``.
        among: the values to choose from; images of others are left out. ``None`` is all.
        batch_size: images or prompts embedded at once.

    Raises:
        UserError: for a factor or a value the world has not.
    """

    data: str
    name: str
    factor: Factor = "subject"
    among: Sequence[str] | None = None
    batch_size: int = 256

    def __post_init__(self) -> None:
        from cfaug.shapescapes.oracle import CHOICES

        if self.factor not in CHOICES:
            raise UserError(f"{self.name}: factor={self.factor}: choose from {', '.join(CHOICES)}")
        unknown = set(self.among or ()) - set(CHOICES[self.factor])
        if unknown:
            raise UserError(
                f"{self.name}: among={sorted(unknown)}: choose from "
                f"{', '.join(CHOICES[self.factor])}"
            )

    def benchmarks(self, subject: EvaluationContext) -> list[Benchmark]:
        """Return one benchmark."""
        said, templates = _language(self.factor)
        classes = list(said) if self.among is None else list(self.among)
        index = subject.open(self.data)
        shown = _shown(index, said) if self.factor != "subject" else _subjects(index)
        rows = np.array([row for row, value in enumerate(shown) if value in classes])
        return [
            ZeroShot(
                f"{self.name.removesuffix('_classification')}_classification",
                index,
                classes=classes,
                names=[said[value] for value in classes],
                templates=templates,
                rows=rows,
                labels=shown,
                batch_size=self.batch_size,
            )
        ]


def _language(factor: Factor) -> tuple[Mapping[str, str], Sequence[str]]:
    """Return what captions say for each value of a factor, and the templates around it."""
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
    """Return the value whose words each caption has; the captions of the tests have one."""
    texts = [index.text(row) for row in range(len(index))]
    return [next((v for v, words in said.items() if words in text), None) for text in texts]
