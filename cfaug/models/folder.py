"""Settings of a ``save_pretrained`` folder: what the models of ``specs`` share. No torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from cfaug.errors import UserError
from cfaug.pixels import GEOMETRIES, Geometry

if TYPE_CHECKING:
    from pathlib import Path

    from cfaug.models.encoder import Encoder


@dataclass(frozen=True)
class Folder:
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

    @property
    def settings(self) -> dict[str, Any]:
        """What the loaded model is told besides its folder."""
        return {"max_length": self.max_length, "geometry": self.geometry}

    def check_trainable(self) -> None:
        """Let every model through that does not say otherwise."""

    def weights_hash(self) -> str:
        """Return the sha256 of the weight files."""
        from cfaug.weights import find_weights, sha256

        return sha256(find_weights(self.folder()))

    def identity(self) -> str:
        """Return what a result is a result of: see ``cfaug.weights.model_identity``."""
        from cfaug.weights import model_identity

        return model_identity(self.weights_hash(), self.settings)

    def settings_hash(self) -> str:
        """Return the sha256 of the files beside the weights and of the settings."""
        from cfaug.weights import described, sha256_text

        said = [type(self).__qualname__, self.max_length, *filter(None, [self.geometry])]
        return sha256_text(f"{' '.join(map(str, said))} {described(self.folder())}")

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


@dataclass(frozen=True)
class MatcherFolder(Folder):
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
