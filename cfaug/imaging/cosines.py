"""InstructPix2Pix's four cosines of a set, by name, and its thresholds (section 3.1.2).

Every such scorer embeds texts and images; this module defines the comparisons.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

from cfaug.core.errors import UserError
from cfaug.core.pixels import as_floats
from cfaug.core.types import Edit, Scores
from cfaug.imaging.select import Aggregate, Selection

if TYPE_CHECKING:
    from torch import Tensor

    from cfaug.core.types import Images, Proposal


BASE, EDITED, IMAGE, DIRECTION = "sim_0", "sim_1", "sim_image", "sim_direction"
CONSISTENCY, PAIRS = "consistency", "sim_direction_pairs"
"""Names of the scores, in shards and candidate logs too: of the base image and the first text, of
each edited image and its text, of each edited image and the base image, and of the change of the
image and the change of the text."""
MEANINGS = {
    BASE: "base image and its caption",
    EDITED: "edited image and its caption",
    IMAGE: "edited image and base image",
    DIRECTION: "change of image and change of caption",
}
CONSISTENT = "edited image: nearer to the edited text than to the original"
ALL_PAIRS = "change of image and change of caption, mean over all pairs"
Unit = Literal["caption", "phrase"]
REASONS = {BASE: "caption_0", EDITED: "caption_1", IMAGE: "image", DIRECTION: "direction"}
"""The reason for a rejection by each score, in cards and logs."""


class CosineScorer(ABC):
    """A scorer by the cosines of embeddings, float32 and of unit length.

    An implementation embeds texts and images. Each text and each image is embedded once for all
    comparisons, and the edits of a rejected base image are not embedded.

    Args:
        prefix: prefix of the name of each score, if a recipe has several such scorers.
        consistency: the texts of the further score ``consistency``, the cosine of an edited image
            with its text minus that with the original text (LANCE, section 3.2): whole captions
            (``caption``, the paper), or the replaced words and their replacement (``phrase``, the
            released code; an insertion replaces the empty text). ``None`` leaves the score out.
        all_pairs: whether to add the score ``sim_direction_pairs``, the mean directional cosine
            over all pairs of a set's texts; ``sim_direction`` has only the pairs with the first
            text.
    """

    prefix: str = ""
    consistency: Unit | None = None
    all_pairs: bool = False

    def __init__(
        self, prefix: str = "", consistency: Unit | None = None, all_pairs: bool = False
    ) -> None:
        self.prefix = prefix
        self.consistency = consistency
        self.all_pairs = all_pairs
        self._check_consistency()

    def _check_consistency(self) -> None:
        if self.consistency not in (None, *get_args(Unit)):
            raise UserError(
                f"recipe.scorers: consistency={self.consistency} is not caption, phrase or null"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the scores."""
        return tuple(self.meanings)

    @property
    def meanings(self) -> dict[str, str]:
        """{name of the score: what it compares}, for figures."""
        every = MEANINGS if self.consistency is None else MEANINGS | {CONSISTENCY: CONSISTENT}
        every = every | {PAIRS: ALL_PAIRS} if self.all_pairs else every
        return {self.prefix + name: meaning for name, meaning in every.items()}

    def further_texts(self, proposal: Proposal) -> list[str]:
        """Return further texts to compare besides a proposal's own: the words of each edit."""
        if self.consistency != "phrase":
            return []
        edits = [edit or Edit("", "", "") for edit in proposal.edits[1:]]
        return [text for edit in edits for text in (edit.before, edit.after)]

    @abstractmethod
    def texts(self, texts: Sequence[str]) -> Tensor:
        """Embed texts: (n, dim)."""

    @abstractmethod
    def images(self, images: Tensor) -> Tensor:
        """Embed images float32 (n, 3, H, W) in [0, 1]: (n, dim)."""

    @abstractmethod
    def describe(self) -> dict[str, str]:
        """Return names, revisions and hashes of the weights, for the card."""

    def compare(self, texts: Sequence[Tensor], images: Sequence[Tensor]) -> Scores:
        """Return the scores of one candidate, as far as its images are available.

        Args:
            texts: embeddings (dim,) of every text, the base text first, then of ``further_texts``.
            images: embeddings (dim,) of the image of every text, or only of the base image.

        Returns:
            ``sim_0``, a number; and unless only the base is given, ``sim_1``, ``sim_image``,
            ``sim_direction`` and, if asked for, ``consistency``, a value for each edited image, and
            ``sim_direction_pairs``, a number.
        """
        import torch

        base, *edited = images
        scores: dict[str, float | tuple[float, ...]] = {
            self.prefix + BASE: cosine(base[None], texts[0][None])[0].tolist()[0]
        }
        if edited:
            seen, said = torch.stack(edited), torch.stack(list(texts[1 : len(images)]))
            first, text = base.expand_as(seen), texts[0].expand_as(said)
            scores |= {
                self.prefix + EDITED: tuple(cosine(seen, said)[0].tolist()),
                self.prefix + IMAGE: tuple(cosine(seen, first)[0].tolist()),
                self.prefix + DIRECTION: tuple(direction(first, seen, text, said)[0].tolist()),
            }
            if self.consistency is not None:
                words = texts[len(images) :]
                phrases = torch.stack(list(words)) if words else None
                before, after = (text, said) if phrases is None else (phrases[::2], phrases[1::2])
                margin = cosine(seen, after)[0] - cosine(seen, before)[0]
                scores[self.prefix + CONSISTENCY] = tuple(margin.tolist())
            if self.all_pairs:
                every = torch.stack(list(texts[: len(images)]))
                scores[self.prefix + PAIRS] = mean_direction(torch.stack(list(images)), every)
        return scores

    def score(self, proposals: Sequence[Proposal], images: Sequence[Images]) -> list[Scores]:
        """Return the scores of each candidate; see ``cfaug.core.protocols.Scorer``."""
        import torch

        found = []
        for proposal, made in zip(proposals, images, strict=True):
            seen = torch.cat([self.images(as_floats(image)[None]) for image in made.images])
            shown = [seen[i] for i in made.shown]
            texts = [*proposal.texts, *self.further_texts(proposal)]
            found.append(self.compare(list(self.texts(texts)), shown))
        return found


