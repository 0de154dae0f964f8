"""``evaluate.py``: ask finished runs or any checkpoint the benchmarks, then compare the arms."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from unicodedata import normalize

from cfaug.bench.frequency import write_label_frequencies
from cfaug.data.planning.mixture import mix
from cfaug.devices import check_device, choose_device
from cfaug.errors import UserError
from cfaug.messages import say
from cfaug.report.forgetting import check_threshold
from cfaug.report.records import Run, experiment_folder, read_config, read_run, setting_node
from cfaug.run.annotate import annotation
from cfaug.run.build import build
from cfaug.run.checkpoints import checkpoint, initial_checkpoints
from cfaug.run.evaluate_checkpoint import Asking, KeepItems, Tested, ask, memory
from cfaug.run.experiments import compare_all
from cfaug.run.launch import DONE, FAILED, USERS_MISTAKE, Jobs, report
from cfaug.run.names import runs_folder
from cfaug.run.readings import say_source
from cfaug.run.setting_types import Node, RunPaths
from cfaug.run.sources import (
    label_file,
    open_data,
    open_source,
    part_folder,
    permitted_roots,
)
from cfaug.run.tables import write_table
from cfaug.run.threads import use_threads
from cfaug.world_source import is_world, world_part

if TYPE_CHECKING:
    import numpy as np

    from cfaug.bench.context import EvaluationContext
    from cfaug.data.index import Index
    from cfaug.data.planning.records import Mixture
    from cfaug.data.planning.settings import DataSettings
    from cfaug.types import CounterfactualSet

ASKED, ALL = "asked", "all"
"""What is tabled: the benchmarks of this call, or all that were ever measured."""

NAMED = 6
"""Runs already evaluated that are named; more are counted."""


def evaluate(
    *,
    name: str | Sequence[str] | None,
    arm: str | None,
    runs: Sequence[str] | None,
    weights: str | None,
    seed: int,
    benchmark: Node,
    baseline: str | Sequence[str] | None,
    model: Node,
    data: Node,
    device: str,
    feature_cache: float,
    label_frequency: str | None,
    evaluate_initial: bool,
    forgetting_threshold: float | None,
    tabulate: str,
    paths: RunPaths,
    comparison: Node | None = None,
    table: Node | None = None,
    annotate: Node | None = None,
    threads: int | None = None,
    items: KeepItems = "new",
    overrides: Sequence[str] = (),
) -> int:
    """Evaluate what is not evaluated yet, print the numbers, and write tables and reports.

    With ``table=`` nothing is evaluated: that table is made of what was. With ``annotate=`` people
    are asked about the pairs of ``data.counterfactual``, and no model is.

    The keyword arguments are the top level of ``conf/evaluate.yaml``, described there.

    Raises:
        UserError: if there is nothing to evaluate. What is wrong with a run or an experiment is
            told with its name, and the others go on.
    """
    use_threads(threads)
    root = runs_folder(paths["runs"])
    if name is not None and not isinstance(name, str):
        raise UserError(_how_to_compare(name, root))
    if table is not None:
        return write_table(table, root)
    if annotate is not None:
        return annotation(annotate, data, seed, paths)
    check_threshold(forgetting_threshold)
    check_device(device)
    if tabulate not in (ASKED, ALL):
        raise UserError(f"tabulate={tabulate!r} is invalid: choose {ASKED} or {ALL}")
    suite = build(benchmark)
    finished: list[Tested] = []
    damaged = False
    if weights is not None:
        tested = [checkpoint(weights, model, data, seed, root)]
    else:
        finished, damaged = _finished(root, name, arm, runs)
        tested = [*finished, *(initial_checkpoints(finished, root) if evaluate_initial else ())]
    opener = _Opener(Path(paths["shards"]), Path(paths["cache"]), permitted_roots(paths))
    how = Asking(device, memory(paths["cache"], feature_cache), items)
    _prepare_worlds(tested, suite, opener)
    if device != "auto":  # which is there wherever torch is; said once, not of every run
        choose_device(device)
    code, asked = _ask_all(tested, suite, opener, how, label_frequency)
    if weights is not None:
        return code
    folders = [one.folder for one in finished]
    tabled = asked if tabulate == ASKED else None
    compared = None if comparison is None else build(comparison)
    failed = compare_all(folders, tabled, baseline, opener.samples, forgetting_threshold, compared)
    return max(code, failed, USERS_MISTAKE if damaged else DONE)


def _how_to_compare(names: Sequence[str], root: Path) -> str:
    """Say how arms of several experiments come into one table: by their places."""
    first = names[0] if names else "NAME"
    return (
        f"name=[{','.join(names)}]: a table is of one experiment. Bring the arms together, by link "
        f"or by copy, under names of their own: mkdir {root}/both; ln -s ../{first}/ARM "
        f"{root}/both/{first}-ARM; and so on; then python evaluate.py name=both"
    )


def _ask_all(
    tested: Sequence[Tested],
    suite: Any,
    opener: _Opener,
    how: Asking,
    label_frequency: str | None,
) -> tuple[int, dict[Path, set[str]]]:
    """Ask each its benchmarks; one's mistake is told, once where others share it.

    Returns:
        An exit code, and {experiment: the names of the benchmarks its runs were asked}.
    """
    mistakes = Counter[str]()
    asked: dict[Path, set[str]] = {}
    known = []
    for one in tested:
        try:
            benchmarks = suite.open(_context(one, opener))
            names = asked.setdefault(experiment_folder(one.folder), set())
            names.update(benchmark.name for benchmark in benchmarks)
            if not ask(one, benchmarks, how):
                known.append(one.folder)
            if label_frequency and one.trained and one.data.counterfactual and one.data.needed[1]:
                pairs = opener.open(one.data.counterfactual, one.data)
                write_label_frequencies(one.folder, benchmarks, pairs, label_frequency)
        except UserError as error:
            mistakes[str(error)] += 1
            if mistakes[str(error)] == 1:
                report(UserError(f"{one.folder}: {error}"))
            else:
                say(f"error: {one.folder}: the same")
    for folder in known[:NAMED]:
        say(f"already evaluated: {folder}", sys.stdout)
    if len(known) > NAMED:
        say(f"already evaluated: {len(known) - NAMED} more runs", sys.stdout)
    return (USERS_MISTAKE if mistakes else DONE), asked


def run_jobs(jobs: Jobs) -> int:
    """Evaluate as each composed job asks, and return the worst exit code; one's mistake is told."""
    return max((_told(config, words) for config, words in jobs), default=FAILED)


