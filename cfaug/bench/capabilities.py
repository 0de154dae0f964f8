"""What some benchmarks can do and others cannot; a caller finds out by ``isinstance``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from cfaug.bench.classification import Classes
    from cfaug.bench.context import EvaluationContext
    from cfaug.data.planning.leakage import Leaks
    from cfaug.types import Evaluation


@runtime_checkable
class LeakAware(Protocol):
    """A benchmark that knows which of its images the run was trained on.

    Attributes:
        leaks: what was found; ``None`` where nothing was looked for, as of a checkpoint.
    """

    leaks: Leaks | None


@runtime_checkable
class HasClasses(Protocol):
    """A benchmark that chooses among classes.

    Attributes:
        class_names: what prompts call each class.
    """

    class_names: list[str]


@runtime_checkable
class Prompted(Protocol):
    """A benchmark of classifiers that can be asked of a dual encoder as well.

    Attributes:
        prompted: the classes that the encoder chooses among, and how it is prompted with them.
    """

    prompted: Classes


@runtime_checkable
class AlsoAsks(Protocol):
    """A benchmark that can be asked of models of other protocols than ``needs`` as well.

    Attributes:
        also_asks: these protocols, those preferred first; ``run`` takes such a model as it is.
    """

    also_asks: tuple[type, ...]


@runtime_checkable
class HasPage(Protocol):
    """A benchmark whose items have a page of their own."""

    def write_page(self, folder: Path, title: str) -> Path | None:
        """Draw the items that lie in the folder of a run.

        Args:
            folder: of the run; its items are written before.
            title: what the page calls the model.

        Returns:
            The page; ``None`` if none was asked for.
        """
        ...


@runtime_checkable
class HasPrimaryMetrics(Protocol):
    """A benchmark of many metrics that names those which comparisons are corrected for.

    Attributes:
        primary_metrics: their names, of all of the benchmark or its largest parts.
    """

    primary_metrics: tuple[str, ...]


class Problem(Protocol):
    """Something that is wrong with the data of a benchmark; its text is a line for people.

    Attributes:
        fatal: whether what has it cannot be scored.
    """

    @property
    def fatal(self) -> bool:
        """Return whether what has it cannot be scored."""
        ...


@runtime_checkable
class ChecksData(Protocol):
    """A benchmark whose data can be checked before any model is asked (``dry_run=true``)."""

    def describe_data(self, context: EvaluationContext) -> Sequence[str]:
        """Say in a few lines what the data hold."""
        ...

    def find_problems(self, context: EvaluationContext) -> Sequence[Problem]:
        """Return what is wrong with the data."""
        ...


@runtime_checkable
class KeepsRankings(Protocol):
    """A benchmark whose evaluations have ``rankings``, kept beside the items.

    Attributes:
        keeps_rankings: true.
    """

    keeps_rankings: bool


@runtime_checkable
class HasSummary(Protocol):
    """A benchmark that says in sentences what it found, rather than in a line of numbers."""

    def summarise(self, found: Evaluation) -> Sequence[str]:
        """Return a few lines for the terminal."""
        ...


@runtime_checkable
class KeepsPages(HasPage, Protocol):
    """A benchmark whose pages are drawn again, from its items, where one was removed.

    Attributes:
        page_files: what ``write_page`` writes beside a run's results.
    """

    page_files: tuple[str, ...]
