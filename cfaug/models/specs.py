"""Which model to start from: the configuration nodes of the group ``model``. No torch at import."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, Self

from cfaug.errors import UserError
from cfaug.pixels import GEOMETRIES, Geometry

if TYPE_CHECKING:
    from pathlib import Path

    from cfaug.models.encoder import Bounds, Encoder
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

    def check_trainable(self) -> None:
        """Raise a UserError if such a model cannot be fine-tuned, before anything is loaded."""
        ...

    def weights_hash(self) -> str:
        """Return the sha256 of the initial weights, read without importing torch."""
        ...

    def settings_hash(self) -> str:
        """Return the sha256 of all else that shapes an embedding: tokenizer, processor, settings.

        Read without importing torch, as ``weights_hash``.
        """
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
class _Folder:
    """A ``save_pretrained`` folder.

    Args:
        name_or_path: a folder, a Hub id, or ``zoo:NAME`` for one shipped here.
        revision: commit of a Hub id.
        max_length: captions are cut to this many tokens; ``None`` is what the model can take
            (77 for CLIP; run_clip.py's own default of 128 does not fit it).
        geometry: of images: ``crop`` keeps proportions and cuts the long side, as run_clip.py does
            for every model; ``squash`` does not keep them; ``None`` is what the folder's image
            processor does.
    """

    name_or_path: str
    revision: str | None = None
    max_length: int | None = None
    geometry: Geometry | None = None

    def __post_init__(self) -> None:
        if self.geometry not in (None, *GEOMETRIES):
            raise UserError(
                f"model.geometry={self.geometry}: choose {' or '.join(GEOMETRIES)}, or null for "
                "what the model's own image processor does"
            )
        if self.max_length is not None and self.max_length < 1:
            raise UserError(f"model.max_length={self.max_length} must be at least 1, or null")

    def folder(self) -> Path:
        """Return where the weights lie, fetched if need be.

        Raises:
            UserError: if there are none, with what to do about it.
        """
        from cfaug.weights import resolve

        return resolve(self.name_or_path, self.revision)

    def check_trainable(self) -> None:
        """Let every model through that does not say otherwise."""

    def weights_hash(self) -> str:
        """Return the sha256 of the weight files."""
        from cfaug.weights import find_weights, sha256

        return sha256(find_weights(self.folder()))

    def settings_hash(self) -> str:
        """Return the sha256 of the files beside the weights and of the settings."""
        from cfaug.weights import described, sha256_text

        said = [type(self).__qualname__, self.max_length, *filter(None, [self.geometry])]
        return sha256_text(f"{' '.join(map(str, said))} {described(self.folder())}")

    def parameters(self) -> int | None:
        """Return how many numbers the weight files hold; None if they are not safetensors."""
        from cfaug.weights import find_weights, parameter_count

        return parameter_count(find_weights(self.folder()))

    def at(self, checkpoint: str) -> Self:
        """Return the same settings for another folder, Hub id or ``zoo:NAME``."""
        return replace(self, name_or_path=checkpoint, revision=None)


@dataclass(frozen=True)
class HFClip(_Folder):
    """Any transformers model with ``get_image_features``, ``get_text_features``, ``logit_scale``.

    ``CLIPModel``, ``VisionTextDualEncoderModel``, ``SiglipModel``, ``FlavaModel``, ... : what the
    folder's ``config.json`` says it is. It is trained on its authors' contrastive loss: CLIP's, but
    SigLIP's where the model has a bias on its logits. A folder of ``FlavaForPreTraining`` gives the
    ``FlavaModel`` within; its pre-training heads take no part, and saved checkpoints lack them.

    Args:
        name_or_path: a ``save_pretrained`` folder, a Hub id, or ``zoo:NAME`` for one shipped here.
        revision: commit of a Hub id.
        max_length: captions are cut to this many tokens; ``None`` is what the model can take.
        geometry: of images, ``crop`` or ``squash``; ``None`` is the processor's own.
        logit_scale_min: lower bound of the learnt log scale after each step; ``None`` is none.
        logit_scale_max: its upper bound. Transformers' ``run_clip.py``, which the
            COCO-Counterfactuals paper trained with, bounds neither; CLIP's authors clip at ln 100.
    """

    logit_scale_min: float | None = None
    logit_scale_max: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_bounds(self.logit_scale_min, self.logit_scale_max)

    def load(self) -> Encoder:
        """Load weights and processor.

        Raises:
            UserError: if the folder or Hub id cannot be had, holds a pickle, lacks weights or a
                processor, or is no dual encoder.
        """
        from cfaug.models.hf_clip import load

        return load(
            self.folder(),
            max_length=self.max_length,
            log_scale_bounds=self._bounds,
            geometry=self.geometry,
        )

    def load_matcher(self) -> Matcher:
        """Return the dual encoder as a matcher: the cosine times the learnt scale.

        Raises:
            UserError: as ``load``.
        """
        from cfaug.models.matching import DualMatcher

        return DualMatcher(self.load())

    @property
    def _bounds(self) -> Bounds:
        return (self.logit_scale_min, self.logit_scale_max)


@dataclass(frozen=True)
class BridgeTower(HFClip):
    """``BridgeTowerForContrastiveLearning``: its three losses, its two towers for retrieval.

    Args: those of :class:`HFClip`.
    """

    def load(self) -> Encoder:
        """Load weights and processor.

        Raises:
            UserError: if the folder or Hub id cannot be had, holds a pickle, or lacks weights, such
                as the contrastive heads, or a processor.
        """
        from cfaug.models.bridgetower import load

        return load(
            self.folder(),
            max_length=self.max_length,
            log_scale_bounds=self._bounds,
            geometry=self.geometry,
        )


@dataclass(frozen=True)
class _MatcherFolder(_Folder):
    """A model that scores pairs and has no features of an image or a text alone."""

    def load(self) -> Encoder:
        """Refuse: there is no dual encoder in it.

        Raises:
            UserError: always, saying what such a model can be used for.
        """
        raise self._refusal()

    def check_trainable(self) -> None:
        """Refuse.

        Raises:
            UserError: always, saying what such a model can be used for.
        """
        raise self._refusal()

    def _refusal(self) -> UserError:
        return UserError(
            f"{type(self).__name__} ({self.name_or_path}) scores an image with a text and has no "
            "embedding of either alone: it cannot be fine-tuned or retrieve. It takes part in "
            "`python evaluate.py benchmark=matching`; to train, choose another model=..."
        )


@dataclass(frozen=True)
class BridgeTowerMatching(_MatcherFolder):
    """``BridgeTowerForImageAndTextRetrieval``: the probability that a caption is of an image."""

    def load_matcher(self) -> Matcher:
        """Load weights and processor.

        Raises:
            UserError: if the folder or Hub id cannot be had, holds a pickle, or lacks weights, such
                as the matching head, or a processor.
        """
        from cfaug.models.bridgetower import load_matcher

        return load_matcher(self.folder(), max_length=self.max_length, geometry=self.geometry)


@dataclass(frozen=True)
class ViltMatching(_MatcherFolder):
    """``ViltForImageAndTextRetrieval``: a logit; a transformer of image and text together."""

    def load_matcher(self) -> Matcher:
        """Load weights and processor.

        Raises:
            UserError: if the folder or Hub id cannot be had, holds a pickle, or lacks weights, such
                as the ranking head, or a processor.
        """
        from cfaug.models.vilt import load_matcher

        return load_matcher(self.folder(), max_length=self.max_length, geometry=self.geometry)


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

    def check_trainable(self) -> None:
        """Let every architecture through."""

    def weights_hash(self) -> str:
        """Return the sha256 of the weight file; of the name for a tag, which open_clip resolves."""
        from cfaug.weights import open_clip_weights, sha256, sha256_text

        file = open_clip_weights(self.architecture, self.pretrained)
        if file is None:
            return sha256_text(f"open_clip:{self.architecture}:{self.pretrained}")
        return sha256([file])

    def settings_hash(self) -> str:
        """Return the sha256 of the files beside the weights, or of the architecture's name."""
        from cfaug.weights import described, resolve, sha256_text

        for prefix in ("local-dir:", "hf-hub:"):
            if self.architecture.startswith(prefix):
                folder = resolve(self.architecture.removeprefix(prefix))
                return sha256_text(f"{type(self).__qualname__} {described(folder)}")
        return sha256_text(f"{type(self).__qualname__} {self.architecture}")

    def parameters(self) -> int | None:
        """Return how many numbers the weight file holds; None for a tag."""
        from cfaug.weights import open_clip_weights, parameter_count

        file = open_clip_weights(self.architecture, self.pretrained)
        return None if file is None else parameter_count([file])

    def at(self, checkpoint: str) -> OpenClip:
        """Return the same settings for a folder that open_clip loads by itself."""
        return replace(self, architecture=f"local-dir:{checkpoint}", pretrained=None)
