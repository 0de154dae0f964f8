"""A part of a table of arms in the direction of its metrics; best and second best of a column."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.stats import ttest_ind, ttest_rel

from cfaug.core.errors import UserError
from cfaug.report.arm_results import ArmResults
from cfaug.report.arm_table import (
    ArmRow,
    ArmTablePart,
    MeasuredColumn,
    TableSettings,
    mark_best_two,
)
from cfaug.report.document import DAGGER, Column, Entry, make_part
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


def entry(value):
    return Entry("–") if value is None else Entry(f"{value:.2f}", numbers={"value": value})


def part(*values):
    columns = [Column(str(at), lambda row, at=at: entry(row[at])) for at in range(len(values))]
    rows = [((str(n),), row) for n, row in enumerate(zip(*values, strict=True))]
    return make_part("", ("row",), columns, rows)


def marks(found, column=0):
    return "".join(
        "b" * cells[column].bold + "u" * cells[column].underlined or "." for _, cells in found.rows
    )


def test_ties_as_printed_are_marked_alike():
    found = mark_best_two(part([0.501, 0.499, 0.3, 0.301, 0.1, None]), ["higher"])
    assert marks(found) == "bbuu.."
    assert marks(mark_best_two(part([0.5, 0.4, 0.3]), ["lower"])) == ".ub"


def test_what_stands_beside_does_not_compete_and_no_direction_is_no_mark():
    found = mark_best_two(part([1.0, 0.4, 0.3], [1.0, 2.0, 3.0]), ["higher", None], beside=[0])
    assert (marks(found), marks(found, 1)) == (".bu", "...")


@pytest.mark.parametrize("values", product((0.1, 0.2, 0.3), repeat=3))
@pytest.mark.parametrize("better", ["higher", "lower"])
def test_marks_equal_a_slow_count(values, better):
    sign = 1 if better == "higher" else -1
    distinct = {sign * v for v in values}
    above = [sum(other > sign * v for other in distinct) for v in values]
    expected = "".join("bu."[min(n, 2)] for n in above)
    assert marks(mark_best_two(part(values), [better])) == expected
