"""Single benchmarks as config nodes: on a folder the user has, or on a part of the world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cfaug.bench.classes import classes_of, prompt_templates, tested_folder
from cfaug.bench.classification import ZeroShot
from cfaug.bench.matching import Matching
from cfaug.bench.pairs import PairMatching
from cfaug.bench.retrieval import Retrieval
from cfaug.errors import UserError, check_booleans

if TYPE_CHECKING:
    import numpy as np

    from cfaug.bench.context import EvaluationContext
    from cfaug.data.planning.leakage import Leaks
    from cfaug.protocols import Benchmark

PAPER_TEMPLATE = "A photo of a {c}"
"""COCO-Counterfactuals, section 5.1: the only template, without a period."""


@dataclass(frozen=True)
class RetrievalOn:
    """Retrieval on a source: ``benchmark=retrieval benchmark.data=FOLDER``.

    Args:
        data: a folder in any form ``data.real`` takes, or ``shapescapes:PART``.
        name: what tables call it, "_retrieval" added; ``None`` is the folder's name.
        batch_size: images or captions embedded at once.
        captions_per_image: the first so many of each image; ``None`` is all. The paper's Table 3
            fits 1, its Table 12 all.
        counterfactual_holdout: ask only about this share of the sets, which
            ``data.counterfactual_holdout`` kept out of training; 0.3 in the paper's Table 5.
        human_labels: ask only about the images that the annotators of this file matched to their
            own caption, as the paper's Tables 2 and 13; ``shapescapes:PART`` asks the oracle.
        edited_by: ask only about the captions that the counterfactuals of this source are edits
            of, as the paper's MS-COCO is (footnote 11).
        without_leaks: leave out images that the run was trained on, or whose COCO photo it was;
            otherwise they are only reported.

    Raises:
        UserError: if more than one of ``counterfactual_holdout``, ``human_labels`` and
            ``edited_by`` is given, or no caption is asked for.
    """

    data: str | None
    name: str | None = None
    batch_size: int = 256
    captions_per_image: int | None = None
    counterfactual_holdout: float | None = None
    human_labels: str | None = None
    edited_by: str | None = None
    without_leaks: bool = False

    def __post_init__(self) -> None:
        check_booleans(self, "benchmark")
        names = ("counterfactual_holdout", "human_labels", "edited_by")
        given = [f"benchmark.{name}" for name in names if getattr(self, name) is not None]
        if len(given) > 1:
            raise UserError(f"{' and '.join(given)} exclude each other: choose one")
        count = self.captions_per_image
        if count is not None and (
            isinstance(count, bool) or not isinstance(count, int) or count < 1
        ):
            raise UserError(
                f"benchmark.captions_per_image={count}: give a number from 1, or null for all"
            )

    def benchmarks(self, subject: EvaluationContext) -> list[Benchmark]:
        """Return one benchmark."""
        source = _required(self.data, "retrieval")
        index = subject.open(source)
        rows, leaks = _asked(subject, source, self._rows(subject, source), self.without_leaks)
        return [
            Retrieval(
                _named(self.name, source, "retrieval"),
                index,
                rows=rows,
                batch_size=self.batch_size,
                captions_per_image=self.captions_per_image,
                leaks=leaks,
            )
        ]

    def _rows(self, subject: EvaluationContext, source: str) -> np.ndarray | None:
        if self.counterfactual_holdout is not None:
            return subject.withheld_rows(source, self.counterfactual_holdout)
        if self.human_labels is not None:
            return subject.validated_rows(source, self.human_labels)
        if self.edited_by is not None:
            return subject.edited_rows(source, self.edited_by)
        return None


@dataclass(frozen=True)
class ClassificationOn:
    """Zero-shot classification: ImageFolder, CLIP_benchmark folder, Hub parquet, CIFAR's binaries.

    Of a folder with splits the test split is asked, or the validation split. Prompts use CLIP's
    names of the classes of ImageNet and Caltech-101, and other labels as words ("012.polar_bear" is
    "polar bear"); where there is a ``classnames.txt``, its lines: the labels themselves, or one for
    each label in the labels' sorted order.

    Args:
        data: the folder.
        name: what tables call it, "_classification" added; ``None`` is the folder's name.
        templates: prompts with ``{c}`` for the class name; ``folder`` takes CLIP_benchmark's
            zeroshot_classification_templates.txt. The default is the paper's.
        classes: a file of class names, a line each; ``None`` is classnames.txt in the folder or
            above it, where there is one.
        batch_size: images or prompts embedded at once.
        without_leaks: leave out images that the run was trained on, or whose COCO photo it was;
            otherwise they are only reported.
    """

    data: str | None
    name: str | None = None
    templates: Sequence[str] | str = (PAPER_TEMPLATE,)
    classes: str | None = None
    batch_size: int = 256
    without_leaks: bool = False

    def benchmarks(self, subject: EvaluationContext) -> list[Benchmark]:
        """Return one benchmark."""
        source = _required(self.data, "classification")
        tested = tested_folder(source)
        folder = Path(tested).expanduser()
        templates = prompt_templates(self.templates, folder)
        index = subject.open(tested)
        file = None if self.classes is None else Path(self.classes).expanduser()
        classes, names = classes_of(index, folder, file)
        rows, leaks = _asked(subject, tested, None, self.without_leaks)
        return [
            ZeroShot(
                _named(self.name, source, "classification"),
                index,
                classes=classes,
                names=names,
                templates=templates,
                rows=rows,
                batch_size=self.batch_size,
                leaks=leaks,
            )
        ]


@dataclass(frozen=True)
class PairsOn:
    """Text, image and group score over a source of pairs: ``benchmark=pairs``.

    Args:
        data: the pairs.
        name: what tables call it, "_pairs" added; ``None`` is the folder's name.
        batch_size: images or captions embedded at once.
        without_leaks: leave out pairs of which the run was trained on an image, or on its COCO
            photo; otherwise they are only reported.
    """

    data: str | None
    name: str | None = None
    batch_size: int = 256
    without_leaks: bool = False

    def benchmarks(self, subject: EvaluationContext) -> list[Benchmark]:
        """Return one benchmark, "_pairs" added to its name."""
        source = _required(self.data, "pairs")
        name = _named(self.name, source, "pairs")
        index = subject.open(source)
        rows, leaks = _asked(subject, source, None, self.without_leaks, whole_sets=True)
        return [PairMatching(name, index, rows=rows, batch_size=self.batch_size, leaks=leaks)]


@dataclass(frozen=True)
class MatchingOn:
    """Matching gaps of counterfactual pairs: ``benchmark=matching benchmark.data=FOLDER``.

    Args:
        data: the pairs, each of an original and a counterfactual member.
        real: the captions' real photographs, for the gaps between random pairs; ``None`` measures
            the counterfactual gaps alone.
        name: what tables call it, "_matching" added; ``None`` is the folder's name.
        seed: of the random pairs.
        batch_size: pairs scored at once.
        without_leaks: leave out pairs of which the run was trained on an image, or on its COCO
            photo; otherwise they are only reported.
    """

    data: str | None
    real: str | None = None
    name: str | None = None
    seed: int = 0
    batch_size: int = 64
    without_leaks: bool = False

    def benchmarks(self, subject: EvaluationContext) -> list[Benchmark]:
        """Return one benchmark."""
        source = _required(self.data, "matching")
        rows, leaks = _asked(subject, source, None, self.without_leaks, whole_sets=True)
        return [
            Matching(
                _named(self.name, source, "matching"),
                subject.open(source),
                None if self.real is None else subject.open(self.real),
                seed=self.seed,
                rows=rows,
                batch_size=self.batch_size,
                leaks=leaks,
            )
        ]


def _asked(
    subject: EvaluationContext,
    source: str,
    rows: np.ndarray | None,
    without_leaks: bool,
    *,
    whole_sets: bool = False,
) -> tuple[np.ndarray | None, Leaks | None]:
    """Return the rows to ask about and what of them was trained on, left out where so asked."""
    if without_leaks:
        return subject.without_leaks(source, rows, whole_sets=whole_sets)
    return rows, subject.leaks(source, rows)


def _required(folder: str | None, kind: str) -> str:
    if folder is None:
        raise UserError(f"benchmark={kind} needs benchmark.data=FOLDER")
    return folder


def _named(name: str | None, source: str, kind: str) -> str:
    stem = (name or Path(source).name.replace(":", "_")).removesuffix(f"_{kind}")
    return f"{stem}_{kind}"
