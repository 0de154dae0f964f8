"""What ``python -m cfaug.zoo.diffusion`` takes, as ``name=value``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DiffusionSettings:
    """How the autoencoder, the text encoder and the UNet are trained.

    Attributes:
        out: folder to write; must not exist yet.
        work: folder with the state of an interrupted run; empty keeps none.
        seed: of the weights, the scenes and their order.
        processes: that draw scenes; changes nothing but the time.
        scenes: number of distinct clear training scenes.
        drawings: clean drawings that the autoencoder sees besides.
        vae_steps: optimiser steps of the autoencoder.
        decoder_steps: further steps of its decoder alone, on the latents it then has.
        decoder_rounds: number of rounds of ``decoder_steps``.
        vae_batch: scenes a step of the autoencoder.
        vae_lr: their peak learning rate.
        kl: weight of the mean Kullback-Leibler divergence of a latent number.
        steps: optimiser steps of the UNet and the text encoder.
        batch_size: scenes a step of theirs.
        lr: their peak learning rate.
        focus_from: step from which the noise levels in the middle are drawn more often.
        decay: of the exponential moving average of their weights.
        drop_text: probability that a caption is replaced by "", for guidance without a classifier.
        full_every: every so many batches, captions name subject, colour and background.
        save_every: steps between two states in ``work``.
        held_out: scenes of the evaluation, and images generated for it.
    """

    out: str
    work: str = ""
    seed: int = 0
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
