"""The Inception network of the original FID (Heusel et al., 2017), converted by torch-fidelity."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from torch import Tensor, nn

from cfaug.core.errors import UserError
from cfaug.core.pixels import ImageTransform
from cfaug.core.safety.safe_loading import check_finite
from cfaug.core.weights import refuse_pickles

SIDE = 299
FEATURES = "2048"
"""torch-fidelity's name of FID's features: the last average pool."""

WEIGHTS = (
    "https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/"
    "weights-inception-2015-12-05-6726825d.pth"
)


class Inception(nn.Module):
    """A :class:`cfaug.core.protocols.FeatureExtractor` of 2,048 features.

    Images are resized to 299 pixels by Pillow with antialiasing, not by TensorFlow 1's bilinear
    filter, which skips pixels: the distances differ slightly from those of papers that used it.

    Args:
        network: torch-fidelity's network, which normalises uint8 pixels itself.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network: Any = network
        half = (0.5, 0.5, 0.5)
        self.transform = ImageTransform(SIDE, half, half, "bilinear", "squash")

    @classmethod
    def load(cls, file: Path) -> Self:
        """Load a file of weights."""
        try:
            from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3
        except ImportError as error:
            raise UserError(
                "the Inception of FID needs torch-fidelity: pip install 'cfaug[fid]', or compare "
                "in the features of another model, such as model=clip_vit_b32"
            ) from error
        if not file.is_file():
            raise UserError(
                f"model.weights={file}: there is no such file. Where there is a network: fetch "
                f"{WEIGHTS}"
            )
        refuse_pickles([file])
        try:
            network = FeatureExtractorInceptionV3("inception-v3-compat", [FEATURES], str(file))
        except (RuntimeError, TypeError, AttributeError) as error:
            raise UserError(f"{file} does not hold the weights of FID's Inception") from error
        check_finite(network, file)
        return cls(network).eval()

    def extract(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (n, 3, 299, 299) to float32 (n, 2048)."""
        device = next(self.network.parameters()).device
        (found,) = self.network(pixels.to(device, non_blocking=True))
        features: Tensor = found.float()
        return features
