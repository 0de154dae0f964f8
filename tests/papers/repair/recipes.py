"""What tests of every recipe have to know of those of the paper."""

from __future__ import annotations

from pathlib import Path

from cfaug.evaluation.failures import ModelFailure, write_failures

FAILURES = ("on the grass", "on the beach", "on the road", "at night", "in front of a brick wall")
"""The places that failures take photos from."""


def lay_failures(folder: Path) -> list[str]:
    """Write failures of the first of two places each, and return the words that name them."""
    file = folder / "failures.jsonl"
    write_failures(
        file, [ModelFailure("stress", "background", place, "in the snow") for place in FAILURES]
    )
    return [f"data.failures={file}"]


WORDS = dict.fromkeys(
    ("repair", "repair_oracle", "repair_test", "repair_test_oracle"), lay_failures
)
ARMS_ELSEWHERE = {"repair/start": "repair_start", "repair_clip/start": "repair_start"}
