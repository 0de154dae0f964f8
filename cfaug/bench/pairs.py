"""Two images, two captions that differ by one edit: which belongs to which (Winoground)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from cfaug.bench.embed import Pixels, embed_images, embed_texts
from cfaug.bench.identity import fingerprint
from cfaug.bench.item_names import cluster_rows, name_rows
from cfaug.errors import UserError
from cfaug.metrics.pairs import pair_similarities, winoground_hits
from cfaug.protocols import DualEncoder
from cfaug.types import CLUSTER, ITEM, Column, Evaluation, Outcome

if TYPE_CHECKING:
    from cfaug.bench.cached_model import CachedEncoder
    from cfaug.data.index import Index
    from cfaug.data.planning.leakage import Leaks


class PairMatching:
    """Text, image and group score over the sets of two members of a source.

    Args:
        name: the benchmark's, as tables show it.
        index: the source.
        rows: which rows, of whole sets; ``None`` is all.
        batch_size: images or captions embedded at once.
        leaks: the images among them that the run was trained on, where that was looked for.

    Raises:
        UserError: if a set does not have two members.
    """

    needs: ClassVar[type] = DualEncoder

    def __init__(
        self,
        name: str,
        index: Index,
        *,
        rows: np.ndarray | None = None,
        batch_size: int = 256,
        leaks: Leaks | None = None,
    ) -> None:
        self.name = name
        self.leaks = leaks
        self._index = index
        self._asked = rows
        self._batch_size = batch_size
        chosen = np.arange(len(index)) if rows is None else rows
        sets = np.asarray(index.sets)[chosen]
        _, counts = np.unique(sets, return_counts=True)
        if not len(counts) or (counts != 2).any():
            raise UserError(
                f"{name}: every set must have two members; {index.source} has sets of "
                f"{sorted(set(counts.tolist()))}"
            )
        self._rows = chosen[np.argsort(sets, kind="stable")]
        self._pixels = Pixels(index, self._rows)

    @property
    def data_hash(self) -> str:
        """What was asked about, as a hash: a result is never mistaken for another test's."""
        return fingerprint(self._index.hash, *([] if self._asked is None else [self._asked]))

    def run(self, encoder: DualEncoder | CachedEncoder) -> Evaluation:
        """Return text_score, image_score and group_score; the items are the pairs."""
        texts = [self._index.text(int(row)) for row in self._rows]
        text_N2D = embed_texts(encoder, texts, self._batch_size).reshape(len(texts) // 2, 2, -1)
        image_N2D = embed_images(encoder, self._pixels, self._batch_size)
        sim_N22 = pair_similarities(text_N2D, image_N2D.reshape(text_N2D.shape))
        hits = winoground_hits(sim_N22)
        first = self._rows[::2]
        items: dict[str, Column] = {
            ITEM: name_rows(self._index, first),
            CLUSTER: cluster_rows(self._index, first),
            **{name: values.astype(np.float64) for name, values in hits.items()},
            **{
                f"text {i} image {j}": sim_N22[:, i, j].astype(np.float64)
                for i in (0, 1)
                for j in (0, 1)
            },
        }
        outcomes = [Outcome(self.name, name, float(h.mean()), len(h)) for name, h in hits.items()]
        return Evaluation(outcomes, items)
