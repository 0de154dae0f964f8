"""The tiny Stable Diffusion: stock classes, honest measures, a run that rebuilds and resumes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.shapescapes.settings import KINDS, words
from cfaug.shapescapes.zoo.command import read
from cfaug.shapescapes.zoo.diffusion.__main__ import main
from cfaug.shapescapes.zoo.diffusion.data import DiffusionSettings, draw, wordings
from cfaug.shapescapes.zoo.diffusion.unet import (
    MAX_LENGTH,
    Denoiser,
    build_tokenizer,
    tokenize,
    train_denoiser,
)
from cfaug.shapescapes.zoo.diffusion.vae import (
    CHANNELS,
    build_vae,
    encode,
    grid_peaks,
    psnr,
    reconstruct,
    refine_decoder,
    standardise,
)

STEPS = {
    "processes": 1,
    "scenes": 8,
    "drawings": 2,
    "vae_steps": 1,
    "decoder_steps": 1,
    "decoder_rounds": 2,
    "vae_batch": 2,
    "steps": 4,
    "focus_from": 2,
    "batch_size": 2,
    "save_every": 2,
    "held_out": 2,
}
TINY = DiffusionSettings(out="", **STEPS)


def test_every_word_is_one_token_and_other_text_falls_into_characters() -> None:
    tokenizer = build_tokenizer()
    for word in words():
        assert len(tokenizer(word).input_ids) == 3, word
    tokens = tokenizer.convert_ids_to_tokens(tokenizer("A red zq7!").input_ids)
    assert tokens[1:-1] == ["a</w>", "red</w>", "z", "q</w>", "7</w>", "!</w>"]
    assert tokenize(tokenizer, ["", "a " * 99]).shape == (2, MAX_LENGTH)


@pytest.mark.slow
def test_scenes_do_not_depend_on_the_number_of_processes() -> None:
    alone, together = draw(1, "test", 501), draw(1, "test", 501, processes=2)
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
    pixels = draw(4, "test", 12).pixels
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


@pytest.mark.slow
def test_the_command_rebuilds_the_same_bytes(tmp_path: Path) -> None:
    arguments = [f"{name}={value}" for name, value in STEPS.items()]
    for name in ("a", "b"):
        assert main([*arguments, f"out={tmp_path / name}"]) == 0
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*.safetensors"))
    assert len(files) == 3
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    card = json.loads((tmp_path / "a" / "card.json").read_text())
    assert "steps=4 " in card["command"]
    assert {"psnr_clear_db", "grid_peak_1/4", "faithful_subject"} <= set(card["metrics"])
    assert {f"faithful_{kind}" for kind in KINDS} <= set(card["metrics"])
    with pytest.raises(UserError, match="exists already"):
        main([*arguments, f"out={tmp_path / 'a'}"])


def test_settings_are_read_and_mistakes_named() -> None:
    assert read(DiffusionSettings, ["out=x", "seed=3", "lr=2e-3"]) == DiffusionSettings(
        "x", seed=3, lr=2e-3
    )
    with pytest.raises(UserError, match="vae_steps"):
        read(DiffusionSettings, ["out=x", "step=3"])
    with pytest.raises(UserError, match="takes a number"):
        read(DiffusionSettings, ["out=x", "steps=many"])
    with pytest.raises(UserError, match="out=FOLDER"):
        read(DiffusionSettings, ["seed=1"])
