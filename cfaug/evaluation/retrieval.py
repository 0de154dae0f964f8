"""Retrieval in both directions between the images and the captions of a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.core.types import CLUSTER, ITEM, Evaluation
from cfaug.core.validation import Positive
from cfaug.evaluation.benchmark import SourceBenchmark, cluster_rows, fingerprint, name_rows
from cfaug.evaluation.failures import Cells, read_cells
from cfaug.evaluation.inference import Pixels, embed_images, embed_texts
from cfaug.stats.ranking import all_tied, hits_at, standings

if TYPE_CHECKING:
    from cfaug.core.protocols import DualEncoder
    from cfaug.data.index import Index
    from cfaug.evaluation.cached_model import CachedEncoder
    from cfaug.evaluation.context import EvaluationContext
    from cfaug.report.items import Items
    from cfaug.stats.ranking import QueryRanks


@dataclass
class Retrieval(SourceBenchmark):
    """Recall@1/5/10 in both directions: ``benchmark=retrieval benchmark.data=FOLDER``.

    All rows that share an image are captions of it.

    Args:
        data: a folder in any form ``data.real`` takes, or ``shapescapes:PART``.
        name: the name in tables, ending in "_retrieval"; ``None`` takes the folder's name.
        batch_size: number of images or captions embedded at once.
        without_leaks: whether to leave out images that the run was trained on, or whose COCO photo
            it was trained on; otherwise they are only reported.
        captions_per_image: the number of captions of each image that are used, its first ones;
            ``None`` uses all. The COCO-Counterfactuals paper's Table 3 is consistent with 1, its
            Table 12 with all.
        counterfactual_holdout: the share of sets that ``data.counterfactual_holdout`` kept out of
            training, as the only ones to test on; 0.3 in the paper's Table 5.
        human_labels: a file of human labels; only images that annotators matched to their own
            caption are used, as in the paper's Tables 2 and 13. ``shapescapes:PART`` uses the
            oracle's answers.
        edited_by: a counterfactual source; only captions that were edited for it are used, as in
            the paper's MS-COCO (footnote 11).

    Raises:
        UserError: if more than one of ``counterfactual_holdout``, ``human_labels`` and
            ``edited_by`` is given, or ``captions_per_image`` is below 1.
    """

    captions_per_image: Positive | None = None
    counterfactual_holdout: float | None = None
    human_labels: str | None = None
    edited_by: str | None = None

    kind: ClassVar[str] = "retrieval"

    item_schema: ClassVar[ItemSchema] = ItemSchema(
        "query: the images, then the captions",
        (
            ItemColumn("item", "``image <name>`` or ``text <name>``", "text", always=True),
            ItemColumn("cluster", "the group of the image, such as its photo", "text", always=True),
            ItemColumn("image_to_text_R@<k>", "1 if a caption of the image is among the first k"),
            ItemColumn("text_to_image_R@<k>", "1 if the caption's image is among the first k"),
            ItemColumn("above", "wrong candidates that score above the right one", "whole number"),
            ItemColumn("tied", "wrong candidates that score the same as it", "whole number"),
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        names = ("counterfactual_holdout", "human_labels", "edited_by")
        given = [f"benchmark.{name}" for name in names if getattr(self, name) is not None]
        if len(given) > 1:
            raise UserError(f"{' and '.join(given)} exclude each other: choose one")

    def choose_rows(self, context: EvaluationContext, source: str) -> np.ndarray | None:
        """Return the rows that the settings select."""
        if self.counterfactual_holdout is not None:
            return context.withheld_rows(source, self.counterfactual_holdout)
        if self.human_labels is not None:
            return context.validated_rows(source, self.human_labels)
        if self.edited_by is not None:
            return context.edited_rows(source, self.edited_by)
        return None

    def prepare(self, context: EvaluationContext, index: Index, rows: np.ndarray | None) -> None:
        """Store the data that ``run`` evaluates."""
        self.ask(index, rows)

    def ask(self, index: Index, rows: np.ndarray | None = None) -> Self:
        """Ask about rows of an open source, and return this benchmark.

        Args:
            rows: the rows to use; ``None`` for all.
        """
        rows = np.arange(len(index)) if rows is None else np.sort(rows)
        image_of_row = index.images[rows]
        if self.captions_per_image is not None:
            keep = _rank_within(image_of_row) < self.captions_per_image
            rows, image_of_row = rows[keep], image_of_row[keep]
        _, first, image_of_text = np.unique(image_of_row, return_index=True, return_inverse=True)
        if len(first) < 2:
            raise UserError(
                f"{self.name}: retrieval needs at least two images; {index.source} has {len(first)}"
            )
        self._index, self._rows, self._image_of_text = index, rows, image_of_text
        self._pixels = Pixels(index, rows[first])
        return self

    @property
    def data_hash(self) -> str:
        """A hash of the data and settings, so that a result is not taken for another test's."""
        return fingerprint(self._index.hash, self._rows)

    def run(self, encoder: DualEncoder | CachedEncoder) -> Evaluation:
        """Return six recalls; ``n`` counts images for image to text, captions for text to image."""
        texts = [self._index.text(int(row)) for row in self._rows]
        ranks = standings(
            embed_texts(encoder, texts, self.batch_size),
            embed_images(encoder, self._pixels, self.batch_size),
            self._image_of_text,
        )
        hits = hits_at(ranks)
        expected = hits_at(all_tied(self._image_of_text))
        chance = {metric: float(values.mean()) for metric, values in expected.items()}
        return Evaluation(self.mean_outcomes(hits, chance), self._items(ranks, hits))

    def failure_cells(self, items: Items) -> Cells:
        """Return the edited rows: misses of image and caption, with those of the set's first row.

        A row loses 1 if neither its caption finds its image first nor its image the caption.
        """
        index, rows = self._index, self._rows
        count = len(self._pixels.rows)
        missed = 1 - items.metric("text_to_image_R@1")[count:]
        missed += (1 - items.metric("image_to_text_R@1")[:count])[self._image_of_text]
        sets = np.asarray(index.sets)[rows]
        first = np.searchsorted(sets, sets)  # rows are sorted, so those of a set are adjacent
        edited = np.flatnonzero(self._image_of_text != self._image_of_text[first])
        names = np.asarray(items.columns[ITEM])[count:][edited]
        clusters = np.asarray(items.columns[CLUSTER])[count:][edited]
        return Cells(
            names.tolist(), missed[edited] / 2, missed[first[edited]] / 2, clusters.tolist(),
            read_cells(index, np.stack([rows[first[edited]], rows[edited]], axis=1)),
        )  # fmt: skip

    def _items(
        self, ranks: Mapping[str, QueryRanks], hits: Mapping[str, np.ndarray]
    ) -> dict[str, list[str] | np.ndarray]:
        index, images, texts = self._index, self._pixels.rows, self._rows
        ways = [ranks["image_to_text"], ranks["text_to_image"]]
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
    """Return each element's index among the elements equal to it.

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
