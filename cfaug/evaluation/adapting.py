"""Load models by the protocol that a benchmark needs, or adapt them to it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from cfaug.core.protocols import Classifier, DualEncoder, FeatureExtractor, NoModel
from cfaug.evaluation.benchmark import AlsoAccepts, Prompted

if TYPE_CHECKING:
    from torch import Tensor

    from cfaug.core.pixels import ImageTransform
    from cfaug.core.protocols import Benchmark


class ImageTower:
    """The image tower of a dual encoder as a :class:`cfaug.core.protocols.FeatureExtractor`.

    Args:
        encoder: the dual encoder; its embeddings are not normalised.
    """

    def __init__(self, encoder: DualEncoder) -> None:
        self._encoder = encoder

    @property
    def transform(self) -> ImageTransform:
        """The encoder's own image transform."""
        return self._encoder.transform

    def extract(self, pixels: Tensor) -> Tensor:
        """Return the embeddings of uint8 pixels (n, 3, size, size), float (n, dim)."""
        return self._encoder.encode_image(pixels)


def loadable_as(benchmark: Benchmark, provides: Collection[type]) -> type | None:
    """Return the protocol by which to load a model for a benchmark; ``None`` if there is none.

    A benchmark that needs no model works with any.

    Args:
        provides: the protocols by which the model can be loaded.
    """
    if benchmark.needs in provides or benchmark.needs is NoModel:
        return benchmark.needs
    others = benchmark.also_accepts if isinstance(benchmark, AlsoAccepts) else ()
    for protocol in others:
        if protocol in provides:
            return protocol
    prompted = benchmark.needs is Classifier and isinstance(benchmark, Prompted)
    adapted = prompted or benchmark.needs is FeatureExtractor
    return DualEncoder if adapted and DualEncoder in provides else None


def adapt(model: Any, benchmark: Benchmark, protocol: type) -> Any:
    """Return a model in the form that the benchmark needs.

    Args:
        model: the model, loaded by ``protocol``.
        protocol: the protocol that ``loadable_as`` returned for the benchmark.
    """
    also = isinstance(benchmark, AlsoAccepts) and protocol in benchmark.also_accepts
    if protocol is benchmark.needs or also:
        return model
    if benchmark.needs is FeatureExtractor:
        return ImageTower(model)
    from cfaug.evaluation.inference import ZeroShotClassifier

    assert isinstance(benchmark, Prompted)
    return ZeroShotClassifier(model, benchmark.prompted)
