"""Training steps and a denoising step at the papers' sizes, ours against a plain loop.

CLIP ViT-B/32 and ViT-L/14, BridgeTower-base and FLAVA are built from their published configurations
with random weights, saved, and trained for a few steps twice: by ``train.py``, and by a loop of a
page that uses transformers' model and torch's AdamW alone. Both see the same batch at every step
and start from the same file, so that the losses have to agree. A step is all between the end of the
last one and its own end: copies to the device, tokens, both passes, clipping, AdamW. Stable
Diffusion 1.5's UNet takes one denoising step with classifier-free guidance, for a pair of prompts
that share their attention, by our sampler and by the released engine's way (``written_down.py``).
Every measurement runs in a process of its own; the order alternates over rounds. The first step,
which allocates, is left out of the times, and is in the peaks.

    python benchmarks/real_size.py                                    # two cores: some ten minutes
    python benchmarks/real_size.py --models clip-vit-b-32 --steps 3 --batch 4
    python benchmarks/real_size.py --device cuda --precision bf16-mixed --batch 128 --steps 20
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WIDE = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
        "num_attention_heads": 16, "image_size": 224, "patch_size": 14}  # fmt: skip
"""The vision tower of openai/clip-vit-large-patch14."""
WIDE_TEXT = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
             "num_attention_heads": 12}  # fmt: skip
MODELS = ("clip-vit-b-32", "clip-vit-l-14", "bridgetower-base", "flava")
PRESETS = {"bridgetower-base": "bridgetower", "flava": "flava"}
"""{model: the choice of ``model=``}, for those that are not ``clip_vit_b32``."""
SIDES = {"bridgetower-base": 288}
UNET = "sd15-unet"
AGREE = 1e-5
"""The largest difference of two losses in float32."""
SEED = 7
LEARNING_RATE, WEIGHT_DECAY = 1e-5, 1e-3


def save_model(name: str, folder: Path) -> None:
    """Save a model of a published configuration with random weights, and its processor."""
    import torch
    import transformers as hf
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from training import CONTEXT, WORDS, load_tokenizer  # beside this script

    torch.manual_seed(SEED)
    side = SIDES.get(name, 224)
    square = {"height": side, "width": side}
    if name.startswith("clip"):
        wide = name == "clip-vit-l-14"
        # Numbers of CLIP's own vocabulary; transformers' defaults mark the end of texts by 2.
        ends = {"bos_token_id": 49406, "eos_token_id": 49407, "pad_token_id": 49407}
        config = hf.CLIPConfig(
            text_config={**(WIDE_TEXT if wide else {}), **ends},
            vision_config=WIDE if wide else {}, projection_dim=768 if wide else 512,
        )  # fmt: skip
        model: Any = hf.CLIPModel(config)
        processor: Any = hf.CLIPProcessor(hf.CLIPImageProcessor(), load_tokenizer())
    else:
        # A text of any tokenizer costs the same; BERT's and RoBERTa's word lists are no package.
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
        digits = [str(number) for number in range(10_000)]
        inner = Tokenizer(
            models.WordLevel(
                {word: i for i, word in enumerate([*special, *WORDS, *digits])}, unk_token="[UNK]"
            )
        )
        inner.normalizer = normalizers.Lowercase()
        inner.pre_tokenizer = pre_tokenizers.Whitespace()
        inner.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        words = hf.PreTrainedTokenizerFast(
            tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
            sep_token="[SEP]", model_max_length=CONTEXT,
            model_input_names=["input_ids", "attention_mask"],
        )  # fmt: skip
        if name == "flava":
            model = hf.FlavaModel(hf.FlavaConfig())
            images = hf.FlavaImageProcessor(size=square, crop_size=square)
            processor = hf.FlavaProcessor(images, words)
        else:
            bridge = hf.BridgeTowerConfig(
                # Without dropout, whose masks differ: the towers of the other models have none.
                text_config={"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3,
                             "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
                vision_config={"image_size": side},
                contrastive_hidden_size=512, logit_scale_init_value=2.6592,
            )  # fmt: skip
            model = hf.BridgeTowerForContrastiveLearning(bridge)
            edges = {"size": {"shortest_edge": side}, "crop_size": {"shortest_edge": side}}
            pictures = hf.BridgeTowerImageProcessor(**edges, size_divisor=32)
            processor = hf.BridgeTowerProcessor(pictures, words)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def draw(folder: Path, count: int, side: int) -> None:
    """Write crops of photographs in the model's own size, and their captions."""
    import numpy as np
    import skimage.data
    from PIL import Image
    from training import PHOTOS, WORDS

    rng = np.random.Generator(np.random.Philox(key=SEED))
    photos = [Image.open(Path(skimage.data.data_dir) / name).convert("RGB") for name in PHOTOS]
    folder.mkdir()
    with (folder / "captions.tsv").open("w", newline="", encoding="utf-8") as handle:
        table = csv.writer(handle, delimiter="\t", lineterminator="\n")
        table.writerow(["filepath", "title"])
        for number in range(count):
            photo = photos[number % len(photos)]
            left = int(rng.integers(photo.width - side + 1))
            top = int(rng.integers(photo.height - side + 1))
            file = folder / f"{number:04d}.png"
            photo.crop((left, top, left + side, top + side)).save(file)
            table.writerow([file.name, f"{' '.join(rng.choice(WORDS, 9))} {number}"])


