"""The settings of ``python -m cfaug zoo diffusion``, given as ``name=value``."""

from __future__ import annotations

from dataclasses import dataclass

from cfaug.core.validation import Seed


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
