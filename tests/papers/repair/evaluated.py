"""The benchmark on a tiny source, for ``tests/run/test_unread_properties.py``."""

from __future__ import annotations

from pathlib import Path

from cfaug.evaluation.failures import ModelFailure, write_failures
from tests.run.evaluated_sources import Case


def lay_failures(path: Path, after: str) -> None:
    write_failures(path, [ModelFailure("stress", "background", "grass", after)])


MAKERS = {
    "failures": lambda path: lay_failures(path, "snow"),
    "others": lambda path: lay_failures(path, "sand"),
}
CASES = {
    "repair": Case(
        ("benchmark=repair", "benchmark.failures=@failures", "benchmark.test.data=@edits"),
        {"test": {"_target_": "cfaug.evaluation.stress.stress.Stress", "data": "@words"},
         "failures": "@others",
         "rule": {"_target_": "cfaug.evaluation.failures.FailureRule", "minimum": 0.2},
         "disjoint_from": {"FIND": "@edits"}},
        {"disjoint_from": "share groups"},
    ),
}  # fmt: skip
