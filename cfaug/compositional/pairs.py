"""Two images, two captions that differ by one edit: which belongs to which (Winoground).

``benchmark=pairs``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from cfaug.compositional.caption_scores import ScoredItems, read_caption_question, scorer_of
from cfaug.compositional.items import (
    ItemSource,
    Tags,
    check_tags,
    only,
    parts_by,
    read_tag,
    read_tags,
)
from cfaug.core.binding import MODEL, ReadWith
from cfaug.core.errors import UserError
from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.core.protocols import Answerer, Matcher
from cfaug.core.types import CLUSTER, ITEM, ColumnValues, Evaluation, Outcome
from cfaug.evaluation.benchmark import cluster_rows, fingerprint, name_pairs, paired_rows
from cfaug.evaluation.failures import Cells, read_cells
from cfaug.stats.choices import pair_hits, winoground_hits

if TYPE_CHECKING:
    from cfaug.compositional.caption_scores import Scored
    from cfaug.data.index import Index
    from cfaug.evaluation.context import EvaluationContext
    from cfaug.report.items import Items

KIND = "image_kind"
"""The column with the kind of a member's image, such as real or synthetic."""

WINOGROUND = ("text_score", "image_score", "group_score")
"""The scores of every pair test, the first columns."""

DIRECTIONS: Mapping[str, int] = {
    "text_score_i0": 0, "text_score_i1": 1, "image_score_c0": 0, "image_score_c1": 1,
}  # fmt: skip
"""Scores of a single direction, and the number of the image each is about."""
CHANCE: Mapping[str, float] = {
    **dict.fromkeys(("text_score", "image_score"), 1 / 4), "group_score": 1 / 6,
    **dict.fromkeys(("group_matching", *DIRECTIONS), 1 / 2),
}  # fmt: skip
"""The expected score of a model that draws its scores at random."""


