"""The common entry of the commands: parse, compose and check everything, then run."""

from __future__ import annotations

import errno
import os
import re
import resource
import shlex
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cfaug.core.errors import (
    USERS_MISTAKE,
    UserError,
    choose_verbosity,
    command_of,
    printing_at,
    say,
    say_once,
)
from cfaug.core.fitting import Config, lists_of_numbers
from cfaug.core.processes import explain_missing, find_folder, interruptible, rank, wait_briefly
from cfaug.core.progress import preparing
from cfaug.core.safety.addresses import hide_keys, hide_words, scrub
from cfaug.settings.arguments import (
    FOLDER_FLAGS,
    PRESET,
    SHORT_NAMES,
    WITH_VALUE,
    CommandLine,
    key_of,
    own_settings,
    read,
)
from cfaug.settings.choices import default_choices
from cfaug.settings.compose import compose_jobs, resolve
from cfaug.settings.composition_errors import reason_of
from cfaug.settings.hydra_settings import refuse_settings_of_hydra
from cfaug.settings.settings_files import CONF, register_search_path, settings_of
from cfaug.settings.sweep_jobs import first_values, listed_keys
from cfaug.settings.usage import usage

Jobs = list[tuple[Config, list[str]]]

ENVIRONMENT = (
    errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS,
    errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP,
)  # fmt: skip
"""Errors of the disk that are not a fault of the program."""

SWEPT: ContextVar[frozenset[str]] = ContextVar("swept", default=frozenset())
"""The settings in which the jobs of a sweep differ that a plugin of Hydra's starts one by one."""

GOES_ON = "what is complete is kept, and the same command goes on from there"

DONE, FAILED, INTERRUPTED = 0, 1, 130

SWEEPER = "hydra/sweeper"
PLUGIN = re.compile(rf"\+?(hydra/launcher|{SWEEPER})=")
"""Words that leave the jobs of a sweep to a plugin of Hydra's."""


@dataclass(frozen=True)
class Script:
    """A command: its configuration, and the functions that check and run it.

    Attributes:
        name: the root configuration in ``conf``, ``train`` for ``train.py``.
        command: the function whose signature the top-level keys must fit.
        measure: returns the number that a finished job gives to a sweeper of Hydra's, ``None`` if
            its settings name none; ``None`` for a command without such numbers.
        examples: the head of ``--help``: the purpose of the script, and commands to start from.
    """

    name: str
    command: Callable[..., Any]
    run_jobs: Callable[[Jobs], int]
    examples: str
    measure: Callable[[Jobs], float | None] | None = None

    def compose(self, overrides: Sequence[str], *, multirun: bool, for_hydra: bool = False) -> Jobs:
        """Compose every job of a command line; see ``compose_jobs``."""
        return compose_jobs(
            self.name, hide_words(overrides), multirun=multirun, command=self.command,
            for_hydra=for_hydra,
        )  # fmt: skip


def launch(script: Script, argv: Sequence[str] | None = None) -> int:
    """Run a script's command line and return its exit code.

    Args:
        argv: arguments without the program; ``None`` takes the process's own.

    Returns:
        0 if it is done, now or already; 2 for a user's mistake; 130 if interrupted; 1 otherwise.
    """
    wait_briefly()
    say_once.cache_clear()
    try:
        with interruptible():
            words = hide_words(sys.argv[1:] if argv is None else argv)
            sys.argv[1:] = hide_words(sys.argv[1:])  # W&B records them
            # Composition has messages of its own, before the settings are known.
            quiet = any(word.lstrip("+-") == "quiet=true" for word in words)
            with printing_at(choose_verbosity(quiet, False)):
                return _launch(script, words)
    except Exception as error:
        return report(error)
    except KeyboardInterrupt as stop:
        _say_interrupted(stop)
        return INTERRUPTED


