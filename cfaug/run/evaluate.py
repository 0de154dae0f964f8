"""``evaluate.py``: test finished runs or any checkpoint on benchmarks, then compare the arms."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unicodedata import normalize

from cfaug.core.devices import choose_device
from cfaug.core.errors import USERS_MISTAKE, UserError
from cfaug.core.messages import say
from cfaug.core.protocols import NoModel
from cfaug.data.mixture.settings import DataSettings
from cfaug.evaluation.benchmark_protocols import ChecksData, HasPrimaryMetrics
from cfaug.evaluation.suite_loading import check_member, open_member
from cfaug.report.records import Run, experiment_folder, read_config, read_run, setting_node
from cfaug.run.build import build
from cfaug.run.checkpoints import (
    checkpoint,
    initial_checkpoints,
    no_model,
    refuse_contradictions,
)
from cfaug.run.evaluate_checkpoint import EvaluationOptions, EvaluationTarget, ask
from cfaug.run.evaluate_settings import EvaluateSettings
from cfaug.run.evaluation_data import DataOpener, describe_data, prepare_worlds
from cfaug.run.launch import DONE, FAILED, Jobs, report
from cfaug.run.publish import check_result_loggers
from cfaug.run.sources import permitted_roots
from cfaug.run.tested import CheckpointFacts, describe_learning
from cfaug.run.threads import use_threads
from cfaug.run.unread import refuse_unread_by_runs

NAMED = 6
"""Most finished evaluations that are named one by one; the others are counted."""


def evaluate(settings: EvaluateSettings) -> int:
    """Evaluate everything that is not evaluated yet, print results, and write tables and reports.

    With ``table=`` nothing is evaluated: the table is made from earlier results. With ``compare=``
    files of items are compared. With ``annotate=`` people instead of models are asked about the
    pairs of ``data.counterfactual``.

    Returns:
        An exit code.

    Raises:
        UserError: if there is nothing to evaluate. An error in one run or experiment is reported
            with its name, and the others continue.
    """
    use_threads(settings.threads)
    experiment, paths = settings.experiment, settings.paths
    if settings.table is not None:
        from cfaug.run.tables import write_table

        return write_table(settings.table, settings.root)
    if settings.compare is not None:
        from cfaug.run.compare_files import compare_files

        return compare_files(settings.compare, settings.compare_columns or {}, settings.root)
    if settings.annotate is not None:
        from cfaug.run.annotate import annotation

        return annotation(settings.annotate, settings.data, settings.seed, paths)
    settings.check()
    suite = build(settings.benchmark)
    check_member(suite)
    if settings.dry_run:
        return _check_data(suite, settings)
    finished: list[EvaluationTarget] = []
    damaged = False
    # A benchmark of texts alone is run once, and not for every run, unless runs are named.
    without = settings.asks_nothing and getattr(suite, "needs", None) is NoModel
    alone = settings.weights is not None or settings.asks_model or without
    if not alone:
        finished, damaged = _find_finished(settings.root, experiment, settings.arm, settings.runs)
        about = [
            CheckpointFacts(one.model.provides, True, *describe_learning(one.data))
            for one in finished
        ]
        refuse_unread_by_runs(settings.benchmark, settings.overrides, about)
    if settings.wise_ft is not None:
        return _ask_between(finished, suite, settings) or (USERS_MISTAKE if damaged else DONE)
    check_result_loggers([one.folder for one in finished])
    tested = [*finished, *find_checkpoints(settings, finished, without)]
    how = settings.asking
    kept = how.memory.folder if how.memory.limit else None
    opener = DataOpener(Path(paths["shards"]), Path(paths["cache"]), permitted_roots(paths), kept)
    prepare_worlds(tested, suite, opener)
    if settings.device != "auto":  # a missing device is reported once, not for every run
        choose_device(settings.device)
    code, asked = _ask_all(tested, suite, opener, how, settings.label_frequency)
    if alone:
        if settings.baseline is not None and code == DONE:
            from cfaug.run.compare_checkpoints import compare_checkpoints

            (one,) = tested
            compare_checkpoints(one, _baselines(settings), asked[experiment_folder(one.folder)])
        return code
    from cfaug.run.experiments import compare_all

    failed = compare_all(
        [one.folder for one in finished],
        asked,
        settings.baseline,
        opener.samples,
        settings.forgetting_threshold,
        None if settings.comparison is None else build(settings.comparison),
        every_benchmark=settings.tabulate == "all",
    )
    return max(code, failed, USERS_MISTAKE if damaged else DONE)


def _ask_between(
    finished: Sequence[EvaluationTarget], suite: Any, settings: EvaluateSettings
) -> int:
    """Evaluate runs with weights interpolated between their initial and their final ones.

    Returns:
        An exit code.

    Raises:
        UserError: for a mixing factor that is invalid, or if there is nothing to interpolate.
    """
    from cfaug.run.wise_ft import check_factors, interpolate_runs

    tested = interpolate_runs(finished, check_factors(settings.wise_ft))
    paths = settings.paths
    opener = DataOpener(Path(paths["shards"]), Path(paths["cache"]), permitted_roots(paths))
    prepare_worlds(tested, suite, opener)
    if settings.device != "auto":
        choose_device(settings.device)
    code, asked = _ask_all(tested, suite, opener, settings.asking, None)
    for folder in asked:
        say(f"table and curve: python evaluate.py table=wise_ft table.experiment={folder.name}")
    return code


def _check_data(suite: object, settings: EvaluateSettings) -> int:
    """Print the problems in a benchmark's data, without a model.

    Returns:
        An exit code: a user's mistake if something cannot be scored.

    Raises:
        UserError: if the benchmark has no check of its data, or the data cannot be read.
    """
    if not isinstance(suite, ChecksData):
        raise UserError(
            "dry_run=true checks the data of benchmark=vqa, and this benchmark has no such check"
        )
    paths = settings.paths
    opener = DataOpener(Path(paths["shards"]), Path(paths["cache"]), permitted_roots(paths))
    context = describe_data(no_model(settings.data, settings.seed, settings.root), opener)
    for line in suite.describe_data(context):
        say(line, sys.stdout)
    problems = suite.find_problems(context)
    for one in problems:
        say(f"{'error' if one.fatal else 'warning'}: {one}", sys.stdout)
    if not problems:
        say("nothing is wrong", sys.stdout)
    return USERS_MISTAKE if any(one.fatal for one in problems) else DONE


def find_checkpoints(
    settings: EvaluateSettings, finished: Sequence[EvaluationTarget], without: bool
) -> list[EvaluationTarget]:
    """Return the checkpoints to evaluate besides finished runs.

    Args:
        settings: the settings of the command.
        finished: the finished runs; their initial weights may be evaluated as well.
        without: whether the benchmark needs no model.
    """
    if without:
        return [no_model(settings.data, settings.seed, settings.root)]
    if settings.weights is not None or settings.asks_model:
        data, seed, root = settings.data, settings.seed, settings.root
        if settings.weights is not None:
            refuse_contradictions(settings.weights, settings.model, settings.overrides)
        one = checkpoint(settings.weights, settings.model, data, seed, root)
        one.model.parameters()  # weights that are missing are noticed before a world is drawn
        return [one]
    return initial_checkpoints(finished, settings.root) if settings.evaluate_initial else []


def _baselines(settings: EvaluateSettings) -> list[EvaluationTarget]:
    """Return the checkpoints that ``weights`` is compared with, tested on the same world."""
    given = settings.baseline or ()
    return [
        checkpoint(name, settings.model, settings.data, settings.seed, settings.root)
        for name in ([given] if isinstance(given, str) else given)
    ]


def _ask_all(
    tested: Sequence[EvaluationTarget],
    suite: Any,
    opener: DataOpener,
    how: EvaluationOptions,
    label_frequency: str | None,
) -> tuple[int, dict[Path, dict[str, tuple[str, ...]]]]:
    """Evaluate each checkpoint on its benchmarks; report each error, a shared one once.

    Returns:
        An exit code, and {experiment: {benchmark of its runs: its primary metrics}}.
    """
    mistakes = Counter[str]()
    asked: dict[Path, dict[str, tuple[str, ...]]] = {}
    known = []
    for one in tested:
        try:
            benchmarks = open_member(suite, describe_data(one, opener))
            names = asked.setdefault(experiment_folder(one.folder), {})
            names |= {one.name: _primary_metrics(one) for one in benchmarks}
            if not ask(one, benchmarks, how):
                known.append(one.folder)
            if label_frequency and one.trained and one.data.read_pairs:
                from cfaug.coco_cf.label_frequency import write_label_frequencies

                pairs = opener.open(one.data.read_pairs, one.data)
                write_label_frequencies(one.folder, benchmarks, pairs, label_frequency)
        except UserError as error:
            mistakes[str(error)] += 1
            if mistakes[str(error)] == 1:
                report(UserError(f"{one.folder}: {error}"))
            else:
                say(f"error: {one.folder}: the same error")
    for folder in known[:NAMED]:
        say(f"already evaluated: {folder}", sys.stdout)
    if len(known) > NAMED:
        say(f"already evaluated: {len(known) - NAMED} more runs", sys.stdout)
    return (USERS_MISTAKE if mistakes else DONE), asked


def _primary_metrics(benchmark: object) -> tuple[str, ...]:
    """Return the metrics that comparisons are corrected for; () for all."""
    return benchmark.primary_metrics if isinstance(benchmark, HasPrimaryMetrics) else ()


def run_jobs(jobs: Jobs) -> int:
    """Run each composed job and return the worst exit code; errors are reported."""
    return max((_evaluate_or_report(config, words) for config, words in jobs), default=FAILED)


def _evaluate_or_report(config: Mapping[str, Any], words: Sequence[str]) -> int:
    try:
        return evaluate(EvaluateSettings(**config, overrides=words))
    except UserError as error:
        return report(error)


def _find_finished(
    root: Path, name: str | None, arm: str | None, runs: Sequence[str] | None
) -> tuple[list[EvaluationTarget], bool]:
    """Return finished runs, by folder or by a search under ``root``; print which are left out.

    Returns:
        The runs, and whether any other run is damaged.

    Raises:
        UserError: if there is no finished run.
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
                found.append(_read_tested(run))
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


def _read_tested(run: Run) -> EvaluationTarget:
    config = read_config(run.folder)
    model_node, data_node = (setting_node(config, name, run.folder) for name in ("model", "data"))
    try:
        model, data = build(model_node, trusted=False), build(data_node, trusted=False)
    except UserError as error:
        raise UserError(f"{run.folder}: {error}") from error
    if not isinstance(data, DataSettings):  # its training data have no images to ask about
        data = DataSettings(None, None, seed=data.seed)
    checkpoint = str(run.folder / "checkpoint")
    return EvaluationTarget(
        run.folder, run.arm, run.seed, model.at(checkpoint), data, run.experiment
    )
