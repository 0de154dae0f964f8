"""Train the tiny Stable Diffusion: ``python -m cfaug zoo diffusion out=FOLDER seed=0``.

It trains an autoencoder, refines its decoder, and trains UNet and text encoder together on cached
latents of clear scenes with independent and uniform factors. ``work=FOLDER`` stores the state from
which an interrupted run resumes. Rebuilding with the settings, threads and versions in
``card.json`` gives the same metrics.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from cfaug.core.files import replace_folder
from cfaug.core.safety.safe_loading import from_folder
from cfaug.shapescapes.zoo.command import fresh_folder, read, run, write_card
from cfaug.shapescapes.zoo.diffusion.data import DiffusionSettings, Pixels, Scenes, draw

if TYPE_CHECKING:
    from diffusers import AutoencoderKL

    from cfaug.shapescapes.zoo.diffusion.unet import Denoiser


def _vae(path: Path, train: Callable[[], AutoencoderKL]) -> tuple[AutoencoderKL, float]:
    """Load a stage's autoencoder from ``path``, or train and keep it; return it and its seconds."""
    from diffusers import AutoencoderKL

    if not path.exists():
        started = time.perf_counter()
        vae = train()
        seconds = time.perf_counter() - started
        with replace_folder(path) as fresh:
            vae.save_pretrained(fresh)
            (fresh / "seconds.json").write_text(json.dumps(seconds), encoding="utf-8")
    vae = from_folder(AutoencoderKL, path, low_cpu_mem_usage=False)
    vae.eval().requires_grad_(False)
    return vae, float(json.loads((path / "seconds.json").read_text(encoding="utf-8")))


def autoencoder(
    settings: DiffusionSettings, pixels: Pixels, work: Path
) -> tuple[AutoencoderKL, float]:
    """Return the trained autoencoder, and the seconds of its two stages."""
    from cfaug.shapescapes.zoo.diffusion.vae import refine_decoder, train_vae

    rough, first = _vae(work / "vae", lambda: train_vae(pixels, settings))

    def refine() -> AutoencoderKL:
        refine_decoder(rough, pixels, settings)
        return rough

    vae, second = _vae(work / "refined", refine)
    return vae, first + second


def denoiser(
    settings: DiffusionSettings, vae: AutoencoderKL, scenes: Scenes, work: Path
) -> Denoiser:
    """Return the trained UNet and text encoder; write a pipeline to ``work`` at every save."""
    from cfaug.shapescapes.zoo.diffusion.unet import assemble, save, train_denoiser
    from cfaug.shapescapes.zoo.diffusion.vae import encode

    def snapshot(half: Denoiser, step: int) -> None:
        save(assemble(vae, half), work / f"pipeline-{step}")

    moments = encode(vae, scenes.pixels)
    kept = replace(settings, work=str(work))
    return train_denoiser(moments, vae.config.scaling_factor, scenes.factors, kept, snapshot)


def build(settings: DiffusionSettings, work: Path, folder: Path) -> dict[str, float]:
    """Train the stages that ``work`` lacks, write the pipeline; return the stages' seconds."""
    from cfaug.shapescapes.zoo.diffusion.unet import assemble, save

    started = time.perf_counter()
    scenes = draw(settings.seed, "train", settings.scenes, processes=settings.processes)
    drawings = draw(
        settings.seed, "train", settings.drawings, "drawing", processes=settings.processes
    )
    drawn = time.perf_counter() - started
    vae, vae_seconds = autoencoder(settings, np.concatenate([scenes.pixels, drawings.pixels]), work)
    started = time.perf_counter()
    trained = denoiser(settings, vae, scenes, work)
    seconds = time.perf_counter() - started
    save(assemble(vae, trained), folder)
    return {
        "scenes": round(drawn, 1),
        "autoencoder": round(vae_seconds, 1),
        "denoiser": round(seconds, 1),
    }


def main(argv: list[str]) -> int:
    """Train, evaluate and write one pipeline with its ``card.json``."""
    settings = read(DiffusionSettings, argv)
    folder = fresh_folder(settings.out)
    with TemporaryDirectory() as temporary:
        work = Path(settings.work or temporary)
        work.mkdir(parents=True, exist_ok=True)
        seconds = build(settings, work, folder)
    facts = evaluate_all(settings, folder, seconds)
    leave_out = ("work", "processes", "save_every")
    libraries = ("torch", "transformers", "diffusers")
    write_card(
        folder,
        "diffusion",
        settings,
        facts,
        libraries=libraries,
        leave_out=leave_out,
    )
    return 0


def evaluate_all(
    settings: DiffusionSettings, folder: Path, seconds: dict[str, float]
) -> dict[str, Any]:
    """Load the pipeline from ``folder``, like a user; return its metrics, seconds and sizes."""
    from cfaug.shapescapes.zoo.diffusion.unet import evaluate, load

    pipeline = load(folder)
    return {
        "metrics": evaluate(pipeline, settings.seed, settings.held_out),
        "seconds": seconds,
        "parameters": {
            name: sum(p.numel() for p in getattr(pipeline, name).parameters())
            for name in ("vae", "unet", "text_encoder")
        },
    }


if __name__ == "__main__":
    run(main)
