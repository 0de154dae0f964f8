"""Classification of a labelled source: zero-shot by prompts, or by a classifier's own classes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import numpy as np

from cfaug.core.errors import UserError, name_some, say_once
from cfaug.core.files import is_hidden, read_lines
from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.core.protocols import Classifier
from cfaug.core.types import CLUSTER, ITEM, Evaluation
from cfaug.data.sources import split_folder
from cfaug.data.sources.row import (
    WNID,
    class_words,
    equal_names_warning,
    is_number,
    make_distinct,
    names_warning,
    prompt_names,
    require_names,
)
from cfaug.evaluation.benchmark import SourceBenchmark, cluster_rows, fingerprint, name_rows
from cfaug.evaluation.cached_model import CachedClassifier
from cfaug.evaluation.class_mapping import match_classes
from cfaug.evaluation.inference import Pixels, classify_images, embed_images, embed_texts
from cfaug.evaluation.records import Classes
from cfaug.settings.read_if import MODEL, ReadIf
from cfaug.stats.classification import (
    class_vectors,
    fill_templates,
    hits_at,
    mean_per_class_recall,
    zero_shot_scores,
)

if TYPE_CHECKING:
    from cfaug.core.protocols import DualEncoder
    from cfaug.data.index import Index
    from cfaug.evaluation.cached_model import CachedEncoder
    from cfaug.evaluation.context import EvaluationContext


NAMED_BY_FILE = "ask for: benchmark=classification benchmark.classes=FILE reads names from a file"
NAMES_IN_FILE = "benchmark=classification benchmark.classes=FILE gives names, a line for each"
PAPER_TEMPLATE = "A photo of a {c}"
"""COCO-Counterfactuals, section 5.2: the only template, without a period."""


@dataclass
class ZeroShot(SourceBenchmark):
    """Top-1, top-5 and mean per-class recall with a template ensemble.

    A classifier answers with its own classes, to which the labels are matched by WordNet id or by
    name; ``benchmark=stress`` matches them alike.

    Args:
        name: the name in tables, ending in "_classification"; ``None`` takes the folder's name.
        without_leaks: whether to leave out images that the run was trained on, or whose COCO photo
            it was trained on; otherwise they are only reported.
        restrict: whether a classifier chooses only among the labels of the source, as is usual for
            parts of ImageNet, not among all of its classes.
    """

    restrict: Annotated[bool, ReadIf({MODEL: ("Classifier",)})] = False

    kind: ClassVar[str] = "classification"
    also_accepts: ClassVar[tuple[type, ...]] = (Classifier,)
    item_schema: ClassVar[ItemSchema] = ItemSchema(
        "an image",
        (
            ItemColumn("item", "the image", "text", always=True),
            ItemColumn("cluster", "its group, such as its photo", "text", always=True),
            ItemColumn(
                "acc1",
                "1 if its class is the most similar or probable; a share where classes tie",
            ),
            ItemColumn("acc5", "the same for the first five classes, if there are five"),
            ItemColumn("label", "the name of its class", "text"),
            ItemColumn("predicted", "the name of the most similar or probable class", "text"),
        ),
    )

    def prepare(self, context: EvaluationContext, index: Index, rows: np.ndarray | None) -> None:
        """Choose among the labels of the source, as words, with the paper's template."""
        labels = sorted({*labels_of(index)} - {""})
        words = [class_words(label) for label in labels]
        require_names(words, str(self.data), NAMED_BY_FILE)
        self.use(index, Classes(labels, words, [PAPER_TEMPLATE]), rows)

    def use(
        self,
        index: Index,
        classes: Classes,
        rows: np.ndarray | None = None,
        labels: Sequence[str | None] | None = None,
    ) -> Self:
        """Use rows of an open source, and return this benchmark.

        Args:
            index: the source; the label of every row is one of the classes.
            rows: the rows to use; ``None`` for all.
            labels: the label of every row of the source; ``None`` uses those of the index.
        """
        rows = np.arange(len(index)) if rows is None else rows
        _, at = np.unique(index.images[rows], return_index=True)
        first = rows[at]
        shown = [index.label(int(row)) if labels is None else labels[row] for row in first]
        if None in shown:
            culprit = index.image_name(int(first[shown.index(None)]))
            raise UserError(
                f"{self.name}: {culprit} has no class label; classification needs one each"
            )
        number = {label: i for i, label in enumerate(classes.labels)}
        strange = {str(label) for label in shown} - number.keys()
        if strange:
            raise UserError(
                f"{self.name}: labels {sorted(strange)[:5]} are not among the classes "
                f"({len(number)}: {', '.join([*number][:20])})"
            )
        self.class_names, self._templates = list(classes.names), list(classes.templates)
        derived = prompt_names(classes.labels) == self.class_names
        warnings = [equal_names_warning(classes.names, str(self.name))]
        if derived:
            given = (classes.labels, classes.names)
            warnings.append(names_warning(*given, str(self.name), NAMES_IN_FILE))
        for warning in warnings:
            if warning is not None:
                say_once(warning)
        self._known_as = list(classes.labels) if derived else self.class_names
        self._labels = np.array([number[str(label)] for label in shown])
        self._index, self._pixels = index, Pixels(index, first)
        return self

    @property
    def data_hash(self) -> str:
        chosen = ["restrict"] if self.restrict else []
        content = (self._index.hash, self._pixels.rows, self.class_names, self._templates)
        return fingerprint(*content, *chosen)

    def run(self, model: DualEncoder | CachedEncoder | Classifier | CachedClassifier) -> Evaluation:
        """Return acc1, acc5 (where there are five classes) and mean per-class recall.

        Mean per-class recall is not a mean over items but the mean of ``acc1`` over labels.
        """
        names: Sequence[str] = self.class_names
        if isinstance(model, Classifier | CachedClassifier):
            classes = np.arange(len(names)) if self.restrict else np.unique(self._labels)
            known_as = [self._known_as[i] for i in classes]
            columns = match_classes(known_as, model.classes, "the model")
            scores, names = classify_images(model, self._pixels, self.batch_size), model.classes
            if self.restrict:
                scores, names = scores[:, columns], [names[column] for column in columns]
                columns = np.arange(len(columns))
            column_of = dict(zip(classes.tolist(), columns.tolist(), strict=True))
            truth = np.array([column_of[label] for label in self._labels.tolist()])
            names = make_distinct([class_words(name) for name in names])
        else:
            prompts = embed_texts(model, fill_templates(self._templates, names), self.batch_size)
            vectors = class_vectors(prompts.reshape(len(names), len(self._templates), -1))
            images = embed_images(model, self._pixels, self.batch_size)
            scores, truth = zero_shot_scores(images, vectors), self._labels
        hits = hits_at(scores, truth)
        recall = mean_per_class_recall(scores, truth)
        chance = {f"acc{k}": k / len(names) for k in (1, 5)}
        recall_outcome = self.outcome("mean_per_class_recall", recall, len(truth), chance["acc1"])
        named, rows = np.array(names, dtype=object), self._pixels.rows
        items = {
            ITEM: name_rows(self._index, rows),
            CLUSTER: cluster_rows(self._index, rows),
            **hits,
            "label": named[truth],
            "predicted": named[scores.argmax(axis=1)],
        }
        return Evaluation([*self.mean_outcomes(hits, chance), recall_outcome], items)


