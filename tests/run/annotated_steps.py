"""Steps of ``cfaug annotate`` on tiny sources, and what their settings may be changed to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

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
