"""The settings of the training command."""

from __future__ import annotations

from dataclasses import dataclass

from cfaug.core.validation import Seed
from cfaug.shapescapes.zoo.command import Rates


@dataclass(frozen=True, kw_only=True)
class RowSettings:
    """The settings of the command that writes rows, given as ``name=value``.

    Attributes:
        out: the JSON Lines file to write.
        seed: the seed of the held-out and the drawn captions.
        captions: the number of captions, without repetitions.
        variations: the largest number of edits of one caption by one prompt.
        held_out: the share of scenes that occur in no caption and no edit.
    """

    out: str
    seed: Seed = 0
    captions: int = 3000
    variations: int = 5
    held_out: float = 0.2


@dataclass(frozen=True, kw_only=True)
class PerturberSettings(Rates):
    """The settings of the command, given as ``name=value``.

    Attributes: those of :class:`cfaug.shapescapes.zoo.command.Rates`, for the base model, and
        out: the folder to write, with ``base`` in it; must not exist.
        seed: the seed of the held-out scenes, the weights, the texts and their order.
        captions: the setting of :class:`RowSettings`.
        variations: the setting of :class:`RowSettings`.
        held_out: the setting of :class:`RowSettings`.
        base_steps: the base model's number of steps on lists of captions.
        tune_steps: the largest number of steps of the tuning on rows, by ``cfaug.train``.
        tune_lr: the peak of the tuning's learning rate.
        tune_batch: the number of answers in a step of the tuning.
        tested: the number of held-out captions that the card's shares are measured on.
    """

    out: str
    seed: Seed = 0
    captions: int = 3000
    variations: int = 5
    held_out: float = 0.2
    batch_size: int = 16
    lr: float = 8e-3
    warmup: int = 50
    weight_decay: float = 0.01
    base_steps: int = 300
    tune_steps: int = 700
    tune_lr: float = 5e-3
    tune_batch: int = 16
    tested: int = 60

    @property
    def rows(self) -> RowSettings:
        """The settings of the rows for the tuning."""
        return RowSettings(
            out=self.out, seed=self.seed, captions=self.captions,
            variations=self.variations, held_out=self.held_out,
        )  # fmt: skip
