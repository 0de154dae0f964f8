"""Examples per second of three loaders on the same JPEG files: ours, WebDataset's, torchvision's.

All three read, decode and crop to the same float32, normalised batches in the main process; the
files are in the page cache, so this measures processors, not disks. Repeats are
interleaved, so that a machine that slows down slows all three.

    python benchmarks/loader.py
    python benchmarks/loader.py --images 4000 --repeats 7 --workers 1 2 4
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

SIZE, BATCH, PER_SHARD = 224, 64, 500
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
PHOTOS = ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg")

Batches = Callable[[Path, int], Iterator["torch.Tensor"]]


def draw(folder: Path, count: int, side: int) -> None:
    """Cut JPEGs with a short side of ``side`` from photographs, as shards and as an ImageFolder."""
    import numpy as np
    import skimage.data
    from PIL import Image

    from cfaug.core.types import CounterfactualSet, Member
    from cfaug.data.shards.shards import write_shards

    rng = np.random.Generator(np.random.Philox(key=7))
    photos = [Image.open(Path(skimage.data.data_dir) / name).convert("RGB") for name in PHOTOS]

    def sets() -> Iterator[CounterfactualSet]:
        for number in range(count):
            label = number % len(photos)
            photo, aspect = photos[label], rng.uniform(1, 1.5)
            wide = bool(rng.integers(2))
            size = (int(side * aspect), side) if wide else (side, int(side * aspect))
            # A crop of the target's shape, as large as the photograph allows or somewhat smaller.
            scale = min(photo.width / size[0], photo.height / size[1]) * rng.uniform(0.6, 1)
            box = [size[0] * scale, size[1] * scale]
            left, top = rng.uniform(0, photo.width - box[0]), rng.uniform(0, photo.height - box[1])
            cut = photo.resize(
                size, Image.Resampling.BICUBIC, (left, top, left + box[0], top + box[1])
            )
            file = folder / "classes" / str(label) / f"{number:06d}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            cut.save(file, quality=90)
            member = Member(f"photograph {label}", "photo", str(label), label=str(label))
            yield CounterfactualSet(
                f"{number:06d}", str(number), (member,), {"photo": file.read_bytes()}
            )

    write_shards(sets(), folder / "shards", sets_per_shard=PER_SHARD)


def ours(folder: Path, workers: int) -> Iterator[torch.Tensor]:
    """Index, plan, loader; normalised in the main process, as training does."""
    from cfaug.core.pixels import ImageTransform
    from cfaug.data.index import open_index
    from cfaug.data.mixture.loader import Examples, TrainingBatches, make_loader
    from cfaug.data.mixture.mixture import plan_mixture
    from cfaug.data.mixture.settings import RatioData

    index = open_index(folder / "shards", folder / "cache")
    mixture = plan_mixture(index, None, cf_ratio=0, size=None, seed=1, validation=0)
    settings = RatioData(None, None, cf_ratio=0, batch_size=BATCH)
    steps = -(-len(index) // BATCH)
    shares = TrainingBatches(
        mixture, settings, seed=0, data_seed=1, start_step=0, total_steps=steps
    )  # fmt: skip
    transform = ImageTransform(SIZE, MEAN, STD)
    # The number is so large that no decoded pixels are kept: every image is decoded every time.
    examples = Examples((index, None), transform, rows=10**9)
    for batch in make_loader(examples, shares, workers):
        yield transform.normalize(batch["pixels"])


def theirs() -> Callable[..., torch.Tensor]:
    """Return the usual transform of one image, which equals ours."""
    from torchvision import transforms

    return transforms.Compose(
        [
            transforms.Resize(SIZE, transforms.InterpolationMode.BICUBIC),
            transforms.CenterCrop(SIZE),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )


def webdataset(folder: Path, workers: int) -> Iterator[torch.Tensor]:
    """Load as in WebDataset's documentation: shards split by worker, a shuffle buffer, batches."""
    import webdataset as wds

    urls = sorted(map(str, (folder / "shards").glob("*.tar")))
    stream = (
        wds.WebDataset(urls, shardshuffle=len(urls))
        .shuffle(1000)
        .decode("pil")
        .to_tuple("jpg", "txt")
        .map_tuple(theirs(), _same)
        .batched(BATCH)
    )
    loader = wds.WebLoader(stream, batch_size=None, num_workers=workers)
    for pixels, _ in loader:
        yield pixels


