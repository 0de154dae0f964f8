"""The value columns of the paper's tables, and the benchmark of each in either place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cfaug.core.errors import UserError
from cfaug.report.measured import MeasuredColumn

Place = Literal["world", "folders"]
"""The place where a benchmark was run: the embedded world, or folders of real data."""

PLACES: tuple[Place, ...] = ("world", "folders")


@dataclass(frozen=True)
class ValueColumn:
    """A value column of a table.

    Attributes:
        key: the name of the column in the paper's numbers.
        name: the printed header.
        group: the header printed above adjacent columns of the same group.
        metric: the metric of our results; ``None`` is the mean over the other columns.
        world: the benchmark on the embedded world.
        folders: the benchmark on real data.
        world_name: the header for the embedded world, if its benchmark is a different one.
    """

    key: str
    name: str
    group: str = ""
    metric: str | None = None
    world: str | None = None
    folders: str | None = None
    world_name: str | None = None

    def header(self, place: Place) -> str:
        """Return the column's header for the results of a place."""
        return self.world_name or self.name if place == "world" else self.name

    def at(self, place: Place) -> MeasuredColumn:
        """Return the measured column for a place."""
        benchmark = None if self.metric is None else str(getattr(self, place))
        return MeasuredColumn(self.header(place), self.group, benchmark, self.metric)


def columns_of(
    found: Mapping[str, Mapping[str, Any]], world: str | None, folders: str | None
) -> tuple[ValueColumn, ...]:
    """Return the columns in a table's configuration, ``{key: {name: ..., ...}}``.

    Args:
        found: {key: settings of the column}.
        world: default benchmark of the columns on the embedded world.
        folders: default benchmark of the columns on real data.

    Raises:
        UserError: for an unknown setting.
    """
    try:
        return tuple(
            ValueColumn(**{"key": key, "world": world, "folders": folders, **column})
            for key, column in found.items()
        )
    except TypeError as error:
        raise UserError(f"table.columns: {error}") from error
