"""The judge of clear 64 px pictures, and its training.

``python -m zoo factor_classifier out=FOLDER seed=0``. It is a small convolutional network
with a head for each factor, and replaces the oracle for generated pictures, since their factors are
unknown. So that its training data resemble generated pictures, it also learns from blurred, noisy
and re-encoded scenes (``vae=FOLDER``, an autoencoder of ``zoo.diffusion``).
``domains=photo,sketch,...`` trains one that predicts the domain as well, possibly from another
judge's weights (``start=zoo:judge``).
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.rng import derive, generator
from cfaug.core.safety.safe_loading import from_folder
from cfaug.core.validation import Seed
from cfaug.core.weights import resolve
from cfaug.worlds.shapescapes.judge import (
    Choices,
    Judge,
    build_network,
    load_judge,
    network_config,
    normalise,
    split_logits,
)
from cfaug.worlds.shapescapes.settings import CHOICES, DOMAINS, FACTORS, PHOTO
from zoo.command import (
    count_parameters,
    descend,
    fresh_folder,
    read,
    write_card,
)
from zoo.scenes import Scenes, compare_factors, draw, label

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class JudgeSettings:
    """The settings of the command, given as ``name=value``.

    Attributes:
        out: the folder to write; must not exist yet.
        vae: the folder of an autoencoder whose reconstructions are used, too; may be empty.
        seed: the seed of the weights, the scenes and their order.
        processes: the number of processes that draw scenes; affects only the time.
        scenes: the number of distinct training scenes.
        lr: the peak of the learning rate, which falls to 0 by a cosine.
        held_out: the number of scenes of the evaluation.
        domains: the domains of the scenes, separated by commas; several are predicted as well.
        start: a judge whose weights are copied if they fit; may be empty.
    """

    out: str
    vae: str = ""
    seed: Seed = 0
    processes: int = 2
    scenes: int = 10_000
    steps: int = 1_200
    batch_size: int = 64
    lr: float = 2e-3
    held_out: int = 1_000
    domains: str = PHOTO
    start: str = ""

    def __post_init__(self) -> None:
        wrong = [name for name in self.domain_names if name not in DOMAINS]
        if wrong:
            raise UserError(f"domains={self.domains}: choose from {', '.join(DOMAINS)}")

    @property
    def domain_names(self) -> tuple[str, ...]:
        """The domains of the scenes."""
        return tuple(self.domains.split(","))

    @property
    def choices(self) -> Choices:
        """The values of the factors that the judge predicts."""
        return CHOICES if len(self.domain_names) == 1 else FACTORS


def train(scenes: Scenes, settings: JudgeSettings) -> nn.Module:
    """Train a network with progress on stderr, from scratch or from ``settings.start``."""
    import torch
    from torch.nn.functional import avg_pool2d, cross_entropy, pad

    torch.manual_seed(derive(settings.seed, "zoo", "judge") % 2**63)
    choices = settings.choices
    network = build_network(choices).train()
    if settings.start:
        # In the last layer only the rows of the other judge's factors.
        other, weights = load_judge(resolve(settings.start)), network.state_dict()
        for name, value in other.network.state_dict().items():
            if weights[name].shape == value.shape:
                weights[name].copy_(value)
                continue
            into = split_logits(weights[name][None], choices)
            for kind, source in split_logits(value[None], other.choices).items():
                into[kind].copy_(source)
    optimizer = torch.optim.AdamW(network.parameters(), lr=settings.lr, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
    labels = {kind: torch.from_numpy(label(scenes.factors, kind)) for kind in choices}
    rng = generator(settings.seed, "zoo", "judge", "order")

    def loss(step: int) -> Tensor:
        rows = rng.choice(len(scenes.pixels), settings.batch_size, replace=True)
        images = normalise(scenes.pixels[rows])
        # Blur some pictures, and add noise with a standard deviation of up to 0.2 to each.
        chosen = torch.from_numpy(rng.random(len(images)) < 0.3)[:, None, None, None]
        blurred = avg_pool2d(pad(images, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
        strength = rng.uniform(0, 0.2, (len(images), 1, 1, 1)).astype(np.float32)
        noise = rng.standard_normal(images.shape, dtype=np.float32) * strength
        worse = torch.where(chosen, blurred, images) + torch.from_numpy(noise)
        parts = split_logits(network(worse), choices)
        return sum(
            (cross_entropy(parts[k], labels[k][rows]) for k in choices), start=torch.zeros(())
        )

    descend(network, loss, optimizer, schedule, settings.steps, "judge")
    return network


def evaluate(judge: Judge, scenes: Scenes) -> dict[str, float]:
    """Return the judge's accuracy on scenes, for every factor and for all at once."""
    right = compare_factors(judge.factors(scenes.pixels), scenes.factors, FACTORS)
    shares = {f"{kind}_acc1": float(right[kind].mean()) for kind in judge.choices}
    every = np.logical_and.reduce(list(right.values()))
    return {"n": len(every), **shares, "all_acc1": float(every.mean())}


def main(argv: list[str]) -> int:
    """Train, evaluate and write one judge with its ``card.json``."""
    import torch
    from safetensors.torch import save_file

    settings = read(JudgeSettings, argv)
    with fresh_folder(settings.out) as folder:
        started = time.perf_counter()
        drawn = partial(
            draw, settings.seed, domains=settings.domain_names, processes=settings.processes
        )
        scenes = drawn("judge", settings.scenes)
        if settings.vae:
            # Reconstructions of a third of the scenes.
            from diffusers import AutoencoderKL

            from zoo.diffusion_vae import reconstruct

            count = len(scenes.pixels) // 3
            vae = from_folder(AutoencoderKL, Path(settings.vae), low_cpu_mem_usage=False).float()
            shown = reconstruct(vae.eval(), scenes.pixels[:count])
            scenes = Scenes(
                np.concatenate([scenes.pixels, shown]), [*scenes.factors, *scenes.factors[:count]]
            )
            # Its path is the caller's; the README of the zoo says which model it is.
            settings = replace(settings, vae="FOLDER/vae")
        network = train(scenes, settings)
        seconds = round(time.perf_counter() - started, 1)
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: w.to(torch.float16) for name, w in network.state_dict().items()}
        save_file(weights, folder / "judge.safetensors")
        (folder / "config.json").write_text(
            json.dumps(network_config(settings.choices), indent=2) + "\n", encoding="utf-8"
        )
        metrics = evaluate(load_judge(folder), drawn("held-out", settings.held_out))
        facts = {"metrics": metrics, "seconds": seconds, "parameters": count_parameters(network)}
        write_card(folder, "factor_classifier", settings, facts, libraries=("torch",))
    return 0
