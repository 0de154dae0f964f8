"""Train the tiny Stable Diffusion: ``python -m zoo diffusion out=FOLDER seed=0``.

It trains an autoencoder, refines its decoder, and trains UNet and text encoder together on cached
latents of clear scenes with independent and uniform factors. ``work=FOLDER`` stores the state from
which an interrupted run resumes. Rebuilding with the settings, threads and versions in
``card.json`` gives the same metrics.

``python -m zoo diffusion_domains out=DIR`` teaches it the domains, from ``zoo:diffusion``,
which knows only photos: the tokenizer gets their words, UNet and text encoder are trained on scenes
in every domain, and the decoder is refined on them. The encoder is not changed, so both models have
the same latents for photos.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfaug.core.atomic_files import replace_folder
from cfaug.core.outputs import begin_folder
from cfaug.core.safety.json_text import load_json
from cfaug.core.safety.safe_loading import from_folder
from cfaug.core.weights import resolve
from cfaug.worlds.shapescapes.judge import DOMAIN_WEIGHTS, Judge, load_judge
from cfaug.worlds.shapescapes.language import describe
from cfaug.worlds.shapescapes.settings import (
    DOMAINS,
    FACTORS,
    CaptionWording,
    Factors,
    caption,
    words_of_domains,
)
from zoo.command import count_parameters, fresh_folder, read, write_card
from zoo.diffusion_settings import DiffusionDomainSettings, DiffusionSettings
from zoo.diffusion_unet import (
    Denoiser,
    assemble,
    build_denoiser,
    generate,
    load,
    save,
    train_denoiser,
)
from zoo.diffusion_vae import (
    encode,
    grid_peaks,
    psnr,
    reconstruct,
    refine_decoder,
    train_vae,
)
from zoo.scenes import compare_factors, draw, scene_at

if TYPE_CHECKING:
    from diffusers import AutoencoderKL, StableDiffusionPipeline


STATE = "the state of a training"
"""What the record of outputs calls the files in ``work``."""


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
    return vae, float(load_json((path / "seconds.json").read_text(encoding="utf-8")))


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
    """
    settings = read(kind, argv)
    with fresh_folder(settings.out) as folder:
        with TemporaryDirectory() as temporary:
            work = Path(temporary)
            if settings.work:
                work = begin_folder(Path(settings.work).expanduser(), STATE, "work")
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


def build_domains(settings: DiffusionDomainSettings, work: Path, folder: Path) -> dict[str, float]:
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


def evaluate_domains(pipeline: StableDiffusionPipeline, seed: int, count: int) -> dict[str, float]:
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


main_domains = partial(
    make_pipeline,
    "diffusion_domains",
    DiffusionDomainSettings,
    build_domains,
    evaluate_domains,
    ("work", "processes", "save_every", "vae_steps", "drawings", "kl"),
)
