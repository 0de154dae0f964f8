"""Further findings in the answers: sections of the report, made by analyses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from cfaug.annotation.findings import Findings


@dataclass(frozen=True)
class ReportSection:
    """A section of ``annotation.html``, and its data for ``annotation.json``.

    Attributes:
        title: the heading of the section.
        columns: the column heads of the table.
        rows: the rows of the table; the first cell names the row.
        notes: lines below the table.
        sentences: sentences for the head of the report and for the terminal.
        data: further keys of ``annotation.json`` and their values, JSON.
    """

    title: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)


class Analysis(Protocol):
    """An analysis of the answers."""

    def analyse(self, findings: Findings, simulated: bool) -> ReportSection:
        """Return the findings.

        Args:
            findings: the answers.
            simulated: whether all annotators were simulated.
        """
        ...


@runtime_checkable
class Selective(Analysis, Protocol):
    """An analysis that applies only to some questions."""

    def concerns(self, findings: Findings) -> bool:
        """Return whether the analysis applies.

        Args:
            findings: the answers.
        """
        ...
