"""Warnings from a model's preset about a run's settings, before anything starts.

``conf/preset`` has optimizer, batch size and length for a kind of model; a model's file names its
preset. Composition fills the settings from it, so a run only has numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from cfaug.core.errors import UserError
from cfaug.run.binding import Node

if TYPE_CHECKING:
    from cfaug.train.settings import OptimSettings

FAR = 100
"""Factor between a learning rate and the preset's, either way, from which a warning is printed; a
factor of 1,200 destroyed a CLIP without any message."""


class LearningRate(TypedDict):
    """A learning rate by itself."""

    lr: float


class Preset(TypedDict):
    """The settings in ``conf/preset`` for a kind of model."""

    optim: Node
    trainer: Node
    lora: LearningRate
    batch_size: int


def notes(
    preset: Mapping[str, Any], optim: Mapping[str, Any], tuning: Mapping[str, Any] | None
) -> list[str]:
    """Return warnings about a run's settings before it starts, one sentence each.

    Args:
        preset: the node that the model's file adds, with ``optim.lr`` and ``lora.lr``.
        optim: the settings of the run.
        tuning: the settings of ``tuning``; with adapters the rate for adapters is compared.

    >>> notes({"optim": {"lr": 5e-7}, "lora": {"lr": 2e-4}}, {"lr": 6e-4}, None)[0][:62]
    "optim.lr=0.0006 is 1,200 times the rate of this model's preset"
    """
    adapters = bool(tuning and tuning.get("lora"))
    usual = preset.get("lora" if adapters else "optim", {}).get("lr")
    lr = optim.get("lr")
    if not isinstance(usual, int | float) or not isinstance(lr, int | float) or lr <= 0:
        return []
    factor = lr / usual
    if 1 / FAR < factor < FAR:
        return []
    times = f"{factor:,.0f} times" if factor > 1 else f"1/{1 / factor:,.0f} of"
    harm = "likely destroys what the model knew" if factor > 1 else "likely changes nothing"
    return [
        f"optim.lr={lr:g} is {times} the rate of this model's preset, {usual:g}: it {harm}; "
        "without optim=... and optim.lr=... the preset's is taken"
    ]


def check_warmup(overrides: Sequence[str], optim: OptimSettings, steps: int) -> str | None:
    """Return a warning if the learning rate never reaches its peak, as the warm-up is longer.

    Args:
        overrides: the words of this run's command line.
        optim: the optimizer's settings.
        steps: the number of steps of the run.

    Raises:
        UserError: if the warm-up was typed.
    """
    warmup = optim.warmup(steps)
    if not steps or warmup < steps:
        return None
    reached = optim.lr * optim.factor(steps - 1, steps)  # it rises until the end
    said = (
        f"the warm-up of {warmup:,} steps is as long as the run of {steps:,} steps, or longer: the "
        f"learning rate is at most {reached:.3g}, and never optim.lr={optim.lr:g}"
    )
    if any(word.startswith(("optim.warmup_steps=", "optim.warmup_ratio=")) for word in overrides):
        raise UserError(f"{said}: give a shorter warm-up, or more trainer.max_steps")
    return f"{said}; optim.warmup_steps=0 starts at the full rate"


def check_scale(model: Mapping[str, Any]) -> str | None:
    """Return a warning if a bound keeps the logit scale, exp(log scale), below 1."""
    upper = model.get("logit_scale_max")
    if not isinstance(upper, int | float) or upper >= 0:
        return None
    return (
        f"model.logit_scale_max={upper:g} is the bound of a logarithm: logits are cosines times "
        f"{math.exp(upper):.3g} at most, which hardly tells captions apart; CLIP's is 4.6052"
    )


def refuse_ignored_epochs(overrides: Sequence[str], trainer: Mapping[str, Any]) -> None:
    """Refuse a typed number of epochs that the preset's number of steps would override.

    Args:
        overrides: the words of this run's command line.
        trainer: the composed settings.

    Raises:
        UserError: naming the setting to add.
    """
    typed = {override.split("=", 1)[0] for override in overrides}
    steps = trainer.get("max_steps")
    asked = "trainer.max_epochs" in typed and trainer.get("max_epochs") is not None
    if asked and steps is not None:
        raise UserError(
            f"trainer.max_epochs={trainer['max_epochs']} has no effect beside "
            f"trainer.max_steps={steps}, which takes precedence: add trainer.max_steps=null"
        )
