"""A metric in which lower is better is printed, marked, tested and drawn in its own direction."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ttest_ind, ttest_rel

from cfaug.core.errors import UserError
from cfaug.report.comparison import Headline
from cfaug.report.layout import comparisons_csv
from cfaug.report.page import Measure
from cfaug.report.plots import curve, strip_plot
from cfaug.report.significance_rows import Table
from cfaug.report.significance_table import significance_table
from cfaug.report.summary_text import cost, verdict
from tests.report.example import (
    ID,
    MEANS,
    OOD,
    csv_lines,
    entries,
    latex,
    markdown,
    printed,
    report_page,
    results,
    runs,
)

STRESS = "stress"
LOSS = (STRESS, "loss")
PARTS = {"edit": "background"}, {"edit": "subject"}
HEADLINE = Headline(
    *LOSS, ("before", "real"), ("counterfactual",), in_distribution=ID, controls=("unbiased",)
)


def with_loss(unit="nats", by=None, scale=7.0):
    """The example's rows, and of each the loss that is the lower the higher its accuracy."""
    rows = results()
    more = [
        replace(row, benchmark=STRESS, metric="loss", value=scale * (1 - row.value),
                better="lower", unit=unit, by=by or {})
        for row in rows
        if row.benchmark == OOD
    ]  # fmt: skip
    return [*rows, *more]


def values(rows, arm, cell):
    return np.array([row.value for row in rows if (row.arm, row.cell) == (arm, cell)])


@pytest.fixture
def rows():
    return with_loss()


@pytest.fixture
def table(rows) -> Table:
    return significance_table(rows, ["real", "more_real"], ["before"])


def test_each_metric_is_tested_in_its_own_direction(rows, table):
    for arm in MEANS:
        for baseline in ("real", "more_real"):
            if arm == baseline:
                continue
            ours, theirs = values(rows, arm, LOSS), values(rows, baseline, LOSS)
            row = table.get(arm, LOSS, baseline)
            assert row.diff == pytest.approx((ours - theirs).mean())
            assert row.ci_low <= row.diff <= row.ci_high
            for p, test in (
                (row.p_welch, ttest_ind(ours, theirs, equal_var=False, alternative="less")),
                (row.p_paired, ttest_rel(ours, theirs, alternative="less")),
            ):
                assert p == pytest.approx(test.pvalue)
            # The loss is the accuracy turned round: every test says the same of both.
            twin = table.get(arm, (OOD, "acc1"), baseline)
            tests = ("welch", "paired", "wilcoxon", "permutation", "paired_two_sided")
            for name in (f"p_{test}" for test in tests):
                assert getattr(row, name) == pytest.approx(getattr(twin, name), rel=1e-6), name
            assert (row.significant, row.worse) == (twin.significant, twin.worse)
            assert (row.kept, row.lost) == (twin.kept, twin.lost)
            assert np.sign(row.diff) == -np.sign(twin.diff)


def test_the_lowest_is_bold_and_a_rise_is_marked_as_a_loss(table):
    marks = {arm: cells[0] for arm, cells in entries(table, STRESS).items()}
    assert [arm for arm, mark in marks.items() if mark.bold] == ["unbiased"]
    assert marks["counterfactual"].underlined
    assert marks["counterfactual"].signs == "†"
    assert not marks["before"].underlined
    assert (marks["before"].signs, marks["before"].above) == ("↓‡", ("↓1",))
    twins = {arm: cells[0] for arm, cells in entries(table, OOD).items()}
    for arm, mark in marks.items():
        assert (mark.bold, mark.underlined, mark.signs, mark.above) == (
            twins[arm].bold, twins[arm].underlined, twins[arm].signs, twins[arm].above,
        )  # fmt: skip


def test_its_unit_and_direction_stand_in_every_format(tmp_path, rows, table):
    mean = f"{values(rows, 'counterfactual', LOSS).mean():.4g}"
    header = "loss (nats, lower is better)"
    text = markdown(table)
    assert header in text
    assert f"{mean}</u>†" in text
    assert "Percent, or the unit above the column" in text
    assert "a negative one is a gain" in text
    difference = table.get("counterfactual", LOSS).diff
    assert f"{difference:.4g}" in text
    tex = latex(table)
    assert header in tex
    assert mean in tex
    assert mean in printed(table, 100)
    page = report_page(tmp_path, rows, runs(rows), table, HEADLINE)
    assert header in page
    assert "loss, nats, lower is better" in page
    assert f"{difference:+.3g}" in page
    assert not re.search(rf"counterfactual, seed 11: [\d.]+ %</title>.*{STRESS}", page)
    assert re.search(r"counterfactual, seed 11: [\d.]+ nats</title>", page)


