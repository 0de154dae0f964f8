"""Evaluating one checkpoint on the benchmarks for which it has no result yet."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cfaug.core.annotations import Means
from cfaug.core.errors import UserError, Verbosity, name_some, say, verbosity
from cfaug.core.outputs import RECORD, begin_record, check_output
from cfaug.core.processes import choose_device
from cfaug.core.progress import preparing
from cfaug.core.protocols import NoModel
from cfaug.core.validation import Share, Weight, check, write_value
from cfaug.evaluation.adapting import adapt, loadable_as
from cfaug.evaluation.benchmark import (
    AlsoAccepts,
    HasPage,
    HasSummary,
    KeepsPages,
    KeepsRankings,
    LeakAware,
)
from cfaug.evaluation.failure_causes import name_causes
from cfaug.evaluation.failures import (
    CONTROLS,
    FAMILIES,
    FailureRule,
    Finder,
    HasFailureCells,
    ModelFailure,
    find_failures,
)
from cfaug.models.indistinct import DEFAULT_LIMIT, refuse_indistinct
from cfaug.models.lora import Ends, Factor, Interpolated
from cfaug.planning.build import build_untrusted
from cfaug.report.checkpoint_tables import interpolated_arm
from cfaug.report.comparison import describe_below_chance
from cfaug.report.items import (
    FOLDER,
    RANKINGS,
    Items,
    check_items,
    has_items,
    read_items,
    write_items,
)
from cfaug.report.near_duplicates import write_near
from cfaug.report.records import experiment_folder, read_config, read_run, setting_node, write_leaks
from cfaug.report.results import (
    RESULTS,
    EvaluationKey,
    Result,
    answered,
    append_results,
    read_results,
)
from cfaug.report.terminal import print_parts, results_parts

if TYPE_CHECKING:
    import numpy as np

    from cfaug.core.protocols import Benchmark
    from cfaug.core.types import Evaluation
    from cfaug.data.index import Index
    from cfaug.data.mixture.settings import DataSettings
    from cfaug.models.specs import ModelSpec
    from cfaug.report.document import Part


GIB = 2**30
KeepItems = Literal["new", "all"]
CacheSize = Annotated[Weight, Means("GiB; 0 caches nothing")]
"""The size of the cache of embeddings and matching scores."""


@dataclass(frozen=True)
class EvaluationTarget:
    """One checkpoint to test, the folder of its results, and the data it may be tested on."""

    folder: Path
    arm: str
    seed: int
    model: ModelSpec
    data: DataSettings
    experiment: str
    trained: bool = True

    @property
    def run(self) -> str:
        """The name of the run in its result rows."""
        return f"{self.experiment}/{self.arm}/seed={self.seed}"


@dataclass(frozen=True)
class FeatureCache:
    """Cache of embeddings and matching scores: its folder and size in bytes; 0 keeps none."""

    folder: Path
    limit: int


def open_feature_cache(paths_cache: str | Path, gib: float) -> FeatureCache:
    """Return the cache of embeddings and scores below ``paths.cache``, of at most ``gib`` GiB."""
    check(gib, CacheSize, "feature_cache")
    return FeatureCache(Path(paths_cache).expanduser() / "features", int(gib * GIB))


def run_benchmarks(
    target: EvaluationTarget,
    benchmarks: Sequence[Benchmark],
    device: str,
    cached: FeatureCache,
    items: KeepItems = "new",
    max_indistinct: Share = DEFAULT_LIMIT,
    *,
    shown: Collection[str] | None = None,
) -> bool:
    """Run the benchmarks without a result for this model, and append their rows.

    A model is identified by its weights and the settings that change its answers, in every row's
    ``weights``. Items are written before rows, so a killed process leaves no row without its items.
    Items that were removed are written again, and so are rankings and pages.

    Args:
        items: ``new`` keeps the items of new evaluations; ``all`` also repeats evaluations from
            before items were kept.
        max_indistinct: the share of captions that the model cannot tell apart above which a
            benchmark is refused.
        shown: names of the benchmarks whose results are printed, of new and of earlier
            evaluations; ``None`` for all, as in a verbose command.

    Returns:
        Whether anything was evaluated or written.
    """
    _check_provided(target.model, benchmarks)
    for benchmark in benchmarks:  # also if it was evaluated before
        leaks = benchmark.leaks if isinstance(benchmark, LeakAware) else None
        if leaks is not None:
            if leaks.images:
                message = f"{leaks}; benchmark.without_leaks=true leaves them out"
                say(f"{target.run}  {benchmark.name}: {message}", level=Verbosity.QUIET)
            write_leaks(target.folder, benchmark.name, leaks)
            files = write_near(target.folder, benchmark.name, leaks.near)
            if leaks.near is not None:
                listed = "".join(f"; {file}" for file in files)
                say(f"{target.run}  {benchmark.name}: {leaks.near}{listed}", level=Verbosity.QUIET)
    weights = target.model.identity()
    known = answered(target.folder / RESULTS)
    keys = {b.name: (b.name, weights, b.data_hash) for b in benchmarks}
    expect_items = items == "all" or (target.folder / FOLDER).is_dir()

    def lacks_items(benchmark: Benchmark) -> bool:
        kinds = (FOLDER, RANKINGS) if isinstance(benchmark, KeepsRankings) else (FOLDER,)
        key = keys[benchmark.name]
        return not all(has_items(target.folder, *key, kept=kind) for kind in kinds)

    pending = [
        b for b in benchmarks if keys[b.name] not in known or (expect_items and lacks_items(b))
    ]
    unanswered = {b.name for b in pending}
    drawn_again = False  # pages that were removed, whose items exist
    for benchmark in benchmarks:
        if benchmark.name in unanswered or not isinstance(benchmark, KeepsPages):
            continue
        if not has_items(target.folder, *keys[benchmark.name]):
            continue
        if not all((target.folder / name).exists() for name in benchmark.page_files):
            say(f"wrote {benchmark.write_page(target.folder, target.arm)}", sys.stdout)
            drawn_again = True
    if shown is None or verbosity() == Verbosity.VERBOSE:
        shown = {benchmark.name for benchmark in benchmarks}
    for benchmark in benchmarks:
        if benchmark.name in shown and benchmark.name not in unanswered:
            _print_again(target, benchmark, keys[benchmark.name])
            if isinstance(benchmark, KeepsPages):
                pages = ", ".join(str(target.folder / name) for name in benchmark.page_files)
                say(f"pages of {benchmark.name}: {pages}", sys.stdout)
    if not pending:
        return drawn_again
    names = name_some((benchmark.name for benchmark in pending), 3)
    say(f"evaluating {target.run}: {names}")
    load = cache(lambda protocol: _load(target.model, protocol, device, cached))
    for benchmark in pending:
        protocol = loadable_as(benchmark, target.model.provides)
        assert protocol is not None  # checked above
        model = adapt(load(protocol), benchmark, protocol)
        with refuse_indistinct(benchmark.name, max_indistinct):
            evaluation = _check_found(benchmark, benchmark.run(model))
        rows = _write(target, benchmark, evaluation, weights, keys[benchmark.name] in known)
        if benchmark.name in shown:
            _print_results(target, benchmark, rows, evaluation)
    if shown:
        say(f"wrote {target.folder / RESULTS}", sys.stdout)
    return True


def _print_results(
    target: EvaluationTarget,
    benchmark: Benchmark,
    rows: Sequence[Result],
    evaluation: Evaluation | None,
) -> None:
    """Print a benchmark's results in its own words, or as a table.

    Args:
        evaluation: the outcomes with their items; ``None`` if the items are not known.
    """
    file = target.folder / RESULTS
    if evaluation is None or not isinstance(benchmark, HasSummary):
        print_parts(results_parts(rows, str(file)))
        return
    title = f"{benchmark.name} of {target.arm} ({len(rows)} numbers in {file})"
    below = describe_below_chance(rows)
    lines: list[Part | str] = [title, *benchmark.summarise(evaluation), *below, ""]
    print_parts(lines)


def _print_again(target: EvaluationTarget, benchmark: Benchmark, key: EvaluationKey) -> None:
    """Print the results of an earlier evaluation as it printed them."""
    from cfaug.core.types import Evaluation, Outcome

    rows = [row for row in read_results(target.folder / RESULTS) if row.benchmark == key[0]]
    items = read_items(target.folder, benchmark.name)
    evaluation = None
    if items is not None and (items.benchmark, items.weights, items.data) == key:
        outcomes = [
            Outcome(r.benchmark, r.metric, r.value, r.n, r.better, r.unit, r.by, r.chance)
            for r in rows
        ]
        evaluation = Evaluation(outcomes, items.columns)
    _print_results(target, benchmark, rows, evaluation)


OF_RUNS = f"*/seed=*/{RESULTS}"
"""The pattern of the results in an experiment's folder."""


