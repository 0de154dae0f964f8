"""Runs made when settings and classes had other names are still the runs that they were."""

from __future__ import annotations

import json

import pytest
import yaml

from cfaug.report.identities import same_identity
from cfaug.report.records import read_run
from cfaug.run.identity import arm_folder, config_hash

FAST = ["data.cf_ratio=1", "data.counterfactual_holdout=0.3", "trainer.max_steps=2"]
ASKED = ["benchmark=shapescapes", "benchmark.only=[shapescapes_id_classification]"]


def make_old(folder):
    """Write what the settings and classes of a run were called at first."""
    record = json.loads((folder / "run.json").read_text())
    what = record["identity"]
    what["data.withheld"] = what.pop("data.counterfactual_holdout")
    what["data._target_"] = "cfaug.data.settings.DataSettings"
    record["config_hash"] = config_hash(what)
    (folder / "run.json").write_text(json.dumps(record))
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["data"]["withheld"] = config["data"].pop("counterfactual_holdout")
    config["data"]["_target_"] = "cfaug.data.settings.DataSettings"
    config["pack"] = config.pop("share_image_cache")
    config["pack_mib"] = config.pop("image_cache_mib")
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return record


@pytest.mark.slow
def test_an_old_run_is_done_evaluated_resumed_and_extended(place, capsys):
    assert place.train(*FAST, "seed=107", "trainer.keep_last=true") == 0
    assert place.evaluate(*ASKED) == 0
    folder = place.root / "main" / "run" / "seed=107"
    made = make_old(folder)
    rows = (folder / "results.jsonl").read_bytes()
    capsys.readouterr()
    assert place.train(*FAST, "seed=107") == 0
    assert "already done" in capsys.readouterr().out
    assert place.evaluate(*ASKED) == 0
    assert "already evaluated" in capsys.readouterr().out
    assert (folder / "results.jsonl").read_bytes() == rows
    # Of what differs only that is named which was asked otherwise.
    assert place.train("seed=107", "data.cf_ratio=1", "trainer.max_steps=2") == 2
    said = capsys.readouterr().err
    assert "data.counterfactual_holdout: there 0.3, asked '(absent)'" in said
    assert "_target_" not in said
    # Beside a new seed it is of the same arm.
    assert place.train(*FAST, "seed=108") == 0
    runs = [read_run(folder.with_name(f"seed={seed}")) for seed in (107, 108)]
    assert same_identity(runs) == (runs, [])
    # As if it had been cut off before its record was closed.
    (folder / "run.json").write_text(json.dumps({**made, "state": "running"}))
    assert place.train(*FAST, "seed=107", "trainer.keep_last=true") == 0
    record = place.record()
    assert [one["start_step"] for one in record["attempts"]] == [0, 2]
    assert record["started"] == made["started"]
    assert record["identity"]["data.counterfactual_holdout"] == 0.3
    make_old(folder)
    longer = [word for word in FAST if "max_steps" not in word]
    assert place.train(*longer, "seed=107", "extend=true", "trainer.max_steps=3") == 0
    assert place.record()["steps"] == 3


def test_a_run_planned_by_name_is_the_run_of_that_plan(place, capsys):
    words = ["plan@data.plan=coco_medium", "trainer.max_steps=2", "seed=107", "arm=medium"]
    assert place.train(*words) == 0
    folder = place.root / "main" / "medium" / "seed=107"
    record = json.loads((folder / "run.json").read_text())
    assert record["identity"]["data.plan"] == "medium"  # as when a name was all there was
    assert not [key for key in record["identity"] if key.startswith("data.plan.")]
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["data"]["plan"]["name"] == "medium"
    config["data"]["plan"] = "medium"
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    capsys.readouterr()
    assert place.train(*words) == 0
    assert "already done" in capsys.readouterr().out
    assert place.evaluate("benchmark=heldout", "name=main") == 0
    assert (folder / "results.jsonl").read_text()
    assert place.train(*words[1:], "plan@data.plan=coco_all") == 2
    assert "data.plan: there 'medium', asked 'all'" in capsys.readouterr().err


def test_a_plan_s_name_on_the_command_line_is_answered(place, capsys):
    assert place.train("data.plan=medium") == 2
    assert "data.plan=medium is now plan@data.plan=coco_medium" in capsys.readouterr().err


def test_an_arm_keeps_the_folder_that_its_old_names_gave_it(tmp_path):
    words = ["data.counterfactual_holdout=0.3"]
    config = {"data": {"counterfactual_holdout": 0.3}, "arm": None}
    assert arm_folder(tmp_path, words, config) == tmp_path / "counterfactual_holdout=0.3"
    (tmp_path / "withheld=0.3").mkdir()
    assert arm_folder(tmp_path, words, config) == tmp_path / "withheld=0.3"
    (tmp_path / "counterfactual_holdout=0.3").mkdir()
    assert arm_folder(tmp_path, words, config) == tmp_path / "counterfactual_holdout=0.3"


def test_a_folder_of_ones_own_settings_is_no_part_of_an_arms_name(tmp_path):
    """It was; a run that was named so keeps its folder."""
    words = ["hydra.searchpath=[file:///home/me/conf]", "optim.lr=1"]
    config = {"optim": {"lr": 1}, "arm": None}
    assert arm_folder(tmp_path, words, config) == tmp_path / "lr=1"
    former = tmp_path / "hydra.searchpath=-file-home-me-conf-,lr=1"
    former.mkdir()
    assert arm_folder(tmp_path, words, config) == former
    (tmp_path / "lr=1").mkdir()
    assert arm_folder(tmp_path, words, config) == tmp_path / "lr=1"


def test_an_arm_of_a_mixture_by_name_keeps_its_folder(tmp_path):
    words = ["plan@data.plan=coco_base"]
    config = {"data": {"plan": {"_target_": "x", "name": "base"}}, "arm": None}
    assert arm_folder(tmp_path, words, config).name != "plan=base"
    (tmp_path / "plan=base").mkdir()
    assert arm_folder(tmp_path, words, config) == tmp_path / "plan=base"
