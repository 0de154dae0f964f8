"""Models as what a benchmark needs: loaded so, or made so of what they can be loaded as."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from cfaug.bench.capabilities import Prompted
from cfaug.protocols import Classifier, DualEncoder

if TYPE_CHECKING:
    from cfaug.protocols import Benchmark


def loadable_as(benchmark: Benchmark, provides: Collection[type]) -> type | None:
    """Return the protocol as which a model is loaded to be asked; ``None`` where there is none.

    Args:
        benchmark: what it is asked.
        provides: the protocols that the model can be loaded as.
    """
    if benchmark.needs in provides:
        return benchmark.needs
    prompted = benchmark.needs is Classifier and isinstance(benchmark, Prompted)
    return DualEncoder if prompted and DualEncoder in provides else None


def adapt(model: Any, benchmark: Benchmark, protocol: type) -> Any:
    """Return a model as what the benchmark needs.

    Args:
        model: as loaded.
        benchmark: what it is asked.
        protocol: that it was loaded as: what ``loadable_as`` gave.
    """
    if protocol is benchmark.needs:
        return model
    from cfaug.bench.zero_shot import ZeroShotClassifier

    assert isinstance(benchmark, Prompted)
    return ZeroShotClassifier(model, benchmark.prompted)
