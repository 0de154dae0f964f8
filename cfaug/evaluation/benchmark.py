"""The base of benchmarks: a source, optional capabilities, pages, and the names of items."""

from __future__ import annotations

import copy
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Protocol, TypeVar, cast, runtime_checkable

import numpy as np

from cfaug.core.errors import UserError, say_once
from cfaug.core.protocols import DualEncoder
from cfaug.core.types import Outcome
from cfaug.core.validation import Positive, check_fields
from cfaug.data.mixture.leakage import Leaks
from cfaug.settings.read_if import FOLDER, TRAINED, ReadIf

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cfaug.core.protocols import Benchmark
    from cfaug.core.types import Evaluation
    from cfaug.data.index import Index
    from cfaug.evaluation.context import EvaluationContext
    from cfaug.evaluation.records import Classes
    from cfaug.report import document
    from cfaug.report.gallery import ImageSource, ModelPage


# Optional capabilities of benchmarks; a caller checks for them by ``isinstance``.


@runtime_checkable
class LeakAware(Protocol):
    """A benchmark that knows which of its images the run was trained on.

    Attributes:
        leaks: the images that the run was trained on; ``None`` if its training data are unknown.
    """

    leaks: Leaks | None


@runtime_checkable
class HasClasses(Protocol):
    """A benchmark that chooses among classes."""

    class_names: list[str]


@runtime_checkable
class Prompted(Protocol):
    """A benchmark of classifiers that can be run on a dual encoder as well.

    Attributes:
        prompted: the classes that the encoder chooses among, and their prompts.
    """

    prompted: Classes


@runtime_checkable
class AlsoAccepts(Protocol):
    """A benchmark that can also be run on models of protocols other than ``needs``.

    Attributes:
        also_accepts: the other protocols, in order of preference; ``run`` takes their models too.
    """

    also_accepts: tuple[type, ...]


@runtime_checkable
class HasPage(Protocol):
    """A benchmark with an HTML page of its items."""

    def write_page(self, folder: Path, title: str) -> Path | None:
        """Write the page of the items in the folder of a run.

        Args:
            folder: the folder of the run, to which its items have been written.
            title: the model's name on the page.

        Returns:
            The page; ``None`` if the benchmark writes no page.
        """
        ...


@runtime_checkable
class HasPrimaryMetrics(Protocol):
    """A benchmark of many metrics that names those over which comparisons are corrected.

    Attributes:
        primary_metrics: names of metrics of the whole benchmark or of its largest parts.
    """

    primary_metrics: tuple[str, ...]


class Problem(Protocol):
    """A problem of a benchmark's data; its text is a line for people.

    Attributes:
        fatal: whether an item with the problem cannot be scored.
    """

    @property
    def fatal(self) -> bool:
        """Return whether an item with the problem cannot be scored."""
        ...


@runtime_checkable
class ChecksData(Protocol):
    """A benchmark whose data can be checked without a model (``dry_run=true``)."""

    def describe_data(self, context: EvaluationContext) -> Sequence[str]:
        """Describe the data in a few lines."""
        ...

    def find_problems(self, context: EvaluationContext) -> Sequence[Problem]:
        """Return the problems of the data."""
        ...


@runtime_checkable
class KeepsRankings(Protocol):
    """A benchmark whose evaluations have ``rankings``, saved beside the items."""

    keeps_rankings: bool


@runtime_checkable
class HasSummary(Protocol):
    """A benchmark that reports its results in its own words rather than as a table of metrics."""

    def summarise(self, evaluation: Evaluation) -> Sequence[document.Part | str]:
        """Return a few sentences, or small tables, for the terminal."""
        ...


@runtime_checkable
class KeepsPages(HasPage, Protocol):
    """A benchmark whose pages are written again from its items if one was removed.

    Attributes:
        page_files: names of the files that ``write_page`` writes beside a run's results.
    """

    page_files: tuple[str, ...]


# The common base of benchmarks of one source: settings of a YAML, and how to open the source.


