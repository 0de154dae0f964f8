"""Teach the tiny Stable Diffusion the domains: ``python -m cfaug zoo diffusion_domains out=DIR``.

It continues from ``zoo:diffusion``, which knows only photos: the tokenizer gets the words of the
domains, UNet and text encoder are trained on scenes in every domain, and the decoder is refined on
them. The encoder is not changed, so both models have the same latents for photos.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from cfaug.core.safety.safe_loading import from_folder
from cfaug.core.weights import resolve
from cfaug.shapescapes.language import describe
from cfaug.shapescapes.oracle import FACTORS
from cfaug.shapescapes.settings import DOMAINS, words_of_domains
from cfaug.shapescapes.zoo.command import fresh_folder, read, run, write_card
from cfaug.shapescapes.zoo.diffusion.data import DiffusionSettings, Scenes, draw, scene_at
from cfaug.shapescapes.zoo.factor_classifier import DOMAIN_WEIGHTS, load_judge

if TYPE_CHECKING:
    from diffusers import AutoencoderKL, StableDiffusionPipeline

    from cfaug.shapescapes.zoo.diffusion.unet import Denoiser

LEFT_OUT = ("work", "processes", "save_every", "vae_steps", "drawings", "kl")


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
    import torch

    from cfaug.shapescapes.zoo.diffusion.unet import Denoiser, build_denoiser

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
    with torch.no_grad():
        fresh.unet.load_state_dict(pipeline.unet.state_dict())
    return Denoiser(fresh.unet, fresh.text_encoder, fresh.tokenizer)


def _train(
    settings: DiffusionDomainSettings, pipeline: StableDiffusionPipeline, scenes: Scenes, work: Path
) -> Denoiser:
    from cfaug.shapescapes.zoo.diffusion.unet import assemble, save, train_denoiser
    from cfaug.shapescapes.zoo.diffusion.vae import encode

    def snapshot(half: Denoiser, step: int) -> None:
        save(assemble(pipeline.vae, half), work / "snapshot")

    moments = encode(pipeline.vae, scenes.pixels)
    return train_denoiser(
        moments,
        pipeline.vae.config.scaling_factor,
        scenes.factors,
        replace(settings, work=str(work)),
        snapshot,
        enlarge(pipeline, settings.seed),
    )


def _refined(
    settings: DiffusionDomainSettings, vae: AutoencoderKL, scenes: Scenes, work: Path
) -> AutoencoderKL:
    """Return the autoencoder with a refined decoder, and store it in ``work``."""
    from diffusers import AutoencoderKL

    from cfaug.shapescapes.zoo.diffusion.vae import refine_decoder

    path = work / "refined"
    if not path.exists():
        refine_decoder(vae, scenes.pixels, settings)
        vae.save_pretrained(path)
    found = from_folder(AutoencoderKL, path, low_cpu_mem_usage=False)
    found.register_to_config(_name_or_path="")  # the path of this machine is not published
    refined: AutoencoderKL = found.eval().requires_grad_(False)
    return refined


def build(settings: DiffusionDomainSettings, work: Path, folder: Path) -> dict[str, float]:
    """Train the stages that ``work`` lacks, write the pipeline; return the stages' seconds."""
    from cfaug.shapescapes.zoo.diffusion.unet import assemble, load, save

    start = load(resolve(settings.start))
    scenes = draw(
        settings.seed, "domains", settings.scenes, domains=DOMAINS, processes=settings.processes
    )
    began = time.perf_counter()
    trained = _train(settings, start, scenes, work)
    between = time.perf_counter()
    vae = _refined(settings, start.vae, scenes, work)
    save(assemble(vae, trained), folder)
    return {
        "denoiser": round(between - began, 1),
        "decoder": round(time.perf_counter() - between, 1),
    }


def main(argv: list[str]) -> int:
    """Train, evaluate and write one pipeline with its ``card.json``."""
    settings = read(DiffusionDomainSettings, argv)
    folder = fresh_folder(settings.out)
    with TemporaryDirectory() as temporary:
        work = Path(settings.work or temporary)
        work.mkdir(parents=True, exist_ok=True)
        seconds = build(settings, work, folder)
    write_card(
        folder,
        "diffusion_domains",
        settings,
        evaluate_all(settings, folder, seconds),
        libraries=("torch", "transformers", "diffusers"),
        leave_out=LEFT_OUT,
    )
    return 0


def evaluate_all(
    settings: DiffusionDomainSettings, folder: Path, seconds: dict[str, float]
) -> dict[str, Any]:
    """Load the pipeline from ``folder``, like a user; return its metrics, seconds and sizes."""
    from cfaug.shapescapes.zoo.diffusion.unet import load

    pipeline = load(folder)
    return {
        "metrics": evaluate(pipeline, settings.seed, settings.held_out),
        "seconds": seconds,
        "parameters": {
            name: sum(p.numel() for p in getattr(pipeline, name).parameters())
            for name in ("vae", "unet", "text_encoder")
        },
    }


def evaluate(pipeline: StableDiffusionPipeline, seed: int, count: int) -> dict[str, float]:
    """Return the autoencoder's reconstruction of each domain, and the pictures' faithfulness.

    ``psnr_DOMAIN_db`` is the autoencoder's on held-out scenes. ``faithful_`` is the share of
    generated pictures whose factor, or all factors, the domains' judge finds to be those of the
    caption. Captions are held out, independent and uniform; 20 DDIM steps, guidance 3.
    """
    from cfaug.shapescapes.zoo.diffusion.unet import generate
    from cfaug.shapescapes.zoo.diffusion.vae import psnr, reconstruct

    metrics: dict[str, float] = {"n": count}
    for domain in DOMAINS:
        true = draw(seed, "held-out", max(1, count // len(DOMAINS)), domains=(domain,)).pixels
        metrics[f"psnr_{domain}_db"] = psnr(reconstruct(pipeline.vae, true), true)
    factors = [scene_at(seed, "faithfulness", i, DOMAINS).factors for i in range(count)]
    shown = generate(pipeline, [describe(factor) for factor in factors], seed)
    found = load_judge(DOMAIN_WEIGHTS).factors(shown)
    pairs = list(zip(found, factors, strict=True))
    right = {
        name: np.array([getattr(a, name) == getattr(b, name) for a, b in pairs]) for name in FACTORS
    }
    metrics |= {f"faithful_{name}": float(some.mean()) for name, some in right.items()}
    every = np.logical_and.reduce(list(right.values()))
    metrics["faithful_all"] = float(every.mean())
    for domain in DOMAINS:
        rows = np.array([factor.domain == domain for factor in factors])
        if rows.any():
            metrics[f"faithful_all_{domain}"] = float(every[rows].mean())
    return metrics


if __name__ == "__main__":
    run(main)
