"""Tiny editing pipelines of six families, saved by diffusers' own classes, edit photos."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.protocols import ImageEditor, Progressive
from cfaug.core.types import Draw, Edit, Example, ImageJob, Proposal
from cfaug.imaging.instructed_photos import OTHER_SHAPE, InstructedPhotos, Instructions, fit
from cfaug.imaging.model import PipelineFolder
from cfaug.imaging.photo_editing import BROKEN, TINY, PhotoPreparation
from tests.imaging import tiny_pipelines
from tests.imaging.test_photo_editing import encoded
from tests.models.tiny import image as noise
from tests.records import Photo

TWO = {"num_inference_steps": 2}
IMAGE_TO_IMAGE = {"num_inference_steps": 4, "strength": 0.5}
FAMILIES = {
    "instruct_pix2pix": {},
    "sdxl": {"pipeline": "StableDiffusionXLImg2ImgPipeline", "settings": IMAGE_TO_IMAGE},
    "sd3": {"pipeline": "StableDiffusion3Img2ImgPipeline", "settings": IMAGE_TO_IMAGE},
    "kontext": {},
    "klein": {
        "guidance": None, "side": 64,
        "settings": {**TWO, "text_encoder_out_layers": [0, 1]},
    },
    "qwen_image_edit": {
        "guidance": "true_cfg_scale", "settings": {**TWO, "negative_prompt": " "},
    },
}  # fmt: skip
CAPTION, EDITED = "a red ball on the beach", "a blue ball on the beach"
BLUE = Edit("adjective", "red", "blue")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    folders = {}

    def find(family):
        if family not in folders:
            folder = tmp_path_factory.mktemp("pipelines") / family
            folders[family] = tiny_pipelines.save(getattr(tiny_pipelines, family), folder)
        return folders[family]

    return find


def editor(folder, family="instruct_pix2pix", **changes):
    settings = {"settings": TWO, "side": 32, "square": True, **FAMILIES[family], **changes}
    model = {"pipeline": settings.pop("pipeline", None), "dtype": settings.pop("dtype", "fp32")}
    return InstructedPhotos(PipelineFolder(str(folder), device="cpu", **model), **settings)


def job(data, texts=(CAPTION, EDITED), edits=(None, BLUE), draw=None, key="k"):
    image = None if data is None else Photo(data)
    proposal = Proposal(Example(key, key, texts[:1], image), texts, edits)
    return ImageJob(proposal, draw or Draw(5, 0.0, 3.0))


def photo(seed=1, width=40, height=30):
    return encoded(noise(width, height, seed))


@pytest.fixture
def small_conditions(monkeypatch):
    """Qwen-Image-Edit shows its model every photo with a million pixels."""
    from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit as module

    whole = module.calculate_dimensions
    monkeypatch.setattr(
        module, "calculate_dimensions", lambda area, ratio: whole(area // 1024, ratio)
    )


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.usefixtures("small_conditions")
def test_every_family_edits_photos_with_the_same_bytes_each_time(shelf, family):
    folder = shelf(family)
    image_editor = editor(folder, family)
    assert isinstance(image_editor, ImageEditor)
    assert not isinstance(image_editor, Progressive)
    draw = Draw(5, 0.0, 1.0 if image_editor.guidance is None else 3.0)
    jobs = [
        job(photo(1), draw=draw),
        job(photo(1), (CAPTION, CAPTION), (None, Edit("reconstruction", "", "")), draw),
        job(photo(1), draw=Draw(6, 0.0, draw.cfg)),
    ]
    edited, control, seeded = image_editor.edit(jobs)
    side = image_editor.side
    for drawn in (edited, control, seeded):
        assert [image.shape for image in drawn.images] == [(side, side, 3)] * 2
        assert all(image.dtype == np.uint8 for image in drawn.images)
    assert np.array_equal(edited.images[0], PhotoPreparation().prepare(photo(1), side, "one"))
    for image in (control.images[1], seeded.images[1], edited.images[0]):
        assert not np.array_equal(edited.images[1], image)
    [again] = editor(folder, family).edit(jobs[:1])  # as after a restart, and without the others
    assert np.array_equal(again.images[1], edited.images[1])
    described = image_editor.describe()
    assert described["licence"] == "apache-2.0"
    assert len(described["diffusion_sha256"]) == 64
    named = json.loads((folder / "model_index.json").read_text())["_class_name"]
    assert described["pipeline"] == FAMILIES[family].get("pipeline", named)


def test_an_edit_is_the_pipeline_s_own_answer_to_the_instruction(shelf):
    """diffusers' own loader and call, side by side with ours."""
    import torch
    from diffusers import StableDiffusionInstructPix2PixPipeline

    theirs = StableDiffusionInstructPix2PixPipeline.from_pretrained(shelf("instruct_pix2pix"))
    theirs.set_progress_bar_config(disable=True)
    [edited] = editor(shelf("instruct_pix2pix")).edit([job(photo())])
    expected = theirs(
        prompt='Change "red" to "blue". Keep everything else in the photo exactly as it is.',
        image=Image.fromarray(edited.images[0]), num_inference_steps=2, guidance_scale=3.0,
        generator=torch.Generator("cpu").manual_seed(5),
    ).images[0]  # fmt: skip
    assert np.array_equal(edited.images[1], np.asarray(expected))


