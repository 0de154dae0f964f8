"""Two images, two captions that differ by one edit: which belongs to which (Winoground)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from cfaug.bench.embed import Pixels, embed_images, embed_texts
from cfaug.bench.identity import fingerprint
from cfaug.bench.item_names import cluster_rows, name_rows
from cfaug.bench.source import SourceBenchmark, paired_rows
from cfaug.metrics.pairs import pair_similarities, winoground_hits
from cfaug.types import CLUSTER, ITEM, Column, Evaluation

if TYPE_CHECKING:
    from cfaug.bench.cached_model import CachedEncoder
    from cfaug.bench.context import EvaluationContext
    from cfaug.data.index import Index
    from cfaug.protocols import DualEncoder


@dataclass
class PairMatching(SourceBenchmark):
    """Text, image and group score over a source of pairs: ``benchmark=pairs``.

    Args:
        data: the pairs.
        name: what tables call it, "_pairs" added; ``None`` is the folder's name.
        batch_size: images or captions embedded at once.
        without_leaks: leave out pairs of which the run was trained on an image, or on its COCO
            photo; otherwise they are only reported.
    """

    kind: ClassVar[str] = "pairs"
    whole_sets: ClassVar[bool] = True

    def prepare(self, context: EvaluationContext, index: Index, rows: np.ndarray | None) -> None:
        """Keep what ``run`` asks about."""
        self.ask(index, rows)

    def ask(self, index: Index, rows: np.ndarray | None = None) -> Self:
        """Ask about rows of an open source, and return this benchmark.

        Args:
            index: the source.
            rows: which rows, of whole sets; ``None`` is all.

        Raises:
            UserError: if a set does not have two members.
        """
        self._index, self._asked = index, rows
        self._rows = paired_rows(self.name, index, rows)
        self._pixels = Pixels(index, self._rows)
        return self

    @property
    def data_hash(self) -> str:
        """What was asked about, as a hash: a result is never mistaken for another test's."""
        return fingerprint(self._index.hash, *([] if self._asked is None else [self._asked]))

    def run(self, encoder: DualEncoder | CachedEncoder) -> Evaluation:
        """Return text_score, image_score and group_score; the items are the pairs."""
        texts = [self._index.text(int(row)) for row in self._rows]
        text_N2D = embed_texts(encoder, texts, self.batch_size).reshape(len(texts) // 2, 2, -1)
        image_N2D = embed_images(encoder, self._pixels, self.batch_size)
        sim_N22 = pair_similarities(text_N2D, image_N2D.reshape(text_N2D.shape))
        hits = {name: h.astype(np.float64) for name, h in winoground_hits(sim_N22).items()}
        first = self._rows[::2]
        items: dict[str, Column] = {
            ITEM: name_rows(self._index, first),
            CLUSTER: cluster_rows(self._index, first),
            **hits,
            **{
                f"text {i} image {j}": sim_N22[:, i, j].astype(np.float64)
                for i in (0, 1)
                for j in (0, 1)
            },
        }
        return Evaluation(self.mean_outcomes(hits), items)