def begin_results(place: Path, results: str, *, new: bool) -> None:
    """Begin the record of outputs of a folder of results, unless there is one.

    Args:
        results: the pattern of the results in it: where there are some already, an earlier version
            wrote them, and the other files in the folder count as ours.
        new: whether the record is begun also where there are none.
    """
    if not os.path.lexists(place / RECORD):
        earlier = next(place.glob(results), None) is not None
        if new:
            place.mkdir(parents=True, exist_ok=True)
        if new or earlier:
            with suppress(OSError):  # what is to be written there says that it cannot be
                begin_record(place, earlier=earlier)


def check_pages(target: EvaluationTarget, benchmarks: Sequence[Benchmark]) -> None:
    """Refuse a folder of results in which pages or items would replace files that are not ours."""
    begin_results(target.folder, RESULTS, new=False)
    for benchmark in benchmarks:
        check_items(target.folder, benchmark.name)
        for name in benchmark.page_files if isinstance(benchmark, KeepsPages) else ():
            for place in (target.folder, experiment_folder(target.folder)):
                check_output(place / name, name)


def find_model_failures(
    target: EvaluationTarget,
    benchmarks: Sequence[Benchmark],
    rule: FailureRule,
    training: Sequence[tuple[Index, np.ndarray]] = (),
    rare: float = 0.0,
) -> list[ModelFailure]:
    """Return the failures of an evaluated model, from its items, and say how many were measured.

    Args:
        training: the examples that it was trained on, as indices with rows; () if unknown.
        rare: the share of them below which the words after an edit are rare.
    """
    failures: list[ModelFailure] = []
    for benchmark in benchmarks:
        assert isinstance(benchmark, HasFailureCells)
        items = read_items(target.folder, benchmark.name)
        identity = (target.model.identity(), benchmark.data_hash)
        if items is None or (items.weights, items.data) != identity:
            raise UserError(
                f"{benchmark.name}: failures are found in its items, which were not kept: "
                "items=all evaluates again"
            )
        finder = Finder(target.run, target.model.weights_hash(), benchmark.name, identity[1])
        search = find_failures(benchmark.failure_cells(items), rule, benchmark.kind, finder)
        of_benchmark = search.failures
        if training:
            of_benchmark = name_causes(search.failures, training, rare)
        failures += of_benchmark
        if search.reason:
            say(
                f"{target.run}  {benchmark.name}: no cell was measured, so nothing is known of "
                f"failures: {search.reason}",
                sys.stdout,
            )
            continue
        left_out = []
        if search.small:
            left_out.append(f"{search.small} with fewer than {rule.least_items} photos were not")
        if search.uncontrolled:
            control = CONTROLS.get(benchmark.kind, "the same item without the edit")
            left_out.append(
                f"{search.uncontrolled:,} edited items were left out without a control, which is "
                f"{control}"
            )
        count = f"{len(search.failures)} failures among {search.measured} measured cells"
        kinds = Counter(failure.kind for failure in search.failures)
        if len(kinds) > 1:
            most = sorted(kinds, key=lambda kind: (-kinds[kind], kind))
            count += f" ({', '.join(f'{kind} {kinds[kind]}' for kind in most)})"
        if training and of_benchmark:
            causes = Counter(failure.cause or "unknown cause" for failure in of_benchmark)
            count += f", of {', '.join(f'{name} {causes[name]}' for name in sorted(causes))}"
        sentences = "; ".join([count, *left_out])
        say(f"{target.run}  {benchmark.name}: {sentences}", sys.stdout)
    return failures


