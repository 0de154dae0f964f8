"""Matching gaps of counterfactual pairs: how much harder they are than random ones.

COCO-Counterfactuals, section 4.2.2, Figure 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from cfaug.core.binding import GIVEN, ReadWith
from cfaug.core.errors import UserError
from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.core.protocols import Matcher
from cfaug.core.rng import derive
from cfaug.core.types import CLUSTER, ITEM, ColumnValues, Evaluation
from cfaug.core.validation import Positive, Seed
from cfaug.core.words import normalise_caption
from cfaug.evaluation.benchmark import (
    SourceBenchmark,
    cluster_rows,
    fingerprint,
    name_pairs,
    paired_rows,
)
from cfaug.evaluation.failures import Cells, read_cells
from cfaug.evaluation.inference import PairsToScore, match_pairs
from cfaug.stats.matching import COUNTERFACTUAL, GAPS, RANDOM, SCORES, gaps_where_scored

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.evaluation.cached_model import CachedMatcher
    from cfaug.evaluation.context import EvaluationContext
    from cfaug.report.items import Items


@dataclass
class Matching(SourceBenchmark):
    """Matching gaps of counterfactual pairs: ``benchmark=matching benchmark.data=FOLDER``.

    Every pair is scored, and so is a random pair of photographs for the same anchor.

    Args:
        data: the pairs, each of an original (C_o, I_o^s) and a counterfactual member; a larger set
            is an original with several.
        name: the name in tables, ending in "_matching"; ``None`` takes the folder's name.
        batch_size: number of pairs scored at once.
        without_leaks: whether to leave out pairs with an image that the run was trained on, or
            whose COCO photo it was trained on; otherwise they are only reported.
        real: the captions' real photographs (C_o, I_o), for the gaps between random pairs; ``None``
            measures the counterfactual gaps alone. A photograph is found by its caption within the
            pair's group, or by a caption that is unique.
        seed: the seed of the random pairs, which are keyed by pair.
    """

    batch_size: Positive = 64
    real: str | None = None
    seed: Seed = 0

    kind: ClassVar[str] = "matching"
    needs: ClassVar[type] = Matcher
    whole_sets: ClassVar[bool] = True
    read_with: ClassVar[ReadWith] = {"seed": {"real": GIVEN}}
    item_schema: ClassVar[ItemSchema] = ItemSchema(
        "a pair",
        (
            ItemColumn("item", "the pair", "text", always=True),
            ItemColumn("cluster", "its group, such as its photo", "text", always=True),
            *(ItemColumn(name, "1 if this gap is above 0; null without a photograph")
              for name in GAPS),
            ItemColumn("anchor", "the photograph of the original caption", "text"),
            ItemColumn("random", "the random photograph", "text"),
            *(ItemColumn(name, "score of this text with this image")
              for names in SCORES.values() for name in names),
            ItemColumn("kind", "the kind of the scores, such as ``logit``", "text"),
        ),
    )  # fmt: skip

    def prepare(self, context: EvaluationContext, index: Index, rows: np.ndarray | None) -> None:
        """Store the data that ``run`` evaluates."""
        self.ask(index, None if self.real is None else context.open(self.real), rows)

    def ask(self, pairs: Index, real: Index | None, rows: np.ndarray | None = None) -> Self:
        """Ask about rows of an open source, and return this benchmark.

        Args:
            pairs: sets of two members; in a larger set, the first member is asked with each of the
                others.
            real: the captions' photographs; ``None`` measures the counterfactual gaps alone.
            rows: the rows of ``pairs`` to use, of whole sets; ``None`` for all.
        """
        members = paired_rows(self.name, pairs, rows).reshape(-1, 2)
        self._pairs, self._real, self._rows = pairs, real, rows
        self._first, self._second = members[:, 0], members[:, 1]
        self._anchored = np.zeros(len(members), bool)
        if real is not None:
            self._anchor = find_anchors(pairs, self._first, real)
            self._anchored = self._anchor >= 0
            if not self._anchored.any():
                raise UserError(
                    f"{self.name}: none of the {len(members)} captions of {pairs.source} is a "
                    f"caption of {real.source}; benchmark.real should be the photographs they were "
                    "edited from"
                )
            self._random = draw_random_rows(pairs, self._first, real, self._anchor, self.seed)
        return self

    @property
    def data_hash(self) -> str:
        """A hash of the data and settings, so that a result is not taken for another test's."""
        real = "" if self._real is None else self._real.hash
        asked = [] if self._rows is None else [self._rows]
        return fingerprint(self._pairs.hash, real, self.seed, *asked)

    def run(self, matcher: Matcher | CachedMatcher) -> Evaluation:
        """Return the share of pairs with each gap above zero: ``IR_r``, ``TR_r``, ``IR_c``, ..."""
        scores = self.score(matcher)
        self._check_finite(scores)
        items: dict[str, ColumnValues] = {
            ITEM: name_pairs(self._pairs, np.stack([self._first, self._second], axis=1)),
            CLUSTER: cluster_rows(self._pairs, self._first),
        }
        gaps = gaps_where_scored(scores)
        hits = {name: np.where(np.isnan(gap), np.nan, gap > 0) for name, gap in gaps.items()}
        anchors = {"anchor": self._keys("_anchor"), "random": self._keys("_random")}
        kind = {"kind": [matcher.kind] * len(self._first)}
        chance = dict.fromkeys(hits, 1 / 2)
        return Evaluation(
            self.mean_outcomes(hits, chance), {**items, **hits, **anchors, **scores, **kind}
        )

    def score(self, matcher: Matcher | CachedMatcher) -> dict[str, np.ndarray]:
        """Compute every score that the gaps need: six for a pair with a photograph, else three.

        A wrong image with the bytes of the right one, or a wrong text equal to the right one, takes
        the right pair's score, so that the gap is exactly zero whatever the batches.

        Returns:
            Scores by the names of ``cfaug.stats.matching.SCORES``, float64 (pairs,), ``nan``
            where a pair has no photograph.
        """
        scores: dict[str, np.ndarray] = {}
        for kind, asked in self._asked().items():
            among = self._anchored if kind == "r" else np.ones(len(self._first), bool)
            scored = [match_pairs(matcher, pairs, self.batch_size) for pairs in asked]
            for pairs, values in zip(asked, scored, strict=True):
                values = np.where(pairs.equal(asked[0]), scored[0], values)
                scores[pairs.name] = np.full(len(self._first), np.nan)
                scores[pairs.name][among] = values
        return scores

    def failure_cells(self, items: Items) -> Cells:
        """Return the pairs: their gaps that are not above 0, with those of random pairs."""
        hits = {name: items.metric(name) for name in GAPS if name in items.columns}
        if not all(name in hits for name in RANDOM):
            raise UserError(
                f"{self.name}: failures are compared with random pairs of photographs, which "
                "benchmark.real=FOLDER names"
            )
        missed, usual = (
            1 - np.mean([hits[name] for name in names], axis=0)
            for names in (COUNTERFACTUAL, RANDOM)
        )
        return Cells(
            np.asarray(items.columns[ITEM]).tolist(), missed, usual,
            np.asarray(items.columns[CLUSTER]).tolist(),
            read_cells(self._pairs, np.stack([self._first, self._second], axis=1)),
        )  # fmt: skip

    def write_page(self, folder: Path, title: str) -> Path:
        """Draw the gaps of every benchmark of pairs in the folder of a run; return the page."""
        from cfaug.report.matching_gap import write_gaps_page

        return write_gaps_page(folder, title)

    def _check_finite(self, scores: Mapping[str, np.ndarray]) -> None:
        for name, values in scores.items():
            asked = values[self._anchored] if name in SCORES["r"] else values
            lost = int((~np.isfinite(asked)).sum())
            if lost:
                raise UserError(
                    f"{name} of {lost} of {len(asked)} pairs is NaN or infinite: the model has "
                    "diverged; train it again with a smaller optim.lr"
                )

    def _keys(self, column: str) -> list[str | None]:
        if self._real is None:
            return [None] * len(self._first)
        rows = getattr(self, column)
        return [
            self._real.key(int(row)) if there else None
            for row, there in zip(rows, self._anchored, strict=True)
        ]

    def _asked(self) -> dict[str, list[PairsToScore]]:
        """Return the pairs to score for each kind of gap, the right pair first."""
        pairs, first, second = self._pairs, self._first, self._second
        original, edited = _texts(pairs, first), _texts(pairs, second)
        asked: dict[str, list[PairsToScore]] = {}
        if self._real is not None:
            real, here = self._real, self._anchored
            anchor, random = self._anchor[here], self._random[here]
            right = _texts(real, random)
            asked["r"] = [
                PairsToScore(SCORES["r"][0], real, random, right),
                PairsToScore(SCORES["r"][1], real, anchor, right),
                PairsToScore(SCORES["r"][2], real, random, _texts(real, anchor)),
            ]
        asked["c"] = [
            PairsToScore(SCORES["c"][0], pairs, second, edited),
            PairsToScore(SCORES["c"][1], pairs, first, edited),
            PairsToScore(SCORES["c"][2], pairs, second, original),
        ]
        return asked


