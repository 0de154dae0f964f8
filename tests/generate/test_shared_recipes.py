"""generate.py with shared attention of newer pipelines: the plan, and runs with tiny weights."""

from __future__ import annotations

import json

import pytest

from cfaug.data.shards.shards import read_sets
from cfaug.imaging.shared_pipeline import SharedPipeline
from tests.generate.test_instructed_recipes import ANY
from tests.generate.tiny import card, contents
from tests.imaging import tiny_pipelines

ZOO = """
defaults: [shapescapes, _self_]
name: tiny_sd3
set_editor:
  _target_: cfaug.imaging.shared_pipeline.SharedPipeline
  model:
    _target_: cfaug.imaging.model.PipelineFolder
    weights: {folder}
    device: cpu
  steps: 3
  text_settings: {{max_sequence_length: 8}}
"""
DRAWS = {
    "coco_cf": "{candidates: 4, p2p_threshold: [0.1, 0.9], sampling: tree(2)}",
    "social": "{candidates: 2, p2p_threshold: [0.1, 0.9]}",
}
OTHERS = {
    "black-forest-labs/FLUX.2-klein-base-4B": ["zoo.set_editor.steps=50"],
    "stabilityai/stable-diffusion-xl-base-1.0": ["zoo.set_editor.steps=30"],
}


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    root = tmp_path_factory.mktemp("shared")
    folder = tiny_pipelines.save(tiny_pipelines.sd3, root / "sd3")
    texts = {"zoo/tiny_sd3": ZOO.format(folder=folder)}
    for recipe, draws in DRAWS.items():
        texts[f"recipe/{recipe}/tiny_sd3"] = (
            f"defaults: [/recipe/{recipe}@_here_: shapescapes, _self_]\n"
            "recipe:\n  image_editor: ${zoo.set_editor}\n"
            f"  draws: {draws}\n  selection: {ANY[recipe]}\n"
        )
    for name, text in texts.items():
        file = root / "conf" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.slow
@pytest.mark.parametrize("recipe", DRAWS)
def test_sets_are_drawn_and_a_killed_run_resumes_with_the_same_bytes(
    shelf, tmp_path, script, recipe
):
    def run(folder):
        return script("generate")(
            [
                f"hydra.searchpath=[file://{shelf / 'conf'}]", f"recipe={recipe}", "zoo=tiny_sd3",
                f"paths.shards={folder}", f"paths.worlds={shelf / 'worlds'}", "limit=2",
                "shards.batch=2",
            ]
        )  # fmt: skip

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run(whole) == 0
    sets = list(read_sets(whole))
    assert len(sets) == {"coco_cf": 2}.get(recipe, len(sets)) > 0
    assert {len(one.images) for one in sets} == {{"coco_cf": 2}.get(recipe, 12)}
    models = sets[0].provenance["models"]["image"]
    assert (models["pipeline"], models["sharing"]) == ("StableDiffusion3Pipeline", "ip2p")
    calls, sample = [], SharedPipeline.sample

    def die(self, jobs):
        calls.append(len(jobs))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return sample(self, jobs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SharedPipeline, "sample", die)
        assert run(killed) != 0
        assert len(calls) == 2
    assert run(killed) == 0
    assert card(killed) == card(whole)
    assert contents(killed) == contents(whole)


@pytest.mark.parametrize("recipe", DRAWS)
def test_the_plan_needs_no_weights_and_names_what_to_download(tmp_path, script, capsys, recipe):
    (tmp_path / "captions.txt").write_text("a dog on the beach\n")
    source = [] if recipe == "social" else [f"data.source={tmp_path / 'captions.txt'}"]
    run = [f"recipe={recipe}", "zoo=sd35", f"paths.shards={tmp_path / 'out'}", *source, "limit=1"]
    wanted = {"stabilityai/stable-diffusion-3.5-medium": []}
    for weights, words in (wanted | (OTHERS if recipe == "coco_cf" else {})).items():
        named = [f"zoo.set_editor.model.weights={weights}", *words]
        assert script("generate")([*run, *named, "dry_run=json"]) == 0
        plan = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert weights in plan["to_download"]
        assert "stable-diffusion-v1-5/stable-diffusion-v1-5" not in plan["to_download"]
    assert not (tmp_path / "out").exists()
