"""Kill a run again and again: ``python -m tests.generate.killing FOLDER KILLS SEED WHAT``.

This process imports what is slow and computes nothing; every child is forked from it, runs the same
job and is killed at a random instant, counted in calls and returns of functions, C's included. So
an instant can lie before or after any write, flush or rename, and no clock decides where. Every
other time only what happens in the modules that write is counted, where an instant matters most.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from types import FrameType
from typing import TypeVar

import numpy as np
import pyarrow.parquet  # noqa: F401
import torch

from cfaug.core.types import Example
from cfaug.editing.caption_grids import AttributeGrid, read_grid
from cfaug.generate import annotation
from cfaug.generate.job import Job, generate
from cfaug.generate.recipe import ShardSettings
from cfaug.generate.sampling import Draws
from cfaug.imaging.select import clip_selection
from tests.generate import tiny

T = TypeVar("T")

SHARDS = 6
WRITERS = ("shards.py", "folder.py", "captions.py", "tarfile.py")


@dataclass(frozen=True)
class CountLetters:
    """An annotator of texts."""

    name: str = "letters"
    reads: tuple[str, ...] = ("texts",)

    def identity(self) -> str:
        return self.name

    def describe(self) -> dict[str, str]:
        return {"letters": "counted"}

    def annotate(self, examples: Sequence[Example]) -> list[dict[str, int]]:
        return [{self.name: len(example.text)} for example in examples]


def job(folder: Path, what: str) -> Job:
    """Return the job that is killed.

    Args:
        what: ``pairs``; ``grids`` of twelve members, whose p is learnt from earlier candidates; or
            ``annotations``, of which every batch is a file.
    """
    if what == "annotations":
        annotation.SECONDS_AT_RISK = 0.0
        made = tiny.job(folder, captions=tiny.captions(4 * SHARDS), stage="captions")
        recipe = replace(made.recipe, annotators={"letters": CountLetters()})
        return replace(made, recipe=recipe, cache=folder.with_name(f"{folder.name} cache"))
    if what == "grids":
        examples = list(read_grid("shapescapes").examples())[: 4 * SHARDS]
        return tiny.job(
            folder, captions=examples, editor=AttributeGrid(),
            studio=tiny.studio(select=clip_selection(-1, None, None, aggregate="mean", keep=2)),
            draws=Draws(candidates=4, p_law="adaptive(2)"),
            shards=ShardSettings(sets_per_shard=4, batch=3),
        )  # fmt: skip
    return tiny.job(
        folder, captions=tiny.captions(4 * SHARDS), draws=Draws(candidates=8, sampling="tree(2)"),
        shards=ShardSettings(sets_per_shard=4, batch=2),
    )  # fmt: skip


def in_child(work: Callable[[], object]) -> int:
    """Fork, do the work, and return how the child ended: an exit code, or minus a signal."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            torch.set_num_threads(1)
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def count_events(work: Callable[[], T], fatal: int, only: tuple[str, ...] = ()) -> tuple[T, int]:
    """Do the work and return how many events it took; die at the event ``fatal``.

    Args:
        work: the function to run.
        fatal: the number of the event at which to die, from 1; -1 for none.
        only: the ends of the names of the files whose events count; empty for all.
    """
    events = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal events
        events += not only or frame.f_code.co_filename.endswith(only)
        if events == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(profile)
    try:
        done = work()
    finally:
        sys.setprofile(None)
    return done, events


def counted(work: Job, fatal: int, writing: bool, file: Path | None = None) -> None:
    """Generate; die at the event ``fatal``; write how many there were to ``file``."""
    _, events = count_events(lambda: generate(work), fatal, WRITERS if writing else ())
    if file is not None:
        file.write_text(str(events))


def between(folder: Path, what: str) -> bool:
    """Say whether something has been made and the last shard is not there."""
    begun = any(folder.glob(".work/*/*.batch")) or any(folder.glob("*.tar"))
    begun |= any(folder.with_name(f"{folder.name} cache").rglob("*.jsonl"))
    place = folder / "captions" if what == "annotations" else folder
    return begun and not (place / f"{SHARDS - 1:05d}.json").exists()


def main(root: Path, kills: int, seed: int, what: str) -> dict[str, object]:
    whole, cut, counts = root / "whole", root / "cut", root / "events"

    def measured(writing: bool) -> int:
        assert in_child(lambda: counted(job(whole, what), -1, writing, counts)) == 0
        return int(counts.read_text())

    events = {False: measured(False)}
    again = {writing: measured(writing) for writing in (False, True)}
    for folder in root.glob(f"{whole.name}*"):
        rmtree(folder)
    events[True] = measured(True)
    rng = np.random.default_rng(seed)
    killed, inside = 0, 0
    while killed < kills:
        writing = killed % 2 == 1
        # A kill's share of the work on average; some of it is lost.
        fatal = int(rng.integers(1, again[writing] + 2 * events[writing] // kills))
        code = in_child(lambda: counted(job(cut, what), fatal, writing))  # noqa: B023
        if code == 0:
            break
        assert code == -signal.SIGKILL
        killed += 1
        inside += between(cut, what)
    final = in_child(lambda: counted(job(cut, what), -1, False))
    return {"events": events, "again": again, "killed": killed, "inside": inside, "final": final}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])))
