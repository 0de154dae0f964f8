"""generate.py with an editor by instructions: the plan without weights, and runs with tiny ones."""

from __future__ import annotations

import json

import pytest

from cfaug.data.shards.shards import read_sets
from cfaug.imaging.instructed_photos import InstructedPhotos
from tests.data.making import noise_image
from tests.generate.tiny import card, contents
from tests.imaging import tiny_pipelines

ZOO = """
defaults: [shapescapes, _self_]
name: tiny_klein
klein_editor:
  _target_: cfaug.imaging.instructed_photos.InstructedPhotos
  model:
    _target_: cfaug.imaging.model.PipelineFolder
    weights: {folder}
    device: cpu
  settings: {{num_inference_steps: 2, text_encoder_out_layers: [0, 1]}}
  guidance: null
  side: 64
"""
DRAWS = {
    "lance": "{self_replace_steps: [0.0], guidance_scale: 1.0}",
    "social": "{candidates: 2, p2p_threshold: [0.0, 0.0], guidance_scale: [1.0, 1.0]}",
    "coco_cf": "{candidates: 2, p2p_threshold: [0.0, 0.0], guidance_scale: [1.0, 1.0]}",
}
ANY = {
    "lance": "{minimum: {sim_0: -1, sim_1: -1, sim_image: -1, sim_direction: null}, "
    "above: {consistency: null}}",
    "social": "{minimum: {sim_0: -1, sim_1: -1}}",
    "coco_cf": "{min_clip_text: -1, min_clip_image: -1, min_clip_direction: -1}",
}


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    root = tmp_path_factory.mktemp("instructed")
    folder = tiny_pipelines.save(tiny_pipelines.klein, root / "klein")
    texts = {
        "zoo/tiny_klein": ZOO.format(folder=folder),
        "recipe_part/photos/tiny_klein": "defaults: [/recipe_part/photos@_here_: shapescapes]\n",
    }
    for recipe, draws in DRAWS.items():
        texts[f"recipe/{recipe}/tiny_klein"] = (
            f"defaults: [/recipe/{recipe}@_here_: shapescapes, _self_]\n"
            "recipe:\n  image_editor: ${zoo.klein_editor}\n"
            f"  draws: {draws}\n  selection: {ANY[recipe]}\n"
        )
    for name, text in texts.items():
        file = root / "conf" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def words(shelf, recipe, folder):
    return [
        f"hydra.searchpath=[file://{shelf / 'conf'}]", f"recipe={recipe}", "zoo=tiny_klein",
        f"paths.shards={folder}", f"paths.worlds={shelf / 'worlds'}", "limit=2", "shards.batch=2",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("recipe", DRAWS)
def test_each_recipe_takes_it_and_resumes_with_the_same_bytes(shelf, tmp_path, script, recipe):
    whole = tmp_path / "whole"
    assert script("generate")(words(shelf, recipe, whole)) == 0
    sets = list(read_sets(whole))
    assert sets
    for one in sets:
        assert len(one.images) == {"coco_cf": 2, "social": 12}.get(recipe, len(one.members))
        if recipe == "lance":
            assert one.members[1].edit.kind == "reconstruction"
            assert {member.extra["p"] for member in one.members[1:]} == {0.0}
    models = sets[0].provenance["models"]["image"]
    assert (models["pipeline"], models["licence"]) == ("Flux2KleinPipeline", "apache-2.0")
    made, make = [], InstructedPhotos._make

    def die(self, request):
        made.append(request)
        if len(made) == 5:
            raise KeyboardInterrupt
        return make(self, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InstructedPhotos, "_make", die)
        assert script("generate")(words(shelf, recipe, tmp_path / "killed")) != 0
    assert script("generate")(words(shelf, recipe, tmp_path / "killed")) == 0
    assert card(tmp_path / "killed") == card(whole)
    assert contents(tmp_path / "killed") == contents(whole)


@pytest.mark.parametrize("recipe", DRAWS)
def test_the_plan_needs_no_weights_and_names_what_to_download(tmp_path, script, capsys, recipe):
    for number, name in enumerate(("ball", "cube")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "photos" / name / "a.png").write_bytes(noise_image(number))
    source = [] if recipe == "social" else [f"data.source={tmp_path / 'photos'}"]
    run = [f"recipe={recipe}", "zoo=flux2_klein", f"paths.shards={tmp_path / 'out'}", *source]
    assert script("generate")([*run, "limit=1", "dry_run=json"]) == 0
    plan = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert "black-forest-labs/FLUX.2-klein-4B" in plan["to_download"]
    assert "openai/clip-vit-large-patch14" in plan["to_download"]
    assert not (tmp_path / "out").exists()
    by_server = "recipe.image_editor='${zoo.image_server}'"
    assert script("generate")([*run, by_server, "limit=1", "dry_run=json"]) == 0
    plan = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert "black-forest-labs/FLUX.2-klein-4B" not in plan["to_download"]
