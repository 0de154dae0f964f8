"""Teach the tiny Stable Diffusion the domains: ``python -m cfaug zoo diffusion_domains out=DIR``.

It continues from ``zoo:diffusion``, which knows only photos: the tokenizer gets the words of the
domains, UNet and text encoder are trained on scenes in every domain, and the decoder is refined on
them. The encoder is not changed, so both models have the same latents for photos.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.weights import resolve
from cfaug.shapescapes.language import describe
from cfaug.shapescapes.settings import DOMAINS, words_of_domains
from cfaug.shapescapes.zoo.diffusion import (
    DiffusionSettings,
    judge_pictures,
    keep_vae,
    make_pipeline,
)
from cfaug.shapescapes.zoo.diffusion_unet import (
    Denoiser,
    assemble,
    build_denoiser,
    load,
    save,
    train_denoiser,
)
from cfaug.shapescapes.zoo.diffusion_vae import encode, psnr, reconstruct, refine_decoder
from cfaug.shapescapes.zoo.factor_classifier import DOMAIN_WEIGHTS, load_judge
from cfaug.shapescapes.zoo.scenes import draw, scene_at

if TYPE_CHECKING:
    from diffusers import StableDiffusionPipeline


@dataclass(frozen=True)
class DiffusionDomainSettings(DiffusionSettings):
    """The settings of the command, given as ``name=value``.

    Attributes: those of ``DiffusionSettings`` (``vae_steps``,
        ``drawings`` and ``kl`` have no effect), and
        start: the pipeline to train further.
    """

    start: str = "zoo:diffusion"
    scenes: int = 12_000
    decoder_steps: int = 1_500
    vae_lr: float = 1e-3
    steps: int = 3_000
    lr: float = 5e-4
    focus_from: int = 500
    save_every: int = 250
    held_out: int = 200


def enlarge(pipeline: StableDiffusionPipeline, seed: int) -> Denoiser:
    """Return a pipeline's UNet and text encoder with a tokenizer that knows the domains' words.

    Every token that both tokenizers know keeps its embedding.
    """
    fresh = build_denoiser(seed, words_of_domains())
    numbers = pipeline.tokenizer.get_vocab()
    old = pipeline.text_encoder.state_dict()
    new = fresh.text_encoder.state_dict()
    for name, value in old.items():
        if value.shape == new[name].shape:
            new[name] = value.clone()
            continue
        for token, number in fresh.tokenizer.get_vocab().items():
            if token in numbers:
                new[name][number] = value[numbers[token]]
    fresh.text_encoder.load_state_dict(new)
    fresh.unet.load_state_dict(pipeline.unet.state_dict())
    return fresh


def build(settings: DiffusionDomainSettings, work: Path, folder: Path) -> dict[str, float]:
    """Train the stages that ``work`` lacks, write the pipeline; return the stages' seconds."""
    start = load(resolve(settings.start))
    seed, processes = settings.seed, settings.processes
    scenes = draw(seed, "domains", settings.scenes, domains=DOMAINS, processes=processes)

    def snapshot(half: Denoiser, step: int) -> None:
        save(assemble(start.vae, half), work / "snapshot")

    began = time.perf_counter()
    trained = train_denoiser(
        encode(start.vae, scenes.pixels),
        start.vae.config.scaling_factor,
        scenes.factors,
        replace(settings, work=str(work)),
        snapshot,
        enlarge(start, seed),
    )
    between = time.perf_counter()
    vae, _ = keep_vae(work / "refined", lambda: refine_decoder(start.vae, scenes.pixels, settings))
    vae.register_to_config(_name_or_path="")  # the path of this machine is not published
    save(assemble(vae, trained), folder)
    return {
        "denoiser": round(between - began, 1),
        "decoder": round(time.perf_counter() - between, 1),
    }


def evaluate(pipeline: StableDiffusionPipeline, seed: int, count: int) -> dict[str, float]:
    """Return the autoencoder's reconstruction of each domain, and the pictures' faithfulness.

    ``psnr_DOMAIN_db`` is the autoencoder's on held-out scenes, and ``faithful_`` the verdict of the
    domains' judge (``judge_pictures``) on held-out captions, whose factors are independent and
    uniform; ``faithful_all_DOMAIN`` is for one domain.
    """
    metrics: dict[str, float] = {"n": count}
    for domain in DOMAINS:
        true = draw(seed, "held-out", max(1, count // len(DOMAINS)), domains=(domain,)).pixels
        metrics[f"psnr_{domain}_db"] = psnr(reconstruct(pipeline.vae, true), true)
    factors = [scene_at(seed, "faithfulness", i, DOMAINS).factors for i in range(count)]
    prompts = [describe(scene) for scene in factors]
    shares, right = judge_pictures(pipeline, factors, prompts, seed, load_judge(DOMAIN_WEIGHTS))
    metrics |= shares
    for domain in DOMAINS:
        rows = np.array([scene.domain == domain for scene in factors])
        if rows.any():
            metrics[f"faithful_all_{domain}"] = float(right[rows].mean())
    return metrics


main = partial(
    make_pipeline,
    "diffusion_domains",
    DiffusionDomainSettings,
    build,
    evaluate,
    ("work", "processes", "save_every", "vae_steps", "drawings", "kl"),
)
