"""Loading, precisions, decoding and what an editor says of itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.protocols import ImageEditor
from cfaug.imaging.cross_attention import CrossAttention
from cfaug.imaging.model import DiffusionWeights, as_image, load_part
from cfaug.imaging.prompt_to_prompt import PromptToPrompt, SafetyChecker
from tests.imaging import tiny, tiny_pipelines
from tests.imaging.test_sharing import PAIR, editor, job


def test_loading_draws_no_bars_of_other_libraries(pipeline, capfd):
    from transformers import CLIPTextModel
    from transformers.utils.logging import is_progress_bar_enabled

    shown = is_progress_bar_enabled()
    load_part(CLIPTextModel, pipeline / "text_encoder", torch.float32)
    assert capfd.readouterr() == ("", "")
    assert is_progress_bar_enabled() == shown


def test_decode_equals_diffusers_own(pipeline):
    from diffusers import AutoencoderKL
    from diffusers.image_processor import VaeImageProcessor

    latents = torch.randn(2, 4, tiny.SAMPLE, tiny.SAMPLE, generator=torch.manual_seed(0))
    vae = AutoencoderKL.from_pretrained(pipeline, subfolder="vae").eval()
    with torch.inference_mode():
        wanted = vae.decode(latents / vae.config.scaling_factor).sample
    wanted = VaeImageProcessor().postprocess(wanted, output_type="pt")
    image_editor = editor(pipeline, "fp32", decode_rows=1)
    assert isinstance(image_editor, ImageEditor)
    assert torch.allclose(image_editor.decode(latents), wanted, atol=1e-6)
    assert image_editor.sample([]) == []


def test_half_precision_stays_near_single(pipeline):
    exact = editor(pipeline, "fp32")
    model = DiffusionWeights(str(pipeline), dtype="bf16", device="cpu", channels_last=True)
    half = PromptToPrompt(model, steps=5)
    (wanted,), (latents,) = (
        image_editor.sample([job(p=0.5, cfg=2)]) for image_editor in (exact, half)
    )
    assert latents.dtype == torch.float32
    assert half.decode(latents).dtype == torch.float32
    assert (latents - wanted).norm() < 0.1 * wanted.norm()


@pytest.mark.slow
def test_threads_change_nothing(pipeline):
    image_editor = editor(pipeline, "fp32")
    jobs = [[job(seed=seed)] for seed in range(3)]
    wanted = [image_editor.decode(image_editor.sample(batch)[0]) for batch in jobs]
    with ThreadPoolExecutor(1) as pool:
        futures = [
            pool.submit(image_editor.decode, image_editor.sample(batch)[0]) for batch in jobs
        ]
        again = list(
            pool.map(lambda batch: image_editor.decode(image_editor.sample(batch)[0]), jobs)
        )
    with ThreadPoolExecutor(2) as pool:
        mingled = list(
            pool.map(lambda batch: image_editor.decode(image_editor.sample(batch)[0]), jobs)
        )
    for i, images in enumerate(wanted):
        for other in (futures[i].result(), again[i], mingled[i]):
            assert torch.equal(images, other)


def test_texts_that_are_the_same_to_the_model(pipeline):
    image_editor = editor(pipeline)
    long = "ball " * 90
    assert image_editor.same_text((long + "cube", long + "tree"))
    assert image_editor.same_text(("A red ball", "a  red ball"))
    assert image_editor.same_text((*PAIR, PAIR[0]))
    assert not image_editor.same_text(PAIR)


def test_description_changes_with_the_files(pipeline, tmp_path):
    description = editor(pipeline).describe()
    assert description["diffusion"] == str(pipeline)
    assert description["sampler"] == "euler_a"
    assert all(isinstance(value, str) for value in description.values())
    copy = tiny.save_pipeline(tmp_path / "other", seed=1)
    assert editor(copy).describe()["diffusion_sha256"] != description["diffusion_sha256"]
    same = shutil.copytree(pipeline, tmp_path / "same")
    assert editor(same).describe()["diffusion_sha256"] == description["diffusion_sha256"]
    snapshot = shutil.copytree(pipeline, tmp_path / "snapshots" / "0123abcd")
    described = DiffusionWeights(str(snapshot), device="cpu").describe()
    assert described["diffusion_revision"] == "0123abcd"
    assert "diffusion_sha256" not in described
    controlled = editor(pipeline, cross=CrossAttention("refine"), eta=0.0).describe()
    assert (controlled["cross_attention"], controlled["sampler"]) == ("refine", "euler")


@pytest.mark.slow
def test_another_vae_takes_the_place_of_the_pipelines_own(pipeline, tmp_path):
    other = tiny.save_pipeline(tmp_path / "other", seed=5)
    bare = shutil.copytree(pipeline, tmp_path / "bare", ignore=shutil.ignore_patterns("vae"))
    latents = torch.randn(1, 4, tiny.SAMPLE, tiny.SAMPLE, generator=torch.manual_seed(0))
    model = DiffusionWeights(str(bare), vae=str(other / "vae"), device="cpu")
    decoded = PromptToPrompt(model).decode(latents)
    assert torch.equal(decoded, editor(other, "fp32").decode(latents))
    assert not torch.equal(decoded, editor(pipeline, "fp32").decode(latents))
    assert "vae_sha256" in model.describe()


def test_pickles_are_refused(pipeline, tmp_path):
    folder = shutil.copytree(pipeline, tmp_path / "pickled")
    weights = folder / "unet" / "diffusion_pytorch_model.safetensors"
    torch.save({}, weights.with_suffix(".bin"))
    weights.unlink()
    with pytest.raises(UserError, match=r"UNet2DConditionModel in safetensors"):
        DiffusionWeights(str(folder), device="cpu").load()


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ("/no/such/folder", "there is no such folder"),
        ("zoo:nothing", "not in the zoo"),
        ("nobody/nothing-at-all", "hf download nobody/nothing-at-all"),
    ],
)
def test_missing_weights_are_named(weights, says):
    with pytest.raises(UserError, match=says):
        DiffusionWeights(weights).describe()


def test_settings_that_mean_nothing_are_refused(pipeline):
    model = DiffusionWeights(str(pipeline))
    with pytest.raises(UserError, match="mode"):
        PromptToPrompt(model, mode="x")
    for settings in ({"row_multiple": 3}, {"row_multiple": 48}):
        with pytest.raises(UserError, match=r"even .* divide recipe.image_editor.max_rows=64"):
            PromptToPrompt(model, **settings)


def test_a_latent_that_is_not_finite_is_an_error(pipeline, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(pipeline, tmp_path / "broken")
    file = folder / "unet" / "diffusion_pytorch_model.safetensors"
    weights = load_file(file)
    weights["conv_out.bias"][0] = 3e38
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(FloatingPointError, match="not finite"):
        editor(folder, "fp32").sample([job()])
    weights["conv_out.bias"][0] = float("nan")
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"unet: .*conv_out.bias holds"):
        editor(folder, "fp32").sample([job()])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_an_autoencoder_that_overflows_is_named_with_its_format(value):
    pixels = torch.zeros(1, 3, 2, 2, dtype=torch.float16)
    assert (as_image(pixels, tiny.vae().half()) == 0.5).all()
    pixels[0, 1, 0, 0] = value
    with pytest.raises(UserError) as caught:
        as_image(pixels, tiny.vae().half())
    said = str(caught.value)
    assert all(words in said for words in ("VAE", "AutoencoderKL in float16", "dtype=bf16"))


def test_safety_checker_flags_and_leaves_images_alone(pipeline, tmp_path):
    from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker
    from transformers import CLIPConfig, CLIPImageProcessor

    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
              "num_attention_heads": 2, "image_size": 32, "patch_size": 8}  # fmt: skip
    torch.manual_seed(0)
    checker = StableDiffusionSafetyChecker(CLIPConfig(vision_config=vision, projection_dim=8))
    # Cosines lie above -1 and below 2: the first concept flags everything, then nothing.
    for threshold, verdict in ((-2.0, True), (2.0, False)):
        checker.concept_embeds_weights.data.fill_(threshold)
        checker.special_care_embeds_weights.data.fill_(2.0)
        folder = tmp_path / str(verdict)
        checker.save_pretrained(folder / "safety_checker")
        CLIPImageProcessor(
            size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
        ).save_pretrained(folder / "feature_extractor")
        safe = editor(pipeline, "fp32", safety=SafetyChecker(str(folder), device="cpu"))
        images = torch.rand(3, 3, 16, 16, generator=torch.manual_seed(1))
        before = images.clone()
        assert safe.unsafe(images) == [verdict] * 3
        assert torch.equal(images, before)
    assert editor(pipeline).unsafe(images) == [False] * 3


def test_settings_import_neither_torch_nor_diffusers():
    code = (
        "import sys, cfaug.imaging.prompt_to_prompt\n"
        "print([name for name in ('torch', 'diffusers', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_unet_that_needs_more_than_latents_and_a_text_is_refused(tmp_path):
    for build, reads in (
        (tiny_pipelines.sdxl, "needs more than a text, as those of SDXL do"),
        (tiny_pipelines.instruct_pix2pix, "reads 8 channels, and the autoencoder makes 4"),
    ):
        folder = tiny_pipelines.save(build, tmp_path / build.__name__)
        with pytest.raises(
            UserError, match=f"its UNet {reads}, so .* take zoo=sd35 zoo.set_editor"
        ):
            DiffusionWeights(str(folder), device="cpu").load()
