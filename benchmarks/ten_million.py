"""A job of ten million sets rehearsed without pixels: its plan, keys, restarts, audit and mixtures.

Captions, commits and shards are files of the real format: the first shard is made by ``Job``, and
the others are copies of it under other keys, with tars of the right size without content. What
reads them is the code of every job. Rows of indexes are told, not scanned from tars, and every
image that a batch reads is one grey PNG. Each step is a process of its own.

    python benchmarks/ten_million.py --sets 10000000
    python benchmarks/ten_million.py --sets 100000 --folder FOLDER
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shards import Grey, OtherNoun

if TYPE_CHECKING:
    from cfaug.core.types import Example
    from cfaug.data.index import Index
    from cfaug.data.mixture.records import Mixture
    from cfaug.data.mixture.settings import RatioData
    from cfaug.generate.job import Job

PER_SHARD = 100
PER_TAR = 1000
"""Photos of a tar of the real source."""
BATCH = 1024
"""Global batch size."""
RANKS = (0, 3, 7)
WORLD = 8
FIRST = "0" * 8
"""The key of the first caption, in whose place the others' are written."""


def key_of(number: int) -> str:
    """Return the key of a caption."""
    return f"{number:08d}"


def photos_of(sets: int) -> int:
    """Return the number of photos: some are held out, and others are not drawn."""
    return sets + sets // 16


def examples(folder: Path) -> Sequence[Example]:
    """Read the captions as ``generate.py data.source=FILE`` does."""
    from cfaug.generate.source import read_captions

    return read_captions(folder / "captions.jsonl").captions


def make_job(folder: Path) -> Job:
    """Return the job of all captions."""
    from cfaug.generate.job import Job
    from cfaug.generate.recipe import Recipe, RunSettings, ShardSettings
    from cfaug.imaging.select import Selection

    recipe = Recipe(
        "simulated", editor=OtherNoun(), image_editor=Grey(), scorers={}, draws=None,
        selection=Selection(minimum={}, maximise=None),
    )  # fmt: skip
    run, size = RunSettings(), ShardSettings(sets_per_shard=PER_SHARD)
    return Job(folder / "pairs", recipe, partial(examples, folder), run=run, shards=size)


def write_captions(folder: Path, sets: int) -> None:
    """Write the list of captions, one of each photo."""
    with (folder / "captions.jsonl").open("w", encoding="utf-8") as file:
        for number in range(sets):
            key = key_of(number)
            line = {"id": key, "image_id": key, "caption": f"a dog at the door of number {key}"}
            file.write(json.dumps(line) + "\n")


