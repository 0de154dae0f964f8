"""Optional capabilities of benchmarks; a caller checks for them by ``isinstance``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from cfaug.core.types import Evaluation
    from cfaug.data.mixture.leakage import Leaks
    from cfaug.evaluation.classification import Classes
    from cfaug.evaluation.context import EvaluationContext


@runtime_checkable
class LeakAware(Protocol):
    """A benchmark that knows which of its images the run was trained on.

    Attributes:
        leaks: the images that the run was trained on; ``None`` if its training data are unknown.
    """

    leaks: Leaks | None


@runtime_checkable
class HasClasses(Protocol):
    """A benchmark that chooses among classes.

    Attributes:
        class_names: the name of each class in prompts.
    """

    class_names: list[str]


@runtime_checkable
class Prompted(Protocol):
    """A benchmark of classifiers that can be run on a dual encoder as well.

    Attributes:
        prompted: the classes that the encoder chooses among, and their prompts.
    """

    prompted: Classes


@runtime_checkable
class AlsoAsks(Protocol):
    """A benchmark that can also be run on models of protocols other than ``needs``.

    Attributes:
        also_asks: the other protocols, in order of preference; ``run`` takes their models as well.
    """

    also_asks: tuple[type, ...]


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
    """A benchmark whose evaluations have ``rankings``, saved beside the items.

    Attributes:
        keeps_rankings: always true.
    """

    keeps_rankings: bool


@runtime_checkable
class HasSummary(Protocol):
    """A benchmark that reports its results in sentences rather than in a line of numbers."""

    def summarise(self, found: Evaluation) -> Sequence[str]:
        """Return a few lines for the terminal."""
        ...


@runtime_checkable
class KeepsPages(HasPage, Protocol):
    """A benchmark whose pages are written again from its items if one was removed.

    Attributes:
        page_files: names of the files that ``write_page`` writes beside a run's results.
    """

    page_files: tuple[str, ...]
