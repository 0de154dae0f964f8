"""Folders that evaluators wrote, as the files of each task that all of them have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cfaug.core.errors import UserError, name_some
from cfaug.report.item_lists.evaluator_logs import SAMPLES_FILE, read_header

LISTS = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".xlsx")
NOT_LISTS = ("results", "config", "run", "card", "leaks", "metrics", "summary", "declared")
"""How the names of files begin that hold numbers or settings, and no items."""
EMBEDDED = ".cfaug.jsonl"


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
    """

    names: Sequence[str]
    tasks: Sequence[TaskFiles]
    lacking: Mapping[str, Sequence[str]]


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
    resolved = [place.resolve() for place in places]
    for number, place in enumerate(resolved):
        if place in resolved[:number]:
            raise UserError(f"compare: {places[number]} is named more than once: name it once")
    if len(places) < 2:
        raise UserError("compare takes two folders or files, or more: cfaug compare A B")
    names = shown_places(places)
    files = [place.is_file() for place in places]
    if all(files):
        return SharedTasks(names, [TaskFiles("", list(places))], {})
    if any(files):
        raise UserError(
            f"compare: {places[files.index(True)]} is a file and {places[files.index(False)]} a "
            "folder: name files, or folders"
        )
    found = [_tasks_of(place, newest=newest) for place in places]
    shared = [task for task in found[0] if all(task in tasks for tasks in found[1:])]
    if not shared:
        listed = "; ".join(
            f"{name} has {name_some(sorted(tasks))}"
            for name, tasks in zip(names, found, strict=True)
        )
        raise UserError(f"compare: the folders have no task in common: {listed}")
    every = dict.fromkeys(task for tasks in found for task in tasks)
    lacking = {
        task: [name for name, tasks in zip(names, found, strict=True) if task in tasks]
        for task in every
        if task not in shared
    }
    return SharedTasks(
        names, [TaskFiles(task, [tasks[task] for tasks in found]) for task in shared], lacking
    )


def shown_places(places: Sequence[Path]) -> list[str]:
    """Return the shortest ends of paths that tell them apart, without common suffixes of files.

    >>> shown_places([Path("logs/a"), Path("logs/b")]), shown_places([Path("x/run"), Path("y/run")])
    (['a', 'b'], ['x/run', 'y/run'])
    """
    paths = [Path(place.absolute()) for place in places]
    shortest = []
    for path in paths:
        depth, others = 1, [other.parts for other in paths if other != path]
        while depth < len(path.parts) and any(
            other[-depth:] == path.parts[-depth:] for other in others
        ):
            depth += 1
        shortest.append(Path(*path.parts[-depth:]).as_posix())
    return shortest


def _tasks_of(folder: Path, *, newest: bool) -> dict[str, Path]:
    """Return {task: its file} of a folder, in the order of their names."""
    named: dict[str, list[tuple[str, Path]]] = {}
    for file in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if file.is_file() and not hidden:
            for task, date in _describe(file, folder):
                named.setdefault(task, []).append((date, file))
    if not named:
        raise UserError(
            f"{folder} has no log that is read: samples_*.jsonl (lm-evaluation-harness, with "
            "--log_samples), *_samples_*.jsonl (lmms-eval), *.eval or *.json (inspect_ai), or "
            "lists of items with a column of right and wrong (csv, tsv, jsonl, parquet, xlsx)"
        )
    chosen = {}
    for task, dated in named.items():
        homes = dict.fromkeys(file.parent for _, file in dated)
        if len(homes) > 1:
            raise UserError(
                f"{folder} has several logs of {task}, in {name_some([str(h) for h in homes])}: "
                "name the folder of one model, or one run"
            )
        if len(dated) > 1 and not newest:
            raise UserError(
                f"{folder} has several logs of {task}: {name_some([f.name for _, f in dated])}. "
                "newest=true takes the last one; or name files in place of folders"
            )
        chosen[task] = max(dated)[1]
    return chosen


def _describe(file: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield task and date of a log or list of items; nothing for another file."""
    if written := SAMPLES_FILE.fullmatch(file.name):
        yield written["task"] or written["lmms_task"], written["date"] or written["lmms_date"]
        return
    header = read_header(file)
    if header is not None:
        yield header.task or file.stem, header.created
    elif file.suffix.lower() in LISTS and not file.stem.lower().startswith(NOT_LISTS):
        # VLMEvalKit names a table MODEL_DATASET.xlsx in a folder MODEL.
        stem = file.stem.removeprefix(f"{file.parent.name}_").removeprefix(f"{folder.name}_")
        yield stem, ""