def fill(folder: Path, sets: int) -> None:
    """Write all edited captions, as if all shards had been made by this job, and plain tars."""
    from cfaug.generate.failures import ProgressReporter
    from cfaug.generate.folder import claim

    first, job = folder / "first", make_job(folder)
    first.mkdir()
    with (folder / "captions.jsonl").open(encoding="utf-8") as lines:
        head = [next(lines) for _ in range(min(PER_SHARD, sets))]
    (first / "captions.jsonl").write_text("".join(head), encoding="utf-8")
    alone = make_job(first)
    alone.folder.mkdir()
    watch = ProgressReporter("first", "units", "made", 1, shown=False)
    for stage in ("captions", "images"):
        assert alone.make_shard(stage, 0, watch) == ()
    with claim(job.folder, job.record(), job.run):  # what lies there before is not replaced
        edits = job.folder / "captions"
        edits.mkdir()
    made = (alone.folder / "captions" / "00000.jsonl").read_text(encoding="utf-8")
    line = made.split("\n")[0] + "\n"
    assert made == "".join(line.replace(FIRST, key_of(n)) for n in range(len(head)))
    edited = json.loads((alone.folder / "captions" / "00000.json").read_bytes())
    for start in range(0, sets, PER_SHARD):
        name, count = f"{start // PER_SHARD:05d}", min(PER_SHARD, sets - start)
        keys = map(key_of, range(start, start + count))
        content = "".join(line.replace(FIRST, key) for key in keys).encode()
        (edits / f"{name}.jsonl").write_bytes(content)
        commit = {**edited, "captions": count, "sets": count, "members": 2 * count}
        commit["sha256"] = hashlib.sha256(content).hexdigest()
        (edits / f"{name}.json").write_text(json.dumps(commit), encoding="utf-8")
    photos = folder / "photos"
    photos.mkdir()
    for tar in range(-(-photos_of(sets) // PER_TAR)):
        with (photos / f"{tar:05d}.tar").open("wb") as file:
            file.truncate(PER_TAR * 20_480)


def commit_shards(folder: Path, numbers: range) -> None:
    """Write shards of images: commits, candidates and the size of a tar."""
    first, made = folder / "first" / "pairs", folder / "pairs"
    commit = json.loads((first / "00000.json").read_bytes())
    parquet = (first / "00000.parquet").read_bytes()
    for number in numbers:
        edited = json.loads((made / "captions" / f"{number:05d}.json").read_bytes())
        count, sha = edited["sets"], edited["sha256"]
        about = {**commit, "edits": sha, "sets": count, "members": 2 * count, "accepted": count}
        about |= {"caption_sets": count, "candidates": count}
        about["sha256"] = hashlib.sha256(sha.encode()).hexdigest()
        with (made / f"{number:05d}.tar").open("wb") as file:
            file.truncate(commit["bytes"])
        (made / f"{number:05d}.parquet").write_bytes(parquet)
        (made / f"{number:05d}.json").write_text(json.dumps(about), encoding="utf-8")


# The steps, each in a process of its own.


def plan(folder: Path, sets: int) -> None:
    """Read and check all captions, and record the job."""
    from cfaug.generate.folder import claim

    job = make_job(folder)
    with claim(job.folder, job.record(), job.run) as record:
        assert record.shards == -(-sets // PER_SHARD)


def keys(folder: Path, sets: int) -> None:
    """Refuse equal keys in any two shards."""
    from cfaug.generate.captions import check_all_keys

    check_all_keys(folder / "pairs")


def report(folder: Path, sets: int) -> None:
    """Write the report on all edits."""
    from cfaug.generate.captions import write_report

    write_report(folder / "pairs", -(-sets // PER_SHARD))


def resume(folder: Path, sets: int) -> None:
    """Find the missing half of the shards."""
    count, job = -(-sets // PER_SHARD), make_job(folder)
    assert job.missing_shards("captions", range(count)) == []
    assert job.missing_shards("images", range(count)) == list(range(1, count, 2))


def card(folder: Path, sets: int) -> None:
    """Write the card from all commits."""
    from cfaug.generate.folder import write_card

    assert write_card(folder / "pairs")["sets"] == sets


def again(folder: Path, sets: int) -> None:
    """Start the finished job again: everything is read and checked, nothing is made."""
    from cfaug.generate.job import generate

    summary = generate(make_job(folder))
    assert (summary.sets, summary.failures) == (sets, ())


def rows(folder: Path, sets: int, members: int) -> Iterator[Any]:
    """Yield what a scan of the tars would: photos (one member a set), or pairs (two)."""
    from cfaug.core.pixels import Digest
    from cfaug.data.sources import Row

    edit = {"edit_kind": "noun", "edit_before": "dog", "edit_after": "cat"}
    per = PER_SHARD if members == 2 else PER_TAR
    for number in range(sets):
        key, file = key_of(number), str(folder / f"{number // per:05d}.tar")
        for member in range(members):
            image = f"{key}_{member if members == 2 else 'photo'}"
            noun, offset = ("dog", "cat")[member], 2048 * (members * (number % per) + member)
            yield Row(
                set=key, member=member, group=key, text=f"a {noun} at the door of number {key}",
                label=None, image_id=str(member), file=file, offset=offset, length=512,
                digest=Digest.of(image.encode()), where=image, edited=member > 0,
                extra=edit if member else {},
            )  # fmt: skip


def open_indexes(folder: Path, sets: int) -> tuple[Index, Index]:
    """Open the indexes of photos and pairs; their rows are told if there is none."""
    from cfaug.data.index import open_index
    from cfaug.data.sources.tars import OwnShards, TarReader

    rows_of: Mapping[type, Callable[[Any, Path], Iterator[Any]]] = {
        TarReader: lambda _, path: rows(path, photos_of(sets), 1),
        OwnShards: lambda _, path: rows(path, sets, 2),
    }
    for reader, tell in rows_of.items():
        reader.open = tell  # type: ignore[method-assign]
    cache = folder / "cache"
    return open_index(folder / "photos", cache), open_index(folder / "pairs", cache)


def index(folder: Path, sets: int) -> None:
    """Make the index of the pairs, and that of the photos."""
    real, counterfactual = open_indexes(folder, sets)
    assert (len(real), len(counterfactual)) == (photos_of(sets), 2 * sets)


def settings_of(folder: Path, sets: int, **changes: Any) -> RatioData:
    """Return the settings of a mixture of two rows a set, one of them counterfactual."""
    from cfaug.data.mixture.settings import RatioData

    return RatioData(
        str(folder / "photos"), str(folder / "pairs"), cf_ratio=0.5, size=2 * sets, seed=108,
        batch_size=min(BATCH, sets // 16 * WORLD), validation=0.01, holdout=0.01, **changes,
    )  # fmt: skip


def mixture(folder: Path, sets: int, **changes: Any) -> tuple[Mixture, RatioData]:
    """Plan a mixture of which 1 % validates; 1 % of all groups is held out before."""
    from cfaug.data.mixture.mixture import mix
    from cfaug.data.mixture.settings import Sources

    settings = settings_of(folder, sets, **changes)
    return mix(settings, Sources(*open_indexes(folder, sets))), settings


def first_batch(
    rank: int, epochs: float, changes: Mapping[str, Any], folder: Path, sets: int
) -> None:
    """Plan a mixture and read the first batch of a rank, some epochs after the beginning."""
    import io

    import numpy as np
    from PIL import Image

    from cfaug.core.pixels import ImageTransform
    from cfaug.data.index import Index
    from cfaug.data.mixture.loader import Examples, TrainingBatches, make_loader

    grey = io.BytesIO()
    Image.fromarray(np.full((2, 2, 3), 99, np.uint8)).save(grey, "png")
    Index.read_image = lambda _, row: grey.getvalue()
    planned, settings = mixture(folder, sets, **changes)
    length = settings.steps_per_epoch(len(planned.train))
    start = int(epochs * length)
    shares = TrainingBatches(
        planned, settings, seed=107, data_seed=108, start_step=start, total_steps=10 * length,
        rank=rank, world=WORLD,
    )  # fmt: skip
    dataset = Examples(
        planned.sources, ImageTransform(32, (0.5,) * 3, (0.5,) * 3), len(planned.train)
    )
    batch = next(iter(make_loader(dataset, shares, workers=0)))
    assert len(batch["texts"]) == settings.batch_size // WORLD


PAIRS_IN_BATCH = {"pairs_in_batch": True}
STEPS: dict[str, tuple[str, Callable[[Path, int], Any]]] = {
    "plan": ("plan: captions read, keys checked, job recorded", plan),
    "report": ("report on all edits", report),
    "keys": ("keys of all sets checked", keys),
    "resume": ("missing half of the shards listed", resume),
    "card": ("all commits audited, card written", card),
    "again": ("the finished job started again", again),
    "index": ("both indexes made, rows told", index),
    "open": ("both indexes opened", open_indexes),
    "mixture": ("mixture planned", mixture),
    **{f"rank{r}": (f"first batch of rank {r}", partial(first_batch, r, 0, {})) for r in RANKS},
    "middle": ("first batch of rank 7, resumed in mid-epoch 2", partial(first_batch, 7, 1.5, {})),
    "whole": (
        "first batch of rank 3, pairs in one batch", partial(first_batch, 3, 0, PAIRS_IN_BATCH)
    ),
}  # fmt: skip
"""What a row of the table says, and what is done, by the name of the step."""


def measure(name: str, folder: Path, sets: int) -> tuple[float, float, int, int]:
    """Run a step in a process of its own.

    Returns:
        Seconds by the clock and of the CPU, and peaks in MiB, resident and private.

    Private memory is what no file backs (RssAnon): the pages of mapped files count as resident as
    long as nothing else needs the memory.
    """
    words = [sys.executable, __file__, "--step", name, "--sets", str(sets), "--folder", str(folder)]
    began, peaks = time.perf_counter(), {"VmHWM": 0, "RssAnon": 0}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(words) as child:
        status, ended = Path(f"/proc/{child.pid}/status"), threading.Event()

        def watch() -> None:
            while not ended.wait(0.02):
                try:
                    lines = status.read_text(encoding="utf-8").splitlines()
                except OSError:
                    return
                for line in lines:
                    title, _, value = line.partition(":")
                    if title in peaks:
                        peaks[title] = max(peaks[title], int(value.split()[0]) // 1024)

        watcher = threading.Thread(target=watch)
        watcher.start()
        code = child.wait()
        seconds = time.perf_counter() - began
        ended.set()
        watcher.join()
    if code:
        raise SystemExit(f"the step {name} failed")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu, peaks["VmHWM"], peaks["RssAnon"]


def rehearse(folder: Path, sets: int, chosen: Sequence[str]) -> None:
    """Print the table."""
    shards = -(-sets // PER_SHARD)
    if not (folder / "captions.jsonl").exists():
        write_captions(folder, sets)
        fill(folder, sets)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"| {sets:,} sets in {shards:,} shards | seconds | of CPU | resident MiB | private MiB |")
    print("|---|---|---|---|---|", flush=True)
    for name in chosen:
        if name in ("resume", "card"):  # every other shard is made, then all are
            commit_shards(folder, range(int(name == "card"), shards, 2))
        seconds, cpu, *peaks = measure(name, folder, sets)
        cells = f"{seconds:.1f} | {cpu:.1f} | {' | '.join(f'{peak:,}' for peak in peaks)}"
        print(f"| {STEPS[name][0]} | {cells} |", flush=True)


def main() -> None:
    """Print the table, or do one step."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--sets", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="kept, and used again")
    parser.add_argument("--only", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step is not None:
        STEPS[arguments.step][1](arguments.folder, arguments.sets)
    elif arguments.folder is not None:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        rehearse(arguments.folder.resolve(), arguments.sets, arguments.only)
    else:
        with tempfile.TemporaryDirectory() as folder:
            rehearse(Path(folder).resolve(), arguments.sets, arguments.only)


if __name__ == "__main__":
    main()
