"""Stable Diffusion's optional safety checker, which flags images that should not be kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cfaug.core.devices import check_device, choose_device
from cfaug.imaging.model import load_part, load_tools
from cfaug.imaging.weights import resolve

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class SafetyChecker:
    """Flags images whose CLIP embedding is close to concepts that the checker's authors chose.

    Args:
        weights: the folder or Hub id of a StableDiffusionPipeline that contains a
            ``safety_checker`` and a ``feature_extractor``.
        revision: the commit of a Hub id.
        device: ``auto`` (CUDA where there is one), or another name that
            ``cfaug.core.devices.choose_device`` knows.

    Raises:
        UserError: for an invalid device.
    """

    weights: str
    revision: str | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        check_device(self.device, "image.safety.device")

    @cached_property
    def _parts(self) -> tuple[Any, Any]:
        import torch
        from diffusers.pipelines.stable_diffusion.safety_checker import (
            StableDiffusionSafetyChecker,
        )
        from transformers import CLIPImageProcessor

        folder = resolve(self.weights, self.revision, ("safety_checker", "feature_extractor"))
        checker = load_part(StableDiffusionSafetyChecker, folder / "safety_checker", torch.float32)
        processor = load_tools(CLIPImageProcessor, folder / "feature_extractor")
        return checker.to(choose_device(self.device, "image.safety.device")).eval(), processor

    def flag(self, images: Tensor) -> list[bool]:
        """Return whether each image, float32 (n, 3, H, W) in [0, 1], is flagged."""
        import torch

        checker, processor = self._parts
        pixels = (images.clamp(0, 1) * 255).round().byte().cpu()
        inputs = processor(list(pixels), return_tensors="pt").pixel_values.to(checker.device)
        with torch.inference_mode():
            # The checker blackens its image argument; only its verdicts are used.
            _, flags = checker(clip_input=inputs, images=torch.zeros(len(images), 1))
        return [bool(flag) for flag in flags]
