"""Retrieval both ways between the images and the captions of a source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from cfaug.bench.embed import Pixels, embed_images, embed_texts
from cfaug.bench.identity import fingerprint
from cfaug.bench.item_names import cluster_rows, name_rows
from cfaug.errors import UserError
from cfaug.metrics.retrieval import hits_at, standings
from cfaug.protocols import DualEncoder
from cfaug.types import CLUSTER, ITEM, Evaluation, Outcome

if TYPE_CHECKING:
    from cfaug.bench.cached_model import CachedEncoder
    from cfaug.data.index import Index
    from cfaug.data.planning.leakage import Leaks
    from cfaug.metrics.ranking import Standing


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

    needs: ClassVar[type] = DualEncoder

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

    def run(self, encoder: DualEncoder | CachedEncoder) -> Evaluation:
        """Return six recalls; ``n`` counts images for image to text, captions for text to image.

        The items are the images, then the captions; ``above`` and ``tied`` count the wrong
        candidates that score more than the right answer, or the same.
        """
        texts = [self._index.text(int(row)) for row in self._rows]
        found = standings(
            embed_texts(encoder, texts, self._batch_size),
            embed_images(encoder, self._pixels, self._batch_size),
            self._image_of_text,
        )
        hits = hits_at(found)
        outcomes = [Outcome(self.name, name, float(h.mean()), len(h)) for name, h in hits.items()]
        return Evaluation(outcomes, self._items(found, hits))

    def _items(
        self, found: Mapping[str, Standing], hits: Mapping[str, np.ndarray]
    ) -> dict[str, list[str] | np.ndarray]:
        index, images, texts = self._index, self._pixels.rows, self._rows
        ways = [found["image_to_text"], found["text_to_image"]]
        columns = {}
        for name, values in hits.items():
            width = (0, len(texts)) if name.startswith("image") else (len(images), 0)
            columns[name] = np.pad(values, width, constant_values=np.nan)
        return {
            ITEM: [f"image {name}" for name in name_rows(index, images)]
            + [f"text {name}" for name in name_rows(index, texts)],
            CLUSTER: cluster_rows(index, np.concatenate([images, texts])),
            **columns,
            "above": np.concatenate([way.above for way in ways]),
            "tied": np.concatenate([way.tied for way in ways]),
        }


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
