"""What else the answers say: sections of the report, made by whoever knows what to look for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from cfaug.annotation.findings import Findings


@dataclass(frozen=True)
class Section:
    """A section of ``annotation.html`` and what ``annotation.json`` keeps of it.

    Attributes:
        title: its heading.
        columns: heads of the table.
        rows: of the table; the first cell names the row.
        notes: lines below the table.
        sentences: for the head of the report and the terminal.
        data: JSON for ``annotation.json``, beside the record's own keys.
    """

    title: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)


class Analysis(Protocol):
    """Something to find out from the answers."""

    def analyse(self, findings: Findings, simulated: bool) -> Section:
        """Return what was found.

        Args:
            findings: the answers.
            simulated: whether no annotator was a person.
        """
        ...


@runtime_checkable
class Selective(Analysis, Protocol):
    """An analysis that is of some questions only."""

    def concerns(self, findings: Findings) -> bool:
        """Say whether there is anything to find out.

        Args:
            findings: the answers.
        """
        ...