@pytest.mark.slow
def test_a_first_image_without_a_photo_is_made_from_its_caption(shelf):
    image_editor = editor(shelf("klein"), "klein")
    draw = Draw(5, 0.0, 1.0)
    texts = ("a blue ball", "a red ball", "a red cube")
    edits = (None, Edit("adjective", "blue", "red"), Edit("noun", "ball", "cube"))
    pair, triple = image_editor.edit([job(None, draw=draw), job(None, texts, edits, draw)])
    assert [image.shape for image in pair.images] == [(64, 64, 3)] * 2
    assert [image.shape for image in triple.images] == [(64, 64, 3)] * 3
    assert not np.array_equal(pair.images[0], triple.images[0])
    with pytest.raises(UserError, match=r"makes no image without a photo.*recipe.source_images"):
        editor(shelf("instruct_pix2pix")).edit([job(None)])


@pytest.mark.slow
def test_photos_keep_their_proportions_and_answers_get_the_size_of_their_photo(shelf):
    image_editor = editor(shelf("instruct_pix2pix"), side=64, square=False)
    [wide] = image_editor.edit([job(photo(1, 200, 100))])
    assert [image.shape for image in wide.images] == [(48, 96, 3)] * 2
    image = np.zeros((64, 66, 3), np.uint8)
    assert fit(image, (32, 32)).shape == (32, 32, 3)
    assert fit(image, (32, 64)) == OTHER_SHAPE
    assert fit(image, (64, 66)) is image
    broken, tiny, fine = image_editor.edit(
        [job(b"no"), job(photo(1, 3, 3)), job(photo(1, 200, 100))]
    )
    assert (broken.rejected, tiny.rejected) == (BROKEN, TINY)
    assert np.array_equal(fine.images[1], wide.images[1])


def test_further_parameters_of_the_draws_are_arguments(shelf):
    image_editor = editor(shelf("instruct_pix2pix"))
    low, high = (
        image_editor.edit([job(photo(), draw=Draw(5, 0.0, 3.0, {"image_guidance_scale": value}))])[
            0
        ]
        for value in (1.5, 3.0)
    )
    [default] = image_editor.edit([job(photo())])
    assert np.array_equal(low.images[1], default.images[1])
    assert not np.array_equal(low.images[1], high.images[1])
    with pytest.raises(UserError, match=r"parameters.eta2: StableDiffusionInstructPix2PixPipel"):
        image_editor.edit([job(photo(), draw=Draw(5, 0.0, 3.0, {"eta2": 1.0}))])


@pytest.mark.parametrize(
    ("family", "changes", "said"),
    [
        ("kontext", {"settings": {"steps": 2}}, r"settings.steps: FluxKontext.* num_inference_st"),
        ("kontext", {"settings": {"image": 2}}, r"takes no image from settings\. Choose from"),
        ("kontext", {"settings": {"num_inference_steps": 0}}, "num_inference_steps=0 .* no step"),
        ("sd3", {"settings": {"num_inference_steps": 3, "strength": 0.3}}, "0.3 leaves no step"),
        ("sd3", {"pipeline": "StableDiffusion3InpaintPipeline"}, "paints inside a mask"),
        ("kontext", {"guidance": "image_guidance_scale"}, "guidance: FluxKontextPipeline takes no"),
        ("kontext", {"settings": {"guidance_scale": 2.0}}, "recipe.draws.guidance_scale gives it"),
        ("kontext", {"guidance": "true_cfg_scale"}, r"guides only with .*negative_prompt"),
        ("klein", {"guidance": "guidance_scale", "settings": TWO}, "is distilled and reads no gui"),
        ("kontext", {"side": 40}, "side=40 should be a multiple of"),
        ("sd3", {"pipeline": None}, r"takes no image; .* StableDiffusion3Img2ImgPipeline"),
        ("sd3", {"pipeline": "FluxKontextPipelines"}, "diffusers .* does not have as a pipeline"),
        ("kontext", {"instructions": "none"}, "instructions=none: there is no such file; choose"),
    ],
)  # fmt: skip
def test_settings_are_held_against_the_pipeline_before_it_is_loaded(shelf, family, changes, said):
    with pytest.raises(UserError, match=said):
        editor(shelf(family), family, **changes)


def test_what_a_card_would_name_and_nothing_reads_is_refused(shelf):
    with pytest.raises(UserError, match=r"p=0.4.*recipe.draws.p2p_threshold=\[0,0\]"):
        editor(shelf("kontext")).edit([job(photo(), draw=Draw(5, 0.4, 3.0))])
    with pytest.raises(UserError, match="passes none on"):
        editor(shelf("kontext"), guidance=None).edit([job(photo())])


