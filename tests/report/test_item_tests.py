"""Two arms compared item by item, paired by name, never by place; one run against one run."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.report.comparison import Headline
from cfaug.report.item_tests import compare_items
from cfaug.report.items import Items, items_file, read_items, write_items
from cfaug.report.layout import comparisons_csv
from cfaug.report.page import Measure
from cfaug.report.records import Run
from cfaug.report.results import Result
from cfaug.report.significance_rows import Table
from cfaug.report.significance_table import RunItems, significance_table
from cfaug.report.summary_text import cost, how_tested, pairing, verdict
from cfaug.stats.cluster_tests import SIGN_FLIPS, cluster_mean, standard_error
from cfaug.stats.item_tests import MCNEMAR, mcnemar, tango_interval
from cfaug.stats.significance import holm
from tests.report.example import csv_lines, entries, latex, markdown, printed, report_page, results

LOWER = Measure(better="lower")


def items(values, clusters=None, data="d", names=None, **columns) -> Items:
    names = [f"i{n:03d}" for n in range(len(values))] if names is None else names
    clusters = names if clusters is None else clusters
    content = {"item": names, "cluster": clusters, "acc1": np.asarray(values, float)} | columns
    return Items("test", "w", data, content)


RIGHT, WRONG = [1, 1, 1, 1, 1, 1, 0, 1], [0, 0, 0, 1, 0, 0, 0, 0]


def test_binary_items_sampled_one_by_one_are_tested_exactly(tmp_path):
    for folder, values in (("a", RIGHT), ("b", WRONG)):
        write_items(tmp_path / folder, items(values))
    paired = compare_items(
        [read_items(tmp_path / "a", "test")], [read_items(tmp_path / "b", "test")], "acc1"
    )
    assert (paired.arm, paired.baseline, paired.gain) == (7 / 8, 1 / 8, 6 / 8)
    assert (paired.p, paired.p_two_sided) == (mcnemar(6, 0, "greater"), mcnemar(6, 0))
    assert (paired.test, paired.items, paired.clusters) == (MCNEMAR, 8, 8)
    assert (paired.low, paired.high) == tango_interval(6, 0, 8)
    assert paired.low > 0
    assert (paired.better, paired.worse, paired.p_exact) == (6, 0, paired.p_two_sided)
    # sqrt((6 - 36 / 8) / 56): six of eight items differ, all one way.
    assert paired.error == pytest.approx((1.5 / 56) ** 0.5)
    assert paired.describe(Measure()).startswith(
        "8 items: standard error 16.4 points; a difference"
    )


def test_lower_is_better_in_its_own_direction():
    up = compare_items([items(RIGHT)], [items(WRONG)], "acc1")
    down = compare_items([items(RIGHT)], [items(WRONG)], "acc1", LOWER)
    assert (down.gain, down.p_two_sided) == (-up.gain, up.p_two_sided)
    assert (down.low, down.high) == (pytest.approx(-up.high), pytest.approx(-up.low))
    assert up.p < 0.05 < down.p
    swapped = compare_items([items(WRONG)], [items(RIGHT)], "acc1", LOWER)
    assert swapped.p == up.p


def test_items_of_one_cluster_are_flipped_together():
    rng = np.random.default_rng(1)
    base = rng.random(60).round()
    arm = np.clip(base + (rng.random(60) < 0.2), 0, 1)
    clusters = [f"c{n // 5}" for n in range(60)]
    paired = compare_items([items(arm, clusters)], [items(base, clusters)], "acc1")
    expected = cluster_mean(arm - base, clusters)
    assert (paired.test, paired.clusters) == (SIGN_FLIPS, 12)
    assert (paired.p, paired.low) == (expected.p_greater, expected.low)
    # Beside it McNemar's, which takes items for independent.
    better, worse = int((arm > base).sum()), int((arm < base).sum())
    assert (paired.better, paired.worse, paired.p_exact) == (better, worse, mcnemar(better, worse))
    assert paired.error == standard_error(arm - base, clusters)


def test_seeds_are_averaged_item_by_item():
    arm = [items(RIGHT), items(WRONG)]
    paired = compare_items(arm, [items(WRONG)], "acc1")
    assert paired.gain == pytest.approx(3 / 8)
    assert (paired.items, paired.test) == (8, SIGN_FLIPS)
    assert paired.arm == 0.5


def test_seeds_with_tests_of_their_own_are_compared_within_them():
    """Items and clusters of equal names in two tests are other items and clusters."""
    clusters = list("aabbccdd")
    arm = [items(RIGHT, clusters, "d1"), items(RIGHT, clusters, "d2")]
    base = [items(WRONG, clusters, "d2"), items(WRONG, clusters, "d1")]
    paired = compare_items(arm, base, "acc1")
    assert (paired.items, paired.clusters, paired.gain) == (16, 8, 6 / 8)


def test_a_part_of_the_test_is_tested_alone():
    kinds = np.array(["colour", "place"] * 4, dtype=object)
    arm, base = items(RIGHT, edit=kinds), items(WRONG, edit=kinds)
    paired = compare_items([arm], [base], "acc1", by={"edit": "place"})
    assert paired.items == 4
    assert paired.gain == np.mean(RIGHT[1::2]) - np.mean(WRONG[1::2])
    with pytest.raises(UserError, match="lack the column 'kind'"):
        compare_items([arm], [base], "acc1", by={"kind": "place"})
    with pytest.raises(UserError, match="no item counts"):
        compare_items([arm], [base], "acc1", by={"edit": "size"})


@pytest.mark.parametrize(
    ("arm", "base", "metric", "said"),
    [
        ([items(RIGHT)], [items(WRONG, data="e")], "acc1", "test data"),
        ([items(RIGHT)], [items(WRONG[:-1])], "acc1", "different items"),
        ([items(RIGHT)], [items([math.nan, *WRONG[1:]])], "acc1", "items that count"),
        ([items(RIGHT), items(RIGHT[1:])], [items(WRONG)], "acc1", "different items"),
        ([items(RIGHT), items([math.nan, *WRONG[1:]])], [items(WRONG)], "acc1", "items that count"),
        ([], [items(WRONG)], "acc1", "items are missing"),
        ([items(RIGHT)], [items(WRONG)], "recall", "no values of 'recall'; they have acc1"),
    ],
)
def test_other_items_are_refused(arm, base, metric, said):
    with pytest.raises(UserError, match=said):
        compare_items(arm, base, metric)


def test_items_are_paired_by_name_and_some_do_not_count():
    names = [f"i{n}" for n in range(8)]
    mixed = [3, 1, 0, 2, 7, 5, 4, 6]
    other = items([WRONG[n] for n in mixed], names=[names[n] for n in mixed])
    paired = compare_items([items(RIGHT, names=names)], [other], "acc1")
    assert paired.p == compare_items([items(RIGHT)], [items(WRONG)], "acc1").p
    nan = [math.nan, *RIGHT[1:]], [math.nan, *WRONG[1:]]
    paired = compare_items([items(nan[0])], [items(nan[1])], "acc1")
    assert (paired.items, paired.gain) == (7, pytest.approx(5 / 7))


# One run against one run is tested over items, and every format says so.

COUNT = 300
LEVELS = {"base": 0.4, "good": 0.6, "same": 0.4, "bad": 0.25}
ACC, LOSS = ("own", "acc1"), ("own", "loss")


def answers() -> dict[str, dict[str, np.ndarray]]:
    """Right or wrong, and a loss, of every arm and item; an item is easy for all or for none."""
    rng = np.random.default_rng(0)
    easy = rng.random(COUNT)
    by_arm = {}
    for arm, level in LEVELS.items():
        right = (easy < level) if arm != "same" else by_arm["base"]["acc1"] > 0
        noise = rng.normal(0, 0.1, COUNT)
        by_arm[arm] = {"acc1": right.astype(float), "loss": 2.0 - right + noise}
    return by_arm


def put(folder: Path, seeds=(1,), *, clusters=COUNT, skip=()) -> tuple[list[Result], list[Run]]:
    """Rows and runs of every arm, whose items are written."""
    rows, runs = [], []
    for arm, columns in answers().items():
        for seed in seeds:
            place = folder / arm / f"seed={seed}"
            weights = f"{arm} {seed}"
            if arm not in skip:
                names = [f"i{i}" for i in range(COUNT)]
                about = {"item": names, "cluster": [f"c{i % clusters}" for i in range(COUNT)]}
                write_items(place, Items("own", weights, "d", {**about, **columns}))
            runs.append(Run(place, "e", arm, {"seed": seed, "state": "done", "arm": arm}))
            for metric, values in columns.items():
                lower = {"better": "lower", "unit": "nats"} if metric == "loss" else {}
                value = float(values.mean()) + 0.001 * seed * (len(seeds) > 1)
                about = (f"e/{arm}", arm, seed, "own", metric, value, COUNT, weights, "d")
                rows.append(Result(*about, **lower))
    return rows, runs


def write(folder: Path, seeds=(1,), **changes) -> Table:
    """The table of runs that were written with their items."""
    rows, runs = put(folder, seeds, **changes)
    return significance_table(rows, "base", items=RunItems(runs, rows))


def test_one_run_is_tested_against_another_over_items(table):
    by_arm = answers()
    assert len(table.over_items) == 6
    for arm in ("good", "same", "bad"):
        ours, theirs = by_arm[arm]["acc1"], by_arm["base"]["acc1"]
        tested = table.get_over_items(arm, ACC)
        assert tested.test.test == MCNEMAR
        p = mcnemar(int((ours > theirs).sum()), int((ours < theirs).sum()), "greater")
        assert tested.test.p == pytest.approx(p)
        assert table.get_over_items(arm, LOSS).test.test == SIGN_FLIPS
        row = table.get(arm, ACC)
        assert math.isnan(row.p_welch)
        assert row.reason == "one seed"
    ps = [tested.test.p for tested in table.over_items]
    assert [tested.p_holm for tested in table.over_items] == pytest.approx(holm(ps).tolist())
    kept = [(tested.row.arm, tested.row.metric) for tested in table.over_items if tested.kept]
    lost = [(tested.row.arm, tested.row.metric) for tested in table.over_items if tested.lost]
    assert kept == [("good", "acc1"), ("good", "loss")]
    assert lost == [("bad", "acc1"), ("bad", "loss")]
    for cell, sign in ((ACC, 1), (LOSS, -1)):
        low, high = table.get_over_items("good", cell).interval
        assert low < table.get("good", cell).diff < high
        assert math.copysign(1, low) == sign


def test_every_format_says_which_test_it_was(table, tmp_path):
    text = markdown(table)
    assert "### Comparisons over items" in text
    assert "own acc1, 300 items: standard error" in text
    assert "is found in 80 % of such tests" in text
    assert "Comparisons of one seed are tested over items (McNemar, exact, over items and" in text
    assert "Holm over 6 comparisons" in text
    marks = {arm: [cell.signs for cell in cells] for arm, cells in entries(table, "own").items()}
    assert marks == {"base": ["", ""], "good": ["§", "§"], "same": ["", ""], "bad": ["¶", "¶"]}
    assert "§: better than base by a test over items" in text
    tex = latex(table)
    assert r"^{\S }$" in tex
    assert "tested over items" in tex
    assert "§" in printed(table, 120)
    page = report_page(tmp_path, [], [], table, Headline("none", "acc1", (), ("good",)))
    assert "Comparisons over items" in page
    assert "McNemar, exact" in page
    lines = {(line["arm"], line["metric"]): line for line in csv_lines(table)}
    good = lines["good", "acc1"]
    assert (good["items_test"], good["items"]) == (MCNEMAR, str(COUNT))
    assert float(good["p_items"]) == table.get_over_items("good", ACC).test.p
    assert lines["base", "acc1"]["p_items"] == ""


def test_seeds_are_tested_over_seeds_and_without_one_seed_nothing_is_added(tmp_path):
    table = write(tmp_path, seeds=(1, 2, 3))
    assert table.over_items == ()
    assert "over items" not in markdown(table)
    assert "p_items" not in comparisons_csv(table)
    plain = significance_table(results(), "real", items=lambda arm, benchmark: [])
    assert comparisons_csv(plain) == comparisons_csv(significance_table(results(), "real"))


@pytest.mark.parametrize("skip", [["good"], ["base"]])
def test_without_items_there_is_no_test_and_no_mistake(tmp_path, skip):
    table = write(tmp_path, skip=skip)
    assert table.get_over_items("good", ACC) is None
    assert "one seed, so no test over seeds" in " ".join(table.own_notes())
    lacks = [note for note in table.notes if "items=all" in note]
    assert [note.partition(":")[0] for note in lacks] == skip


def test_items_that_differ_are_refused_and_said(tmp_path):
    rows, kept = [], {}
    for arm in ("base", "good"):
        names = [f"{arm if i == 3 else ''}{i}" for i in range(20)]
        columns = {"item": names, "cluster": names, "acc1": np.zeros(20)}
        kept[arm] = [Items("own", arm, "d", columns)]
        rows.append(Result("e", arm, 1, "own", "acc1", 0.0 if arm == "base" else 0.1, 20, arm, "d"))
    table = significance_table(rows, "base", items=lambda arm, _: kept[arm])
    assert table.over_items == ()
    assert any("good against base: own, acc1: different items" in note for note in table.notes)


def test_a_metric_that_is_no_mean_over_items_is_passed_over(tmp_path):
    rows = [
        Result("e", arm, 1, "own", "group_gap", value, 20, arm, "d")
        for arm, value in (("base", 0.1), ("good", 0.2))
    ]
    columns = {"item": ["a", "b"], "cluster": ["a", "b"], "acc1": np.ones(2)}
    kept = [Items("own", "w", "d", columns)]
    table = significance_table(rows, "base", items=lambda arm, _: kept)
    assert table.over_items == ()
    assert [note for note in table.notes if "items" in note] == []


@pytest.mark.parametrize("metric", ["acc1", "loss"])
def test_the_verdict_of_one_seed_is_of_items(single, metric):
    rows, runs = single
    items = RunItems(runs, rows)
    says = {
        arm: verdict(rows, Headline("own", metric, ("base",), (arm,)), ["base"], items)
        for arm in ("good", "same", "bad")
    }
    for text in says.values():  # of these models, not of what training again would give
        assert text.endswith("(one training each: more seeds are needed to know).")
        assert "p =" not in text
    alone = Headline("own", metric, ("base",), ("good",))
    assert how_tested(rows, alone, ["base"], items) == ""  # as no p is printed
    two = replace(alone, tested=("good", "bad"))  # whose steps are a table
    small = how_tested(rows, two, ["base"], items)
    assert (MCNEMAR if metric == "acc1" else SIGN_FLIPS) in small
    assert "not of what training again would give" in small
    assert "paired by seed" not in small


def test_the_cost_and_the_pairing_of_one_seed_are_of_items(single):
    rows, runs = single
    items = RunItems(runs, rows)
    about = Headline("own", "acc1", ("base",), ("good",), in_distribution="own", controls=("bad",))
    assert cost(rows, about, ["base"], items).endswith("against base (one training each).")
    (made, *_) = pairing(rows, about, items)
    low, high = made.interval
    assert made.shown
    assert 0 < low < made.gain < high


@pytest.mark.slow
def test_the_page_of_one_seed_has_a_verdict_and_intervals_over_items(single, table, tmp_path):
    rows, runs = single
    about = Headline("own", "acc1", ("base",), ("good",))
    page = report_page(tmp_path, rows, runs, table, about)
    assert "one training each" in page
    assert "(over the test&#39;s items)" in page
    assert "± –" not in page
    rows, runs = put(tmp_path / "e", skip=("base",))
    without = significance_table(rows, "base", items=RunItems(runs, rows))
    bare = report_page(tmp_path, rows, runs, without, about)
    assert "one training each" in bare
    assert "(over the test&#39;s items)" not in bare


def test_a_damaged_file_of_items_is_named_and_the_table_stands(tmp_path):
    rows, runs = put(tmp_path)
    items_file(tmp_path / "good/seed=1", "own").write_bytes(b"PAR1 and no more")
    table = significance_table(rows, "base", items=RunItems(runs, rows))
    assert {tested.row.arm for tested in table.over_items} == {"same", "bad"}
    assert any("good against base" in note and "cannot be read" in note for note in table.notes)


@pytest.fixture(scope="module")
def single(tmp_path_factory) -> tuple[list[Result], list[Run]]:
    """Rows and runs of one seed, with items."""
    return put(tmp_path_factory.mktemp("single"))


@pytest.fixture(scope="module")
def table(single) -> Table:
    rows, runs = single
    return significance_table(rows, "base", items=RunItems(runs, rows))


def test_items_of_other_weights_are_not_taken_and_clusters_are_drawn(single, tmp_path):
    rows, runs = single
    rows = [replace(row, weights=f"new {row.arm}") for row in rows]
    assert significance_table(rows, "base", items=RunItems(runs, rows)).over_items == ()
    tested = write(tmp_path, clusters=30).get_over_items("good", ACC)
    assert (tested.test.test, tested.test.clusters) == (SIGN_FLIPS, 30)
