"""The Python API: the commands as functions, with the same settings and the same results.

Settings have the names of the command line: ``fine_tune({"data.cf_ratio": 0.6}, seed=107)`` is
``cfaug train data.cf_ratio=0.6 seed=107``, in the same folder. Invalid input raises
``cfaug.UserError``. Calls from several threads wait for each other.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from cfaug.core.errors import (
    CALLED_BY,
    UserError,
    Verbosity,
    choose_verbosity,
    name_commands,
    name_some,
    printing_at,
    say_once,
    set_verbosity,
)
from cfaug.core.processes import interruptible, is_checkout
from cfaug.report.records import Run
from cfaug.report.records import read_run as read_run_folder
from cfaug.report.results import RECORD, RESULTS, Result, read_results
from cfaug.run.compare import Comparison
from cfaug.run.launch import DONE, Jobs, collect_reports, explain
from cfaug.settings.arguments import KEY, search_also, write_override
from cfaug.settings.hydra_settings import refuse_settings_of_hydra
from cfaug.settings.unread import OPEN_SOURCE, place_of, refuse_others

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.mixture.records import Mixture
    from cfaug.report.significance_rows import Table
    from cfaug.run.evaluate_settings import EvaluateSettings
    from cfaug.run.run_plan import TrainJob

Settings = Mapping[str, Any]
P = ParamSpec("P")
R = TypeVar("R")

if not is_checkout():  # an installed package has no scripts: messages name its command
    os.environ.setdefault(CALLED_BY, "cfaug")


_CALLING = threading.RLock()
"""The lock of a call, as Hydra, torch's random state and default precision are process-wide."""


def _public(function: Callable[P, R]) -> Callable[P, R]:
    """Run one call at a time, and raise errors that the user can mend as ``UserError``.

    Messages name the commands as they are typed in this installation. ``quiet=True`` of a call
    prints nothing; if it fails, what it would have printed comes first. A signal that announces the
    end of the process raises KeyboardInterrupt once the work has been saved.
    """

    @wraps(function)
    def call(*args: P.args, **more: P.kwargs) -> R:
        usual = printing_at(Verbosity.USUAL)  # until settings say otherwise
        with _CALLING, usual, _printing(quiet=bool(more.get("quiet"))), interruptible():
            say_once.cache_clear()
            try:
                return function(*args, **more)
            except UserError as error:
                error.args = (name_commands(str(error)),)
                raise
            except Exception as error:
                message = explain(error)
                if message is None:
                    raise
                raise UserError(name_commands(message)) from error

    return call


@contextmanager
def _printing(*, quiet: bool) -> Iterator[None]:
    """Keep back what is printed meanwhile, unless it ends in an error."""
    if not quiet:
        yield
        return
    printed = io.StringIO()
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            yield
    except BaseException:
        sys.stderr.write(printed.getvalue())
        raise


@_public
def open_source(
    name: str | Path,
    settings: Settings | None = None,
    /,
    *,
    config_dir: str | Path | None = None,
    quiet: bool = False,
    **more: Any,
) -> Index:
    """Open a source of images and captions: a folder of any form, or ``shapescapes:PART``.

    Args:
        name: the folder, the part of the embedded world, such as ``shapescapes:real``, or the
            addresses of remote shards, which are copied into ``paths.cache`` once.
        settings: settings of ``cfaug train`` that choose the world and the folders: ``seed``,
            ``data.seed``, ``data.world.*`` and ``paths.*``, and ``data.fields``, the names of the
            source's own columns, and ``data.reader``; ``None`` for the defaults.
        config_dir: a folder of configurations and classes of one's own, as ``--config-dir``.
        quiet: whether to print nothing, unless the call fails.
        more: further settings, whose names hold no dot.

    Returns:
        An index: its length is the number of captions, and by row it has ``text``, ``image``,
        ``key``, ``label`` and ``group_name``.

    Raises:
        UserError: for a folder that no reader recognises, or invalid settings.
    """
    from cfaug.data.sources.fields import reading_by, refuse_unused
    from cfaug.planning.build import build
    from cfaug.planning.sources import open_source as open_named
    from cfaug.planning.sources import permitted_roots

    _check_path(name, "the name of a source")
    [(config, words)] = _compose("train", settings, more, config_dir)
    refuse_others(words, OPEN_SOURCE, "cfaug.open_source")
    paths = config["paths"]
    data = build(config["data"]).with_seed(config["seed"])
    with reading_by(data.fields, data.reader):
        index = open_named(
            str(name), data.world, data.seed, Path(paths["shards"]), Path(paths["cache"]),
            permitted_roots(paths), fetch=True,
        )  # fmt: skip
    refuse_unused(data.fields, data.reader, {str(name): index.reading})
    return index


