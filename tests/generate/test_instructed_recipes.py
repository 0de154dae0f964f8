"""generate.py with photos of one's own and with newer pipelines: plans, and tiny runs."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cfaug.data.shards.shards import read_sets
from cfaug.imaging.instructed_photos import InstructedPhotos
from cfaug.imaging.shared_pipeline import SharedPipeline
from tests.data.making import noise_image
from tests.generate.tiny import card, contents
from tests.imaging import tiny_pipelines
from tests.imaging.tiny import save_pipeline
from tests.models import tiny


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
    "lance": Zoo(
        tiny_pipelines.klein, InstructedPhotos,
        "settings: {num_inference_steps: 2, text_encoder_out_layers: [0, 1]}, guidance: null, "
        "side: 64",
        "_make", 5, "{self_replace_steps: [0.0], guidance_scale: 1.0}",
        "{minimum: {sim_0: -1, sim_1: -1, sim_image: -1, sim_direction: null}, "
        "above: {consistency: null}}",
        {"pipeline": "Flux2KleinPipeline", "licence": "apache-2.0"},
    ),
    "coco_cf": Zoo(
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
            f"hydra.searchpath=[file://{shelf / recipe / 'conf'}]", f"recipe={recipe}", "zoo=tiny",
            f"paths.shards={folder}", f"paths.worlds={shelf / 'worlds'}", "limit=2",
            "shards.batch=2",
        ])  # fmt: skip

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run(whole) == 0
    sets = list(read_sets(whole))
    assert zoo.models.items() <= sets[0].provenance["models"]["image"].items()
    for one in sets:
        assert len(one.images) == len(one.members)
        if recipe == "lance":
            assert one.members[1].edit.kind == "reconstruction"
            assert {member.extra["p"] for member in one.members[1:]} == {0.0}
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


@pytest.mark.parametrize(("zoo", "recipe"), [("flux2_klein", "lance"), ("sd35", "coco_cf")])
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


ZOO = """
name: mine
captioner: {{_target_: cfaug.models.task_specs.ImageCaptioning, name_or_path: {root}/blip,
            prefix: "A photo of a", max_new_tokens: 6}}
perturber: {{_target_: cfaug.editing.rule_edits.RuleEdits,
             tagger: {{_target_: cfaug.editing.sentence.TextBlobTagger}}}}
class_words: {{_target_: cfaug.editing.label_guard.ClassWords}}
label_encoder: null
sentence_encoder: null
edit_check: {{_target_: cfaug.editing.edit_checks.StructureCheck,
              tagger: {{_target_: cfaug.editing.sentence.TextBlobTagger}}}}
word_filler: null
photo_diffusion: {{_target_: cfaug.imaging.model.DiffusionWeights, weights: {root}/diffusion,
                   device: cpu}}
clip: {{_target_: cfaug.models.specs.HFClip, name_or_path: {root}/clip}}
"""

RECIPE = """
recipe:
  image_editor: {steps: 4}
  draws: {self_replace_steps: [0.5, 0.8]}
  selection:
    minimum: {sim_0: -1, sim_1: -1, sim_image: -1, sim_direction: null}
    above: {consistency: null}
"""


def _save(file: Path, image: Image.Image, **how) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    image.save(file, **how)


def _noise(seed: int, width: int = 70, height: int = 60) -> Image.Image:
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (6, 7, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def lay_photos(folder: Path) -> None:
    """Two classes of photos as people have them: one is grey, one tiny, one animated."""
    _save(folder / "ball" / "one.png", _noise(0))
    _save(folder / "ball" / "grey.png", _noise(1).convert("L"))
    _save(folder / "ball" / "tiny.png", _noise(2, 1, 1))
    _save(folder / "cube" / "two.jpg", _noise(3))
    moving = [_noise(4), _noise(5)]
    _save(folder / "cube" / "moving.gif", moving[0], save_all=True, append_images=moving[1:])
    (folder / "star").mkdir()  # a class without photos


@pytest.fixture(scope="module")
def own_shelf(tmp_path_factory):
    root = tmp_path_factory.mktemp("own")
    tiny.save_blip(root / "blip", seed=3)
    tiny.save_clip(root / "clip")
    save_pipeline(root / "diffusion", calm=True)
    lay_photos(root / "photos")
    for name, text in {"zoo/mine": ZOO.format(root=root), "recipe/lance/mine": RECIPE}.items():
        file = root / "conf" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def words(own_shelf: Path, folder: Path) -> list[str]:
    return [
        f"hydra.searchpath=[file://{own_shelf / 'conf'}]", "recipe=lance", "zoo=mine",
        f"data.source={own_shelf / 'photos'}", f"paths.shards={folder}",
        f"paths.cache={own_shelf / 'cache'}", "shards.sets_per_shard=2",
    ]  # fmt: skip


@pytest.mark.slow
def test_photos_of_ones_own_take_one_command(own_shelf, tmp_path, script, capfd):
    made = tmp_path / "lance"
    assert script("generate")(words(own_shelf, made)) == 0
    out, _ = capfd.readouterr()
    summary = json.loads(out.splitlines()[-1])
    assert (summary["failed"], summary["shards"]) == (0, 3)
    assert summary["rejected"]["photo_tiny"] >= 1
    sets = {one.group: one for one in read_sets(made)}
    assert len(sets) == 4  # all but the tiny one
    for one in sets.values():
        photo, control, *edits = one.members
        assert photo.edit is None
        assert control.edit.kind == "reconstruction"
        assert photo.text == control.text
        assert photo.text.startswith("A photo of a")  # the captioner's, not the class folder's
        assert edits
        assert {member.label for member in one.members} <= {"ball", "cube"}
        assert {member.edit.kind for member in edits} <= {
            "subject", "object", "background", "adjective", "domain",
        }  # fmt: skip
        for member in edits:
            assert member.extra["p"] in (0.5, 0.8)
            assert set(member.extra["scores"]) >= {"sim_image", "sim_direction", "consistency"}
        with Image.open(io.BytesIO(one.images["0"])) as image:
            assert image.size[0] == image.size[1]
    assert (made / "gallery.html").exists()
