"""A part of a table of arms in the unit and direction of its metrics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ttest_ind, ttest_rel

from cfaug.core.errors import UserError
from cfaug.report.arm_results import ArmResults
from cfaug.report.arm_table import ArmRow, ArmTablePart, MeasuredColumn, TableSettings
from cfaug.report.document import DAGGER
from tests.report.example import OOD, results

SETTINGS = TableSettings("mine", {"model": "arm"}, ("python evaluate.py",))
LOSSES = tuple(MeasuredColumn(name, "", "stress", name) for name in ("loss", "gap"))
MEAN = MeasuredColumn("Mean", "", None, None)


def losses():
    """Rows of two losses, the lower the higher the example's accuracy."""
    return [
        replace(row, benchmark="stress", metric=metric, value=7 - row.value - i,
                better="lower", unit="nats")
        for row in results()
        if row.benchmark == OOD
        for i, metric in enumerate(("loss", "gap"))
    ]  # fmt: skip


def part_of(rows, columns=(*LOSSES, MEAN)):
    names = ("real", "counterfactual", "before")
    arms = [
        (
            ArmRow(f"demo/{name}", name, baseline=None if name == "real" else "demo/real"),
            ArmResults(f"demo/{name}", [row for row in rows if row.arm == name]),
        )
        for name in names
    ]
    return ArmTablePart(SETTINGS, columns, arms)


def test_every_cell_is_tested_in_its_own_direction():
    rows = losses()
    part = part_of(rows).part()
    assert part.columns == tuple(f"{n} (nats, lower is better)" for n in ("loss", "gap", "Mean"))
    real, ours, before = (cells for _, cells in part.rows)
    grid = {
        arm: np.array([[row.value for row in rows if (row.arm, row.metric) == (arm, metric)]
                       for metric in ("loss", "gap")])
        for arm in ("real", "counterfactual")
    }  # fmt: skip
    for i, cell in enumerate(ours[:2]):
        one, other = grid["counterfactual"][i], grid["real"][i]
        p = ttest_ind(one, other, equal_var=False, alternative="less").pvalue
        assert cell.numbers["p_independent"] == pytest.approx(p)
        paired = ttest_rel(one, other, alternative="less").pvalue
        assert cell.numbers["p_paired"] == pytest.approx(paired)
        assert cell.text == f"{one.mean():.4g}"
    assert ours[2].text == f"{grid['counterfactual'].mean():.4g}"
    assert all((c.bold, c.underlined, c.above) == (True, True, DAGGER) for c in ours)
    assert not any(c.bold or c.underlined or c.above for c in (*real, *before))
    assert any("in the unit above the column" in note for note in part.notes)


def test_a_mean_over_metrics_of_two_directions_is_refused():
    rows = [replace(row, better="higher") if row.metric == "gap" else row for row in losses()]
    with pytest.raises(UserError, match=r"several units or directions \(loss, gap\)"):
        part_of(rows)
    cells = part_of(rows, LOSSES).part().rows[1][1]
    assert [cell.underlined for cell in cells] == [True, False]


def test_rows_of_one_seed_say_that_they_have_no_test():
    rows = [row for row in losses() if row.seed == 11]
    said = " ".join(part_of(rows).part().notes)
    assert "demo/counterfactual, demo/before: one seed, so no test over seeds" in said
    assert "Tested against" not in said
    assert "one seed" not in " ".join(part_of(losses()).part().notes)