@_public
def generate_sets(
    settings: Settings | None = None,
    /,
    *,
    config_dir: str | Path | None = None,
    quiet: bool = False,
    **more: Any,
) -> Path | str:
    """Make counterfactual sets by a recipe, as ``cfaug generate`` does.

    Args:
        settings: settings of the command, such as ``{"paths.shards": "shards/try"}``; ``None`` for
            the defaults.
        config_dir: a folder of configurations and classes of one's own, as ``--config-dir``.
        quiet: whether to print nothing, unless the call fails.
        more: further settings, whose names hold no dot: ``recipe="substitution", limit=6``.

    Returns:
        The folder of shards, an absolute path, or its address in an object store: a source of
        examples for ``open_source`` and for training.

    Raises:
        UserError: for invalid settings, examples or folders, or shards that were not published.
    """
    from cfaug.core.stores import is_store, local_name
    from cfaug.run.generate import generate
    from cfaug.run.generate_settings import GenerateSettings

    [(config, words)] = _compose("generate", settings, more, config_dir)
    given = GenerateSettings(**config, overrides=words)
    _refuse_dry_run(given.dry_run)
    if generate(given) != DONE:
        raise UserError(f"{given.paths['shards']}: not every shard was published; generate again")
    shards = local_name(given.paths["shards"])
    return shards if is_store(shards) else Path(shards).absolute()


@_public
def mix(
    settings: Settings | None = None,
    /,
    *,
    config_dir: str | Path | None = None,
    quiet: bool = False,
    **more: Any,
) -> Mixture:
    """Draw the exact rows that a run is trained on and those held out, without training.

    Args:
        settings: settings of ``cfaug train``, such as ``{"data.cf_ratio": 0.6, "data.size":
            1000}``; ``None`` for the defaults.
        config_dir: a folder of configurations and classes of one's own, as ``--config-dir``.
        quiet: whether to print nothing, unless the call fails.
        more: further settings, whose names hold no dot: ``seed=107``.

    Returns:
        The mixture: ``train`` and ``validation`` are pairs (source, row of its index), ``sources``
        the real and the counterfactual index, and ``counts`` the number of rows of each kind.

    Raises:
        UserError: for invalid settings, or data from which the mixture cannot be drawn.
    """
    mixture: Mixture | None = getattr(_plan(settings, more, config_dir).task, "mixture", None)
    if mixture is None:
        raise UserError("this task is not trained on a mixture of real and counterfactual examples")
    return mixture


@_public
def fine_tune(
    settings: Settings | None = None,
    /,
    *,
    config_dir: str | Path | None = None,
    quiet: bool = False,
    **more: Any,
) -> Run:
    """Fine-tune a model as ``cfaug train`` does; a finished run is read, not trained again.

    Args:
        settings: settings of the command, such as ``{"data.cf_ratio": 0.6, "trainer.max_steps":
            100}``; ``None`` for the defaults.
        config_dir: a folder of configurations and classes of one's own, as ``--config-dir``.
        quiet: whether to print nothing, unless the call fails.
        more: further settings, whose names hold no dot: ``seed=107, name="mine"``.

    Returns:
        The finished run, with ``folder`` (absolute), ``record`` (run.json) and ``results()``.

    Raises:
        UserError: for invalid settings or data, or if the run failed.
    """
    from cfaug.run.train import run_on_engine, run_one

    job = _plan(settings, more, config_dir)
    _refuse_dry_run(job.settings.dry_run)
    code = run_one(job) if job.settings.engine is None else run_on_engine([job])[0][1]
    if code != DONE:
        raise UserError(f"{job.folder.path}: the run failed; its messages are above")
    return read_run_folder(job.folder.path.absolute())


