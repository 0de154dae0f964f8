"""One epoch of training by other tools and by us, timed from the first batch to the last step.

The other tools are the Hugging Face Trainer in run_clip's set-up, and open_clip_train.
``benchmarks/training.py`` starts this in a process of its own; it prints one line of JSON.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

SEED = 7


def timed(train: Callable[..., Any], measured: dict[str, float]) -> Callable[..., Any]:
    """Return ``train``, wrapped to write its wall-clock and processor seconds into ``measured``.

    Processor seconds include those of the loader's processes, ended and running ones.
    """

    def spent() -> float:
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        living = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
        return (
            time.process_time() + ended.ru_utime + ended.ru_stime
            + sum(times.user + times.system for times in living)
        )  # fmt: skip

    def run(*args: Any, **given: Any) -> Any:
        began, before = time.perf_counter(), spent()
        result = train(*args, **given)
        measured["epoch"], measured["processor"] = time.perf_counter() - began, spent() - before
        return result

    return run


def ours(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Run ``train.py``; Lightning's ``fit``, which is the epoch alone, is timed."""
    import lightning.pytorch as pl

    measured: dict[str, float] = {}
    theirs = pl.Trainer.fit

    def fit(self: pl.Trainer, *rest: Any, **given: Any) -> None:
        timed(theirs, measured)(self, *rest, **given)
        measured["steps"] = self.global_step

    pl.Trainer.fit = fit
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    import train

    if train.main(args.overrides):
        raise SystemExit("train.py failed")
    return measured


def hugging_face(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Train like transformers' examples/pytorch/contrastive-image-text/run_clip.py.

    Its parts, in its order: captions tokenised beforehand to full length; images read, resized,
    cropped and normalised by a scripted torchvision module when they are fetched; ``Trainer`` with
    AdamW, a linear schedule and the gradient clipped at 1. ``datasets`` is replaced by two lists.
    """
    import torch
    from torchvision.io import ImageReadMode, read_image
    from torchvision.transforms import CenterCrop, ConvertImageDtype, Normalize, Resize
    from torchvision.transforms.functional import InterpolationMode
    from transformers import (
        AutoImageProcessor,
        AutoModel,
        AutoTokenizer,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    set_seed(SEED)
    weights = folder / "hf"
    tokenizer = AutoTokenizer.from_pretrained(weights)
    processor = AutoImageProcessor.from_pretrained(weights)
    model = AutoModel.from_pretrained(weights)

    class Transform(torch.nn.Module):
        def __init__(self, size: int, mean: list[float], std: list[float]) -> None:
            super().__init__()
            self.transforms = torch.nn.Sequential(
                Resize([size], interpolation=InterpolationMode.BICUBIC),
                CenterCrop(size),
                ConvertImageDtype(torch.float),
                Normalize(mean, std),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                return self.transforms(x)

    transform: Any = torch.jit.script(
        Transform(model.config.vision_config.image_size, processor.image_mean, processor.image_std)
    )
    with (folder / "data" / "captions.tsv").open(encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle, delimiter="\t"))
    tokens = tokenizer(
        [row["title"] for row in rows], max_length=77, padding="max_length", truncation=True
    )

    class Examples(torch.utils.data.Dataset[dict[str, Any]]):
        def __len__(self) -> int:
            return len(rows)

        def __getitem__(self, i: int) -> dict[str, Any]:
            image = read_image(rows[i]["filepath"], mode=ImageReadMode.RGB)
            return {"pixel_values": transform(image), "input_ids": tokens["input_ids"][i],
                    "attention_mask": tokens["attention_mask"][i]}  # fmt: skip

    def collate(examples: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "pixel_values": torch.stack([e["pixel_values"] for e in examples]),
            "input_ids": torch.tensor([e["input_ids"] for e in examples], dtype=torch.long),
            "attention_mask": torch.tensor([e["attention_mask"] for e in examples]),
            "return_loss": True,
        }

    out = folder / "out"
    arguments = TrainingArguments(
        output_dir=str(out), remove_unused_columns=False, num_train_epochs=1,
        per_device_train_batch_size=args.batch, dataloader_num_workers=args.workers,
        learning_rate=args.lr, weight_decay=1e-3, seed=SEED, report_to=[], disable_tqdm=True,
        use_cpu=args.device == "cpu",
    )  # fmt: skip
    trainer = Trainer(model=model, args=arguments, train_dataset=Examples(), data_collator=collate)
    measured: dict[str, float] = {}
    measured["steps"] = timed(trainer.train, measured)().global_step
    trainer.save_model()
    return measured


def open_clip(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Call open_clip_train's own ``main``; its own ``train_one_epoch`` is timed."""
    import open_clip_train.main as program

    theirs, measured = program.train_one_epoch, dict[str, float]()

    def train_one_epoch(model: Any, data: Any, *rest: Any, **given: Any) -> None:
        timed(theirs, measured)(model, data, *rest, **given)
        measured["steps"] = data["train"].dataloader.num_batches

    program.train_one_epoch = train_one_epoch
    program.main([
        "--model", f"local-dir:{folder / 'open_clip'}", "--dataset-type", "csv",
        "--train-data", str(folder / "data" / "captions.tsv"), "--batch-size", str(args.batch),
        "--workers", str(args.workers), "--epochs", "1", "--lr", str(args.lr), "--wd", "0.001",
        "--warmup", "0", "--precision", "fp32", "--grad-clip-norm", "1", "--seed", str(SEED),
        "--logs", str(folder / "out"), "--name", "run", "--device", args.device,
    ])  # fmt: skip
    return measured


RIVALS = {"ours": ours, "transformers": hugging_face, "open_clip": open_clip}


def main(argv: list[str]) -> int:
    """Train one epoch with one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rival", choices=RIVALS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--overrides", nargs="*", default=[], help="overrides of train.py")
    args = parser.parse_args(argv)
    print("\n" + json.dumps(RIVALS[args.rival](args.folder, args)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
