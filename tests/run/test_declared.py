"""What was declared before training is part of the identity of a run."""

from __future__ import annotations

import json

from cfaug.planning.training import TrainSettings
from cfaug.run.identity import config_hash
from cfaug.run.run_plan import plan_run
from tests.run.conftest import jobs_of, refusal
from tests.scripts import load


def plan(words):
    ((config, overrides),) = jobs_of("train", *words)
    return plan_run(TrainSettings(**config, overrides=overrides))


def test_a_runs_identity_has_the_hash_of_the_declaration(tmp_path, shards):
    words = [
        "task=classification", "model=tiny_classifier", f"paths.runs={tmp_path}",
        f"paths.shards={shards}", "data.world.real_scenes=70", "trainer.max_steps=1",
        "data.real=shapescapes:real",
    ]  # fmt: skip
    file = tmp_path / "declared.json"
    hashes = set()
    for content in ({"minimum": 0.1}, {"minimum": 0.2}):
        file.write_text(json.dumps(content))
        job = plan([*words, f"declared={file}"])
        hashes.add(config_hash(job.folder.identity))
        assert "declared" not in job.folder.identity
        assert job.folder.path.parent == plan(words).folder.path.parent
    assert "content.declared" not in plan(words).folder.identity
    assert len({*hashes, config_hash(plan(words).folder.identity)}) == 3


def test_a_missing_declaration_is_refused_before_anything_is_drawn(tmp_path):
    said = refusal(load("train"), [f"declared={tmp_path / 'x.json'}", f"paths.shards={tmp_path}"])
    assert "x.json cannot be read" in said
    assert "table=NAME declare=true" in said
    assert not list(tmp_path.iterdir())


def test_a_declaration_is_of_a_table_of_arms(tmp_path):
    evaluate = load("evaluate")
    for words, message in (
        (["declare=true"], "declare is read"),
        (["table=coco_cf_2", "declare=true"], "is for tables of trained arms"),
        (["table=social_debias", "declare=true", "table.baselines=[x]"], "'x' is not an arm"),
    ):
        assert message in refusal(evaluate, [*words, f"paths.runs={tmp_path}"])
    assert evaluate(["table=social_debias", "declare=true", f"paths.runs={tmp_path}"]) == 0
    declared = json.loads((tmp_path / "social_debias" / "declared.json").read_text())
    assert declared["baselines"][0] == "real"
    assert "title" not in declared
