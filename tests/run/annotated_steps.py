"""Steps of ``cfaug annotate`` on tiny sources, and what their settings may be changed to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cfaug.run.annotation_steps import AnnotationSource

PAIRS = "shapescapes:ood_pairs"


class Step(NamedTuple):
    """A step on a tiny source, with other values of settings than their types give."""

    source: str
    words: tuple[str, ...]
    others: Mapping[str, Any] = {}


ASSIGNED = {"assignment.annotators": 4, "assignment.annotators_per_item": 2,
            "assignment.overlap_fraction": 0.9, "assignment.sample": 3, "side": 24}  # fmt: skip
ASKED = {"screening": "known.jsonl", "question.accepted": ["incorrect"],
         "question.reported": ["incorrect", "correct", "neither", "both"],
         "question.image_sets": ["first", "second"]}  # fmt: skip
READ = ("annotate.answers=[answers.jsonl]", "annotate.categories=[]")

STEPS = {
    "export": Step(PAIRS, ("export",), {**ASSIGNED, **ASKED}),
    "export without overlap": Step(
        PAIRS, ("export", "annotate.assignment.overlap_fraction=0"), {**ASSIGNED, **ASKED}
    ),
    "export of a form about captions": Step(
        "texts", ("export", "annotate/question=quality", "annotate.question.per_kind=2",
                  "annotate.assignment.overlap_fraction=0.5"),
        {**ASSIGNED, "assignment.sample": 1, "assignment.overlap_fraction": 0.1,
         "question.per_kind": 1, "question.examples": 1},
    ),
    "read": Step(PAIRS, ("read", *READ), {**ASKED, "analyses.altered_subjects.at_least": 1}),
    "read with a screening": Step(
        PAIRS, ("read", *READ, "annotate.screening=known.jsonl", "annotate.screening_minimum=0.5"),
        {**ASKED, "screening": "others.jsonl", "screening_minimum": 0.7,
         "analyses.altered_subjects.at_least": 1},
    ),
    "taxonomy": Step(PAIRS, ("taxonomy", READ[0], "annotate.sample=5"), {**ASKED, "side": 24}),
    "simulate": Step(
        PAIRS, ("simulate", "annotate.mistakes=0.5", "annotate.sorted_errors=1"),
        {**ASSIGNED, **ASKED, "mistakes": 0.9},
    ),
}  # fmt: skip


def lay_answers(source: AnnotationSource) -> None:
    """Write answers, known answers and the oracle's for the pairs of a source."""
    members = [source.index.key(row).rpartition("_")[::2] for row in range(len(source.index))]
    labels = ("original", "counterfactual")

    def write(file: str, people: tuple[str, ...], turn: int, count: int) -> None:
        lines = [
            {"key": key, "member": int(member), "annotator": who,
             "label": labels[(int(member) + (at % (int(who) + 2) == turn)) % 2]}
            for who in people
            for at, (key, member) in enumerate(members[:count])
        ]  # fmt: skip
        Path(file).write_text("".join(json.dumps(line) + "\n" for line in lines))

    write("answers.jsonl", ("1", "2"), 0, len(members))
    write("known.jsonl", ("1",), 3, 4)
    write("others.jsonl", ("1",), 2, 5)
    write("oracle.jsonl", ("1",), 3, len(members))