def choose_named(group: str, typed: Sequence[str]) -> list[str]:
    """Return a command line in which bare words name choices of a group; several are a sweep.

    >>> choose_named("table", ["wise_ft", "paths.runs=r"])
    ['table=wise_ft', 'paths.runs=r']
    >>> choose_named("table", ["--config-dir", "mine", "wise_ft", "edit_quality"])
    ['--multirun', 'table=wise_ft,edit_quality', '--config-dir', 'mine']
    """
    names: list[str] = []
    words: list[str] = []
    groups = default_choices(group)  # one of them beside --help asks for its settings
    for before, word in pairwise(["", *typed]):
        name = re.fullmatch(r"\w[\w,/-]*", word) and word not in groups
        if name and before not in {*FOLDER_FLAGS, *WITH_VALUE}:
            names += word.split(",")
        else:
            words.append(word)
    if names:
        words.insert(0, f"{group}={','.join(names)}")
    if len(names) > 1:
        words.insert(0, "--multirun")
    return words


def report_each(work: Callable[[Any], object], settings: Callable[..., Any], jobs: Jobs) -> int:
    """Do the work of each composed job, report errors, and return the worst exit code."""
    code = DONE if jobs else FAILED
    for config, words in jobs:
        try:
            work(settings(**config, overrides=words))
        except UserError as error:
            code = max(code, report(error))
    return code


def _say_interrupted(stop: KeyboardInterrupt) -> None:
    if rank() == 0:
        say(f"interrupted: {stop.args[0] if stop.args else GOES_ON}")


def _launch(script: Script, words: Sequence[str]) -> int:
    if {"--help", "-h"} & set(words):
        folder = own_settings(words)
        users = [] if folder is None else [settings_of(folder)]
        say(usage(script.name, script.examples, users, words, script.command), sys.stdout)
        return DONE
    if "--version" in words:
        say(version_lines(), sys.stdout)
        return DONE
    typed = {key_of(word.lstrip("-")) for word in words}
    names = SHORT_NAMES.get(script.name, {})
    short = {full: name for name, full in names.items() if name in typed and full not in typed}
    _TYPED.set(short)
    line = read(words, script.name, lists_of_numbers(script.command))
    refuse_settings_of_hydra(line.overrides)
    if line.hydra_flags:
        if {"--cfg", "-c"} & set(line.hydra_flags):  # a mistyped key is explained here too
            [(config, _)] = script.compose(line.overrides, multirun=False)
            # Hydra itself would print the preset as well.
            if set(line.hydra_flags) <= {"--cfg", "-c", "job", "--resolve"}:
                import yaml

                shown = {key: value for key, value in config.items() if key != PRESET}
                text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)
                say(text.rstrip("\n"), sys.stdout)
                return DONE
        return _show_by_hydra(script, line)
    plugins = dict(word.lstrip("+").split("=", 1) for word in line.overrides if PLUGIN.match(word))
    if plugins:
        # Every mistake is found here, before the first job is queued.
        mine = [
            word
            for word in line.overrides
            if not word.lstrip("+~").startswith("hydra") or word.startswith("hydra.searchpath=")
        ]
        if SWEEPER in plugins:
            jobs = script.compose(first_values(mine), multirun=False, for_hydra=True)
            _check_sweeper(script, line, plugins[SWEEPER], jobs[0][0])
        else:
            jobs = script.compose(mine, multirun=line.multirun, for_hydra=True)
        # Hydra itself needs the + of a setting that no file has.
        added = {word.partition("=")[0] for _, words in jobs for word in words}
        overrides = tuple(
            f"+{word}" if "+" + word.partition("=")[0] in added else word for word in line.overrides
        )
        # So does it the choice of a file that a setting made by itself.
        keys = {key_of(word) for word in line.overrides}
        chosen = {word for _, words in jobs for word in words if key_of(word) not in keys}
        return _through_hydra(script, replace(line, overrides=(*overrides, *sorted(chosen))))
    with preparing("reading the settings"):
        jobs = script.compose(line.overrides, multirun=line.multirun)
    return _run(script, jobs)


def _run(script: Script, jobs: Jobs) -> int:
    """Run the jobs of a command line, with as many messages as its first job asks for."""
    config = jobs[0][0] if jobs else {}
    with printing_at(choose_verbosity(config.get("quiet"), config.get("verbose"))):
        return script.run_jobs(jobs)


