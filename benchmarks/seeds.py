"""Several seeds of one experiment: a command each, or packed into one (``share_image_cache=true``).

Solo is ``python train.py`` for each seed, one after the other; packed is one ``--multirun`` of the
same settings, in one process and in one process per core. All start from drawn and indexed data in
an empty folder of runs. Rounds are interleaved; ratios are within a round. A packed run's weights
must be those of the solo run on as many threads, since the last bit of a sum on a CPU depends on
them: this is checked for every seed of the single process, and for ``--check`` seeds of one process
per core, with solo runs on one thread for this purpose. Processor time is given beside wall-clock
time, since other work on the machine affects it least. Packing saves the start of every process but
the first, so longer runs save a smaller share: ``experiment=demo/counterfactual`` takes twice the
steps. A line per command goes to stderr; 25 seeds take a quarter of an hour on two cores.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from generation import machine

ROOT = Path(__file__).resolve().parent.parent
QUICK = [
    "trainer.max_epochs=null", "trainer.max_steps=3", "data.batch_size=16",
    "data.world.real_scenes=80", "data.world.counterfactual_pairs=40",
]  # fmt: skip


@dataclass(frozen=True)
class Timing:
    """Wall-clock seconds, and processor seconds of all cores together."""

    clock: float
    processor: float


def command(words: Sequence[str], threads: int) -> Timing:
    """Run ``train.py`` in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "train.py", *words],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, encoding="utf-8",
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"train.py {' '.join(words)} failed:\n{done.stderr[-3000:]}")
    clock = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    ran = " ".join(word for word in words if word.startswith(("paths.runs=", "seed=")))
    print(f"{clock:.1f} s: {ran}", file=sys.stderr, flush=True)
    return Timing(clock, processor)


class Seeds:
    """The seeds and settings that all ways of running them share."""

    def __init__(self, seeds: int, words: Sequence[str], folder: Path) -> None:
        self.seeds = range(107, 107 + seeds)
        self.words = [*words, f"paths.shards={folder}/shards", "trainer.progress=false"]
        self.folder = folder

    def some(self, count: int) -> list[int]:
        """Return some of the seeds: the first, the last and evenly spaced ones between."""
        last = len(self.seeds) - 1
        steps = max(1, min(count, len(self.seeds)) - 1)
        return sorted({self.seeds[round(i * last / steps)] for i in range(min(count, last + 1))})

    def draw(self, threads: int) -> None:
        """Draw and index the data, which no way of running the seeds is timed with."""
        lengths = ("trainer.max_epochs=", "trainer.max_steps=")
        words = [word for word in self.words if not word.startswith(lengths)]
        none = ["trainer.max_epochs=null", "trainer.max_steps=0"]
        command([*words, "seed=107", *none, self._runs("drawn")], threads)

    def solo(self, name: str, threads: int, seeds: Sequence[int]) -> Timing:
        """Run one command for each seed."""
        each = [command([*self.words, f"seed={seed}", self._runs(name)], threads) for seed in seeds]
        return Timing(sum(t.clock for t in each), sum(t.processor for t in each))

    def packed(self, name: str, processes: int, threads: int) -> Timing:
        """Run one command for all seeds."""
        seeds = "seed=" + ",".join(map(str, self.seeds))
        packing = ["--multirun", "share_image_cache=true", f"parallel={processes}"]
        return command([*packing, *self.words, seeds, self._runs(name)], threads)

    def _runs(self, name: str) -> str:
        return f"paths.runs={self.folder / name}"

    def weights(self, name: str) -> dict[str, str]:
        """Return the sha256 of every run's weights, by the seed's folder."""
        files = (self.folder / name).rglob("checkpoint/*.safetensors")
        return {f.parent.parent.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files}

    def compare(self, packed: str, solo: str, seeds: Sequence[int]) -> None:
        """Stop unless the packed runs of these seeds have the same weights as the solo runs."""
        ours, theirs = self.weights(packed), self.weights(solo)
        if len(ours) != len(self.seeds) or len(theirs) != len(seeds):
            raise SystemExit(
                f"{packed} left weights of {len(ours)} of {len(self.seeds)} runs, "
                f"{solo} of {len(theirs)} of {len(seeds)}"
            )
        other = [name for name in theirs if ours.get(name) != theirs[name]]
        if other:
            raise SystemExit(f"the weights of {packed} are not those of {solo}: {other}")


def measure(seeds: Seeds, rounds: int, cores: int, checked: int) -> dict[str, list[Timing]]:
    """Time every way, interleaved, and compare its weights with the solo runs'."""
    each = f"packed, {cores} processes"
    measured: dict[str, list[Timing]] = {"solo": [], "packed, 1 process": [], each: []}
    for number in range(rounds):
        measured["solo"].append(seeds.solo(f"solo-{number}", cores, seeds.seeds))
        measured["packed, 1 process"].append(seeds.packed(f"one-{number}", 1, cores))
        measured[each].append(seeds.packed(f"many-{number}", cores, 1))
        seeds.compare(f"one-{number}", f"solo-{number}", seeds.seeds)
    some = seeds.some(checked)
    seeds.solo("solo-one-thread", 1, some)
    for number in range(rounds):
        seeds.compare(f"many-{number}", "solo-one-thread", some)
    return measured


def table(measured: dict[str, list[Timing]], seeds: int) -> str:
    """Return the medians, and each way's ratio to solo in its round, with the range."""
    lines = [
        f"| {seeds} seeds | clock, s | of solo | processors, s | of solo |",
        "|---|---|---|---|---|",
    ]
    for name, timings in measured.items():
        cells = [name]
        for what in ("clock", "processor"):
            mine = [getattr(timing, what) for timing in timings]
            ratios = [m / getattr(s, what) for m, s in zip(mine, measured["solo"], strict=True)]
            low, high = min(ratios), max(ratios)
            cells += [
                f"{statistics.median(mine):.1f}",
                f"{statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})",
            ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--check", type=int, default=3, help="seeds repeated on one thread")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--quick", action="store_true", help="2 seeds of 3 steps, once")
    parser.add_argument(
        "words", nargs="*", default=["experiment=coco_cf_3/base"],
        help="settings of train.py, without seed",
    )  # fmt: skip
    options = parser.parse_args()
    seeds, rounds, check = options.seeds, options.rounds, options.check
    if options.quick:
        seeds, rounds, check = 2, 1, 1
    words = [*options.words, *(QUICK if options.quick else []), f"trainer.device={options.device}"]
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        every = Seeds(seeds, words, Path(folder))
        if not options.quick:  # otherwise the first seed draws them
            every.draw(cores)
        measured = measure(every, rounds, cores, check)
    print(f"{machine(options.device)}, {cores} cores, train.py {' '.join(words)}, {rounds} rounds")
    print(table(measured, seeds))
    print("The packed runs' weights are the solo runs' bytes.")


if __name__ == "__main__":
    main()