def wait(device: str) -> float:
    """Wait until the device has finished its work, and return the time in seconds."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def peak(device: str) -> float:
    """Return the most memory that this process has taken, of its device, in MiB."""
    import torch

    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    kibibytes = 1 if sys.platform != "darwin" else 1 / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * kibibytes / 1024


def train_ours(name: str, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Run ``train.py``, with the time at the end of every step."""
    import lightning.pytorch as pl

    ends: list[float] = []
    fit = pl.Trainer.fit

    class Clock(pl.Callback):
        def on_train_start(self, *_: Any) -> None:
            ends.append(wait(args.device))

        def on_train_batch_end(self, *_: Any) -> None:
            ends.append(wait(args.device))

    def fit_with_clock(self: pl.Trainer, *rest: Any, **given: Any) -> None:
        self.callbacks.append(Clock())
        fit(self, *rest, **given)

    pl.Trainer.fit = fit_with_clock
    sys.path.insert(0, str(ROOT))
    import train

    overrides = [
        f"model={PRESETS.get(name, 'clip_vit_b32')}", f"model.weights={folder / name}",
        "data=folder", f"data.real={folder / f'data-{name}'}", "data.cf_ratio=0",
        "data.validation=0", "data.holdout=0", f"data.batch_size={args.batch}", "data.workers=0",
        "optim=paper", f"optim.lr={LEARNING_RATE}", f"trainer.max_steps={args.steps}",
        "trainer.max_epochs=null", "trainer.checkpoint=last", "trainer.save_every_minutes=null",
        "trainer.progress=false", f"trainer.device={args.device}",
        f"trainer.precision={args.precision}", "arm=ours", "seed=7", "name=real_size",
        f"paths.runs={folder / 'runs'}", f"paths.shards={folder / 'shards'}",
    ]  # fmt: skip
    if train.main(overrides):
        raise SystemExit("train.py failed")
    file = folder / "runs" / "real_size" / "ours" / "seed=7" / "metrics.csv"
    with file.open(encoding="utf-8", newline="") as rows:
        losses = [float(row["train/loss"]) for row in csv.DictReader(rows)]
    steps = [end - begin for begin, end in itertools.pairwise(ends)]
    return {"losses": losses, "seconds": steps, "peak": peak(args.device)}