def check_failure_cells(benchmarks: Sequence[Benchmark]) -> None:
    """Refuse benchmarks whose items have no edits."""
    for benchmark in benchmarks:
        if not isinstance(benchmark, HasFailureCells):
            raise UserError(
                f"failures=...: {benchmark.name} has no items with edits, in which failures are "
                f"found: choose benchmark={'|'.join(FAMILIES)}"
            )


def _write(
    target: EvaluationTarget,
    benchmark: Benchmark,
    evaluation: Evaluation,
    weights: str,
    known: bool,
) -> list[Result]:
    """Write items and pages, and rows unless they are known; return the rows."""
    file, outcomes = target.folder / RESULTS, evaluation.outcomes
    data = benchmark.data_hash
    key = (benchmark.name, weights, data)
    begin_results(target.folder, RESULTS, new=True)
    begin_results(experiment_folder(target.folder), OF_RUNS, new=True)
    if evaluation.rankings:
        write_items(target.folder, Items(*key, evaluation.rankings), RANKINGS)
    write_items(target.folder, Items(*key, evaluation.items))
    if isinstance(benchmark, HasPage):
        page = benchmark.write_page(target.folder, target.arm)
        if page:
            others: Sequence[str] = ()
            if isinstance(benchmark, KeepsPages):
                others = benchmark.page_files
            pages = dict.fromkeys([str(page), *(str(target.folder / name) for name in others)])
            say(f"wrote {', '.join(pages)}", sys.stdout)
    rows = [
        Result(
            target.run, target.arm, target.seed, o.benchmark, o.metric, o.value, o.n, weights,
            data, together=len(outcomes), better=o.better, unit=o.unit, by=dict(o.by),
            chance=o.chance,
        )
        for o in outcomes
    ]  # fmt: skip
    if not known:
        append_results(file, rows, once=True)
    return rows


