"""Which captions are true of an image, or images of a caption? SugarCrepe, ARO, SVO-Probes.

``benchmark=choice``. A source has a set for each item, whose members are labelled "true" or "false"
and share one image, or share one caption.

``METRIC_macro`` is the mean over categories, either all or those of one ``group``, and
``METRIC_macro_groups`` the mean over groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, product
from math import comb
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

import numpy as np

from cfaug.core.errors import UserError, say
from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.core.protocols import Answerer, Matcher
from cfaug.core.types import CLUSTER, ITEM, Better, ColumnValues, Evaluation, Outcome
from cfaug.core.validation import Positive
from cfaug.data.captions import same_words
from cfaug.data.index import Index
from cfaug.evaluation.benchmark import cluster_rows, fingerprint, name_rows
from cfaug.evaluation.choices.caption_scores import (
    BlindLanguage,
    CaptionScorer,
    IdentifiedLanguageModel,
    ScoredItems,
    read_caption_question,
    scorer_of,
)
from cfaug.evaluation.choices.pairs import (
    CATEGORY,
    ItemSource,
    check_tags,
    only,
    parts_by,
    read_tags,
)
from cfaug.evaluation.failures import Cell, Cells, draw_twins, words_changed
from cfaug.settings.read_if import MODEL, ReadIf
from cfaug.stats.choices import (
    ABSENT,
    FALSE,
    TRUE,
    Ties,
    brittle,
    categories_that_count,
    choice_hits,
    group_means,
    mean_by,
    original_hits,
    text_only_hits,
)

if TYPE_CHECKING:
    from pathlib import Path

    from cfaug.evaluation.choices.caption_scores import Scored
    from cfaug.evaluation.context import EvaluationContext
    from cfaug.report.items import Items


METRICS = ("accuracy", "ties", "original_accuracy", "brittleness", "text_only",
           "blind_language_sum", "blind_language_mean", "blind_model")  # fmt: skip
"""All possible metrics."""
BY_ORDER = frozenset({
    "accuracy", "original_accuracy", "blind_language_sum", "blind_language_mean", "blind_model",
})  # fmt: skip
"""Metrics that the order of the captions' scores decides."""
Truth = Literal["labels", "first"]
"""What says which members of a set are true."""
TOGETHER = "accuracy_all_"
"""The beginning of a metric of items that count together, before the column that joins them."""
LOWER = frozenset({"brittleness", "ties"})
"""Metrics for which lower values are better."""


