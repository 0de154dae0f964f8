"""The opened sources that data settings name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.mixture.human_labels import Labels


@dataclass(frozen=True)
class Sources:
    """The opened sources of data settings; ``None`` for a source that is not needed.

    Attributes:
        real: the index of ``data.real``.
        counterfactual: the index of ``data.counterfactual``.
        control: the index of ``data.control_source``.
        labels: the labels that ``data.human_labels`` names.
    """

    real: Index | None
    counterfactual: Index | None
    control: Index | None = None
    labels: Labels | None = None