def _told(config: Mapping[str, Any], words: Sequence[str]) -> int:
    try:
        return evaluate(**config, overrides=words)
    except UserError as error:
        return report(error)


def _finished(
    root: Path, name: str | None, arm: str | None, runs: Sequence[str] | None
) -> tuple[list[Tested], bool]:
    """Return finished runs, by folder or by a search under ``root``; say which were left out.

    Returns:
        The runs, and whether one of the others is damaged.

    Raises:
        UserError: if there is none.
    """
    wanted = f"{name or '*'}/{arm or '*'}"
    if runs:
        folders = [Path(run) for run in runs]
    else:
        folders = sorted(
            file.parent for file in root.glob(normalize("NFC", f"{wanted}/seed=*/run.json"))
        )
    found, left_out, damaged = [], [], False
    for folder in folders:
        try:
            run = read_run(folder)
            if run.done:
                found.append(_tested(run))
            else:
                left_out.append(f"left out, not finished: {folder}")
        except UserError as error:
            damaged = True
            left_out.append(f"error: left out: {error}")
    for line in left_out:
        say(line)
    if not found:
        where = ", ".join(runs) if runs else f"{root}/{wanted}"
        raise UserError(
            f"no finished run in {where}: train one with "
            "`python train.py data.cf_ratio=0.6 seed=107`, or name a checkpoint with weights=..."
        )
    return found, damaged


def _tested(run: Run) -> Tested:
    config = read_config(run.folder)
    model_node, data_node = (setting_node(config, name, run.folder) for name in ("model", "data"))
    try:
        model, data = build(model_node, trusted=False), build(data_node, trusted=False)
    except UserError as error:
        raise UserError(f"{run.folder}: {error}") from error
    checkpoint = str(run.folder / "checkpoint")
    return Tested(run.folder, run.arm, run.seed, model.at(checkpoint), data, run.experiment)