def test_a_base_that_is_not_distilled_takes_guidance(tmp_path):
    folder = tiny_pipelines.save(tiny_pipelines.klein, tmp_path / "base", is_distilled=False)
    settings = {**TWO, "text_encoder_out_layers": [0, 1]}
    image_editor = editor(folder, "klein", guidance="guidance_scale", settings=settings)
    weak, strong = (
        image_editor.edit([job(photo(), draw=Draw(5, 0.0, cfg))])[0] for cfg in (2.0, 8.0)
    )
    assert not np.array_equal(weak.images[1], strong.images[1])


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [
        ("unet", ["my_pipeline", "MyUNet"], "code of others is never run"),
        ("text_encoder", ["transformers", "AutoModel"], "code of others is never run"),
        ("scheduler", ["transformers", "pipeline"], "code of others is never run"),
        ("unet", [None, None], "lacks unet, which a StableDiffusionInstructPix2PixPipeline needs"),
        ("_class_name", "MyPipeline", "does not have as a pipeline"),
        ("_class_name", ["mine", "MyPipeline"], "has no model_index.json that names a class"),
        ("auto_map", {"x": "y"}, "Python code of its own"),
    ],
)
def test_a_folder_runs_no_code_of_its_own(shelf, tmp_path, part, value, said):
    folder = shutil.copytree(shelf("instruct_pix2pix"), tmp_path / "own")
    file = folder / "model_index.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), part: value}))
    (folder / "my_pipeline.py").write_text("raise SystemExit('was run')")
    (folder / "unet" / "my_pipeline.py").write_text("raise SystemExit('was run')")
    with pytest.raises(UserError, match=said):
        editor(folder).edit([job(photo())])


def test_pickled_weights_are_not_read(shelf, tmp_path):
    folder = shutil.copytree(shelf("instruct_pix2pix"), tmp_path / "own")
    weights = folder / "unet" / "diffusion_pytorch_model.safetensors"
    weights.rename(weights.with_suffix(".bin"))
    with pytest.raises(UserError, match="in safetensors"):
        editor(folder).edit([job(photo())])


def test_a_restricted_licence_is_named(shelf, tmp_path, capsys):
    folder = shutil.copytree(shelf("instruct_pix2pix"), tmp_path / "own")
    card = "---\nlicense: other\nlicense_name: flux-dev-non-commercial\n---\n"
    (folder / "README.md").write_text(card)
    assert editor(folder).describe()["licence"] == "other flux-dev-non-commercial"
    assert "flux-dev-non-commercial, restricts the use" in capsys.readouterr().err
    for text in ("", "---\n[\n---\n", "---\n- x\n---\n"):
        (folder / "README.md").write_text(text)
        assert editor(folder).describe()["licence"] == "unknown"


def test_what_the_pipeline_s_own_checker_flags_is_rejected(shelf):
    [flagged] = editor(shelf("flagging")).edit([job(photo())])
    assert (flagged.images, flagged.rejected) == ((), "unsafe")


def test_an_image_that_is_not_finite_is_an_error(shelf, monkeypatch):
    image_editor = editor(shelf("instruct_pix2pix"))
    vae = image_editor._pipeline.vae
    whole = vae.decode
    monkeypatch.setattr(vae, "decode", lambda *args, **how: [whole(*args, **how)[0] * float("nan")])
    with pytest.raises(FloatingPointError, match="use bf16 or fp32"):
        image_editor.edit([job(photo())])


@pytest.mark.parametrize(
    ("edit", "details", "said"),
    [
        (Edit("subject", "dog", "cat"), {}, 'Replace "dog" with "cat"'),
        (Edit("background", "", "by a lake"), {}, "the background, so that the photo shows: a {"),
        (Edit("adjective", "", "small"), {}, "Change the photo so that it shows: a {cat} by a lak"),
        (Edit("race_gender", "a", "b"), {"attributes": {}}, "The photo shows: a dog. Change it so"),
        (Edit("domain", "photo", "sketch"), {}, "Redraw the whole photo in another style"),
        (None, {}, "Keep the photo exactly as it is."),
    ],
)  # fmt: skip
def test_the_instruction_is_that_of_the_kind_of_edit(edit, details, said):
    texts = ("a dog.", "a {cat} by a lake" if edit else "a dog.")
    proposal = Proposal(
        Example("k", "k", texts[:1]), texts, (None, edit), details=(details, details)
    )
    assert said in Instructions.read("instructions").fill(proposal, 1)
    described = Instructions.read("captions").fill(proposal, 1)
    assert described == ("a {cat} by a lake" if edit else "a dog")


def test_instructions_of_one_s_own_are_checked(tmp_path):
    import yaml

    shipped = dict(Instructions.read("instructions").templates)
    for change, said in (
        ({"subject": "{what}"}, r"subject has \{what\}; choose from \{before\}"),
        ({"subject": ""}, "subject should be a text"),
        ({"extra": "x"}, "should have the keys subject, object"),
    ):
        file = tmp_path / "own.yaml"
        file.write_text(yaml.safe_dump({**shipped, **change}))
        with pytest.raises(UserError, match=said):
            Instructions.read(str(file))
