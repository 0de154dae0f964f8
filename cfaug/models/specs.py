"""Specifications of models: configuration nodes of the group ``model``. No torch at import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

from cfaug.core.errors import UserError
from cfaug.core.protocols import DualEncoder, Matcher, NoModel
from cfaug.core.validation import Positive
from cfaug.core.weights import (
    hash_description,
    names_folder,
    open_clip_folder,
    open_clip_weights,
    parameter_count,
    sha256,
    sha256_text,
)
from cfaug.models import classifier_specs, task_specs
from cfaug.models.checkpoints import Folder, Matching, Spec, choose_protocol
from cfaug.settings.read_if import CommandJob

OPENAI_LOGIT_SCALE = (0.0, 4.6052)
"""Bounds of the log scale: CLIP's authors clip it at ln 100, open_clip also from below at 0."""


class ModelSpec(Protocol):
    """A model named by a configuration; only loading it needs torch and transformers."""

    @property
    def provides(self) -> tuple[type, ...]:
        """The protocols that the model can be loaded as, the main one first."""
        ...

    def load(self, protocol: type | None = None) -> Any:
        """Return the model as one of the protocols that it provides; ``None`` is the main one.

        It is in float32 and evaluation mode, whatever the format of its file.
        """
        ...

    def check_trainable(self) -> None:
        """Raise a UserError if such a model cannot be fine-tuned, without loading it."""
        ...

    def weights_hash(self) -> str:
        """Return the sha256 of the initial weights, read without importing torch."""
        ...

    def identity(self) -> str:
        """Return a hash of the weights and of every setting that changes the model's answers.

        It is the hash of the weights if every setting has the value of a plain load.
        """
        ...

    def settings_hash(self) -> str:
        """Return the sha256 of everything else that an embedding depends on.

        That is the tokenizer, the processor and the settings, read without importing torch.
        """
        ...

    def parameters(self) -> int | None:
        """Return the number of parameters; ``None`` if it cannot be read without torch."""
        ...

    def on_this_machine(self) -> ModelSpec:
        """Return the specification with the weights' local folder, without a download."""
        ...

    def at(self, checkpoint: str) -> ModelSpec:
        """Return the same settings for another checkpoint, such as one saved by a run."""
        ...


@runtime_checkable
class EntailmentLearner(ModelSpec, Protocol):
    """A specification of a model that can be fine-tuned for entailment."""

    def load_to_train(self, seed: int) -> Any:
        """Return the initial model, with a random head if it has none."""
        ...


@runtime_checkable
class ClassifierLearner(ModelSpec, Protocol):
    """A specification of an image classifier that can be fine-tuned."""

    def load_with_head(self, labels: Sequence[str], seed: int, match: Matching) -> Any:
        """Return the initial model: its own head if it knows the labels, or else a random one.

        Args:
            labels: the labels of the data; a new head has them as its classes.
            match: (labels, classes, owner) -> numbers of the labels' classes, or a UserError.
        """
        ...


def _check_bounds(lower: float | None, upper: float | None) -> None:
    if lower is not None and upper is not None and lower > upper:
        raise UserError(f"model.logit_scale_min={lower} is above model.logit_scale_max={upper}")


def _as_matcher(encoder: Any) -> Any:
    from cfaug.models.image_text import DualMatcher

    return DualMatcher(encoder)


