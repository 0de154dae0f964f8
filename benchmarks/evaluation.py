"""Evaluation of one checkpoint: evaluate.py against CLIP_benchmark, whole commands, and recall.

Both compute recall at 1, 5 and 10 in both directions for the same open_clip weights on the same
CLIP_benchmark folder (a WebDataset), in float32. A command is timed from its start to its end,
including imports, loading and reading. There are three arms, interleaved in alternating order:
CLIP_benchmark; ours cold, without an index or kept embeddings; ours warm, a second evaluation of
the same weights with kept embeddings, which does not even load the model. Recalls must agree.
CLIP_benchmark is in the extra "dev", or ``pip install clip-benchmark``.

    python benchmarks/evaluation.py
    python benchmarks/evaluation.py --images 1000 --repeats 5 --device cuda
    python benchmarks/evaluation.py --quick                        # a quick check that it runs
    python benchmarks/evaluation.py --recall 100000                # recall alone, 100k x 100k
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from generation import interval, machine

if TYPE_CHECKING:
    from cfaug.core.types import CounterfactualSet

ROOT = Path(__file__).resolve().parent.parent
PHOTOS = ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg")
KS = (1, 5, 10)
ARMS = ("CLIP_benchmark", "ours, cold", "ours, warm")


@dataclass(frozen=True)
class Spent:
    """A command's wall-clock seconds, and the processor seconds of all its processes."""

    wall: float
    processor: float


def photographs(count: int, captions: int, side: int) -> Iterator[CounterfactualSet]:
    """Cut JPEGs with a short side of ``side`` from photographs, each with its captions."""
    import io

    import numpy as np
    import skimage.data
    from PIL import Image

    from cfaug.core.types import CounterfactualSet, Member

    rng = np.random.Generator(np.random.Philox(key=7))
    photos = [Image.open(Path(skimage.data.data_dir) / name).convert("RGB") for name in PHOTOS]
    for number in range(count):
        photo = photos[number % len(photos)]
        width = int(side * rng.uniform(1, 1.5))
        scale = min(photo.width / width, photo.height / side) * rng.uniform(0.4, 1)
        left = rng.uniform(0, photo.width - width * scale)
        top = rng.uniform(0, photo.height - side * scale)
        box = (left, top, left + width * scale, top + side * scale)
        buffer = io.BytesIO()
        photo.resize((width, side), Image.Resampling.BICUBIC, box).save(buffer, "JPEG", quality=90)
        name = PHOTOS[number % len(PHOTOS)].split(".")[0].replace("_", " ")
        members = tuple(
            Member(
                f"view {number} of a photograph of the {name}, said in way {i}", "0", str(number)
            )
            for i in range(captions)
        )
        yield CounterfactualSet(f"{number:06d}", str(number), members, {"0": buffer.getvalue()})


def random_model(folder: Path, architecture: str) -> None:
    """Save an open_clip model with random weights as a folder that open_clip loads."""
    import open_clip
    import torch
    from safetensors.torch import save_file

    from cfaug.models.open_clip import load

    torch.manual_seed(0)
    weights = folder.with_suffix(".safetensors")
    save_file(open_clip.create_model(architecture).state_dict(), weights)
    load(str(weights), architecture, log_scale_bounds=(None, None)).save(folder)
    weights.unlink()


