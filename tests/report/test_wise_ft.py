"""Gain against forgetting: a table and a curve of what was asked at every mixing factor."""

from __future__ import annotations

import re

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.checkpoint_tables import WiseFtTable, interpolated_arm
from cfaug.report.document import read_document
from cfaug.report.paper_tables import write_tables_page
from cfaug.report.results import Result, append_results
from cfaug.report.writers import write_document
from cfaug.stats.effects import bootstrap_interval

GAIN = {"benchmark": "pairs", "metric": "group", "name": "pairs"}
COST = {"benchmark": "nats", "metric": "loss"}
FACTORS = (0.0, 0.5, 1.0)
SEEDS = (3, 4, 5)


def value(arm, factor, seed, cost):
    draw = np.random.default_rng([len(arm), int(10 * factor), seed, cost])
    return float(draw.random()) + (factor if not cost else -factor)


def fill(root, arms=("a", "bb"), factors=FACTORS, seeds=SEEDS, data="d"):
    for arm in arms:
        for factor in factors:
            name = interpolated_arm(arm, factor)
            for seed in seeds:
                folder = root / "exp" / name / f"seed={seed}"
                folder.mkdir(parents=True)
                gain, cost = (value(arm, factor, seed, which) for which in (0, 1))
                given = (f"exp/{name}/seed={seed}", name, seed)
                append_results(
                    folder / "results.jsonl",
                    [
                        Result(*given, "pairs", "group", gain, 10, "w", data),
                        Result(
                            *given, "nats", "loss", cost, 10, "w", data,
                            better="lower", unit="nats",
                        ),
                    ],
                )  # fmt: skip
    return Runs(root)


def table(**given):
    usual = {"name": "wise_ft", "title": "t", "experiment": "exp", "gain": GAIN, "cost": COST}
    return WiseFtTable(**(usual | given))


def test_values_and_changes_are_those_of_the_rows(tmp_path):
    document = table(arms={"bb": "Second", "a": "First"}).build(fill(tmp_path))
    [part] = document.parts
    assert [labels for labels, _ in part.rows] == [
        (arm, factor) for arm in ("Second", "First") for factor in ("0", "0.5", "1")
    ]
    for (arm, factor), cells in part.rows:
        name = {"Second": "bb", "First": "a"}[arm]
        for at, cost in ((0, 0), (2, 1)):
            own = [value(name, float(factor), seed, cost) for seed in SEEDS]
            change = [v - value(name, 0.0, s, cost) for v, s in zip(own, SEEDS, strict=True)]
            assert cells[at].numbers["value"] == pytest.approx(np.mean(own))
            assert cells[at].numbers["sd"] == pytest.approx(np.std(own, ddof=1))
            assert cells[at + 1].numbers["value"] == pytest.approx(np.mean(change))
            low, _ = bootstrap_interval(change)
            assert (cells[at + 1].small == "–") == bool(np.isnan(low)) == (factor == "0")
    assert "lower is better" in part.columns[2]
    [plot] = document.tradeoffs
    assert plot.units == ("nats", "fraction")
    assert plot.x_title == "change of nats loss (nats, lower is better)"
    assert plot.y_title == "change of pairs (points)"
    for point, xs, ys in plot.series["First"]:
        for seed in SEEDS:
            gain, cost = (
                value("a", float(point), seed, c) - value("a", 0.0, seed, c) for c in (0, 1)
            )
            assert (xs[seed], ys[seed]) == pytest.approx((cost, gain))


def test_the_page_has_the_curve_and_the_file_is_read_back(tmp_path):
    document = table().build(fill(tmp_path, arms=("a<b",)))
    write_document(document, tmp_path / "tables")
    assert read_document(tmp_path / "tables" / "wise_ft.json") == document
    page = write_tables_page(tmp_path / "tables").read_text()
    assert "a&lt;b, 0.5:" in page
    assert "a<b, 0.5" not in page
    whisker = r"<path d=[^>]*fill: none; stroke: var\(--accent\); stroke-width: 1.6"
    assert len(re.findall(whisker, page)) == 2 * len(FACTORS)


@pytest.mark.parametrize(
    ("filled", "given", "message"),
    [
        ({"factors": (0.5, 1.0)}, {}, r"a with wise_ft=\[0,\.\.\.\]"),
        ({}, {"arms": {"c": "C"}}, r"c with wise_ft"),
        ({}, {"experiment": "other"}, r"asked with wise_ft=\[0"),
        ({}, {"gain": {"benchmark": "x", "metric": "y"}}, r"x y of a,wise_ft=0"),
    ],
)
def test_what_is_missing_is_named(tmp_path, filled, given, message):
    with pytest.raises(MissingError, match=message):
        table(**given).build(fill(tmp_path, **filled))


def test_factors_of_other_seeds_are_not_compared(tmp_path):
    fill(tmp_path, arms=("a",), factors=(0.0,))
    runs = fill(tmp_path, arms=("a",), factors=(1.0,), seeds=(3, 4))
    with pytest.raises(MissingError, match=r"pairs group of a,wise_ft=1"):
        table().build(runs)


def test_settings_are_checked(tmp_path):
    with pytest.raises(UserError, match=r"table\.experiment=NAME"):
        table(experiment=None).build(Runs(tmp_path))
    with pytest.raises(UserError, match=r"table\.gain"):
        table(gain={"metric": "x"}).build(Runs(tmp_path))
