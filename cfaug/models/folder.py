"""Settings for ``save_pretrained`` folders, shared by the specifications of models. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.pixels import Geometry
from cfaug.core.protocols import Entailer
from cfaug.core.validation import Positive, check_fields
from cfaug.models.checkpoints import Checkpoint


@dataclass(frozen=True)
class ImageCheckpoint(Checkpoint):
    """A checkpoint of transformers whose model reads images.

    Args:
        name_or_path: a ``save_pretrained`` folder or a Hub id.
        revision: the commit of a Hub id.
        geometry: ``crop`` or ``squash`` images to a square; ``None`` follows the processor.
    """

    geometry: Geometry | None = None

    def __post_init__(self) -> None:
        check_fields(self, "model")


@dataclass(frozen=True)
class Folder(Checkpoint):
    """A ``save_pretrained`` folder of a model that reads images and texts.

    Args:
        name_or_path: a folder, a Hub id, or ``zoo:NAME`` for one shipped here.
        revision: the commit of a Hub id.
        max_length: captions are truncated to this many tokens; ``None`` is the model's limit (77
            for CLIP; run_clip.py's own default of 128 does not fit it).
        geometry: ``crop`` keeps the aspect ratio of images and crops the long side, as run_clip.py
            does for every model; ``squash`` changes the aspect ratio; ``None`` follows the folder's
            image processor.
    """

    max_length: Positive | None = None
    geometry: Geometry | None = None

    def __post_init__(self) -> None:
        check_fields(self, "model")

    def settings_words(self) -> list[object]:
        """Return the settings in the form that ``settings_hash`` hashes.

        The form of ``max_length`` and ``geometry`` never changes, so that earlier results are found
        again.
        """
        told = {"max_length", "geometry"}
        more = [f"{k}={v!r}" for k, v in sorted(self.answering().items()) if k not in told]
        return [self.max_length, *filter(None, [self.geometry]), *more]


@dataclass(frozen=True)
class Fusion(Folder):
    """A fusion encoder with a head that tells whether the text follows from the image.

    Args:
        name_or_path: a folder, a Hub id, or ``zoo:NAME`` for one shipped here; for training, any
            checkpoint of the encoder.
        revision: the commit of a Hub id.
        max_length: hypotheses are truncated to this many tokens; ``None`` is the model's limit.
        geometry: ``crop`` or ``squash`` images to a square; ``None`` follows the processor.
        labels: entailment, neutral and contradiction in the order of the head's logits, which
            differs between models; ``None`` takes it from ``config.json``.
    """

    labels: tuple[str, ...] | None = None

    provides = (Entailer,)

    def load_to_train(self, seed: int) -> Any:
        """Load the encoder with its head, or with a random one if it has no head of three logits.

        Args:
            seed: the seed of the run, from which a random head is drawn.

        Raises:
            UserError: for the reasons of ``load``, except for a missing head.
        """
        module, _, name = self.implementation.rpartition(".")
        kind = getattr(import_module(module), name)
        return kind.load(self.folder(), **self.settings, head_seed=seed)

    def check_trainable(self) -> None:
        """Refuse training as a dual encoder.

        Raises:
            UserError: always; the message names the supported training.
        """
        raise UserError(
            f"{self.owner} cannot be fine-tuned on images and their captions: it learns whether a "
            "text follows from an image, by `python train.py task=entailment` with labelled "
            "hypotheses (data=shapescapes_ve, data=entailment)"
        )
