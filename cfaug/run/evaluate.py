r"""Evaluate finished runs, or any checkpoint, and test whether the arms differ.

python evaluate.py
python evaluate.py name=demo baseline=real
python evaluate.py benchmark=retrieval benchmark.data=FOLDER
python evaluate.py weights=openai/clip-vit-base-patch32 model=clip_vit_b32 \
      benchmark=classification benchmark.data=FOLDER
"""

from __future__ import annotations

import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unicodedata import normalize

from cfaug.core.errors import USERS_MISTAKE, UserError, name_some, say
from cfaug.core.files import check_place, visible_files
from cfaug.core.outputs import check_output
from cfaug.core.processes import choose_device, use_threads
from cfaug.core.protocols import NoModel
from cfaug.data.mixture.near_duplicates import NearRule
from cfaug.data.mixture.settings import DataSettings
from cfaug.evaluation.benchmark import ChecksData, HasPrimaryMetrics, KeepsPages
from cfaug.evaluation.failures import ModelFailure, write_failures
from cfaug.evaluation.suites import check_member, open_member
from cfaug.planning.build import build, build_untrusted
from cfaug.planning.sources import permitted_roots
from cfaug.report.common_seeds import check_experiment
from cfaug.report.records import Run, experiment_folder, read_config, read_run, setting_node
from cfaug.report.results import RESULTS, EvaluationKey, join_seeds
from cfaug.report.significance_rows import Table
from cfaug.run.evaluate_checkpoint import (
    OF_RUNS,
    EvaluationTarget,
    begin_results,
    check_factors,
    check_failure_cells,
    check_pages,
    find_model_failures,
    interpolate_runs,
    run_benchmarks,
)
from cfaug.run.evaluate_settings import EvaluateSettings, describe_run
from cfaug.run.evaluation_data import (
    DataOpener,
    build_run_data,
    checkpoint,
    describe_data,
    initial_checkpoints,
    no_model,
    open_training,
    prepare_worlds,
    refuse_contradictions,
)
from cfaug.run.launch import DONE, FAILED, Jobs, Script, launch, report
from cfaug.run.run_folder import check_result_loggers
from cfaug.settings.read_if import MODEL
from cfaug.settings.unread import refuse_unread_by_runs

TABLES = ("table.csv", "table.md", "table.tex", "report.html", "seeds_and_items.csv")
"""The files of an experiment's tables; its figures are report-1.pdf and so on."""
NAMED = 6
"""Most finished evaluations that are named one by one; the others are counted."""


def evaluate(settings: EvaluateSettings, tables: dict[Path, Table] | None = None) -> int:
    """Evaluate everything that is not evaluated yet, print results, and write tables and reports.

    Args:
        tables: dictionary to which the table of every experiment's folder is added.

    Returns:
        An exit code.
    """
    use_threads(settings.threads)
    experiment = settings.experiment
    check_place(settings.paths["cache"], "paths.cache")
    settings.check()
    suite = build(settings.benchmark)
    check_member(suite)
    if settings.dry_run:
        return _check_data(suite, settings)
    # A benchmark of texts alone is run once, and not for every run, unless runs are named.
    without = settings.names_no_model and getattr(suite, "needs", None) is NoModel
    alone = settings.weights is not None or settings.names_only_model or without
    finished, damaged = ([], False) if alone else _choose_runs(settings, experiment)
    if not (alone or finished):
        return USERS_MISTAKE
    opener = _opener(settings)
    if settings.wise_ft is not None:
        between = interpolate_runs(finished, check_factors(settings.wise_ft))
        code, primary_metrics, _ = _evaluate_all(between, suite, opener, settings)
        runs = settings.paths["runs"]
        for folder in primary_metrics:
            words = ["cfaug", "table", "wise_ft", f"table.experiment={folder.name}"]
            words += [f"paths.runs={runs}"] if runs != "runs" else []
            say(f"next: {shlex.join(words)}")
        return code or (USERS_MISTAKE if damaged else DONE)
    check_result_loggers([target.folder for target in finished])
    tested = [*finished, *find_checkpoints(settings, finished, without)]
    code, primary_metrics, pages = _evaluate_all(tested, suite, opener, settings)
    if alone:
        if settings.baseline is not None and code == DONE:
            from cfaug.run.table import compare_checkpoints

            given = settings.baseline or ()
            data, seed, root = settings.data, settings.seed, settings.root  # of the same world
            others = [
                checkpoint(name, {**settings.model, "weights": name}, data, seed, root)
                for name in ([given] if isinstance(given, str) else given)
            ]
            [target] = tested
            compare_checkpoints(target, others, primary_metrics[experiment_folder(target.folder)])
        elif code == DONE and not without:
            [target] = tested
            compared = f"weights=OTHER baseline={target.arm} compares another checkpoint with it"
            opened = f"open {shlex.quote(str(pages[-1]))} in a browser" if pages else compared
            say(f"next: {opened}")
        return code
    from cfaug.run.compare import compare_all

    failed = compare_all(
        [target.folder for target in finished],
        primary_metrics,
        settings.baseline,
        opener.samples,
        settings.forgetting_threshold,
        settings.compared,
        every_benchmark=settings.tabulate == "all",
        tables=tables,
    )
    return max(code, failed, USERS_MISTAKE if damaged else DONE)


