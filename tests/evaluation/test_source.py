"""A benchmark of one's own: one class, the node of a YAML and, opened, the benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.protocols import Benchmark, LanguageModel
from cfaug.core.types import Evaluation, Outcome
from cfaug.evaluation.benchmark import SourceBenchmark, cluster_rows, fingerprint, name_rows
from cfaug.evaluation.context import EvaluationContext
from cfaug.evaluation.suites import Suite


@dataclass
class CaptionLength(SourceBenchmark):
    """How long captions are, by the colour they name; shorter is better."""

    colours: tuple[str, ...] = ("red", "blue")

    kind: ClassVar[str] = "length"
    needs: ClassVar[type] = LanguageModel

    def prepare(self, context, index, rows):
        self._index, self._rows = index, np.arange(len(index)) if rows is None else rows

    @property
    def data_hash(self):
        return fingerprint(self._index.hash, self._rows, self.colours)

    def run(self, model):
        texts = [self._index.text(int(row)) for row in self._rows]
        lengths = np.array([len(text.split()) for text in texts], float)
        outcomes = []
        for colour in self.colours:
            some = lengths[[colour in text for text in texts]]
            by = {"colour": colour}
            outcomes.append(
                Outcome(self.name, "words", some.mean(), len(some), "lower", "words", by)
            )
        items = {"item": name_rows(self._index, self._rows), "words": lengths}
        return Evaluation(outcomes, items | {"cluster": cluster_rows(self._index, self._rows)})


@pytest.fixture
def context(opened):
    return EvaluationContext(open=lambda name: opened[name], has_world=False, held_out=lambda: None)


def test_one_class_is_a_node_and_a_benchmark(context, opened):
    node = CaptionLength("ood_pairs", colours=("red", "green"))
    [benchmark] = Suite(folders={"ood_pairs_length": node}).open(context)
    assert isinstance(benchmark, Benchmark)
    assert (benchmark.name, benchmark.needs) == ("ood_pairs_length", LanguageModel)
    found = benchmark.run(None)
    assert [dict(one.by) for one in found.outcomes] == [{"colour": "red"}, {"colour": "green"}]
    assert {one.better for one in found.outcomes} == {"lower"}
    assert len(found.items["item"]) == len(opened["ood_pairs"])


def test_a_node_is_opened_for_many_runs_and_stays_as_it_was(context):
    node = CaptionLength("id", "short")
    [first], [second] = node.open(context), node.open(context)
    assert (first.name, node.name, node.leaks) == ("short_length", "short", None)
    assert first is not second
    assert first.data_hash == second.data_hash
    assert not hasattr(node, "_index")
    with pytest.raises(UserError, match=r"benchmark=length needs benchmark\.data=FOLDER"):
        CaptionLength().open(context)
    with pytest.raises(UserError, match="without_leaks"):
        CaptionLength("id", without_leaks="no")


def test_a_mean_is_over_the_items_that_count():
    hits = {"a": np.array([1.0, np.nan, 0.0, 0.0]), "b": np.array([0.5, 0.5, 0.5, 1.0])}
    a, b = CaptionLength(name="x").mean_outcomes(hits)
    assert (a.metric, a.value, a.n, a.better) == ("a", pytest.approx(1 / 3), 3, "higher")
    assert (b.value, b.n) == (0.625, 4)


def test_rows_of_one_key_have_names_of_their_own(opened, monkeypatch):
    index = opened["id"]
    rows = np.array([3, 5])
    assert name_rows(index, rows) == [index.key(3), index.key(5)]
    monkeypatch.setattr(type(index), "keys", lambda self, rows: ["same"] * len(rows))
    assert name_rows(index, rows) == ["same#3", "same#5"]
