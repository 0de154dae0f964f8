"""How much worse is a classifier on edits of its test photos? ``benchmark=stress``.

LANCE (Prabhu et al., 2023), section 4. A photo, its reconstruction and its edits are one set of the
shards.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.files import read_lines
from cfaug.core.item_schema import ItemSchema
from cfaug.core.protocols import Classifier
from cfaug.core.types import CLUSTER, ITEM, ORIGINAL, RECONSTRUCTION, Better, Evaluation, Outcome
from cfaug.data.sources.row import class_words, imagenet_names, make_distinct, prompt_names
from cfaug.evaluation.benchmark import SourceBenchmark, cluster_rows, fingerprint
from cfaug.evaluation.cached_model import image_keys
from cfaug.evaluation.class_mapping import Answers, judge, match_classes
from cfaug.evaluation.classification import PAPER_TEMPLATE, prompt_templates
from cfaug.evaluation.failures import Cell, Cells, words_changed
from cfaug.evaluation.inference import Pixels, classify_images
from cfaug.evaluation.records import Classes
from cfaug.evaluation.stress.stress_items import STRESS_ITEMS, StressItems, write_drops
from cfaug.evaluation.stress.stress_sets import (
    EDITED,
    RANDOM,
    JoinedSets,
    check_same_photos,
    choose,
    concatenate_columns,
    item_columns,
    item_names,
    read_joined,
)
from cfaug.report.items import read_items
from cfaug.settings.read_if import GIVEN, MODEL, ReadIf

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.evaluation.cached_model import CachedClassifier
    from cfaug.evaluation.context import EvaluationContext
    from cfaug.evaluation.inference import ZeroShotClassifier
    from cfaug.evaluation.stress.edit_clusters import EditClusters
    from cfaug.report.items import Items


# The common base of benchmarks of photos and their edits: their shards and their identity.

IDENTIFYING = ("edit_kind", "edit_before", "edit_after", "severity")
"""Columns of a source that change the test or the content of its items."""


@dataclass
class JoinedBenchmark(SourceBenchmark):
    """A benchmark of photos, their reconstructions and their edits.

    Args:
        data: shards of photos with their edits; the edits are the set ``edited``.
        name: the name in tables, ending in the kind; ``None`` takes the folder's name.
        without_leaks: whether to leave out photos that the run was trained on, with everything made
            from them.
        random: shards of edits of random words (LANCE-R), the set ``random``; ``None`` omits it.
        more: {name: shards} of further sets, such as the oracle's edits.
        control: the kind of edit that changes nothing: photos that are only inverted and redrawn,
            or saved again by whatever made the edits. ``original`` takes the photos themselves: no
            edit is then compared with what its making changes.
    """

    random: str | None = None
    more: Mapping[str, str] = field(default_factory=dict)
    control: str = RECONSTRUCTION
    _sets: tuple[JoinedSets, ...] = field(default=(), init=False, repr=False)

    whole_sets: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        taken = {ORIGINAL, RECONSTRUCTION, EDITED, RANDOM} & set(self.more)
        if taken:
            raise UserError(f"benchmark.more: the name {taken.pop()!r} is taken; choose another")

    def prepare(self, context: EvaluationContext, index: Index, rows: np.ndarray | None) -> None:
        others: dict[str, str] = {} if self.random is None else {RANDOM: self.random}
        opened = [(EDITED, index, rows)]
        for name, source in {**others, **self.more}.items():
            chosen, _ = context.apart_from_training(
                source, without_leaks=self.without_leaks, whole_sets=True
            )
            opened.append((name, context.open(source), chosen))
        sets = [read_joined(*entry, self.control) for entry in opened]
        for other in sets[1:]:
            check_same_photos(sets[0], other)
        if self.control not in (RECONSTRUCTION, ORIGINAL) and not any(
            (joined.controls >= 0).any() for joined in sets
        ):
            raise UserError(
                f"benchmark.control={self.control}: no edit is of that kind; there are "
                + ", ".join(
                    sorted({str(kind) for joined in sets for kind in joined.kinds} - {ORIGINAL})
                )
            )
        self.use(*sets)

    @abstractmethod
    def use(self, *sets: JoinedSets) -> object:
        """Use open sources, and return this benchmark.

        Args:
            sets: photos with their edits, one for each folder, the main folder first.
        """

    def identifying_settings(self) -> list[Any]:
        """Return the settings that change the test, for ``data_hash``."""
        return []

    @property
    def data_hash(self) -> str:
        """A hash of the data and settings, so that a result is not taken for another test's."""
        identity: list[Any] = [self.control, *self.identifying_settings()]
        for sets in self._sets:
            known = (*IDENTIFYING, sets.class_column)
            columns = [name for name in known if name in sets.index.extra_names]
            identity += [sets.name, sets.index.hash_with(columns), sets.rows]
        return fingerprint(*identity)

    def _shown(self) -> list[tuple[JoinedSets, np.ndarray]]:
        """Return each folder with a mask of the rows that are items.

        In folders other than the main one, items are the edits and photos that only this folder
        has.
        """
        main, *others = self._sets
        known = {key for key, is_photo in zip(main.keys, main.is_photo, strict=True) if is_photo}
        shown = [(main, np.ones(len(main.rows), bool))]
        for joined in others:
            new = (
                joined.is_photo
                & joined.has_edit
                & np.array([key not in known for key in joined.keys])
            )
            known.update(key for key, is_new in zip(joined.keys, new, strict=True) if is_new)
            shown.append((joined, joined.is_edit | new))
        return shown

    def _items(self) -> dict[str, Any]:
        """Return the columns that name the items and their parts."""
        columns = []
        for joined, shown in self._shown():
            all_columns: dict[str, Any] = {
                ITEM: item_names(joined),
                CLUSTER: cluster_rows(joined.index, joined.rows),
                "set": joined.parts,
                "photos": joined.counted,
                "kind": joined.kinds,
                "class": joined.labels,
                "text": [joined.index.text(int(row)) for row in joined.rows],
            }
            columns.append({name: choose(values, shown) for name, values in all_columns.items()})
        return concatenate_columns(columns)