def report(error: Exception) -> int:
    """Print an error for the user, and return its exit code.

    A mistake of the user's is one message; CFAUG_TRACEBACK=1 shows where it was noticed.
    """
    message = explain(error)
    for full, short in _TYPED.get().items():
        message = message and re.sub(rf"(?<![\w./]){full}(?![\w./])", short, message)
    message = None if message is None else hide_keys(message)
    traced = isinstance(error, UserError) and os.environ.get("CFAUG_TRACEBACK") == "1"
    if message is None or traced:
        say(scrub("".join(traceback.format_exception(error)).rstrip()))
    if message is None:
        return FAILED
    collected = _REPORTED.get()
    if collected is not None:
        collected.append(message)
    say(f"error: {message}")
    return USERS_MISTAKE


LIMITS = {
    errno.EMFILE: "too many files are open at once: the limit of this shell is {files}, which "
    "`ulimit -n 65536` raises for the commands after it; fewer data.workers, a smaller parallel "
    "and larger shards open fewer",
    errno.ENFILE: "too many files are open on this machine: end other programs, or have its "
    "administrator raise fs.file-max",
    errno.EFBIG: "{file} is larger than files may be here: `ulimit -f unlimited` lifts the limit "
    "of this shell, and another file system (paths.runs, paths.shards, paths.cache) that of the "
    "disk",
}
"""{error of a limit that no file is to blame for: what to do}."""


def explain_limit(error: BaseException) -> str | None:
    """Return the message of a limit of the shell or the machine among an error's causes."""
    cause: BaseException | None = error
    while cause is not None:
        for number, message in LIMITS.items():
            reached = isinstance(cause, OSError) and cause.errno == number
            if reached or f"[Errno {number}] {os.strerror(number)}" in str(cause):
                file = getattr(cause, "filename", None) or "a file"
                limit = message.format(
                    file=file, files=resource.getrlimit(resource.RLIMIT_NOFILE)[0]
                )
                return f"{limit}. What was complete is kept: run the same command again"
        cause = cause.__cause__ or cause.__context__
    return None


def explain(error: Exception) -> str | None:
    """Return the message of an error that the user can mend; ``None`` for any other error.

    Args:
        error: a ``UserError``, a missing package of an extra, or an error of the disk.
    """
    limit = explain_limit(error)
    if limit is not None:
        return limit
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError) and error.errno in ENVIRONMENT:
        return (
            f"{error.strerror}: {error.filename or 'while writing'}. What was complete is "
            "kept; make room or choose another paths.runs or paths.shards, then run it again"
        )
    return explain_missing(error)


_TYPED: ContextVar[Mapping[str, str]] = ContextVar("typed", default=MappingProxyType({}))
"""{setting: the short name by which the command line has it}, which messages repeat."""
_REPORTED: ContextVar[list[str] | None] = ContextVar("reported", default=None)
"""Where ``report`` adds its messages while ``collect_reports`` is at work."""


@contextmanager
def collect_reports() -> Iterator[list[str]]:
    """Collect the messages that ``report`` prints meanwhile, for a caller in Python."""
    collected: list[str] = []
    token = _REPORTED.set(collected)
    try:
        yield collected
    finally:
        _REPORTED.reset(token)


def _check_sweeper(script: Script, line: CommandLine, name: str, config: Config) -> None:
    """Refuse a sweeper plugin that would get no number of its jobs, or the wrong end of it."""
    metric = config.get("optimized_metric")
    if script.measure is None:
        raise UserError(
            f"hydra/sweeper={name} optimises runs of train.py; in Python any number can be "
            "optimised, such as a result of cfaug.evaluate (docs/sweeps.md)"
        )
    if name == "basic":
        return
    if metric is None:
        raise UserError(
            f"hydra/sweeper={name} needs a number of each run: add optimized_metric=val/loss, or "
            "optimized_metric=val/recall@1 with trainer.val_metrics=[recall@1]"
        )
    script.command(**config).check()
    named = any(word.lstrip("+").startswith("hydra.sweeper.direction=") for word in line.overrides)
    if name == "optuna" and not named and not str(metric).endswith("loss"):
        raise UserError(
            f"hydra/sweeper=optuna looks for the lowest {metric}: add "
            "hydra.sweeper.direction=maximize (or minimize, if that is meant)"
        )
    if name == "optuna" and not (
        find_spec("hydra_plugins") and find_spec("hydra_plugins.hydra_optuna_sweeper")
    ):
        raise UserError("hydra/sweeper=optuna is missing: pip install 'cfaug[sweepers]'")