@dataclass
class SourceBenchmark(ABC):
    """A benchmark of one source; the class is the node of a YAML and, once opened, the benchmark.

    A subclass adds its settings as fields and defines ``prepare``, ``data_hash`` and ``run``.

    Args:
        data: a folder in any form ``data.real`` takes, or ``shapescapes:PART``.
        name: the name in tables, ending in the kind; ``None`` takes the folder's name.
        without_leaks: whether to leave out images that the run was trained on, or whose COCO photo
            it was trained on; otherwise they are only reported.

    Attributes:
        needs: the protocol of the models that the benchmark takes.
        whole_sets: whether sets are left out whole, as in tests of pairs.
        leaks: the images that the run was trained on; ``None`` where that is unknown.
    """

    data: str | None = None
    name: str | None = None
    batch_size: Positive = 256
    """the number of items given to the model at once"""
    without_leaks: Annotated[bool, ReadIf({"data": FOLDER, TRAINED: (True,)})] = False
    leaks: Leaks | None = field(default=None, init=False, repr=False)

    kind: ClassVar[str]
    needs: ClassVar[type] = DualEncoder
    whole_sets: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self, "benchmark")

    def open(self, context: EvaluationContext) -> list[Benchmark]:
        source = self.source()
        index = context.open(source)
        rows = self.choose_rows(context, source)
        rows, leaks = context.apart_from_training(
            source, rows, without_leaks=self.without_leaks, whole_sets=self.whole_sets
        )
        opened = copy.copy(self)
        stem = self.name or Path(source).name.replace(":", "_")
        opened.name = f"{stem.removesuffix(f'_{self.kind}')}_{self.kind}"
        opened.leaks = leaks
        opened.prepare(context, index, rows)
        return cast("list[Benchmark]", [opened])

    def source(self) -> str:
        """Return the source to open."""
        if self.data is None:
            raise UserError(f"benchmark={self.kind} needs benchmark.data=FOLDER")
        return self.data

    def choose_rows(self, context: EvaluationContext, source: str) -> np.ndarray | None:
        """Return the rows of the source to ask about; ``None`` for all."""
        return None

    @abstractmethod
    def prepare(self, context: EvaluationContext, index: Index, rows: np.ndarray | None) -> object:
        """Store the data that ``run`` evaluates; called once, on a copy of the node.

        Args:
            rows: the rows to use; ``None`` for all.
        """

    def outcome(self, metric: str, value: float, n: int, chance: float | None = None) -> Outcome:
        """Return a fraction for which higher values are better.

        Args:
            chance: the expected value of a model that answers at random; ``None`` if unknown.
        """
        return Outcome(str(self.name), metric, value, n, chance=chance)

    def mean_outcomes(
        self, hits: Mapping[str, np.ndarray], chance: Mapping[str, float] | None = None
    ) -> list[Outcome]:
        """Return the mean of each metric over the items that count for it.

        Args:
            hits: {metric: float (items,)}, ``nan`` where an item does not count.
            chance: {metric: expected value of a model that answers at random}, as far as known.
        """
        counted = {metric: values[~np.isnan(values)] for metric, values in hits.items()}
        known = chance or {}
        return [
            self.outcome(metric, float(values.mean()), len(values), known.get(metric))
            for metric, values in counted.items()
        ]


def paired_rows(name: str | None, index: Index, rows: np.ndarray | None) -> np.ndarray:
    """Return the rows of pairs, one pair after the other, int64 (2 * pairs,).

    A set of two members is one pair. In a larger set, the first member (the original) is paired
    with each of the others.

    Args:
        name: the benchmark's name, for the error.
        rows: the rows to use; ``None`` for all.
    """
    chosen = np.arange(len(index)) if rows is None else rows
    sets = np.asarray(index.sets)[chosen]
    _, counts = np.unique(sets, return_counts=True)
    if not len(counts) or (counts < 2).any():
        raise UserError(
            f"{name}: every set must have two members or more; {index.source} has sets of "
            f"{sorted(set(counts.tolist()))}"
        )
    if (counts > 2).any():
        say_once(
            f"{name}: {index.source} has sets of up to {counts.max()} members; the first of a set "
            "is paired with each of the others"
        )
    ordered: np.ndarray = chosen[np.argsort(sets, kind="stable")]
    starts = np.cumsum(counts) - counts
    first = np.repeat(ordered[starts], counts - 1)
    others = np.delete(ordered, starts)
    texts = zip(map(index.text, first.tolist()), map(index.text, others.tolist()), strict=True)
    if all(text == other for text, other in texts):
        raise UserError(
            f"{name}: in all {len(others):,} pairs of {index.source} both images have one caption, "
            f"such as {index.text(int(first[0]))!r}, so none can be told from the other: pairs "
            "need a caption of each image. A classifier is tested on edits without captions by "
            "benchmark=stress"
        )
    return np.stack([first, others], axis=1).reshape(-1)


