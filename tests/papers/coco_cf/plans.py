"""What the paper's plans draw of sources of its sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfaug.data.mixture.mixture import mix
from cfaug.data.mixture.records import Mixture
from cfaug.data.mixture.settings import PlanData, Sources
from cfaug.papers.coco_cf.mixtures import PaperMixture
from tests.data.making import Columns

PLANS = ("real", "base", "medium", "all", "human_validated")
VALIDATED = 25_482
"""How many rows people validated."""


def settings_of(plan: str, **more: Any) -> PlanData:
    given = {"seed": 108, "human_labels": "labels" if plan == "human_validated" else None}
    return PlanData("real", "cf", plan=PaperMixture(plan), **(given | more))


class Validated:
    """Labels that validate the first so many rows of a fixed shuffle."""

    def __init__(self, count: int) -> None:
        self.count = count

    def find_validated(self, index: Columns) -> np.ndarray:
        mask = np.zeros(len(index), bool)
        mask[np.random.default_rng(0).permutation(len(index))[: self.count]] = True
        return mask


def mixed(
    plan: str, real: Columns, cf: Columns, labels: Validated | None = None, **more: Any
) -> Mixture:
    asked = settings_of(plan, **more)
    return mix(asked, Sources(real, cf if asked.needed[1] else None, labels=labels))