@dataclass
class PairMatching(ItemSource):
    """Text, image and group score over a source of pairs: ``benchmark=pairs``.

    Args:
        data: the pairs; in a larger set, the first member is paired with each of the others.
        name: the name in tables, ending in "_pairs"; ``None`` takes the folder's name.
        batch_size: number of images, captions, pairs or questions given to the model at once.
        without_leaks: whether to leave out pairs with an image that the run was trained on, or
            whose COCO photo it was trained on; otherwise they are only reported.
        images: the folder of the photos that are named in lists; ``None`` looks in the usual places
            in and beside ``data``.
        missing: whether items whose photo is missing or unreadable are refused or skipped.
        form: the name of the test, if a folder holds several, such as ``aro_relation``; ``None``
            recognises it.
        details: whether to add the group matching score and single directions, and report every
            score by the source's category and kind of image.
        tags: further columns of the source by whose values every score is reported.
        question: the wording for models that answer questions: ``plain``, ``vqascore``,
            ``caption``, or a YAML file with the keys of these.
    """

    details: bool = False
    tags: Sequence[str] = ()
    question: str = "plain"

    kind: ClassVar[str] = "pairs"
    whole_sets: ClassVar[bool] = True
    read_with: ClassVar[ReadWith] = {"question": {MODEL: ("Answerer",)}}
    also_asks: ClassVar[tuple[type, ...]] = (Matcher, Answerer)
    primary_metrics: ClassVar[tuple[str, ...]] = WINOGROUND
    item_schema: ClassVar[ItemSchema] = ItemSchema(
        "a pair",
        (
            ItemColumn("item", "the pair", "text", always=True),
            ItemColumn("cluster", "its group, such as its photo", "text", always=True),
            *(ItemColumn(name, "1 if the pair is right by this score, else 0", always=True)
              for name in WINOGROUND),
            ItemColumn("text <i> image <j>", "score of this caption with this image", always=False),
            ItemColumn("group_matching", "with ``details``: 1 if the right assignment scores more"),
            *(ItemColumn(name, "with ``details``: this direction of the score alone")
              for name in DIRECTIONS),
            ItemColumn("image <i>", "with ``details``: its kind, such as real", "text"),
        ),
        tags="with ``details`` or ``tags``: tags of the source, such as ``category``",
    )  # fmt: skip

    def prepare(self, context: EvaluationContext, index: Index, rows: np.ndarray | None) -> None:
        """Store the data that ``run`` evaluates."""
        self.ask(index, rows)

    def ask(self, index: Index, rows: np.ndarray | None = None) -> Self:
        """Ask about rows of an open source, and return this benchmark.

        Args:
            rows: the rows to use, of whole sets; ``None`` for all.
        """
        self._index, self._asked = index, rows
        self._rows_N2 = paired_rows(self.name, index, rows).reshape(-1, 2)
        numbers_N2 = np.asarray(index.images)[self._rows_N2]
        if (numbers_N2[:, 0] == numbers_N2[:, 1]).all():
            raise UserError(
                f"{self.name}: the two captions of every set of {index.source} share one image, "
                "and no caption finds an image of its own: benchmark=choice asks which is true"
            )
        self._question = read_caption_question(self.question)
        self._tags: Tags = {}
        self._kinds: Tags = {}
        if self.details or self.tags:
            self._tags = read_tags(str(self.name), index, self._rows_N2[:, 0], self.tags)
            check_tags(self._tags, (*WINOGROUND, *DIRECTIONS, "group_matching"), "text ", "image ")
            if KIND in index.extra_names:
                self._kinds = {
                    f"image {image}": read_tag(str(self.name), index, rows_N, KIND)
                    for image, rows_N in enumerate(self._rows_N2.T)
                }
        return self

    @property
    def data_hash(self) -> str:
        """A hash of the data and settings, so that a result is not taken for another test's."""
        asked: list[Any] = [] if self._asked is None else [self._asked]
        if not (self.details or self.tags):
            asked_as = self._question
            wording = [] if self.question == "plain" else [[asked_as.question, asked_as.answer]]
            return fingerprint(self._index.hash, *asked, *wording)
        names = [*self._tags, *([KIND] if self._kinds else [])]
        words = [self._question.question, self._question.answer]
        return fingerprint(self._index.hash_with(names), *asked, str(self.details), names, words)

    def run(self, model: Scored) -> Evaluation:
        """Return text_score, image_score and group_score, and details; the items are the pairs."""
        texts = [tuple(self._index.text(int(row)) for row in rows) for rows in self._rows_N2]
        items = ScoredItems(self._index, self._rows_N2, texts)
        sim_N22 = scorer_of(model, items, self.batch_size, self._question).score()
        scores = (pair_hits if self.details else winoground_hits)(sim_N22)
        hits = {name: hit.astype(np.float64) for name, hit in scores.items()}
        first = self._rows_N2[:, 0]
        columns: dict[str, ColumnValues] = {
            ITEM: name_pairs(self._index, self._rows_N2),
            CLUSTER: cluster_rows(self._index, first),
            **{name: hit for name, hit in hits.items() if name in WINOGROUND},
            **{
                f"text {i} image {j}": sim_N22[:, i, j].astype(np.float64)
                for i in (0, 1)
                for j in (0, 1)
            },
        }
        columns |= {name: hit for name, hit in hits.items() if name not in columns}
        columns |= {name: only(values) for name, values in {**self._tags, **self._kinds}.items()}
        return Evaluation([*self.mean_outcomes(hits, CHANCE), *self._parts(hits)], columns)

    def failure_cells(self, items: Items) -> Cells:
        """Return the pairs: a miss of the second image's caption, with one of the first's."""
        right, other, false, true = (
            items.metric(f"text {text} image {image}")
            for text, image in ((1, 1), (0, 1), (1, 0), (0, 0))
        )
        return Cells(
            np.asarray(items.columns[ITEM]).tolist(),
            (right <= other).astype(float),
            (true <= false).astype(float),
            np.asarray(items.columns[CLUSTER]).tolist(),
            read_cells(self._index, self._rows_N2),
        )

    def _parts(self, hits: Mapping[str, np.ndarray]) -> list[Outcome]:
        """Return every score by tag, and single directions by the kind of image."""
        asked = [(metric, by, rows) for by, rows in parts_by(self._tags) for metric in hits]
        for metric, image in DIRECTIONS.items():
            if metric in hits and self._kinds:
                name = f"image {image}"
                asked += [(metric, *part) for part in parts_by({name: self._kinds[name]})]
        return [
            Outcome(
                str(self.name), metric, float(hits[metric][rows].mean()), int(rows.sum()), by=by,
                chance=CHANCE[metric],
            )
            for metric, by, rows in asked
        ]  # fmt: skip
