"""What a test shares with a run's training, as ``evaluate.py`` says and keeps it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from cfaug.core.protocols import DualEncoder
from cfaug.core.types import Evaluation, Outcome
from cfaug.data.mixture.leakage import Leaks
from cfaug.run.evaluate_checkpoint import EvaluationOptions, Memory, ask
from cfaug.run.evaluate_checkpoint import EvaluationTarget as Checkpoint


@dataclass
class Known:
    """A benchmark that is told what leaks."""

    leaks: Leaks | None
    name: str = "own_retrieval"
    needs: ClassVar[type] = DualEncoder
    data_hash: str = "d"

    def run(self, encoder: Any) -> Evaluation:
        return Evaluation([Outcome(self.name, "R@1", 1.0, 4)], {"item": [], "cluster": []})


def leaks(images: int) -> Leaks:
    rows = np.arange(images)
    return Leaks(rows, np.empty(0, np.int64), images=images, equal=images, checked=0, total=4)


@pytest.fixture
def asked(tmp_path, capsys):
    weights = SimpleNamespace(to=lambda device: None)
    model: Any = SimpleNamespace(
        identity=lambda: "w", provides=(DualEncoder,), load=lambda protocol: weights
    )
    one = Checkpoint(tmp_path, "real", 1, model, None, "x")  # type: ignore[arg-type]

    def run(*benchmarks: Known) -> str:
        ask(one, benchmarks, EvaluationOptions("cpu", Memory(tmp_path, 0)))
        return capsys.readouterr().err

    return run


def test_what_was_trained_on_is_said_on_stderr_each_time_and_kept(asked, tmp_path):
    for _ in range(2):  # the second time the benchmark is known already
        said = asked(Known(leaks(4)), Known(None, "other"))
        assert said.count("\n") == 1
        assert "x/real/seed=1  own_retrieval: all 4 test images were trained on" in said
        assert "benchmark.without_leaks=true" in said
    found = json.loads((tmp_path / "leaks.json").read_text())
    assert found == {
        "own_retrieval": {
            "images": 4, "equal": 4, "total": 4, "with_coco_id": 0, "coco_ids": [],
        }
    }  # fmt: skip


def test_what_was_left_out_is_no_leak_any_more(asked, tmp_path):
    asked(Known(leaks(2)), Known(leaks(1), "other"))
    assert asked(Known(leaks(0), data_hash="e")) == ""
    assert list(json.loads((tmp_path / "leaks.json").read_text())) == ["other"]
    assert asked(Known(None, "other")) == ""  # a checkpoint's training is not known
    assert list(json.loads((tmp_path / "leaks.json").read_text())) == ["other"]
