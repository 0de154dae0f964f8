"""What is left of a model's declared failures, and which others it has: ``benchmark=repair``."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from cfaug.core.errors import UserError, name_some
from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.core.types import CLUSTER, ITEM, Evaluation, Outcome
from cfaug.core.validation import check_fields
from cfaug.evaluation.benchmark import fingerprint
from cfaug.evaluation.failures import (
    CONTROLS,
    Cell,
    Cells,
    FailureRule,
    Finder,
    HasFailureCells,
    ModelFailure,
    find_failures,
    read_failures,
)
from cfaug.evaluation.suites import SuiteMember, check_member, open_member
from cfaug.report.items import Items
from cfaug.stats.cluster_tests import cluster_mean

if TYPE_CHECKING:
    from cfaug.core.protocols import Benchmark
    from cfaug.data.index import Index
    from cfaug.evaluation.context import EvaluationContext

REPAIR_ITEMS = ItemSchema(
    "an edit of a test photo by a declared failure",
    (
        ItemColumn(ITEM, "the name of the item in the inner benchmark", "text", always=True),
        ItemColumn(CLUSTER, "the photo or group that it was sampled in", "text", always=True),
        ItemColumn("failure", "the declared failure in words", "text", always=True),
        ItemColumn(
            "cause",
            "coverage, reliance or unknown, where the file of the failures names causes",
            "text",
        ),
        ItemColumn("loss", "what the model loses by the edit: probability, or 1 for a miss"),
        ItemColumn("control", "the same without the edit, such as of a reconstruction"),
        ItemColumn("excess", "loss minus control", always=True),
        ItemColumn("acc1", "1 if the edit is classified right, else 0; of tests that classify"),
    ),
)


@dataclass
class RepairTest:
    """A benchmark of edits by declared failure, before and after a repair.

    Outcomes, of which ``excess`` and ``acc1`` are means over items:

    - ``excess``: mean over the edits of declared failures of what the model loses beyond the
      control; lower is better. Also by failure, and by cause where the file names causes.
    - ``acc1``: share of these edits that are classified right, where the test classifies. What is
      left falls, too, if a model is less sure of the photos themselves; this does not.
    - ``repair_rate``: share of the declared failures whose excess has an upper bound (of the 95 %
      interval over photos) below the rule's minimum.
    - ``collateral``: number of cells that are not declared and pass the rule: failures that the
      model has besides; lower is better.
    - ``worst_cell``: largest mean excess of a cell that is measured; lower is better. It and
      ``collateral`` are left out if every cell has too few photos.

    Args:
        test: the benchmark with the edits, which groups its items into cells, such as
            ``benchmark=stress`` with fresh edits of TEST photos.
        failures: the file of the declared failures, found before anything was trained.
        rule: the rule by which a cell is a failure, that of the finding.
        name: the name in tables, ending in ``_repair``; ``None`` takes that of ``test``.
        disjoint_from: {name: source}, such as FIND and POOL: sources that share no photo with each
            other and with the edits, by group or by content; checked before any evaluation.
    """

    test: SuiteMember
    failures: str | None = None
    rule: FailureRule = field(default_factory=FailureRule)
    name: str | None = None
    disjoint_from: Mapping[str, str] = field(default_factory=dict)
    _inner: Any = field(default=None, init=False, repr=False)
    _declared: tuple[ModelFailure, ...] = field(default=(), init=False, repr=False)

    kind: ClassVar[str] = "repair"
    item_schema: ClassVar[ItemSchema] = REPAIR_ITEMS
    primary_metrics: ClassVar[tuple[str, ...]] = ("excess",)

    def __post_init__(self) -> None:
        check_fields(self, "benchmark")
        check_member(self.test, "benchmark.test")

    def open(self, context: EvaluationContext) -> list[Benchmark]:
        """Open the edits and the file, and return a list of this benchmark."""
        if self.failures is None:
            raise UserError(
                "benchmark=repair needs benchmark.failures=FILE, the failures that were declared: "
                "python evaluate.py benchmark=stress ... failures=FILE writes it"
            )
        declared = read_failures(self.failures)
        if not declared:
            raise UserError(f"benchmark.failures={self.failures} holds no failure to test")
        if self.disjoint_from:
            inner_test: Any = self.test
            parts = {"benchmark.test": inner_test.data, **self.disjoint_from}
            check_disjoint({name: context.open(source) for name, source in parts.items()})
        (inner,) = open_member(self.test, context)
        if not isinstance(inner, HasFailureCells):
            raise UserError(
                f"benchmark.test: {inner.name} has no items with edits: choose one of those in "
                "which failures are found, such as benchmark=stress"
            )
        opened = copy.copy(self)
        stem = self.name or inner.name.removesuffix(f"_{inner.kind}")
        opened.name = f"{stem.removesuffix('_repair')}_repair"
        opened._inner, opened._declared = inner, declared
        # Copied, because from Python 3.12 on isinstance would not find them through __getattr__.
        for name in ("prompted", "also_accepts", "leaks", "class_names"):
            if hasattr(inner, name):
                setattr(opened, name, getattr(inner, name))
        return cast("list[Benchmark]", [opened])

    @property
    def needs(self) -> type:
        """The protocol of the models that the inner benchmark takes."""
        inner: Any = self._inner or self.test
        needs: type = inner.needs
        return needs

    @property
    def data_hash(self) -> str:
        """A hash of the edits, the failures and the rule."""
        declared = [str((*failure.identity[:-1], failure.cause)) for failure in self._declared]
        return fingerprint(self._inner.data_hash, declared, str(self.rule))

    def run(self, model: Any) -> Evaluation:
        """Return what is left of the failures, and the failures that were not declared."""
        evaluation = self._inner.run(model)
        cells = self._inner.failure_cells(Items(self._inner.name, "", "", evaluation.items))
        excess = np.asarray(cells.delta, float) - np.asarray(cells.control, float)
        number = [match_failure(cell, self._declared) for cell in cells.groups]
        declared = np.array([n is not None for n in number], bool)
        known = declared & ~np.isnan(excess)
        rows: list[int] = np.flatnonzero(known).tolist()
        made = evaluation.items
        place = {name: row for row, name in enumerate(made[ITEM])}
        if "photo" in made and "text" in made:
            # If A -> B and B -> A are failures, the reverse edits of the one are those of the
            # other: the repeated ones of a photo are left out.
            first: dict[tuple[Any, ...], int] = {}
            for row in rows:
                item = place[cells.names[row]]
                first.setdefault((made["photo"][item], made["text"][item], cells.groups[row]), row)
            rows = list(first.values())
        if not rows and declared.any():
            control = CONTROLS.get(self._inner.kind, "the same item without the edit")
            control = control.replace("benchmark.", "benchmark.test.")
            raise UserError(
                f"{self.name}: none of the {int(declared.sum()):,} edits of declared failures has "
                f"a control, which is {control}"
            )
        if not rows:
            raise UserError(
                f"{self.name}: no edit of the test is that of a declared failure, such as "
                f"{self._declared[0].words}: make some with recipe=repair_test "
                f"data.failures={self.failures}"
            )
        failures = [self._declared[cast("int", number[row])] for row in rows]
        causes = [failure.cause or "unknown" for failure in failures]
        named = any(failure.cause for failure in self._declared)
        items = {
            ITEM: [cells.names[row] for row in rows],
            CLUSTER: [cells.clusters[row] for row in rows],
            "failure": [failure.words for failure in failures],
            **({"cause": causes} if named else {}),
            "loss": np.asarray(cells.delta, float)[rows],
            "control": np.asarray(cells.control, float)[rows],
            "excess": excess[rows],
        }
        if "acc1" in made:
            right = np.asarray(made["acc1"], float)
            items["acc1"] = right[[place[cells.names[row]] for row in rows]]
        return Evaluation(self._outcomes(cells, items, number), items)

    def _outcomes(
        self, cells: Cells, items: dict[str, Any], number: Sequence[int | None]
    ) -> list[Outcome]:
        excess, clusters = items["excess"], np.asarray(items[CLUSTER])
        which = np.asarray(items["failure"])
        name, means, bounds = str(self.name), [], []
        for words in dict.fromkeys(failure.words for failure in self._declared):
            rows = which == words
            if not rows.any():
                continue
            bounds.append(cluster_mean(excess[rows], clusters[rows]).high)
            mean, by = float(excess[rows].mean()), {"failure": words}
            means.append(Outcome(name, "excess", mean, int(rows.sum()), better="lower", by=by))
        causes = np.asarray(items.get("cause", []), str)
        for cause in np.unique(causes).tolist():
            rows, by = causes == cause, {"cause": cause}
            mean, count = float(excess[rows].mean()), int(rows.sum())
            means.append(Outcome(name, "excess", mean, count, better="lower", by=by))
            if "acc1" in items:
                right = float(items["acc1"][rows].mean())
                means.append(Outcome(name, "acc1", right, count, by=by))
        repaired = [bound < self.rule.minimum for bound in bounds]
        measured = find_failures(cells, self.rule, self._inner.kind, Finder("", "", "", ""))
        whole = [
            Outcome(name, "excess", float(excess.mean()), len(excess), better="lower"),
            Outcome(name, "repair_rate", float(np.mean(repaired)), len(repaired)),
        ]
        if "acc1" in items:
            whole.append(Outcome(name, "acc1", float(items["acc1"].mean()), len(excess)))
        if count := measured.measured:
            cells_of_failures = [
                Cell(failure.labels, failure.kind, failure.before, failure.after)
                for failure in measured.failures
            ]
            others = sum(match_failure(cell, self._declared) is None for cell in cells_of_failures)
            whole += [
                Outcome(name, "collateral", others, count, better="lower", unit="failures"),
                Outcome(name, "worst_cell", measured.largest, count, better="lower"),
            ]
        return [*whole, *means]


def match_failure(cell: Cell, failures: Sequence[ModelFailure]) -> int | None:
    """Return the number of the first failure whose edit a cell has; ``None`` without one.

    A failure of all classes has every cell of its words; a cell of all classes is that of a failure
    of one, since small classes are measured together.

    >>> failures = (ModelFailure("stress", "place", "snow", "sand", ("dog",)),)
    >>> match_failure(Cell(("dog",), "place", "snow", "sand"), failures)
    0
    >>> match_failure(Cell(("cat",), "place", "snow", "sand"), failures) is None
    True
    """
    for number, failure in enumerate(failures):
        known = not failure.labels or not cell.labels or set(cell.labels) <= set(failure.labels)
        if known and (cell.kind, cell.before, cell.after) == (
            failure.kind, failure.before, failure.after,
        ):  # fmt: skip
            return number
    return None


def check_disjoint(parts: Mapping[str, Index]) -> None:
    """Refuse parts that share a photo: by its group, or by the bytes of an image.

    Args:
        parts: {name: source}, such as FIND, POOL, GATE and TEST.

    Raises:
        UserError: naming two parts and the photos that both have.
    """
    for (name, index), (other, other_index) in combinations(parts.items(), 2):
        shared = {
            "groups": np.isin(np.asarray(index.groups), np.asarray(other_index.groups)),
            "images": np.isin(index.contents, other_index.contents),
        }
        for what, rows in shared.items():
            if rows.any():
                keys = [index.key(int(row)) for row in np.flatnonzero(rows)]
                raise UserError(
                    f"{name} ({index.source}) and {other} ({other_index.source}) share {what}: "
                    f"{len(keys)} rows of {name}, such as {name_some(keys)}; a repair is judged on "
                    "photos that neither found nor mended the failure: name parts without them"
                )