@dataclass
class Classification(ZeroShot):
    """Classification: ImageFolder, CLIP_benchmark folder, Hub parquet, CIFAR's binaries.

    In a folder with splits, the test split is used, or else the validation split. Prompts use
    CLIP's names of the classes of ImageNet and Caltech-101, and other labels as words
    ("012.polar_bear" is "polar bear"); if there is a ``classnames.txt``, they use its lines: the
    labels themselves, or one line for each label in the labels' sorted order.

    Args:
        name: the name in tables, ending in "_classification"; ``None`` takes the folder's name.
        without_leaks: whether to leave out images that the run was trained on, or whose COCO photo
            it was trained on; otherwise they are only reported.
        restrict: whether a classifier chooses only among the labels of the folder, as is usual for
            parts of ImageNet, not among all of its classes.
        templates: prompts with ``{c}`` for the class name; ``folder`` takes CLIP_benchmark's
            zeroshot_classification_templates.txt. The default is the paper's.
        classes: a file of class names, one per line; ``None`` uses classnames.txt in the folder or
            above it, if there is one.
        label: the column of ``data`` that names the classes, such as ``species``; ``None`` takes
            the classes that its form has.
    """

    templates: Annotated[Sequence[str] | str, ReadIf({MODEL: ("DualEncoder",)})] = (PAPER_TEMPLATE,)
    classes: str | None = None
    label: str | None = None

    def source(self) -> str:
        return tested_folder(super().source())

    def prepare(self, context: EvaluationContext, index: Index, rows: np.ndarray | None) -> None:
        folder = Path(self.source()).expanduser()
        templates = prompt_templates(self.templates, folder)
        file = None if self.classes is None else Path(self.classes).expanduser()
        given = None if self.label is None else labels_of(index, self.label)
        labels, names = classes_of(index, folder, file, given)
        self.use(index, Classes(labels, names, templates), rows, given)

    @property
    def data_hash(self) -> str:
        of_form = super().data_hash
        return of_form if self.label is None else fingerprint(of_form, self.label, self._labels)


# The classes of a labelled folder: its test split, its labels, and their names in prompts.

TEMPLATES = "zeroshot_classification_templates.txt"
CLASS_NAMES = "classnames.txt"
TEST_SPLITS = ("test", "val", "validation", "valid")