IMAGENET = "imagenet"
"""Value of ``benchmark.classes`` for ImageNet's 1,000 classes, by CLIP's names."""


@dataclass
class Stress(JoinedBenchmark):
    """Accuracy on photos, their reconstructions and their edits, paired and as in the paper.

    Args:
        data: shards of photos with their edits, or edits of your own: a list of photos and edits,
            or the folders ``original/`` and ``edited/KIND/``; the edits are the set ``edited``.
        name: the name in tables, ending in "_stress"; ``None`` takes the folder's name.
        without_leaks: whether to leave out photos that the run was trained on, with everything made
            from them.
        random: shards of edits of random words (LANCE-R), the set ``random``; ``None`` omits it.
        control: the kind of edit that changes nothing: photos that are only inverted and redrawn,
            or saved again by whatever made the edits. ``original`` takes the photos themselves: no
            edit is then compared with what its making changes.
        parts: columns by which ``edited`` and the other sets are also reported: ``kind``,
            ``class``, ``severity``.
        restrict: choose only among the labels of the test, not among all classes of the model as
            the paper does.
        classes: the classes a dual encoder chooses among: ``None`` is the labels of the test,
            ``imagenet`` its 1,000 classes, or a file with a line for each class. A classifier uses
            its own classes.
        templates: templates of a dual encoder's prompts, with ``{c}`` for the class name.
        clusters: the clustering of each class's edits by their differences in text, for insights
            into classes; ``None`` groups equal words.
        page: largest number of edits that ``stress.html`` shows.
        apply: words of a command, shown on the page, that applies one intervention to a whole
            class; ``{kind}``, ``{before}``, ``{after}`` and ``{label}`` are filled in.
    """

    parts: Sequence[Part] = ("kind",)
    restrict: Annotated[bool, ReadIf({MODEL: ("Classifier",)}, {"classes": GIVEN})] = False
    classes: Annotated[str | None, ReadIf({MODEL: ("DualEncoder",)})] = None
    templates: Annotated[Sequence[str], ReadIf({MODEL: ("DualEncoder",)})] = (PAPER_TEMPLATE,)
    clusters: EditClusters | None = None
    page: int = 2000
    apply: Sequence[str] = ()

    item_schema: ClassVar[ItemSchema] = STRESS_ITEMS

    page_files: ClassVar[tuple[str, ...]] = ("stress.html", "stress.md", "insights.json")
    kind: ClassVar[str] = "stress"
    needs: ClassVar[type] = Classifier

    def use(self, *sets: JoinedSets) -> Stress:
        """Use open sources, and return this benchmark.

        Args:
            sets: photos with their edits, one for each folder, the main folder first.
        """
        if "severity" in self.parts and not any(
            "severity" in joined.index.extra_names for joined in sets
        ):
            raise UserError(
                f"benchmark.parts: no edit of {self.data} has a severity, which folders "
                "edited/KIND/SEVERITY/ or a column severity of a list say"
            )
        self._sets = sets
        self._labels = sorted({label for joined in sets for label in joined.labels})
        # The classes and templates for a dual encoder.
        templates = prompt_templates(self.templates, Path(str(self.data)))
        if self.classes is None:
            labels, names = self._labels, prompt_names(self._labels)
        elif self.classes == IMAGENET:
            labels, names = [*imagenet_names()], [*imagenet_names().values()]
        else:
            labels = read_lines(Path(self.classes).expanduser())
            names = prompt_names(labels)
        self.prompted = Classes(labels, names, templates)
        return self

    def identifying_settings(self) -> list[Any]:
        identity: list[Any] = [*self.parts, str(self.restrict)]
        if self.clusters is not None:
            identity += self.clusters.identity()
        classes = self.prompted
        return [*identity, list(classes.labels), list(classes.names), list(classes.templates)]

    def run(self, model: Classifier | CachedClassifier | ZeroShotClassifier) -> Evaluation:
        """Return the accuracies and drops of every set, and how the images were classified."""
        numbers = match_classes(self._labels, model.classes, "the model")
        # The logits of all distinct images, and where each set's images are among them.
        known: dict[bytes, int] = {}
        blocks, places = [], []
        for sets in self._sets:
            keys = image_keys(sets.index, sets.rows)
            fresh: dict[bytes, int] = {}
            for at, key in enumerate(keys):
                if key not in known:
                    fresh.setdefault(key, at)
            if fresh:
                pixels = Pixels(sets.index, sets.rows[list(fresh.values())])
                blocks.append(classify_images(model, pixels, self.batch_size))
                known |= {key: number for number, key in enumerate(fresh, len(known))}
            places.append(np.array([known[key] for key in keys]))
        logits, classes = np.concatenate(blocks), list(model.classes)
        if self.restrict:
            logits, classes = logits[:, numbers], [classes[n] for n in numbers]
            numbers = np.arange(len(numbers))
        named = make_distinct([class_words(name) for name in classes])  # not WordNet ids
        number = dict(zip(self._labels, numbers.tolist(), strict=True))
        columns = []
        for (joined, shown), place in zip(self._shown(), places, strict=True):
            truth = np.array([number[label] for label in joined.labels])
            answers: Answers = judge(logits, place, truth, named)
            columns.append(item_columns(joined, answers, shown))
        items = concatenate_columns(columns)
        items["classes"] = np.full(len(items[ITEM]), len(classes))
        if self.clusters is not None:
            items |= self.clusters.columns(items)
        return Evaluation(outcomes(str(self.name), items, self.parts), items)

    def failure_cells(self, items: Items) -> Cells:
        """Return the edits: the loss of probability, with that of the photo's reconstruction.

        With ``control=original`` the photo is its own control, which loses nothing. If captions do
        not say what was changed, as of edits without captions, the words of the edit do.
        """
        answers = StressItems("", items)
        rows = answers.rows(EDITED)
        names, clusters, *edits = (
            [answers.texts(name)[row] for row in rows]
            for name in (ITEM, CLUSTER, "class", "kind", "text_before", "text", "before", "after")
        )
        cells = []
        for label, kind, text_before, text, before, after in zip(*edits, strict=True):
            # By whole runs of words: the items' may be "in" and "on" alone.
            cell = Cell((label,), kind, *words_changed(text_before, text))
            cells.append(cell if cell.is_edit else Cell((label,), kind, before, after))
        delta, control = answers.deltas(rows, "drop")
        if self.control == ORIGINAL:
            control = np.zeros(len(delta))
        return Cells(names, delta, control, clusters, cells)

    def write_page(self, folder: Path, title: str) -> Path:
        """Show the edits, and test every drop (``stress.md``), in the folder of a run."""
        from cfaug.evaluation.stress.stress_page import PageSettings, write_stress_pages

        items = read_items(folder, str(self.name))
        if items is not None:
            write_drops(folder, title, items)
        places = {
            name: (sets.index, int(row))
            for sets in reversed(self._sets)  # if several have a photo, use that of the main one
            for name, row in zip(item_names(sets), sets.rows, strict=True)
        }

        def read_image(name: str) -> bytes:
            index, row = places[name]
            return index.read_image(row)

        settings = PageSettings(limit=self.page, command=tuple(self.apply))
        return write_stress_pages(folder, title, str(self.name), read_image, settings)


