"""The paper's tests, held against its printed means and deviations."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cfaug.core.plugins import PACKAGE
from cfaug.stats.significance import SeedSummary, holm, welch

PAPER = PACKAGE / "papers" / "coco_cf" / "published"
SEEDS = 25
ALPHA = 0.05

BETTER = {  # one-tailed, against the MS-COCO row
    3: {50: "TR@5 IR@1 IR@10", 60: "TR@1 TR@5 TR@10 IR@1 IR@5 IR@10 Mean",
        67: "TR@5 IR@1 IR@5 IR@10 Mean"},
    4: {50: "CIFAR10 CIFAR100 Food101 Caltech256 ImageNet Mean", 60: "CIFAR100 Caltech101 Mean",
        67: "CIFAR100"},
    12: {50: "", 60: "TR@1 TR@5 TR@10 IR@1 IR@5 IR@10 Mean",
         67: "TR@1 TR@5 IR@1 IR@5 IR@10 Mean"},
}  # fmt: skip


def read(number):
    return json.loads((PAPER / f"coco_cf_{number}.json").read_text())


def cells(number):
    """Return {(percent, column): (arm, baseline)} of a table's rows with counterfactuals."""
    table = read(number)
    real = next(row for row in table["rows"] if row["model"] == "MS-COCO")
    return {
        (row["cf_percent"], column): (SeedSummary(*ours, SEEDS), SeedSummary(*theirs, SEEDS))
        for row in table["rows"]
        if row["cf_percent"]
        for column, ours, theirs in zip(
            table["columns"], row["values"], real["values"], strict=True
        )
    }


@pytest.mark.parametrize("number", [3, 4, 12])
def test_the_papers_significant_cells(number):
    significant = {cell for cell, pair in cells(number).items() if welch(*pair) <= ALPHA}
    expected = {(p, name) for p, names in BETTER[number].items() for name in names.split()}
    assert significant == expected


@pytest.mark.parametrize("number", [3, 4, 12])
def test_the_papers_underlines_are_its_test(number):
    """What is underlined is significant; what is significant is underlined, or bold as the best."""
    table = read(number)
    p = {cell: welch(*pair) for cell, pair in cells(number).items()}
    best = {
        name: max(np.atleast_1d(row["values"][i])[0] for row in table["rows"])
        for i, name in enumerate(table["columns"])
    }
    for row in table["rows"]:
        for i, name in enumerate(table["columns"]):
            significant = p.get((row["cf_percent"], name), 1) <= ALPHA
            underlined = name in row["underlined"]
            assert significant or not underlined
            assert underlined or not significant or row["values"][i][0] == best[name]


@pytest.mark.parametrize(("number", "before", "after"), [(3, 15, 13), (4, 10, 9), (12, 13, 11)])
def test_what_holm_leaves_of_a_table(number, before, after):
    p = [welch(*pair) for pair in cells(number).values()]
    assert len(p) == 21
    assert (sum(p_value <= ALPHA for p_value in p), (holm(p) <= ALPHA).sum()) == (before, after)


@pytest.mark.parametrize(
    ("number", "means"),
    [
        (3, [84.13, 89.06, 89.06, 89.53, 89.41]),
        (4, [78.36, 78.857, 79.458, 79.20, 78.787]),
        (12, [60.49, 69.227, 68.252, 69.580, 69.615]),
    ],
)
def test_the_papers_means(number, means):
    """Mean of the six cells; printed 89.05 for the third of Table 3, 78.80 for the last of 4."""
    table = read(number)
    values = [[np.atleast_1d(cell)[0] for cell in row["values"]] for row in table["rows"]]
    assert [np.mean(row[:-1]) for row in values] == pytest.approx(means, abs=6e-3)
    off = [round(float(row[-1] - np.mean(row[:-1])), 3) for row in values]
    wrong = {row: gap for row, gap in enumerate(off) if abs(gap) > 0.0051}
    assert wrong == {3: {2: -0.007}, 4: {1: -0.007, 4: 0.013}, 12: {}}[number]