def _opener(settings: EvaluateSettings) -> DataOpener:
    paths, cache = settings.paths, settings.cache
    features = cache.folder if cache.limit and settings.wise_ft is None else None
    reader = settings.data.get("reader")
    return DataOpener(
        Path(paths["shards"]), Path(paths["cache"]), permitted_roots(paths), features,
        settings.data.get("fields"), None if reader is None else build(reader),
        NearRule.of(settings.data),
    )  # fmt: skip


def _check_data(suite: object, settings: EvaluateSettings) -> int:
    """Print the problems in a benchmark's data, without a model."""
    if not isinstance(suite, ChecksData):
        raise UserError(
            "dry_run=true checks the data of benchmark=vqa, and this benchmark has no such check"
        )
    tested = no_model(settings.data, settings.seed, settings.root)
    context = describe_data(tested, _opener(settings))
    for line in suite.describe_data(context):
        say(line, sys.stdout)
    problems = suite.find_problems(context)
    for problem in problems:
        say(f"{'error' if problem.fatal else 'warning'}: {problem}", sys.stdout)
    if not problems:
        say("nothing is wrong", sys.stdout)
    return USERS_MISTAKE if any(problem.fatal for problem in problems) else DONE


def find_checkpoints(
    settings: EvaluateSettings, finished: Sequence[EvaluationTarget], without: bool
) -> list[EvaluationTarget]:
    """Return the checkpoints to evaluate besides finished runs.

    Args:
        finished: the finished runs; their initial weights may be evaluated as well.
        without: whether the benchmark needs no model.
    """
    if without:
        return [no_model(settings.data, settings.seed, settings.root)]
    if settings.weights is not None or settings.names_only_model:
        data, seed, root = settings.data, settings.seed, settings.root
        if settings.weights is not None:
            refuse_contradictions(settings.model, settings.overrides)
        target = checkpoint(settings.weights, settings.model, data, seed, root)
        target.model.parameters()  # weights that are missing are noticed before a world is drawn
        return [target]
    return initial_checkpoints(finished, settings.root) if settings.evaluate_initial else []


