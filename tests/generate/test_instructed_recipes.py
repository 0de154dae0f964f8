"""generate.py with newer pipelines, one by instructions: plans without weights, and tiny runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cfaug.data.shards.shards import CounterfactualSet, read_sets
from cfaug.imaging.instructed_photos import InstructedPhotos
from cfaug.imaging.shared_pipeline import SharedPipeline
from tests.data.making import noise_image
from tests.generate.tiny import card, contents
from tests.imaging import tiny_pipelines


@dataclass(frozen=True)
class Zoo:
    """A zoo of one tiny pipeline, and the recipes that draw with it."""

    name: str
    save: Any
    editor: type
    step: str
    """The method of the editor whose call number ``fatal`` is interrupted."""
    fatal: int
    settings: str
    draws: dict[str, str]
    models: dict[str, str]
    """What the provenance says of the image model."""


ZOOS = {
    "by instructions": Zoo(
        "tiny_klein", tiny_pipelines.klein, InstructedPhotos, "_make", 5,
        "{settings: {num_inference_steps: 2, text_encoder_out_layers: [0, 1]}, guidance: null, "
        "side: 64}",
        {
            "lance": "{self_replace_steps: [0.0], guidance_scale: 1.0}",
            "social": "{candidates: 2, p2p_threshold: [0.0, 0.0], guidance_scale: [1.0, 1.0]}",
            "coco_cf": "{candidates: 2, p2p_threshold: [0.0, 0.0], guidance_scale: [1.0, 1.0]}",
        },
        {"pipeline": "Flux2KleinPipeline", "licence": "apache-2.0"},
    ),
    "shared attention": Zoo(
        "tiny_sd3", tiny_pipelines.sd3, SharedPipeline, "sample", 2,
        "{steps: 3, text_settings: {max_sequence_length: 8}}",
        {
            "coco_cf": "{candidates: 4, p2p_threshold: [0.1, 0.9], sampling: tree(2)}",
            "social": "{candidates: 2, p2p_threshold: [0.1, 0.9]}",
        },
        {"pipeline": "StableDiffusion3Pipeline", "sharing": "ip2p"},
    ),
}  # fmt: skip
ANY = {
    "lance": "{minimum: {sim_0: -1, sim_1: -1, sim_image: -1, sim_direction: null}, "
    "above: {consistency: null}}",
    "social": "{minimum: {sim_0: -1, sim_1: -1}}",
    "coco_cf": "{min_clip_text: -1, min_clip_image: -1, min_clip_direction: -1}",
}
"""The selection of a recipe that takes whatever is drawn."""
RESUMED = {("by instructions", "lance"), ("shared attention", "coco_cf")}
"""Of each editor a recipe that is interrupted; the others are drawn once."""


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("zoos")
    for zoo in ZOOS.values():
        folder = tiny_pipelines.save(zoo.save, root / zoo.name)
        model = f"_target_: cfaug.imaging.model.PipelineFolder, weights: {folder}, device: cpu"
        target = f"{zoo.editor.__module__}.{zoo.editor.__name__}"
        texts = {
            f"zoo/{zoo.name}": f"defaults: [shapescapes, _self_]\nname: {zoo.name}\n"
            f"tiny_editor: {{_target_: {target}, model: {{{model}}}, {zoo.settings[1:]}\n",
            f"recipe_part/photos/{zoo.name}": "defaults: [/recipe_part/photos@_here_: shapescapes]",
        }
        for recipe, draws in zoo.draws.items():
            texts[f"recipe/{recipe}/{zoo.name}"] = (
                f"defaults: [/recipe/{recipe}@_here_: shapescapes, _self_]\n"
                "recipe:\n  image_editor: ${zoo.tiny_editor}\n"
                f"  draws: {draws}\n  selection: {ANY[recipe]}\n"
            )
        for name, text in texts.items():
            file = root / "conf" / f"{name}.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    return root


def check_sets(recipe: str, sets: list[CounterfactualSet], zoo: Zoo) -> None:
    assert sets
    for one in sets:
        assert len(one.images) == {"coco_cf": 2, "social": 12}.get(recipe, len(one.members))
        if recipe == "lance":
            assert one.members[1].edit.kind == "reconstruction"
            assert {member.extra["p"] for member in one.members[1:]} == {0.0}
    assert zoo.models.items() <= sets[0].provenance["models"]["image"].items()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "recipe"), [(kind, recipe) for kind, zoo in ZOOS.items() for recipe in zoo.draws]
)
def test_each_recipe_takes_it_and_resumes_with_the_same_bytes(
    shelf, tmp_path, script, kind, recipe
):
    zoo = ZOOS[kind]

    def run(folder: Path) -> int:
        return script("generate")([
            f"hydra.searchpath=[file://{shelf / 'conf'}]", f"recipe={recipe}", f"zoo={zoo.name}",
            f"paths.shards={folder}", f"paths.worlds={shelf / 'worlds'}", "limit=2",
            "shards.batch=2",
        ])  # fmt: skip

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run(whole) == 0
    check_sets(recipe, list(read_sets(whole)), zoo)
    if (kind, recipe) not in RESUMED:
        return
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
    ("zoo", "recipe"),
    [("flux2_klein", recipe) for recipe in ("lance", "social", "coco_cf")]
    + [("sd35", recipe) for recipe in ("social", "coco_cf")],
)
def test_the_plan_needs_no_weights_and_names_what_to_download(
    tmp_path, script, capsys, zoo, recipe
):
    for number, name in enumerate(("ball", "cube")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "photos" / name / "a.png").write_bytes(noise_image(number))
    source = [] if recipe == "social" else [f"data.source={tmp_path / 'photos'}"]

    def planned(*words: str) -> list[str]:
        run = [f"recipe={recipe}", f"zoo={zoo}", f"paths.shards={tmp_path / 'out'}", *source]
        assert script("generate")([*run, "limit=1", "dry_run=json", *words]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])["to_download"]

    if zoo == "flux2_klein":
        assert {KLEIN, "openai/clip-vit-large-patch14"} <= set(planned())
        assert KLEIN not in planned(BY_SERVER)
    else:
        for weights, words in ({SD35: []} | (OTHERS if recipe == "coco_cf" else {})).items():
            wanted = planned(f"zoo.set_editor.model.weights={weights}", *words)
            assert weights in wanted
            assert "stable-diffusion-v1-5/stable-diffusion-v1-5" not in wanted
    assert not (tmp_path / "out").exists()
