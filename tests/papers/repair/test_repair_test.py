"""What is left of declared failures, against plain numpy; and what is refused."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.protocols import Classifier
from cfaug.core.types import Evaluation, Outcome
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from cfaug.evaluation.benchmark import Prompted
from cfaug.evaluation.failures import Cell, Cells, FailureRule, ModelFailure, write_failures
from cfaug.evaluation.stress.stress import Stress
from cfaug.papers.repair.repair_test import RepairTest, check_disjoint, match_failure
from cfaug.worlds.shapescapes.parts import make_part
from cfaug.worlds.shapescapes.settings import WorldSettings
from tests.evaluation.joined import joined_set

SNOW = ModelFailure("stress", "place", "grass", "snow", ("dog",))
NIGHT = ModelFailure("stress", "place", "day", "night")


class Inner:
    """A benchmark of given losses; a photo has one edit of each cell."""

    kind = "stress"
    needs = Classifier
    data_hash = "data"
    name = "fresh_stress"

    def __init__(self, losses: dict[Cell, list[float]]) -> None:
        self.losses = losses

    def open(self, context):
        return [self]

    def run(self, model):
        return Evaluation(
            [Outcome("fresh_stress", "acc1", 0.5, 1)], {"item": ["a"], "cluster": ["a"]}
        )

    def failure_cells(self, items):
        rows = [
            (f"{cell.after}-{n}", loss, f"photo-{n}", cell)
            for cell, losses in self.losses.items()
            for n, loss in enumerate(losses)
        ]
        names, losses, photos, cells = zip(*rows, strict=True)
        return Cells(names, np.array(losses), np.zeros(len(names)), photos, cells)


def opened(tmp_path, losses, *failures, **given):
    write_failures(tmp_path / "failures.jsonl", failures)
    node = RepairTest(Inner(losses), str(tmp_path / "failures.jsonl"), **given)
    (benchmark,) = node.open(SimpleNamespace())
    return benchmark


def outcomes(benchmark):
    evaluation = benchmark.run(None)
    return evaluation, {(row.metric, row.by.get("failure")): row for row in evaluation.outcomes}


DOG, CAT = Cell(("dog",), "place", "grass", "snow"), Cell(("cat",), "place", "grass", "snow")
DARK, RED = Cell(("dog",), "place", "day", "night"), Cell(("dog",), "colour", "blue", "red")


def test_what_is_left_is_the_mean_excess_and_what_is_new_is_counted(tmp_path):
    rng = np.random.default_rng(4)
    losses = {
        DOG: list(0.02 + 0.01 * rng.random(30)),  # repaired
        DARK: list(0.4 + 0.1 * rng.random(30)),  # declared, and still there
        RED: list(0.6 + 0.1 * rng.random(30)),  # not declared
        CAT: list(0.01 * rng.random(30)),
    }
    benchmark = opened(tmp_path, losses, SNOW, NIGHT)
    assert benchmark.name == "fresh_repair"
    evaluation, measured = outcomes(benchmark)
    declared = losses[DOG] + losses[DARK]
    assert measured["excess", None].value == pytest.approx(np.mean(declared))
    assert (measured["excess", None].n, measured["excess", None].better) == (60, "lower")
    assert measured["excess", SNOW.words].value == pytest.approx(np.mean(losses[DOG]))
    assert measured["repair_rate", None].value == 0.5
    assert measured["collateral", None].value == 1
    assert measured["worst_cell", None].value == pytest.approx(np.mean(losses[RED]))
    assert set(evaluation.items["failure"]) == {SNOW.words, NIGHT.words}
    RepairTest.item_schema.check(evaluation.items, "items")
    mean = np.mean(evaluation.items["excess"])
    assert mean == pytest.approx(measured["excess", None].value)


def test_what_is_left_is_told_by_cause_where_the_file_names_causes(tmp_path):
    losses = {DOG: [0.1, 0.2, 0.3], DARK: [0.4, 0.6], RED: [0.9, 0.8]}
    red = ModelFailure("stress", "colour", "blue", "red", ("dog",))
    failures = (replace(SNOW, cause="coverage"), replace(NIGHT, cause="reliance"), red)
    evaluation = opened(tmp_path, losses, *failures).run(None)
    left = {row.by["cause"]: (row.value, row.n) for row in evaluation.outcomes if "cause" in row.by}
    assert left == {
        "coverage": (pytest.approx(0.2), 3),
        "reliance": (pytest.approx(0.5), 2),
        "unknown": (pytest.approx(0.85), 2),
    }
    assert list(evaluation.items["cause"]) == ["coverage"] * 3 + ["reliance"] * 2 + ["unknown"] * 2
    RepairTest.item_schema.check(evaluation.items, "items")
    unnamed = opened(tmp_path, losses, SNOW, NIGHT, red).run(None)
    assert "cause" not in unnamed.items
    assert not any("cause" in row.by for row in unnamed.outcomes)


def test_accuracy_is_that_on_the_edits_of_declared_failures(tmp_path):
    class Classified(Inner):
        def run(self, model):
            items = {"item": [f"snow-{n}" for n in range(4)] + [f"red-{n}" for n in range(2)]}
            items |= {"cluster": ["photo"] * 6, "acc1": np.array([1, 0, 1, 1, 0, 0.0])}
            return Evaluation([Outcome("fresh_stress", "acc1", 0.5, 6)], items)

    write_failures(tmp_path / "failures.jsonl", [SNOW])
    losses = {DOG: [0.1] * 4, RED: [0.9] * 2}
    node = RepairTest(Classified(losses), str(tmp_path / "failures.jsonl"))
    (benchmark,) = node.open(SimpleNamespace())
    evaluation, measured = outcomes(benchmark)
    assert (measured["acc1", None].value, measured["acc1", None].n) == (0.75, 4)
    assert list(evaluation.items["acc1"]) == [1, 0, 1, 1]
    RepairTest.item_schema.check(evaluation.items, "items")


class Twice(Inner):
    """The same, each edit twice, as shards of A -> B and B -> A have them; items name the photo."""

    def run(self, model):
        cells = super().failure_cells(None)
        named = {"item": [], "cluster": [], "photo": [], "text": []}
        for again in ("", "-again"):
            named["item"] += [f"{name}{again}" for name in cells.names]
            named["cluster"] += list(cells.clusters)
            named["photo"] += list(cells.clusters)
            named["text"] += [f"a {' '.join(cell.labels)} {cell.after}" for cell in cells.groups]
        return Evaluation([Outcome("fresh_stress", "acc1", 0.5, 1)], named)

    def failure_cells(self, items):
        cells = super().failure_cells(items)
        return Cells(
            [f"{name}{again}" for again in ("", "-again") for name in cells.names],
            np.tile(cells.delta, 2) + np.repeat([0, 0.5], len(cells.delta)),
            np.tile(cells.control, 2), [*cells.clusters] * 2, [*cells.groups] * 2,
        )  # fmt: skip


def test_no_edit_of_a_photo_is_counted_twice(tmp_path):
    back = ModelFailure("stress", "place", "snow", "grass", ("dog",))
    losses = {DOG: [0.1, 0.2, 0.3], Cell(("dog",), "place", "snow", "grass"): [0.4, 0.5]}
    node = RepairTest(Twice(losses), str(tmp_path / "failures.jsonl"))
    write_failures(tmp_path / "failures.jsonl", [SNOW, back])
    (benchmark,) = node.open(SimpleNamespace())
    evaluation, measured = outcomes(benchmark)
    assert measured["excess", None].n == 5
    assert measured["excess", None].value == pytest.approx(0.3)
    assert measured["excess", SNOW.words].value == pytest.approx(0.2)
    assert len(evaluation.items["item"]) == 5


@given(st.lists(st.floats(0, 1), min_size=8, max_size=20), st.floats(0.05, 0.5))
def test_a_failure_is_repaired_if_its_upper_bound_is_below_the_rule(losses, minimum):
    """A bound is at least the mean, and at most the largest value."""
    inner = Inner({DOG: losses})
    node = RepairTest(inner, rule=FailureRule(minimum=minimum))
    node._inner, node._declared = inner, (SNOW,)
    node.name = "x_repair"
    rate = outcomes(node)[1]["repair_rate", None].value
    if max(losses) < minimum:
        assert rate == 1
    if np.mean(losses) >= minimum:
        assert rate == 0


def test_the_identity_holds_failures_and_rule_but_not_who_found_them(tmp_path):
    losses = {DOG: [0.5] * 8}
    hashes = {
        opened(tmp_path, losses, *failures, rule=rule).data_hash
        for failures in ((SNOW,), (SNOW, NIGHT))
        for rule in (FailureRule(), FailureRule(minimum=0.2))
    }
    assert len(hashes) == 4
    benchmark = opened(tmp_path, losses, SNOW)
    assert benchmark.needs is Classifier


def test_an_encoder_can_be_asked_with_prompts_if_the_inner_benchmark_has_them(
    tmp_path, monkeypatch
):
    assert not isinstance(opened(tmp_path, {DOG: [0.5]}, SNOW), Prompted)
    monkeypatch.setattr(Inner, "prompted", "classes", raising=False)
    benchmark = opened(tmp_path, {DOG: [0.5]}, SNOW)
    assert isinstance(benchmark, Prompted)
    assert benchmark.prompted == "classes"


def test_a_cell_of_small_classes_is_that_of_a_failure_of_one():
    assert match_failure(DOG._replace(labels=()), [SNOW]) == 0
    assert match_failure(DARK._replace(labels=("cat",)), [SNOW, NIGHT]) == 1
    assert match_failure(Cell(("dog",), "place", "snow", "grass"), [SNOW]) is None


def test_what_cannot_be_tested_is_refused(tmp_path):
    context = SimpleNamespace()
    with pytest.raises(UserError, match=r"benchmark\.failures=FILE"):
        RepairTest(Inner({})).open(context)
    with pytest.raises(UserError, match="holds no failure"):
        opened(tmp_path, {})
    with pytest.raises(UserError, match=r"recipe=repair_test data\.failures="):
        opened(tmp_path, {RED: [0.5] * 8}, SNOW).run(None)
    inner = SimpleNamespace(
        name="x_stress", needs=Classifier, data_hash="", run=None, open=lambda _: [inner]
    )
    write_failures(tmp_path / "failures.jsonl", [SNOW])
    with pytest.raises(UserError, match="no items with edits"):
        RepairTest(inner, str(tmp_path / "failures.jsonl")).open(context)
    with pytest.raises(UserError, match=r"benchmark\.test"):
        RepairTest("stress")


# Parts that find, mend and judge share no photo, under whatever name.


EDITS = [("background", "beach", "snow")]


@pytest.fixture
def open_part(tmp_path):
    def open_named(name, sets):
        write_shards(sets, tmp_path / name)
        return open_index(str(tmp_path / name), tmp_path / "cache")

    return open_named


def test_parts_without_a_common_photo_pass(open_part):
    parts = {n: open_part(n, [joined_set(10 * i + k, EDITS) for k in range(3)])
             for i, n in enumerate(("find", "pool", "gate", "test"))}  # fmt: skip
    check_disjoint(parts)


def test_a_shared_group_is_named(open_part):
    find = open_part("find", [joined_set(0, EDITS), joined_set(1, EDITS)])
    test = open_part("test", [joined_set(1, EDITS, seed=9), joined_set(2, EDITS)])
    with pytest.raises(UserError, match=r"find .* and test .* share groups: 3 rows .* photo-1_0"):
        check_disjoint({"find": find, "test": test})


def test_an_image_under_another_name_is_named(open_part):
    find = open_part("find", [joined_set(0, EDITS)])
    renamed = replace(joined_set(0, [], control=False), key="other", group="other")
    pool = open_part("pool", [renamed, joined_set(3, EDITS)])
    with pytest.raises(UserError, match="share images: 1 rows of pool, such as other_0"):
        check_disjoint({"pool": pool, "find": find})


def test_the_worlds_four_parts_are_disjoint(open_part):
    world = WorldSettings(seed=3, id_scenes=40)
    parts = {
        name: open_part(name, make_part(world, name)) for name in ("find", "pool", "gate", "test")
    }
    check_disjoint(parts)
    assert {len(index) for index in parts.values()} == {40}


def test_a_repair_is_not_judged_on_photos_that_found_the_failure(open_part, tmp_path):
    sources = {
        name: open_part(name, [joined_set(start, EDITS), joined_set(start + 1, EDITS)])
        for name, start in (("find", 0), ("pool", 10), ("test", 1))
    }
    write_failures(tmp_path / "f.jsonl", [ModelFailure("stress", "place", "grass", "snow")])
    inner = Stress("test")
    context = SimpleNamespace(open=sources.__getitem__)
    test = RepairTest(
        inner, str(tmp_path / "f.jsonl"), disjoint_from={"POOL": "pool", "FIND": "find"}
    )
    with pytest.raises(UserError, match=r"benchmark\.test .* and FIND .* share groups"):
        test.open(context)
