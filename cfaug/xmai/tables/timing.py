"""Figure 7 of XMAI: seconds per caption, method by method, on a logarithmic scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cfaug.report.arm_results import Runs
from cfaug.report.document import BarPlot, Document, Entry, Part
from cfaug.report.numbers import DASH
from cfaug.report.paper_tables import PaperTable
from cfaug.xmai.tables.settings import Timing, read_timings

TIMING_COMMANDS = ("python benchmarks/insertion.py --out FOLDER",)


@dataclass(frozen=True, kw_only=True)
class TimingFigure(PaperTable):
    """A group of bars per data set, a bar per method.

    Args:
        timings: {printed name of the data set: file from ``benchmarks/insertion.py``}, or ``None``.
        methods: {printed name: method of the files}, in order; others follow under their own names.
        slower: the printed name of the method whose time is divided by that of ``faster``.
        faster: the printed name of the other method.
    """

    timings: Mapping[str, str] | None = None
    methods: Mapping[str, str] = field(default_factory=dict)
    slower: str = "CLARE"
    faster: str = "XMAI"
    commands: Sequence[str] = TIMING_COMMANDS

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, ours, and the bars.

        Raises:
            MissingError: if no file is given, unless ``partial``.
            UserError: if a file cannot be read.
        """
        self.require(self.timings, "table.timings={DATA: timing.csv}")
        theirs = self.printed("What", "what", lambda _, value: _seconds(value))
        found = {
            data: {one.method: one for one in read_timings(file) if not one.settings}
            for data, file in (self.timings or {}).items()
        }
        if not found:
            return self.document(theirs)
        named = self._named(found)
        rows = [
            ((printed,), tuple(_time(own.get(name)) for own in found.values()))
            for printed, name in named.items()
        ]
        ratio = tuple(self._ratio(own, named) for own in found.values())
        rows.append(((f"{self.slower} / {self.faster}",), ratio))
        machines = dict.fromkeys(one.machine for own in found.values() for one in own.values())
        part = Part(
            "Ours, seconds a caption", ("Method",), (), tuple(found), tuple(rows),
            notes=(f"On {', '.join(machines)}; the paper's are of a Tesla T4.",),
        )  # fmt: skip
        return self.document(theirs, part, bars=[_bars(found, named)])

    def _named(self, found: Mapping[str, Mapping[str, Timing]]) -> dict[str, str]:
        there = dict.fromkeys(name for own in found.values() for name in own)
        known = {printed: name for printed, name in self.methods.items() if name in there}
        return known | {name: name for name in there if name not in known.values()}

    def _ratio(self, own: Mapping[str, Timing], named: Mapping[str, str]) -> Entry:
        slower, faster = (own.get(named.get(name, "")) for name in (self.slower, self.faster))
        if slower is None or faster is None:
            return Entry(DASH)
        ratio = slower.seconds / faster.seconds
        return Entry(f"{ratio:.1f}", numbers={"value": ratio})


def _bars(found: Mapping[str, Mapping[str, Timing]], named: Mapping[str, str]) -> BarPlot:
    groups = {
        data: [
            (printed, own[name].seconds if name in own else None, None, None)
            for printed, name in named.items()
        ]
        for data, own in found.items()
    }
    return BarPlot(
        "Seconds a caption", "seconds a caption (logarithmic)", groups, tuple(named), unit="s",
        logarithmic=True,
    )  # fmt: skip


def _time(one: Timing | None) -> Entry:
    if one is None:
        return Entry(DASH)
    return Entry(f"{one.seconds:.3g}", numbers={"value": one.seconds, "n": float(one.captions)})


def _seconds(value: float | None) -> Entry:
    return Entry(DASH) if value is None else Entry(f"{value:g}", numbers={"value": value})
