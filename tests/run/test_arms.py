"""The arms of an experiment in one file."""

from __future__ import annotations

import pytest

from cfaug.core.errors import UserError
from cfaug.run.arms import names_itself, read_arms
from tests.test_conf import CONF


def test_an_arm_has_the_shared_settings_and_its_own():
    arms = read_arms(CONF / "experiment/coco_cf_3.yaml")
    assert arms["all"]["arm"] == "all"
    assert arms["all"]["name"] == "coco_cf_3"
    assert arms["all"]["defaults"] == [
        {"override /scale": "shapescapes"}, {"override /plan@data.plan": "coco_all"},
    ]  # fmt: skip
    assert arms["human_validated"]["name"] == "coco_cf_11"
    assert names_itself(CONF / "experiment/coco_cf_3.yaml")
    assert not names_itself(CONF / "experiment/demo.yaml")


def test_nested_settings_are_joined(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "data: {size: 3, world: {seed: 1}}\narms:\n  a: {data: {world: {bias: 2}}}\n  b:\n"
    )
    arms = read_arms(file)
    assert arms["a"] == {"arm": "a", "data": {"size": 3, "world": {"seed": 1, "bias": 2}}}
    assert arms["b"] == {"arm": "b", "data": {"size": 3, "world": {"seed": 1}}}


@pytest.mark.parametrize("arms", ["[a, b]", "3", "{a: 3}"])
def test_arms_that_are_none_are_refused(arms, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(f"name: x\narms: {arms}\n")
    with pytest.raises(UserError, match="arms should hold the settings of each arm by its name"):
        read_arms(file)


def test_arms_of_ones_own_folder_are_chosen_as_ours(place, tmp_path, capsys):
    own = tmp_path / "own/experiment"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text(
        "# @package _global_\nname: mine\narms:\n  small: {data: {cf_ratio: 0, size: 40}}\n"
    )
    words = ["--config-dir", str(own.parent), "experiment=mine/small", "dry_run=json"]
    assert place.script("train")(words) == 0
    assert '"run": "runs/mine/small/seed=0"' in capsys.readouterr().out


def test_an_experiment_of_several_arms_names_them(place, capsys):
    assert place.train("experiment=demo", "dry_run=true") == 2
    assert "experiment=demo has several arms: choose experiment=demo/before, " in (
        capsys.readouterr().err
    )
    assert place.train("experiment=demo/rael", "dry_run=true") == 2
    assert "did you mean experiment=demo/real?" in capsys.readouterr().err