def torchvision_folder(folder: Path, workers: int) -> Iterator[torch.Tensor]:
    """Load by ImageFolder and a shuffled DataLoader."""
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder

    data = ImageFolder(str(folder / "classes"), theirs())
    for pixels, _ in DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=workers):
        yield pixels


def _same(text: str) -> str:
    return text


LOADERS: dict[str, Batches] = {
    "ours": ours,
    "webdataset": webdataset,
    "torchvision": torchvision_folder,
}


def rate(batches: Batches, folder: Path, workers: int, count: int) -> float:
    """Return the examples per second of one pass, including the start of workers."""
    started, seen = time.perf_counter(), 0
    for pixels in batches(folder, workers):
        seen += len(pixels)
        if tuple(pixels.shape[1:]) != (3, SIZE, SIZE) or str(pixels.dtype) != "torch.float32":
            raise SystemExit(f"{batches.__name__} gave {tuple(pixels.shape)} {pixels.dtype}")
    if seen != count:
        raise SystemExit(f"{batches.__name__} gave {seen} of {count} examples")
    return seen / (time.perf_counter() - started)


def check_same_pixels(folder: Path, count: int) -> None:
    """Check that all loaders give the same images in any order, by sums over a whole pass."""
    import torch

    sums = {
        name: torch.cat([p.double().sum((1, 2, 3)) for p in batches(folder, 0)]).sort().values
        for name, batches in LOADERS.items()
    }
    for name, image_sums in sums.items():
        if len(image_sums) != count or not torch.allclose(
            image_sums, sums["ours"], rtol=0, atol=0.1
        ):
            raise SystemExit(f"{name} gives other pixels than ours")


def machine() -> str:
    """Return the processor's name and the number of cores of this process."""
    info = (
        Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    )
    models = [line.split(":")[1].strip() for line in info.splitlines() if "model name" in line]
    model = models[0] if models else platform.processor() or platform.machine()
    return f"{model}, {len(os.sched_getaffinity(0))} cores, python {platform.python_version()}"


def measure(folder: Path, args: argparse.Namespace) -> dict[int, dict[str, list[float]]]:
    from rich.console import Console
    from rich.progress import track

    rates: dict[int, dict[str, list[float]]] = {w: {n: [] for n in LOADERS} for w in args.workers}
    rounds = [
        (workers, name)
        for repeat in range(args.repeats)
        for workers in args.workers
        # The order alternates from round to round.
        for name in [*LOADERS][repeat % 3 :] + [*LOADERS][: repeat % 3]
    ]
    for workers, name in track(rounds, "measuring", console=Console(stderr=True), transient=True):
        rates[workers][name].append(rate(LOADERS[name], folder, workers, args.images))
    return rates


def report(measured: dict[int, dict[str, list[float]]], args: argparse.Namespace) -> None:
    print(f"{machine()}")
    print(
        f"{args.images} JPEGs, short side {args.side}, to {SIZE} x {SIZE}, batches of {BATCH}; "
        f"examples/s, median of {args.repeats} (lowest to highest)\n"
    )
    print("| workers | loader | examples/s | range | ours is faster by |\n|---|---|---|---|---|")
    for workers, rates in measured.items():
        our_rate = statistics.median(rates["ours"])
        for name, values in rates.items():
            median = statistics.median(values)
            print(
                f"| {workers} | {name} | {median:.0f} | {min(values):.0f} to {max(values):.0f} "
                f"| {our_rate / median:.2f} |"
            )
    medians = {w: {n: statistics.median(v) for n, v in r.items()} for w, r in measured.items()}
    print("\n" + json.dumps({"machine": machine(), "examples_per_second": medians}))


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=600, help="JPEGs to draw (%(default)s)")
    parser.add_argument("--side", type=int, default=SIZE, help="their short side (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="passes per loader (%(default)s)")
    parser.add_argument(
        "--workers", type=int, nargs="+", default=[1, 2], help="worker counts (1 2)"
    )
    args = parser.parse_args(argv)

    import torch

    torch.set_num_threads(1)  # the cores are left to the workers
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draw(folder, args.images, args.side)
        check_same_pixels(folder, args.images)
        report(measure(folder, args), args)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
