"""Retrieval between the images and the captions of a source, and matching gaps of its pairs.

Every image is a query among all captions, and every caption among all images, or each among those
of its fold (``folds=5``, COCO's 1k).

Matching gaps say how much harder counterfactual pairs are than random ones (COCO-Counterfactuals,
section 4.2.2, Figure 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.core.protocols import Matcher
from cfaug.core.rng import derive
from cfaug.core.text import normalise_caption
from cfaug.core.types import CLUSTER, ITEM, ColumnValues, Evaluation
from cfaug.core.validation import Positive, Seed
from cfaug.evaluation.benchmark import (
    SourceBenchmark,
    cluster_rows,
    fingerprint,
    name_pairs,
    name_rows,
    paired_rows,
)
from cfaug.evaluation.failures import Cells, read_cells
from cfaug.evaluation.inference import PairsToScore, Pixels, embed_images, embed_texts, match_pairs
from cfaug.evaluation.right_pairs import match_right_pairs, read_right_pairs
from cfaug.settings.read_if import GIVEN, ReadIf
from cfaug.stats.classification import fill_templates
from cfaug.stats.ranking import (
    COUNTERFACTUAL,
    GAPS,
    RANDOM,
    SCORES,
    QueryRanks,
    all_tied,
    gaps_where_scored,
    hits_at,
    join,
    standings,
)
from cfaug.stats.right_answers import (
    RightAnswers,
    chance_of_right_answers,
    score_right_answers,
)

if TYPE_CHECKING:
    from cfaug.core.protocols import DualEncoder
    from cfaug.data.index import Index
    from cfaug.evaluation.cached_model import CachedEncoder, CachedMatcher
    from cfaug.evaluation.context import EvaluationContext
    from cfaug.report.items import Items


@dataclass
class Retrieval(SourceBenchmark):
    """Recall@1/5/10 in both directions: ``benchmark=retrieval benchmark.data=FOLDER``.

    All rows that share an image are captions of it.

    Args:
        data: a folder in any form ``data.real`` takes, or ``shapescapes:PART``.
        name: the name in tables, ending in "_retrieval"; ``None`` takes the folder's name.
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
        folds: the number of parts, of consecutive images with their captions, that are tested each
            by itself; 5 of COCO's 5,000 photos make the mean of five folds of 1k.
        prompt: a text around each caption, with ``{c}`` where it goes, such as ``a photo of {c}``;
            ``None`` takes captions as they are.
        also_right: a file of pairs that are right besides the source's own, or of all right ones:
            ECCV Caption's or CxC's labels, or your own; further recalls, R-precision and mAP@R.

    Raises:
        UserError: if more than one of ``counterfactual_holdout``, ``human_labels`` and
            ``edited_by`` is given, ``captions_per_image`` or ``folds`` is below 1, or ``prompt``
            has no ``{c}``.
    """

    captions_per_image: Positive | None = None
    counterfactual_holdout: float | None = None
    human_labels: str | None = None
    edited_by: str | None = None
    folds: Positive = 1
    prompt: str | None = None
    also_right: str | None = None

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
            ItemColumn(
                "<direction>_relabelled_R@<k>",
                "with `also_right`: 1 if any right answer is among the first k; null if not asked",
            ),
            ItemColumn(
                "<direction>_relabelled_R-precision",
                "with `also_right`: the share of right answers among the first R, their number",
            ),
            ItemColumn(
                "<direction>_relabelled_mAP@R",
                "with `also_right`: the mean over the first R places of the precision up to there "
                "where the answer is right, 0 where it is wrong",
            ),
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prompt is not None and "{c}" not in self.prompt:
            raise UserError(
                f"benchmark.prompt={self.prompt!r} has no {{c}} where the caption goes, as in "
                "'a photo of {c}'"
            )
        if self.folds > 1 and self.also_right is not None:
            raise UserError(
                "benchmark.folds and benchmark.also_right exclude each other: what else is right "
                "is known of the whole test, and may lie in another fold"
            )
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
        self.use(index, rows)

    def use(self, index: Index, rows: np.ndarray | None = None) -> Self:
        """Use rows of an open source, and return this benchmark.

        Args:
            rows: the rows to use; ``None`` for all.
        """
        from cfaug.data.sources.compositional import choice_of

        choice = choice_of(index.kind)
        if choice is not None:
            raise UserError(
                f"{self.name}: {index.source} holds {choice}, whose false captions would count as "
                "right ones: ask it with benchmark=choice"
            )
        rows = np.arange(len(index)) if rows is None else np.sort(rows)
        # A photo of several sets has a number in each set, and is one image here. Files with equal
        # bytes that a source calls two photos are two images, as in the released evaluations.
        photos = np.stack([index.groups[rows], index.content_codes(rows)])
        _, first, number = np.unique(photos, axis=1, return_index=True, return_inverse=True)
        image_of_row = index.images[rows[first[number.ravel()]]]
        if self.captions_per_image is not None:
            keep = _rank_within(image_of_row) < self.captions_per_image
            rows, image_of_row = rows[keep], image_of_row[keep]
        _, first, image_of_text = np.unique(image_of_row, return_index=True, return_inverse=True)
        if len(first) < 2:
            raise UserError(
                f"{self.name}: retrieval needs at least two images; {index.source} has {len(first)}"
            )
        if self.folds > 1 and len(first) < 2 * self.folds:
            raise UserError(
                f"{self.name}: benchmark.folds={self.folds} needs two images for each; "
                f"{index.source} has {len(first)}"
            )
        self._index, self._rows, self._image_of_text = index, rows, image_of_text
        self._pixels = Pixels(index, rows[first])
        self._right: dict[str, RightAnswers] = {}
        if self.also_right is not None:
            labels = read_right_pairs(self.also_right)
            self._right = match_right_pairs(labels, index, rows, rows[first], image_of_text)
        return self

    @property
    def data_hash(self) -> str:
        # Results of before photos of several sets were one image are not this test's.
        several = len(np.unique(self._index.images[self._rows])) > self._image_of_text.max() + 1
        parts: list[str | int | np.ndarray] = ["photos"] if several else []
        if self.folds > 1:
            parts.append(f"folds={self.folds}")
        if self.prompt is not None:
            parts.append(f"prompt={self.prompt}")
        for way, right in self._right.items():
            parts += [way, right.queries, *right.candidates]
        return fingerprint(self._index.hash, self._rows, *parts)

    def run(self, encoder: DualEncoder | CachedEncoder) -> Evaluation:
        """Return six recalls; ``n`` counts images for image to text, captions for text to image."""
        texts = [self._index.text(int(row)) for row in self._rows]
        if self.prompt is not None:
            texts = fill_templates([self.prompt], texts)
        text_TD = embed_texts(encoder, texts, self.batch_size)
        image_ID = embed_images(encoder, self._pixels, self.batch_size)
        # The ranks in both directions, each fold by itself, and those by chance.
        of_folds, tied_in_folds, captions_of_folds = [], [], []
        for fold in np.array_split(np.arange(len(image_ID)), self.folds):
            in_fold = np.flatnonzero(np.isin(self._image_of_text, fold))
            image_of_text = self._image_of_text[in_fold] - fold[0]
            of_folds.append(standings(text_TD[in_fold], image_ID[fold], image_of_text))
            tied_in_folds.append(all_tied(image_of_text))
            captions_of_folds.append(in_fold)
        in_order = {"image_to_text": np.arange(len(image_ID)),
                    "text_to_image": np.argsort(np.concatenate(captions_of_folds))}  # fmt: skip
        ranks, tied_ranks = (
            {
                way: QueryRanks(
                    *(getattr(joined, name)[order] for name in ("above", "tied", "best"))
                )
                for way, order in in_order.items()
                for joined in [join([each[way] for each in some])]
            }
            for some in (of_folds, tied_in_folds)
        )
        hits = hits_at(ranks)
        chance = {name: float(values.mean()) for name, values in hits_at(tied_ranks).items()}
        index, images, captions = self._index, self._pixels.rows, self._rows
        columns = {}
        for name, values in hits.items():
            width = (0, len(captions)) if name.startswith("image") else (len(images), 0)
            columns[name] = np.pad(values, width, constant_values=np.nan)
        queries = {"image_to_text": (image_ID, text_TD, 0),
                   "text_to_image": (text_TD, image_ID, len(images))}  # fmt: skip
        for way, right in self._right.items():
            query_QD, candidate_GD, start = queries[way]
            by_chance = chance_of_right_answers(right)
            for metric, values in score_right_answers(query_QD, candidate_GD, right).items():
                name = f"{way}_relabelled_{metric}"
                columns[name] = np.full(len(images) + len(captions), np.nan)
                columns[name][start + right.queries] = hits[name] = values
                chance[name] = float(by_chance[metric].mean())
        ways = [ranks["image_to_text"], ranks["text_to_image"]]
        items: dict[str, ColumnValues] = {
            ITEM: [f"image {name}" for name in name_rows(index, images)]
            + [f"text {name}" for name in name_rows(index, captions)],
            CLUSTER: cluster_rows(index, np.concatenate([images, captions])),
            **columns,
            "above": np.concatenate([way.above for way in ways]),
            "tied": np.concatenate([way.tied for way in ways]),
        }
        return Evaluation(self.mean_outcomes(hits, chance), items)

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


@dataclass
class Matching(SourceBenchmark):
    """Matching gaps of counterfactual pairs: ``benchmark=matching benchmark.data=FOLDER``.

    Every pair is scored, and so is a random pair of photographs for the same anchor.

    Args:
        data: the pairs, each of an original (C_o, I_o^s) and a counterfactual member; a larger set
            is an original with several.
        name: the name in tables, ending in "_matching"; ``None`` takes the folder's name.
        without_leaks: whether to leave out pairs with an image that the run was trained on, or
            whose COCO photo it was trained on; otherwise they are only reported.
        real: the captions' real photographs (C_o, I_o), for the gaps between random pairs; ``None``
            measures the counterfactual gaps alone. A photograph is found by its caption within the
            pair's group, or by a caption that is unique.
        seed: the seed of the random pairs, which are keyed by pair.
    """

    batch_size: Positive = 64
    """the number of items given to the model at once"""
    real: str | None = None
    seed: Annotated[Seed, ReadIf({"real": GIVEN})] = 0

    kind: ClassVar[str] = "matching"
    needs: ClassVar[type] = Matcher
    whole_sets: ClassVar[bool] = True
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
        self.use(index, None if self.real is None else context.open(self.real), rows)

    def use(self, pairs: Index, real: Index | None, rows: np.ndarray | None = None) -> Self:
        """Use rows of an open source, and return this benchmark.

        Args:
            pairs: sets of two members; in a larger set, the first member is compared with each
                of the others.
            real: the captions' photographs; ``None`` measures the counterfactual gaps alone.
            rows: the rows of ``pairs`` to use, of whole sets; ``None`` for all.
        """
        members = paired_rows(self.name, pairs, rows).reshape(-1, 2)
        self._pairs, self._real, self._rows = pairs, real, rows
        self._first, self._second = members[:, 0], members[:, 1]
        # The rows of the captions' photographs and of random ones, -1 for none.
        self._anchor = self._random = np.full(len(members), -1)
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
        real = "" if self._real is None else self._real.hash
        chosen = [] if self._rows is None else [self._rows]
        return fingerprint(self._pairs.hash, real, self.seed, *chosen)

    def run(self, matcher: Matcher | CachedMatcher) -> Evaluation:
        """Return the share of pairs with each gap above zero: ``IR_r``, ``TR_r``, ``IR_c``, ..."""
        scores = self.score(matcher)
        for name, values in scores.items():
            checked = values[self._anchored] if name in SCORES["r"] else values
            lost = int((~np.isfinite(checked)).sum())
            if lost:
                raise UserError(
                    f"{name} of {lost} of {len(checked)} pairs is NaN or infinite: the model has "
                    "diverged; train it again with a smaller optim.lr"
                )
        items: dict[str, ColumnValues] = {
            ITEM: name_pairs(self._pairs, np.stack([self._first, self._second], axis=1)),
            CLUSTER: cluster_rows(self._pairs, self._first),
        }
        gaps = gaps_where_scored(scores)
        hits = {name: np.where(np.isnan(gap), np.nan, gap > 0) for name, gap in gaps.items()}
        real = self._real
        anchors = {
            name: [
                real.key(int(row)) if real is not None and there else None
                for row, there in zip(rows, self._anchored, strict=True)
            ]
            for name, rows in (("anchor", self._anchor), ("random", self._random))
        }
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
            Scores by the names of ``cfaug.stats.ranking.SCORES``, float64 (pairs,), ``nan``
            where a pair has no photograph.
        """
        pairs, first, second = self._pairs, self._first, self._second
        by_gap: dict[str, list[PairsToScore]] = {}  # the right pair first
        if self._real is not None:
            real, here = self._real, self._anchored
            anchor, random = self._anchor[here], self._random[here]
            right = _texts(real, random)
            by_gap["r"] = [
                PairsToScore(SCORES["r"][0], real, random, right),
                PairsToScore(SCORES["r"][1], real, anchor, right),
                PairsToScore(SCORES["r"][2], real, random, _texts(real, anchor)),
            ]
        original, edited = _texts(pairs, first), _texts(pairs, second)
        by_gap["c"] = [
            PairsToScore(SCORES["c"][0], pairs, second, edited),
            PairsToScore(SCORES["c"][1], pairs, first, edited),
            PairsToScore(SCORES["c"][2], pairs, second, original),
        ]
        scores: dict[str, np.ndarray] = {}
        for kind, scored_pairs in by_gap.items():
            among = self._anchored if kind == "r" else np.ones(len(first), bool)
            scored = [match_pairs(matcher, some, self.batch_size) for some in scored_pairs]
            for some, values in zip(scored_pairs, scored, strict=True):
                values = np.where(some.equal(scored_pairs[0]), scored[0], values)
                scores[some.name] = np.full(len(first), np.nan)
                scores[some.name][among] = values
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
        from cfaug.report.charts import write_gaps_page

        return write_gaps_page(folder, title)


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