def _through_hydra(script: Script, line: CommandLine) -> int:
    """Let a launcher or sweeper plugin of Hydra's start each job of a sweep."""
    if not line.multirun:
        raise UserError(
            "hydra/launcher=... and hydra/sweeper=... start the jobs of sweeps: add --multirun (-m)"
        )

    slurm = any(word.endswith("hydra/launcher=submitit_slurm") for word in line.overrides)
    if slurm and shutil.which("sbatch") is None:
        raise UserError(
            "hydra/launcher=submitit_slurm needs Slurm, and there is no sbatch on this machine: "
            "submit from a login node of the cluster (sweeps/train.sbatch and "
            "sweeps/generate.sbatch need no plugin), or run the sweep here with "
            "hydra/launcher=submitit_local, or with parallel=2 and no launcher"
        )

    folders: list[Path] = []
    swept = listed_keys(line.overrides)

    def task(tree: Any) -> float | None:
        from hydra.core.hydra_config import HydraConfig

        overrides = list(HydraConfig.get().overrides.task)
        jobs = [(resolve(tree, script.command, overrides), overrides)]
        folders.append(Path(HydraConfig.get().sweep.dir))
        # A launcher may have a process of its own for each job.
        with interruptible(), _in_sweep(swept):
            try:
                code = _run(script, jobs)
                number = None if script.measure is None or code != DONE else script.measure(jobs)
            except KeyboardInterrupt as stop:
                if "SUBMITIT_FOLDER" in os.environ:  # whose process ends before anything says this
                    _say_interrupted(stop)
                raise
        if code != DONE:
            raise UserError(
                f"{command_of(script.name)} {shlex.join(overrides)} ended with exit code {code}; "
                "its messages are above, or in hydra.launcher.submitit_folder if a launcher "
                f"started it (by default {folders[-1]}/.submitit)"
            )
        return number

    from hydra.errors import HydraException

    try:
        code = _hydra_main(script, ["--multirun", *line.overrides], task)
    except ModuleNotFoundError as error:
        raise UserError(f"{error}: pip install 'cfaug[slurm]' or 'cfaug[sweepers]'") from error
    except HydraException as error:
        raise UserError(reason_of(error)) from error
    results = [folder / "optimization_results.yaml" for folder in folders[-1:]]
    for file in results if code == DONE else ():
        if file.is_file():  # a sweeper wrote it
            say(f"{file}:\n{file.read_text(encoding='utf-8').rstrip()}", sys.stdout)
    return code


@contextmanager
def _in_sweep(keys: frozenset[str]) -> Iterator[None]:
    """Tell the job of a launcher in what the jobs of its sweep differ.

    A launcher pickles the job, and the context variable cannot be pickled; this function can.
    """
    before = SWEPT.set(keys)
    try:
        yield
    finally:
        SWEPT.reset(before)


def version_lines() -> str:
    """Return the versions of cfaug and of the packages that decide a result, for ``--version``."""
    from cfaug import __version__
    from cfaug.run.run_folder import versions

    others = ", ".join(f"{name} {number}" for name, number in versions().items() if name != "cfaug")
    return f"cfaug {__version__}\n{others}"


def _hydra_main(script: Script, words: list[str], task: Callable[[Any], Any]) -> int:
    import hydra

    register_search_path()
    before = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = [f"{script.name}.py", *words]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        composed = hydra.main(
            config_path=str(find_folder(CONF).resolve()),
            config_name=script.name,
            version_base="1.3",
        )
        composed(task)()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else FAILED
    finally:
        sys.argv = before[0]
        if before[1] is None:
            del os.environ["HYDRA_FULL_ERROR"]
    return DONE


def _show_by_hydra(script: Script, line: CommandLine) -> int:
    """Let Hydra answer a flag of its own, such as --info."""

    def never_run(_: Any) -> None:
        flags = " ".join(line.hydra_flags)
        raise UserError(f"{flags} does not go with a run: type it with --cfg job, or leave it out")

    from hydra.errors import HydraException

    try:
        return _hydra_main(script, [*line.overrides, *line.hydra_flags], never_run)
    except (HydraException, ValueError) as error:
        raise UserError(f"{' '.join(line.hydra_flags)}: {reason_of(error)}") from error
