"""Which model to start from: the configuration nodes of the group ``model``. No torch at import."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from cfaug.errors import UserError
from cfaug.models.folder import Folder, MatcherFolder

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

    def check_trainable(self) -> None:
        """Raise a UserError if such a model cannot be fine-tuned, before anything is loaded."""
        ...

    def weights_hash(self) -> str:
        """Return the sha256 of the initial weights, read without importing torch."""
        ...

    def identity(self) -> str:
        """Return a hash of the weights and of every setting that changes what they answer.

        The hash of the weights where every setting is as a plain load has it.
        """
        ...

    def settings_hash(self) -> str:
        """Return the sha256 of all else that shapes an embedding: tokenizer, processor, settings.

        Read without importing torch, as ``weights_hash``.
        """
        ...

    def parameters(self) -> int | None:
        """Return how many numbers the weights hold, where their file says so without torch."""
        ...

    def on_this_machine(self) -> ModelSpec:
        """Return the same weights by the folder they lie in, without fetching any from the Hub."""
        ...

    def at(self, checkpoint: str) -> ModelSpec:
        """Return the same settings for another checkpoint, such as what a run saved."""
        ...


def _check_bounds(lower: float | None, upper: float | None) -> None:
    if lower is not None and upper is not None and lower > upper:
        raise UserError(f"model.logit_scale_min={lower} is above model.logit_scale_max={upper}")


@dataclass(frozen=True)
class HFClip(Folder):
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

        return load(self.folder(), **self.settings)

    def load_matcher(self) -> Matcher:
        """Return the dual encoder as a matcher: the cosine times the learnt scale.

        Raises:
            UserError: as ``load``.
        """
        from cfaug.models.matching import DualMatcher

        return DualMatcher(self.load())

    @property
    def settings(self) -> dict[str, Any]:
        """What the loaded model is told besides its folder."""
        return {
            **super().settings,
            "log_scale_bounds": (self.logit_scale_min, self.logit_scale_max),
        }


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

        return load(self.folder(), **self.settings)


@dataclass(frozen=True)
class BridgeTowerMatching(MatcherFolder):
    """``BridgeTowerForImageAndTextRetrieval``: the probability that a caption is of an image."""

    def load_matcher(self) -> Matcher:
        """Load weights and processor.

        Raises:
            UserError: if the folder or Hub id cannot be had, holds a pickle, or lacks weights, such
                as the matching head, or a processor.
        """
        from cfaug.models.bridgetower import load_matcher

        return load_matcher(self.folder(), **self.settings)


@dataclass(frozen=True)
class ViltMatching(MatcherFolder):
    """``ViltForImageAndTextRetrieval``: a logit; a transformer of image and text together."""

    def load_matcher(self) -> Matcher:
        """Load weights and processor.

        Raises:
            UserError: if the folder or Hub id cannot be had, holds a pickle, or lacks weights, such
                as the ranking head, or a processor.
        """
        from cfaug.models.vilt import load_matcher

        return load_matcher(self.folder(), **self.settings)


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

    def identity(self) -> str:
        """Return what a result is a result of: see ``cfaug.weights.model_identity``."""
        from cfaug.weights import model_identity

        return model_identity(self.weights_hash(), {"architecture": self.architecture})

    def settings_hash(self) -> str:
        """Return the sha256 of the files beside the weights, or of the architecture's name."""
        from cfaug.weights import described, open_clip_folder, sha256_text

        folder = open_clip_folder(self.architecture)
        if folder is not None:
            return sha256_text(f"{type(self).__qualname__} {described(folder)}")
        return sha256_text(f"{type(self).__qualname__} {self.architecture}")

    def parameters(self) -> int | None:
        """Return how many numbers the weight file holds; None for a tag."""
        from cfaug.weights import open_clip_weights, parameter_count

        file = open_clip_weights(self.architecture, self.pretrained)
        return None if file is None else parameter_count([file])

    def on_this_machine(self) -> OpenClip:
        """Return the same weights by their folder, without fetching any; a tag is open_clip's.

        Raises:
            UserError: if they were never fetched.
        """
        from cfaug.weights import open_clip_folder

        folder = open_clip_folder(self.architecture, fetch=False)
        return self if folder is None else self.at(str(folder))

    def at(self, checkpoint: str) -> OpenClip:
        """Return the same settings for a folder that open_clip loads by itself, or for a file.

        A file, as open_clip_train writes them, holds the weights of the architecture alone.

        Raises:
            UserError: for a file, where the architecture is no name.
        """
        from pathlib import Path

        from cfaug.weights import OPEN_CLIP_FOLDERS

        if Path(checkpoint).is_file():
            if self.architecture.startswith(OPEN_CLIP_FOLDERS):
                raise UserError(
                    f"{checkpoint} is a file of weights: say of which architecture, "
                    "model.architecture=NAME as open_clip.list_models() gives them"
                )
            return replace(self, pretrained=checkpoint)
        return replace(self, architecture=f"local-dir:{checkpoint}", pretrained=None)