def train_plainly(name: str, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Run a plain loop over the batch: loss, optimizer, schedule and clipping of run_clip.py."""
    import torch
    import torch.nn.functional as F
    import transformers as hf
    from torchvision.io import read_image

    device = torch.device(args.device)
    kind = {"flava": hf.FlavaModel, "bridgetower-base": hf.BridgeTowerForContrastiveLearning}
    model: Any = kind.get(name, hf.CLIPModel).from_pretrained(folder / name).to(device).train()
    processor = hf.AutoImageProcessor.from_pretrained(folder / name)
    tokenizer = hf.AutoTokenizer.from_pretrained(folder / name)
    with (folder / f"data-{name}" / "captions.tsv").open(encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle, delimiter="\t"))
    pixels = torch.stack([read_image(folder / f"data-{name}" / row["filepath"]) for row in rows])
    texts = [row["title"] for row in rows]
    mean, std = (
        torch.tensor(values, device=device).view(3, 1, 1)
        for values in (processor.image_mean, processor.image_std)
    )
    decayed = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    plain = [n for n, _ in decayed if "bias" in n or "norm" in n.lower() or "ln_" in n]
    groups = [
        {"params": [p for n, p in decayed if n not in plain], "weight_decay": WEIGHT_DECAY},
        {"params": [p for n, p in decayed if n in plain], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, eps=1e-8)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / args.steps)
    losses, seconds, begin = [], [], wait(args.device)
    for _ in range(args.steps):
        tokens = tokenizer(texts, padding=True, truncation=True, return_tensors="pt").to(device)
        images = (pixels.to(device).float() / 255 - mean) / std
        with torch.autocast(device.type, torch.bfloat16, enabled=args.precision != "32"):
            if name == "flava":
                seen = model.get_image_features(images).pooler_output[:, 0]
                read = model.get_text_features(**tokens).pooler_output[:, 0]
                scale = model.logit_scale.data.clamp_(0, 4.6052).exp()
                logits = scale * F.normalize(seen, dim=-1) @ F.normalize(read, dim=-1).T
                target = torch.arange(len(texts), device=device)
                loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
            else:
                given = {"pixel_values": images, "return_loss": True, **tokens}
                loss = model(**given).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(float(loss))
        end = wait(args.device)
        seconds.append(end - begin)
        begin = end
    return {"losses": losses, "seconds": seconds, "peak": peak(args.device)}


def denoise(engine: str, args: argparse.Namespace) -> dict[str, Any]:
    """Take two denoising steps of a pair at Stable Diffusion 1.5's shape, four rows a call."""
    sys.path.insert(0, str(ROOT))
    from generation import Bench

    mixed = args.precision != "32"
    bench = Bench(
        argparse.Namespace(
            weights="sd15", device=args.device, dtype="bf16" if mixed else "fp32", steps=2, rows=4,
            channels_last=args.device == "cuda", compile=False, candidates=1,
            reference_candidates=1,
        )
    )  # fmt: skip
    arm = "independent" if engine == "ours" else "reference"
    bench.run(arm)
    seconds = [bench.run(arm)[0] / 2 for _ in range(args.steps)]
    # Before the comparison, which runs both engines.
    return {"seconds": [0.0, *seconds], "peak": peak(args.device),
            "difference": bench.difference() if engine == "ours" else 0.0}  # fmt: skip


def measure(engine: str, name: str, folder: Path, argv: Sequence[str]) -> dict[str, Any]:
    """Measure in a process of its own, whose last line is the result."""
    shutil.rmtree(folder / "runs", ignore_errors=True)  # of the round before, which is done
    command = [sys.executable, __file__, *argv, "--child", engine, name, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=folder)
    if done.returncode:
        raise SystemExit(f"{name}, {engine}, failed:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def apart(ours: dict[str, Any], plain: dict[str, Any]) -> float:
    """Return the largest difference between two runs' losses, or the relative one of latents."""
    if "difference" in ours:
        return float(ours["difference"])
    pairs = zip(ours["losses"], plain["losses"], strict=True)
    return max(abs(a - b) for a, b in pairs)


def main(argv: list[str]) -> int:
    """Measure and print; 1 if losses differ in float32."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    every = [*MODELS, UNET]
    add("--models", nargs="+", choices=every, default=every, metavar="MODEL", help=", ".join(every))
    add("--steps", type=int, default=4, help="steps of a run (%(default)s)")
    add("--batch", type=int, default=8, help="pairs of the batch (%(default)s)")
    add("--repeats", type=int, default=2, help="number of rounds (%(default)s)")
    add("--device", default="cpu", choices=["cpu", "cuda"])
    add("--precision", default="32", choices=["32", "bf16-mixed"])
    add("--quick", action="store_true", help="ViT-B/32 alone: two steps of two pairs, one round")
    add("--child", nargs=3, metavar=("ENGINE", "MODEL", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.quick:
        args.models, args.steps, args.batch, args.repeats = [MODELS[0]], 2, 2, 1
    if args.child:
        engine, name, folder = args.child
        if name == UNET:
            result = denoise(engine, args)
        else:
            work = train_ours if engine == "ours" else train_plainly
            result = work(name, Path(folder), args)
        print(json.dumps(result))
        return 0

    sys.path.insert(0, str(ROOT))
    from generation import interval, machine

    print(f"{machine(args.device)}; {args.precision}, batches of {args.batch}, {args.steps} steps, "
          f"{args.repeats} rounds; medians\n")  # fmt: skip
    print("| model | ms a step, ours | plain | ours takes (95 %) of the plain loop's time "
          "| peak, ours (MiB) | plain | largest difference |\n|---|---|---|---|---|---|---|",
          flush=True)  # fmt: skip
    wrong = []
    for name in args.models:
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            if name != UNET:
                save_model(name, folder / name)
                draw(folder / f"data-{name}", args.batch, SIDES.get(name, 224))
            both: dict[str, list[dict[str, Any]]] = {"ours": [], "plain": []}
            for number in range(args.repeats):
                for engine in list(both)[:: 1 if number % 2 else -1]:
                    both[engine].append(measure(engine, name, folder, argv))
        times = {
            engine: [statistics.median(run["seconds"][1:]) for run in runs]
            for engine, runs in both.items()
        }
        ratios = [a / b for a, b in zip(times["ours"], times["plain"], strict=True)]
        peaks = {engine: max(run["peak"] for run in runs) for engine, runs in both.items()}
        difference = max(apart(a, b) for a, b in zip(both["ours"], both["plain"], strict=True))
        # On a GPU the released sampler runs in float16, and convolutions in TF32.
        if (args.precision, args.device) == ("32", "cpu") and not difference <= AGREE:
            wrong.append(name)
        ms = {engine: 1000 * statistics.median(values) for engine, values in times.items()}
        print(f"| {name} | {ms['ours']:.0f} | {ms['plain']:.0f} | {interval(ratios)} | "
              f"{peaks['ours']:,.0f} | {peaks['plain']:,.0f} | {difference:.1e} |",
              flush=True)  # fmt: skip
    if wrong:
        print(f"\nlosses differ by more than {AGREE:g}: {', '.join(wrong)}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
