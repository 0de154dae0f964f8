"""The shipped Stable Diffusion: plain diffusers loads it, and its card is true."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from cfaug.shapescapes.settings import CaptionWording, Factors, caption, words
from cfaug.shapescapes.zoo.diffusion.data import draw, scene_at
from cfaug.shapescapes.zoo.diffusion.unet import generate, load
from cfaug.shapescapes.zoo.diffusion.vae import grid_peaks, psnr, reconstruct
from cfaug.shapescapes.zoo.factor_classifier import load_judge

SHIPPED = Path(__file__).parents[3] / "cfaug" / "shapescapes" / "zoo" / "weights" / "diffusion"
CARD = json.loads((SHIPPED / "card.json").read_text())


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
    assert sum(f.stat().st_size for f in SHIPPED.rglob("*") if f.is_file()) < 7_700_000


def test_its_tokenizer_takes_a_word_for_a_token(pipeline) -> None:
    assert all(len(pipeline.tokenizer(word).input_ids) == 3 for word in words())
    assert (SHIPPED / "tokenizer" / "vocab.json").exists()
    assert (SHIPPED / "tokenizer" / "merges.txt").exists()


@pytest.mark.slow
@pytest.mark.parametrize("style", ["clear", "drawing"])
def test_scenes_survive_the_autoencoder_without_a_grid(pipeline, style: str) -> None:
    true = draw(1, "test-vae", 60, style).pixels
    shown = reconstruct(pipeline.vae, true)
    assert psnr(shown, true) == pytest.approx(CARD["metrics"][f"psnr_{style}_db"], abs=0.5)
    assert max(grid_peaks(shown, true).values()) < 2


@pytest.mark.slow
def test_pictures_show_what_their_captions_say(pipeline) -> None:
    factors = [scene_at(1, "test-faithful", i).factors for i in range(20)]
    pixels = generate(pipeline, [caption(f, CaptionWording()) for f in factors], 1)
    found = load_judge().factors(pixels)
    right = [f.subject == g.subject for f, g in zip(factors, found, strict=True)]
    assert sum(right) >= 20 * (CARD["metrics"]["faithful_subject"] - 0.15)
    assert sum(f.background == g.background for f, g in zip(factors, found, strict=True)) >= 19


def test_a_picture_depends_on_its_prompt_and_seed_alone(pipeline) -> None:
    red, other = (caption(Factors("ball", c, "snow"), CaptionWording()) for c in ("red", "blue"))
    pair = generate(pipeline, [red, other], 5, steps=3)
    alone = generate(pipeline, [red], 5, steps=3)
    # The sums of a batch of two and of one need not round alike.
    assert np.abs(pair[0].astype(int) - alone[0]).max() <= 2
    assert not np.array_equal(alone, generate(pipeline, [red], 6, steps=3))
