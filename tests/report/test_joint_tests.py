"""Arms over seeds and items at once: from files of items to a table, a CSV and sentences."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import numpy as np
import pytest

from cfaug.core.rng import generator
from cfaug.report.arm_results import Runs
from cfaug.report.document import Document, to_markdown
from cfaug.report.items import Items, write_items
from cfaug.report.joint_tests import (
    CSV,
    SHOWN,
    JointComparison,
    compare_over_seeds_and_items,
    seeds_and_items_csv,
    seeds_and_items_parts,
    write_seeds_and_items,
)
from cfaug.report.records import Run
from cfaug.report.results import RESULTS, Result, append_results
from cfaug.report.significance_table import RunItems, items_of_arms, significance_table
from cfaug.stats.seeds_and_items import FEW_SEEDS, OneTest, OwnTests, bootstrap_arms, decompose
from cfaug.stats.significance import holm

COUNT, SEEDS = 120, (1, 2, 3, 4)


def answers(gain: float, seeds=SEEDS, draw: int = 0) -> dict[int, np.ndarray]:
    """Right or wrong by seed; which items are easy is the same for all arms and seeds."""
    easy = np.random.default_rng(0).random(COUNT)
    luck = {seed: 0.04 * generator(draw, "luck", seed, str(gain)).normal() for seed in seeds}
    return {seed: (easy < 0.4 + gain + luck[seed]).astype(float) for seed in seeds}


class Experiment:
    """Arms written as runs are: items beside results."""

    def __init__(self, root: Path) -> None:
        self.root, self.runs, self.rows = root, [], []

    def add(self, arm: str, by_seed: dict[int, np.ndarray], *, data="d", kept=True, **columns):
        for seed, right in by_seed.items():
            folder = self.root / "e" / arm / f"seed={seed}"
            about = data if isinstance(data, str) else data[seed]
            content = {
                "item": [f"i{place:03d}" for place in range(len(right))],
                "cluster": [f"c{place // 2}" for place in range(len(right))],
                "acc1": right, "loss": 2 - right, **columns,
            }  # fmt: skip
            if kept:
                write_items(folder, Items("own", f"{arm}{seed}", about, content))
            self.runs.append(Run(folder, "e", arm, {"seed": seed, "state": "done"}))
            rows = [
                self.row(arm, seed, "acc1", right, about),
                self.row(arm, seed, "loss", 2 - right, about, better="lower", unit="nats"),
                self.row(arm, seed, "recall", right, about),
            ]
            append_results(folder / RESULTS, rows)
            self.rows += rows
        return self

    def row(self, arm, seed, metric, values, data, **about) -> Result:
        mean, run = float(np.mean(values)), f"e/{arm}/seed={seed}"
        return Result(run, arm, seed, "own", metric, mean, COUNT, f"{arm}{seed}", data, **about)

    def compare(self, baseline="base", untrained=()) -> tuple[list[JointComparison], list[str]]:
        table = significance_table(self.rows, baseline, untrained)
        items = RunItems(self.runs, self.rows)
        return compare_over_seeds_and_items(table.comparisons, self.rows, items, {"good": "Good"})


@pytest.fixture
def experiment(tmp_path) -> Experiment:
    written = Experiment(tmp_path)
    return written.add("base", answers(0.0)).add("good", answers(0.2)).add("same", answers(0.01))


def test_it_is_what_the_arrays_give(experiment):
    tests, refused = experiment.compare()
    assert refused == []
    named = [(test.row.arm, test.row.metric) for test in tests]
    # "recall" is no column of the items: no mean over them.
    assert named == [(arm, metric) for arm in ("good", "same") for metric in ("acc1", "loss")]
    good = tests[0]
    arm, base = (np.stack(list(answers(gain).values())) for gain in (0.2, 0.0))
    asked = OneTest(arm, base, np.arange(COUNT) // 2)
    parts, drawn = decompose(asked), bootstrap_arms(asked, np.random.default_rng(5))
    assert good.difference.mean == pytest.approx(good.row.diff)
    assert (good.parts.seeds, good.parts.items) == pytest.approx((parts.seeds, parts.items))
    assert good.interval == pytest.approx(parts.interval(good.row.diff))
    assert (good.difference.low, good.difference.high) == pytest.approx(
        (drawn.low, drawn.high), abs=0.01
    )
    assert (good.difference.seeds, good.difference.items, good.difference.clusters) == (4, 120, 60)
    assert not good.own_tests
    assert [test.p_holm for test in tests] == pytest.approx(
        holm([test.p for test in tests]).tolist()
    )


def test_lower_is_better_in_its_own_direction(experiment):
    accuracy, loss, *_ = experiment.compare()[0]
    assert loss.difference.mean == pytest.approx(-accuracy.difference.mean)
    assert (loss.p, loss.p_bootstrap) == pytest.approx((accuracy.p, accuracy.p_bootstrap), rel=0.2)
    worse = [test for test in experiment.compare("good")[0] if test.row.arm == "base"]
    assert worse[0].p == pytest.approx(1 - accuracy.p)
    assert worse[0].p_two_sided == pytest.approx(accuracy.p_two_sided)
    assert accuracy.p_two_sided == pytest.approx(2 * accuracy.p)
    low, high = loss.interval
    assert (low, high) == pytest.approx(tuple(-end for end in reversed(accuracy.interval)))


def test_seeds_with_tests_of_their_own_hold_their_items(tmp_path):
    tests = {seed: f"world {seed}" for seed in SEEDS}
    written = Experiment(tmp_path).add("base", answers(0.0), data=tests)
    [good, *_], refused = written.add("good", answers(0.2), data=tests).compare()
    assert (good.own_tests, refused) == (True, [])
    pairs = zip(answers(0.2).values(), answers(0.0).values(), strict=True)
    differences = [arm - base for arm, base in pairs]
    parts = decompose(OwnTests(differences, [np.arange(COUNT) // 2] * 4))
    assert good.interval == pytest.approx(parts.interval(good.row.diff))
    assert math.isnan(good.parts.rest)
    assert good.difference.items == 4 * COUNT
    [part] = seeds_and_items_parts([good])
    assert part.rows[0][1][-1].text == "–"
    assert any("items of its own" in note for note in part.notes)


def test_arms_of_other_seeds_are_drawn_by_themselves(tmp_path):
    written = Experiment(tmp_path).add("base", answers(0.0)).add("before", answers(-0.1, (7, 8)))
    [test, _], refused = written.compare(untrained=("before",))
    assert (test.difference.seeds, test.difference.baseline_seeds, refused) == (2, 4, [])
    assert math.isnan(test.row.p_paired)
    assert test.interval[0] < test.row.diff < test.interval[1]
    [part] = seeds_and_items_parts([test])
    assert [note for note in part.notes if "only 2 seeds" in note]


@pytest.mark.parametrize(("count", "said"), [(2, ("8 %", "14 %")), (3, ("7 %", "7 %")), (4, ())])
def test_few_seeds_carry_a_caution_with_its_error_rate(tmp_path, count, said):
    """Two seeds have two-sided false alarms of up to 14 %, which nothing said."""
    few = SEEDS[:count]
    written = Experiment(tmp_path).add("base", answers(0.0, few)).add("good", answers(0.2, few))
    tests, _ = written.compare()
    assert len(tests) == 2
    [part] = seeds_and_items_parts(tests)
    cautions = [note for note in part.notes if note.startswith("Caution")]
    assert len(cautions) == (count in FEW_SEEDS)
    for caution in cautions:
        assert f"only {count} seeds" in caution
        assert f".05 or less in up to {said[0]}" in caution
        assert f"left out 0 in up to {said[1]}" in caution
    assert to_markdown(Document("few", "", (part,))).count("Caution") == len(cautions)
    assert all(
        test.p == test.parts.p_greater(test.row.measure.gain(test.difference.mean))
        for test in tests
    )


def test_what_cannot_be_paired_is_said(tmp_path):
    some = {1: "a", 2: "a", 3: "b", 4: "c"}
    mixed = Experiment(tmp_path / "some").add("base", answers(0.0), data=some)
    tests, refused = mixed.add("good", answers(0.2), data=some).compare()
    assert tests == []
    assert "Good against base: own acc1: seeds share some test data and not others" in refused[0]
    fewer = {seed: right[:-2] for seed, right in answers(0.2).items()}
    shorter = Experiment(tmp_path / "other").add("base", answers(0.0)).add("good", fewer)
    tests, refused = shorter.compare()
    assert tests == []
    assert "different items" in refused[0]
    silent = Experiment(tmp_path / "silent").add("base", answers(0.0))
    tests, refused = silent.add("good", answers(0.2), kept=False).compare()
    assert (tests, refused) == ([], [])


def test_a_single_seed_or_cluster_is_left_to_other_tests(tmp_path):
    single = Experiment(tmp_path / "one").add("base", answers(0.0, (1,)))
    assert single.add("good", answers(0.2, (1,))).compare() == ([], [])
    whole = Experiment(tmp_path / "whole")
    for arm, gain in (("base", 0.0), ("good", 0.2)):
        whole.add(arm, answers(gain), cluster=["c"] * COUNT)
    assert whole.compare() == ([], [])


def test_items_that_do_not_count_are_left_out(tmp_path):
    written = Experiment(tmp_path)
    for arm, gain in (("base", 0.0), ("good", 0.2)):
        half = {s: np.where(np.arange(COUNT) < 60, v, np.nan) for s, v in answers(gain).items()}
        written.add(arm, answers(gain), half=half[1])
        written.rows += [written.row(arm, seed, "half", half[1][:60], "d") for seed in half]
    halves = [test for test in written.compare()[0] if test.row.metric == "half"]
    assert [(test.difference.items, test.difference.clusters) for test in halves] == [(60, 30)]


def test_the_table_and_the_csv_hold_it(experiment, tmp_path):
    tests, _ = experiment.compare()
    [part] = seeds_and_items_parts(tests, {"good": "Good"}, ["A sentence."])
    assert part.rows[0][0] == ("Good", "base", "own", "acc1")
    cells = dict(zip(part.columns, (cell.text for cell in part.rows[0][1]), strict=True))
    shares = [int(cells[name].rstrip("*")) for name in ("seeds", "items", "interaction")]
    assert sum(shares) in (99, 100, 101)
    assert float(cells["difference"]) == pytest.approx(100 * tests[0].row.diff, abs=0.01)
    assert part.notes[-1] == "A sentence."
    says = next(note for note in part.notes if "own acc1" in note)
    best = min(
        (test for test in tests if test.row.metric == "acc1"), key=lambda test: test.item_error
    )
    assert best.describe({"good": "Good"}) in says
    assert " against base on own acc1, 120 items in 60 clusters: standard error" in says
    assert "is found in 80 % of such tests" in says
    [file] = write_seeds_and_items(tests, {"good": "Good"}, tmp_path)
    rows = list(csv.DictReader(io.StringIO(file.read_text())))
    assert file.read_text() == seeds_and_items_csv(tests, {"good": "Good"})
    assert len(rows) == len(tests)
    assert rows[0]["label"] == "Good"
    assert float(rows[0]["difference"]) == tests[0].difference.mean
    assert float(rows[1]["low"]) == tests[1].interval[0]
    assert sum(float(rows[0][f"share_{name}"]) for name in ("seeds", "items", "rest")) == (
        pytest.approx(1)
    )
    assert write_seeds_and_items([], {}, tmp_path) == []
    assert not (tmp_path / CSV).exists()
    assert seeds_and_items_parts([]) == ()


def test_a_table_shows_some_of_many_and_the_csv_all(experiment):
    tests = experiment.compare()[0] * 200
    [part] = seeds_and_items_parts(tests)
    assert len(part.rows) == SHOWN
    assert f"{len(tests) - SHOWN} more comparisons are in {CSV}." in part.notes
    assert len(seeds_and_items_csv(tests).splitlines()) == len(tests) + 1


def test_tables_of_papers_read_the_same(experiment):
    items = items_of_arms(Runs(experiment.root), "e", ["base", "good"])
    assert {s: kept.data for s, kept in items.by_seed("good", "own").items()} == dict.fromkeys(
        SEEDS, "d"
    )
    table = significance_table(experiment.rows, "base")
    tests, _ = compare_over_seeds_and_items(
        [row for row in table.comparisons if row.arm == "good"], experiment.rows, items
    )
    expected = [test for test in experiment.compare()[0] if test.row.arm == "good"]
    assert [test.interval for test in tests] == [test.interval for test in expected]
