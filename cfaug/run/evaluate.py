"""``evaluate.py``: ask finished runs or any checkpoint the benchmarks, then compare the arms."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.errors import UserError
from cfaug.report.results import RECORD, RESULTS, read_record, read_results
from cfaug.run.compare import compare
from cfaug.run.compose import build
from cfaug.run.launch import DONE, FAILED, Jobs, report
from cfaug.run.sources import WORLD, open_source, part_folder

if TYPE_CHECKING:
    import numpy as np

    from cfaug.bench.suites import Subject
    from cfaug.data.index import Index
    from cfaug.data.settings import DataSettings
    from cfaug.models.specs import ModelSpec
    from cfaug.protocols import Benchmark
    from cfaug.types import CounterfactualSet


@dataclass(frozen=True)
class Tested:
    """One checkpoint to test, where its rows go, and the data it may be asked about."""

    folder: Path
    arm: str
    seed: int
    model: ModelSpec
    data: DataSettings
    experiment: str


def evaluate(
    *,
    name: str | None,
    arm: str | None,
    runs: Sequence[str] | None,
    weights: str | None,
    seed: int,
    benchmark: Mapping[str, Any],
    baseline: str | Sequence[str] | None,
    model: Mapping[str, Any],
    data: Mapping[str, Any],
    device: str,
    paths: Mapping[str, Any],
    overrides: Sequence[str] = (),
) -> int:
    """Evaluate what is not evaluated yet, print the numbers, and write tables and reports.

    The keyword arguments are the top level of ``conf/evaluate.yaml``, described there.

    Raises:
        UserError: if there is nothing to evaluate, or the arms cannot be compared.
    """
    suite = build(benchmark)
    root = Path(paths["runs"])
    if weights is not None:
        tested = [_checkpoint(weights, model, data, seed, root)]
    else:
        tested = list(_finished(root, name, arm, runs))
    opener = _Opener(Path(paths["shards"]), Path(paths["cache"]))
    _prepare_worlds(tested, suite, opener)
    code = DONE
    for one in tested:
        try:
            _ask(one, suite, opener, device)
        except UserError as error:
            code = report(UserError(f"{one.folder}: {error}"))
    if weights is not None:
        return code
    for experiment in sorted({one.experiment for one in tested}):
        compare(root / experiment, baseline, opener.samples)
    return code


def run_jobs(jobs: Jobs) -> int:
    """Evaluate as each composed job asks, and return the worst exit code."""
    return max((evaluate(**config, overrides=words) for config, words in jobs), default=FAILED)


def _checkpoint(
    weights: str, model: Mapping[str, Any], data: Mapping[str, Any], seed: int, root: Path
) -> Tested:
    settings = build(data)
    if settings.seed is None:
        settings = replace(settings, seed=seed + 1)
    slug = re.sub(r"[^A-Za-z0-9_.-]+", "-", weights).strip("-.")
    return Tested(
        folder=root / "weights" / slug / f"seed={seed}",
        arm=slug,
        seed=seed,
        model=build(model).at(weights),
        data=settings,
        experiment="weights",
    )


def _finished(
    root: Path, name: str | None, arm: str | None, runs: Sequence[str] | None
) -> Iterator[Tested]:
    """Yield finished runs, by folder or by a search under ``root``; say which were left out."""
    if runs:
        folders = [Path(run) for run in runs]
    else:
        folders = sorted(
            file.parent for file in root.glob(f"{name or '*'}/{arm or '*'}/seed=*/run.json")
        )
    left_out = []
    found = 0
    for folder in folders:
        record = read_record(folder / RECORD)
        if record.get("state") != "done":
            left_out.append(str(folder))
            continue
        found += 1
        yield _run(folder, record)
    for path in left_out:
        print(f"left out, not finished: {path}", file=sys.stderr)
    if not found:
        where = runs or f"{root}/{name or '*'}/{arm or '*'}"
        raise UserError(
            f"no finished run in {where}: train one with "
            "`python train.py data.cf_ratio=0.6 seed=107`, or name a checkpoint with weights=..."
        )


def _run(folder: Path, record: Mapping[str, Any]) -> Tested:
    import yaml

    try:
        config = yaml.safe_load((folder / "config.yaml").read_text())
        model = build(config["model"], trusted=False).at(str(folder / "checkpoint"))
        data = build(config["data"], trusted=False)
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise UserError(f"{folder / 'config.yaml'} cannot be used: {error}") from error
    return Tested(
        folder, str(record["arm"]), int(record["seed"]), model, data, str(record["experiment"])
    )


class _Opener:
    """Opens each source once, however many runs share it."""

    def __init__(self, shards: Path, cache: Path) -> None:
        self.shards, self.cache = shards, cache
        self._open: dict[tuple[Any, ...], Index] = {}

    def open(self, name: str, data: DataSettings) -> Index:
        world = (data.world, data.seed) if name.startswith(WORLD) else None
        if (name, world) not in self._open:
            self._open[name, world] = open_source(
                name, data.world, data.seed, self.shards, self.cache
            )
        return self._open[name, world]

    def samples(self, data: DataSettings, count: int) -> list[CounterfactualSet]:
        """Return the first sets of a run's counterfactual source, if that is shards of ours."""
        from cfaug.data.shards import CARD, read_sets

        name = data.counterfactual
        if name is None or data.cf_ratio == 0:
            return []
        folder = Path(name)
        if name.startswith(WORLD):
            folder = part_folder(data.world, data.seed, name.removeprefix(WORLD), self.shards)
        return list(islice(read_sets(folder), count)) if (folder / CARD).exists() else []


