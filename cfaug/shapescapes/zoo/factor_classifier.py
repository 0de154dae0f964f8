"""The judge of clear 64 px pictures, and its training.

``python -m cfaug zoo factor_classifier out=FOLDER seed=0``. It is a small convolutional network
with a head for each factor, and replaces the oracle for generated pictures, since their factors are
unknown. So that its training data resemble generated pictures, it also learns from blurred, noisy
and re-encoded scenes (``vae=FOLDER``, an autoencoder of ``cfaug.shapescapes.zoo.diffusion``).
``domains=photo,sketch,...`` trains one that predicts the domain as well, possibly from another
judge's weights (``start=zoo:judge``).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfaug.core.errors import UserError
from cfaug.core.rng import derive, generator
from cfaug.core.safety.json_text import json_file
from cfaug.core.safety.safe_loading import from_folder
from cfaug.core.validation import Seed
from cfaug.core.weights import resolve
from cfaug.shapescapes.settings import CHOICES, DOMAINS, FACTORS, PHOTO, Factors
from cfaug.shapescapes.zoo.command import (
    count_parameters,
    descend,
    fresh_folder,
    read,
    write_card,
)
from cfaug.shapescapes.zoo.scenes import Pixels, Scenes, compare_factors, draw, label, normalise

if TYPE_CHECKING:
    from torch import Tensor, nn

WEIGHTS = Path(__file__).parent / "weights" / "judge"
DOMAIN_WEIGHTS = WEIGHTS.with_name("judge-domains")
"""A judge of pictures in every domain."""

Choices = Mapping[str, tuple[str, ...]]

WIDTHS = (24, 48, 96, 96)
BATCH = 200


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


def build_network(choices: Choices = CHOICES) -> nn.Module:
    """Return the network with initial weights.

    It maps pictures (n, 3, 64, 64) in [-1, 1] to logits (n, values of all factors together).
    """
    from torch import nn

    layers: list[nn.Module] = []
    width = 3
    for i, wider in enumerate(WIDTHS):
        stride = 2 if i < 3 else 1
        layers += [
            nn.Conv2d(width, wider, 3, stride=stride, padding=1),
            nn.GroupNorm(1, wider),
            nn.SiLU(),
        ]
        width = wider
    # 8 x 8 cells are pooled only to 4 x 4, as shape depends on position.
    layers += [nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16 * width, 64), nn.SiLU()]
    return nn.Sequential(*layers, nn.Linear(64, sum(map(len, choices.values()))))


@dataclass(frozen=True)
class Judge:
    """A classifier of subject, colour and background of clear pictures, and possibly of domains."""

    network: nn.Module
    choices: Choices = field(default_factory=lambda: CHOICES)

    def probabilities(self, pixels: Pixels) -> dict[str, NDArray[np.float32]]:
        """Return the probabilities of every factor's values, (n, values); rows sum to 1.

        Args:
            pixels: the pictures, uint8 (n, 3, 64, 64).
        """
        import torch

        if pixels.dtype != np.uint8 or pixels.shape[1:] != (3, 64, 64):
            raise UserError(
                f"the judge takes uint8 pixels (n, 3, 64, 64), not {pixels.dtype} {pixels.shape}"
            )
        with torch.inference_mode():
            batches = (pixels[start : start + BATCH] for start in range(0, len(pixels), BATCH))
            logits = torch.cat([self.network(normalise(batch)) for batch in batches])
            parts = _split(logits, self.choices)
            return {kind: part.softmax(dim=1).numpy() for kind, part in parts.items()}

    def factors(self, pixels: Pixels) -> list[Factors]:
        """Return the most probable factors of every picture, uint8 (n, 3, 64, 64)."""
        best = {kind: p.argmax(axis=1) for kind, p in self.probabilities(pixels).items()}
        return [
            Factors(**{kind: names[best[kind][i]] for kind, names in self.choices.items()})
            for i in range(len(pixels))
        ]


def load_judge(folder: Path = WEIGHTS) -> Judge:
    """Load a judge, the shipped one by default."""
    from safetensors.torch import load_file

    path = folder / "judge.safetensors"
    if not path.exists():
        raise UserError(
            f"no judge in {folder}: train one with python -m cfaug zoo factor_classifier out=FOLDER"
        )
    config = json_file(folder / "config.json")
    choices = next((known for known in (CHOICES, FACTORS) if config == _config(known)), None)
    if choices is None:
        raise UserError(
            f"the judge in {folder} knows another world: train one with "
            "python -m cfaug zoo factor_classifier out=FOLDER"
        )
    network = build_network(choices)
    network.load_state_dict({name: value.float() for name, value in load_file(path).items()})
    return Judge(network.eval().requires_grad_(False), choices)


def _config(choices: Choices) -> dict[str, Any]:
    """Return the meaning of the logits, in order, and the width of the network."""
    factors = {kind: list(names) for kind, names in choices.items()}
    return {"widths": list(WIDTHS), "factors": factors}


def _split(logits: Tensor, choices: Choices) -> dict[str, Tensor]:
    """Split logits (n, values of all factors) by factor."""
    sizes = [len(names) for names in choices.values()]
    return dict(zip(choices, logits.split(sizes, dim=1), strict=True))


def _worsen(images: Tensor, rng: np.random.Generator) -> Tensor:
    """Blur some pictures, and add noise with a standard deviation of up to 0.2 to each."""
    import torch
    from torch.nn.functional import avg_pool2d, pad

    chosen = torch.from_numpy(rng.random(len(images)) < 0.3)[:, None, None, None]
    blurred = avg_pool2d(pad(images, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    strength = rng.uniform(0, 0.2, (len(images), 1, 1, 1)).astype(np.float32)
    noise = rng.standard_normal(images.shape, dtype=np.float32) * strength
    return torch.where(chosen, blurred, images) + torch.from_numpy(noise)


def train(scenes: Scenes, settings: JudgeSettings) -> nn.Module:
    """Train a network with progress on stderr, from scratch or from ``settings.start``."""
    import torch
    from torch.nn.functional import cross_entropy

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
            into = _split(weights[name][None], choices)
            for kind, source in _split(value[None], other.choices).items():
                into[kind].copy_(source)
    optimizer = torch.optim.AdamW(network.parameters(), lr=settings.lr, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
    labels = {kind: torch.from_numpy(label(scenes.factors, kind)) for kind in choices}
    rng = generator(settings.seed, "zoo", "judge", "order")

    def loss(step: int) -> Tensor:
        rows = rng.choice(len(scenes.pixels), settings.batch_size, replace=True)
        parts = _split(network(_worsen(normalise(scenes.pixels[rows]), rng)), choices)
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

            from cfaug.shapescapes.zoo.diffusion_vae import reconstruct

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
            json.dumps(_config(settings.choices), indent=2) + "\n", encoding="utf-8"
        )
        metrics = evaluate(load_judge(folder), drawn("held-out", settings.held_out))
        facts = {"metrics": metrics, "seconds": seconds, "parameters": count_parameters(network)}
        write_card(folder, "factor_classifier", settings, facts, libraries=("torch",))
    return 0
