"""Zero-shot classification of a labelled source by prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from cfaug.bench.embed import Pixels, embed_images, embed_texts
from cfaug.bench.identity import fingerprint
from cfaug.bench.item_names import cluster_rows, name_rows
from cfaug.errors import UserError
from cfaug.metrics.classification import (
    class_vectors,
    fill_templates,
    hits_at,
    mean_per_class_recall,
    zero_shot_scores,
)
from cfaug.protocols import DualEncoder
from cfaug.types import CLUSTER, ITEM, Evaluation, Outcome

if TYPE_CHECKING:
    from cfaug.bench.cached_model import CachedEncoder
    from cfaug.data.index import Index
    from cfaug.data.planning.leakage import Leaks


class ZeroShot:
    """Top-1, top-5 and mean per-class recall with a template ensemble.

    Args:
        name: the benchmark's, as tables show it.
        index: the source; every row has a label, which is a class.
        classes: the labels to choose from; ``None`` is every label of the source, sorted.
        templates: prompts with ``{c}`` where the class name goes.
        names: what prompts call each class; ``None`` is the labels themselves.
        rows: which rows; ``None`` is all.
        labels: the label of every row of the source, where it is not the index's own.
        batch_size: images or prompts embedded at once.
        leaks: the images among them that the run was trained on, where that was looked for.

    Raises:
        UserError: if a row has no label, or one that is not among ``classes``.
    """

    needs: ClassVar[type] = DualEncoder

    def __init__(
        self,
        name: str,
        index: Index,
        *,
        classes: Sequence[str] | None,
        templates: Sequence[str],
        names: Sequence[str] | None = None,
        rows: np.ndarray | None = None,
        labels: Sequence[str | None] | None = None,
        batch_size: int = 256,
        leaks: Leaks | None = None,
    ) -> None:
        self.name = name
        self.leaks = leaks
        self._index = index
        self._batch_size = batch_size
        rows = np.arange(len(index)) if rows is None else rows
        _, at = np.unique(index.images[rows], return_index=True)
        first = rows[at]
        labels = [index.label(int(row)) if labels is None else labels[row] for row in first]
        if None in labels:
            culprit = index.image_name(int(first[labels.index(None)]))
            raise UserError(f"{name}: {culprit} has no class label; classification needs one each")
        known = sorted({str(label) for label in labels}) if classes is None else list(classes)
        number = {label: i for i, label in enumerate(known)}
        strange = {str(label) for label in labels} - number.keys()
        if strange:
            raise UserError(
                f"{name}: labels {sorted(strange)[:5]} are not among the classes "
                f"({len(known)}: {', '.join(known[:20])})"
            )
        self.class_names = known if names is None else list(names)
        self._templates = templates
        self._labels = np.array([number[str(label)] for label in labels])
        self._pixels = Pixels(index, first)

    @property
    def data_hash(self) -> str:
        """What was asked about, as a hash: a result is never mistaken for another test's."""
        return fingerprint(
            self._index.hash, self._pixels.rows, self.class_names, list(self._templates)
        )

    def run(self, encoder: DualEncoder | CachedEncoder) -> Evaluation:
        """Return acc1, acc5 (where there are five classes) and mean per-class recall.

        The items are the images, with ``label`` and ``predicted``. Mean per-class recall is no mean
        over items; it is that of ``acc1`` over labels.
        """
        prompts = embed_texts(
            encoder, fill_templates(self._templates, self.class_names), self._batch_size
        )
        vectors = class_vectors(prompts.reshape(len(self.class_names), len(self._templates), -1))
        images = embed_images(encoder, self._pixels, self._batch_size)
        scores = zero_shot_scores(images, vectors)
        hits = hits_at(scores, self._labels)
        found = {
            **{name: float(values.mean()) for name, values in hits.items()},
            "mean_per_class_recall": mean_per_class_recall(scores, self._labels),
        }
        names = np.array(self.class_names, dtype=object)
        rows = self._pixels.rows
        items = {
            ITEM: name_rows(self._index, rows),
            CLUSTER: cluster_rows(self._index, rows),
            **hits,
            "label": names[self._labels],
            "predicted": names[scores.argmax(axis=1)],
        }
        outcomes = [Outcome(self.name, name, value, len(images)) for name, value in found.items()]
        return Evaluation(outcomes, items)
