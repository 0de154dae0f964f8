"""Which model to start from: the configuration nodes of the group ``model``. No torch at import."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from cfaug.errors import UserError

if TYPE_CHECKING:
    from cfaug.models.encoder import Encoder
    from cfaug.protocols import Matcher

OPENAI_LOGIT_SCALE = (0.0, 4.6052)
"""Bounds on the log of the scale: CLIP's authors clip it at ln 100, open_clip also at 0 below."""


class ModelSpec(Protocol):
    """What a configuration names; loading it is what costs torch and transformers."""

    def load(self) -> Encoder:
        """Return the model in float32 and evaluation mode, whatever its file holds."""
        ...

    def load_matcher(self) -> Matcher:
        """Return the same model as one that scores an image with a text."""
        ...

    def weights_hash(self) -> str:
        """Return the sha256 of the initial weights, read without importing torch."""
        ...

    def parameters(self) -> int | None:
        """Return how many numbers the weights hold, where their file says so without torch."""
        ...

    def at(self, checkpoint: str) -> ModelSpec:
        """Return the same settings for another checkpoint, such as what a run saved."""
        ...


def _check_bounds(lower: float | None, upper: float | None) -> None:
    if lower is not None and upper is not None and lower > upper:
        raise UserError(f"model.logit_scale_min={lower} is above model.logit_scale_max={upper}")


@dataclass(frozen=True)
class HFClip:
    """Any transformers model with ``get_image_features``, ``get_text_features``, ``logit_scale``.

    ``CLIPModel``, ``VisionTextDualEncoderModel``, ``SiglipModel``, ... : what the folder's
    ``config.json`` says it is.

    Args:
        name_or_path: a ``save_pretrained`` folder, a Hub id, or ``zoo:NAME`` for one shipped here.
        revision: commit of a Hub id.
        logit_scale_min: lower bound of the learnt log scale after each step; ``None`` is none.
        logit_scale_max: its upper bound. Transformers' ``run_clip.py``, which the
            COCO-Counterfactuals paper trained with, bounds neither; CLIP's authors clip at ln 100.
        max_length: captions are truncated to this many tokens; ``None`` is what the model can take
            (77 for CLIP; run_clip.py's own default of 128 does not fit it).
    """

    name_or_path: str
    revision: str | None = None
    logit_scale_min: float | None = None
    logit_scale_max: float | None = None
    max_length: int | None = None

    def __post_init__(self) -> None:
        _check_bounds(self.logit_scale_min, self.logit_scale_max)
        if self.max_length is not None and self.max_length < 1:
            raise UserError(f"model.max_length={self.max_length} must be at least 1, or null")

    def load(self) -> Encoder:
        """Load weights and processor.

        Raises:
            UserError: if the folder or Hub id cannot be had, holds a pickle, lacks weights or a
                processor, or is no dual encoder.
        """
        from cfaug.models.hf_clip import load
        from cfaug.weights import resolve

        return load(
            resolve(self.name_or_path, self.revision),
            max_length=self.max_length,
            log_scale_bounds=(self.logit_scale_min, self.logit_scale_max),
        )

    def load_matcher(self) -> Matcher:
        """Return the dual encoder as a matcher: the cosine times the learnt scale.

        Raises:
            UserError: as ``load``.
        """
        from cfaug.models.matching import DualMatcher

        return DualMatcher(self.load())

    def weights_hash(self) -> str:
        """Return the sha256 of the weight files."""
        from cfaug.weights import find_weights, resolve, sha256

        return sha256(find_weights(resolve(self.name_or_path, self.revision)))

    def parameters(self) -> int | None:
        """Return how many numbers the weight files hold; None if they are not safetensors."""
        from cfaug.weights import find_weights, parameter_count, resolve

        return parameter_count(find_weights(resolve(self.name_or_path, self.revision)))

    def at(self, checkpoint: str) -> HFClip:
        """Return the same settings for another folder, Hub id or ``zoo:NAME``."""
        return replace(self, name_or_path=checkpoint, revision=None)


@dataclass(frozen=True)
class OpenClip:
    """Any architecture of open_clip.

    Args:
        architecture: a name as ``open_clip.list_models()`` gives them, or ``local-dir:FOLDER``, or
            ``hf-hub:OWNER/NAME``; the latter two carry their own weights.
        pretrained: for a name: a tag as ``open_clip.list_pretrained()`` gives them, or a file.
        logit_scale_min: lower bound of the learnt log scale after each step; ``None`` is none.
        logit_scale_max: its upper bound; the defaults are those of open_clip's training loop.
    """

    architecture: str
    pretrained: str | None = None
    logit_scale_min: float | None = OPENAI_LOGIT_SCALE[0]
    logit_scale_max: float | None = OPENAI_LOGIT_SCALE[1]

    def __post_init__(self) -> None:
        _check_bounds(self.logit_scale_min, self.logit_scale_max)
        carries_weights = self.architecture.startswith(("local-dir:", "hf-hub:"))
        if carries_weights and self.pretrained is not None:
            raise UserError(
                f"model.architecture={self.architecture} carries its own weights: "
                f"leave out model.pretrained={self.pretrained}"
            )
        if not carries_weights and self.pretrained is None:
            raise UserError(
                f"model.architecture={self.architecture} needs model.pretrained=TAG or a file: "
                "open_clip would start from random weights"
            )

    def load(self) -> Encoder:
        """Load weights, tokenizer and preprocessing.

        Raises:
            UserError: if the folder, file or tag cannot be had or holds a pickle.
        """
        from cfaug.models.open_clip import load

        return load(
            self.architecture,
            self.pretrained,
            log_scale_bounds=(self.logit_scale_min, self.logit_scale_max),
        )

    def load_matcher(self) -> Matcher:
        """Return the dual encoder as a matcher: the cosine times the learnt scale.

        Raises:
            UserError: as ``load``.
        """
        from cfaug.models.matching import DualMatcher

        return DualMatcher(self.load())

    def weights_hash(self) -> str:
        """Return the sha256 of the weight file; of the name for a tag, which open_clip resolves."""
        from cfaug.weights import open_clip_weights, sha256, sha256_text

        file = open_clip_weights(self.architecture, self.pretrained)
        if file is None:
            return sha256_text(f"open_clip:{self.architecture}:{self.pretrained}")
        return sha256([file])

    def parameters(self) -> int | None:
        """Return how many numbers the weight file holds; None for a tag."""
        from cfaug.weights import open_clip_weights, parameter_count

        file = open_clip_weights(self.architecture, self.pretrained)
        return None if file is None else parameter_count([file])

    def at(self, checkpoint: str) -> OpenClip:
        """Return the same settings for a folder that open_clip loads by itself."""
        return replace(self, architecture=f"local-dir:{checkpoint}", pretrained=None)
