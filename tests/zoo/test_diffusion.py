"""The tiny Stable Diffusion: stock classes, honest measures, a run that resumes; all domains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cfaug.core.weights import resolve, sha256
from cfaug.worlds.shapescapes.judge import load_judge
from cfaug.worlds.shapescapes.settings import (
    DOMAINS,
    FACTORS,
    CaptionWording,
    Factors,
    caption,
    words,
    words_of_domains,
)
from tests.zoo.cards import card
from zoo import scenes
from zoo.diffusion import enlarge, evaluate_domains
from zoo.diffusion_settings import DiffusionSettings
from zoo.diffusion_unet import (
    MAX_LENGTH,
    Denoiser,
    assemble,
    build_tokenizer,
    generate,
    load,
    tokenize,
    train_denoiser,
    wordings,
)
from zoo.diffusion_vae import (
    CHANNELS,
    build_vae,
    encode,
    grid_peaks,
    psnr,
    reconstruct,
    refine_decoder,
    standardise,
)
from zoo.scenes import draw, scene_at

TINY = DiffusionSettings(
    out="", decoder_steps=1, decoder_rounds=2, vae_batch=2, steps=4, focus_from=2, batch_size=2,
    save_every=2,
)  # fmt: skip
SHIPPED = resolve("zoo:diffusion")
METRICS = card("diffusion")["metrics"]


def test_every_word_is_one_token_and_other_text_falls_into_characters() -> None:
    tokenizer = build_tokenizer()
    for word in words():
        assert len(tokenizer(word).input_ids) == 3, word
    tokens = tokenizer.convert_ids_to_tokens(tokenizer("A red zq7!").input_ids)
    assert tokens[1:-1] == ["a</w>", "red</w>", "z", "q</w>", "7</w>", "!</w>"]
    assert tokenize(tokenizer, ["", "a " * 99]).shape == (2, MAX_LENGTH)


@pytest.mark.slow
def test_scenes_do_not_depend_on_the_number_of_processes(monkeypatch) -> None:
    alone = draw(1, "test", 9)
    monkeypatch.setattr(scenes, "CHUNK", 4)
    together = draw(1, "test", 9, processes=2)
    assert np.array_equal(alone.pixels, together.pixels)
    assert alone.factors == together.factors
    assert not np.array_equal(alone.pixels[:3], draw(2, "test", 3).pixels)


def test_some_batches_are_captioned_in_full() -> None:
    factors = draw(1, "test", 40).factors
    full = wordings(0, 4, factors, 2)
    assert all(
        f.colour in text and f.subject in text for f, text in zip(factors, full, strict=True)
    )
    some = wordings(0, 5, factors, 2)
    named = np.mean([f.colour in text for f, text in zip(factors, some, strict=True)])
    assert 0.4 < named < 0.95
    assert some == wordings(0, 5, factors, 2)


def test_a_patch_grid_is_seen_and_noise_is_none() -> None:
    true = draw(3, "test", 24).pixels
    rng = np.random.default_rng(0)
    noisy = np.clip(true + rng.normal(0, 9, true.shape), 0, 255).astype(np.uint8)
    assert all(0.5 < peak < 1.5 for peak in grid_peaks(noisy, true).values())
    grid = np.zeros((64, 64))
    grid[::4, :] = grid[:, ::4] = 6
    weak = rng.normal(0, 3, true.shape)
    gridded = np.clip(true + weak + grid, 0, 255).astype(np.uint8)
    assert all(peak > 4 for peak in grid_peaks(gridded, true).values())
    slow = sum((int(a) - int(b)) ** 2 for a, b in zip(noisy.flat, true.flat, strict=True))
    assert psnr(noisy, true) == pytest.approx(10 * np.log10(255**2 / (slow / true.size)))


def test_standardising_moves_the_latents_and_no_picture() -> None:
    torch.manual_seed(0)
    vae = build_vae().eval()
    pixels = draw(4, "test", 8).pixels
    with torch.no_grad():
        vae.quant_conv.bias[:CHANNELS] += 3
    before = reconstruct(vae, pixels).astype(int)
    standardise(vae, pixels)
    assert np.abs(reconstruct(vae, pixels).astype(int) - before).max() <= 1
    mean, log_variance = encode(vae, pixels).chunk(2, dim=1)
    # bfloat16 where autocast allows it.
    assert float(mean.mean(dim=(0, 2, 3)).abs().max()) < 0.03
    total = mean.square().mean() + log_variance.exp().mean()
    assert vae.config.scaling_factor == pytest.approx(float(total) ** -0.5, rel=0.02)


def test_refining_the_decoder_leaves_the_latents_alone() -> None:
    torch.manual_seed(0)
    vae = build_vae().eval().requires_grad_(False)
    pixels = draw(4, "test", 4).pixels
    before, shown = encode(vae, pixels), reconstruct(vae, pixels)
    refine_decoder(vae, pixels, TINY)
    assert torch.equal(encode(vae, pixels), before)
    assert not np.array_equal(reconstruct(vae, pixels), shown)


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    moments = torch.randn(8, 2 * CHANNELS, 16, 16, generator=torch.Generator().manual_seed(0))
    factors = draw(1, "test", 8).factors

    def run(work: str, on_save: Callable[[Denoiser, int], None]) -> dict[str, torch.Tensor]:
        settings = replace(TINY, work=work)
        return train_denoiser(moments, 1.0, factors, settings, on_save).unet.state_dict()

    def interrupt(denoiser: Denoiser, step: int) -> None:
        if step == 4:
            raise KeyboardInterrupt

    straight = run("", lambda denoiser, step: None)
    with pytest.raises(KeyboardInterrupt):
        run(str(tmp_path), interrupt)
    seen: list[int] = []
    resumed = run(str(tmp_path), lambda denoiser, step: seen.append(step))
    assert seen == [4]
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)


# The shipped model of photos.


@pytest.fixture(scope="module")
def pipeline():
    return load(SHIPPED)


def test_plain_diffusers_loads_it_and_it_is_small() -> None:
    from diffusers import StableDiffusionPipeline
    from safetensors.torch import load_file

    pipeline = StableDiffusionPipeline.from_pretrained(SHIPPED, low_cpu_mem_usage=False)
    assert type(pipeline.unet).__name__ == "UNet2DConditionModel"
    assert type(pipeline.vae).__name__ == "AutoencoderKL"
    assert type(pipeline.text_encoder).__name__ == "CLIPTextModel"
    assert pipeline.safety_checker is None
    stored = [load_file(file) for file in SHIPPED.rglob("*.safetensors")]
    assert {w.dtype for weights in stored for w in weights.values()} == {torch.float16}


@pytest.mark.slow
@pytest.mark.parametrize("style", ["clear", "drawing"])
def test_scenes_survive_the_autoencoder_without_a_grid(pipeline, style: str) -> None:
    true = draw(1, "test-vae", 30, style).pixels
    shown = reconstruct(pipeline.vae, true)
    assert psnr(shown, true) == pytest.approx(METRICS[f"psnr_{style}_db"], abs=0.5)
    assert max(grid_peaks(shown, true).values()) < 2


@pytest.mark.slow
def test_pictures_show_what_their_captions_say(pipeline) -> None:
    factors = [scene_at(1, "test-faithful", i).factors for i in range(20)]
    pixels = generate(pipeline, [caption(f, CaptionWording()) for f in factors], 1)
    judged = load_judge().factors(pixels)
    right = [f.subject == g.subject for f, g in zip(factors, judged, strict=True)]
    assert sum(right) >= 20 * (METRICS["faithful_subject"] - 0.15)
    assert sum(f.background == g.background for f, g in zip(factors, judged, strict=True)) >= 19


def test_a_picture_depends_on_its_prompt_and_seed_alone(pipeline) -> None:
    red, other = (caption(Factors("ball", c, "snow"), CaptionWording()) for c in ("red", "blue"))
    pair = generate(pipeline, [red, other], 5, steps=3)
    alone = generate(pipeline, [red], 5, steps=3)
    # The sums of a batch of two and of one need not round alike.
    assert np.abs(pair[0].astype(int) - alone[0]).max() <= 2
    assert not np.array_equal(alone, generate(pipeline, [red], 6, steps=3))


# The model of all domains, which goes on from that of photos.


def test_the_words_of_domains_are_one_token_and_the_others_keep_their_numbers() -> None:
    plain, larger = build_tokenizer(), build_tokenizer(words_of_domains())
    for word in words_of_domains():
        assert len(larger(word).input_ids) == 3, word
    assert len(plain("mosaic").input_ids) > 3
    for word in words():
        assert plain(word).input_ids[1] == larger(word).input_ids[1]


def test_scenes_of_one_domain_are_what_they_were() -> None:
    assert [scene.domain for scene in draw(1, "test", 4).factors] == ["photo"] * 4
    mixed = [scene_at(1, "test", i, DOMAINS) for i in range(4)]
    assert [scene.seed for scene in mixed] == [scene_at(1, "test", i).seed for i in range(4)]
    factors = draw(1, "test", 30, domains=DOMAINS).factors
    assert {scene.domain for scene in factors} == set(DOMAINS)
    for text, scene in zip(wordings(0, 1, factors, 2), factors, strict=True):
        assert (f"a {scene.domain} of " in text) or scene.domain == "photo"


@pytest.mark.slow
def test_before_training_it_draws_what_the_model_of_photos_draws() -> None:
    start = load(SHIPPED)
    prompts = ["a red ball on the beach"]
    before = generate(start, prompts, 0, steps=2)
    after = generate(assemble(start.vae, enlarge(start, 0)), prompts, 0, steps=2)
    assert np.array_equal(before, after)


@pytest.mark.slow
def test_the_shipped_card_is_recomputed() -> None:
    folder, shipped = resolve("zoo:diffusion-domains"), card("diffusion-domains")["metrics"]
    measured = evaluate_domains(load(folder), 11, 60)
    for metric, value in shipped.items():
        if metric.startswith("psnr"):
            assert measured[metric] == pytest.approx(value, abs=1), metric
        elif metric in {f"faithful_{name}" for name in FACTORS}:
            assert measured[metric] == pytest.approx(value, abs=0.15), metric


def test_the_model_of_photos_is_what_it_was() -> None:
    # It is not the one that is trained on.
    digest = sha256(sorted(SHIPPED.rglob("*.safetensors")))
    assert digest == "b4c9e7bc6fa2f6345721811041895210a583078d67bfea43f23f2c3e810e51e6"
