"""The answers of classifiers to a stress test, for LANCE's tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cfaug.lance.stress_items import StressItems
from cfaug.report.arm_results import Runs
from cfaug.report.paper_tables import ModelsTable

COMMANDS = (
    "python generate.py recipe=lance data.source=PHOTOS paths.shards=shards/lance",
    "python generate.py recipe=lance_r data.source=PHOTOS paths.shards=shards/lance_r",
    "python evaluate.py model=timm weights=resnet50 benchmark=stress benchmark.data=shards/lance "
    "benchmark.random=shards/lance_r",
)


@dataclass(frozen=True, kw_only=True)
class StressTable(ModelsTable):
    """A table of the answers to a stress test; arguments as for ``ModelsTable``."""

    benchmark: str = "stress"
    commands: Sequence[str] = COMMANDS

    def read(self, runs: Runs) -> dict[str, list[tuple[Path, StressItems]]]:
        """Return the answers of each classifier, one per checkpoint, with the checkpoint's folder.

        Raises:
            UserError: if items cannot be read.
        """
        return self.answers(runs, StressItems)
