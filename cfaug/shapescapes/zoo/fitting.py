"""The training loop of the tiny models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.progress import watch
from cfaug.core.validation import Seed

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Settings of a tiny model's optimisation, which every training command has.

    Attributes:
        batch_size: the number of examples in a step.
        lr: the peak of the learning rate, reached after ``warmup`` steps; it then falls to 0 by a
            cosine.
        warmup: the number of steps of linear warm-up.
        weight_decay: AdamW's weight decay, on matrices only.
    """

    batch_size: int = 64
    lr: float = 2e-3
    warmup: int = 100
    weight_decay: float = 0.05


@dataclass(frozen=True, kw_only=True)
class FittingSettings(Rates):
    """Settings of a tiny model's optimisation and its length.

    Attributes: those of :class:`Rates`, and
        steps: the number of optimiser steps.
    """

    steps: int = 2_500


@dataclass(frozen=True, kw_only=True)
class DrawingSettings(FittingSettings):
    """Settings of a tiny model's training on drawings.

    Attributes: those of :class:`FittingSettings`, and
        out: the folder to write; must not exist yet.
        seed: the seed of the weights, the scenes and their order.
        scenes: the number of distinct training scenes.
        held_out: the number of scenes of the evaluation.
    """

    out: str
    seed: Seed = 0
    scenes: int = 12_000
    held_out: int = 800


def fit(
    model: nn.Module,
    loss: Callable[[int], Tensor],
    settings: FittingSettings,
    what: str = "pre-training",
) -> None:
    """Train ``model`` in place with AdamW and gradient norms of at most 1; progress on stderr.

    Args:
        model: the model to train.
        loss: a function that returns the loss of a step, a scalar.
        settings: the number of steps, the learning rate and the weight decay.
        what: the name of the model, shown beside the bar.

    Raises:
        FloatingPointError: if a loss is not finite.
    """
    import torch

    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": settings.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=settings.lr,
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(settings, step))
    descend(model, loss, optimizer, scheduler, settings.steps, what)


def descend(
    model: nn.Module,
    loss: Callable[[int], Tensor],
    optimizer: Optimizer,
    scheduler: LRScheduler,
    steps: int,
    what: str,
) -> None:
    """Train ``model`` in place with gradient norms of at most 1; progress on stderr.

    Args:
        model: the model to train.
        loss: a function that returns the loss of a step, a scalar.
        optimizer: the optimizer of the model's parameters.
        scheduler: the optimizer's scheduler, advanced after every step.
        steps: the number of steps.
        what: the name of the model, shown beside the bar.

    Raises:
        FloatingPointError: if a loss is not finite.
    """
    import torch

    for step in watch(range(steps), what, steps, "steps"):
        value = loss(step)
        if not torch.isfinite(value):
            raise FloatingPointError(f"the loss is not finite ({what}): lower lr")
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()


def _rate(settings: FittingSettings, step: int) -> float:
    if step < settings.warmup:
        return (step + 1) / settings.warmup
    done = (step - settings.warmup) / max(1, settings.steps - settings.warmup)
    return float(0.5 * (1 + np.cos(np.pi * done)))