@dataclass
class CaptionChoice(ItemSource):
    """Accuracy of choosing the true captions of images, beside that of blind models.

    Args:
        data: sets of captions of one image, or of images of one caption.
        name: the name in tables, ending in "_choice"; ``None`` takes the folder's name.
        batch_size: number of images, captions, pairs or questions given to the model at once.
        without_leaks: whether to leave out items of images that the run was trained on, or whose
            COCO photo it was trained on; otherwise they are only reported.
        images: the folder of the photos that are named in lists; ``None`` looks in the usual places
            in and beside ``data``.
        missing: whether items whose photo is missing or unreadable are refused or skipped.
        form: the name of the test, if a folder holds several, such as ``aro_relation``; ``None``
            recognises it.
        truth: the mark of true members: ``labels``, "true" and "false", or ``first``: the first
            member of a set is true, the others are false, as in sets of recipe=negate and
            recipe=negclip_swaps.
        ties: the value of a tie between a true and a false caption: ``miss``, ``half`` or ``hit``.
        groups: {group: categories}, for averages over groups such as replace, swap and add.
        at_least: smallest number of items with which a category counts in averages and is shown.
        drop: categories that are neither averaged nor shown.
        tags: further columns of the source by whose values every metric is reported.
        together: columns of the source, such as ``pair``, for ``accuracy_all_pair``: the share of
            their values with every item right; items without a value do not count.
        blind: a language model that scores the captions without images: a folder, a Hub id,
            ``zoo:...``, or such a model itself; ``None`` for no such model. The shipped one learnt
            the captions of COCO val2017, SugarCrepe's true ones among them.
        question: the wording for models that answer questions: ``plain``, ``vqascore``,
            ``caption``, ``yes_no`` (the probability of yes, in both orders of yes and no), or a
            YAML file with the keys of these.
    """

    truth: Truth = "labels"
    ties: Ties = "miss"
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    at_least: Positive = 1
    drop: Sequence[str] = ()
    tags: Sequence[str] = ()
    together: Sequence[str] = ()
    blind: str | IdentifiedLanguageModel | None = "zoo:language/causal"
    question: Annotated[str, ReadIf({MODEL: ("Answerer",)})] = "plain"

    kind: ClassVar[str] = "choice"
    whole_sets: ClassVar[bool] = True
    also_accepts: ClassVar[tuple[type, ...]] = (Matcher, Answerer)
    primary_metrics: ClassVar[tuple[str, ...]] = ("accuracy",)
    item_schema: ClassVar[ItemSchema] = ItemSchema(
        "an image with its captions, or a caption with its images",
        (
            ItemColumn("item", "the set", "text", always=True),
            ItemColumn("cluster", "its group, the photo", "text", always=True),
            ItemColumn(
                "accuracy",
                "1 if every true caption scores above every false one (image to text of "
                "SugarCrepe++, augmented accuracy of hard positives); a tie counts as ``ties`` "
                "says",
                always=True,
            ),
            ItemColumn("ties", "1 where a tie decides", always=True),
            ItemColumn("original_accuracy", "the same where only the first true caption counts"),
            ItemColumn("brittleness", "1 if the first true caption is right and another is not"),
            ItemColumn("text_only", "text to text of SugarCrepe++, for a dual encoder"),
            ItemColumn(
                "blind_language_sum",
                "1 if a language model that sees no image finds the true captions likelier",
            ),
            ItemColumn("blind_language_mean", "the same per token"),
            ItemColumn("blind_model", "1 if the model itself does without the image"),
            ItemColumn(
                "word_order",
                "whether a false caption has the words of a true one in another order: without "
                "their order nothing tells the two apart",
                "yes or no",
            ),
            ItemColumn("group", "the groups of its category", "text"),
            ItemColumn("text <k>", "score of this caption; null without one"),
            ItemColumn("image <k>", "score of this image, where a caption has several"),
        ),
        tags="``category`` and further tags of the source",
    )

    def prepare(self, context: EvaluationContext, index: Index, rows: np.ndarray | None) -> None:
        self.use(index, rows, context.features)

    def use(
        self, index: Index, rows: np.ndarray | None = None, features: Path | None = None
    ) -> Self:
        """Use rows of an open source, and return this benchmark.

        Args:
            rows: the rows to use, of whole sets; ``None`` for all.
            features: folder of cached features; with ``None`` scores of ``blind`` are not cached.
        """
        self._index, self._chosen = index, rows
        self._choices = read_choices(str(self.name), index, rows, self.truth)
        self._tags = read_tags(str(self.name), index, self._choices.first, self.tags)
        check_tags(self._tags, (*METRICS, "word_order"), "text ", "image ")
        groups = read_tags(str(self.name), index, self._choices.first, self.together)
        self._together = {name: only(groups[name]) for name in self.together}
        nothing: list[tuple[str, ...]] = [()] * len(self._choices.first)
        self._categories = only(self._tags.get(CATEGORY, nothing))
        self._counted = categories_that_count(self._categories, self.at_least, self.drop)
        named = {name for name in self._categories if name is not None}
        if named and not self._counted:
            say(
                f"{self.name}: there are no averages over categories: of the {len(named)}, all are "
                f"dropped or have fewer than {self.at_least} items"
            )
        for group, members in self.groups.items():
            absent = [name for name in members if name not in self._counted]
            if named and absent:
                say(f"{self.name}: the group {group} lacks {', '.join(absent)}")
        self._question = read_caption_question(self.question)
        self._language = None if self.blind is None else BlindLanguage(self.blind, features)
        return self

    @property
    def data_hash(self) -> str:
        """A hash of the data, and of the settings that change the results."""
        how = [self.ties, self.at_least, {name: list(names) for name, names in self.groups.items()},
               sorted(self.drop), *([sorted(self.together)] if self.together else []),
               self._question.words,
               "" if self._language is None else self._language.identity]  # fmt: skip
        labels = [str(row) for row in self._choices.truth.tolist()]
        chosen = [] if self._chosen is None else [self._chosen]
        content = self._index.hash_with(list(dict.fromkeys([*self._tags, *self.together])))
        return fingerprint(content, labels, list(self.tags), repr(how), *chosen)

    def run(self, model: Scored) -> Evaluation:
        """Return accuracy, averages over categories and groups, and the blind scores."""
        first, truth, chooses = self._choices.first, self._choices.truth, self._choices.of_images
        texts = self._choices.texts
        shown = [captions[:1] for captions in texts] if chooses else texts
        items = ScoredItems(self._index, self._choices.rows, shown)
        scorer = scorer_of(model, items, self.batch_size, self._question)
        scores = scorer.score()[:, 0] if chooses else scorer.score()[..., 0]
        hits = self._hits(scorer, items, scores)
        ties = choice_hits(scores, truth, "hit") - choice_hits(scores, truth, "miss")
        columns: dict[str, ColumnValues] = {
            ITEM: name_rows(self._index, first),
            CLUSTER: cluster_rows(self._index, first),
        }
        columns |= {name: only(values) for name, values in self._tags.items()}
        if self.groups:
            columns["group"] = only([
                tuple(group for group, members in self.groups.items() if name in members)
                for name in self._categories
            ])  # fmt: skip
        columns |= {**hits, "ties": ties, "word_order": self._choices.word_order}
        columns |= {
            f"{'image' if chooses else 'text'} {k}": np.where(
                truth[:, k] == ABSENT, np.nan, scores[:, k].astype(np.float64)
            )
            for k in range(truth.shape[1])
        }
        whole = np.ones(len(first), bool)
        outcomes = [
            outcome
            for metric, hit in hits.items()
            for outcome in (*self._means(metric, hit, {}, whole), *self._averages(metric, hit))
        ]
        for by, rows in parts_by(self._tags):
            if CATEGORY in by and by[CATEGORY] not in self._counted:
                continue
            outcomes += [
                mean for metric, hit in hits.items() for mean in self._means(metric, hit, by, rows)
            ]
        parts = parts_by({CATEGORY: self._tags[CATEGORY]} if CATEGORY in self._tags else {})
        for by, rows in [({}, whole), *parts]:
            for name, values in self._together.items():
                shares = mean_by(hits["accuracy"][rows] == 1, list(compress(values, rows)))
                if shares:
                    metric = f"{TOGETHER}{name}"
                    value = float(np.mean([share == 1 for share in shares.values()]))
                    outcomes.append(self._outcome(metric, metric, value, len(shares), by))
        outcomes.append(self._outcome("ties", "ties", float(ties.mean()), len(ties), {}))
        return Evaluation(outcomes, columns)

    def failure_cells(self, items: Items) -> Cells:
        """Return the items: a miss, with that of a random item with another edit.

        The edit leads from the first true caption to the first false one.
        """
        missed = 1 - items.metric("accuracy")
        names, clusters = (np.asarray(items.columns[name]).tolist() for name in (ITEM, CLUSTER))
        kinds = [None] * len(names)
        if CATEGORY in items.columns:
            kinds = np.asarray(items.columns[CATEGORY]).tolist()
        groups = []
        for kind, texts, truth in zip(kinds, self._choices.texts, self._choices.truth, strict=True):
            true, false = (texts[truth.tolist().index(value)] for value in (TRUE, FALSE))
            groups.append(Cell((), kind or "text", *words_changed(true, false)))
        twins = draw_twins(names, groups)
        usual = np.where(twins < 0, np.nan, missed[twins])
        return Cells(names, missed, usual, clusters, groups)

    def summarise(self, evaluation: Evaluation) -> Sequence[str]:
        return describe_choice(evaluation, self._choices.truth, self.ties, self._counted)

    def _hits(
        self, scorer: CaptionScorer, items: ScoredItems, scores: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return which items are right, float64 (items,) by metric; NaN where it does not apply."""
        truth = self._choices.truth
        hits = {"accuracy": choice_hits(scores, truth, self.ties)}
        several = (truth == TRUE).sum(axis=1) > 1
        if several.any():
            more = {
                "original_accuracy": original_hits(scores, truth, self.ties),
                "brittleness": brittle(scores, truth).astype(np.float64),
            }
            similar = None if self._choices.of_images else scorer.compare_texts()
            if similar is not None:
                values = np.full(len(truth), np.nan)
                values[several] = text_only_hits(similar[several], truth[several], self.ties)
                more["text_only"] = values
            hits |= {name: np.where(several, values, np.nan) for name, values in more.items()}
        if self._choices.of_images:  # one caption cannot be chosen without its images
            return hits
        blind_scores = {}  # of captions without their images, float (items, captions) each
        if self._language is not None:
            texts, numbers = items.distinct_texts
            both = self._language.log_likelihoods(texts)
            for how, values in zip(("sum", "mean"), both.T, strict=True):
                blind_scores[f"blind_language_{how}"] = np.where(
                    numbers < 0, np.nan, values[numbers]
                )
        if (by_model := scorer.score_blind()) is not None:
            blind_scores["blind_model"] = by_model
        for name, blind in blind_scores.items():
            read = ~(np.isnan(blind) & (truth != ABSENT)).any(axis=1)
            if not read.all():
                say(f"{self.name}: {name} leaves out {(~read).sum()} items with a caption that is "
                    "too long for the model")  # fmt: skip
            hits[name] = np.full(len(truth), np.nan)
            if read.any():
                hits[name][read] = choice_hits(blind[read], truth[read], self.ties)
        return hits

    def _means(
        self, metric: str, hit_N: np.ndarray, by: dict[str, str], of: np.ndarray
    ) -> list[Outcome]:
        chosen = of & ~np.isnan(hit_N)
        if not chosen.any():
            return []
        chance = None
        if metric in BY_ORDER:  # what a random order of the captions gets right
            truth = self._choices.truth[chosen]
            true, false = (truth == TRUE).sum(axis=1), (truth == FALSE).sum(axis=1)
            true = np.ones_like(true) if metric == "original_accuracy" else true
            chance = chance_of_choice(true, false)
        return [
            self._outcome(
                metric, metric, float(hit_N[chosen].mean()), int(chosen.sum()), by, chance
            )
        ]

    def _averages(self, metric: str, hit_N: np.ndarray) -> list[Outcome]:
        """Return the means over categories and over groups, and the mean of each group."""
        means = mean_by(hit_N, self._categories)
        means = {name: value for name, value in means.items() if name in self._counted}
        if not means:
            return []
        count = Counter(
            name for name, hit in zip(self._categories, hit_N.tolist(), strict=True)
            if name in means and not np.isnan(hit)
        )  # fmt: skip
        macro = float(np.mean(list(means.values())))
        outcomes = [self._outcome(metric, f"{metric}_macro", macro, count.total(), {})]
        groups = group_means(means, self.groups)
        of = {group: sum(count[name] for name in self.groups[group]) for group in groups}
        if groups:
            mean, n = float(np.mean(list(groups.values()))), sum(of.values())
            outcomes.append(self._outcome(metric, f"{metric}_macro_groups", mean, n, {}))
        for group, value in groups.items():
            by = {"group": group}
            outcomes.append(self._outcome(metric, f"{metric}_macro", value, of[group], by))
        return outcomes

    def _outcome(
        self, metric: str, name: str, value: float, n: int, by: Mapping[str, str],
        chance: float | None = None,
    ) -> Outcome:  # fmt: skip
        better: Better = "lower" if metric in LOWER else "higher"
        return Outcome(str(self.name), name, value, n, better, by=by, chance=chance)


# Items of one image and several captions, some of which are true, or of one caption and several
# images: read from a source.

LABELS = {"true": TRUE, "false": FALSE}
"""A member's labels, and their meaning for its caption."""
NAMED = 3
"""Items that a message names."""


@dataclass(frozen=True)
class Choices:
    """Items, in the order of the source.

    Attributes:
        rows: the row of each image of each item, int64 (items, images): one image, or, for a choice
            of images, one for each member; an item with fewer repeats its first.
        texts: the caption of each member; a choice of images repeats one.
        truth: ``TRUE``, ``FALSE`` or ``ABSENT`` of each member, int8 (items, members).
        of_images: whether items ask which images one caption is true of.
    """

    rows: np.ndarray
    texts: Sequence[tuple[str, ...]]
    truth: np.ndarray
    of_images: bool = False

    @property
    def first(self) -> np.ndarray:
        """The row of each item's first member, int64 (items,)."""
        first: np.ndarray = self.rows[:, 0]
        return first

    @property
    def word_order(self) -> np.ndarray:
        """Whether a false caption has the words of a true one in another order, bool (items,)."""
        if self.of_images:
            return np.zeros(len(self.texts), bool)
        return np.array([
            any(same_words(*pair) for pair in product(*(
                [text for text, label in zip(texts, truth, strict=False) if label == value]
                for value in (TRUE, FALSE)
            )))
            for texts, truth in zip(self.texts, self.truth.tolist(), strict=True)
        ])  # fmt: skip


def read_choices(
    benchmark: str, index: Index, rows: np.ndarray | None, truth: Truth = "labels"
) -> Choices:
    """Return the items of a source: its sets, whose members are labelled "true" or "false".

    An item with a false caption equal to a true one has no answer: it is left out with a message.

    Args:
        rows: the rows to use, of whole sets; ``None`` for all.
        truth: the mark of true captions; with ``first`` no label is read.
    """
    chosen = np.arange(len(index)) if rows is None else np.sort(rows)
    starts = np.flatnonzero(np.diff(np.asarray(index.sets)[chosen], prepend=-1))
    items: list[tuple[list[int], list[tuple[str, int]]]] = []
    of_images = set[bool]()
    for item_rows in np.split(chosen, starts[1:]):
        members = item_rows.tolist()
        where = f"{benchmark}: {index.key(members[0])} of {index.source}"
        images = len(np.unique(np.asarray(index.images)[item_rows]))
        of_images.add(images > 1)
        alike = images == len(members) and len(set(map(index.text, members))) == 1
        if len(of_images) > 1 or (images > 1 and not alike):
            raise UserError(
                f"{where} has several images: benchmark=choice asks which caption fits one image, "
                "or, in every item, which image fits one caption, and benchmark=pairs asks about "
                "two images with two captions"
            )
        captions = []
        for number, row in enumerate(members):
            if truth == "first" and index.label(row) in LABELS:
                raise UserError(
                    f"{where} is labelled 'true' and 'false': leave out benchmark.truth=first"
                )
            if truth == "first":
                captions.append((index.text(row), FALSE if number else TRUE))
                continue
            label = index.label(row)
            if label not in LABELS:
                raise UserError(
                    f"{where} has a caption with the label {label!r}: it should be 'true' or "
                    "'false'; where the first caption of each set is true and the others are "
                    "false, benchmark.truth=first says so"
                )
            captions.append((index.text(row), LABELS[label]))
        for name, value in LABELS.items():
            if all(mark != value for _, mark in captions):
                raise UserError(f"{where} has no caption with the label {name!r}")
        items.append((members if images > 1 else members[:1], captions))
    kept = [item for item in items if True in of_images or not _has_no_answer(item[1])]
    if len(kept) < len(items):
        unclear = [index.key(shown[0]) for shown, captions in items if _has_no_answer(captions)]
        more = ", ..." if len(unclear) > NAMED else ""
        say(
            f"{benchmark}: {len(unclear)} of {len(items)} items are left out because a true and a "
            f"false caption are equal: {', '.join(unclear[:NAMED])}{more}"
        )
    if not kept:
        raise UserError(f"{benchmark}: {index.source} has no item to ask about")
    texts = [tuple(text for text, _ in captions) for _, captions in kept]
    truth_NK = np.full((len(kept), max(map(len, texts))), ABSENT, np.int8)
    for item, (_, captions) in enumerate(kept):
        truth_NK[item, : len(captions)] = [value for _, value in captions]
    most = max(len(shown) for shown, _ in kept)
    rows_NM = np.array([[*shown, *shown[:1] * (most - len(shown))] for shown, _ in kept])
    return Choices(rows_NM, texts, truth_NK, True in of_images)


def _has_no_answer(item: Sequence[tuple[str, int]]) -> bool:
    true, false = ({text for text, truth in item if truth == value} for value in (TRUE, FALSE))
    return not true.isdisjoint(false)


def chance_of_choice(true_N: np.ndarray, false_N: np.ndarray) -> float:
    """Return the expected accuracy of scores drawn at random.

    Args:
        true_N: number of true captions of each item, all of which must score above the false ones.
        false_N: number of its false captions.

    >>> chance_of_choice(np.array([1, 2]), np.array([1, 1]))  # (1/2 + 1/3) / 2
    0.41666666666666663
    """
    counts = zip(true_N.tolist(), false_N.tolist(), strict=True)
    return float(np.mean([1 / comb(true + false, true) for true, false in counts]))


# The terminal summary of a choice among captions.

SHOWN = 12
"""Most categories whose accuracy is shown."""
WORDS = {
    "accuracy_macro": "mean over {count} categories",
    "accuracy_macro_groups": "mean over groups",
    "original_accuracy": "first true caption alone",
    "brittleness": "brittleness",
    "text_only": "captions alone, by the text tower",
    "blind_language_sum": "without the image, by a language model",
    "blind_language_mean": "per token",
    "blind_model": "without the image, by the model",
}
"""Names of metrics in a sentence."""


def describe_choice(
    evaluation: Evaluation, truth_NK: np.ndarray, ties: str, categories: Sequence[str]
) -> list[str]:
    """Return a few lines: accuracy beside chance, averages, blind rows, categories.

    Args:
        truth_NK: labels of captions, as for ``cfaug.stats.choices.choice_hits``.
    """
    values = {
        (outcome.metric, *outcome.by.items()): f"{100 * outcome.value:.1f} %"
        for outcome in evaluation.outcomes
    }
    chance = chance_of_choice(*((truth_NK == value).sum(axis=1) for value in (TRUE, FALSE)))
    count = int(np.sum(evaluation.items["ties"]))
    lines = [
        f"accuracy {values['accuracy',]} of {len(truth_NK)} items; "
        f"chance is {100 * chance:.1f} %; "
        f"{count} tie{'s count' if count != 1 else ' counts'} as ties={ties}"
    ]
    texts = [
        f"{words.format(count=len(categories))} {values[metric,]}"
        for metric, words in WORDS.items()
        if (metric,) in values
    ]
    texts += [
        f"every item of its {outcome.metric.removeprefix(TOGETHER)} right "
        f"{100 * outcome.value:.1f} %"
        for outcome in evaluation.outcomes
        if outcome.metric.startswith(TOGETHER) and not outcome.by
    ]
    if texts:
        lines.append("; ".join(texts))
    reordered = np.asarray(evaluation.items["word_order"])
    if reordered.any():
        where = np.asarray(evaluation.items.get(CATEGORY, [None] * len(reordered)))
        shares = {name: float(reordered[where == name].mean()) for name in categories}
        of = [f"{name} {share:.1%}" for name, share in shares.items() if share]
        lines.append(
            f"in {int(reordered.sum())} items only the order of the words tells a false caption "
            f"from a true one{': ' * bool(of)}{', '.join(of)}"
        )
    shown = [category for category in categories if ("accuracy", (CATEGORY, category)) in values]
    if shown:
        of = [
            f"{category} {values['accuracy', (CATEGORY, category)]}" for category in shown[:SHOWN]
        ]
        more = f", and {len(shown) - SHOWN} more categories" if len(shown) > SHOWN else ""
        lines.append(", ".join(of) + more)
    return lines
