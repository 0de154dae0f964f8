"""Arms that were asked different test data, or that have the same weights, are never compared."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from cfaug.report.comparison import Headline, different_tests, equal_weights
from cfaug.report.layout import comparisons_csv
from cfaug.report.results import Result
from cfaug.report.significance_rows import Table
from cfaug.report.significance_table import significance_table
from cfaug.report.summary_text import cost, how_tested, pairing, verdict
from tests.report.example import entries, latex, markdown, printed, report_page

CELL = ("heldout_retrieval", "text_to_image_R@1")
SEEDS = (1, 2, 3, 4, 5)
HEADLINE = Headline(*CELL, ("low",), ("high",))


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
    found = {
        "md": markdown(table).replace("\\_", "_"),
        "tex": latex(table).replace("\\_", "_"),
        "csv": comparisons_csv(table),
        "terminal": printed(table),
        "html": report_page(folder, rows, [], table, HEADLINE),
    }
    return {kind: " ".join(text.split()) for kind, text in found.items()}


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
    for name in ("diff", "p_welch", "p_paired", "p_holm", "p_welch_two_sided", "ci_low", "t_low"):
        assert math.isnan(getattr(row, name)), name
    assert row.reason == "other test data"
    for (cell,) in entries(table, CELL[0]).values():
        assert (cell.bold, cell.underlined, cell.signs, cell.above) == (False, False, "", ())
    said = verdict(rows, HEADLINE, ["low"])
    assert " beats " not in said
    assert "high was not compared with low, because they have different test data" in said
    assert "5 seeds" in said
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
    assert all(map(math.isnan, (row.p_welch, row.p_paired, row.p_holm, row.ci_low)))
    said = verdict(rows, HEADLINE, ["low"])
    assert "high was not compared with low, because both have the same weights" in said
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
    assert "high beats low" in verdict(rows, headline, ["low"])


@pytest.mark.parametrize(
    ("seeds", "said"),
    [
        ((1,), "high is not shown to beat low (+10.0 points): one seed allows no test over seeds"),
        (SEEDS, "every seed gives the same difference of +10.0 points: these seeds cannot test"),
    ],
)
def test_the_verdict_names_what_seeds_cannot_test(seeds, said):
    low = [row for row in FEW if row.seed in seeds]
    rows = low + [replace(r, arm="high", value=r.value + 0.1, weights=f"h {r.seed}") for r in low]
    assert said in verdict(rows, HEADLINE, ["low"])
    assert "1 seeds" not in how_tested(rows, HEADLINE, ["low"]) + verdict(rows, HEADLINE, ["low"])


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