def test_the_csv_has_unit_and_direction_only_where_they_are_needed(table):
    units = {(line["benchmark"], line["unit"], line["better"]) for line in csv_lines(table)}
    assert units == {
        (OOD, "fraction", "higher"), (ID, "fraction", "higher"), (STRESS, "nats", "lower"),
    }  # fmt: skip
    plain = significance_table(results(), "real", ["before"])
    assert "better" not in comparisons_csv(plain).splitlines()[0].split(",")
    assert "lower is better" not in markdown(plain)
    assert "Percent, mean over seeds" in markdown(plain)


def test_fractions_in_which_lower_is_better_are_percent():
    table = significance_table(with_loss("fraction", scale=1), "real", ["before"])
    row = table.get("counterfactual", LOSS)
    assert entries(table, STRESS)["counterfactual"][0].text == f"{100 * row.mean:.2f}"
    assert "loss (lower is better)" in markdown(table)
    assert row.significant


def test_the_verdict_speaks_of_a_fall_as_a_gain(rows):
    said = verdict(rows, HEADLINE, ["real", "more_real"])
    assert "before < real < counterfactual was reached" in said
    gain = -(values(rows, "counterfactual", LOSS) - values(rows, "real", LOSS)).mean()
    assert re.search(rf"counterfactual beats real by {gain:.3g} nats \(p = ", said)
    worse = [replace(row, value=7 - row.value) if row.cell == LOSS else row for row in rows]
    said = verdict(worse, HEADLINE, ["real"])
    assert "NOT reached" in said
    assert re.search(r"counterfactual is significantly worse than real \(\+[\d.]+ nats", said)


def test_the_cost_of_a_lower_loss_is_a_rise(rows):
    identical = [
        replace(row, benchmark=ID, metric="loss", value=row.value, better="lower", unit="nats")
        for row in with_loss()
        if row.cell == LOSS
    ]
    said = cost([*rows, *identical], HEADLINE, ["real"])
    assert "-1." in said
    assert ": a gain)" in said


def test_parts_of_a_benchmark_are_reported_as_parts(tmp_path):
    whole = with_loss()
    parts = [
        replace(row, by=part, value=row.value + i)
        for row in whole
        if row.cell == LOSS
        for i, part in enumerate(PARTS)
    ]
    leak = "stress: 5 of 800 images were trained on."
    table = significance_table([*whole, *parts], "real", ["before"], cautions=[leak])
    names = ["stress", "stress [edit=background]", "stress [edit=subject]"]
    assert [name for name in table.benchmarks if name.startswith("stress")] == names
    assert "### stress [edit=background]" in markdown(table)
    assert "20 comparisons" in table.note()
    for line in csv_lines(table):
        assert (leak in line["note"]) == line["benchmark"].startswith("stress")
    tex = latex(table)
    assert tex.count("5 of 800") == 3


def test_runs_that_disagree_on_the_direction_are_refused(rows):
    rows[-1] = replace(rows[-1], better="higher")
    with pytest.raises(UserError, match=r"stress loss: demo/.* says lower is better, in nats"):
        significance_table(rows, "real", ["before"])


def test_figures_are_drawn_in_the_metrics_unit():
    nats = Measure("nats", "lower")
    drawn = strip_plot({"a": {1: 2.5, 2: 3.25}}, "loss, nats", (), nats).svg
    assert "a, seed 2: 3.25 nats" in drawn
    assert max(map(float, re.findall(r"<text[^>]*>([\d.]+)<", drawn))) < 20
    assert "seed 2: 25.0 %" in strip_plot({"a": {1: 0.5, 2: 0.25}}, "acc1, %").svg
    drawn = curve({"s": {0.0: {1: 2.5}, 0.5: {1: 3.25}}}, "x", "loss, nats", nats).svg
    assert "s, 0.5, seed 1: 3.25 nats" in drawn
    assert ">325<" not in drawn
