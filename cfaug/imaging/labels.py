"""Checks with a second encoder whether an image shows the attributes of its caption.

Zero-shot classification among the captions of a set: an image should be more similar to its own
caption than to captions that differ in one attribute. Labels are what captions asked for, never
what people are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from cfaug.core.errors import UserError
from cfaug.core.grids import ATTRIBUTES, require_attributes
from cfaug.core.pixels import as_floats
from cfaug.core.protocols import EmbeddingScorer
from cfaug.core.read_with import ReadWith
from cfaug.core.types import Images, Proposal, Scores

if TYPE_CHECKING:
    from torch import Tensor

BASE, EDITED = "label_0", "label_1"
"""Names of the scores of the base image, and of each other image."""

TOGETHER = 32
"""Number of images in memory as floats at a time."""

MEANINGS = {
    BASE: "base image: its own caption less the nearest other value's",
    EDITED: "other image: its own caption less the nearest other value's",
}


@dataclass(frozen=True)
class LabelScorer:
    """A scorer of attribute grids: does another encoder recognise every attribute?

    It gives ``label_0``, of the base image, and ``label_1``, of each other one: the least margin,
    over the attributes of the grid, by which the cosine of the image with its own caption exceeds
    that with the best caption that differs in this attribute alone. At 0 or above all attributes
    are recognised, so a recipe sets ``selection.minimum: {label_0: 0, label_1: 0}``. The conference
    version of SocialCounterfactuals filtered by CLIP's zero-shot answer in a similar way; the
    details are not known.

    Args:
        encoder: the encoder of texts and images; not the one for selection or a model tested later,
            because sets that a model finds easy would flatter it.
        prefix: prefix of the names of its scores.
    """

    encoder: EmbeddingScorer
    prefix: str = ""

    read_with: ClassVar[ReadWith] = {
        # Only its embeddings are compared.
        "encoder.prefix": [],
        "encoder.consistency": [],
        "encoder.all_pairs": [],
    }

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the scores."""
        return tuple(self.meanings)

    @property
    def meanings(self) -> dict[str, str]:
        """{name of the score: what it compares}, for figures."""
        return {self.prefix + name: meaning for name, meaning in MEANINGS.items()}

    def score(self, proposals: Sequence[Proposal], images: Sequence[Images]) -> list[Scores]:
        """Return the scores of each candidate; see ``cfaug.core.protocols.Scorer``.

        Raises:
            UserError: if a proposal is not an attribute grid.
        """
        said: dict[tuple[str, ...], Tensor] = {}
        found: list[Scores] = []
        for proposal, made in zip(proposals, images, strict=True):
            attributes = _attributes(proposal)
            texts = proposal.texts
            if texts not in said:
                said[texts] = self.encoder.texts(texts).cpu()
            margins = label_margins(self._embed(made), said[texts], attributes)
            if math.inf in margins:
                raise UserError(
                    f"recipe.scorers: proposal {proposal.key!r}: no caption differs from "
                    f"{texts[margins.index(math.inf)]!r} in one attribute alone: the grid is "
                    "incomplete"
                )
            base, *others = margins
            scores: dict[str, float | tuple[float, ...]] = {self.prefix + BASE: base}
            found.append(scores | {self.prefix + EDITED: tuple(others)})
        return found

    def _embed(self, made: Images) -> Tensor:
        """Return the embedding of each text's image."""
        import torch

        seen: list[Tensor] = []
        for start in range(0, len(made.images), TOGETHER):
            floats = [as_floats(one) for one in made.images[start : start + TOGETHER]]
            same = all(one.shape == floats[0].shape for one in floats)
            parts = [torch.stack(floats)] if same else [one[None] for one in floats]
            seen += [self.encoder.images(part).cpu() for part in parts]
        embedded = torch.cat(seen)
        return embedded[list(made.shown)]

    def describe(self) -> dict[str, str]:
        """Return names, revisions and hashes of the weights, for the card."""
        return self.encoder.describe()


def label_margins(
    images: Tensor, texts: Tensor, attributes: Sequence[Mapping[str, str]]
) -> list[float]:
    """Return the margin by which each image is more similar to its caption than to the others.

    Args:
        images: embeddings of unit length (n, dim).
        texts: embeddings of the images' captions, of unit length (n, dim).
        attributes: {attribute: value} of each caption.

    Returns:
        The least margin over the attributes that have other values in the set; infinite if no
        caption differs in only one attribute.
    """
    import torch

    cosines = images.double() @ texts.double().T
    own = cosines.diagonal()
    names = list(attributes[0])
    known: dict[tuple[str, str], int] = {}
    codes = torch.tensor(
        [[known.setdefault((name, one[name]), len(known)) for name in names] for one in attributes]
    )
    differ = codes[:, None] != codes[None]
    alone = differ.sum(-1) == 1
    margins = torch.full_like(own, torch.inf)
    for place in range(len(names)):
        nearest = cosines.masked_fill(~(differ[..., place] & alone), -torch.inf).amax(dim=1)
        margins = torch.minimum(margins, own - nearest)
    return [float(one) for one in margins]


def _attributes(proposal: Proposal) -> list[dict[str, str]]:
    where = f"recipe.scorers: proposal {proposal.key!r}"
    if not proposal.details:
        raise UserError(f"{where} has no attributes to look for: LabelScorer is for data.grid=NAME")
    found = [require_attributes(one.get(ATTRIBUTES), where) for one in proposal.details]
    if len(found) < 2 or any(one.keys() != found[0].keys() for one in found):
        raise UserError(f"{where} is not a grid: its texts have different attributes")
    return found
