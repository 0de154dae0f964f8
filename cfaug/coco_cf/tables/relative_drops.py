"""Tables of drops: how much harder counterfactuals are than real pairs (COCO-CFs, Tables 2, 13)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cfaug.coco_cf.tables.columns import PLACES, Place, ValueColumn, columns_of
from cfaug.report.arm_results import ArmResults, MissingError, Runs
from cfaug.report.document import Document, Entry, Part, groups_of, rules_of
from cfaug.report.numbers import DASH, percent
from cfaug.report.published import published
from cfaug.report.results import join_seeds
from cfaug.stats.significance import summarise


@dataclass(frozen=True)
class DropTable:
    """A row per model and data set: recall, and its change against the model's baseline.

    Args:
        name: the name of the paper's numbers and of the output files.
        title: the title above the table.
        paper: the source of the paper's numbers, the title of their part.
        columns: {the paper's column: settings of ``Column``}.
        models: {printed name: {"world": ``experiment/arm``, "folders": ``experiment/arm``}};
            ``null`` omits a model.
        datasets: {printed name: {"world": benchmark, "folders": benchmark}}, the baseline first.
        commands: the commands that make the results.
        notes: notes printed below everything.
        partial: whether to print dashes for missing values.
    """

    name: str
    title: str
    paper: str
    columns: Mapping[str, Mapping[str, Any]]
    models: Mapping[str, Mapping[Place, str] | None]
    datasets: Mapping[str, Mapping[Place, str]]
    commands: Sequence[str]
    notes: Sequence[str] = ()
    partial: bool = False

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, and ours for every place where they were measured.

        Raises:
            MissingError: if results are missing, unless ``partial``.
            UserError: if settings or files are invalid.
        """
        columns = tuple(c for c in columns_of(self.columns, None, None) if c.metric)
        found = {place: self._arms(runs, place) for place in PLACES}
        ours = [
            self._part(arms, columns, place)
            for place, arms in found.items()
            if any(arm.rows for arm in arms.values())
        ]
        if not ours and not self.partial:
            names = [f"results of {arm.name}" for arm in found[PLACES[0]].values()]
            raise MissingError(self.name, names, self.commands)
        return Document(
            self.name, self.title, (self._theirs(columns), *ours), tuple(self.notes)
        )  # fmt: skip

    def _arms(self, runs: Runs, place: Place) -> dict[str, ArmResults]:
        named = {
            model: arms[place] for model, arms in self.models.items() if arms and place in arms
        }
        return {model: runs.arm(name) for model, name in named.items()}

    def _theirs(self, columns: tuple[ValueColumn, ...]) -> Part:
        found = published(self.name)
        place = {key: i for i, key in enumerate(found["columns"])}
        rows = []
        for row in found["rows"]:
            same = [other for other in found["rows"] if other["model"] == row["model"]]
            cells = []
            for column in columns:
                at = place[column.key]
                least = min(other["change"][at] for other in same)
                change = row["change"][at]
                text = f"{row['values'][at]:.2f} ({change:+d}%)"
                bold = change == least and change < 0
                cells.append(Entry(text, bold=bold, numbers={"value": row["values"][at] / 100}))
            rows.append(((row["model"], row["dataset"]), tuple(cells)))
        return _lay_out(self.paper, columns, rows, [found["note"]], ours=False)

    def _part(
        self, arms: Mapping[str, ArmResults], columns: tuple[ValueColumn, ...], place: Place
    ) -> Part:
        missing = list(self._missing(arms, columns, place))
        if missing and not self.partial:
            raise MissingError(self.name, missing, self.commands)
        baseline = next(iter(self.datasets.values()))[place]
        rows = []
        for model, arm in arms.items():
            for dataset, benchmarks in self.datasets.items():
                benchmark = benchmarks[place]
                name = dataset if benchmark != baseline else f"{dataset} (baseline)"
                cells = tuple(self._entry(arm, c, benchmark, baseline, place) for c in columns)
                rows.append(((model, name), cells))
        where = "the embedded world ShapeScapes" if place == "world" else "real data"
        seeds = sorted(set().union(*(arm.seeds for arm in arms.values())))
        worlds = f"Mean over seeds {join_seeds(seeds)}, a world each (deviations: CSV). "
        note = "In brackets the change against the baseline; bold: a model's largest drop."
        asked = "; ".join(f"{name}: {names[place]}" for name, names in self.datasets.items())
        notes = [f"{asked}.", worlds + note if place == "world" else note]
        return _lay_out(f"Ours: {where}", columns, rows, notes, ours=True)

    def _entry(
        self, arm: ArmResults, column: ValueColumn, benchmark: str, baseline: str, place: Place
    ) -> Entry:
        means = {
            names[place]: summarise(list(values.values()))
            for names in self.datasets.values()
            if (values := arm.values((names[place], str(column.metric))))
        }
        if benchmark not in means:
            return Entry(DASH)
        own = means[benchmark]
        numbers = {"value": own.mean, "n": float(own.n)}
        numbers |= {"sd": own.sd} if own.n > 1 else {}
        if benchmark == baseline or baseline not in means or not means[baseline].mean:
            return Entry(percent(own.mean), numbers=numbers)
        change = {
            name: round(100 * (one.mean / means[baseline].mean - 1)) for name, one in means.items()
        }
        # Compared as printed, so that two drops that read the same are both bold.
        bold = change[benchmark] == min(change.values()) < 0
        told = f"{change[benchmark]:+d}%" if change[benchmark] else "0%"
        text = f"{percent(own.mean)} ({told})"
        return Entry(text, bold=bold, numbers=numbers)

    def _missing(
        self, arms: Mapping[str, ArmResults], columns: tuple[ValueColumn, ...], place: Place
    ) -> Iterator[str]:
        seeds = set().union(*(arm.seeds for arm in arms.values()))
        for arm in arms.values():
            for benchmark in (names[place] for names in self.datasets.values()):
                for column in columns:
                    lacks = seeds - set(arm.values((benchmark, str(column.metric))))
                    if lacks:
                        yield f"{benchmark} of {arm.name}, seed {join_seeds(lacks)}"
                        break


def _lay_out(
    title: str,
    columns: tuple[ValueColumn, ...],
    rows: Sequence[tuple[tuple[str, ...], tuple[Entry, ...]]],
    notes: Sequence[str],
    *,
    ours: bool,
) -> Part:
    return Part(
        title=title,
        labels=("Pre-trained model", "Evaluated data set"),
        groups=groups_of(columns),
        columns=tuple(column.name for column in columns),
        rows=tuple(rows),
        rules=rules_of([labels[0] for labels, _ in rows]),
        notes=tuple(notes),
        ours=ours,
    )
