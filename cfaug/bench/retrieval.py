"""Retrieval both ways between the images and the captions of a source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from cfaug.bench.embed import Pixels, embed_images, embed_texts
from cfaug.bench.identity import fingerprint
from cfaug.errors import UserError
from cfaug.metrics.retrieval import recall_from_embeddings
from cfaug.types import Outcome

if TYPE_CHECKING:
    from cfaug.bench.cached_model import CachedEncoder
    from cfaug.data.index import Index
    from cfaug.data.planning.leakage import Leaks
    from cfaug.protocols import DualEncoder


class Retrieval:
    """Recall@1/5/10, image to text and text to image, any number of captions per image.

    Args:
        name: the benchmark's, as tables show it.
        index: the source; rows that share an image are its captions.
        rows: which rows; ``None`` is all.
        batch_size: images or captions embedded at once.
        captions_per_image: keep the first so many of each image; ``None`` is all. The
            COCO-Counterfactuals paper's Table 3 fits one.
        leaks: the images among them that the run was trained on, where that was looked for.

    Raises:
        UserError: if there are fewer than two images.
    """

    needs: Literal["encoder"] = "encoder"

    def __init__(
        self,
        name: str,
        index: Index,
        *,
        rows: np.ndarray | None = None,
        batch_size: int = 256,
        captions_per_image: int | None = None,
        leaks: Leaks | None = None,
    ) -> None:
        self.name = name
        self.leaks = leaks
        self._index = index
        self._batch_size = batch_size
        rows = np.arange(len(index)) if rows is None else np.sort(rows)
        image_of_row = index.images[rows]
        if captions_per_image is not None:
            keep = _rank_within(image_of_row) < captions_per_image
            rows, image_of_row = rows[keep], image_of_row[keep]
        self._rows = rows
        _, first, self._image_of_text = np.unique(
            image_of_row, return_index=True, return_inverse=True
        )
        if len(first) < 2:
            raise UserError(
                f"{name}: retrieval needs at least two images; {index.source} has {len(first)}"
            )
        self._pixels = Pixels(index, rows[first])

    @property
    def data_hash(self) -> str:
        """What was asked about, as a hash: a result is never mistaken for another test's."""
        return fingerprint(self._index.hash, self._rows)

    def run(self, encoder: DualEncoder | CachedEncoder) -> list[Outcome]:
        """Return six recalls; ``n`` counts images for image to text, captions for text to image."""
        texts = [self._index.text(int(row)) for row in self._rows]
        found = recall_from_embeddings(
            embed_texts(encoder, texts, self._batch_size),
            embed_images(encoder, self._pixels, self._batch_size),
            self._image_of_text,
        )
        n_images = len(self._pixels.rows)
        return [
            Outcome(
                self.name, metric, value, n_images if metric.startswith("image") else len(texts)
            )
            for metric, value in found.items()
        ]


def _rank_within(groups: np.ndarray) -> np.ndarray:
    """Return each element's place among equal elements, in order.

    >>> _rank_within(np.array([7, 7, 3, 7, 3])).tolist()
    [0, 1, 0, 2, 1]
    """
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    lengths = np.diff(np.r_[starts, len(groups)])
    ranks = np.empty(len(groups), np.int64)
    ranks[order] = np.arange(len(groups)) - np.repeat(starts, lengths)
    return ranks
