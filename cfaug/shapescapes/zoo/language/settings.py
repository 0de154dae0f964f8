"""The settings of the training command."""

from __future__ import annotations

from dataclasses import dataclass

from cfaug.core.validation import Seed
from cfaug.shapescapes.zoo.fitting import Rates


@dataclass(frozen=True, kw_only=True)
class LanguageSettings(Rates):
    """The settings of the command, given as ``name=value``.

    Attributes: those of :class:`cfaug.shapescapes.zoo.fitting.Rates`, and
        out: the folder to write ``masked``, ``causal`` and ``sentence`` into; must not exist.
        captions: a JSON Lines file with ``image_id`` and ``caption``, such as MS-COCO's.
        seed: the seed of the split, the weights, the masks and the order.
        min_count: the smallest count of a word in the training captions; rarer ones are unknown.
        held_out: the share of the images that no model is trained on.
        mask_share: the share of the words that are masked.
        masked_epochs: the masked model's number of passes over the captions.
        causal_epochs: the causal model's number of passes over the captions.
        sentence_steps: the sentence encoder's number of steps, each on two captions of each image
            of a batch.
        temperature: the temperature of the sentence encoder's contrastive loss on cosines.
    """

    out: str
    captions: str
    seed: Seed = 0
    min_count: int = 3
    held_out: float = 0.05
    batch_size: int = 128
    mask_share: float = 0.2
    masked_epochs: int = 16
    causal_epochs: int = 8
    sentence_steps: int = 1_200
    temperature: float = 0.05