@dataclass(frozen=True, repr=False)
class HFClip(Folder):
    """Any transformers model with ``get_image_features``, ``get_text_features``, ``logit_scale``.

    The folder's ``config.json`` determines the class: ``CLIPModel``, ``SiglipModel``,
    ``VisionTextDualEncoderModel``, ``FlavaModel``, ... The model is trained with the contrastive
    loss of its authors: CLIP's, or SigLIP's if the model has a bias on its logits. A folder of
    ``FlavaForPreTraining`` gives the ``FlavaModel`` in it without the pre-training heads, which
    saved checkpoints therefore lack.

    As a matcher, the model's score is the cosine times the learnt scale.

    Args:
        logit_scale_min: the lower bound of the learnt log scale, applied after each step; ``None``
            for no bound.
        logit_scale_max: the upper bound of the learnt log scale; ``None`` for no bound.
            Transformers' ``run_clip.py``, with which the COCO-Counterfactuals paper trained, has
            no bounds; CLIP's authors clip at ln 100.
        train_logit_scale: whether the learnt scale, and SigLIP's bias, are trained; ``False`` keeps
            them whatever is tuned.
        max_tokens: the number of tokens of the longest caption, to which CLIP's positions are
            stretched (see ``cfaug.models.encoder.stretch_positions``); ``None`` keeps them.
    """

    logit_scale_min: float | None = None
    logit_scale_max: float | None = None
    train_logit_scale: bool = field(default=True, repr=False)
    max_tokens: Positive | None = field(default=None, repr=False)

    provides = (DualEncoder, Matcher)
    implementation = "cfaug.models.encoder.HFEncoder"
    ineffective = frozenset({"logit_scale_min", "logit_scale_max", "train_logit_scale"})
    __repr__ = Spec.__repr__

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_bounds(self.logit_scale_min, self.logit_scale_max)

    def adapt(self, model: Any, protocol: type) -> Any:
        """Return the dual encoder itself, or a matcher around it."""
        if not self.train_logit_scale:
            model.fix_logit_scale()
        return _as_matcher(model) if protocol is Matcher else model

    @property
    def settings(self) -> dict[str, Any]:
        bounds = (self.logit_scale_min, self.logit_scale_max)
        settings = {name: getattr(self, name) for name in ("max_length", "geometry", "max_tokens")}
        return {**settings, "log_scale_bounds": bounds}


@dataclass(frozen=True, repr=False)
class BridgeTower(HFClip):
    """``BridgeTowerForContrastiveLearning``: trained with three losses; retrieval by two towers.

    The arguments are those of :class:`HFClip`.
    """

    implementation = "cfaug.models.fusion.BridgeTowerEncoder"


@dataclass(frozen=True)
class BridgeTowerMatching(Folder):
    """``BridgeTowerForImageAndTextRetrieval``: the probability that a caption is of an image."""

    provides = (Matcher,)
    implementation = "cfaug.models.fusion.BridgeTowerMatcher"

    def answering(self) -> dict[str, Any]:
        """Return the settings that change the answers, and the head.

        The authors' folders have a contrastive head as well, whose scores are others.
        """
        return {**super().answering(), "head": "matching"}


@dataclass(frozen=True)
class ViltMatching(Folder):
    """``ViltForImageAndTextRetrieval``: one transformer of image and text that returns a logit."""

    provides = (Matcher,)
    implementation = "cfaug.models.fusion.ViltMatcher"