def _texts(index: Index, rows: np.ndarray) -> list[str]:
    return [index.text(int(row)) for row in rows]


# The photographs of counterfactual pairs' captions, and random photographs beside them.


def find_anchors(pairs: Index, first: np.ndarray, real: Index) -> np.ndarray:
    """Return the row of ``real`` that each pair's original caption came from, -1 for none."""
    within: dict[tuple[int, str], int] = {}
    anywhere: dict[str, int] = {}
    for row in range(len(real)):
        text = normalise_caption(real.text(row))
        within.setdefault((int(real.groups[row]), text), row)
        anywhere[text] = -1 if text in anywhere else row
    anchors = []
    for row in first.tolist():
        text = normalise_caption(pairs.text(row))
        anchors.append(within.get((int(pairs.groups[row]), text), anywhere.get(text, -1)))
    return np.array(anchors)


def draw_random_rows(
    pairs: Index, first: np.ndarray, real: Index, anchor: np.ndarray, seed: int
) -> np.ndarray:
    """Draw another photograph's row for each anchored pair, keyed only by the pair's key."""
    images = np.asarray(real.images)
    if len(np.unique(images)) < 2:
        raise UserError(f"{real.source} has one image; a random pair needs another")
    drawn = np.full(len(first), -1)
    for i, (row, photo_row) in enumerate(zip(first.tolist(), anchor.tolist(), strict=True)):
        if photo_row < 0:
            continue
        tries = 0
        while drawn[i] < 0 or images[drawn[i]] == images[photo_row]:
            drawn[i] = derive(seed, "matching", pairs.key(row), tries) % len(images)
            tries += 1
    return drawn