def _subject(data: DataSettings, opener: _Opener) -> Subject:
    from cfaug.bench.suites import Subject

    names = (data.real, data.counterfactual)
    return Subject(
        open=lambda name: opener.open(name, data),
        has_world=any(name is not None and name.startswith(WORLD) for name in names),
        held_out=lambda: _held_out(data, opener),
    )


def _prepare_worlds(tested: Sequence[Tested], suite: Any, opener: _Opener) -> None:
    """Draw and scan the tests of several worlds on every core; asking then finds them on disk."""
    worlds = {(one.data.world, one.data.seed): one.data for one in tested if one.data.world}
    if len(worlds) > 1:
        # Forked before torch is imported, so a process costs next to nothing.
        with ProcessPoolExecutor(mp_context=get_context("fork")) as pool:
            list(pool.map(partial(_prepare, suite, opener), worlds.values()))


def _prepare(suite: Any, opener: _Opener, data: DataSettings) -> None:
    with suppress(UserError):  # it comes again, with the run's name, when the run is asked
        suite.benchmarks(_subject(data, opener))


def _held_out(data: DataSettings, opener: _Opener) -> tuple[Index, np.ndarray]:
    """Plan the run's mixture again and return what it validated on: real rows, where it had any."""
    from cfaug.data.mixture import COUNTERFACTUAL, REAL

    real = opener.open(data.real, data) if data.cf_ratio < 1 and data.real else None
    cf = (
        opener.open(data.counterfactual, data)
        if data.cf_ratio > 0 and data.counterfactual
        else None
    )
    mixture = data.mix(real, cf)
    source, index = (REAL, real) if real is not None else (COUNTERFACTUAL, cf)
    assert index is not None
    return index, mixture.validation[mixture.validation[:, 0] == source, 1]


def _ask(one: Tested, suite: Any, opener: _Opener, device: str) -> None:
    """Run the benchmarks that have no result for these weights yet, and append their rows."""
    from cfaug.report.results import Result, append_results

    benchmarks: list[Benchmark] = suite.benchmarks(_subject(one.data, opener))
    weights = one.model.weights_hash()
    file = one.folder / RESULTS
    known = {(r.benchmark, r.weights) for r in read_results(file)} if file.exists() else set()
    pending = [b for b in benchmarks if (b.name, weights) not in known]
    if not pending:
        print(f"already evaluated: {one.folder}")
        return
    encoder = _loaded(one.model, device)
    run = f"{one.experiment}/{one.arm}/seed={one.seed}"
    for benchmark in pending:
        found = benchmark.run(encoder)
        append_results(
            file,
            [
                Result(run, one.arm, one.seed, o.benchmark, o.metric, o.value, o.n, weights)
                for o in found
            ],
        )
        numbers = "  ".join(f"{o.metric} {o.value:.3f}" for o in found)
        print(f"{run}  {benchmark.name} (n={found[0].n}): {numbers}")


def _loaded(model: ModelSpec, device: str) -> Any:
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    encoder: Any = model.load()
    return encoder.to(device)
