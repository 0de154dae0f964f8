"""The training loop of the tiny models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from cfaug.progress import watch

if TYPE_CHECKING:
    from torch import Tensor, nn


class Schedule(Protocol):
    """How long and how fast: part of every command's settings."""

    @property
    def steps(self) -> int:
        """Optimiser steps."""
        ...

    @property
    def lr(self) -> float:
        """The peak learning rate, reached after ``warmup`` steps, then a cosine down to 0."""
        ...

    @property
    def warmup(self) -> int:
        """Steps of linear warm-up."""
        ...

    @property
    def weight_decay(self) -> float:
        """AdamW's, on matrices only."""
        ...


@dataclass(frozen=True)
class Rates:
    """A schedule by itself, for a command that trains several models."""

    steps: int
    lr: float
    warmup: int
    weight_decay: float


def fit(
    model: nn.Module,
    loss: Callable[[int], Tensor],
    schedule: Schedule,
    what: str = "pre-training",
) -> None:
    """Train ``model`` in place with AdamW, the gradient's norm bounded by 1; progress on stderr.

    Args:
        model: whose parameters are trained.
        loss: of a step, a scalar.
        schedule: how long and how fast.
        what: is trained, beside the bar.

    Raises:
        FloatingPointError: if a loss is not finite.
    """
    import torch

    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": schedule.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=schedule.lr,
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(schedule, step))
    for step in watch(range(schedule.steps), what, schedule.steps, "steps"):
        value = loss(step)
        if not torch.isfinite(value):
            raise FloatingPointError("the loss is not finite: lower lr")
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()


def _rate(schedule: Schedule, step: int) -> float:
    if step < schedule.warmup:
        return (step + 1) / schedule.warmup
    done = (step - schedule.warmup) / max(1, schedule.steps - schedule.warmup)
    return float(0.5 * (1 + np.cos(np.pi * done)))
