"""Annotators that are none: an oracle's answers with mistakes, to try the tool on ShapeScapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cfaug.annotation.assignment import CHOICES, Assignment, Item
from cfaug.annotation.findings import Findings
from cfaug.annotation.record import SIMULATED
from cfaug.data.sources.lists import list_records
from cfaug.errors import UserError
from cfaug.rng import generator


@dataclass(frozen=True)
class Mistakes:
    """How often a simulated annotator errs.

    Args:
        rate: share of the answers that are one of the three wrong ones, drawn by annotator and
            image.
        seed: of the draws.

    Raises:
        UserError: if the rate is no share.
    """

    rate: float
    seed: int

    def __post_init__(self) -> None:
        number = isinstance(self.rate, int | float) and not isinstance(self.rate, bool)
        if not number or not 0 <= self.rate <= 1:
            raise UserError(f"annotate.mistakes={self.rate} is a share: choose from 0 to 1")

    def answer(self, annotator: int, item: Item, truth: str) -> str:
        """Return the true answer, or a mistake."""
        rng = generator(self.seed, "mistake", annotator, item.name)
        if rng.random() >= self.rate:
            return truth
        return str(rng.choice([choice for choice in CHOICES if choice != truth]))


def read_truth(file: Path, items: Sequence[Item]) -> list[str]:
    """Return an oracle's answer to every image.

    Args:
        file: jsonl with ``key``, ``member`` and ``label``, a line an image.
        items: the images.

    Raises:
        UserError: if an image has no line.
    """
    found = {f"{r['key']}_{r['member']}": str(r["label"]) for _, r in list_records(file)}
    lacking = [item.name for item in items if item.name not in found]
    if lacking:
        raise UserError(f"{file} says nothing of {len(lacking)} images ({', '.join(lacking[:5])})")
    return [found[item.name] for item in items]


def simulated_answers(
    items: Sequence[Item], truth: Sequence[str], plan: Assignment, mistakes: Mistakes
) -> dict[str, list[dict[str, Any]]]:
    """Return each annotator's answers as the page would give them back, ``{annotator: lines}``."""
    return {
        f"{SIMULATED}-{who}": [
            {
                "key": items[i].key,
                "member": items[i].member,
                "annotator": f"{SIMULATED}-{who}",
                "label": mistakes.answer(who, items[i], truth[i]),
            }
            for i in own
        ]
        for who, own in enumerate(plan.shared(items), 1)
    }


def simulated_categories(
    findings: Findings, truth: Mapping[str, str], sampled: Sequence[int]
) -> list[dict[str, Any]]:
    """Return the category of each sampled error as the page would give it back.

    Where the oracle agrees with the annotators that the image does not show its caption, the
    subject cannot be seen; where it does not, they are wrong. The world has no other errors.
    """
    lines = []
    for i in sampled:
        item = findings.items[i]
        category = "annotation" if truth[item.name] == item.own else "subject"
        lines.append({"key": item.key, "member": item.member, "annotator": f"{SIMULATED}-1",
                      "category": category})  # fmt: skip
    return lines
