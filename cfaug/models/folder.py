"""Settings of a ``save_pretrained`` folder: what the models of ``specs`` share. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from cfaug.errors import UserError
from cfaug.pixels import GEOMETRIES, Geometry
from cfaug.pretrained import Checkpoint, check_positive
from cfaug.protocols import Entailer


def check_geometry(geometry: object) -> None:
    """Refuse what is not a geometry of images.

    Raises:
        UserError: naming the choices.
    """
    if geometry not in (None, *GEOMETRIES):
        raise UserError(
            f"model.geometry={geometry}: choose {' or '.join(GEOMETRIES)}, or null for "
            "what the model's own image processor does"
        )


@dataclass(frozen=True)
class ImageCheckpoint(Checkpoint):
    """A checkpoint of transformers whose model reads images.

    Args:
        name_or_path: a ``save_pretrained`` folder or a Hub id.
        revision: commit of a Hub id.
        geometry: of images, ``crop`` or ``squash``; ``None`` is the processor's own.
    """

    geometry: Geometry | None = None

    def __post_init__(self) -> None:
        check_geometry(self.geometry)


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

    def settings_words(self) -> list[object]:
        """Return the settings as ``settings_hash`` writes them.

        As it always was for these two, so that what was computed before is found again.
        """
        told = {"max_length", "geometry"}
        more = [f"{k}={v!r}" for k, v in sorted(self.answering().items()) if k not in told]
        return [self.max_length, *filter(None, [self.geometry]), *more]


@dataclass(frozen=True)
class Fusion(Folder):
    """An encoder of image and text together, with a head that says whether the text follows.

    Args:
        name_or_path: a folder, a Hub id, or ``zoo:NAME`` for one shipped here; to train, any
            checkpoint of the encoder, whatever it was trained for.
        revision: commit of a Hub id.
        max_length: hypotheses are cut to this many tokens; ``None`` is what the model can take.
        geometry: of images, ``crop`` or ``squash``; ``None`` is the processor's own.
        labels: entailment, neutral and contradiction in the order of the head's logits, which
            differs between models; ``None`` is what ``config.json`` says.
    """

    labels: tuple[str, ...] | None = None

    provides = (Entailer,)

    def load_to_train(self, seed: int) -> Any:
        """Load the encoder with its head, or with one drawn from a seed where it has none of three.

        Args:
            seed: of the run.

        Raises:
            UserError: what ``load`` raises, but for a head that is missing.
        """
        module, _, name = self.implementation.rpartition(".")
        kind = getattr(import_module(module), name)
        return kind.load(self.folder(), **self.settings, head_seed=seed)

    def check_trainable(self) -> None:
        """Refuse it as a dual encoder.

        Raises:
            UserError: naming the training that it is for.
        """
        raise UserError(
            f"{self.owner} cannot be fine-tuned on images and their captions: it learns whether a "
            "text follows from an image, by `python train.py task=entailment` with labelled "
            "hypotheses (data=shapescapes_ve, data=entailment)"
        )