# Benchmarks whose answers are shown on a page, with their images.

Found = TypeVar("Found")


class WritesModelPage:
    """A benchmark with a page of each model's answers, and one of all models of an experiment.

    It is a ``KeepsPages``. A benchmark says how the page is made
    (``model_page``), and where its pictures come from (``page_images``).

    Attributes:
        page: number of items to show; ``None`` writes no page.
    """

    name: str | None
    page: int | None

    def model_page(self) -> ModelPage[Any]:
        """Return how to make the page."""
        raise NotImplementedError

    def page_images(self) -> ImageSource:
        """Return a reader of its pictures, by their names in the items."""
        raise NotImplementedError

    @property
    def page_files(self) -> tuple[str, ...]:
        """Names of the files that ``write_page`` writes beside a run's results."""
        from cfaug.report.gallery import page_file

        return () if self.page is None else (page_file(str(self.name)),)

    def write_page(self, folder: Path, title: str) -> Path | None:
        """Write the page of a run's answers, and that of all models of its experiment.

        Args:
            folder: the folder of the run, to which its items have been written.
            title: the model's name on the page.

        Returns:
            The page; ``None`` if the benchmark writes no page.
        """
        if self.page is None:
            return None
        images = self.page_images()
        return self.model_page().write_for_run(folder, title, str(self.name), images)

    def reader(self, find: Callable[[str], Found | None], source: object) -> Callable[[str], Found]:
        """Return a function that finds an image by name and refuses names that are not in the data.

        Args:
            find: a function that returns the image of a name; ``None`` if the name is unknown.
        """
        from cfaug.report.items import how_to_renew

        def read(name: str) -> Found:
            image = find(name)
            if image is None:
                raise UserError(
                    f"{self.name}: its items name {name!r}, which is not an image of {source}; "
                    f"{how_to_renew(str(self.name))}"
                )
            return image

        return read


# A hash of a benchmark's data and settings, by which its results are recognised.

Part = str | int | Sequence[str] | np.ndarray


def fingerprint(*parts: Part) -> str:
    """Return 16 hex digits that identify source hashes, rows, class names and other choices.

    >>> fingerprint("a", np.arange(2)) == fingerprint("a", np.array([0, 1]))
    True
    >>> fingerprint("a", ["b", "c"]) == fingerprint("a", ["bc"])
    False
    """
    plain = [part.tolist() if isinstance(part, np.ndarray) else part for part in parts]
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:16]


# The names and clusters of test items that are rows of an index.


def name_rows(index: Index, rows: np.ndarray) -> list[str]:
    """Return a unique name for each row: its key, with its number where keys are duplicated.

    Args:
        rows: distinct rows of the source, integers (rows,).
    """
    names = index.keys(rows)
    if len(set(names)) == len(names):
        return names
    return [f"{name}#{row}" for name, row in zip(names, rows.tolist(), strict=True)]


def name_pairs(index: Index, rows_N2: np.ndarray) -> list[str]:
    """Return a unique name for each pair: its first row's, or its second's where a set has several.

    Args:
        rows_N2: the rows of each pair, integers (pairs, 2), whose second rows are distinct.
    """
    first = rows_N2[:, 0]
    return name_rows(index, first if len(np.unique(first)) == len(first) else rows_N2[:, 1])


def cluster_rows(index: Index, rows: np.ndarray) -> list[str]:
    """Return the cluster of each row: its group, the photo or the original caption.

    Args:
        rows: rows of the source, integers (rows,).
    """
    return [f"{code:016x}" for code in np.asarray(index.groups)[rows].tolist()]