def tested_folder(source: str) -> str:
    """Return the test split of a folder of images per class, or the folder itself.

    ImageNet's ``test/`` has images but no classes; ``val/`` is used for testing.
    """
    folder = split_folder(Path(source).expanduser())
    if not folder.is_dir():
        return source
    source = str(folder)
    folders = {
        entry.name for entry in os.scandir(folder) if entry.is_dir() and not is_hidden(entry.name)
    }
    if not folders <= {"train", *TEST_SPLITS}:
        return source
    there = (folder / name for name in TEST_SPLITS if name in folders)
    return next((str(path) for path in there if _has_class_folders(path)), source)


def _has_class_folders(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        return any(entry.is_dir() and not is_hidden(entry.name) for entry in entries)


def prompt_templates(templates: Sequence[str] | str, folder: Path) -> list[str]:
    """Return the templates of prompts; the word ``folder`` stands for those of a folder's file."""
    given = [templates] if isinstance(templates, str) else list(templates)
    where: object = "benchmark.templates"
    if templates == "folder":
        where = _beside(folder, TEMPLATES)
        if where is None:
            raise UserError(
                f"benchmark.templates=folder: there is no {TEMPLATES} in {folder} or above"
            )
        given = read_lines(where)
    wrong = [
        template for template in given if not isinstance(template, str) or "{c}" not in template
    ]
    if wrong or not given:
        raise UserError(
            f"{where}: {wrong[0]!r} has no {{c}}, where the class name goes"
            if wrong
            else f"{where} is empty: give a template as in ['A photo of a {{c}}'], or folder"
        )
    return given


def labels_of(index: Index, column: str | None = None) -> list[str]:
    """Return the class of every row, from a column of texts or numbers if one is named.

    Without a column it is what the form of the source has, or empty.
    """
    if column is None:
        return [index.label(row) or "" for row in range(len(index))]
    values = index.extra_values(column, np.arange(len(index)))
    wrong = [
        row for row, value in enumerate(values)
        if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip()
    ]  # fmt: skip
    if wrong:
        raise UserError(
            f"benchmark.label={column}: {index.key(wrong[0])} of {index.source} has "
            f"{values[wrong[0]]!r} there, which names no class"
        )
    labels, first = [str(value).strip() for value in values], dict[int, int]()
    for row, image in enumerate(index.images.tolist()):
        other = first.setdefault(image, row)
        if labels[other] != labels[row]:
            raise UserError(
                f"benchmark.label={column}: {index.image_name(row)} of {index.source} has two "
                f"classes, {labels[other]!r} and {labels[row]!r}"
            )
    return labels


def classes_of(
    index: Index, folder: Path, file: Path | None, given: Sequence[str] | None = None
) -> tuple[list[str], list[str]]:
    """Return the labels to choose from, and their names in prompts.

    Args:
        given: the label of every row; ``None`` uses those of the index.
        folder: the folder of the images; ``classnames.txt`` is looked for here and above it.
        file: a file of class names, one per line; ``None`` looks for one in ``folder``.
    """
    labels = sorted({*(given or labels_of(index))} - {""})
    if len(labels) == 1:
        raise UserError(
            f"{folder}: every image is of the class {labels[0]!r}; classification needs two. Name "
            "the folder whose folders are the classes"
        )
    file = _beside(folder, CLASS_NAMES) if file is None else file
    if file is not None:
        # Its lines are the labels as words, maybe of more classes than the images show, ...
        lines = read_lines(file)
        by_words = {_words(label): label for label in labels}
        ordered = [by_words.get(_words(line), line) for line in make_distinct(lines)]
        if set(labels) <= set(ordered):
            return ordered, lines
        # ... or names in the order of the labels.
        if len(labels) != len(lines):
            raise UserError(
                f"{file} has {len(lines)} class names and {folder} has {len(labels)} labels, not "
                f"all among them ({', '.join(labels[:5])}); it needs a line for each label, in "
                "their order"
            )
        for label, line in zip(labels, ordered, strict=True):
            if line in labels and line != label:
                raise UserError(
                    f"{file}: {line!r} stands where {label!r} belongs; the lines should be in the "
                    "sorted order of the labels"
                )
        # People count otherwise: 0, 1, 10, 2.
        if all(is_number(label) for label in labels) and labels != sorted(labels, key=float):
            say_once(f"{file}: its lines name the labels in this order: {name_some(labels, 12)}")
        return labels, lines
    names = prompt_names(labels)
    remedy = (
        f"ask for: put a {CLASS_NAMES} into the folder with a line for each label, in their sorted "
        f"order ({name_some(labels)}), or name such a file with benchmark.classes=FILE"
    )
    require_names(names, str(folder), remedy)
    unknown = [name for name in names if WNID.fullmatch(name)]
    if unknown:
        raise UserError(
            f"{folder}: {name_some(unknown)} are not among ImageNet's classes and not names to "
            f"{remedy}"
        )
    return labels, names


def _words(label: str) -> str:
    return class_words(label).casefold()


def _beside(folder: Path, name: str) -> Path | None:
    """Return a file of the folder, or of the folder above it (that of a split)."""
    return next((p / name for p in (folder, folder.parent) if (p / name).is_file()), None)
