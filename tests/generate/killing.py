"""Kill a run again and again.

The process imports what is slow and computes nothing; every child is forked from it, runs the same
job and is killed at a random instant, counted in calls and returns of functions, C's included. So
an instant can lie before or after any write, flush or rename, and no clock decides where. Every
other time only what happens in the modules that write is counted, where an instant matters most.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import numpy as np
import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401
import pydantic  # noqa: F401
import scipy.special  # noqa: F401

from cfaug.core.types import Example
from cfaug.editing.caption_grids import AttributeGrid, read_grid
from cfaug.generate import annotation
from cfaug.generate.job import Job, generate
from cfaug.generate.recipe import ShardSettings
from cfaug.generate.sampling import Draws
from cfaug.imaging.select import clip_selection
from tests.generate import tiny

SHARDS = 4
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
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def count_events(work: Job, fatal: int, writing: bool) -> dict[bool, int]:
    """Generate, and return how many events it took, by whether only those of writers count.

    Args:
        fatal: the number of the event at which to die, from 1; -1 for none.
        writing: whether only events in the modules that write count towards ``fatal``.
    """
    events = {False: 0, True: 0}

    def profile(frame: FrameType, event: str, argument: object) -> None:
        events[False] += 1
        events[True] += frame.f_code.co_filename.endswith(WRITERS)
        if events[writing] == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(profile)
    try:
        generate(work)
    finally:
        sys.setprofile(None)
    return events


def between(folder: Path, what: str) -> bool:
    """Say whether something has been made and the last shard is not there."""
    begun = any(folder.glob(".work/*/*.batch")) or any(folder.glob("*.tar"))
    begun |= any(folder.with_name(f"{folder.name} cache").rglob("*.jsonl"))
    place = folder / "captions" if what == "annotations" else folder
    return begun and not (place / f"{SHARDS - 1:05d}.json").exists()


def kill_often(root: Path, kills: int, what: str) -> None:
    """Make ``root/whole`` at once and ``root/cut`` with kills, and write ``root/told.json``."""
    whole, cut = root / "whole", root / "cut"

    def measure() -> None:
        counts = [count_events(job(whole, what), -1, writing=False) for _ in range(2)]
        (root / "events").write_text(repr(counts))

    assert in_child(measure) == 0
    events, again = ast.literal_eval((root / "events").read_text())
    rng = np.random.default_rng(0)
    killed, inside = 0, 0
    while killed < kills:
        writing = killed % 2 == 1
        # A kill's share of the work on average; some of it is lost.
        fatal = int(rng.integers(1, again[writing] + 2 * events[writing] // kills))
        code = in_child(lambda: count_events(job(cut, what), fatal, writing))  # noqa: B023
        if code == 0:
            break
        assert code == -signal.SIGKILL
        killed += 1
        inside += between(cut, what)
    final = in_child(lambda: generate(job(cut, what)))
    report = {"killed": killed, "inside": inside, "final": final}
    (root / "told.json").write_text(json.dumps(report))
