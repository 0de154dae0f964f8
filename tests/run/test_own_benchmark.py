"""What a benchmark that somebody wrote returns is checked before any of it is written."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pytest

from cfaug.core.errors import UserError
from cfaug.core.protocols import DualEncoder
from cfaug.core.types import Evaluation, Outcome
from cfaug.data.mixture.settings import RatioData
from cfaug.models.specs import HFClip
from cfaug.report.items import RANKINGS, read_items
from cfaug.run.evaluate_checkpoint import EvaluationTarget, open_feature_cache, run_benchmarks
from tests.run.conftest import SCENES, refusal

ITEMS = {"item": ["a"], "cluster": ["a"]}


def target(root) -> EvaluationTarget:
    data = RatioData(None, None)
    return EvaluationTarget(root / "run", "a", 0, HFClip("zoo:clip-0"), data, "x")


@dataclass
class Own:
    """A benchmark that returns the same of every model."""

    found: Any
    name: str = "own"
    data_hash: str = "d"
    needs = DualEncoder

    def run(self, model):
        return self.found


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (None, "own: run should return a cfaug.core.types.Evaluation, not NoneType"),
        ([Outcome("own", "m", 1.0, 1)], "Evaluation, not list"),
        (
            Evaluation([Outcome("other", "m", 1.0, 1)], ITEMS),
            "own: the outcome 'm' is of another benchmark, 'other'",
        ),
    ],
)
def test_what_is_no_evaluation_of_the_benchmark_is_refused(tmp_path, returned, said):
    checkpoint = target(tmp_path)
    with pytest.raises(UserError) as caught:
        run_benchmarks(
            checkpoint, [Own(returned)], "cpu", open_feature_cache(tmp_path / "cache", 0)
        )
    assert said in str(caught.value)
    assert not (tmp_path / "run").exists()


@dataclass
class Ranks(Own):
    """The same, of rankings."""

    keeps_rankings: bool = True


def test_rankings_are_kept_beside_the_items_and_written_again_where_they_are_missing(tmp_path):
    checkpoint = target(tmp_path)
    ranked = {"item": ["i", "j"], "cluster": ["s", "s"], "place": [0, 1]}
    evaluation = Evaluation([Outcome("own", "m", 1.0, 1)], ITEMS, ranked)
    how = ("cpu", open_feature_cache(tmp_path / "cache", 0))
    assert run_benchmarks(checkpoint, [Own(evaluation)], *how)
    file = tmp_path / "run" / "rankings" / "own.parquet"
    kept, results = file.read_bytes(), (tmp_path / "run" / "results.jsonl").read_bytes()
    items = read_items(tmp_path / "run", "own", RANKINGS)
    assert (items.weights, items.data) == (checkpoint.model.identity(), "d")
    assert {name: list(values) for name, values in items.columns.items()} == ranked
    assert not run_benchmarks(checkpoint, [Ranks(evaluation)], *how)
    file.unlink()  # as in a run from before rankings were kept
    assert not run_benchmarks(checkpoint, [Own(evaluation)], *how)
    assert run_benchmarks(checkpoint, [Ranks(evaluation)], *how)
    assert file.read_bytes() == kept
    assert (tmp_path / "run" / "results.jsonl").read_bytes() == results


def test_a_yaml_that_names_no_benchmark_is_one_sentence(place, tmp_path):
    """Of the class ``Own``, which has ``run`` and no ``open``."""
    (tmp_path / "conf" / "benchmark").mkdir(parents=True)
    (tmp_path / "conf" / "benchmark" / "own.yaml").write_text(
        f"_target_: {__name__}.Own\nfound: null\n"
    )
    words = ["weights=zoo:clip-0", "benchmark=own", f"--config-dir={tmp_path / 'conf'}"]
    said = refusal(place.evaluate, *SCENES, *words)
    assert f"{__name__}.Own is no SuiteMember" in said
    assert "it has no open" in said


@pytest.mark.slow
def test_a_class_is_imported_from_the_folder_of_settings(place, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.path", [*sys.path])
    conf = tmp_path / "conf"
    (conf / "benchmark").mkdir(parents=True)
    (conf / "benchmark" / "own.yaml").write_text("_target_: my_own_benchmark.Mine\n")
    words = ["weights=zoo:clip-0", "benchmark=own", f"--config-dir={conf}"]
    said = refusal(place.evaluate, *SCENES, *words)
    assert "No module named 'my_own_benchmark'" in said
    assert "imported from the folder of --config-dir and PYTHONPATH" in said
    (conf / "my_own_benchmark.py").write_text("class Mine:\n    pass\n")
    said = refusal(place.evaluate, *SCENES, *words)
    assert "my_own_benchmark.Mine is no SuiteMember, which benchmark takes: it has no open" in said
    near = ["weights=zoo:clip-0", "benchmark=ownn", f"--config-dir={conf}"]
    assert "did you mean benchmark=own?" in refusal(place.evaluate, *SCENES, *near)
