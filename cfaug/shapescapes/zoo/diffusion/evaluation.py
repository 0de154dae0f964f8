"""Metrics of a finished pipeline: reconstruction, grid artefacts, faithfulness to captions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cfaug.shapescapes.vocabulary import KINDS, CaptionWording, caption
from cfaug.shapescapes.zoo.diffusion.data import draw, scene_at
from cfaug.shapescapes.zoo.diffusion.pipeline import generate
from cfaug.shapescapes.zoo.diffusion.vae import grid_peaks, psnr, reconstruct
from cfaug.shapescapes.zoo.factor_classifier import load_judge

if TYPE_CHECKING:
    from diffusers import AutoencoderKL, StableDiffusionPipeline


def evaluate_vae(vae: AutoencoderKL, seed: int, count: int) -> dict[str, float]:
    """Return the PSNR in dB of held-out scenes and drawings, and the scenes' grid peaks."""
    metrics: dict[str, float] = {}
    for style in ("clear", "drawing"):
        true = draw(seed, "held-out", count, style).pixels
        shown = reconstruct(vae, true)
        metrics[f"psnr_{style}_db"] = psnr(shown, true)
        if style == "clear":
            peaks = grid_peaks(shown, true)
            metrics |= {f"grid_peak_{name}": value for name, value in peaks.items()}
    return metrics


def evaluate_faithfulness(
    pipeline: StableDiffusionPipeline, seed: int, count: int
) -> dict[str, float]:
    """Return the share of generated pictures that match their captions, by the shipped judge.

    Captions name all factors, which are independent and uniform; 20 DDIM steps, guidance 3.
    """
    factors = [scene_at(seed, "faithfulness", i).factors for i in range(count)]
    prompts = [caption(f, CaptionWording()) for f in factors]
    found = load_judge().factors(generate(pipeline, prompts, seed))
    pairs = list(zip(found, factors, strict=True))
    right = {
        f"faithful_{kind}": float(np.mean([getattr(a, kind) == getattr(b, kind) for a, b in pairs]))
        for kind in KINDS
    }
    return {**right, "faithful_all": float(np.mean([a == b for a, b in pairs]))}


def evaluate(pipeline: StableDiffusionPipeline, seed: int, count: int) -> dict[str, float]:
    """Return all metrics on ``count`` held-out scenes, drawings and captions."""
    return {
        "n": count,
        **evaluate_vae(pipeline.vae, seed, count),
        **evaluate_faithfulness(pipeline, seed, count),
    }
