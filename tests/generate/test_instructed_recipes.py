"""generate.py with newer pipelines, one by instructions: plans without weights, and tiny runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cfaug.data.shards.shards import read_sets
from cfaug.imaging.instructed_photos import InstructedPhotos
from cfaug.imaging.shared_pipeline import SharedPipeline
from tests.data.making import noise_image
from tests.generate.tiny import card, contents
from tests.imaging import tiny_pipelines


@dataclass(frozen=True)
class Zoo:
    """A zoo of one tiny pipeline, and a recipe that draws with it and takes whatever is drawn."""

    save: Any
    editor: type
    settings: str
    step: str
    """The method of the editor whose call number ``fatal`` is interrupted."""
    fatal: int
    draws: str
    selection: str
    models: dict[str, str]
    """What the provenance says of the image model."""


ZOOS = {
    "photo_edits": Zoo(
        tiny_pipelines.klein, InstructedPhotos,
        "settings: {num_inference_steps: 2, text_encoder_out_layers: [0, 1]}, guidance: null, "
        "side: 64",
        "_make", 5, "{self_replace_steps: [0.0], guidance_scale: 1.0}",
        "{minimum: {sim_0: -1, sim_1: -1, sim_image: -1, sim_direction: null}, "
        "above: {consistency: null}}",
        {"pipeline": "Flux2KleinPipeline", "licence": "apache-2.0"},
    ),
    "substitution": Zoo(
        tiny_pipelines.sd3, SharedPipeline, "steps: 3, text_settings: {max_sequence_length: 8}",
        "sample", 2, "{candidates: 4, p2p_threshold: [0.1, 0.9], sampling: tree(2)}",
        "{min_clip_text: -1, min_clip_image: -1, min_clip_direction: -1}",
        {"pipeline": "StableDiffusion3Pipeline", "sharing": "ip2p"},
    ),
}  # fmt: skip
"""{recipe: its zoo}."""


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("zoos")
    for recipe, zoo in ZOOS.items():
        folder = tiny_pipelines.save(zoo.save, root / recipe)
        model = f"{{_target_: cfaug.imaging.model.PipelineFolder, weights: {folder}, device: cpu}}"
        target = f"{zoo.editor.__module__}.{zoo.editor.__name__}"
        texts = {
            "zoo/tiny": f"defaults: [shapescapes, _self_]\nname: tiny\n"
            f"tiny_editor: {{_target_: {target}, model: {model}, {zoo.settings}}}\n",
            "recipe_part/photos/tiny": "defaults: [/recipe_part/photos@_here_: shapescapes]",
            f"recipe/{recipe}/tiny": f"defaults: [/recipe/{recipe}@_here_: shapescapes, _self_]\n"
            "recipe:\n  image_editor: ${zoo.tiny_editor}\n"
            f"  draws: {zoo.draws}\n  selection: {zoo.selection}\n",
        }
        for name, text in texts.items():
            file = root / recipe / "conf" / f"{name}.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    return root


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ZOOS)
def test_a_recipe_takes_it_and_resumes_with_the_same_bytes(shelf, tmp_path, script, recipe):
    zoo = ZOOS[recipe]

    def run(folder: Path) -> int:
        return script("generate")([
            f'hydra.searchpath=["file://{shelf / recipe / "conf"}"]',
            f"recipe={recipe}", "zoo=tiny",
            f"paths.shards={folder}", f"paths.worlds={shelf / 'worlds'}", "limit=2",
            "shards.batch=2",
        ])  # fmt: skip

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run(whole) == 0
    sets = list(read_sets(whole))
    assert zoo.models.items() <= sets[0].provenance["models"]["image"].items()
    for counterfactual in sets:
        assert len(counterfactual.images) == len(counterfactual.members)
        if recipe == "photo_edits":
            assert counterfactual.members[1].edit.kind == "reconstruction"
            assert {member.extra["p"] for member in counterfactual.members[1:]} == {0.0}
    calls, work = [], getattr(zoo.editor, zoo.step)

    def die(self, asked):
        calls.append(asked)
        if len(calls) == zoo.fatal:
            raise KeyboardInterrupt
        return work(self, asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zoo.editor, zoo.step, die)
        assert run(killed) != 0
    assert len(calls) == zoo.fatal
    assert run(killed) == 0
    assert card(killed) == card(whole)
    assert contents(killed) == contents(whole)


OTHERS = {
    "black-forest-labs/FLUX.2-klein-base-4B": ["zoo.set_editor.steps=50"],
    "stabilityai/stable-diffusion-xl-base-1.0": ["zoo.set_editor.steps=30"],
}
BY_SERVER = "recipe.image_editor='${zoo.image_server}'"
KLEIN, SD35 = "black-forest-labs/FLUX.2-klein-4B", "stabilityai/stable-diffusion-3.5-medium"


@pytest.mark.parametrize(
    ("zoo", "recipe"), [("flux2_klein", "photo_edits"), ("sd35", "substitution")]
)
def test_the_plan_needs_no_weights_and_names_what_to_download(
    tmp_path, script, capsys, zoo, recipe
):
    for number, name in enumerate(("ball", "cube")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "photos" / name / "a.png").write_bytes(noise_image(number))

    def planned(*words: str) -> list[str]:
        run = [f"recipe={recipe}", f"zoo={zoo}", f"paths.shards={tmp_path / 'out'}"]
        run += [f"data.source={tmp_path / 'photos'}", "limit=1", "dry_run=json"]
        assert script("generate")([*run, *words]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])["to_download"]

    if zoo == "flux2_klein":
        assert {KLEIN, "openai/clip-vit-large-patch14"} <= set(planned())
        assert KLEIN not in planned(BY_SERVER)
    else:
        for weights, words in ({SD35: []} | OTHERS).items():
            wanted = planned(f"zoo.set_editor.model.weights={weights}", *words)
            assert weights in wanted
            assert "stable-diffusion-v1-5/stable-diffusion-v1-5" not in wanted
    assert not (tmp_path / "out").exists()