def _evaluate_all(
    tested: Sequence[EvaluationTarget], suite: Any, opener: DataOpener, settings: EvaluateSettings
) -> tuple[int, dict[Path, dict[str, tuple[str, ...]]], list[Path]]:
    """Evaluate each checkpoint on its benchmarks; report each error, a shared one once.

    Returns:
        An exit code, {folder of an experiment: {benchmark: the metrics that comparisons are
        corrected for, () for all}}, and the benchmarks' pages.
    """
    _check_tables(tested, settings)
    prepare_worlds(tested, suite, opener)
    if settings.device not in ("auto", "cpu"):  # that it is missing is reported once, not per run
        choose_device(settings.device)  # imports torch
    label_frequency = settings.label_frequency if settings.wise_ft is None else None
    mistakes = Counter[str]()
    rule = None if settings.failures is None else build(settings.failure_rule)
    causes = build(settings.failure_causes)
    failures: list[ModelFailure] = []
    failed: dict[Path, UserError] = {}
    if settings.engine is not None:  # what workers have evaluated is known below
        evaluated = build(settings.engine).run(
            partial(_evaluator, settings), tested, "evaluating", "checkpoints"
        )
        failed = {target.folder: error for target, error in evaluated if error is not None}
    primary_metrics: dict[Path, dict[str, tuple[str, ...]]] = {}
    known: list[Path] = []
    pages: list[Path] = []
    measured: set[Path] = set()  # by this command, for the initial weights of several arms
    printed: set[EvaluationKey] = set()
    for target in tested:
        try:
            if target.folder in failed:
                raise failed[target.folder]
            context = describe_data(target, opener)
            benchmarks = open_member(suite, context)
            opener.check_names()
            if target.trained:
                opener.check_near(benchmarks)
            if rule is not None:
                check_failure_cells(benchmarks)
            names = primary_metrics.setdefault(experiment_folder(target.folder), {})
            names |= {
                benchmark.name: benchmark.primary_metrics
                if isinstance(benchmark, HasPrimaryMetrics)
                else ()
                for benchmark in benchmarks
            }
            check_pages(target, benchmarks)
            if _run_benchmarks(target, benchmarks, settings, printed):
                measured.add(target.folder)
            elif settings.engine is None and target.folder not in {*measured, *known}:
                known.append(target.folder)
            pages += [
                target.folder / name
                for benchmark in benchmarks
                if isinstance(benchmark, KeepsPages)
                for name in benchmark.page_files
                if name.endswith(".html") and (target.folder / name).exists()
            ]
            if rule is not None:
                training = open_training(target, context, opener, causes.training)
                failures += find_model_failures(target, benchmarks, rule, training, causes.rare)
            if label_frequency and target.trained and target.data.read_pairs:
                from cfaug.evaluation.label_frequency import write_label_frequencies

                pairs = opener.open(target.data.read_pairs, target.data)
                write_label_frequencies(target.folder, benchmarks, pairs, label_frequency)
        except UserError as error:
            mistakes[str(error)] += 1
            if mistakes[str(error)] == 1:
                report(UserError(f"{target.folder}: {error}"))
            else:
                say(f"error: {target.folder}: the same error")
    if settings.failures is not None and not mistakes:
        file = Path(settings.failures).expanduser()
        write_failures(file, failures)
        say(f"wrote {file}: {len(failures)} failure{'s' * (len(failures) != 1)}", sys.stdout)
    for folder in known[:NAMED]:
        say(f"already evaluated: {folder}", sys.stdout)
    if len(known) > NAMED:
        say(f"already evaluated: {len(known) - NAMED} more runs", sys.stdout)
    return (USERS_MISTAKE if mistakes else DONE), primary_metrics, pages


def _check_tables(tested: Sequence[EvaluationTarget], settings: EvaluateSettings) -> None:
    """Refuse folders in which a table would replace a file that is not ours, before hours of work.

    A checkpoint has tables beside its results, and an experiment in its folder.
    """
    experiments = {experiment_folder(target.folder): None for target in tested}
    for experiment in experiments:
        begin_results(experiment, OF_RUNS, new=False)
    places: Iterable[Path] = experiments
    if settings.weights is not None or settings.names_only_model:
        places = [target.folder for target in tested] if settings.baseline is not None else []
        for place in places:
            begin_results(place, RESULTS, new=False)
    for place in places:
        for name in (*TABLES, *(file.name for file in place.glob("report-*.pdf"))):
            check_output(place / name, name)


