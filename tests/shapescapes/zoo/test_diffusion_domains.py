"""The diffusion model of all domains: it goes on from that of photos; its card is true."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cfaug.core.safety.safe_loading import from_folder
from cfaug.core.weights import resolve, sha256
from cfaug.shapescapes.oracle import FACTORS
from cfaug.shapescapes.settings import DOMAINS, words, words_of_domains
from cfaug.shapescapes.zoo.diffusion.data import draw, scene_at, wordings
from cfaug.shapescapes.zoo.diffusion.domains import enlarge, evaluate, main
from cfaug.shapescapes.zoo.diffusion.unet import assemble, build_tokenizer, generate, load
from cfaug.shapescapes.zoo.diffusion.vae import psnr, reconstruct

TINY = {
    "processes": 1, "scenes": 8, "decoder_steps": 1, "vae_batch": 2, "steps": 2, "focus_from": 1,
    "batch_size": 2, "save_every": 1, "held_out": 5,
}  # fmt: skip


def test_the_words_of_domains_are_one_token_and_the_others_keep_their_numbers() -> None:
    plain, larger = build_tokenizer(), build_tokenizer(words_of_domains())
    for word in words_of_domains():
        assert len(larger(word).input_ids) == 3, word
    assert len(plain("mosaic").input_ids) > 3
    for word in words():
        assert plain(word).input_ids[1] == larger(word).input_ids[1]


def test_scenes_of_one_domain_are_what_they_were() -> None:
    scenes = draw(1, "test", 4)
    assert [one.domain for one in scenes.factors] == ["photo"] * 4
    mixed = [scene_at(1, "test", i, DOMAINS) for i in range(4)]
    assert [one.seed for one in mixed] == [scene_at(1, "test", i).seed for i in range(4)]
    factors = draw(1, "test", 30, domains=DOMAINS).factors
    assert {one.domain for one in factors} == set(DOMAINS)
    for text, one in zip(wordings(0, 1, factors, 2), factors, strict=True):
        assert (f"a {one.domain} of " in text) or one.domain == "photo"


@pytest.mark.slow
def test_before_training_it_draws_what_the_model_of_photos_draws() -> None:
    start = load(resolve("zoo:diffusion"))
    prompts = ["a red ball on the beach"]
    before = generate(start, prompts, 0, steps=2)
    after = generate(assemble(start.vae, enlarge(start, 0)), prompts, 0, steps=2)
    assert np.array_equal(before, after)


@pytest.mark.slow
def test_the_command_rebuilds_the_same_bytes(tmp_path: Path) -> None:
    arguments = [f"{name}={value}" for name, value in TINY.items()]
    for name in ("a", "b"):
        assert main([*arguments, f"out={tmp_path / name}"]) == 0
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*.safetensors"))
    assert len(files) == 3
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    card = json.loads((tmp_path / "a" / "card.json").read_text())
    assert card["settings"]["start"] == "zoo:diffusion"
    assert {f"faithful_{name}" for name in FACTORS} < set(card["metrics"])


def test_the_shipped_autoencoder_keeps_every_domain() -> None:
    from diffusers import AutoencoderKL

    folder = resolve("zoo:diffusion-domains")
    told = json.loads((folder / "card.json").read_text())["metrics"]
    vae = from_folder(AutoencoderKL, folder / "vae", low_cpu_mem_usage=False).float().eval()
    for domain in DOMAINS:
        true = draw(7, "test-domains", 3, domains=(domain,)).pixels
        assert psnr(reconstruct(vae, true), true) > told[f"psnr_{domain}_db"] - 3


@pytest.mark.slow
def test_the_shipped_card_is_recomputed() -> None:
    folder = resolve("zoo:diffusion-domains")
    told = json.loads((folder / "card.json").read_text())["metrics"]
    found = evaluate(load(folder), 11, 60)
    for metric, value in told.items():
        if metric.startswith("psnr"):
            assert found[metric] == pytest.approx(value, abs=1), metric
        elif metric in {f"faithful_{name}" for name in FACTORS}:
            assert found[metric] == pytest.approx(value, abs=0.15), metric


def test_the_model_of_photos_is_what_it_was() -> None:
    """It is not the one that is trained on."""
    shelf = resolve("zoo:diffusion")
    digest = sha256(sorted(shelf.rglob("*.safetensors")))
    assert digest == "b4c9e7bc6fa2f6345721811041895210a583078d67bfea43f23f2c3e810e51e6"
