"""The settings of the commands that train the tiny Stable Diffusion."""

from __future__ import annotations

from dataclasses import dataclass

from cfaug.core.validation import Seed


@dataclass(frozen=True)
class DiffusionSettings:
    """The settings of the command, given as ``name=value``.

    Attributes:
        out: the folder to write; must not exist yet.
        work: the folder with the state of an interrupted run, new, empty or of an earlier run;
            without it none is kept.
        seed: the seed of the weights, the scenes and their order.
        processes: the number of processes that draw scenes; affects only the time.
        scenes: the number of distinct clear training scenes.
        drawings: the number of clean drawings that the autoencoder is also trained on.
        decoder_steps: the number of further steps of its decoder alone, on fixed latents.
        decoder_rounds: the number of rounds of ``decoder_steps``.
        kl: the weight of the mean Kullback-Leibler divergence per latent value.
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
