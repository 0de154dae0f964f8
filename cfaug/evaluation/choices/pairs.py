"""The items that compositional tests share, and ``benchmark=pairs`` (Winoground).

The items have a source, a number and tags. A pair is two images and two captions that differ by
one edit: which belongs to which?
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np

from cfaug.core.errors import UserError, say, say_once
from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.core.protocols import Answerer, Matcher
from cfaug.core.types import CLUSTER, ITEM, ColumnValues, Evaluation, Outcome
from cfaug.core.worlds import is_world
from cfaug.data.sources import find_reader, item_list
from cfaug.data.sources.compositional import FORMS, ITEM_LISTS, ItemList
from cfaug.data.sources.compositional.item import CATEGORY
from cfaug.data.sources.row import split_home
from cfaug.evaluation.benchmark import (
    SourceBenchmark,
    cluster_rows,
    fingerprint,
    name_pairs,
    paired_rows,
)
from cfaug.evaluation.choices.caption_scores import ScoredItems, read_caption_question, scorer_of
from cfaug.evaluation.failures import Cells, read_cells
from cfaug.settings.read_if import FOLDER, MODEL, ReadIf
from cfaug.stats.choices import pair_hits, winoground_hits

if TYPE_CHECKING:
    from cfaug.core.protocols import Benchmark
    from cfaug.data.index import Index
    from cfaug.evaluation.choices.caption_scores import Scored
    from cfaug.evaluation.context import EvaluationContext
    from cfaug.report.items import Items


# The source of a compositional test's items: its lists, and photos in another folder.

Missing = Literal["refuse", "skip"]


@dataclass
class ItemSource(SourceBenchmark):
    """A benchmark of items whose photos may be in another folder.

    Args:
        name: the name in tables, ending in the kind; ``None`` takes the folder's name.
        without_leaks: whether to leave out items that show an image that the run was trained on;
            otherwise they are only reported.
        images: the folder of the photos that are named in lists; ``None`` looks in the usual places
            in and beside ``data``.
        missing: whether items whose photo is missing or unreadable are refused or skipped.
        form: the name of the test, if a folder holds several, such as ``aro_relation``; ``None``
            recognises it.
    """

    images: Annotated[str | None, ReadIf({"data": FOLDER})] = None
    missing: Annotated[Missing, ReadIf({"data": FOLDER})] = "refuse"
    form: Annotated[str | None, ReadIf({"data": FOLDER})] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        kinds = [form.kind for form in FORMS]
        if self.form is not None and self.form not in kinds:
            raise UserError(
                f"benchmark.form={self.form} is invalid: choose from {', '.join(kinds)}"
            )

    @property
    def layout(self) -> str:
        """Where to get the files of the form and how to lay them out; "" without a form."""
        return next((form.get for form in FORMS if form.kind == self.form), "")

    def open(self, context: EvaluationContext) -> list[Benchmark]:
        source = self.source()
        if is_world(source):
            return super().open(context)
        reader = self._reader(Path(source).expanduser())
        if reader is None:
            # Photos that a list names are a matter of lists alone.
            index = context.open(source)
            given = [] if self.images is None else [f"images={self.images}"]
            given += [] if self.missing == "refuse" else [f"missing={self.missing}"]
            if given:
                raise UserError(
                    f"benchmark.{given[0]} would have no effect: it is about the photos that the "
                    f"lists of a released set name, and {index.source} ({_form(index)}) is no such "
                    "list; leave it out"
                )
        else:
            if context.read is None:
                raise UserError(f"benchmark={self.kind} cannot be run here: evaluate.py runs it")
            index = context.read(reader, source)
            context = replace(context, open=lambda _: index)
        # A folder may hold a test other than the one named, or none of them.
        if self.form is not None and index.kind not in (self.form, *NEARLY.get(self.form, ())):
            kinds = {form.kind: form.form for form in FORMS}
            if index.kind not in kinds:
                raise UserError(
                    f"{index.source} ({_form(index)}) does not hold {kinds[self.form]}: name "
                    "another folder, or benchmark.form=null for sets of your own"
                )
            raise UserError(
                f"{index.source} holds {kinds[index.kind]}, not {kinds[self.form]}: name another "
                f"folder, or benchmark.form={index.kind}"
            )
        opened = super().open(context)
        if text := describe_count(index):
            say_once(text, str(Path(source).absolute()))
        return opened

    def _reader(self, folder: Path) -> ItemList | None:
        """Return the reader of lists, if the settings say more than the folder does."""
        if self.images is None and self.missing == "refuse" and self.form is None:
            return None
        if not split_home(folder)[0].is_dir():
            raise UserError(f"there is no folder {folder}{self.layout and f': {self.layout}'}")
        named = [candidate for candidate in ITEM_LISTS if candidate.kind == self.form]
        reader = next((candidate for candidate in named if candidate.recognises(folder)), None)
        if self.form is None:
            reader = item_list(folder)
        if reader is None:
            if self.layout and ":" not in folder.name:
                try:
                    find_reader(folder.resolve())
                except UserError as error:
                    form = next(known.form for known in FORMS if known.kind == self.form)
                    raise UserError(f"{folder} does not hold {form}: {self.layout}") from error
            return None
        images = () if self.images is None else (Path(self.images).expanduser().resolve(),)
        for photos in images:
            if not photos.is_dir():
                raise UserError(f"benchmark.images: there is no folder {photos}")
        return ItemList(reader.item_form, images, self.missing == "skip")


NEARLY = {"aro_relation": ("aro_order",), "aro_attribution": ("aro_order",)}
"""Forms that also count as another form."""


def _form(index: Index) -> str:
    return index.kind if index.reading is None else index.reading.form


# Count the items of a compositional test, and compare with the number in the released files.


def count_items(index: Index) -> Counter[str]:
    """Return the number of items in each category; "" for items without one."""
    if CATEGORY not in index.extra_names:
        return Counter({"": int(index.sets[-1]) + 1})
    of_first = index.extra(CATEGORY).to_pylist()
    sets = index.sets.tolist()
    firsts = [row for row, number in enumerate(sets) if row == 0 or sets[row - 1] != number]
    return Counter(of_first[row] or "" for row in firsts)


def describe_count(index: Index) -> str:
    """Say in a sentence how many items a source has, and the released number.

    Returns:
        The sentence; "" if the released number is unknown, or equal and without a remark.
    """
    known = next((form.released for form in FORMS if form.kind == index.kind), None)
    if known is None:
        return ""
    counts = count_items(index)
    total = sum(counts.values())
    form = index.reading.form if index.reading is not None else index.kind
    if total == known.items and not known.remark:
        return ""
    text = f"{form}: {total:,} items"
    if total != known.items:
        text += f", where the released files have {known.items:,}"
        differing = [
            f"{name} {counts[name]:,} for {count:,}"
            for name, count in known.by_category.items()
            if counts[name] != count and set(counts) != {""}
        ]
        text += f" ({', '.join(differing)})" if differing else ""
    return f"{text}; {known.remark}" if known.remark else text


# A source's tags of test items: their category, and further tags to report by.

Tags = Mapping[str, Sequence[tuple[str, ...]]]
"""{tag: the values of each item}: usually one value, () if the source gives none."""


def read_tags(benchmark: str, index: Index, first: np.ndarray, names: Sequence[str]) -> Tags:
    """Return the category of items, where there is one, and further tags.

    A tag is an extra column of an item's first member: a text, or a list of texts.

    Args:
        first: the row of the first member of each item, int64 (items,).
    """
    wanted = dict.fromkeys([*([CATEGORY] if CATEGORY in index.extra_names else []), *names])
    tags = {name: read_tag(benchmark, index, first, name) for name in wanted}
    without = sum(not values for values in tags.get(CATEGORY, []))
    if without:
        say(f"{benchmark}: {without} of {len(first)} items have no category, and count in none")
    return tags


def check_tags(tags: Collection[str], metrics: Collection[str], *beginnings: str) -> None:
    """Refuse tags with the name of another column of the items or another part of a test.

    Args:
        beginnings: prefixes of the names of the benchmark's other columns, such as ``text``.
    """
    for name in tags:
        if name in (ITEM, CLUSTER, "group", "image", *metrics) or name.startswith(beginnings):
            raise UserError(
                f"benchmark.tags: {name!r} is a name that the benchmark uses itself: rename the "
                "column of the source"
            )


def read_tag(benchmark: str, index: Index, rows: np.ndarray, name: str) -> list[tuple[str, ...]]:
    """Return the values of one tag at some rows.

    Args:
        rows: rows of the source, integers (rows,).
    """
    tags = []
    for value, row in zip(index.extra_values(name, rows), rows, strict=True):
        given = value if isinstance(value, list) else [value]
        if not all(part is None or isinstance(part, str | int | float) for part in given):
            where = f"{benchmark}: {name} of {index.key(int(row))}"
            raise UserError(f"{where} should be a text or a list of texts, not {value!r:.100}")
        texts = (str(part).strip() for part in given if part is not None)
        tags.append(tuple(dict.fromkeys(text for text in texts if text)))
    return tags


def only(values: Sequence[tuple[str, ...]]) -> list[str | None]:
    """Return a column of items: several values joined by commas, ``None`` for no value.

    >>> only([("add",), (), ("hard", "visual")])
    ['add', None, 'hard, visual']
    """
    return [", ".join(texts) if texts else None for texts in values]


def parts_by(tags: Tags) -> Iterator[tuple[dict[str, str], np.ndarray]]:
    """Yield an outcome's ``by`` and a mask of its items, bool (items,), for every value of a tag.

    >>> [(by, rows.tolist()) for by, rows in parts_by({"tag": [("a",), ("b", "a")]})]
    [({'tag': 'a'}, [True, True]), ({'tag': 'b'}, [False, True])]
    """
    for name, values in tags.items():
        for value in sorted({text for texts in values for text in texts}):
            yield {name: value}, np.array([value in texts for texts in values])


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
            ``caption``, ``yes_no`` (the probability of yes, in both orders of yes and no), or a
            YAML file with the keys of these.
    """

    details: bool = False
    tags: Sequence[str] = ()
    question: Annotated[str, ReadIf({MODEL: ("Answerer",)})] = "plain"

    kind: ClassVar[str] = "pairs"
    whole_sets: ClassVar[bool] = True
    also_accepts: ClassVar[tuple[type, ...]] = (Matcher, Answerer)
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
        self.use(index, rows)

    def use(self, index: Index, rows: np.ndarray | None = None) -> Self:
        """Use rows of an open source, and return this benchmark.

        Args:
            rows: the rows to use, of whole sets; ``None`` for all.
        """
        self._index, self._chosen = index, rows
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
        chosen: list[Any] = [] if self._chosen is None else [self._chosen]
        if not (self.details or self.tags):
            wording = [] if self.question == "plain" else [self._question.words]
            return fingerprint(self._index.hash, *chosen, *wording)
        names = [*self._tags, *([KIND] if self._kinds else [])]
        words = self._question.words
        return fingerprint(self._index.hash_with(names), *chosen, str(self.details), names, words)

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
        # Every score by tag, and single directions by the kind of image.
        parts = [(metric, by, rows) for by, rows in parts_by(self._tags) for metric in hits]
        for metric, image in DIRECTIONS.items():
            if metric in hits and self._kinds:
                name = f"image {image}"
                parts += [(metric, *part) for part in parts_by({name: self._kinds[name]})]
        outcomes = self.mean_outcomes(hits, CHANCE)
        outcomes += [
            Outcome(
                str(self.name), metric, float(hits[metric][rows].mean()), int(rows.sum()), by=by,
                chance=CHANCE[metric],
            )
            for metric, by, rows in parts
        ]  # fmt: skip
        return Evaluation(outcomes, columns)

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
