"""Models' answers to the items of a benchmark under ``paths.runs``, for tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from cfaug.core.errors import UserError
from cfaug.report.items import Items, benchmarks_with_items, read_items

Models = Mapping[str, str | Sequence[str]]
"""{printed name: folders of checkpoints below ``paths.runs``, or patterns of them}."""

EVERYTHING = "*/*/seed=*"

Answers = TypeVar("Answers")


def read_answers(
    root: Path,
    benchmark: str,
    models: Models | None,
    wrap: Callable[[str, Items], Answers],
    setting: str = "table.benchmark",
) -> dict[str, list[tuple[Path, Answers]]]:
    """Return the answers of each model, one per checkpoint.

    Args:
        root: the folder of all runs.
        benchmark: the benchmark's name, or the end of it.
        models: the models to read; ``None`` reads every checkpoint with answers, each as a model.
        wrap: a function that makes answers from a model's printed name and its items.
        setting: the setting that names the benchmark, for messages.

    Raises:
        UserError: if a folder has answers to several benchmarks with that suffix, or they cannot be
            read.
    """
    if models is None:
        folders = {folder: None for folder in sorted(root.glob(EVERYTHING)) if folder.is_dir()}
        named = {_name(folder, list(folders)): [folder] for folder in folders}
    else:
        named = {
            name: [f for one in ([own] if isinstance(own, str) else own)
                   for f in _folders(root, one)]
            for name, own in models.items()
        }  # fmt: skip
    found: dict[str, list[tuple[Path, Answers]]] = {}
    for name, own in named.items():
        for folder in own:
            items = _read(folder, benchmark, setting)
            if items is not None:
                found.setdefault(name, []).append((folder, wrap(name, items)))
    return found


def _folders(root: Path, pattern: str) -> list[Path]:
    """Return the folders of an arm's seeds, or the matches of a pattern that ends with a seed."""
    own = pattern if Path(pattern).name.startswith("seed=") else f"{pattern}/seed=*"
    return sorted(folder for folder in root.glob(own) if folder.is_dir())


def _name(folder: Path, among: Sequence[Path]) -> str:
    """Return a checkpoint's arm, with its experiment or seed if others share the arm."""
    arm, experiment = folder.parent.name, folder.parent.parent.name
    same = [one for one in among if one.parent.name == arm and one != folder]
    if not same:
        return arm
    if any(one.parent.parent.name != experiment for one in same):
        return f"{experiment}/{arm}, {folder.name}"
    return f"{arm}, {folder.name}"


def _read(folder: Path, benchmark: str, setting: str) -> Items | None:
    asked = [one for one in benchmarks_with_items(folder) if one.endswith(benchmark)]
    if benchmark in asked:  # a full name is not a suffix of another
        asked = [benchmark]
    if len(asked) > 1:
        raise UserError(
            f"{folder} has answers to {', '.join(asked)}: name one, as in {setting}={asked[0]}"
        )
    return read_items(folder, asked[0]) if asked else None
