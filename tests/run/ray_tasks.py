"""What workers of a Ray cluster do in the tests; imported there by its name."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from cfaug.core.errors import UserError

LOST = 2
"""The task whose worker is lost."""


def square(number: int) -> int:
    return number * number


def lose_worker(folder: Path, times: int):
    """Return a task that ends its worker the first times it does number LOST."""
    return partial(_square_or_die, folder, times)


def _square_or_die(folder: Path, times: int, number: int) -> int:
    deaths = len(list(folder.glob("death *")))
    if number == LOST and deaths < times:
        (folder / f"death {deaths}").touch()
        os._exit(9)
    return number * number


def refuse(folder: Path):
    """Return a task that counts its calls and is always refused."""
    return partial(_count_and_refuse, folder)


def _count_and_refuse(folder: Path, number: int) -> None:
    (folder / f"call {len(list(folder.glob('call *')))}").touch()
    raise UserError("the folder is full")


def environment():
    return lambda name: os.environ.get(name)


def shard_maker_that_dies(marker: Path, settings, stage):
    """Return what makes a shard; the first worker that keeps a batch of candidates ends there."""
    from cfaug.generate.candidate_scoring import Journal
    from cfaug.run import generate

    save = Journal.save

    def save_and_die(journal: Journal, *batch) -> None:
        save(journal, *batch)
        try:
            marker.touch(exist_ok=False)
        except FileExistsError:
            return
        os._exit(9)

    Journal.save = save_and_die  # type: ignore[method-assign]
    return generate._shard_maker(settings, stage)
