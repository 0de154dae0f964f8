"""Clusters of a stress test's edits by their differences in text, for insights into classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.protocols import DualEncoder
from cfaug.core.types import ORIGINAL, RECONSTRUCTION
from cfaug.core.validation import Positive, Seed, check_fields
from cfaug.editing.protocols import SentenceEmbedder
from cfaug.evaluation.embed import embed_texts
from cfaug.lance.edit_groups import (
    CLUSTERS,
    Feature,
    Grouping,
    cluster_edits,
    difference_features,
    group_within,
)
from cfaug.lance.stress_items import CENTRE, GROUP

if TYPE_CHECKING:
    from cfaug.models.specs import ModelSpec

Unit = Literal["word", "caption"]

TEXTS: Mapping[str, tuple[str, str]] = {"word": ("before", "after"),
                                        "caption": ("text_before", "text")}  # fmt: skip
"""The columns of the items with the texts before and after the edit."""


@dataclass(frozen=True)
class EditClusters:
    """K-Means on the difference of text features before and after an edit, class by class.

    The defaults are the paper's (LANCE, section 4.2 and Table 6); its released code clusters the
    signed difference of whole captions into ten.

    Args:
        encoder: the model that embeds the texts: a dual encoder, or a sentence encoder.
        feature: the feature of an edit, from its texts' embeddings: ``abs_diff`` or
            ``signed_diff``.
        unit: embed the ``word`` that is replaced and the new one, or each whole ``caption``.
        clusters: largest number of clusters per class; a class has at most one per distinct edit.
        seed: the seed of K-Means.
        batch_size: number of texts embedded at once.

    Raises:
        UserError: naming what is invalid and the choices.
    """

    encoder: ModelSpec | SentenceEmbedder
    feature: Feature = "abs_diff"
    unit: Unit = "word"
    clusters: Positive = CLUSTERS
    seed: Seed = 0
    batch_size: int = 256

    def __post_init__(self) -> None:
        check_fields(self, "benchmark.clusters")

    def identity(self) -> list[str]:
        """Return all that decides the clusters besides the items, for the benchmark's hash."""
        settings = (self.feature, self.unit, self.clusters, self.seed)
        if isinstance(self.encoder, SentenceEmbedder):
            return [str(settings), str(self.encoder.describe())]
        return [str(settings), self.encoder.identity()]

    def columns(self, items: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return the two columns by which a page finds the clusters.

        Args:
            items: the items of a stress test, by column.

        Returns:
            ``edit_group``, int64, the number of each edit's cluster, -1 for an image that is not an
            edit; and ``edit_centre``, bool, true for the edit nearest to a cluster's centre, which
            names the cluster. Sets and classes have clusters of their own.

        Raises:
            UserError: if the encoder's embedding of a text is zero or not finite.
        """
        parts = np.asarray(items["set"], object)
        edits = np.flatnonzero((parts != ORIGINAL) & (parts != RECONSTRUCTION))
        groups, centres = np.full(len(parts), -1, np.int64), np.zeros(len(parts), bool)
        if not len(edits):
            return {GROUP: groups, CENTRE: centres}
        before, after = (np.asarray(items[name], object)[edits] for name in TEXTS[self.unit])
        texts = sorted({*before.tolist(), *after.tolist()})
        place = {text: i for i, text in enumerate(texts)}
        embedded = self._embed(texts)
        first, second = (embedded[[place[text] for text in side]] for side in (before, after))
        try:
            features = difference_features(first, second, self.feature)
        except ValueError as error:
            raise UserError(f"benchmark.clusters.encoder cannot be used here: {error}") from error
        labels = list(zip(parts[edits], np.asarray(items["class"], object)[edits], strict=True))
        grouping = self._cluster(features, labels)
        groups[edits] = grouping.groups
        centres[edits[grouping.names]] = True
        return {GROUP: groups, CENTRE: centres}

    def _cluster(self, features: np.ndarray, labels: Sequence[tuple[str, str]]) -> Grouping:
        own: dict[tuple[str, str], list[int]] = {}
        for row, label in enumerate(labels):
            own.setdefault(label, []).append(row)
        found = [cluster_edits(features[rows], self.clusters, self.seed) for rows in own.values()]
        return group_within(labels, found)

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        if isinstance(self.encoder, SentenceEmbedder):
            return np.asarray(self.encoder.encode(texts))
        return embed_texts(self.encoder.load(DualEncoder), texts, self.batch_size)
