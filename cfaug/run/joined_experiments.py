"""Several experiments in one table: ``name=[a,b]`` links their arms into one folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from cfaug.core.errors import UserError
from cfaug.run.names import clean_name


def join_experiments(root: Path, names: Sequence[str]) -> str:
    """Link the arms of several experiments into one, and return its name.

    An arm is called ``EXPERIMENT-ARM`` there; its runs, results and checkpoints are those of the
    experiment itself. A repeated call links new arms and removes links to arms that are gone.

    Args:
        root: the folder of all runs, ``paths.runs``.
        names: names of the experiments.

    Raises:
        UserError: for a name that is duplicated or not an experiment's, arms that would share a
            name, or a folder of that name with other content.
    """
    if len(names) < 2 or len(set(names)) < len(names):
        raise UserError(f"name=[{','.join(names)}]: name two experiments or more, each once")
    if any("+" in name for name in names):  # a+b and c would share a folder with a and b+c
        raise UserError(f"name=[{','.join(names)}]: a name with + cannot be joined; rename it")
    wanted: dict[str, Path] = {}
    for name in names:
        arms = sorted({file.parents[1].name for file in (root / name).glob("*/seed=*/run.json")})
        if not arms:
            there = sorted({file.parents[2].name for file in root.glob("*/*/seed=*/run.json")})
            raise UserError(
                f"name=[{','.join(names)}]: {root / name} holds no run; there are: "
                f"{', '.join(there) or 'none'}"
            )
        for arm in arms:
            link = clean_name(f"{name}-{arm}")
            if link in wanted:
                raise UserError(f"two arms would be called {link}: rename the folder of one")
            wanted[link] = Path("..", name, arm)
    joined = clean_name("+".join(names))
    _link_all(root / joined, wanted)
    return joined


def _link_all(folder: Path, wanted: dict[str, Path]) -> None:
    """Create missing links of a folder and remove others.

    Raises:
        UserError: if the folder holds anything but links to arms.
    """
    folder.mkdir(exist_ok=True)
    for entry in sorted(folder.iterdir()):
        if entry.is_symlink():
            if wanted.get(entry.name) != Path(os.readlink(entry)):
                entry.unlink()
        elif entry.is_dir():
            raise UserError(
                f"{folder} holds {entry.name}, which is not a linked arm: name=[...] needs a "
                "folder of its own there; rename this one"
            )
    for name, target in wanted.items():
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(target)
