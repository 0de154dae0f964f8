"""Fine-tune a vision-language model on an exact mixture of real and counterfactual examples.

python train.py data.cf_ratio=0.6 seed=107
python train.py data.cf_ratio=0.6 dry_run=true
python train.py data=folder data.real=FOLDER data.counterfactual=FOLDER data.cf_ratio=0.6
python train.py --multirun data.cf_ratio=0,0.3,0.6 seed=107,108,109
python train.py --multirun sweep=sweeps/ratio_curve.yaml
python train.py --multirun sweep=sweeps/ratio_curve.yaml share_image_cache=true parallel=2
python train.py --multirun sweep=sweeps/ratio_curve.yaml dry_run=true   # the state of each run
"""

from __future__ import annotations

import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from cfaug.core.atomic_files import write_file
from cfaug.core.errors import UserError, Verbosity, name_some, say, say_record
from cfaug.core.processes import (
    check_accelerator,
    check_logger,
    has_launcher,
    rank,
    speaks,
)
from cfaug.core.progress import watch
from cfaug.core.validation import check_part, write_value
from cfaug.planning.build import build
from cfaug.planning.sources import say_sources, shows_world
from cfaug.planning.training import TrainSettings
from cfaug.report.records import FAILED, INTERRUPTED, read_run, training_seconds
from cfaug.report.results import read_record
from cfaug.run import run_folder
from cfaug.run.arm_names import swept_keys
from cfaug.run.arm_sizes import equal_data, unequal_sizes
from cfaug.run.dry_run import check_parts, describe, measure_seconds, rehearse
from cfaug.run.identity import EXTENDED
from cfaug.run.launch import DONE, GOES_ON, SWEPT, Jobs, Script, launch, report
from cfaug.run.parallel import RayEngine, run_at_once, shared_pixels, start_ranks
from cfaug.run.run_folder import Verdict
from cfaug.run.run_plan import TrainJob, plan_run, prepare_data
from cfaug.run.used_examples import check_used, write_used
from cfaug.settings.arguments import flatten, key_of
from cfaug.settings.unread import refuse_or_note
from cfaug.train.mixture_task import ContrastiveTask, MixtureTask
from cfaug.train.settings import LoggerSettings

if TYPE_CHECKING:
    from cfaug.train.task import FitResult


ESTIMATE = ("estimate_s", "estimate_range_s", "estimate_from")


def run_jobs(jobs: Jobs) -> int:
    """Plan the jobs of this part, then run them, ``parallel`` at once; return the exit code."""
    every = [TrainSettings(**config, overrides=words) for config, words in jobs]
    part, parts = every[0].part, every[0].parts
    check_part(part, parts)
    swept = SWEPT.get() | swept_keys([job.overrides for job in every])
    sweep = every[part::parts]
    if not sweep:
        say("nothing to do: there are more parts than runs")
        return DONE
    settings = sweep[0]
    for kind in dict.fromkeys(str(job.logger.get("kind")) for job in sweep):
        check_logger(kind)
    prepare_data(sweep)
    planned = [
        plan_run(each, swept) for each in watch(sweep, "planning the sweep", len(sweep), "jobs")
    ]
    # Their data are known now: refuse what was typed and changes nothing in any job.
    refuse_or_note([(job.settings.overrides, job.unread()) for job in planned])
    if speaks():
        for note in dict.fromkeys(note for job in planned for note in job.notes):
            say(f"warning: {note}")
        for job in planned:
            say_sources(job.sources)
        for line in (*unequal_sizes(planned).values(), *equal_data(planned)):
            say(line)
    check_used(planned)
    if settings.dry_run or len(planned) > 1:
        rehearse(planned)
    if rank() == 0:
        for job in planned:
            write_used(job)
    if settings.dry_run:
        _say_plans(planned, settings.dry_run)
        return DONE
    _refuse_shared_folders(planned)
    processes, stops = min(settings.parallel, len(planned)), settings.on_error == "stop"
    if settings.engine is not None:
        results = run_on_engine(planned, stops)
    elif processes > 1:
        results = run_at_once(planned, run_and_report, processes, stop_on_error=stops)
    else:
        results = []
        spent: list[float] = []
        for number, job in enumerate(planned, 1):
            if len(planned) > 1:
                left = ""
                if spent:
                    left = f", {_hours(fmean(spent) * (len(planned) - number + 1))} left"
                say(f"[{number}/{len(planned)}{left}] {job.folder.path}")
            began, trains = time.monotonic(), job.folder.state() != "done"
            code = run_and_report(job)
            if trains:
                spent.append(time.monotonic() - began)
            results.append((job, code))
            if stops and code != DONE:
                break
    return _summarise(results, len(planned))


