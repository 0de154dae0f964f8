"""Simulated annotators, to try the tool without people: an oracle's answers with mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cfaug.annotation.answers import SIMULATED
from cfaug.annotation.assignment import Assignment
from cfaug.annotation.findings import Findings
from cfaug.annotation.forms import CaptionForm
from cfaug.annotation.question import AnnotationQuestion
from cfaug.annotation.records import ImageItem
from cfaug.core.errors import UserError, name_some
from cfaug.core.rng import generator
from cfaug.core.validation import Share, check
from cfaug.data.sources.lists import list_records


def read_truth(file: Path, items: Sequence[ImageItem], question: AnnotationQuestion) -> list[str]:
    """Read an oracle's answer to every image.

    Args:
        file: a jsonl file with ``key``, ``member`` and ``label``, a line per image.
    """
    labels = {f"{r['key']}_{r['member']}": str(r["label"]) for _, r in list_records(file)}
    missing = [item.name for item in items if item.name not in labels]
    if missing:
        raise UserError(f"{file} lacks {len(missing)} images ({name_some(missing)})")
    others = sorted({labels[item.name] for item in items} - set(question.labels))
    if others:
        raise UserError(
            f"the oracle's answers ({name_some(others)}) are not among those of the question "
            f"{question.title!r} ({', '.join(question.labels)}): let people answer it "
            "(cfaug annotate export)"
        )
    return [labels[item.name] for item in items]


def simulate_answers(
    question: AnnotationQuestion | CaptionForm,
    items: Sequence[ImageItem],
    truth: Sequence[str],
    assignment: Assignment,
    mistakes: float,
    seed: int,
) -> dict[str, list[dict[str, Any]]]:
    """Return each annotator's answers as the page would export them, ``{annotator: lines}``.

    Everyone gets the attention checks and answers them without mistakes.

    Args:
        truth: the oracle's answer to each item, in order.
        mistakes: share of wrong answers, drawn by annotator and image; all wrong answers are
            equally likely.
    """
    check(mistakes, Share, "annotate.mistakes")
    checks = [i for i, item in enumerate(items) if item.expected]

    def answer(who: int, i: int) -> str:
        rng = generator(seed, "mistake", who, items[i].name)
        if items[i].expected or rng.random() >= mistakes:
            return truth[i]
        return str(rng.choice([choice for choice in question.labels if choice != truth[i]]))

    return {
        f"{SIMULATED}-{who}": [
            {
                "key": items[i].key,
                "member": items[i].member,
                "annotator": f"{SIMULATED}-{who}",
                question.field: answer(who, i),
            }
            for i in indices
        ]
        for who, indices in enumerate(assignment.distribute(items, checks), 1)
    }


@dataclass(frozen=True)
class Causes:
    """The reasons that simulated annotators give for rejected images.

    Args:
        mistake: the category of an image that the oracle accepts.
        failure: the category of an image that the oracle rejects too.
    """

    mistake: str
    failure: str


def simulate_categories(
    findings: Findings,
    truth: Mapping[str, str],
    sampled: Sequence[int],
    categories: AnnotationQuestion,
    causes: Causes,
) -> list[dict[str, Any]]:
    """Return the category of each sampled image as the page would export it.

    Args:
        truth: the oracle's answer to each image, by its name.
    """
    for name, label in (("mistake", causes.mistake), ("failure", causes.failure)):
        if label not in categories.labels:
            raise UserError(
                f"annotate.causes.{name}={label} is invalid: choose from "
                f"{', '.join(categories.labels)}"
            )
    lines = []
    for i in sampled:
        item = findings.items[i]
        accepted = findings.question.accepts(item, truth[item.name])
        lines.append({
            "key": item.key, "member": item.member, "annotator": f"{SIMULATED}-1",
            categories.field: causes.mistake if accepted else causes.failure,
        })  # fmt: skip
    return lines
