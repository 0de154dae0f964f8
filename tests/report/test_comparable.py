"""Arms asked other test data or of equal weights are never compared; metrics have directions."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ttest_ind, ttest_rel

from cfaug.core.errors import UserError
from cfaug.report.comparison import Headline, different_tests, equal_weights
from cfaug.report.layout import comparisons_csv
from cfaug.report.page import Measure
from cfaug.report.plots import curve, strip_plot
from cfaug.report.results import Result
from cfaug.report.significance_rows import Table
from cfaug.report.significance_table import significance_table
from cfaug.report.summary_text import cost, how_tested, pairing, steps_part, verdict
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

CELL = ("heldout_retrieval", "text_to_image_R@1")
SEEDS = (1, 2, 3, 4, 5)
ABOUT = Headline(*CELL, ("low",), ("high",))


def arm(name: str, level: float, *, data: str, weights: str = "", n: int = 22) -> list[Result]:
    """An arm over five seeds; ``data`` and ``weights`` are given the seed."""
    return [
        Result(
            f"fp/{name}/seed={seed}", name, seed, *CELL,
            level + 0.003 * (sum(map(ord, name)) * seed % 7), n,
            f"{weights or name} {seed}", f"{data} {seed}" if data else "",
        )
        for seed in SEEDS
    ]  # fmt: skip


def formats(table: Table, rows, folder) -> dict[str, str]:
    """Everything that is written of a table, without line breaks."""
    texts = {
        "md": markdown(table).replace("\\_", "_"),
        "tex": latex(table).replace("\\_", "_"),
        "csv": comparisons_csv(table),
        "terminal": printed(table),
        "html": report_page(folder, rows, [], table, ABOUT),
    }
    return {kind: " ".join(text.split()) for kind, text in texts.items()}


FEW = arm("low", 0.35, data="22 images")
OTHER = [  # byte-identical weights, asked about 2 images: 43.6 points "better"
    replace(
        row,
        value=row.value + 0.43 + 0.01 * (row.seed % 2),
        arm="high",
        data=f"2 images {row.seed}",
        n=2,
    )
    for row in FEW
]


@pytest.mark.parametrize("same", [True, False], ids=["the same weights", "other weights"])
def test_arms_that_were_asked_different_data_have_no_winner(tmp_path, same):
    rows = FEW + (OTHER if same else [replace(r, weights=f"high {r.seed}") for r in OTHER])
    table = significance_table(rows, "low")
    row = table.get("high", CELL)
    assert row.mean == pytest.approx(sum(r.value for r in OTHER) / 5)
    for name in ("diff", "p_welch", "p_paired", "p_holm", "p_welch_two_sided", "bca_low", "t_low"):
        assert math.isnan(getattr(row, name)), name
    assert row.reason == "other test data"
    for (cell,) in entries(table, CELL[0]).values():
        assert (cell.bold, cell.underlined, cell.signs, cell.above) == (False, False, "", ())
    said = verdict(rows, ABOUT, ["low"])
    assert " by " not in said
    assert said.startswith(
        "high was not compared with low on heldout_retrieval, because they have "
    )
    assert said.endswith(" different test data.")
    for kind, text in formats(table, rows, tmp_path).items() if same else ():
        assert "heldout_retrieval is not one test for all arms: low and high have" in text, kind
        assert "seed 1: 22 and 2 queries" in text, kind
        assert "data.holdout=" in text, kind
        assert (repr(row.mean) if kind == "csv" else f"{100 * row.mean:.2f}") in text, kind


def test_identical_weights_on_the_same_data_never_win():
    # The same weights cannot differ on the same data; if rows say so, they are no evidence.
    rows = FEW + [replace(row, data=f"22 images {row.seed}") for row in OTHER]
    table = significance_table(rows, "low")
    row = table.get("high", CELL)
    assert row.reason == "the same weights"
    assert row.diff == pytest.approx(0.436, abs=1e-9)
    assert all(map(math.isnan, (row.p_welch, row.p_paired, row.p_holm, row.bca_low)))
    said = verdict(rows, ABOUT, ["low"])
    assert said.endswith("with low on heldout_retrieval, because both have the same weights.")
    assert table.cautions == ("high and low have the same weights at every seed: no comparison.",)


def test_some_seeds_with_the_same_weights_are_said_and_tested():
    rows = FEW + [
        replace(r, data=f"22 images {r.seed}", weights=r.weights if r.seed < 3 else "new")
        for r in OTHER
    ]
    table = significance_table(rows, "low")
    assert table.get("high", CELL).p_paired <= 1
    assert table.cautions == (
        "high and low have the same weights at seed 1, 2: those pairs are no evidence of a "
        "difference.",
    )


def test_arms_of_other_seeds_are_compared_if_they_had_the_same_tests():
    one_world = [replace(r, data="world") for r in FEW + arm("high", 0.8, data="x")]
    before = [replace(r, arm="before", weights="start") for r in one_world[:2]]
    row = significance_table(before + one_world, "low", ["before"]).get("before", CELL)
    assert (row.reason, row.p_welch >= 0) == ("other seeds", True)
    a_world_a_seed = FEW + arm("high", 0.8, data="22 images")
    before = [replace(r, arm="before", weights="start") for r in a_world_a_seed[:2]]
    table = significance_table(before + a_world_a_seed, "low", ["before"])
    assert table.get("before", CELL).reason == "other test data"
    assert any("2 and 5 tests over their seeds" in line for line in table.cautions)


def test_rows_that_do_not_say_what_was_asked_are_compared_with_a_note():
    rows = FEW + arm("old", 0.8, data="")
    table = significance_table(rows, "low")
    assert table.get("old", CELL).p_paired < 1e-3
    [note] = table.notes
    assert note.startswith("The test data of old are not recorded (heldout_retrieval)")


def test_the_cost_and_the_pairing_follow_the_same_rule():
    ood, within = "x_ood_retrieval", "x_id_retrieval"
    arms = FEW + [replace(r, arm="unbiased", weights=f"u {r.seed}") for r in OTHER]
    arms += arm("high", 0.8, data="22 images")
    rows = [replace(r, benchmark=ood) for r in arms] + [
        replace(r, benchmark=within, data=f"{r.data} {r.arm}") for r in arms
    ]
    headline = Headline(
        ood, CELL[1], ("low",), ("high",), in_distribution=within, controls=("unbiased",)
    )
    assert pairing(rows, headline) == []
    assert cost(rows, headline, ["low"]) == (
        "In distribution nothing was compared, so the cost of the gain is not known."
    )
    assert re.search(r"With high, .* rises by .* against low", verdict(rows, headline, ["low"]))


@pytest.mark.parametrize(
    ("seeds", "said"),
    [
        ((1,), "(one training each: more seeds are needed to know)"),
        (SEEDS, "every seed gives the same difference of +10.0 points: these seeds cannot test"),
    ],
)
def test_the_verdict_names_what_seeds_cannot_test(seeds, said):
    low = [row for row in FEW if row.seed in seeds]
    rows = low + [replace(r, arm="high", value=r.value + 0.1, weights=f"h {r.seed}") for r in low]
    assert said in verdict(rows, ABOUT, ["low"])
    assert "1 seeds" not in how_tested(rows, ABOUT, ["low"]) + verdict(rows, ABOUT, ["low"])


def test_arms_that_were_asked_other_test_data_are_named_once_a_benchmark():
    rows = [
        Result("", name, seed, "b", metric, 0.5, 8, f"{name} {seed}", "fog")
        for name in ("real", "cf")
        for seed in (1, 2)
        for metric in ("acc1", "acc5")
    ]
    assert different_tests(rows) == []
    assert different_tests([*rows, replace(rows[0], arm="old", data="")]) == []
    drawn = [replace(row, arm="drawn", data="drawing") for row in rows[:4]]
    (said,) = different_tests([*rows, *drawn], {"real": "real only"})
    assert "b is not one test for all arms: real only and drawn have" in said
    # A world a seed is no difference between arms.
    assert different_tests([replace(row, data=str(row.seed)) for row in rows]) == []
    assert equal_weights(rows, ["real"]) == []


def test_arms_that_are_one_arm_twice_are_named():
    rows = [
        Result("", name, seed, "b", metric, 0.5, 8, f"{name[:6]} {seed}", "data")
        for name in ("real", "cf_0.6", "cf_0.601", "cf_0.8")
        for seed in (1, 2)
        for metric in ("acc1", "acc5")
    ]
    (said,) = equal_weights(rows, ["real"], {"cf_0.601": "0.601"})
    assert said == "cf_0.6 and 0.601 have the same weights at every seed: they are one arm twice."
    rows[-1] = replace(rows[-1], weights="")
    other = [replace(r, weights="x") if (r.arm, r.seed) == ("cf_0.601", 2) else r for r in rows]
    assert equal_weights(other, ["real"]) == []


# A metric in which lower is better is printed, marked, tested and drawn in its own direction.

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
            assert row.bca_low <= row.diff <= row.bca_high
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
    assert "loss (nats)" in tex
    assert "Lower is better: loss." in tex
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
    assert "Percent, mean over 5 seeds" in markdown(plain)


def test_fractions_in_which_lower_is_better_are_percent():
    table = significance_table(with_loss("fraction", scale=1), "real", ["before"])
    row = table.get("counterfactual", LOSS)
    assert entries(table, STRESS)["counterfactual"][0].text == f"{100 * row.mean:.2f}"
    assert "loss (lower is better)" in markdown(table)
    assert row.significant


def test_the_verdict_speaks_of_a_fall_as_a_gain(rows):
    said = verdict(rows, HEADLINE, ["real", "more_real"])
    gain = -(values(rows, "counterfactual", LOSS) - values(rows, "real", LOSS)).mean()
    assert re.search(rf"falls by {gain:.3g} nats against real \(95 % .*, one-sided p = ", said)
    worse = [replace(row, value=7 - row.value) if row.cell == LOSS else row for row in rows]
    said = verdict(worse, HEADLINE, ["real"])
    assert re.search(r"rises by [\d.]+ nats against real", said)
    rows_of_steps = dict(steps_part(worse, HEADLINE, ["real"]).rows)
    assert rows_of_steps["counterfactual", "real"][-1].text.startswith("worse (two-sided")


def test_the_cost_of_a_lower_loss_is_a_rise(rows):
    identical = [
        replace(row, benchmark=ID, metric="loss", value=row.value, better="lower", unit="nats")
        for row in with_loss()
        if row.cell == LOSS
    ]
    said = cost([*rows, *identical], HEADLINE, ["real"])
    assert re.search(r"it improves by 1\.\d+ nats against real \(95 % 1\.\d+ to 1\.\d+, p", said)


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