def spent(command: list[str], folder: Path, device: str) -> Spent:
    """Run a command to its end; its output is shown only if it fails."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    if device == "cpu":  # CLIP_benchmark takes any GPU that it sees
        environment["CUDA_VISIBLE_DEVICES"] = ""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        encoding="utf-8",
    )
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return Spent(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


class Contest:
    """The three arms on one model and one folder of data, both in ``place``."""

    def __init__(self, place: Path, args: argparse.Namespace) -> None:
        from cfaug.data.export import export_clip_benchmark

        self.place, self.args = place, args
        sets = photographs(args.images, args.captions, args.side)
        export_clip_benchmark(sets, place / "wds")
        random_model(place / "model", args.architecture)

    def run(self, arm: str) -> Spent:
        """Evaluate once, with empty caches unless the arm is the warm one."""
        if arm == "CLIP_benchmark":
            return spent(self._theirs(), self.place, self.args.device)
        if arm == "ours, cold":
            shutil.rmtree(self.place / "shards", ignore_errors=True)
        shutil.rmtree(self.place / "runs", ignore_errors=True)
        return spent(self._ours(), self.place, self.args.device)

    def _theirs(self) -> list[str]:
        return [
            sys.executable, "-c", "from clip_benchmark.cli import main; main()", "eval",
            "--dataset", "wds/photos", "--dataset_root", str(self.place / "wds"),
            "--task", "zeroshot_retrieval", "--model", f"local-dir:{self.place / 'model'}",
            "--pretrained", "", "--recall_k", *map(str, KS), "--no_amp",
            "--batch_size", str(self.args.batch), "--num_workers", str(self.args.workers),
            "--output", str(self.place / "theirs.json"),
        ]  # fmt: skip

    def _ours(self) -> list[str]:
        return [
            sys.executable, str(ROOT / "evaluate.py"), f"weights={self.place / 'model'}",
            "model=open_clip", "benchmark=retrieval", "benchmark.name=photos",
            f"benchmark.data={self.place / 'wds'}", f"device={self.args.device}",
            f"+benchmark.batch_size={self.args.batch}", f"paths.runs={self.place / 'runs'}",
            f"paths.shards={self.place / 'shards'}",
        ]  # fmt: skip

    def check(self) -> float:
        """Return the largest difference between the recalls of both tools.

        CLIP_benchmark breaks ties by an unspecified order, so a query may count in one tool only.
        """
        theirs = json.loads((self.place / "theirs.json").read_text(encoding="utf-8"))["metrics"]
        (file,) = (self.place / "runs").rglob("results.jsonl")
        ours = {
            r["metric"]: r["value"]
            for r in map(json.loads, file.read_text(encoding="utf-8").splitlines())
        }
        return max(
            abs(ours[f"{mine}_R@{k}"] - theirs[f"{other}_retrieval_recall@{k}"])
            for mine, other in (("image_to_text", "text"), ("text_to_image", "image"))
            for k in KS
        )


def contest(args: argparse.Namespace) -> dict[str, list[Spent]]:
    """Measure all arms, interleaved."""
    rounds = [
        arm
        for repeat in range(args.repeats)
        # The warm arm needs a cold one before it, so the two stay in order.
        for arm in (ARMS if repeat % 2 == 0 else (*ARMS[1:], ARMS[0]))
    ]
    measured: dict[str, list[Spent]] = {arm: [] for arm in ARMS}
    with tempfile.TemporaryDirectory() as name:
        race = Contest(Path(name), args)
        for number, arm in enumerate(rounds, 1):
            measured[arm].append(race.run(arm))
            latest = measured[arm][-1]
            print(
                f"{number}/{len(rounds)} {arm}: {latest.wall:.1f} s, {latest.processor:.1f} s of "
                "processor time", file=sys.stderr, flush=True,
            )  # fmt: skip
        difference = race.check()
    if difference > 2 / args.images:
        raise SystemExit(f"the recalls differ by {difference:.4f}: these are not the same tests")
    return measured


def report(measured: dict[str, list[Spent]], args: argparse.Namespace) -> None:
    """Print a table of medians, ranges and speed-ups."""
    print(machine(args.device))
    print(
        f"{args.architecture}, random weights, float32; {args.images} images x {args.captions} "
        f"captions, batches of {args.batch}; {args.repeats} rounds\n"
    )
    print("| arm | seconds | range | processor s | faster by (95 %) | less processor time by |")
    print("|---|---|---|---|---|---|")
    theirs = measured[ARMS[0]]
    for arm, times in measured.items():
        wall = [run.wall for run in times]
        ratios = [
            interval(
                [getattr(a, what) / getattr(b, what) for a, b in zip(theirs, times, strict=True)]
            )
            for what in ("wall", "processor")
        ]
        shown = ("1", "1") if arm == ARMS[0] else ratios
        print(
            f"| {arm} | {statistics.median(wall):.1f} | {min(wall):.1f} to {max(wall):.1f} "
            f"| {statistics.median(run.processor for run in times):.1f} | {shown[0]} | {shown[1]} |"
        )


def recall_alone(count: int, dim: int) -> None:
    """Measure time and memory of recall in both directions among ``count`` images and captions."""
    import numpy as np

    from cfaug.stats.ranking import hits_at, standings

    rng = np.random.Generator(np.random.Philox(key=1))
    text = rng.standard_normal((count, dim), np.float32)
    image = text + rng.standard_normal((count, dim), np.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started, worked = time.perf_counter(), time.process_time()
    recalls = hits_at(standings(text, image, np.arange(count)))
    wall, worked = time.perf_counter() - started, time.process_time() - worked
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(machine("cpu"))
    print(
        f"recall both ways, {count:,} x {count:,}, dim {dim}: {wall:.1f} s ({worked:.1f} s of "
        f"processor time), {more:.0f} MiB more memory; "
        + ", ".join(f"{name} {hits.mean():.4f}" for name, hits in recalls.items())
    )


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--architecture",
        default="ViT-S-32-alt",
        help="open_clip's name of the architecture (%(default)s)",
    )
    parser.add_argument("--images", type=int, default=200, help="number of images (%(default)s)")
    parser.add_argument("--captions", type=int, default=5, help="captions per image (%(default)s)")
    parser.add_argument("--side", type=int, default=256, help="short side, pixels (%(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="batch size (%(default)s)")
    parser.add_argument(
        "--workers", type=int, default=1, help="CLIP_benchmark's worker processes (%(default)s)"
    )
    parser.add_argument("--repeats", type=int, default=5, help="number of rounds (%(default)s)")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--recall", type=int, metavar="N", help="only recall, N x N")
    parser.add_argument("--dim", type=int, default=64, help="dimension for --recall (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="12 images with 2 captions, once")
    args = parser.parse_args(argv)
    if args.recall is not None:
        recall_alone(args.recall, args.dim)
        return 0
    if args.quick:
        args.images, args.captions, args.repeats = 12, 2, 1
    if importlib.util.find_spec("clip_benchmark") is None:
        raise SystemExit("CLIP_benchmark is missing: pip install clip-benchmark")
    report(contest(args), args)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