def _run_benchmarks(
    target: EvaluationTarget,
    benchmarks: Any,
    settings: EvaluateSettings,
    printed: set[EvaluationKey],
) -> bool:
    """Evaluate a checkpoint, and return whether that was still to be done.

    Results of runs are tabled; those of other weights are printed, once for weights and data.

    Args:
        printed: evaluations that the command has printed; those printed here are added.
    """
    keys: dict[str, EvaluationKey] = {}
    if not target.trained:
        weights = target.model.identity()
        keys = {b.name: (b.name, weights, b.data_hash) for b in benchmarks}
    shown = [name for name, key in keys.items() if key not in printed]
    keep, limit = settings.items, settings.max_indistinct
    done = run_benchmarks(
        target, benchmarks, settings.device, settings.cache, keep, limit, shown=shown
    )
    printed.update(keys.values())
    return done


def _evaluator(settings: EvaluateSettings) -> Callable[[EvaluationTarget], UserError | None]:
    """Return what evaluates a checkpoint in a worker, and returns the user's mistake if any."""
    use_threads(settings.threads)
    suite, opener = build(settings.benchmark), _opener(settings)
    printed: set[EvaluationKey] = set()

    def evaluate_target(target: EvaluationTarget) -> UserError | None:
        try:
            benchmarks = open_member(suite, describe_data(target, opener))
            opener.check_names()
            if target.trained:
                opener.check_near(benchmarks)
            _run_benchmarks(target, benchmarks, settings, printed)
        except UserError as error:
            return error
        return None

    return evaluate_target


def run_jobs(jobs: Jobs) -> int:
    """Run each composed job and return the worst exit code; errors are reported."""
    code = DONE if jobs else FAILED
    for config, words in jobs:
        try:
            code = max(code, evaluate(EvaluateSettings(**config, overrides=words)))
        except UserError as error:
            code = max(code, report(error))
    return code


def _choose_runs(
    settings: EvaluateSettings, name: str | None
) -> tuple[list[EvaluationTarget], bool]:
    """Return the finished runs to evaluate, and whether others cannot be read or compared."""
    finished, damaged = _find_finished(settings, name)
    about = [{**describe_run(target.data), MODEL: target.model.provides} for target in finished]
    refuse_unread_by_runs(settings.benchmark, settings.overrides, about)
    # With ``arm=`` or ``runs=`` others of an experiment may have been evaluated before, and the
    # table will tell; otherwise arms that share no seed are refused.
    refused: set[Path] = set()
    experiments: dict[Path, list[Run]] = {}
    if settings.arm is None and settings.runs is None and settings.wise_ft is None:
        for target in finished:
            runs = experiments.setdefault(experiment_folder(target.folder), [])
            runs.append(read_run(target.folder))
    for experiment, runs in experiments.items():
        try:
            said = check_experiment(runs, settings.compared, settings.baseline)
        except UserError as error:
            report(UserError(f"experiment {experiment.name}: {error}"))
            refused.add(experiment)
        else:
            if said:
                say(f"experiment {experiment.name}: {said}")
    chosen = [
        target
        for target in finished
        if experiment_folder(target.folder) not in refused
        and (settings.chosen_seeds is None or target.seed in settings.chosen_seeds)
    ]
    return chosen, damaged or bool(refused)


