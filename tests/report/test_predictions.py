"""Predictions that are declared before training: what was found, and whether it was predicted."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cfaug.core.errors import UserError
from cfaug.report.arm_results import Runs
from cfaug.report.document import to_markdown
from cfaug.report.items import Items, write_items
from cfaug.report.predictions import FINDINGS, PredictionTable, find_effect, judge_prediction
from cfaug.report.results import Result, append_results
from cfaug.report.training_table import declaration_text, write_declaration

SEEDS = (1, 2, 3, 4, 5)
ITEMS = 400
RIGHT = {"real": 0.4, "more": 0.45, "pairs": 0.8}
BENCHMARK = "held_out_classification"
USEFUL = 0.05


def answers(arm: str, seed: int) -> np.ndarray:
    """Items of one difficulty for all arms; an arm answers those that are easy enough for it."""
    noise = np.random.default_rng([seed, *map(ord, arm)]).normal(0, 0.05, ITEMS)
    return (np.random.default_rng(0).random(ITEMS) + noise < RIGHT[arm]).astype(float)


def put(root: Path, declared: str | None = None) -> Path:
    for arm in RIGHT:
        for seed in SEEDS:
            folder = root / "study" / arm / f"seed={seed}"
            folder.mkdir(parents=True)
            identity: dict[str, Any] = {"data.cf_ratio": 0.5}
            if declared is not None:
                identity["content.declared"] = declared
            record = {
                "state": "done", "experiment": "study", "arm": arm, "seed": seed, "steps": 10,
                "identity": identity, "counts": {"train": 10, "counterfactual": 5, "real": 5},
            }  # fmt: skip
            (folder / "run.json").write_text(json.dumps(record))
            right = answers(arm, seed)
            append_results(
                folder / "results.jsonl",
                [Result(f"study/{arm}/seed={seed}", arm, seed, BENCHMARK, "acc1",
                        float(right.mean()), ITEMS, f"{arm} {seed}", "d")],
            )  # fmt: skip
            columns = {
                "item": [f"i{n}" for n in range(ITEMS)],
                "cluster": [f"c{n}" for n in range(ITEMS)], "acc1": right,
            }  # fmt: skip
            write_items(folder, Items(BENCHMARK, f"{arm} {seed}", "d", columns))
    return root


def table(**changes: Any) -> PredictionTable:
    def compared(arm: str, baseline: str, expected: str | None) -> dict[str, Any]:
        return {"arm": arm, "baseline": baseline, "column": "accuracy", "useful": USEFUL,
                "expected": expected}  # fmt: skip

    settings: dict[str, Any] = {
        "name": "study", "title": "A study", "experiment": "study",
        "arms": {arm: f"the arm {arm}" for arm in RIGHT}, "baselines": ["real", "more"],
        "columns": {"accuracy": {"name": "accuracy", "group": "Held out", "benchmark": BENCHMARK,
                                 "metric": "acc1", "cost": False}},
        "compared": {
            "held": compared("pairs", "real", "better"),
            "failed": compared("pairs", "more", "worse"),
            "nothing": compared("more", "real", None),
        },
    }  # fmt: skip
    return PredictionTable(**{**settings, **changes})


def shown(document: Any) -> dict[str, dict[str, str]]:
    [part] = [part for part in document.parts if part.title == "Predictions"]
    return {
        names[0]: dict(zip(part.columns, (cell.text for cell in cells), strict=True))
        for names, cells in part.rows
    }


def test_a_declared_prediction_is_judged_by_seeds_and_items(tmp_path):
    declared = write_declaration(table(basis="another world"), tmp_path)
    assert json.loads(declared.read_text())["compared"]["held"]["expected"] == "better"
    put(tmp_path, hashlib.sha256(declared.read_bytes()).hexdigest())
    document = table(basis="another world").build(Runs(tmp_path))
    rows = shown(document)
    held = rows["the arm pairs against the arm real"]
    assert (held["predicted"], held["verdict"]) == ("better", "held")
    failed = rows["the arm pairs against the arm more"]
    assert (failed["predicted"], failed["verdict"]) == ("worse", "did not hold")
    nothing = rows["the arm more against the arm real"]
    assert nothing["predicted"] == "–"
    assert nothing["verdict"] in {f"found: {finding}" for finding in (*FINDINGS, "undecided")}
    # The interval by hand: variance of the seeds' means, of the items' means, less their overlap.
    gains = np.stack([answers("pairs", seed) - answers("real", seed) for seed in SEEDS])
    assert float(held["difference"]) == pytest.approx(100 * gains.mean(), abs=0.06)
    low, high = (float(end) for end in held["95 % interval"].split(" to "))
    assert (low + high) / 2 == pytest.approx(100 * gains.mean(), abs=0.1)
    over_items = gains.mean(0).std(ddof=1) / math.sqrt(ITEMS)
    over_seeds = gains.mean(1).std(ddof=1) / math.sqrt(len(SEEDS))
    narrow = 100 * stats.norm.ppf(0.975) * max(over_items, over_seeds)
    assert narrow * 0.95 < (high - low) / 2 < 100 * 3 * math.hypot(over_items, over_seeds)


def test_a_prediction_that_runs_do_not_name_is_exploratory(tmp_path):
    document = table().build(Runs(put(tmp_path)))
    assert document.answer == (
        "Exploratory, as the runs name no declaration (declared=FILE): of 2 predictions, 1 held, "
        "1 did not hold, and 0 are undecided."
    )
    # Said wherever the table is printed, too.
    text = to_markdown(document)
    assert "### Exploratory: not declared before training" in text
    assert "Exploratory, as the runs name no declaration" in text
    assert "### Predictions" not in text


def test_predictions_without_results_are_counted_as_missing(tmp_path):
    put(tmp_path)
    shutil.rmtree(tmp_path / "study/more")
    document = table(partial=True).build(Runs(tmp_path))
    assert document.answer.endswith(
        "of 2 predictions, 1 held, 0 did not hold, 0 are undecided, and 1 is missing without "
        "results."
    )


def test_runs_without_items_leave_every_prediction_missing(tmp_path):
    put(tmp_path)
    for folder in tmp_path.glob("study/*/seed=*/items"):
        shutil.rmtree(folder)
    document = table().build(Runs(tmp_path))
    assert "and 2 are missing without results." in document.answer


def test_comparisons_that_predict_nothing_are_what_others_follow_from(tmp_path):
    compared = {"a": {"arm": "pairs", "baseline": "real", "column": "accuracy", "useful": USEFUL}}
    document = table(compared=compared).build(Runs(put(tmp_path)))
    assert not [part for part in document.parts if part.title == "Predictions"]
    [part] = [part for part in document.parts if part.title.startswith("Comparisons")]
    assert [cell.text for cell in part.rows[0][1]][-1] == "better"
    assert document.answer == ""
    small = {"a": {**compared["a"], "arm": "more", "useful": 0.04}}
    assert table(compared=small).build(Runs(tmp_path)).answer == ""
    with pytest.raises(UserError, match="declares no comparison"):
        write_declaration(table(compared=compared, experiment="other"), tmp_path)


def test_what_is_declared_includes_the_predictions_and_no_text():
    text = declaration_text(table())
    assert declaration_text(table(title="Other words", notes=["one"])) == text
    changed = {"held": {**table().compared["held"], "expected": "equal"}}
    assert declaration_text(table(compared=changed)) != text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"useful": 2}, "useful=2 is invalid"),
        ({"useful": None}, "useful=None is invalid"),
        ({"expected": "higher"}, "expected='higher' is invalid: choose from better, worse, equal"),
        ({"arm": "none"}, "arm 'none' is invalid: choose from real, more, pairs"),
        ({"column": "x"}, "column 'x' is invalid"),
        ({"baseline": "more", "arm": "more"}, "compared with itself"),
        ({"margin": 0.1}, "is invalid: it has arm, baseline, column"),
    ],
)
def test_a_comparison_that_cannot_be_made_is_refused(changes, said):
    entry = {**table().compared["held"], **changes}
    with pytest.raises(UserError, match=said.replace("(", r"\(")):
        table(compared={"held": entry}).check()


gains = st.floats(-0.2, 0.2)


@given(gains, st.floats(0, 0.2), st.floats(0.001, 0.1))
def test_verdicts_agree_with_the_words_of_the_page(mean, half, useful):
    low, high = mean - half, mean + half
    finding = find_effect(low, mean, high, useful=useful)
    excludes_0 = low > 0 or high < 0
    assert (finding == "equal") == (max(abs(low), abs(high)) < useful)
    if finding in ("better", "worse"):
        assert excludes_0
        assert abs(mean) >= useful
        assert (mean > 0) == (finding == "better")
    verdicts = {e: judge_prediction(e, low, mean, high, useful=useful) for e in FINDINGS}
    assert [e for e, verdict in verdicts.items() if verdict == "held"] == (
        [] if finding == "undecided" else [finding]
    )
    if finding == "undecided":
        assert (verdicts["better"] == "did not hold") == (high < useful)
        assert (verdicts["worse"] == "did not hold") == (low > -useful)
        assert verdicts["equal"] == "undecided"
    # The same from the other side: a gain of one arm is a loss of the other.
    mirrored = find_effect(-high, -mean, -low, useful=useful)
    assert mirrored == {"better": "worse", "worse": "better"}.get(finding, finding)