def clip_selection(
    min_clip_text: float = 0.2,
    min_clip_image: float = 0.7,
    min_clip_direction: float | None = 0.2,
    aggregate: Aggregate = "min",
    keep: int = 1,
) -> Selection:
    """Return InstructPix2Pix's selection: three thresholds, then directional similarity.

    Args:
        min_clip_text: least cosine of every image with its own caption (COCO-CFs, B.1.2).
        min_clip_image: least cosine of an edited image with the base image (B.1.2).
        min_clip_direction: least directional cosine; ``None`` is no threshold. The paper names no
            such threshold; InstructPix2Pix's code, whose defaults it used, has 0.2.
        aggregate: the score of several edits of a set: the worst (``min``), or the ``mean``.
        keep: number of candidates of a set to keep, the best first.

    Raises:
        UserError: for a threshold that is not a cosine, or an invalid choice or count.
    """
    given = {
        "min_clip_text": min_clip_text, "min_clip_image": min_clip_image,
        "min_clip_direction": min_clip_direction,
    }  # fmt: skip
    for name, least in given.items():
        if least is not None and not -1 <= least <= 1:
            raise UserError(f"recipe.selection.{name}={least} is a cosine: from -1 to 1")
    minimum = {BASE: min_clip_text, EDITED: min_clip_text, IMAGE: min_clip_image}
    return Selection(
        {**minimum, DIRECTION: min_clip_direction}, DIRECTION, aggregate, keep, reasons=REASONS
    )


# Cosines between embeddings of images and texts, in float32 (InstructPix2Pix, section 3.1.2).
#
# Functions compare row by row. Inputs have unit length, as lengths affect the direction of a
# difference.
# Half precision is too coarse: a direction is the difference of two nearly equal vectors.


def cosine(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosine of each row of ``a`` with the same row of ``b``, and which are undefined.

    This gives caption-image and image-image similarity.

    Args:
        a: vectors (n, dim).
        b: vectors (n, dim).

    Returns:
        Cosines (n,), and bool (n,): whether a row is zero and the cosine, 0/0, is returned as 0.
    """
    import torch

    a, b = a.float(), b.float()
    length = torch.linalg.vector_norm(a, dim=-1) * torch.linalg.vector_norm(b, dim=-1)
    undefined = length == 0
    product = (a * b).sum(-1)
    return torch.where(undefined, 0.0, product / length.masked_fill(undefined, 1.0)), undefined


def direction(
    image: Tensor, edited_image: Tensor, text: Tensor, edited_text: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the directional similarity of images and texts: cosines (n,), and which are undefined.

    0/0 results from equal texts, such as texts that differ only beyond a model's length limit.

    Args:
        image: embeddings (n, dim) of unit length, like the others, which correspond row by row.
    """
    return cosine(edited_image.float() - image.float(), edited_text.float() - text.float())


def mean_direction(images: Tensor, texts: Tensor) -> float:
    """Return the mean directional cosine over all pairs of a set, including those without the base.

    Args:
        images: embeddings of the images, of unit length (n, dim), with n of at least 2.
        texts: embeddings of the texts, of unit length (n, dim).
    """
    import torch

    one, other = torch.triu_indices(len(images), len(images), offset=1)
    found, _ = direction(images[one], images[other], texts[one], texts[other])
    return float(found.mean())
