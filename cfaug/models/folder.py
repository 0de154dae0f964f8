"""Settings of a ``save_pretrained`` folder: what the models of ``specs`` share. No torch."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self

from cfaug.errors import UserError
from cfaug.pixels import GEOMETRIES, Geometry
from cfaug.protocols import DualEncoder, Matcher

if TYPE_CHECKING:
    from pathlib import Path

WHERE = ("name_or_path", "revision")
"""Settings that say where weights lie and nothing about what is done with them."""


def chosen(provides: tuple[type, ...], protocol: type | None, owner: str) -> type:
    """Return the protocol as which a model is loaded.

    Args:
        provides: the protocols that the model can be loaded as, the main one first.
        protocol: the one asked for; ``None`` is the main one.
        owner: the model's specification, for the error.

    Raises:
        UserError: if the model does not provide it, naming those that it provides.
    """
    if protocol is None:
        return provides[0]
    if protocol in provides:
        return protocol
    own = " or ".join(one.__name__ for one in provides)
    raise UserError(
        f"{owner} can be loaded as {own}, not as {protocol.__name__}: choose a model=... that "
        f"provides {protocol.__name__}, or a benchmark that needs {own}"
    )


def check_trainable(provides: tuple[type, ...], owner: str) -> None:
    """Refuse a model that is not a dual encoder, which is what is fine-tuned.

    Args:
        provides: the protocols that the model can be loaded as.
        owner: the model's specification, for the error.

    Raises:
        UserError: naming what such a model can be used for.
    """
    if DualEncoder in provides:
        return
    use = f"benchmarks that need a {provides[0].__name__}"
    if Matcher in provides:
        use = "`python evaluate.py benchmark=matching`"
    raise UserError(
        f"{owner} has no embedding of an image or a text alone: it cannot be fine-tuned. It takes "
        f"part in {use}; to train, choose another model=..."
    )


def check_geometry(geometry: object) -> None:
    """Refuse what is no geometry of images.

    Raises:
        UserError: naming the choices.
    """
    if geometry not in (None, *GEOMETRIES):
        raise UserError(
            f"model.geometry={geometry}: choose {' or '.join(GEOMETRIES)}, or null for "
            "what the model's own image processor does"
        )


def check_positive(name: str, value: int | None) -> None:
    """Refuse a count below 1.

    Raises:
        UserError: naming the setting.
    """
    if value is not None and value < 1:
        raise UserError(f"model.{name}={value} must be at least 1, or null")


@dataclass(frozen=True)
class Checkpoint:
    """A ``save_pretrained`` folder, whatever kind of model it holds.

    Args:
        name_or_path: a folder, a Hub id, or ``zoo:NAME`` for one shipped here.
        revision: commit of a Hub id.

    Attributes:
        provides: the protocols of ``cfaug.protocols`` that the model can be loaded as, the main
            one first.
        implementation: ``module.Class`` whose ``load(folder, **settings)`` makes the main one.
        training_only: settings that change nothing about what the model answers.
    """

    name_or_path: str
    revision: str | None = None

    provides: ClassVar[tuple[type, ...]]
    implementation: ClassVar[str]
    training_only: ClassVar[frozenset[str]] = frozenset()

    def load(self, protocol: type | None = None) -> Any:
        """Load weights and processor, in float32 and evaluation mode.

        Args:
            protocol: what to load the model as; ``None`` is the main one that it provides.

        Raises:
            UserError: if the model does not provide the protocol; if the folder or Hub id cannot be
                had, holds a pickle, or lacks weights, such as a head, or a processor.
        """
        wanted = chosen(self.provides, protocol, self.owner)
        module, _, name = self.implementation.rpartition(".")
        load = getattr(import_module(module), name).load
        return self.adapt(load(self.folder(), **self.settings), wanted)

    def adapt(self, model: Any, protocol: type) -> Any:
        """Return the main model as another of the protocols that it provides."""
        return model

    def folder(self) -> Path:
        """Return where the weights lie, fetched if need be.

        Raises:
            UserError: if there are none, with what to do about it.
        """
        from cfaug.weights import resolve

        return resolve(self.name_or_path, self.revision)

    @property
    def settings(self) -> dict[str, Any]:
        """What the loaded model is told besides its folder."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name not in WHERE}

    def answering(self) -> dict[str, Any]:
        """Return the settings that change what the model answers and differ from the defaults."""
        return {
            one.name: getattr(self, one.name)
            for one in fields(self)
            if one.name not in (*WHERE, *self.training_only)
            and getattr(self, one.name) != one.default
        }

    def check_trainable(self) -> None:
        """Refuse a model that is not a dual encoder.

        Raises:
            UserError: naming what such a model can be used for.
        """
        check_trainable(self.provides, self.owner)

    def weights_hash(self) -> str:
        """Return the sha256 of the weight files."""
        from cfaug.weights import find_weights, sha256

        return sha256(find_weights(self.folder()))

    def identity(self) -> str:
        """Return what a result is a result of: see ``cfaug.weights.model_identity``."""
        from cfaug.weights import model_identity

        return model_identity(self.weights_hash(), self.answering())

    def settings_hash(self) -> str:
        """Return the sha256 of the files beside the weights and of the settings."""
        from cfaug.weights import described, sha256_text

        said = " ".join(map(str, [type(self).__qualname__, *self.said()]))
        return sha256_text(f"{said} {described(self.folder())}")

    def said(self) -> list[object]:
        """Return the settings as ``settings_hash`` writes them."""
        return [f"{name}={value!r}" for name, value in sorted(self.answering().items())]

    def parameters(self) -> int | None:
        """Return how many numbers the weight files hold; None if they are not safetensors."""
        from cfaug.weights import find_weights, parameter_count

        return parameter_count(find_weights(self.folder()))

    def on_this_machine(self) -> Self:
        """Return the same weights by the folder they lie in, without fetching any.

        Raises:
            UserError: if they were never fetched.
        """
        from cfaug.weights import resolve

        return self.at(str(resolve(self.name_or_path, self.revision, fetch=False)))

    def at(self, checkpoint: str) -> Self:
        """Return the same settings for another folder, Hub id or ``zoo:NAME``."""
        return replace(self, name_or_path=checkpoint, revision=None)

    @property
    def owner(self) -> str:
        """The kind of model and where it lies, for errors."""
        return f"{type(self).__name__} ({self.name_or_path})"


@dataclass(frozen=True)
class Folder(Checkpoint):
    """A ``save_pretrained`` folder of a model that reads images and texts.

    Args:
        name_or_path: a folder, a Hub id, or ``zoo:NAME`` for one shipped here.
        revision: commit of a Hub id.
        max_length: captions are cut to this many tokens; ``None`` is what the model can take
            (77 for CLIP; run_clip.py's own default of 128 does not fit it).
        geometry: of images: ``crop`` keeps proportions and cuts the long side, as run_clip.py does
            for every model; ``squash`` does not keep them; ``None`` is what the folder's image
            processor does.
    """

    max_length: int | None = None
    geometry: Geometry | None = None

    def __post_init__(self) -> None:
        check_geometry(self.geometry)
        check_positive("max_length", self.max_length)

    def said(self) -> list[object]:
        """Return the settings as ``settings_hash`` writes them.

        As it always was for these two, so that what was computed before is found again.
        """
        told = {"max_length", "geometry"}
        more = [f"{k}={v!r}" for k, v in sorted(self.answering().items()) if k not in told]
        return [self.max_length, *filter(None, [self.geometry]), *more]