# The numbers of a stress test, from its items.

Part = Literal["kind", "class", "severity"]
MEANS: dict[str, Better] = {
    "acc1": "higher", "acc5": "higher", "photo_acc1": "higher", "photo_acc5": "higher",
    "paired_drop1": "lower", "paired_drop5": "lower", "net_drop1": "lower", "net_drop5": "lower",
    "p": "higher", "delta_p": "lower", "p_drop": "lower",
}  # fmt: skip
"""Columns of the items whose means are outcomes, and their better direction."""
ACCURACY = ("acc1", "acc5")
FIRST = ("acc1", "drop1", "paired_drop1", "net_drop1", "delta_p")
"""Metrics of whole sets that are reported first, as in a one-line summary."""


def outcomes(benchmark: str, items: Mapping[str, Any], parts: Sequence[Part]) -> list[Outcome]:
    """Return the means of each set and its parts, and the paper's unpaired drops.

    ``drop1`` and ``drop5`` are LANCE's equation 3 with the opposite sign, so that a fall is
    positive: accuracy on the photos that have an edit, minus accuracy on the images of a set. They
    compare means of two sets, so they are not means over items.

    Args:
        parts: columns by which sets other than photos and reconstructions are also reported.
    """
    columns = {name: np.asarray(values) for name, values in items.items()}
    sets = list(dict.fromkeys(columns["set"].tolist()))
    edits = [name for name in sets if name not in (ORIGINAL, RECONSTRUCTION)]
    reference = {"set": ORIGINAL, "photos": "edited"}
    results: list[Outcome] = []
    for name in (kind for kind in (ORIGINAL, RECONSTRUCTION) if kind in sets):
        results += _means(benchmark, columns, {"set": name})
        results += _means(benchmark, columns, {"set": name, "photos": "edited"})
        if name == RECONSTRUCTION:
            results += _drops(benchmark, columns, reference, {**reference, "set": name})
    for name in edits:
        results += _means(benchmark, columns, {"set": name})
        results += _drops(benchmark, columns, reference, {"set": name})
        for part in parts:
            chosen = columns["set"] == name
            for value in sorted({v for v in columns[part][chosen].tolist() if v}):
                results += _means(benchmark, columns, {"set": name, part: value})
    return sorted(results, key=lambda outcome: (len(outcome.by) > 1, outcome.metric not in FIRST))