@_public
def evaluate(
    model: Run | str | Path,
    settings: Settings | None = None,
    /,
    *,
    config_dir: str | Path | None = None,
    quiet: bool = False,
    **more: Any,
) -> list[Result]:
    """Evaluate a run or a checkpoint on benchmarks, as ``cfaug evaluate`` does.

    Args:
        model: a finished run, or a checkpoint: a folder, a Hub id or ``zoo:NAME``.
        settings: settings of the command, such as ``{"benchmark.data": "PHOTOS"}``; ``None`` for
            the defaults.
        config_dir: a folder of configurations and classes of one's own, as ``--config-dir``.
        quiet: whether to print nothing, unless the call fails.
        more: further settings, whose names hold no dot: ``benchmark="retrieval"``.

    Returns:
        All results of the model, including those of earlier calls.

    Raises:
        UserError: for invalid settings, or a benchmark that cannot be run.
    """
    from cfaug.run.evaluate import find_checkpoints

    if not isinstance(model, Run):
        _check_path(model, "a run or a checkpoint")
    named = {"runs": [str(model.folder)]} if isinstance(model, Run) else {"weights": str(model)}
    given = _evaluate(settings, more, config_dir, named)
    if isinstance(model, Run):
        return model.results()
    [tested] = find_checkpoints(given, (), without=False)
    return read_results(tested.folder / RESULTS)


@_public
def compare(
    experiment: str | Sequence[str],
    settings: Settings | None = None,
    /,
    *,
    config_dir: str | Path | None = None,
    quiet: bool = False,
    **more: Any,
) -> Comparison:
    """Evaluate an experiment's runs and test whether its arms differ, as ``cfaug evaluate`` does.

    The table with its tests is written into the experiment's folder: ``table.csv``, ``.md``,
    ``.tex`` and ``report.html``.

    Args:
        experiment: the experiment's name, as in ``cfaug train name=...``, or a list of several,
            whose arms are compared in one table.
        settings: settings of the command, such as ``{"paths.runs": "runs"}``; ``None`` for the
            defaults.
        config_dir: a folder of configurations and classes of one's own, as ``--config-dir``.
        quiet: whether to print nothing, unless the call fails.
        more: further settings, whose names hold no dot: ``baseline="real"``.

    Returns:
        The comparison: ``differences`` with their intervals and p, the ``family`` that is corrected
        together, ``results`` of all runs, and ``to_pandas()``.

    Raises:
        UserError: if there is nothing to compare, or settings are invalid.
    """
    names = list(experiment) if isinstance(experiment, list | tuple) else [experiment]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise UserError(f"{experiment!r} is invalid: name an experiment, or a list of several")
    named = {"name": names if len(names) > 1 else names[0]}
    tables: dict[Path, Table] = {}
    given = _evaluate(settings, more, config_dir, named, tables)
    folder = given.root / str(given.experiment)
    if folder not in tables:
        raise UserError(f"{folder}: nothing was compared; a table needs two arms on the same seeds")
    runs = sorted(folder.glob(f"*/seed=*/{RECORD}"))  # wise_ft leaves arms without runs
    results = [row for run in runs for row in read_run_folder(run.parent).results()]
    return Comparison(folder.absolute(), tables[folder], tuple(results))


