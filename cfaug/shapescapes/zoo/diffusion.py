"""Train the tiny Stable Diffusion: ``python -m cfaug zoo diffusion out=FOLDER seed=0``.

It trains an autoencoder, refines its decoder, and trains UNet and text encoder together on cached
latents of clear scenes with independent and uniform factors. ``work=FOLDER`` stores the state from
which an interrupted run resumes. Rebuilding with the settings, threads and versions in
``card.json`` gives the same metrics.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfaug.core.files import replace_folder
from cfaug.core.safety.safe_loading import from_folder
from cfaug.core.validation import Seed
from cfaug.shapescapes.settings import FACTORS, CaptionWording, Factors, caption
from cfaug.shapescapes.zoo.command import count_parameters, fresh_folder, read, write_card
from cfaug.shapescapes.zoo.diffusion_unet import (
    Denoiser,
    assemble,
    generate,
    load,
    save,
    train_denoiser,
)
from cfaug.shapescapes.zoo.diffusion_vae import (
    encode,
    grid_peaks,
    psnr,
    reconstruct,
    refine_decoder,
    train_vae,
)
from cfaug.shapescapes.zoo.factor_classifier import Judge, load_judge
from cfaug.shapescapes.zoo.scenes import compare_factors, draw, scene_at

if TYPE_CHECKING:
    from diffusers import AutoencoderKL, StableDiffusionPipeline


@dataclass(frozen=True)
class DiffusionSettings:
    """The settings of the command, given as ``name=value``.

    Attributes:
        out: the folder to write; must not exist yet.
        work: the folder with the state of an interrupted run; empty keeps none.
        seed: the seed of the weights, the scenes and their order.
        processes: the number of processes that draw scenes; affects only the time.
        scenes: the number of distinct clear training scenes.
        drawings: the number of clean drawings that the autoencoder is also trained on.
        vae_steps: the number of optimiser steps of the autoencoder.
        decoder_steps: the number of further steps of its decoder alone, on fixed latents.
        decoder_rounds: the number of rounds of ``decoder_steps``.
        vae_batch: the number of scenes in a step of the autoencoder.
        vae_lr: the peak of the autoencoder's learning rate.
        kl: the weight of the mean Kullback-Leibler divergence per latent value.
        steps: the number of optimiser steps of the UNet and the text encoder.
        batch_size: the number of scenes in a step of the UNet and the text encoder.
        lr: the peak of their learning rate.
        focus_from: the step from which intermediate noise levels are drawn more often.
        decay: the decay of the exponential moving average of their weights.
        drop_text: the probability that a caption is replaced by "", for classifier-free guidance.
        full_every: the period, in batches, at which captions name subject, colour and background.
        save_every: the number of steps between saved states in ``work``.
        held_out: the number of scenes of the evaluation, and of images generated for it.
    """

    out: str
    work: str = ""
    seed: Seed = 0
    processes: int = 2
    scenes: int = 24_000
    drawings: int = 3_000
    vae_steps: int = 4_000
    decoder_steps: int = 3_500
    decoder_rounds: int = 1
    vae_batch: int = 8
    vae_lr: float = 2e-3
    kl: float = 3e-4
    steps: int = 4_900
    batch_size: int = 32
    lr: float = 1e-3
    focus_from: int = 2_500
    decay: float = 0.999
    drop_text: float = 0.1
    full_every: int = 2
    save_every: int = 500
    held_out: int = 400


def keep_vae(path: Path, train: Callable[[], AutoencoderKL]) -> tuple[AutoencoderKL, float]:
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


def build(settings: DiffusionSettings, work: Path, folder: Path) -> dict[str, float]:
    """Train the stages that ``work`` lacks, write the pipeline; return the stages' seconds."""
    started = time.perf_counter()
    seed, processes = settings.seed, settings.processes
    scenes = draw(seed, "train", settings.scenes, processes=processes)
    drawings = draw(seed, "train", settings.drawings, "drawing", processes=processes)
    drawn = time.perf_counter() - started
    pixels = np.concatenate([scenes.pixels, drawings.pixels])
    rough, first = keep_vae(work / "vae", lambda: train_vae(pixels, settings))
    vae, second = keep_vae(work / "refined", lambda: refine_decoder(rough, pixels, settings))

    def snapshot(half: Denoiser, step: int) -> None:
        save(assemble(vae, half), work / f"pipeline-{step}")

    started = time.perf_counter()
    moments, kept = encode(vae, scenes.pixels), replace(settings, work=str(work))
    scale = vae.config.scaling_factor
    trained = train_denoiser(moments, scale, scenes.factors, kept, snapshot)
    seconds = time.perf_counter() - started
    save(assemble(vae, trained), folder)
    return {
        "scenes": round(drawn, 1),
        "autoencoder": round(first + second, 1),
        "denoiser": round(seconds, 1),
    }