def _mask(columns: Mapping[str, np.ndarray], by: Mapping[str, str]) -> np.ndarray:
    chosen = np.ones(len(columns["set"]), bool)
    for column, value in by.items():
        chosen &= columns[column] == value
    return chosen


def _means(
    benchmark: str, columns: Mapping[str, np.ndarray], by: Mapping[str, str]
) -> Iterator[Outcome]:
    chosen = _mask(columns, by)
    for metric, better in MEANS.items():
        if metric not in columns:
            continue
        values = columns[metric][chosen]
        values = values[~np.isnan(values)]
        if len(values):
            mean = float(values.mean())
            chance = None
            if metric in (*ACCURACY, *(f"photo_{name}" for name in ACCURACY)):
                chance = min(1.0, int(metric[-1]) / int(columns["classes"][0]))
            yield Outcome(benchmark, metric, mean, len(values), better=better, by=by, chance=chance)


def _drops(
    benchmark: str,
    columns: Mapping[str, np.ndarray],
    reference: Mapping[str, str],
    by: Mapping[str, str],
) -> Iterator[Outcome]:
    before, after = _mask(columns, reference), _mask(columns, by)
    for metric in ACCURACY:
        if metric in columns and after.any():
            drop = float(columns[metric][before].mean() - columns[metric][after].mean())
            name = f"drop{metric.removeprefix('acc')}"
            yield Outcome(benchmark, name, drop, int(after.sum()), better="lower", by=by)
