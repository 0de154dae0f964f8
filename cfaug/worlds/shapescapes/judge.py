"""The judge of clear 64 px pictures: which factors of the world does a picture show?

It replaces the oracle for generated pictures, whose factors are unknown. ``zoo.factor_classifier``
trains it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfaug.core.errors import UserError
from cfaug.core.safety.json_text import json_file
from cfaug.core.weights import zoo_shelf
from cfaug.worlds.shapescapes.settings import CHOICES, FACTORS, Factors

if TYPE_CHECKING:
    from torch import Tensor, nn

WEIGHTS = zoo_shelf() / "judge"
DOMAIN_WEIGHTS = WEIGHTS.with_name("judge-domains")
"""A judge of pictures in every domain."""

Choices = Mapping[str, tuple[str, ...]]
Pixels = NDArray[np.uint8]

WIDTHS = (24, 48, 96, 96)
BATCH = 200


def normalise(pixels: Pixels) -> Tensor:
    """Scale uint8 pixels to float32 in [-1, 1]."""
    import torch

    return torch.from_numpy(pixels).float() / 127.5 - 1


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
            parts = split_logits(logits, self.choices)
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
            f"no judge in {folder}: train one with python -m zoo factor_classifier out=FOLDER"
        )
    config = json_file(folder / "config.json")
    choices = next((known for known in (CHOICES, FACTORS) if config == network_config(known)), None)
    if choices is None:
        raise UserError(
            f"the judge in {folder} knows another world: train one with "
            "python -m zoo factor_classifier out=FOLDER"
        )
    network = build_network(choices)
    network.load_state_dict({name: value.float() for name, value in load_file(path).items()})
    return Judge(network.eval().requires_grad_(False), choices)


def network_config(choices: Choices) -> dict[str, Any]:
    """Return the meaning of the logits, in order, and the width of the network."""
    factors = {kind: list(names) for kind, names in choices.items()}
    return {"widths": list(WIDTHS), "factors": factors}


def split_logits(logits: Tensor, choices: Choices) -> dict[str, Tensor]:
    """Split logits (n, values of all factors) by factor."""
    sizes = [len(names) for names in choices.values()]
    return dict(zip(choices, logits.split(sizes, dim=1), strict=True))
