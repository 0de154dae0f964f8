"""The training scenes: unbiased, drawn once by several processes, kept as uint8.

A generator that was trained without the bias of the tested world can break that bias even if a
caption does not mention it. That is why generated pairs can score above the oracle's.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from cfaug.core.rng import derive, generator
from cfaug.core.validation import Seed
from cfaug.shapescapes.drawing import Scene, render
from cfaug.shapescapes.oracle import CHOICES
from cfaug.shapescapes.settings import PHOTO, STYLES, CaptionWording, Factors, caption, draw_wording

IMAGE_SIZE = 64
CHUNK = 500
Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Scenes:
    """Unbiased scenes: pixels uint8 (n, 3, 64, 64) and their factors."""

    pixels: Pixels
    factors: list[Factors]


def scene_at(seed: int, part: str, index: int, domains: Sequence[str] = (PHOTO,)) -> Scene:
    """Return scene ``index`` of ``part``, with independent and uniform factors."""
    rng = generator(seed, "zoo", part, index)
    chosen = {kind: names[int(rng.integers(len(names)))] for kind, names in CHOICES.items()}
    domain = domains[int(rng.integers(len(domains)))]
    return Scene(Factors(**chosen, domain=domain), derive(seed, "zoo", part, index, "scene"))


def _render(
    seed: int, part: str, style: str, domains: Sequence[str], start: int, stop: int
) -> Pixels:
    look = STYLES[style]
    rows = [
        render(scene_at(seed, part, i, domains), IMAGE_SIZE, look).pixels.transpose(2, 0, 1)
        for i in range(start, stop)
    ]
    return np.stack(rows)


def draw(
    seed: int,
    part: str,
    count: int,
    style: str = "clear",
    *,
    domains: Sequence[str] = (PHOTO,),
    processes: int = 1,
) -> Scenes:
    """Draw ``count`` scenes, the same for any number of processes.

    Args:
        part: the name of their purpose; parts have no scene in common.
        style: a name of ``cfaug.shapescapes.settings.STYLES``.
        domains: the domains of the scenes, drawn uniformly.
    """
    starts = range(0, count, CHUNK)
    chunks = [(seed, part, style, domains, start, min(start + CHUNK, count)) for start in starts]
    if processes > 1:
        with ProcessPoolExecutor(processes, mp_context=get_context("forkserver")) as pool:
            pixels = list(pool.map(_render, *zip(*chunks, strict=True)))
    else:
        pixels = [_render(*chunk) for chunk in chunks]
    factors = [scene_at(seed, part, i, domains).factors for i in range(count)]
    return Scenes(np.concatenate(pixels), factors)


def wordings(seed: int, step: int, factors: list[Factors], full_every: int) -> list[str]:
    """Return captions of a step's scenes, complete in every ``full_every``-th step."""
    rng = generator(seed, "zoo", "wordings", step)
    drawn = [draw_wording(rng, drop_colour=0.3, drop_background=0.5) for _ in factors]
    if step % full_every == 0:
        drawn = [CaptionWording(wording.frame) for wording in drawn]
    return [caption(f, wording) for f, wording in zip(factors, drawn, strict=True)]


# The settings of ``python -m cfaug zoo diffusion``, given as ``name=value``.


@dataclass(frozen=True)
class DiffusionSettings:
    """Settings of the training of the autoencoder, the text encoder and the UNet.

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