def _say_plans(jobs: Sequence[TrainJob], dry_run: bool | str) -> None:
    """Print what each job would do and how long it would take, then how many are done."""
    times: dict[str, dict[str, Any]] = {}  # of jobs that are as long, the first one is measured
    for job in jobs:
        measured = None
        if dry_run == "measure":
            task = job.task
            loss, batch = getattr(task, "loss", None), task.batch_size
            alike = (task.model, task.trainer, task.tuning, loss, batch)
            length = repr((*alike, task.steps, dict(task.counts)))
            if length not in times:
                seconds, spread, basis = measure_seconds(job)
                times[length] = {
                    "estimate_s": seconds, "estimate_range_s": list(spread), "estimate_from": basis,
                }  # fmt: skip
            measured = times[length]
        about = describe(job, measured)
        for_programs = ("sources", "config_hash", "order_hash", *ESTIMATE)
        if dry_run == "json":
            say_record(about, as_json=True)
            continue
        say_record(about, hidden=for_programs, as_json=False)
        seconds, basis = about["estimate_s"], about["estimate_from"]
        shown = _hours(seconds) if seconds else "none"
        if "estimate_range_s" in about:
            shown += ", {} to {}".format(*map(_hours, about["estimate_range_s"]))
        say(f"  {'estimate':16} {shown} ({basis})", sys.stdout)
    states = Counter(job.folder.state() for job in jobs)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    say(f"{len(jobs)} run{'s' * (len(jobs) > 1)}: {counts}")
    if dry_run != "json" and speaks():
        sizes = unequal_sizes(jobs)
        size = f"with data.size={min(sizes)} and " if sizes else ""
        say(f"next: the same command {size}without dry_run={write_value(dry_run)}")


def run_on_engine(
    jobs: Sequence[TrainJob], stop_on_error: bool = False
) -> list[tuple[TrainJob, int]]:
    """Run the jobs in the workers of their engine; return each with its exit code.

    Args:
        stop_on_error: whether a failure ends the jobs at work, which are not returned.
    """
    settings = jobs[0].settings.engine
    assert settings is not None
    engine: RayEngine = build(settings)
    codes: dict[Path, int] = {}
    with closing(engine.run(lambda: run_and_report, jobs, "the sweep", "runs")) as finished:
        for job, code in finished:
            codes[job.folder.path] = code
            if stop_on_error and code != DONE:
                break
    return [(job, codes[job.folder.path]) for job in jobs if job.folder.path in codes]


def _hours(seconds: float) -> str:
    """Return a time as a progress bar shows it.

    >>> _hours(3725.2)
    '1:02:05'
    """
    return str(timedelta(seconds=round(seconds)))


def _summarise(results: Sequence[tuple[TrainJob, int]], jobs: int) -> int:
    """List failed and refused runs with the commands that repeat them; return the exit code."""
    failed = [(job, code) for job, code in results if code != DONE]
    # A refused job did not change its folder.
    untouched = ("other", "at work", "unreadable")
    refused = [job for job, _ in failed if job.folder.state() in untouched]
    if speaks():
        for job, _ in failed:
            text = "refused, and left as it is" if job in refused else "failed"
            say(f"{text}: {job.folder.path}", level=Verbosity.QUIET)
    if failed and jobs > 1:
        ended = "failed or were refused" if refused else "failed"
        say(f"{len(failed)} of {jobs} runs {ended}; to repeat each by itself:")
        for job, _ in failed:
            say(f"  python train.py {shlex.join(_words(job))}")
    if len(results) < jobs:
        left = jobs - len(results)
        said = "1 run was" if left == 1 else f"{left} runs were"
        say(f"{said} not started (on_error=stop)")
    if failed:
        return failed[0][1]
    if speaks() and len(results) == jobs > 1:
        places = dict.fromkeys(str(job.folder.path.parents[1]) for job, _ in results)
        say(f"all {jobs} runs are done: {', '.join(places)}", sys.stdout)
    last = results[-1][0] if results else None
    if speaks() and last is not None and isinstance(last.task, MixtureTask):
        task, data, settings = last.task, last.config["data"], last.settings
        words = [f"name={settings.name}"] if settings.name != "main" else []
        places = {"runs": last.folder.path.parents[2], "shards": settings.paths["shards"]}
        words += [f"paths.{key}={value}" for key, value in places.items() if str(value) != key]
        tested = data.get("holdout") or shows_world(str(data["real"] or data["counterfactual"]))
        if isinstance(task, ContrastiveTask) and not tested:
            words += ["benchmark=retrieval", "benchmark.data=TEST_PHOTOS"]
        say(f"next: {shlex.join(['python', 'evaluate.py', *words])}")
    return DONE


def run_and_report(job: TrainJob) -> int:
    """Run one job; an error is reported and becomes its exit code."""
    try:
        return run_one(job)
    except Exception as error:
        return report(error)