def _find_finished(
    settings: EvaluateSettings, name: str | None
) -> tuple[list[EvaluationTarget], bool]:
    """Return finished runs, by folder or by a search under ``root``; print which are left out."""
    root, arm, runs, seeds = settings.root, settings.arm, settings.runs, settings.chosen_seeds
    wanted = f"{name or '*'}/{arm or '*'}"
    if runs:
        folders, left_out = [Path(run) for run in runs], []
    else:
        pattern = normalize("NFC", f"{wanted}/seed=*/run.json").replace("[", "[[]")
        folders = sorted(file.parent for file in root.glob(pattern))
        # Runs that are not called by their seeds would not be found.
        pattern = normalize("NFC", f"{wanted}/*/run.json").replace("[", "[[]")
        left_out = [
            f"left out, as its name is not seed=N: {folder}; give it its name back, or name it "
            f"with runs=[{folder}]"
            for folder in visible_files(file.parent for file in root.glob(pattern))
            if not re.fullmatch(r"seed=-?\d+", folder.name)
        ]
    finished, damaged = [], False
    for folder in folders:
        try:
            run = read_run(folder)
            if run.done:
                finished.append(_read_tested(run, settings.data.get("reader")))
            else:
                left_out.append(f"left out, not finished: {folder}")
        except UserError as error:
            damaged = True
            left_out.append(f"error: left out: {error}")
    for line in left_out:
        say(line)
    if finished and seeds is not None:
        trained_with = {target.seed for target in finished}
        missing = seeds - trained_with
        if missing:
            raise UserError(
                f"seeds={join_seeds(seeds)}: no finished run has seed {join_seeds(missing)}; there "
                f"are {join_seeds(trained_with)}"
            )
    if not finished:
        where = ", ".join(runs) if runs else f"{root}/{wanted}"
        arms = {file.parents[1].relative_to(root) for file in root.glob("*/*/seed=*/run.json")}
        there = f" (there are {name_some(sorted(arms))})" if arms and not runs else ""
        raise UserError(
            f"no finished run in {where}{there}: train one with "
            "`python train.py data.cf_ratio=0.6 seed=107`, or name a checkpoint with weights=..."
        )
    return finished, damaged


def _read_tested(run: Run, reader: Mapping[str, Any] | None) -> EvaluationTarget:
    config = read_config(run.folder)
    try:
        model = build_untrusted(setting_node(config, "model", run.folder))
        data = build_run_data(config, run.folder, reader)
    except UserError as error:
        raise UserError(f"{run.folder}: {error}") from error
    if not isinstance(data, DataSettings):  # its training data have no images to ask about
        data = DataSettings(None, None, seed=data.seed)
    checkpoint = str(run.folder / "checkpoint")
    return EvaluationTarget(
        run.folder, run.arm, run.seed, model.at(checkpoint), data, run.experiment
    )


SCRIPT = Script("evaluate", EvaluateSettings, run_jobs, __doc__ or "")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    moved = translate(words)
    if moved is not None:
        return report(UserError(f"this is a command of its own now; type\n{moved}"))
    return launch(SCRIPT, argv)


def translate(words: Sequence[str]) -> str | None:
    """Return the command that ``evaluate.py compare=``, ``table=`` or ``annotate=`` has become.

    >>> translate(["compare=[A.csv,B.csv]", "compare_columns.by=type", "paths.runs=r"])
    'cfaug compare A.csv B.csv columns.by=type paths.runs=r'
    >>> translate(["--multirun", "table=wise_ft,edit_quality", "paths.runs=r"])
    'cfaug table wise_ft edit_quality paths.runs=r'
    >>> translate(["annotate=read", "data=folder", "data.counterfactual=F", "annotate.side=64"])
    'cfaug annotate read pairs=F annotate.side=64'
    >>> translate(["--config-dir", "tables", "name=table=1"])
    """
    commands = ("compare", "table", "annotate")
    typed = {word: re.match(r"[+-]*(compare(?=_columns)|\w+)[\w./]*=", word) for word in words}
    keys = {match[1] for match in typed.values() if match}
    command = next((command for command in commands if command in keys), None)
    if command is None:
        return None
    names: list[str] = []
    settings = []
    for word in words:
        key, _, value = word.lstrip("+-").partition("=")
        if key == command:
            names += [part.strip().strip("'\"") for part in value.strip("[]").split(",")]
        elif word not in ("-m", "--multirun", "data=folder", "data=shapescapes"):
            settings.append(word.removeprefix("compare_"))
    names = names or {"compare": ["A", "B"], "table": ["NAME"], "annotate": ["STEP"]}[command]
    if command == "annotate":
        renamed = {"data.counterfactual=": "pairs=", "data.world.": "world.", "data.seed=": "seed="}
        for before, after in renamed.items():
            settings = [re.sub(f"^{re.escape(before)}", after, word) for word in settings]
    return shlex.join(["cfaug", command, *names, *settings])