@_public
def table(
    name: str,
    settings: Settings | None = None,
    /,
    *,
    config_dir: str | Path | None = None,
    quiet: bool = False,
    **more: Any,
) -> Path:
    """Make a table of a paper from finished evaluations, as ``cfaug table`` does.

    Args:
        name: the table's name, such as ``wise_ft``; ``cfaug table --help`` lists them.
        settings: settings of the command, such as ``{"table.experiment": "mine"}``; ``None`` for
            the defaults.
        config_dir: a folder of configurations and classes of one's own, as ``--config-dir``.
        quiet: whether to print nothing, unless the call fails.
        more: further settings, whose names hold no dot: ``declare=True``.

    Returns:
        The table's CSV file, an absolute path: a row for each number, with its interval; ``.md``,
        ``.tex`` and ``.json`` are beside it. With ``declare`` the file of what is declared.

    Raises:
        UserError: for invalid settings, or if what the table needs was not evaluated.
    """
    from cfaug.run.table import TableSettings, make_table

    [(config, words)] = _compose("table", settings, more, config_dir, {"table": name})
    written = make_table(TableSettings(**config, overrides=words))
    return next((file for file in written if file.suffix == ".csv"), written[0]).absolute()


@_public
def annotate(
    step: str,
    settings: Settings | None = None,
    /,
    *,
    config_dir: str | Path | None = None,
    quiet: bool = False,
    **more: Any,
) -> list[Path]:
    """Let people answer questions about pairs, or read their answers, as ``cfaug annotate`` does.

    Args:
        step: ``export``, ``taxonomy``, ``read`` or ``simulate``.
        settings: settings of the command, such as ``{"annotate.out": "page.html"}``; ``None`` for
            the defaults.
        config_dir: a folder of configurations and classes of one's own, as ``--config-dir``.
        quiet: whether to print nothing, unless the call fails.
        more: further settings, whose names hold no dot: ``pairs="shards/try"``.

    Returns:
        The files that were written, absolute paths: pages of questions, or answers and their page.

    Raises:
        UserError: for invalid settings, pairs or answers.
    """
    from cfaug.run.annotate import AnnotateSettings
    from cfaug.run.annotate import annotate as carry_out

    [(config, words)] = _compose("annotate", settings, more, config_dir, {"annotate": step})
    return [file.absolute() for file in carry_out(AnnotateSettings(**config, overrides=words))]


@_public
def read_run(folder: str | Path) -> Run:
    """Read a run's folder.

    Args:
        folder: the folder of the run, ``RUNS/EXPERIMENT/ARM/seed=N``.

    Returns:
        The run, with ``folder`` (absolute), ``record`` (run.json) and ``results()``.

    Raises:
        UserError: if the run's record is missing or damaged.
    """
    _check_path(folder, "the folder of a run")
    path = Path(folder)
    if not (path / RECORD).is_file():
        inner = sorted({*path.glob(f"seed=*/{RECORD}"), *path.glob(f"*/seed=*/{RECORD}")})
        there = f"; there are {name_some(file.parent for file in inner)}" if inner else ""
        raise UserError(f"{path} is not a run, RUNS/EXPERIMENT/ARM/seed=N{there}")
    # Absolute, so that it stays the same run if the program changes its working directory.
    return read_run_folder(path.absolute())


def _check_path(value: object, expected: str) -> None:
    """Refuse a value that no path can be: another type, or a text that file systems do not take."""
    usable = isinstance(value, str | Path) and bool(str(value))
    with suppress(UnicodeEncodeError):  # of lone surrogates
        if usable and b"\0" not in os.fsencode(str(value)):
            return
    raise UserError(f"{value!r} is invalid: it should be {expected}")


def _refuse_dry_run(dry_run: bool | str) -> None:
    if dry_run:
        raise UserError(
            "dry_run=true is for the command line; from Python, cfaug.open_source reads data and "
            "cfaug.mix draws a mixture, and neither trains"
        )


def _evaluate(
    settings: Settings | None,
    more: Settings,
    config_dir: str | Path | None,
    named: Settings,
    tables: dict[Path, Table] | None = None,
) -> EvaluateSettings:
    """Run ``cfaug evaluate`` and return its settings; collect the tables of experiments."""
    from cfaug.run import evaluate as command

    [(config, words)] = _compose("evaluate", settings, more, config_dir, named)
    given = command.EvaluateSettings(**config, overrides=words)
    _refuse_dry_run(given.dry_run)
    with collect_reports() as messages:
        code = command.evaluate(given, tables)
    if code != DONE:
        raise UserError("\n".join(messages) or "a benchmark failed; its messages are above")
    return given


