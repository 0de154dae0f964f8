"""One training epoch: ours against transformers' Trainer (run_clip) and open_clip_train.

Every measurement runs in a process of its own that starts in an empty folder, without an index or a
cache. Two things are measured: the epoch alone, from the request for the first batch to the last
step; and the whole command, with imports, reading the list of data, loading and saving the model.
Each by the clock and by processor time, including the loader's processes, which other work on the
machine affects least.
Weights, images, captions, batch, loader processes and threads are the same; ours trains the Hugging
Face checkpoint against the first, the open_clip one against the second. Rounds are interleaved;
ratios are within a round.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import CLIPTokenizer

ROOT = Path(__file__).resolve().parent.parent
SHAPES = {
    "tiny": {"width": 64, "layers": 2, "patch": 32, "dim": 64},
    "vit-b-32": {"width": 768, "text_width": 512, "layers": 12, "patch": 32, "dim": 512},
}
PHOTOS = ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg")
WORDS = (
    "a", "man", "woman", "dog", "cat", "riding", "standing", "next", "to", "on", "the", "street",
    "table", "beach", "with", "red", "bicycle", "bench", "kitchen", "and", "white", "small",
)  # fmt: skip
CONTEXT, VOCABULARY = 77, 49408
PAIRS = {"transformers": "clip_vit_b32", "open_clip": "open_clip"}


@dataclass(frozen=True)
class Timing:
    """An epoch's wall-clock and processor seconds, the whole command's, and the steps."""

    epoch: float
    processor: float
    command: float
    command_processor: float
    steps: int


MEASURED = {
    "epoch": "the epoch",
    "processor": "the epoch, processor time",
    "command": "the whole command",
    "command_processor": "the whole command, processor time",
}  # fmt: skip


def draw(folder: Path, count: int) -> None:
    """Write JPEG crops of photographs with a short side of 256, and captions of COCO's length."""
    import numpy as np
    import skimage.data
    from PIL import Image

    rng = np.random.Generator(np.random.Philox(key=7))
    photos = [Image.open(Path(skimage.data.data_dir) / name).convert("RGB") for name in PHOTOS]
    folder.mkdir()
    with (folder / "captions.tsv").open("w", newline="", encoding="utf-8") as handle:
        table = csv.writer(handle, delimiter="\t", lineterminator="\n")
        table.writerow(["filepath", "title"])
        for number in range(count):
            photo = photos[number % len(photos)]
            side = int(min(photo.size) * rng.uniform(0.5, 0.9))
            wide = min(int(side * rng.uniform(1, 1.5)), photo.width)
            left = int(rng.integers(photo.width - wide + 1))
            top = int(rng.integers(photo.height - side + 1))
            size = (256 * wide // side, 256)
            box = (left, top, left + wide, top + side)
            file = folder / f"{number:06d}.jpg"
            photo.resize(size, Image.Resampling.BICUBIC, box).save(file, quality=90)
            words = rng.choice(WORDS, int(rng.integers(8, 14)))
            table.writerow([file.name, f"{' '.join(words)} {number}"])


def load_tokenizer() -> CLIPTokenizer:
    """Return transformers' tokenizer of CLIP with the vocabulary that open_clip ships."""
    from open_clip.tokenizer import SimpleTokenizer
    from transformers import CLIPTokenizer

    words = SimpleTokenizer()
    names = {"<start_of_text>": "<|startoftext|>", "<end_of_text>": "<|endoftext|>"}
    vocabulary = {names.get(word, word): i for word, i in words.encoder.items()}
    merges = [pair for pair, _ in sorted(words.bpe_ranks.items(), key=lambda item: item[1])]
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=CONTEXT)


def write_models(folder: Path, shape: dict[str, int]) -> None:
    """Save a random model of the shape in each library's format, with CLIP's own vocabulary."""
    import open_clip
    import torch
    from safetensors.torch import save_file
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor

    torch.manual_seed(7)
    tokens = load_tokenizer()
    width, text_width = shape["width"], shape.get("text_width", shape["width"])
    towers = {
        name: {"hidden_size": w, "intermediate_size": 4 * w, "num_hidden_layers": shape["layers"],
               "num_attention_heads": w // 64}
        for name, w in (("vision", width), ("text", text_width))
    }  # fmt: skip
    text = {**towers["text"], "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT,
            "bos_token_id": VOCABULARY - 2, "eos_token_id": VOCABULARY - 1,
            "pad_token_id": VOCABULARY - 1}  # fmt: skip
    vision = {**towers["vision"], "image_size": 224, "patch_size": shape["patch"]}
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=shape["dim"])
    CLIPModel(config).save_pretrained(folder / "hf")
    CLIPProcessor(CLIPImageProcessor(), tokens).save_pretrained(folder / "hf")

    layers = shape["layers"]
    described = {
        "embed_dim": shape["dim"],
        "quick_gelu": True,
        "vision_cfg": {"image_size": 224, "layers": layers, "width": width, "head_width": 64,
                       "patch_size": shape["patch"]},
        "text_cfg": {"context_length": CONTEXT, "vocab_size": VOCABULARY, "width": text_width,
                     "heads": text_width // 64, "layers": layers},
    }  # fmt: skip
    target = folder / "open_clip"
    target.mkdir()
    weights = open_clip.model.CLIP(**described).state_dict()
    save_file(weights, target / "open_clip_model.safetensors")
    mean, std = open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD
    preprocess = {"mean": mean, "std": std, "interpolation": "bicubic"}
    text_of = json.dumps({"model_cfg": described, "preprocess_cfg": preprocess})
    (target / "open_clip_config.json").write_text(text_of, encoding="utf-8")


def ours(rival: str, folder: Path, args: argparse.Namespace) -> list[str]:
    """Return our command for the checkpoint that the rival trains."""
    weights = folder / ("hf" if rival == "transformers" else "open_clip")
    return [
        *theirs("ours", folder, args), "--overrides", f"model={PAIRS[rival]}",
        f"weights={weights}", "data=folder", f"data.real={folder / 'data'}",
        "data.cf_ratio=0", "data.validation=0", "data.holdout=0", f"data.batch_size={args.batch}",
        f"data.workers={args.workers}", "optim=paper", f"optim.lr={args.lr}",
        "trainer.max_steps=null", "trainer.max_epochs=1", "trainer.checkpoint=last",
        "trainer.progress=false", f"trainer.device={args.device}",
        f"paths.runs={folder / 'out'}", f"paths.shards={folder / 'shards'}", "arm=ours", "seed=7",
    ]  # fmt: skip


def theirs(rival: str, folder: Path, args: argparse.Namespace) -> list[str]:
    """Return the rival's command."""
    return [
        sys.executable, str(ROOT / "benchmarks" / "rivals.py"), rival, str(folder),
        "--batch", str(args.batch), "--workers", str(args.workers), "--lr", str(args.lr),
        "--device", args.device,
    ]  # fmt: skip


def measure(command: Sequence[str], folder: Path) -> Timing:
    """Run one command on an empty cache; its last line has the times of the epoch."""
    for name in ("out", "shards"):
        shutil.rmtree(folder / name, ignore_errors=True)
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command, cwd=folder / "data", capture_output=True, text=True, encoding="utf-8"
    )
    whole, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    times = json.loads(done.stdout.strip().splitlines()[-1])
    return Timing(times["epoch"], times["processor"], whole, spent, int(times["steps"]))