def make_pipeline(
    name: str,
    kind: type[DiffusionSettings],
    build: Callable[[Any, Path, Path], dict[str, float]],
    evaluate: Callable[[StableDiffusionPipeline, int, int], dict[str, float]],
    leave_out: Collection[str],
    argv: list[str],
) -> int:
    """Train, evaluate and write one pipeline with its ``card.json``; return the exit code.

    Args:
        build: a function that trains from the settings, with a folder for its state, and writes
            the pipeline to another folder; it returns the seconds of its stages.
        evaluate: a function that returns the metrics of a pipeline from a seed and a number of
            scenes.
        leave_out: settings that do not affect the result.
    """
    settings = read(kind, argv)
    folder = fresh_folder(settings.out)
    with TemporaryDirectory() as temporary:
        work = Path(settings.work or temporary)
        work.mkdir(parents=True, exist_ok=True)
        seconds = build(settings, work, folder)
    pipeline = load(folder)
    facts = {
        "metrics": evaluate(pipeline, settings.seed, settings.held_out),
        "seconds": seconds,
        "parameters": {
            part: count_parameters(getattr(pipeline, part))
            for part in ("vae", "unet", "text_encoder")
        },
    }
    libraries = ("torch", "transformers", "diffusers")
    write_card(folder, name, settings, facts, libraries=libraries, leave_out=leave_out)
    return 0


def judge_pictures(
    pipeline: StableDiffusionPipeline,
    factors: Sequence[Factors],
    prompts: list[str],
    seed: int,
    judge: Judge,
) -> tuple[dict[str, float], NDArray[np.bool_]]:
    """Return the shares of generated pictures with the right factors, and which are all right.

    ``faithful_FACTOR`` is the share of pictures whose factor the judge finds to be that of the
    prompt, and ``faithful_all`` that of pictures with all; 20 DDIM steps, guidance 3.
    """
    seen = judge.factors(generate(pipeline, prompts, seed))
    right = compare_factors(seen, factors, FACTORS)
    every = np.logical_and.reduce(list(right.values()))
    shares = {f"faithful_{kind}": float(right[kind].mean()) for kind in judge.choices}
    return {**shares, "faithful_all": float(every.mean())}, every


def evaluate(pipeline: StableDiffusionPipeline, seed: int, count: int) -> dict[str, float]:
    """Return metrics on ``count`` held-out scenes and drawings, and as many captions.

    ``psnr_STYLE_db`` is the autoencoder's, ``grid_peak_`` that of its error on scenes, and
    ``faithful_`` the shipped judge's verdict (``judge_pictures``) on captions that name all
    factors, which are independent and uniform.
    """
    metrics: dict[str, float] = {"n": count}
    for style in ("clear", "drawing"):
        true = draw(seed, "held-out", count, style).pixels
        shown = reconstruct(pipeline.vae, true)
        metrics[f"psnr_{style}_db"] = psnr(shown, true)
        if style == "clear":
            peaks = grid_peaks(shown, true)
            metrics |= {f"grid_peak_{name}": value for name, value in peaks.items()}
    factors = [scene_at(seed, "faithfulness", i).factors for i in range(count)]
    prompts = [caption(scene, CaptionWording()) for scene in factors]
    return metrics | judge_pictures(pipeline, factors, prompts, seed, load_judge())[0]


main = partial(
    make_pipeline,
    "diffusion",
    DiffusionSettings,
    build,
    evaluate,
    ("work", "processes", "save_every"),
)
