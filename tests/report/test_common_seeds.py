"""Arms are compared on the seeds that all of them have, or on those that are chosen."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cfaug.core.errors import UserError
from cfaug.report.common_seeds import check_experiment, choose_seeds, keep_common
from cfaug.report.comparison import ComparisonSettings
from cfaug.report.records import read_run
from cfaug.report.results import Result
from cfaug.report.significance_table import significance_table
from tests.report.example import OOD, SEEDS, results

LACKING = SEEDS[1]
REST = set(SEEDS) - {LACKING}


def interrupted(arm: str = "counterfactual") -> list[Result]:
    """Results of an experiment with a run of one arm missing."""
    return [row for row in results() if (row.arm, row.seed) != (arm, LACKING)]


def test_a_table_of_the_seeds_that_all_arms_have_is_the_table_without_the_others():
    arm = next(row.arm for row in results() if row.arm not in ("real", "before"))
    rows, notes = keep_common(interrupted(arm), {"before"}, None, {arm: "edited"})
    assert {row.seed for row in rows if row.arm == "real"} == REST
    [note] = notes
    assert f"edited lacks seed {LACKING}" in note
    assert ", ".join(map(str, sorted(REST))) in note
    without = [row for row in results() if row.seed != LACKING]
    table, other = (significance_table(each, untrained=["before"]) for each in (rows, without))
    assert repr(table.rows) == repr(other.rows)  # NaN does not equal itself
    assert {row.n for row in table.rows} == {len(REST)}


def test_seeds_that_are_chosen_are_taken_and_the_rest_is_said():
    chosen = sorted(SEEDS)[:2]
    rows, [note] = keep_common(results(), {"before"}, chosen, {})
    assert {row.seed for row in rows} == set(chosen)
    assert "as chosen" in note
    assert str(max(SEEDS)) in note
    assert keep_common(results(), {"before"}, None, {}) == (results(), [])


def test_an_untrained_arm_with_one_seed_is_kept_whichever_seeds_are_compared():
    rows = [row for row in interrupted() if row.arm != "before" or row.seed == LACKING]
    kept, _ = keep_common(rows, {"before"}, None, {})
    assert {row.seed for row in kept if row.arm == "before"} == {LACKING}


def test_a_benchmark_that_fewer_runs_were_evaluated_on_has_seeds_of_its_own():
    some = [replace(row, benchmark="late") for row in results() if row.seed != LACKING]
    arm = next(row.arm for row in some if row.arm not in ("real", "before"))
    late = [row for row in some if (row.arm, row.seed) != (arm, max(SEEDS))]
    rows, notes = keep_common([*results(), *late], {"before"}, None, {})
    assert {row.seed for row in rows if row.benchmark == OOD} == set(SEEDS)
    [note] = notes
    assert note.startswith("late: ")
    assert f"{arm} lacks seed {max(SEEDS)}" in note


@pytest.mark.parametrize("asked", [None, [3]])
def test_arms_that_share_no_seed_are_refused_with_what_is_there(asked):
    seeds = {"real": {1, 2}, "cf": {3}}
    with pytest.raises(UserError, match=r"real: 1, 2; edited: 3"):
        choose_seeds(seeds, asked, {"cf": "edited"})


def lay_run(root, arm, seed):
    folder = root / "x" / arm / f"seed={seed}"
    folder.mkdir(parents=True)
    record = {"state": "done", "seed": seed, "steps": 3, "cf_ratio": 0.0 if arm == "real" else 0.5}
    (folder / "run.json").write_text(json.dumps(record))
    return read_run(folder)


def test_the_missing_seeds_are_known_before_anything_is_evaluated(tmp_path):
    runs = [lay_run(tmp_path, arm, seed) for arm, seed in (("real", 1), ("real", 2), ("cf", 1))]
    settings = ComparisonSettings()
    said = check_experiment(runs, settings, None)
    assert "seed 1, which all arms have" in said
    assert "cf lacks seed 2" in said
    assert check_experiment(runs[:2], settings, None) == ""  # one arm: no comparison
    with pytest.raises(UserError, match="cf lacks seed 2"):
        check_experiment(runs, ComparisonSettings(seeds=[2]), None)
    with pytest.raises(UserError, match="no seed is common"):
        check_experiment(runs[1:], settings, None)
