"""Folders that evaluators wrote, as the files of each task that all of them have."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cfaug.core.errors import UserError, name_some
from cfaug.data.sources.lists import LISTS
from cfaug.report.item_lists.evaluator_logs import SAMPLES_FILE, read_header
from cfaug.report.item_lists.item_tables import shorten_paths
from cfaug.report.item_lists.vlmevalkit import (
    TABLES,
    describe_judges,
    drop_predictions,
    judges_of,
    split_name,
    strip_models,
)

ITEM_FILES = (*LISTS, ".parquet", ".xlsx")
"""Extensions of lists of items."""
NOT_LISTS = re.compile(
    r"results([\W_].*)?|(.*_)?acc|config|run|card|leaks|metrics|summary|declared|near_duplicates-.*",
    re.IGNORECASE,
)
"""Names of files that hold numbers or settings, and no items; a task may be called card_game."""


@dataclass(frozen=True)
class TaskFiles:
    """The files of one task, one for each place, in the order of the places."""

    task: str
    files: Sequence[Path]


@dataclass(frozen=True)
class SharedTasks:
    """The tasks that all places have.

    Attributes:
        names: printed names of the places.
        lacking: {task that some place lacks: names of the places that have it}.
        unlike: {task that all places have, by other judges: a sentence on them}.
        notes: sentences on files that were left out, and on folders that may be of several models.
    """

    names: Sequence[str]
    tasks: Sequence[TaskFiles]
    lacking: Mapping[str, Sequence[str]]
    unlike: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class FoundLog:
    """A log or list of items in a folder.

    Attributes:
        date: digits of the moment it was written; empty if neither name nor content says so.
        maker: the model, or the folder that evaluators name after it; empty for a list.
        certain: whether the log itself names the model.
    """

    file: Path
    task: str
    date: str = ""
    maker: str = ""
    certain: bool = False


def find_tasks(places: Sequence[Path], *, newest: bool = False) -> SharedTasks:
    """Match the logs and lists of items of several places by their tasks.

    A place is a folder, searched with all folders in it, or one file. Files that stand alone are of
    one task whatever they are called.

    Args:
        newest: whether the newest of several logs of one task is taken; otherwise they are refused.
    """
    missing = [place for place in places if not place.exists()]
    if missing:
        raise UserError(f"compare: there is no file or folder {missing[0]}")
    stored = [_identify(place) for place in places]
    for number, place in enumerate(stored):
        if place in stored[:number]:
            raise UserError(f"compare: {places[number]} is named more than once: name it once")
    if len(places) < 2:
        raise UserError("compare takes two folders or files, or more: cfaug compare A B")
    names = shorten_paths([place.absolute() for place in places])
    files = [place.is_file() for place in places]
    if all(files):
        return SharedTasks(names, [TaskFiles("", list(places))], {})
    if any(files):
        raise UserError(
            f"compare: {places[files.index(True)]} is a file and {places[files.index(False)]} a "
            "folder: name files, or folders"
        )
    notes: list[str] = []
    folders, starts = strip_models([_tasks_of(place, notes, newest=newest) for place in places])
    notes += [
        f"{name}: the tables of VLMEvalKit begin with {start}, which is taken for the model's name."
        for name, start in zip(names, starts, strict=True)
        if start
    ]
    shared = _share_tasks(names, [drop_predictions(tasks) for tasks in folders])
    return replace(shared, notes=notes)


def _share_tasks(names: Sequence[str], by_place: Sequence[Mapping[str, Path]]) -> SharedTasks:
    """Return the tasks that all places have, and why others are left out.

    Args:
        names: printed names of the places.
        by_place: {task: its file} of each place.
    """
    shared = [task for task in by_place[0] if all(task in tasks for tasks in by_place[1:])]
    compared = [split_name(task, by_place[0][task])[0] for task in shared]
    judged = dict.fromkeys(split_name(task, file)[0] for task, file in by_place[0].items())
    unlike = {
        data: f"{describe_judges(data, names, by_place)}."
        for data in judged
        if data not in compared and all(judges_of(tasks, data) for tasks in by_place)
    }
    if not shared:
        if unlike:
            raise UserError(f"compare: {next(iter(unlike.values())).rstrip('.')}")
        listed = "; ".join(
            f"{name} has {name_some(sorted(tasks))}"
            for name, tasks in zip(names, by_place, strict=True)
        )
        remedy = ""
        if all(any(file.suffix in TABLES for file in tasks.values()) for tasks in by_place):
            remedy = (
                ". VLMEvalKit's tables begin with the model's name: call each folder by it, or "
                "name two files"
            )
        raise UserError(f"compare: the folders have no task in common: {listed}{remedy}")
    for task in shared:
        files_of_task = [tasks[task] for tasks in by_place]
        if len({_identify(file) for file in files_of_task}) < len(files_of_task):
            raise UserError(
                f"compare: {' and '.join(names)} have the same file of {task}, "
                f"{files_of_task[0]}: name a folder for each model"
            )
    every = {task: file for tasks in by_place for task, file in tasks.items()}
    lacking = {
        task: [name for name, tasks in zip(names, by_place, strict=True) if task in tasks]
        for task, file in every.items()
        if task not in shared and split_name(task, file)[0] not in {*unlike, *compared}
    }
    return SharedTasks(
        names,
        [
            # The judge is named only where several have judged one data set.
            TaskFiles(
                task if compared.count(data) > 1 else data, [tasks[task] for tasks in by_place]
            )
            for task, data in zip(shared, compared, strict=True)
        ],
        lacking,
        unlike,
    )


def _identify(path: Path) -> tuple[int, int]:
    """Return what is equal for two names of one file or folder: links, and links to its content."""
    about = path.stat()
    return about.st_dev, about.st_ino


def _tasks_of(folder: Path, notes: list[str], *, newest: bool) -> dict[str, Path]:
    """Return {task: its file} of a folder, in the order of their names; add to the notes."""
    named: dict[str, list[FoundLog]] = {}
    seen: set[tuple[int, int]] = set()
    numbers, broken = [], []
    for file in _list_files(folder, notes):
        # VLMEvalKit links each table of its last run into the folder of the model.
        if _identify(file) in seen:
            continue
        seen.add(_identify(file))
        try:
            log = _describe(file, folder)
        except UserError as error:
            broken.append(f"{file.name} is left out: {error}.")
            continue
        if log is not None:
            named.setdefault(log.task, []).append(log)
        elif file.suffix.lower() in ITEM_FILES:
            numbers.append(file.name)
    if not named and broken:
        raise UserError(f"{folder} has no log that is read: {broken[0]}")
    if not named:
        left = f"; by its name {name_some(numbers)} holds none" if numbers else ""
        raise UserError(
            f"{folder} has no log that is read: samples_*.jsonl (lm-evaluation-harness, with "
            "--log_samples), *_samples_*.jsonl (lmms-eval), *.eval or *.json (inspect_ai), or "
            "lists of items with a column of right and wrong (csv, tsv, jsonl, parquet, xlsx)"
            f"{left}"
        )
    chosen = {task: _choose(folder, task, logs, newest=newest) for task, logs in named.items()}
    made = [log for logs in named.values() for log in logs if log.maker]
    makers = sorted({log.maker for log in made})
    if len(makers) > 1 and all(log.certain for log in made):
        raise UserError(
            f"{folder} has logs of several models, {name_some(makers)}: name the folder of one"
        )
    if len(makers) > 1:
        broken.append(
            f"{folder} has logs in several folders, {name_some(makers)}: they count as one model."
        )
    notes += broken
    return {task: log.file for task, log in chosen.items()}


def _list_files(folder: Path, notes: list[str]) -> list[Path]:
    """Return the files in a folder and in all folders in it, but hidden ones, in one order."""

    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename} cannot be read: {error.strerror}") from error

    files = []
    for path, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        notes += [
            f"{name} in {path} is a link to a folder, which is not searched."
            for name in folders
            if Path(path, name).is_symlink()
        ]
        files += [Path(path, name) for name in names if not name.startswith(".")]
    return sorted(file for file in files if file.is_file())


def _choose(folder: Path, task: str, logs: Sequence[FoundLog], *, newest: bool) -> FoundLog:
    """Return the log of a task that is taken, or refuse to choose."""
    homes = dict.fromkeys(str(log.file.parent) for log in logs)
    if len(homes) > 1:
        raise UserError(
            f"{folder} has several logs of {task}, in {name_some([*homes])}: "
            "name the folder of one model, or one run"
        )
    listed = name_some([log.file.name for log in logs])
    if len(logs) > 1 and not newest:
        raise UserError(
            f"{folder} has several logs of {task}: {listed}. "
            "newest=true takes the last one; or name files in place of folders"
        )
    dates = sorted(log.date for log in logs)
    if len(logs) > 1 and (not dates[0] or dates[-1] == dates[-2]):
        raise UserError(
            f"{folder} has several logs of {task}, and no dates say which is the newest: {listed}: "
            "name files in place of folders"
        )
    return max(logs, key=lambda log: log.date)


def _describe(file: Path, folder: Path) -> FoundLog | None:
    """Return what a file is, if it is a log or a list of items."""
    if written := SAMPLES_FILE.fullmatch(file.name):
        task, date = written["task"], written["date"]
        if task is None:
            task, date = written["lmms_task"], written["lmms_date"]
        return FoundLog(file, task, re.sub(r"\D", "", date), file.resolve().parent.name)
    header = read_header(file)
    if header is not None:
        date = re.sub(r"\D", "", header.created)
        return FoundLog(file, header.task or file.stem, date, header.model, bool(header.model))
    if file.suffix.lower() not in ITEM_FILES or NOT_LISTS.fullmatch(file.stem):
        return None
    # VLMEvalKit names a table MODEL_DATASET.xlsx in a folder MODEL, or in one of its run there.
    task = file.stem
    for name in (folder.resolve().name, *file.relative_to(folder).parts[:-1]):
        task = task.removeprefix(f"{name}_")
    return FoundLog(file, task)
