"""What a benchmark that somebody wrote returns is checked before any of it is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from cfaug.data.planning.settings import DataSettings
from cfaug.errors import UserError
from cfaug.models.specs import HFClip
from cfaug.protocols import DualEncoder
from cfaug.run import evaluate_checkpoint
from cfaug.run.evaluate_checkpoint import Asking, ask, memory
from cfaug.types import Evaluation, Outcome
from tests.run.conftest import WORLD

ITEMS = {"item": ["a"], "cluster": ["a"]}


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
    ("found", "said"),
    [
        (None, "own: run should return a cfaug.types.Evaluation, not NoneType"),
        ([Outcome("own", "m", 1.0, 1)], "Evaluation, not list"),
        (
            Evaluation([Outcome("other", "m", 1.0, 1)], ITEMS),
            "own: the outcome 'm' is of another benchmark, 'other'",
        ),
    ],
)
def test_what_is_no_evaluation_of_the_benchmark_is_refused(tmp_path, found, said):
    data = DataSettings(None, None)
    one = evaluate_checkpoint.Tested(tmp_path / "run", "a", 0, HFClip("zoo:clip-0"), data, "x")
    with pytest.raises(UserError) as caught:
        ask(one, [Own(found)], Asking("cpu", memory(tmp_path / "cache", 0)))
    assert said in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_yaml_that_names_no_benchmark_is_one_sentence(place, tmp_path, capsys):
    """Of the class ``Own``, which has ``run`` and no ``open``."""
    (tmp_path / "conf" / "benchmark").mkdir(parents=True)
    (tmp_path / "conf" / "benchmark" / "own.yaml").write_text(
        f"_target_: {__name__}.Own\nfound: null\n"
    )
    words = ["weights=zoo:clip-0", "benchmark=own", f"--config-dir={tmp_path / 'conf'}"]
    assert place.evaluate(*WORLD, *words) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: benchmark: {__name__}.Own has no open(context)")
    assert "Traceback" not in said