READ_FOR_TRAINER = (
    "task", "data", "model", "optim", "tuning", "loss", "seed", "paths", "threads",
    "quiet", "verbose", "trainer.micro_batch_size", "trainer.val_metrics",
    "trainer.gradient_checkpointing",
)  # fmt: skip
"""The settings that ``cfaug.CounterfactualDataModule`` reads; the Trainer decides the others."""


@_public
def plan_for_trainer(
    settings: Settings | None, more: Settings, config_dir: str | Path | None
) -> TrainJob:
    """Plan a run of ``cfaug train`` whose length, device and checkpoints a Trainer decides."""
    from cfaug.planning.training import TrainSettings
    from cfaug.run.run_plan import plan_run, prepare_data

    jobs = _compose("train", settings, more, config_dir)
    [(config, words)] = jobs
    refuse_others(words, READ_FOR_TRAINER, "cfaug.CounterfactualDataModule")
    # Planning compares the warm-up with the preset's length, and "best" with the validation split.
    words = [word for word in words if place_of(word).partition(".")[0] != "optim"]
    config = {**config, "trainer": {**config["trainer"], "checkpoint": "last"}}
    run = TrainSettings(**config, overrides=words)
    prepare_data([run])
    return plan_run(run)


def _plan(settings: Settings | None, more: Settings, config_dir: str | Path | None) -> TrainJob:
    from cfaug.planning.training import TrainSettings
    from cfaug.run.run_plan import plan_run, prepare_data

    jobs = _compose("train", settings, more, config_dir)
    [(config, words)] = jobs
    for word in words:
        if place_of(word) in ("part", "parts"):
            raise UserError(f"{word} would have no effect: it divides a sweep; leave it out")
    run = TrainSettings(**config, overrides=words)
    prepare_data([run])
    return plan_run(run)


def _flatten(settings: Settings) -> dict[str, Any]:
    """Return settings by their names with dots, also those in dictionaries of settings."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if not isinstance(key, str):
            raise UserError(
                f"{key!r} is not the name of a setting: names are texts, such as "
                '{"data.cf_ratio": 0.6}'
            )
        for name, leaf in _leaves(key, value):
            if name in flat:
                raise UserError(f"duplicated setting: {name} is given twice")
            flat[name] = leaf
    return flat


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield settings by their names, and a dictionary whole if other texts are its keys."""
    if isinstance(value, Mapping) and value and all(KEY.fullmatch(str(key)) for key in value):
        for key, item in value.items():
            yield from _leaves(f"{name}.{key}", item)
    else:
        yield name, value


def _compose(
    name: str,
    settings: Settings | None,
    more: Settings,
    config_dir: str | Path | None,
    named: Settings | None = None,
) -> Jobs:
    if not (settings is None or isinstance(settings, Mapping)):
        raise UserError(
            f'{settings!r} is invalid: settings are a dictionary, such as {{"data.cf_ratio": 0.6}}'
        )
    given, more, named = map(_flatten, (settings or {}, more, named or {}))
    duplicated = sorted(map(str, given.keys() & more.keys()))
    if duplicated:
        raise UserError(f"duplicated setting: {', '.join(duplicated)} is given in both places")
    duplicated = sorted(named.keys() & {*given, *more})
    if duplicated:
        raise UserError(f"duplicated setting: the first argument already gives {duplicated[0]}")
    words = [write_override(key, value) for key, value in {**given, **more, **named}.items()]
    if config_dir is not None:
        _check_path(config_dir, "a folder of configurations")
        words.insert(0, search_also(str(config_dir), "config_dir"))
    refuse_settings_of_hydra(words)
    script = import_module(f"cfaug.run.{name}").SCRIPT
    jobs: Jobs = script.compose(words, multirun=False)
    [(config, _)] = jobs
    set_verbosity(choose_verbosity(config.get("quiet"), config.get("verbose")))
    return jobs
