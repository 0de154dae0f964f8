"""What the training command takes."""

from __future__ import annotations

from dataclasses import dataclass

from cfaug.zoo.fitting import Rates


@dataclass(frozen=True, kw_only=True)
class LanguageSettings(Rates):
    """What the command takes, as ``name=value``.

    Attributes: those of :class:`cfaug.zoo.fitting.Rates`, and
        out: folder to write, with ``masked``, ``causal`` and ``sentence`` in it; must not exist.
        captions: JSON lines with ``image_id`` and ``caption``, such as MS-COCO's.
        seed: of the split, the weights, the masks and the order.
        min_count: a word seen less often in training is unknown.
        held_out: share of the images that no model is trained on.
        mask_share: share of the words hidden from the masked model.
        masked_epochs: passes of the masked model over the captions.
        causal_epochs: passes of the causal model.
        sentence_steps: steps of the sentence encoder, each on two captions of a batch of images.
        temperature: of the sentence encoder's contrastive loss, on cosines.
    """

    out: str
    captions: str
    seed: int = 0
    min_count: int = 3
    held_out: float = 0.05
    batch_size: int = 128
    mask_share: float = 0.2
    masked_epochs: int = 16
    causal_epochs: int = 8
    sentence_steps: int = 1_200
    temperature: float = 0.05
