"""The finished pipeline: its assembly, saving, loading, and the generation of pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.rng import derive
from cfaug.core.safety.safe_loading import from_folder
from cfaug.shapescapes.vocabulary import KINDS, CaptionWording, caption
from cfaug.shapescapes.zoo.diffusion.data import Pixels, draw, scene_at
from cfaug.shapescapes.zoo.diffusion.unet import Denoiser, build_scheduler
from cfaug.shapescapes.zoo.diffusion.vae import grid_peaks, psnr, reconstruct
from cfaug.shapescapes.zoo.factor_classifier import load_judge

if TYPE_CHECKING:
    from diffusers import AutoencoderKL, StableDiffusionPipeline


BATCH = 32


def assemble(vae: AutoencoderKL, denoiser: Denoiser) -> StableDiffusionPipeline:
    """Return a stock StableDiffusionPipeline of these parts, without a safety checker."""
    from diffusers import StableDiffusionPipeline

    return StableDiffusionPipeline(
        vae=vae,
        unet=denoiser.unet,
        text_encoder=denoiser.text_encoder,
        tokenizer=denoiser.tokenizer,
        scheduler=build_scheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def save(pipeline: StableDiffusionPipeline, folder: Path) -> None:
    """Write a pipeline in the Hub's form, float16 safetensors; its modules stay float32."""
    import torch

    parts = (pipeline.vae, pipeline.unet, pipeline.text_encoder)
    for part in parts:
        part.to(torch.float16)
    pipeline.save_pretrained(folder)
    # Beside tokenizer.json, the two files that older readers look for.
    pipeline.tokenizer.backend_tokenizer.model.save(str(folder / "tokenizer"))
    for part in parts:
        part.float()


def load(folder: Path) -> StableDiffusionPipeline:
    """Load a pipeline in float32, part by part, without progress bars; its index is ignored."""
    import torch
    from diffusers import (
        AutoencoderKL,
        DDIMScheduler,
        StableDiffusionPipeline,
        UNet2DConditionModel,
    )
    from transformers import CLIPTextModel, CLIPTokenizer

    options = {"low_cpu_mem_usage": False, "torch_dtype": torch.float32}
    pipeline = StableDiffusionPipeline(
        vae=from_folder(AutoencoderKL, folder / "vae", **options).eval(),
        unet=from_folder(UNet2DConditionModel, folder / "unet", **options).eval(),
        text_encoder=from_folder(
            CLIPTextModel, folder / "text_encoder", dtype=torch.float32
        ).eval(),
        tokenizer=from_folder(CLIPTokenizer, folder / "tokenizer"),
        scheduler=from_folder(DDIMScheduler, folder / "scheduler"),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def generate(
    pipeline: StableDiffusionPipeline,
    prompts: list[str],
    seed: int,
    *,
    steps: int = 20,
    guidance: float = 3.0,
) -> Pixels:
    """Generate a picture for every prompt by DDIM (Song et al., 2021), uint8 (n, 3, 64, 64).

    Args:
        pipeline: a pipeline from ``load`` or ``assemble``.
        seed: the seed of the noise; a picture depends on it and on its place in the list.
        steps: the number of steps of the sampler.
        guidance: the scale of classifier-free guidance (Ho & Salimans, 2022).
    """
    import torch

    pipeline.set_progress_bar_config(disable=True)
    found = []
    for start in range(0, len(prompts), BATCH):
        part = prompts[start : start + BATCH]
        seeds = [derive(seed, "zoo", "noise", start + i) % 2**63 for i in range(len(part))]
        shown = pipeline(
            part,
            num_inference_steps=steps,
            guidance_scale=guidance,
            generator=[torch.Generator().manual_seed(one) for one in seeds],
            output_type="np",
        ).images
        found.append((shown * 255).round().astype(np.uint8).transpose(0, 3, 1, 2))
    return np.concatenate(found)


# Metrics of a finished pipeline: reconstruction, grid artefacts, faithfulness to captions.


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