def interleaved(folder: Path, args: argparse.Namespace) -> dict[str, dict[str, list[Timing]]]:
    """Measure every pair in every round, in alternating order."""
    timings: dict[str, dict[str, list[Timing]]] = {r: {"ours": [], "theirs": []} for r in PAIRS}
    for number in range(args.repeats):
        for rival in PAIRS:
            both = [("ours", ours(rival, folder, args)), ("theirs", theirs(rival, folder, args))]
            for who, command in both[:: 1 if number % 2 else -1]:
                timing = measure(command, folder)
                expected = math.ceil(args.images / args.batch)
                if timing.steps not in (expected, args.images // args.batch):
                    raise SystemExit(f"{rival} {who} took {timing.steps} steps, not {expected}")
                timings[rival][who].append(timing)
                print(f"round {number + 1}, {rival}, {who}: {timing}", file=sys.stderr)
    return timings


def ratio(theirs: list[float], ours: list[float]) -> str:
    """Return the geometric mean of theirs over ours by round, with Student's 95 % interval."""
    sys.path.insert(0, str(ROOT))
    from cfaug.stats.effects import t_interval

    logs = [math.log(a / b) for a, b in zip(theirs, ours, strict=True)]
    low, high = map(math.exp, t_interval(logs))
    spread = "equal in every round" if math.isnan(low) else f"{low:.2f} to {high:.2f}"
    return f"{math.exp(statistics.fmean(logs)):.2f} ({spread})"


def report(timings: dict[str, dict[str, list[Timing]]], args: argparse.Namespace) -> None:
    """Print the table and its numbers as JSON."""
    from generation import machine  # beside this script

    print(machine(args.device))
    print(
        f"{args.model}, {args.images} images, batches of {args.batch}, {args.workers} loader "
        f"processes, threads: {args.threads or 'as many as cores'}, float32; seconds, median of "
        f"{args.repeats} rounds\n"
    )
    print(
        "| against | seconds of | ours | theirs | ours is faster by (95 %) |\n|---|---|---|---|---|"
    )
    raw: dict[str, Any] = {}
    for rival, both in timings.items():
        for field, name in MEASURED.items():
            our_seconds, their_seconds = (
                [getattr(t, field) for t in both[who]] for who in ("ours", "theirs")
            )
            medians = " | ".join(
                f"{statistics.median(values):.1f}" for values in (our_seconds, their_seconds)
            )
            print(f"| {rival} | {name} | {medians} | {ratio(their_seconds, our_seconds)} |")
            raw[f"{rival} {field}"] = {"ours": our_seconds, "theirs": their_seconds}
    print("\n" + json.dumps(raw))


def main(argv: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", choices=SHAPES, default="tiny", help="model shape (%(default)s)")
    add("--images", type=int, default=1500, help="images of the epoch (%(default)s)")
    add("--batch", type=int, default=64, help="batch size (%(default)s)")
    add("--workers", type=int, default=1, help="loader processes (%(default)s)")
    add("--threads", type=int, help="torch's threads in training (as many as cores)")
    add("--repeats", type=int, default=5, help="number of rounds (%(default)s)")
    add("--lr", type=float, default=5e-7, help="learning rate (%(default)s)")
    add("--device", default="cpu", choices=["cpu", "cuda"])
    add("--quick", action="store_true", help="one round of a few steps, to see that it runs")
    args = parser.parse_args(argv)
    if args.quick:
        # As many images as a default that held some out would shorten the epoch of.
        args.images, args.batch, args.repeats, args.workers = 20, 2, 1, 0
    if importlib.util.find_spec("open_clip_train") is None:
        raise SystemExit("open_clip_train is missing: pip install open_clip_torch")
    if args.threads:
        os.environ["OMP_NUM_THREADS"] = str(args.threads)  # for every process that is measured
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draw(folder / "data", args.images)
        write_models(folder, SHAPES[args.model])
        report(interleaved(folder, args), args)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