def _refuse_shared_folders(jobs: Sequence[TrainJob]) -> None:
    """Refuse a sweep with two jobs that would write to one folder."""
    seen: dict[Path, TrainJob] = {}
    for job in jobs:
        other = seen.setdefault(job.folder.path, job)
        if other is job:
            continue
        first, second = (flatten(each.settings.config()) for each in (other, job))
        differing = sorted(key for key in {*first, *second} if first.get(key) != second.get(key))
        both = f"two jobs of this sweep would write to {job.folder.path}: they differ in "
        if other.folder.hash == job.folder.hash:
            raise UserError(
                f"{both}{name_some(differing)}, which does not change the result of a run: type "
                "one value"
            )
        typed = any(word.startswith("arm=") for word in _words(job))
        way = "leave out arm=..., or give each its own" if typed else "give each its own arm=NAME"
        raise UserError(f"{both}{name_some(differing)}: {way}")


def run_one(job: TrainJob) -> int:
    """Fine-tune or resume a run, or print that it is done.

    Under torchrun every rank decides the same from the same files; only rank 0 writes.
    """
    trainer, folder = job.task.trainer, job.folder
    if rank() == 0 and not job.is_mixed:
        other = job.find_other_settings()
        if other is not None:
            raise UserError(
                f"since this command began, {folder.path.parent} became the folder of an arm of "
                f"other settings ({other[1]} in {other[0]}): the same command finds another "
                "folder, and name=NAME keeps two sweeps apart"
            )
    if trainer.devices > 1 and not has_launcher():
        check_accelerator(trainer.accelerator)
        words = [word for word in _words(job) if key_of(word) != "arm"]
        named = f"arm='{folder.path.parent.name}'"  # its processes do not know the sweep
        return start_ranks("train", [*words, named], trainer.devices)
    if rank() > 0:
        verdict = folder.verdict(job.settings.overwrite)
        if verdict != "done":
            _fit(job, _attempts(job, verdict), None, None)
        return DONE
    folder.check_owned()
    if not folder.state().startswith("done"):
        check_parts(job.task, folder.path)  # the lock makes the folder
    with folder.lock():
        verdict = folder.verdict(job.settings.overwrite)
        if verdict != "done":
            check_accelerator(trainer.accelerator)
            return _recorded_fit(job, verdict)
        if folder.has_checkpoint:
            say(f"already done: {folder.path}", sys.stdout)
        else:
            say(
                f"done, but its checkpoint/ was removed: {folder.path}; overwrite=true trains it "
                "again",
                sys.stdout,
            )
        return DONE


def _words(job: TrainJob) -> list[str]:
    """Return the command line of this run alone, without the words of its sweep."""
    unused = {"part", "parts", "parallel", "on_error"}
    return [word for word in job.settings.overrides if key_of(word) not in unused]


def _attempts(job: TrainJob, verdict: Verdict) -> list[dict[str, Any]]:
    if verdict == "new":
        return []
    return list(read_record(job.folder.path / "run.json").get("attempts", []))


