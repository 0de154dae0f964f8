"""Names of VLMEvalKit's tables: ``MODEL_DATASET.xlsx`` and ``MODEL_DATASET_JUDGE_result.xlsx``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

JUDGED = re.compile(r"(?P<data>.+?)_(?P<judge>exact_matching|[^_]+)_result")
"""The name of a table in which a judge wrote whether each answer is right."""
TABLES = (".xlsx", ".tsv")

Tasks = Mapping[str, Path]
"""The table or log of each task of a folder."""


def split_name(task: str, file: Path) -> tuple[str, str]:
    """Return the data set and the judge of a table; the judge is empty for any other file.

    >>> split_name("MMBench_gpt-4_result", Path("M_MMBench_gpt-4_result.xlsx"))
    ('MMBench', 'gpt-4')
    """
    judged = JUDGED.fullmatch(task) if file.suffix in TABLES else None
    return (judged["data"], judged["judge"]) if judged else (task, "")


def judges_of(tasks: Tasks, data: str) -> list[str]:
    """Return the judges of a data set's tables."""
    names = [split_name(task, file) for task, file in tasks.items()]
    return [judge for name, judge in names if name == data and judge]


def strip_models(folders: Sequence[Tasks]) -> tuple[list[Tasks], list[str]]:
    """Remove the models' names that the tables of folders begin with, if more tasks then agree.

    A name ends at any underscore up to which all tables of a folder begin alike, if they are of two
    data sets or more. The shortest ones are taken with which the folders share most tables.

    Returns:
        The tasks of each folder, and the removed beginnings, ``NAME_``, empty where none is.
    """
    choices = []
    for tasks in folders:
        # Tasks by the beginning that is removed: first nothing, then ever more up to an underscore.
        stripped = {"": _strip(tasks, "")}
        data = {split_name(task, file)[0] for task, file in tasks.items() if file.suffix in TABLES}
        words = min(data).split("_")[:-1] if len(data) > 1 else []
        for start in accumulate(f"{word}_" for word in words):
            named = _strip(tasks, start)
            if len(named) == len(tasks) and all(name.startswith(start) for name in data):
                stripped[start] = named
        choices.append(stripped)
    best: tuple[int, int] = (-1, 0)
    starts: list[str] = [""] * len(folders)
    for first, tasks in choices[0].items():
        shared = {task for task, file in tasks.items() if file.suffix in TABLES}
        tried = [first]
        for others in choices[1:]:
            # The first of equally good ones: they stand from the shortest to the longest.
            start = max(others, key=lambda name: len(shared & others[name].keys()))
            shared &= others[start].keys()
            tried.append(start)
        if (score := (len(shared), -len("".join(tried)))) > best:
            best, starts = score, tried
    return [named[start] for named, start in zip(choices, starts, strict=True)], starts


def _strip(tasks: Tasks, start: str) -> dict[str, Path]:
    return {task.removeprefix(start): file for task, file in tasks.items()}


def drop_predictions(tasks: Tasks) -> dict[str, Path]:
    """Return the tasks of a folder without tables of which a judged copy lies beside them."""
    return {task: file for task, file in tasks.items() if not judges_of(tasks, task)}


def describe_judges(data: str, names: Sequence[str], folders: Sequence[Tasks]) -> str:
    """Return why a data set is not compared whose answers no judge of all folders has judged."""
    judged = " and ".join(
        f"by {' and '.join(judges_of(tasks, data))} in {name}"
        for name, tasks in zip(names, folders, strict=True)
    )
    return (
        f"{data} is not compared: its answers are judged {judged}; judge them again with one "
        "(--judge of VLMEvalKit's run.py), or name the two files to compare them as they are"
    )