@dataclass(frozen=True, repr=False)
class OpenClip(Spec):
    """Any architecture of open_clip.

    Args:
        weights: a tag from ``open_clip.list_pretrained()`` or a file, of a named ``architecture``;
            or, of the architecture in their own configuration, a folder as open_clip saves it or a
            Hub id of one.
        architecture: a name from ``open_clip.list_models()``, for a tag or a file.
        logit_scale_min: the lower bound of the learnt log scale, applied after each step; ``None``
            for no bound.
        logit_scale_max: the upper bound of the learnt log scale; ``None`` for no bound. The
            defaults are those of open_clip's training loop.
    """

    weights: str
    architecture: str | None = None
    logit_scale_min: float | None = OPENAI_LOGIT_SCALE[0]
    logit_scale_max: float | None = OPENAI_LOGIT_SCALE[1]
    train_logit_scale: bool = field(default=True, repr=False)
    """whether the learnt scale, and SigLIP's bias, are trained; false keeps them whatever is
    tuned"""
    max_tokens: Positive | None = field(default=None, repr=False)
    """the number of tokens of the longest caption, to which CLIP's positions are stretched (see
    ``cfaug.models.encoder.stretch_positions``); null keeps them"""

    provides: ClassVar[tuple[type, ...]] = (DualEncoder, Matcher)

    def __post_init__(self) -> None:
        _check_bounds(self.logit_scale_min, self.logit_scale_max)
        for name in ("weights", "architecture"):
            kind, prefix, place = str(getattr(self, name)).partition(":")
            if prefix and kind in ("local-dir", "hf-hub"):
                raise UserError(
                    f"model.{name}={kind}:{place} is open_clip's name of a folder: type "
                    f"weights={place}, and no architecture, which the folder says"
                )

    @staticmethod
    def find_left_out(node: Mapping[str, Any], place: str, job: CommandJob) -> dict[str, str]:
        """Return the setting of a node that a folder of weights says itself, and what reads it."""
        if not names_folder(str(node.get("weights"))):
            return {}
        reason = f"with {place}weights that are a tag or a file: a folder says its own"
        return {"architecture": reason}

    def load(self, protocol: type | None = None) -> Any:
        """Load weights, tokenizer and preprocessing."""
        from cfaug.models.open_clip import load

        wanted = choose_protocol(self.provides, protocol, self.owner)
        bounds = (self.logit_scale_min, self.logit_scale_max)
        encoder = load(
            self.weights, self._named(), log_scale_bounds=bounds, max_tokens=self.max_tokens
        )
        if not self.train_logit_scale:
            encoder.fix_logit_scale()
        return _as_matcher(encoder) if wanted is Matcher else encoder

    def _named(self) -> str | None:
        """Return the architecture of a tag or a file; ``None`` for a folder, which says its own."""
        if names_folder(self.weights):
            return None
        if self.architecture is None:
            raise UserError(
                f"weights={self.weights} are a tag of open_clip or a file, which do not say their "
                "architecture: add model.architecture=NAME, one of open_clip.list_models()"
            )
        return self.architecture

    @property
    def owner(self) -> str:
        return f"OpenClip ({', '.join(filter(None, [self.architecture, self.weights]))})"

    def answering(self) -> dict[str, Any]:
        """Return the architecture of a tag or file, and the number of tokens if it is given."""
        settings = {"architecture": self._named(), "max_tokens": self.max_tokens}
        return {name: value for name, value in settings.items() if value is not None}

    def weights_hash(self) -> str:
        """Return the sha256 of the weight file, or of the name of an open_clip tag."""
        architecture, file = self._named(), open_clip_weights(self.weights)
        if file is None:
            return sha256_text(f"open_clip:{architecture}:{self.weights}")
        return sha256([file])

    def settings_hash(self) -> str:
        """Return the sha256 of the files beside the weights, or of the architecture's name."""
        folder = open_clip_folder(self.weights)
        described = self._named() if folder is None else hash_description(folder)
        more = "" if self.max_tokens is None else f" max_tokens={self.max_tokens}"
        return sha256_text(f"{type(self).__qualname__} {described}{more}")

    def parameters(self) -> int | None:
        """Return the number of parameters in the weight file; ``None`` for a tag."""
        file = open_clip_weights(self.weights)
        return None if file is None else parameter_count([file])

    def on_this_machine(self) -> OpenClip:
        """Return the specification with the weights' local folder, without a download.

        A tag of open_clip stays a tag.
        """
        folder = open_clip_folder(self.weights, fetch=False)
        return self if folder is None else self.at(str(folder))

    def at(self, checkpoint: str) -> OpenClip:
        """Return the same settings for other weights; a folder says its own architecture.

        A file written by open_clip_train contains only weights, not the name of the architecture.
        """
        architecture = None if names_folder(checkpoint) else self.architecture
        return replace(self, weights=checkpoint, architecture=architecture)


def every() -> list[type]:
    """Return all kinds of models that a configuration can name: the dataclasses of these modules.

    Creating one touches neither the disk nor the network, so that any of them may be named by the
    configuration of a run, which may come from an untrusted source.
    """
    here = [*globals().values(), *vars(task_specs).values(), *vars(classifier_specs).values()]
    kinds = dict.fromkeys(kind for kind in here if isinstance(kind, type) and is_dataclass(kind))
    known = (__name__, task_specs.__name__, classifier_specs.__name__)
    specs = [kind for kind in kinds if kind.__module__ in known and hasattr(kind, "provides")]
    return [kind for kind in specs if kind is not NoModelSpec]


@dataclass(frozen=True)
class NoModelSpec(Spec):
    """A placeholder for benchmarks that need no model."""

    provides = (NoModel,)
    weights = "no-model"

    def load(self, protocol: type | None = None) -> Any:
        return NoModel()

    def check_trainable(self) -> None:
        raise UserError("there is no model to train: choose a model=...")

    def weights_hash(self) -> str:
        return sha256_text(self.weights)

    def settings_hash(self) -> str:
        """Return the hash of the weights: there are no settings."""
        return self.weights_hash()

    def parameters(self) -> int | None:
        """Return ``None``: there are no weights."""
        return None

    def at(self, checkpoint: str) -> NoModelSpec:
        return self
