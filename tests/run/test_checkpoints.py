"""Checkpoints that are no run: whose numbers stand where, and that no world takes another's."""

from __future__ import annotations

import pytest

from cfaug.data.mixture.settings import DataSettings
from cfaug.report.checkpoint_tables import changes, initial_values
from cfaug.report.results import read_results
from cfaug.run.evaluation_data import world_words
from cfaug.shapescapes import WorldSettings

ASKED = ["benchmark=shapescapes", "benchmark.only=[shapescapes_id_classification]"]


@pytest.mark.slow
def test_two_worlds_with_one_seed_keep_their_own_rows_before_fine_tuning(place, capsys):
    for name, style in (("first", "fog"), ("second", "drawing")):
        assert place.train("seed=107", f"name={name}", f"data.world.style={style}") == 0
    assert place.evaluate(*ASKED, "evaluate_initial=true") == 0
    files = sorted((place.root / "weights").glob("*/seed=107/results.jsonl"))
    world = "world.counterfactual_pairs=40,world.id_scenes=30"
    assert len(files) == 2
    assert all(file.parents[1].name.startswith(f"zoo-clip-0,{world}") for file in files)
    assert len({row.data for file in files for row in read_results(file)}) == 2
    for name in ("first", "second"):
        known = initial_values(place.root / name)
        assert changes(place.root / name / "run" / "seed=107", known)
    capsys.readouterr()
    assert place.evaluate(*ASKED, "evaluate_initial=true") == 0
    assert capsys.readouterr().out.count("already evaluated") == 4


@pytest.mark.slow
def test_arms_of_one_world_are_held_against_what_each_validated_on(place):
    for ratio in (0, 0.5):
        assert place.train("seed=107", f"arm=a{ratio}", f"data.cf_ratio={ratio}") == 0
    assert place.evaluate("benchmark=heldout", "evaluate_initial=true") == 0
    known = initial_values(place.root / "main")
    for arm in ("a0", "a0.5"):
        found = changes(place.root / "main" / arm / "seed=107", known)
        assert {change.benchmark for change in found} == {"validation_retrieval"}


@pytest.mark.parametrize(
    ("world", "data_seed", "words"),
    [
        (WorldSettings(), 108, []),
        (WorldSettings(), 7, ["world.seed=7"]),
        (WorldSettings(seed=7), 108, ["world.seed=7"]),
        (WorldSettings(edits=("subject", "colour")), 108, ["world.edits=subject+colour"]),
        (None, 7, []),
    ],
)
def test_a_world_is_named_by_what_is_unusual(world, data_seed, words):
    assert world_words(DataSettings("a", "b", seed=data_seed, world=world), 107) == words
