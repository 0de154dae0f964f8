"""What the training command takes."""

from __future__ import annotations

from dataclasses import dataclass

from cfaug.zoo.fitting import Rates


@dataclass(frozen=True, kw_only=True)
class RowSettings:
    """What the command of the rows takes, as ``name=value``.

    Attributes:
        out: file to write, JSON lines.
        seed: of the captions held out, and of those that are drawn.
        captions: number of captions, without repetitions.
        variations: most edits of one caption by one prompt.
        held_out: share of the scenes that occur in no caption and no edit.
    """

    out: str
    seed: int = 0
    captions: int = 3000
    variations: int = 5
    held_out: float = 0.2


@dataclass(frozen=True, kw_only=True)
class PerturberSettings(Rates):
    """What the command takes, as ``name=value``.

    Attributes: those of :class:`cfaug.zoo.fitting.Rates`, for the base model, and
        out: folder to write, with ``base`` in it; must not exist.
        seed: of the scenes held out, the weights, the texts and their order.
        captions: as for the rows.
        variations: as for the rows.
        held_out: as for the rows.
        base_steps: of the base model, on lists of captions.
        tune_steps: at most, on the rows, by ``cfaug.train``.
        tune_lr: peak rate of the tuning.
        tune_batch: answers of a step of the tuning.
        tested: held-out captions that the card's shares are of.
    """

    out: str
    seed: int = 0
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
        """Settings of the rows it is tuned on."""
        return RowSettings(
            out=self.out, seed=self.seed, captions=self.captions,
            variations=self.variations, held_out=self.held_out,
        )  # fmt: skip
