"""What to train on: the configuration node ``data``. No heavy imports."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cfaug.errors import UserError

if TYPE_CHECKING:
    from cfaug.data.mixture import Mixture, Rows


@dataclass(frozen=True)
class DataSettings:
    """Two sources, their exact mixture, and how it is read.

    Args:
        real: a folder in any form ``cfaug.data.sources`` knows, or ``shapescapes:PART``.
        counterfactual: the same; every member of a set counts, the unedited one too.
        counterfactual_members: ``all``, or ``unedited``: the first of each set, a control that has
            the synthetic images but not the edits.
        cf_ratio: share of the training split that comes from ``counterfactual``, exactly.
        size: examples before the split; ``None`` is the most that fit without repetition.
        seed: draws the mixture and the world; ``None`` is the run's seed + 1.
        batch_size: global, over all ranks together.
        workers: processes that read and decode; the order never depends on them.
        validation: share held out, in [0, 1).
        stratify: give every batch its share of counterfactuals, not only the epoch.
        pairs_in_batch: keep the members of a counterfactual set in one batch.
        drop_last: leave out an epoch's last, partial batch.
        shuffle: ``global``, or ``window(K)``: only K shards are touched at a time.
        world: settings of the embedded world, for ``shapescapes:PART``.
    """

    real: str | None
    counterfactual: str | None
    cf_ratio: float = 0.5
    size: int | None = None
    seed: int | None = None
    batch_size: int = 64
    workers: int = 0
    validation: float = 0.2
    stratify: bool = False
    pairs_in_batch: bool = False
    drop_last: bool = False
    shuffle: str = "global"
    world: Any = None
    counterfactual_members: Literal["all", "unedited"] = "all"

    def __post_init__(self) -> None:
        check_ratio(self.cf_ratio)
        if self.counterfactual_members not in ("all", "unedited"):
            raise UserError(
                f"data.counterfactual_members={self.counterfactual_members}: choose all or unedited"
            )
        if not _is_number(self.validation) or not 0 <= self.validation < 1:
            raise UserError(f"data.validation={self.validation} must be in [0, 1)")
        for name, lowest in (("batch_size", 1), ("workers", 0), ("size", 1), ("seed", None)):
            value = getattr(self, name)
            if value is None and name in {"size", "seed"}:
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                raise UserError(f"data.{name}={value!r} must be a whole number")
            if lowest is not None and value < lowest:
                raise UserError(f"data.{name}={value} must be at least {lowest}")
        if self.stratify and self.pairs_in_batch:
            raise UserError("data.stratify and data.pairs_in_batch exclude each other: choose one")
        self.window()

    def mix(self, real: Rows | None, counterfactual: Rows | None) -> Mixture:
        """Draw the training and validation rows of these settings, whose seed is known.

        Raises:
            UserError: if there are not enough examples.
        """
        from cfaug.data.mixture import plan_mixture

        assert self.seed is not None
        return plan_mixture(
            real,
            counterfactual,
            cf_ratio=self.cf_ratio,
            size=self.size,
            seed=self.seed,
            validation=self.validation,
            unedited_only=self.counterfactual_members == "unedited",
        )

    def steps_per_epoch(self, rows: int) -> int:
        """Return how many global batches an epoch of ``rows`` examples has.

        >>> DataSettings(None, None, batch_size=64).steps_per_epoch(130)
        3

        Raises:
            UserError: if there is none.
        """
        whole, part = divmod(rows, self.batch_size)
        steps = whole + bool(part and not self.drop_last)
        if not steps:
            raise UserError(
                f"data.drop_last=true leaves no batch: {rows} training examples are less than "
                f"data.batch_size={self.batch_size}"
            )
        return steps

    def window(self) -> int | None:
        """Return how many shards are shuffled together, or None for all.

        >>> DataSettings(None, None, shuffle="window(8)").window()
        8
        """
        if self.shuffle == "global":
            return None
        found = re.fullmatch(r"window\(([1-9]\d*)\)", str(self.shuffle))
        if not found:
            raise UserError(
                f"data.shuffle={self.shuffle!r}: choose global or window(K), as in window(8)"
            )
        return int(found[1])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_ratio(cf_ratio: float) -> None:
    """Refuse a ratio that is no share.

    Raises:
        UserError: unless it is a number in [0, 1].
    """
    if not _is_number(cf_ratio) or not 0 <= cf_ratio <= 1:
        raise UserError(f"data.cf_ratio={cf_ratio} must be a number in [0, 1]")
