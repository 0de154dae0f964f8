"""The common base of benchmarks of one source: settings of a YAML, and how to open the source."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from cfaug.core.errors import UserError
from cfaug.core.messages import say_once
from cfaug.core.protocols import DualEncoder
from cfaug.core.read_with import FOLDER, TRAINED, ReadWith
from cfaug.core.types import Outcome
from cfaug.core.validation import Positive, check_fields
from cfaug.data.mixture.leakage import Leaks

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from cfaug.core.protocols import Benchmark
    from cfaug.data.index import Index
    from cfaug.evaluation.context import EvaluationContext


@dataclass
class SourceBenchmark(ABC):
    """A benchmark of one source; the class is the node of a YAML and, once opened, the benchmark.

    A subclass adds its settings as fields and defines ``prepare``, ``data_hash`` and ``run``.

    Args:
        data: a folder in any form ``data.real`` takes, or ``shapescapes:PART``.
        name: the name in tables, ending in the kind; ``None`` takes the folder's name.
        batch_size: number of images or texts computed at once.
        without_leaks: whether to leave out images that the run was trained on, or whose COCO photo
            it was trained on; otherwise they are only reported.

    Attributes:
        kind: the kind of the benchmark, with which its name ends.
        needs: the protocol of the models that the benchmark takes.
        whole_sets: whether sets are left out whole, as in tests of pairs.
        leaks: the images that the run was trained on; ``None`` where that is unknown.
    """

    data: str | None = None
    name: str | None = None
    batch_size: Positive = 256
    without_leaks: bool = False
    leaks: Leaks | None = field(default=None, init=False, repr=False)

    kind: ClassVar[str]
    needs: ClassVar[type] = DualEncoder
    whole_sets: ClassVar[bool] = False
    read_with: ClassVar[ReadWith] = {"without_leaks": {"data": FOLDER, TRAINED: (True,)}}

    def __post_init__(self) -> None:
        check_fields(self, "benchmark")

    def open(self, context: EvaluationContext) -> list[Benchmark]:
        """Open the source and return a list of this benchmark.

        Raises:
            UserError: if no folder is given, or it does not fit.
        """
        source = self.source()
        index = context.open(source)
        rows = self.choose_rows(context, source)
        if self.without_leaks:
            rows, leaks = context.without_leaks(source, rows, whole_sets=self.whole_sets)
        else:
            leaks = context.leaks(source, rows)
        opened = copy.copy(self)
        stem = self.name or Path(source).name.replace(":", "_")
        opened.name = f"{stem.removesuffix(f'_{self.kind}')}_{self.kind}"
        opened.leaks = leaks
        opened.prepare(context, index, rows)
        return cast("list[Benchmark]", [opened])

    def source(self) -> str:
        """Return the source to open.

        Raises:
            UserError: if no folder is given.
        """
        if self.data is None:
            raise UserError(f"benchmark={self.kind} needs benchmark.data=FOLDER")
        return self.data

    def choose_rows(self, context: EvaluationContext, source: str) -> np.ndarray | None:
        """Return the rows of the source to ask about; ``None`` for all."""
        return None

    @abstractmethod
    def prepare(self, context: EvaluationContext, index: Index, rows: np.ndarray | None) -> object:
        """Store the data that ``run`` evaluates; called once, on a copy of the node.

        Args:
            context: the run or checkpoint under test, which opens further sources.
            index: the open source.
            rows: the rows to use; ``None`` for all.
        """

    def outcome(self, metric: str, value: float, n: int) -> Outcome:
        """Return a fraction for which higher values are better."""
        return Outcome(str(self.name), metric, value, n)

    def mean_outcomes(self, hits: Mapping[str, np.ndarray]) -> list[Outcome]:
        """Return the mean of each metric over the items that count for it.

        Args:
            hits: {metric: float (items,)}, ``nan`` where an item does not count.
        """
        import numpy as np

        counted = {metric: values[~np.isnan(values)] for metric, values in hits.items()}
        return [self.outcome(m, float(values.mean()), len(values)) for m, values in counted.items()]


def paired_rows(name: str | None, index: Index, rows: np.ndarray | None) -> np.ndarray:
    """Return the rows of pairs, one pair after the other, int64 (2 * pairs,).

    A set of two members is one pair. In a larger set, the first member (the original) is paired
    with each of the others.

    Args:
        name: the benchmark's name, for the error.
        index: the source.
        rows: the rows to use; ``None`` for all.

    Raises:
        UserError: if a set has a single member.
    """
    import numpy as np

    chosen = np.arange(len(index)) if rows is None else rows
    sets = np.asarray(index.sets)[chosen]
    _, counts = np.unique(sets, return_counts=True)
    if not len(counts) or (counts < 2).any():
        raise UserError(
            f"{name}: every set must have two members or more; {index.source} has sets of "
            f"{sorted(set(counts.tolist()))}"
        )
    if (counts > 2).any():
        say_once(
            f"{name}: {index.source} has sets of up to {counts.max()} members; the first of a set "
            "is paired with each of the others"
        )
    ordered: np.ndarray = chosen[np.argsort(sets, kind="stable")]
    starts = np.cumsum(counts) - counts
    first = np.repeat(ordered[starts], counts - 1)
    return np.stack([first, np.delete(ordered, starts)], axis=1).reshape(-1)
