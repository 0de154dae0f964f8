"""What a model fails at: findings of evaluations, of other systems or of people, a line each.

``evaluate.py ... failures=FILE`` writes ``FILE``, a JSON object a line; ``recipe=repair`` reads it.
A benchmark says which of its items belong together (``failure_cells``): items with the same edit
are a cell, and a cell in which the model loses more than without the edit is a failure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from annotated_types import Interval

from cfaug.core.atomic_files import remove_leftovers
from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.known_names import nearest
from cfaug.core.outputs import write_output
from cfaug.core.rng import generator
from cfaug.core.safety.json_text import load_json
from cfaug.core.text import normalise_caption
from cfaug.core.validation import Positive, Share, check_fields
from cfaug.data.captions import caption_changes, longest_change, replaced_run
from cfaug.stats.edit_effects import MINIMUM, group_effects, shrink_means

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.report.items import Items

FAMILIES = ("stress", "choice", "pairs", "matching", "retrieval", "vqa")
"""The kinds of benchmarks that find failures."""
TYPED = "typed"
"""The ``found_by`` of a finding that somebody typed."""
LONGEST_LINE = 2**20
"""The largest number of bytes of a line."""
Difference = Annotated[float, Interval(ge=-1, le=1)]
Cause = Literal["coverage", "reliance"]


@dataclass(frozen=True)
class Finder:
    """What found a failure.

    Attributes:
        model: the checkpoint or run.
        weights: the hash of its weights.
        benchmark: the benchmark's name in tables.
        data: the hash of the test data and settings.
    """

    model: str
    weights: str
    benchmark: str
    data: str

    def __post_init__(self) -> None:
        check_fields(self, "found_by")


@dataclass(frozen=True)
class ModelFailure:
    """An edit after which a model fails more often than without it.

    Only ``family``, ``kind``, ``before`` and ``after`` have to be given.

    Attributes:
        family: the kind of benchmark, such as ``stress`` or ``pairs``.
        kind: the kind of the edit, such as ``background``.
        before: the words that the edit replaces; empty for an insertion.
        after: the words that replace them; empty for a deletion.
        labels: the classes of the items; () for all.
        effect: mean over photos of the loss of probability of the true class, or of the share of
            misses, minus that of the control.
        shrunk: the effect, shrunk towards that of all cells measured together
            (``cfaug.stats.edit_effects.shrink_means``); ``None`` if it was not
            measured together with others.
        low: lower end of the 95 % interval of the effect over photos.
        p: one-sided p of an effect above zero, from a permutation over photos.
        p_holm: ``p``, corrected over the cells measured together.
        prevalence: share of the cell's photos among all photos of the cells.
        items: the names of the test's items in the cell.
        found_by: the model and the test; ``typed`` for a finding of a person or another system.
        cause: ``coverage`` if the words after are rare in the model's training data, ``reliance``
            if they are not (``cfaug.evaluation.failure_causes``); ``None`` if that is unknown.
        seen: share of the training examples, of any class, whose captions name the words after.
        seen_in_class: the same share of the training examples of ``labels``.
    """

    family: str
    kind: str
    before: str
    after: str
    labels: tuple[str, ...] = ()
    effect: Difference = 1.0
    shrunk: Difference | None = None
    low: Difference | None = None
    high: Difference | None = None
    p: Share | None = None
    p_holm: Share | None = None
    prevalence: Share = 1.0
    items: tuple[str, ...] = ()
    found_by: Finder | str = TYPED
    cause: Cause | None = None
    seen: Share | None = None
    seen_in_class: Share | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("family", "kind"):
            if not getattr(self, name).strip():
                raise UserError(f"{name} is empty")
        if normalise_caption(self.before) == normalise_caption(self.after):
            raise UserError(f"before and after are both {self.before!r}: nothing is edited")
        for less, more in (("low", "high"), ("p", "p_holm")):
            smaller, larger = getattr(self, less), getattr(self, more)
            if smaller is not None and larger is not None and smaller > larger:
                raise UserError(
                    f"{less}={smaller} is above {more}={larger}, which it cannot be: are the two "
                    "exchanged?"
                )
        if isinstance(self.found_by, str) and self.found_by != TYPED:
            raise UserError(
                f"found_by={self.found_by!r} should be {TYPED!r}, or an object with "
                + ", ".join(field.name for field in fields(Finder))
            )

    @property
    def words(self) -> str:
        """The failure in words, for people."""
        classes = f"{', '.join(self.labels)}: " if self.labels else ""
        change = f"{self.before} → {self.after}" if self.before else f"+ {self.after}"
        return f"{classes}{self.kind}: {change if self.after else f'- {self.before}'}"

    @property
    def size(self) -> float:
        """The shrunk effect."""
        return self.effect if self.shrunk is None else self.shrunk

    @property
    def identity(self) -> tuple[Hashable, ...]:
        """Everything that says which failure of which model it is."""
        return self.family, self.labels, self.kind, self.before, self.after, self.found_by


# Reading and writing: a line for each failure; an error names the line.


KIND = "a list of failures"
"""What the record of outputs calls such a file."""


def write_failures(file: Path, failures: Sequence[ModelFailure]) -> None:
    """Write failures, a line each, atomically; without any, the file is empty.

    Raises:
        UserError: if another file than a list of failures that cfaug wrote is there.
    """
    lines = [
        json.dumps(asdict(failure), ensure_ascii=False, allow_nan=False) for failure in failures
    ]
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(file.parent)
        write_output(file, "".join(f"{line}\n" for line in lines).encode(), KIND, "failures")
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from error


def read_failures(file: Path | str) -> tuple[ModelFailure, ...]:
    """Read failures in their order; () for an empty file, as of a model in which none was found.

    Raises:
        UserError: naming the first line that is invalid, the key at fault and the choices.
    """
    path = Path(file).expanduser()
    failures: list[ModelFailure] = []
    line_of: dict[Hashable, int] = {}
    try:
        with require_regular(path).open("rb") as handle:
            number = 0
            while line := handle.readline(LONGEST_LINE + 1):
                number += 1
                if not line.strip():
                    continue
                try:
                    failure = _parse(line)
                    first = line_of.setdefault(_same_finding(failure), number)
                    if first != number:
                        raise UserError(f"{failure.words} is already in line {first}")
                except UserError as error:
                    raise UserError(f"{path}, line {number}: {error}") from error
                failures.append(failure)
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror}; python evaluate.py benchmark=stress ... "
            f"failures={path} writes it"
        ) from error
    return tuple(failures)


def _same_finding(failure: ModelFailure) -> tuple[Hashable, ...]:
    """Return what equals that of another line about the same: of typed words, whatever the case."""
    if failure.found_by != TYPED:
        return failure.identity
    names = failure.family.casefold(), failure.kind.casefold()
    words = normalise_caption(failure.before), normalise_caption(failure.after)
    return *names, *words, frozenset(failure.labels)


def _parse(line: bytes) -> ModelFailure:
    if len(line) > LONGEST_LINE:
        raise UserError(f"more than {LONGEST_LINE:,} bytes, which no failure has")
    try:
        content = load_json(line.decode("utf-8-sig"), parse_constant=_refuse_constant)
        json.dumps(content, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except ValueError as error:
        raise UserError(f"not JSON: {error}") from error
    if not isinstance(content, dict):
        raise UserError("should be a JSON object with family, kind, before and after")
    _check_keys(content, ModelFailure, ("family", "kind", "before", "after"))
    found_by = content.get("found_by")
    if isinstance(found_by, dict):
        _check_keys(found_by, Finder, [field.name for field in fields(Finder)])
        content["found_by"] = Finder(**found_by)
    elif found_by is not None and not isinstance(found_by, str):
        raise UserError(f"found_by should be {TYPED!r} or an object, not {found_by!r:.100}")
    given = {name: value for name, value in content.items() if value is not None}
    return ModelFailure(**given)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _check_keys(content: dict[str, Any], kind: type, needed: Sequence[str]) -> None:
    taken = [field.name for field in fields(kind)]
    for name in content:
        if name not in taken:
            near = nearest(name, taken)
            hint = f"did you mean {near}? " if near else ""
            raise UserError(f"unknown key {name!r}: {hint}keys are {', '.join(taken)}")
    lacking = [name for name in needed if content.get(name) is None]
    if lacking:
        raise UserError(f"{lacking[0]} is missing")


# Finding: which cells of a benchmark's items pass the declared rule.


class Cell(NamedTuple):
    """The edit that the items of a cell share; () are all classes."""

    labels: tuple[str, ...]
    kind: str
    before: str
    after: str

    @property
    def is_edit(self) -> bool:
        """Whether the words differ."""
        return normalise_caption(self.before) != normalise_caption(self.after)


@dataclass(frozen=True)
class Cells:
    """Items of a test with an edit, and what the model loses by it.

    Attributes:
        names: the name of each item, text (items,).
        delta: the loss of each item, (items,): of the true class's probability, or 1 for a miss.
        control: the same without the edit, such as of the photo's reconstruction, (items,); ``nan``
            where there is none, which leaves the item out.
        clusters: the photo or group that each item was sampled in, (items,).
        groups: the cell of each item, with its class, (items,).
    """

    names: Sequence[str]
    delta: np.ndarray
    control: np.ndarray
    clusters: Sequence[str]
    groups: Sequence[Cell]


@runtime_checkable
class HasFailureCells(Protocol):
    """A benchmark whose items can be grouped into cells of the same edit.

    Attributes:
        kind: the kind of the benchmark, the ``family`` of its failures.
    """

    kind: str

    def failure_cells(self, items: Items) -> Cells:
        """Return the items with an edit; a cell names the class of its items, if they have one."""
        ...


@dataclass(frozen=True)
class FailureRule:
    """Which cells are failures; declared before they are measured.

    Args:
        minimum: the smallest effect, in probability or share of misses; -1 with ``alpha`` 1 takes
            every measured cell.
        alpha: the largest p, corrected over all cells measured together (Holm).
        least_items: the smallest number of photos of a cell. A class with fewer joins the cell of
            all classes; a cell that is still smaller is not measured.
    """

    minimum: Difference = MINIMUM
    alpha: Share = 0.05
    least_items: Positive = 8

    def __post_init__(self) -> None:
        check_fields(self, "failure_rule")


@dataclass(frozen=True)
class FoundFailures:
    """The failures of one model on one benchmark, strongest first.

    Attributes:
        measured: the number of cells that were measured and corrected together.
        small: the number of cells that were not, as they have too few photos.
        uncontrolled: the number of edited items that were left out, as they have no control.
        largest: the largest effect of a measured cell, whether it passes the rule or not; ``nan``
            without one.
        reason: sentence on what the items lack if no cell was measured; empty if one was.
    """

    failures: tuple[ModelFailure, ...]
    measured: int
    small: int
    largest: float
    reason: str = ""
    uncontrolled: int = 0


def find_failures(
    cells: Cells, rule: FailureRule, family: str, found_by: Finder, *, seed: int = 0
) -> FoundFailures:
    """Measure every cell, and return those that pass the rule.

    The effect is the mean over photos of ``delta`` minus ``control``. Its interval, p and
    correction are those of ``group_effects``; which cells are measured depends on their sizes
    alone.
    """
    excess = np.asarray(cells.delta, float) - np.asarray(cells.control, float)
    edited = [row for row, cell in enumerate(cells.groups) if cell.is_edit]
    known = [row for row in edited if not np.isnan(excess[row])]
    clusters = [cells.clusters[row] for row in known]

    def find_small(groups: Sequence[Cell]) -> set[Cell]:
        photos: dict[Cell, set[str]] = {}
        for group, cluster in zip(groups, clusters, strict=True):
            photos.setdefault(group, set()).add(cluster)
        return {group for group, of in photos.items() if len(of) < rule.least_items}

    # A class with too few photos joins the cell of all classes; what is still too small is lost.
    groups = [cells.groups[row] for row in known]
    small = find_small(groups)
    groups = [group._replace(labels=()) if group in small else group for group in groups]
    lost = find_small(groups)
    rows_of: dict[tuple[Cell, str], list[int]] = {}  # the items of a photo in a cell
    for row, cell, cluster in zip(known, groups, clusters, strict=True):
        if cell not in lost:
            rows_of.setdefault((cell, cluster), []).append(row)
    if not rows_of:
        reason = _explain_unmeasured(cells, edited, known, rule.least_items, family)
        return FoundFailures((), 0, len(lost), math.nan, reason, len(edited) - len(known))
    means = np.array([excess[rows].mean() for rows in rows_of.values()])
    listed, photos = zip(*rows_of, strict=True)
    measured = group_effects(means, np.zeros(len(means)), photos, listed, seed=seed)
    shrunk = shrink_means([means[effect.rows] for effect in measured]).tolist()
    failures = []
    for effect, value in zip(measured, shrunk, strict=True):
        if effect.p_holm <= rule.alpha and effect.mean >= rule.minimum:
            cell = effect.group
            rows = [row for photo in effect.rows for row in rows_of[cell, photos[photo]]]
            low, high = _plain(effect.low), _plain(effect.high)
            failures.append(
                ModelFailure(
                    family, cell.kind, cell.before, cell.after, cell.labels,
                    _plain(effect.mean), _plain(value), low, high, effect.p, effect.p_holm,
                    effect.photos / len(set(clusters)),
                    tuple(cells.names[row] for row in sorted(rows)), found_by,
                )
            )  # fmt: skip
    failures.sort(key=lambda failure: -failure.size)
    largest = max(effect.mean for effect in measured)
    uncontrolled = len(edited) - len(known)
    return FoundFailures(
        tuple(failures), len(measured), len(lost), largest, uncontrolled=uncontrolled
    )


CONTROLS = {
    "stress": "the reconstruction of its photo: recipe=photo_edits writes it, and of edits of your "
    "own it is a kind called reconstruction, photos that were saved again as the edits were, with "
    "nothing changed. benchmark.control=original takes the photo itself instead",
    "choice": "an item with another edit, and all items have the same one",
}
"""What an item of a kind of benchmark is compared with, where it may be missing."""


def _explain_unmeasured(
    cells: Cells, edited: Sequence[int], known: Sequence[int], least: int, family: str
) -> str:
    """Return what the items of a test lack, none of whose cells is measured."""
    count = len(cells.names)
    if not count:
        return "no item is an edit of another one"
    if not edited:
        return (
            f"the words before and after are equal in all {count:,} edited items, so that no edit "
            "is known: captions have to say what was changed"
        )
    if not known:
        control = CONTROLS.get(family, "the same item without the edit")
        return f"none of {len(edited):,} edited items has a control, which is {control}"
    photos: dict[Cell, set[str]] = {}
    for row in known:
        group = cells.groups[row]._replace(labels=())
        photos.setdefault(group, set()).add(cells.clusters[row])
    group, most = max(photos.items(), key=lambda pair: len(pair[1]))
    shown = f"{group.before or 'nothing'} to {group.after or 'nothing'}"[:80]
    nameless = not any(group.before for group in photos)
    return (
        f"every edit is of fewer than {least} photos, at most {len(most)} ({group.kind}, {shown})"
        + "; no item has words before its edit, as captions of the photos would give" * nameless
        + f": test more photos with the same edit, or set failure_rule.least_items={len(most)}"
    )


def _plain(value: float) -> float:
    """Return a number within its bounds, which rounding may pass."""
    return min(1.0, max(-1.0, float(value)))


# Cells of sources whose items are two texts, or a set of them.


def read_cells(index: Index, rows_N2: np.ndarray, *, labelled: bool = True) -> list[Cell]:
    """Return the cell of each pair of an original and an edited row of a source.

    The words are those by which their captions differ; the kind is the source's ``edit_kind`` or
    ``category``, or ``text``.

    Args:
        rows_N2: rows of the source, integers (items, 2).
        labelled: whether the label of a row is a class.
    """
    first, second = rows_N2.T
    kinds: list[Any] = [None] * len(rows_N2)
    for name, rows in (("category", first), ("edit_kind", second)):
        if name in index.extra_names:
            values = index.extra_values(name, rows)
            kinds = [old if new is None else new for old, new in zip(kinds, values, strict=True)]
    labels = [index.label(int(row)) if labelled else None for row in first]
    return [
        Cell(
            () if label is None else (label,),
            "text" if kind is None else str(kind),
            *words_changed(*(index.text(int(row)) for row in rows)),
        )
        for kind, label, rows in zip(kinds, labels, rows_N2, strict=True)
    ]


def words_changed(before: str, after: str) -> tuple[str, str]:
    """Return the words by which two captions differ, in lower case.

    >>> words_changed("A red ball.", "An orange ball.")
    ('red', 'orange')
    >>> words_changed("a cat on a mat", "a mat on a cat")
    ('cat on a mat', 'mat on a cat')
    """
    if len(caption_changes(before, after)) == 1:
        return longest_change(before, after)
    went, came = replaced_run(before, after)
    return went.lower(), came.lower()


def draw_twins(names: Sequence[str], groups: Sequence[Cell], seed: int = 0) -> np.ndarray:
    """Return, for each item, a random item of another cell, keyed by its name; -1 without one.

    An item without an unedited form is compared with the usual item of its test. A random one
    instead of their mean keeps the two exchangeable, as the permutation assumes.

    Returns:
        int64 (items,).
    """
    twins = np.full(len(names), -1)
    if len(set(groups)) > 1:
        for row, name in enumerate(names):
            rng = generator(seed, "twins", name)
            while twins[row] < 0 or groups[twins[row]] == groups[row]:
                twins[row] = rng.integers(len(names))
    return twins