def _recorded_fit(job: TrainJob, verdict: Verdict) -> int:
    import yaml

    from cfaug.train.card import write_card

    attempts = _attempts(job, verdict)
    before = {} if verdict == "new" else job.folder.record()
    file = job.folder.path / "run.json"
    record = _first_record(job, attempts, before)
    began, begun = time.monotonic(), False

    def begin() -> None:
        """Begin the folder, once the model is loaded and its data are known to fit."""
        nonlocal begun
        begun = True
        if verdict == "new":
            job.folder.clear()
        elif job.folder.extends(before):
            job.folder.set_results_aside(before["steps"])
        job.folder.write_record(record)
        settings = yaml.safe_dump(job.config, sort_keys=False)
        write_file(job.folder.path / "config.yaml", settings.encode())
        if isinstance(job.task, MixtureTask):
            from cfaug.report.near_duplicates import TRAINING, write_near

            files = write_near(job.folder.path, TRAINING, job.task.mixture.near)
            if files:
                say(f"near-duplicates of the held-out test: {files[0]}, {files[1]}")

    def started(step: int) -> None:
        """Close the interrupted attempt, and open this one."""
        if attempts:
            attempts[-1]["end_step"] = step
        attempts.append({"start_step": step, "end_step": None, "seconds": None})
        if step:
            say(f"{job.folder.path} goes on from step {step} of {job.task.steps}")
        threads, first = run_folder.threads(), before.get("threads")
        if step and first not in (None, threads):
            say(
                f"warning: {job.folder.path} resumed with {threads} threads, and began with "
                f"{first}: the last bits may differ; threads={first} gives the same bytes"
            )
        record["threads"] = threads
        job.folder.write_record(record)
        job.task.log_examples(job.folder.path)

    if has_launcher():  # the other processes decide by the same files, as soon as they have theirs
        begin()
    try:
        result = _fit(job, attempts, started, None if begun else begin)
    except BaseException as error:
        state = INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED
        if begun and attempts:
            attempts[-1]["seconds"] = round(time.monotonic() - began, 2)
        if begun:
            with suppress(OSError):  # on a full disk it stays "running", which is resumed too
                job.folder.write_record({**record, "state": state})
        else:
            job.folder.leave()
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(_describe_saved(job.folder.path)) from None
        if begun and isinstance(error, FileNotFoundError) and not file.exists():
            raise UserError(
                f"{job.folder.path} was removed while the run was at work, and the run with it; "
                "the same command starts it again"
            ) from error
        raise
    wall_s = round(time.monotonic() - began, 2)
    attempts[-1] |= {"end_step": result.end_step, "seconds": wall_s}
    finished = {
        **record,
        "state": "done",
        "finished": run_folder.now(),
        "counts": {**job.task.counts, "seen": result.seen},
        "steps": result.end_step,
        "stopped_early": result.end_step < result.steps,
        "best": {"step": result.best_step, "val_loss": result.best_val_loss},
        "parameters": {"trained": result.trained, "total": result.parameters},
        **result.measured,
        "hardware": run_folder.hardware(),
        "threads": run_folder.threads(),
        "wall_s": wall_s,
        "peak_rss_mib": run_folder.peak_rss_mib(),
    }
    job.folder.write_record(finished)
    card = write_card(job.folder.path)
    if card is not None:
        say(f"{card} was edited, and is kept: remove it, and evaluate.py writes a new one")
    if isinstance(job.task.logger, LoggerSettings) and job.task.logger.kind == "wandb":
        from cfaug.train.wandb_runs import publish

        publish(job.task.logger, job.folder.path)  # one run, however often it was interrupted
    if not job.task.trainer.keep_last:
        (job.folder.path / "last.ckpt").unlink(missing_ok=True)
    total, whole = training_seconds(finished)
    took = f"{wall_s} s"
    if len(attempts) > 1:
        took += f"; {'' if whole else 'at least '}{total:.2f} s in {len(attempts)} attempts"
    say(f"done: {job.folder.path} ({result.end_step} steps, {took})", sys.stdout)
    return DONE


def _describe_saved(folder: Path) -> str:
    """Say where an interrupted run will resume."""
    last = folder / "last.ckpt"
    if not last.exists():
        return f"{folder}: nothing was saved yet, the same command starts again"
    try:
        from cfaug.train.checkpoint import read_checkpoint
    except ImportError:  # interrupted while torch was loaded, which can be done only once
        return f"{folder}: {GOES_ON}"
    step = read_checkpoint(last, mmap=True)["global_step"]
    return f"{folder} is saved at step {step}, and the same command goes on from there"


def _first_record(
    job: TrainJob, attempts: list[dict[str, Any]], before: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "state": "running",
        "started": before.get("started") or run_folder.now(),
        "finished": None,
        "experiment": job.settings.name,
        "arm": job.folder.path.parent.name,
        "config_hash": job.folder.hash,
        "seed": job.task.seed,
        "data_seed": job.task.data_seed,
        **job.task.record(),
        "counts": {**job.task.counts, "seen": 0},
        "steps": job.task.steps,
        "extended_from": list(job.folder.identity.get(EXTENDED, [])),
        "attempts": attempts,
        "versions": run_folder.versions(),
        "git": run_folder.git_revision(),
        "hardware": run_folder.hardware(),
        "threads": None,
        "wall_s": None,
        "peak_rss_mib": None,
        "sources": job.sources,
        "identity": dict(job.folder.identity),
        "by_seed": dict(job.by_seed),
        "notes": list(job.notes),
    }


def _fit(
    job: TrainJob,
    attempts: Sequence[Mapping[str, Any]],
    started: Callable[[int], None] | None,
    begin: Callable[[], None] | None,
) -> FitResult:
    from cfaug.train.task import fit

    settings = job.settings
    kept = shared_pixels(settings.share_image_cache, settings.image_cache_mib, settings.parallel)
    return fit(
        job.task, job.folder.path, attempt=len(attempts), begin=begin, started=started, kept=kept
    )


def measure(jobs: Jobs) -> float | None:
    """Return the ``optimized_metric`` of a job that is done; ``None`` if it names none."""
    [(config, words)] = jobs
    settings = TrainSettings(**config, overrides=words)
    if settings.optimized_metric is None:
        return None
    run = read_run(plan_run(settings, SWEPT.get()).folder.path)
    return run.metric(settings.optimized_metric)


SCRIPT = Script("train", TrainSettings, run_jobs, __doc__ or "", measure=measure)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return launch(SCRIPT, argv)
