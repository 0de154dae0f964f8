"""CLIP as a judge, loaded when it is first asked: a part that is done never pays for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from cfaug.devices import check_device, choose_device
from cfaug.protocols import DualEncoder

if TYPE_CHECKING:
    from torch import Tensor

    from cfaug.models.specs import ModelSpec
    from cfaug.score.clip import ClipScorer


@dataclass(frozen=True)
class LazyScorer:
    """A :class:`cfaug.protocols.Scorer` on a model that the configuration names.

    Args:
        model: which one.
        preprocessing: ``ip2p`` or ``standard``.
        device: see ``cfaug.devices.choose_device``; ``auto`` is CUDA where there is one.

    Raises:
        UserError: for what is the name of no device.
    """

    model: ModelSpec
    preprocessing: Literal["ip2p", "standard"]
    device: str = "auto"

    def __post_init__(self) -> None:
        check_device(self.device, "scorer.device")

    @cached_property
    def _scorer(self) -> ClipScorer:
        from cfaug.score.clip import ClipScorer

        device = choose_device(self.device, "scorer.device")
        encoder = self.model.load(DualEncoder).to(device).eval()
        return ClipScorer(encoder, self.preprocessing, about=self._about)

    @cached_property
    def _about(self) -> dict[str, str]:
        return {"clip": str(self.model), "sha256": self.model.weights_hash()}

    def texts(self, texts: Sequence[str]) -> Tensor:
        """Embed texts: (n, dim)."""
        return self._scorer.texts(texts)

    def images(self, images: Tensor) -> Tensor:
        """Embed images float32 (n, 3, H, W) in [0, 1]: (n, dim)."""
        return self._scorer.images(images)

    def describe(self) -> dict[str, str]:
        """Return the model's settings, the hash of its weights, and how images reach it."""
        return {**self._about, "preprocessing": self.preprocessing}
