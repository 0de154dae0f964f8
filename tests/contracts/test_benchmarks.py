"""What every benchmark promises, asked of the runs that ``tools/golden.py`` makes of each paper.

An outcome that is a mean over items is the mean of their column, over the items of its part; the
columns are those of the benchmark's schema; items, results and clusters agree in what they are of.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cfaug.report.items import RANKINGS, Items, benchmarks_with_items, read_items
from cfaug.report.results import Result, read_results
from tests import children
from tests.test_item_schema import shipped_benchmarks
from tools import golden

ELSEWHERE = "demo"
"""The target that ``tests/test_golden.py`` runs, and asks the same of."""
TARGETS = sorted(golden.read_commands().keys() - {ELSEWHERE})
NOT_MEANS = (
    "_macro", "macro_", "mean_per_class_recall", "fid", "kid", "drop1", "drop5", "acc_c", "total_",
    "phi", "consistency", "drop", "questions_left_out", "labels_", "_sd", "precision", "recall",
    "f1",
)  # fmt: skip
"""Parts of the names of metrics that are not means over items."""


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_items_outcomes_and_rankings_agree(target, tmp_path):
    child = children.start(golden.run, tmp_path, [target])
    child.join()
    assert child.exitcode == 0
    check_runs(tmp_path)


def check_runs(folder: Path) -> None:
    """Check everything that the runs below a folder promise."""
    runs = sorted(file.parent for file in folder.rglob("results.jsonl") if file.is_file())
    check_outcomes(runs)
    check_items(runs)
    check_schemas(runs)
    check_rankings(runs)


def evaluated(runs: list[Path]) -> list[tuple[Items, list[Result]]]:
    evaluations = []
    for folder in runs:
        rows = read_results(folder / "results.jsonl")
        for name in benchmarks_with_items(folder):
            items = read_items(folder, name)
            assert items is not None
            evaluations.append((items, [row for row in rows if row.benchmark == name]))
    return evaluations


def of_part(items: Items, by: dict[str, str]) -> np.ndarray | None:
    """Return the rows of a part of the test; ``None`` if it is not one of columns."""
    rows = np.ones(len(items), bool)
    for name, value in by.items():
        if name not in items.columns:
            return None
        rows &= np.asarray(items.columns[name]).astype(str) == value
    return rows


def check_outcomes(runs: list[Path]) -> None:
    """An outcome is the mean of its column."""
    compared = Counter()
    for items, rows in evaluated(runs):
        for row in rows:
            if row.metric not in items.columns or any(word in row.metric for word in NOT_MEANS):
                continue
            part = of_part(items, row.by)
            if part is None:
                continue
            values = items.metric(row.metric)[part]
            values = values[~np.isnan(values)]
            mean = math.fsum(values) / len(values)
            assert (row.n, row.value) == (len(values), pytest.approx(mean, abs=1e-12)), row
            compared[row.benchmark] += 1
    assert compared
    assert sum(compared.values()) > 5


def check_items(runs: list[Path]) -> None:
    for items, rows in evaluated(runs):
        assert {(row.weights, row.data) for row in rows} == {(items.weights, items.data)}
        names = np.asarray(items.columns["item"]).tolist()
        assert len(set(names)) == len(names) > 0
        assert all(np.asarray(items.columns["cluster"]).astype(str) != "")


def check_schemas(runs: list[Path]) -> None:
    schemas = [kind.item_schema for kind in shipped_benchmarks() if hasattr(kind, "item_schema")]
    for items, _ in evaluated(runs):
        fitting = []
        for schema in schemas:
            lacking = schema.find_lacking(items.columns)
            known = all(
                any(column.is_of(name) for column in schema.columns) for name in items.columns
            )
            if not lacking and (known or schema.tags):
                fitting.append(schema)
        assert fitting, (items.benchmark, list(items.columns))


def check_rankings(runs: list[Path]) -> None:
    for folder in runs:
        for name in benchmarks_with_items(folder):
            items, ranked = read_items(folder, name), read_items(folder, name, RANKINGS)
            if ranked is None:
                continue
            assert (ranked.weights, ranked.data) == (items.weights, items.data)
            subjects = set(np.asarray(ranked.columns["subject"]).tolist())
            assert set(np.asarray(items.columns["subject"]).tolist()) <= subjects
