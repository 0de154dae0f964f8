"""Repair where the truth is known: recall and precision, null worlds, and the dose."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.evaluation.failures import ModelFailure, write_failures
from cfaug.papers.repair.oracle import RepairedWorld
from cfaug.planning.build import build
from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.results import Result, append_results
from cfaug.stats.effects import fit_saturation
from cfaug.worlds.shapescapes.settings import SUBJECTS
from tests.files_of_settings import read_settings

CONF = read_settings("table/repair_oracle")
SEEDS = (0, 1, 2)
LEFT = {0: 0.8, 32: 0.7, 64: 0.6, 128: 0.5, 256: 0.45}


def failure(label: str, kind: str, after: str = "sand") -> ModelFailure:
    return ModelFailure("stress", kind, "snow", after, (label,) if label else ())


def left(dose: int, seed: int) -> float:
    return LEFT[dose] + float(np.random.default_rng([dose, seed]).normal(0, 0.01))


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for dose in LEFT:
        for seed in SEEDS:
            folder = tmp_path / "runs" / "repair" / f"dose_{dose}" / f"seed={seed}"
            folder.mkdir(parents=True)
            record = {
                "state": "done", "experiment": "repair", "arm": f"dose_{dose}", "seed": seed,
                "steps": 100, "identity": {}, "counts": {"train": 640, "counterfactual": dose},
            }  # fmt: skip
            (folder / "run.json").write_text(json.dumps(record))
            values = {"excess": left(dose, seed), "repair_rate": 0.5, "collateral": 1.0}
            append_results(folder / "results.jsonl", [
                Result(f"repair/dose_{dose}/seed={seed}", f"dose_{dose}", seed, "test_repair",
                       metric, value, 4, "w", "d", better="lower")
                for metric, value in values.items()
            ])  # fmt: skip
    write_failures(tmp_path / "found.jsonl", [
        failure("ball", "background"), failure("ball", "background", "water"),
        failure("cube", "background"), failure("cat", "domain"),
    ])  # fmt: skip
    write_failures(tmp_path / "none.jsonl", [])
    for number in range(5):
        write_failures(tmp_path / f"null-{number}.jsonl", [failure("", "domain")] * (number == 3))
    return tmp_path


def table(**changes):
    worlds = {
        "none": {"shortcut": "none", "failures": "none.jsonl"},
        "planted": {"shortcut": "background", "failures": "found.jsonl",
                    "arms": {"before": "repair/dose_0", "targeted": "repair/dose_128"}},
    }  # fmt: skip
    dose = {dose: f"repair/dose_{dose}" for dose in LEFT}
    return build({**CONF, "worlds": worlds, "null_worlds": "null-*.jsonl", "dose": dose, **changes})


def test_recall_counts_classes_and_precision_failures(place):
    worlds, null = table().build(Runs(place / "runs")).parts
    shown = {row[0]: dict(zip(worlds.columns, cells, strict=True)) for row, cells in worlds.rows}
    planted = [cell.text for cell in dict(worlds.rows)["planted",]]
    assert planted[:3] == ["4", f"{100 * 2 / len(SUBJECTS):.0f}%", "75%"]
    assert [cell.text for cell in dict(worlds.rows)["none",]][:3] == ["0", "–", "–"]
    assert shown["none"]
    mean = np.mean([left(128, seed) for seed in SEEDS])
    values = [cell.numbers["value"] for cell in dict(worlds.rows)["planted",] if cell.numbers]
    assert pytest.approx(mean) in values
    ((_, cells),) = null.rows
    assert [cell.text for cell in cells] == ["1 of 5", "4% to 62%", "1"]


def test_a_failure_of_all_classes_is_one_of_each():
    world = RepairedWorld("colour_and_background", "x")
    assert world.planted == {"background", "adjective"}
    assert world.recall([failure("", "background")]) == 0.5
    assert world.recall([failure("", "background"), failure("ball", "adjective")]) == pytest.approx(
        (len(SUBJECTS) + 1) / (2 * len(SUBJECTS))
    )
    assert RepairedWorld("none", "x").recall([]) is None
    assert world.precision([]) is None


def test_the_dose_is_what_is_less_left_than_without(place):
    document = table().build(Runs(place / "runs"))
    (curve,) = document.curves
    measured = curve.series["measured"]
    assert measured[128.0][1] == pytest.approx(left(0, 1) - left(128, 1))
    fit = fit_saturation(measured, np.random.default_rng(0))
    assert curve.series["fitted saturation"][256.0][0] == pytest.approx(fit.at(256), abs=1e-6)
    assert f"up to {100 * fit.limit:.1f} points" in document.answer
    line = {dose: repair_dose for dose, repair_dose in table().dose.items() if dose < 128}
    assert "no saturation is seen" in table(dose=line).build(Runs(place / "runs")).answer


def test_what_is_missing_is_named_and_other_worlds_are_refused(place):
    with pytest.raises(MissingError, match="test_repair of repair/dose_9"):
        table(dose={0: "repair/dose_0", 9: "repair/dose_9"}).build(Runs(place / "runs"))
    with pytest.raises(MissingError, match=r"nowhere-\*"):
        table(null_worlds="nowhere-*.jsonl").build(Runs(place / "runs"))
    with pytest.raises(UserError, match="shortcut"):
        table(worlds={"x": {"shortcut": "weather", "failures": "f"}}).build(Runs(place / "runs"))