def _check_found(benchmark: Benchmark, evaluation: object) -> Evaluation:
    """Return a benchmark's result after checking that it is an evaluation of this benchmark."""
    from cfaug.core.types import Evaluation

    if not isinstance(evaluation, Evaluation):
        raise UserError(
            f"{benchmark.name}: run should return a cfaug.core.types.Evaluation, not "
            f"{type(evaluation).__name__}"
        )
    for outcome in evaluation.outcomes:
        if outcome.benchmark != benchmark.name:
            raise UserError(
                f"{benchmark.name}: the outcome {outcome.metric!r} is of another benchmark, "
                f"{outcome.benchmark!r}"
            )
    for name, columns in (("item", evaluation.items), ("ranking", evaluation.rankings)):
        schema = getattr(benchmark, f"{name}_schema", None)
        if schema is not None and columns:
            schema.check(columns, f"{benchmark.name}: the {name}s")
    return evaluation


def _check_provided(model: ModelSpec, benchmarks: Sequence[Benchmark]) -> None:
    """Refuse benchmarks that need a protocol which the model does not provide."""
    needed = {}
    for benchmark in benchmarks:
        if loadable_as(benchmark, model.provides) is None:
            others = benchmark.also_accepts if isinstance(benchmark, AlsoAccepts) else ()
            names = " or ".join(need.__name__ for need in (benchmark.needs, *others))
            needed[benchmark.name] = f"{benchmark.name} needs {names}"
    if needed:
        provided = " and ".join(provide.__name__ for provide in model.provides)
        raise UserError(
            f"{model} provides {provided}, but {', '.join(needed.values())}: choose a model=... "
            f"that provides it, or leave it out of a suite with benchmark.skip=[{','.join(needed)}]"
        )


def _load(model: ModelSpec, protocol: type, device: str, cached: FeatureCache) -> Any:
    """Return the model as a protocol, with a cache of its answers if the protocol has one."""
    from cfaug.evaluation.cached_model import CACHED

    if protocol is NoModel:
        return NoModel()

    def place() -> Any:
        chosen = choose_device(device)
        with preparing(f"loading the model {getattr(model, 'weights', '')}".rstrip()):
            return model.load(protocol).to(chosen)

    if protocol not in CACHED or not cached.limit:
        return place()
    settings = f"{model.settings_hash()} {device}"
    return CACHED[protocol](place, model.weights_hash(), settings, cached.folder, cached.limit)


# ``evaluate.py wise_ft=[...]``: runs with weights between their initial and final ones.
#
# Rows go to ``<runs>/<experiment>/<arm>,wise_ft=<factor>/seed=<seed>/``. These are separate arms
# beside those of the experiment, and only ``cfaug table wise_ft`` tables them.


def check_factors(given: object) -> tuple[float, ...]:
    """Return the mixing factors of a setting: one number, or a list of different ones.

    >>> check_factors([0, 0.5, 1])
    (0.0, 0.5, 1.0)
    """
    listed: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
    check(listed, Sequence[Factor], "wise_ft")
    factors = tuple(map(float, listed))
    if not factors or len({f"{factor:g}" for factor in factors}) < len(factors):  # names of arms
        raise UserError(
            f"wise_ft={write_value(given)}: give one factor or more, each once, such as "
            "wise_ft=[0,0.25,0.5,0.75,1]"
        )
    return factors


def interpolate_runs(
    finished: Sequence[EvaluationTarget], factors: Sequence[float]
) -> list[EvaluationTarget]:
    """Return every run with the weights of every factor, the factors of a run one after the other.

    Runs without a step are left out, as their weights did not change.

    Args:
        factors: shares of the fine-tuned weights in [0, 1], from ``check_factors``.
    """
    targets, trained = [], 0
    for target in finished:
        if read_run(target.folder).record.get("steps") == 0:
            say(f"left out, not fine-tuned: {target.folder}")
            continue
        trained += 1
        node = setting_node(read_config(target.folder), "model", target.folder)
        try:
            # A run may be somebody else's: only local weights are used, nothing is downloaded.
            initial: ModelSpec = build_untrusted(node).on_this_machine()
            initial.weights_hash()
        except UserError as error:
            raise UserError(
                f"{target.folder}: wise_ft needs the weights that the run started from, which are "
                f"not here: {error}"
            ) from error
        ends = Ends(initial, target.model, str(target.folder))
        for factor in factors:
            arm = interpolated_arm(target.arm, factor)
            folder = experiment_folder(target.folder) / arm / target.folder.name
            model = Interpolated(ends, factor)
            targets.append(replace(target, folder=folder, arm=arm, model=model))
    if not trained:
        raise UserError("wise_ft interpolates fine-tuned runs, and none of these took a step")
    return targets
