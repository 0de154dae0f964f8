"""What a task, its module and the training around them share. No torch at import."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from cfaug.train.settings import OptimSettings

Batch = Mapping[str, Any]
"""This process's share of a global batch, in the form that a task's plan and module agree on;
``global_size`` is the number of examples over all processes."""


@dataclass(frozen=True)
class Steps:
    """The settings of a run's optimizer steps.

    Args:
        total: the number of optimizer steps of the whole run, which is the length of the schedule;
            ``None`` for a Trainer of one's own, which is asked for it. Only then are losses logged
            by Lightning, as ``train/loss`` and ``val/loss``.
        gradient_clip: the largest norm of the whole gradient; ``None`` leaves it to the Trainer's
            ``gradient_clip_val``.
        seed: the run's seed; dropout depends only on it, the step and the rank.
        parts: the number of batches of an optimizer step; several are given as a list.
    """

    optim: OptimSettings = field(default_factory=OptimSettings)
    total: int | None = None
    gradient_clip: float | None = None
    seed: int = 0
    parts: int = 1


@dataclass(frozen=True)
class Plan:
    """The batches of a run, as a function of the step alone.

    Args:
        training: a function that maps a first batch (from 0), a rank and the number of processes to
            an endless stream: the rank's shares of that batch and of all later ones.
        validation: a function that maps a rank and the number of processes to the rank's shares of
            the validation split; ``None`` if the split is empty.
        total_steps: the number of optimizer steps of the whole run, each with as many batches as
            are accumulated.
    """

    training: Callable[[int, int, int], Iterable[Batch]]
    validation: Callable[[int, int], Iterable[Batch]] | None
    steps_per_epoch: int
    total_steps: int


class Trainable(Protocol):
    """An ``nn.Module`` around a library's ``model``, which a task loads for training.

    Attributes:
        model: the library's model, with the parameters that are trained or frozen.
        held_in_evaluation: modules that stay in evaluation mode (frozen statistics).
    """

    model: Any
    held_in_evaluation: tuple[Any, ...]

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Load weights that ``state_dict`` returned."""
        ...