class _Opener:
    """Opens each source once, however many runs share it."""

    def __init__(self, shards: Path, cache: Path, image_roots: Sequence[Path] = ()) -> None:
        self.shards, self.cache, self.image_roots = shards, cache, image_roots
        self._open: dict[tuple[Any, ...], Index] = {}

    def open(self, name: str, data: DataSettings) -> Index:
        world = (data.world, data.seed) if is_world(name) else None
        if (name, world) not in self._open:
            self._open[name, world] = open_source(
                name, data.world, data.seed, self.shards, self.cache, self.image_roots
            )
        return self._open[name, world]

    def tested(self, name: str, data: DataSettings) -> Index:
        """Open what a benchmark is asked on, and say what was recognised."""
        index = self.open(name, data)
        say_source("test", name, index)
        return index

    def labels(self, name: str, data: DataSettings) -> Path:
        """Return a file of human labels, or what the oracle answers for a part of the world."""
        return label_file(name, data.world, data.seed, self.shards)

    def samples(self, data: DataSettings, count: int) -> list[CounterfactualSet]:
        """Return the first sets of a run's counterfactual source, if that is shards of ours."""
        from cfaug.data.storage.shards import CARD, read_sets

        name = data.counterfactual
        if name is None or not data.needed[1]:
            return []
        folder = Path(name)
        if is_world(name):
            folder = part_folder(data.world, data.seed, world_part(name), self.shards)
        return list(islice(read_sets(folder), count)) if (folder / CARD).exists() else []


def _context(one: Tested, opener: _Opener) -> EvaluationContext:
    from cfaug.bench.context import EvaluationContext

    data = one.data
    names = {name for name in (data.real, data.counterfactual) if name is not None}
    return EvaluationContext(
        open=lambda name: opener.tested(name, data),
        has_world=any(is_world(name) for name in names),
        held_out=lambda: _held_out(data, opener),
        labels=lambda name: opener.labels(name, data),
        training=lambda: _training(data, opener) if one.trained else (),
        trained_on=_trained_on(data) if one.trained else frozenset(),
        counterfactual_holdout=data.counterfactual_holdout,
        validation=lambda: _validation(data, opener),
    )


def _trained_on(data: DataSettings) -> frozenset[str]:
    """Return the sources whose rows the mixture may have taken."""
    names = (data.real, data.counterfactual)
    # At ratio 1 the real source is read for what it holds out only.
    taken = (data.needed[0] and data.cf_ratio != 1, data.needed[1])
    return frozenset(
        name for name, read in zip(names, taken, strict=True) if read and name is not None
    )


def _prepare_worlds(tested: Sequence[Tested], suite: Any, opener: _Opener) -> None:
    """Draw and scan the tests of several worlds on every core; asking then finds them on disk."""
    worlds = {(one.data.world, one.data.seed): one for one in tested if one.data.world}
    if len(worlds) > 1:
        # Forked before torch is imported, so a process costs next to nothing.
        with ProcessPoolExecutor(mp_context=get_context("fork")) as pool:
            list(pool.map(partial(_prepare, suite, opener), worlds.values()))


def _prepare(suite: Any, opener: _Opener, one: Tested) -> None:
    with suppress(UserError):  # it comes again, with the run's name, when the run is asked
        suite.open(_context(one, opener))


def _held_out(data: DataSettings, opener: _Opener) -> tuple[Index, np.ndarray] | None:
    """Return what the experiment held out, from its settings alone: no arm is planned for it."""
    from cfaug.data.planning.holdout import hold_out

    if not data.holdout:
        return None
    name = getattr(data, data.held_out_role)
    if name is None:
        raise UserError(
            f"data.holdout={data.holdout} is a share of data.real: give data.real=FOLDER, or a "
            "test set with benchmark=retrieval benchmark.data=FOLDER"
        )
    index = opener.open(name, data)
    return index, hold_out(index, data.holdout).rows


def _validation(data: DataSettings, opener: _Opener) -> tuple[Index, np.ndarray]:
    """Return what the run validated on: real rows, where it had any."""
    from cfaug.data.planning.records import COUNTERFACTUAL, REAL

    mixture = _mixture(data, opener)
    source = REAL if mixture.counts["real"] else COUNTERFACTUAL
    index = cast("Index", mixture.sources[source])
    return index, mixture.validation[mixture.validation[:, 0] == source, 1]


def _training(data: DataSettings, opener: _Opener) -> list[tuple[Index, np.ndarray]]:
    """Return the rows of each source that the run was trained on."""
    mixture = _mixture(data, opener)
    return [
        (cast("Index", index), mixture.train[mixture.train[:, 0] == source, 1])
        for source, index in enumerate(mixture.sources)
        if index is not None
    ]


def _mixture(data: DataSettings, opener: _Opener) -> Mixture:
    """Plan the run's mixture again."""
    return mix(data, open_data(data, lambda name: opener.open(name, data), opener.shards))
