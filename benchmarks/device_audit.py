"""What a GPU would be sent and waited for, ours against the libraries' own loops; without a GPU.

Every path runs on the audited device of ``tests/device_audit.py``, where operations are counted and
not computed: a step of a training, a call of a diffusion network, a batch of an evaluation. A wait
is a number that the host reads, a copy that blocks, or a result whose size depends on values. The
same counts are taken of transformers' ``Trainer``, of open_clip's ``train_one_epoch`` and of
diffusers' ``StableDiffusionPipeline``, with the same tiny models and batches: ratios are ours over
theirs. Attention is counted by its formula, as on a device without a fused kernel, in float32.

    python benchmarks/device_audit.py                   # some minutes
    python benchmarks/device_audit.py --quick           # the first paths, and no other library
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from tests.device_audit import CUDA, Counts, DeviceAudit, audited_device  # noqa: E402
from tests.device_paths import PATHS, Measured, draw_sets  # noqa: E402
from tests.imaging import tiny as tiny_diffusion  # noqa: E402
from tests.models import tiny  # noqa: E402
from tests.train import tiny_plan  # noqa: E402

PAIRS, STEPS = 16, 3


def train_by_trainer(folder: Path, audit: DeviceAudit) -> Measured:
    """Train the same CLIP by transformers' ``Trainer``, as ``run_clip.py`` does."""
    import transformers as hf
    from accelerate.state import PartialState

    weights = tiny.save_clip(folder / "clip")
    batch = tiny_plan.batch(0, PAIRS)
    tokens = hf.AutoTokenizer.from_pretrained(weights)(
        batch["texts"], padding=True, return_tensors="pt"
    )
    rows = [
        {"pixel_values": batch["pixels"][row].float() / 255,
         **{name: ids[row] for name, ids in tokens.items()}}
        for row in range(PAIRS)
    ] * STEPS  # fmt: skip

    def collate(some: list[dict[str, Any]]) -> dict[str, Any]:
        stacked = {name: torch.stack([row[name] for row in some]) for name in some[0]}
        pinned = {name: tensor.pin_memory() for name, tensor in stacked.items()}  # as its loader
        return {**pinned, "return_loss": True}

    steps: Measured = []

    class Noting(hf.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            steps.append(audit.measure())

    settings = hf.TrainingArguments(
        str(folder / "run"), use_cpu=True, per_device_train_batch_size=PAIRS, max_steps=STEPS,
        logging_steps=100, save_strategy="no", report_to=[], disable_tqdm=True,
        optim="adamw_torch_fused", remove_unused_columns=False,
    )  # fmt: skip
    model = hf.CLIPModel.from_pretrained(weights)
    trainer = hf.Trainer(
        model, settings, data_collator=collate, train_dataset=rows, callbacks=[Noting()]
    )
    vars(settings)["_setup_devices"] = CUDA  # what it would have chosen with a GPU
    chosen, PartialState._shared_state["device"] = PartialState._shared_state["device"], CUDA
    try:
        model.to(CUDA)
        trainer.train()
    finally:
        PartialState._shared_state["device"] = chosen
    return steps[1:]


def train_by_open_clip(folder: Path, audit: DeviceAudit) -> Measured:
    """Train the same model by open_clip's ``train_one_epoch``."""
    import open_clip
    from open_clip_train.params import parse_args
    from open_clip_train.train import train_one_epoch

    name = f"local-dir:{tiny.save_open_clip(folder / 'open_clip')}"
    model: Any = open_clip.create_model_and_transforms(name, output_dict=True)[0]
    model.train().to(CUDA)
    batch = tiny_plan.batch(0, PAIRS)
    pairs = batch["pixels"].float() / 255, open_clip.get_tokenizer(name)(batch["texts"])
    steps: Measured = []

    class Batches:
        num_batches, num_samples = STEPS, STEPS * PAIRS

        def __iter__(self) -> Any:
            for _ in range(STEPS):
                steps.append(audit.measure())
                yield tuple(tensor.pin_memory() for tensor in pairs)

    args = parse_args(["--batch-size", str(PAIRS), "--log-every-n-steps", "100"])
    vars(args).update(
        device="cuda", distributed=False, rank=0, world_size=1, local_rank=0, skip_scheduler=True,
        precision="fp32", distill=False, wandb=False, grad_clip_norm=1.0,
    )  # fmt: skip
    data = {"train": SimpleNamespace(dataloader=Batches(), set_epoch=lambda epoch: None)}
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    loss = open_clip.create_loss(args)
    train_one_epoch(model, data, loss, 0, optimizer, None, None, None, args)
    return steps[2:]  # the first epoch's first and last batch write to the log


class _EnoughError(Exception):
    """The end of a pipeline's call, of which enough was seen."""


def draw_by_diffusers(folder: Path, audit: DeviceAudit) -> Measured:
    """Draw a pair by diffusers' pipeline and its ancestral sampler."""
    from diffusers import EulerAncestralDiscreteScheduler, StableDiffusionPipeline

    weights = tiny_diffusion.save_pipeline(folder / "sd")
    pipeline: Any = StableDiffusionPipeline.from_pretrained(weights, safety_checker=None)
    config = pipeline.scheduler.config
    pipeline.scheduler = EulerAncestralDiscreteScheduler.from_config(config)
    pipeline.set_progress_bar_config(disable=True)
    pipeline.to("cuda")
    calls: Measured = []

    def note(*_: Any) -> None:
        calls.append(audit.measure())
        if len(calls) > STEPS:
            raise _EnoughError  # its index of a step is read from the device, which has no numbers

    pipeline.unet.register_forward_pre_hook(note)
    side = 2 * tiny_diffusion.SAMPLE
    with suppress(_EnoughError):
        pipeline(
            ["a red ball on the beach", "a red cube on the beach"], height=side, width=side,
            num_inference_steps=STEPS + 2, generator=torch.Generator().manual_seed(0),
        )  # fmt: skip
    return calls[2:]


RIVALS: dict[str, tuple[str, Callable[..., Measured], Callable[..., Measured]]] = {
    "transformers' Trainer": ("train CLIP", PATHS["train CLIP"].run, train_by_trainer),
    "open_clip_train": ("train open_clip", PATHS["train open_clip"].run, train_by_open_clip),
    "diffusers' pipeline": (
        "prompt-to-prompt, a pair", partial(draw_sets, shares=(0.5,)), draw_by_diffusers
    ),
}  # fmt: skip
"""{library: our path, its function, and the library's}."""


def measure(run: Callable[..., Measured]) -> Counts:
    """Return the counts of the last stretch of a path, with the most waits of any."""
    with tempfile.TemporaryDirectory() as folder, audited_device() as audit:
        measured = run(Path(folder), audit)
    last = measured[-1]
    last.waits = max((counts.waits for counts in measured), key=lambda waits: waits.total())
    return last


def ratio(ours: int, theirs: int) -> str:
    """Return ours over theirs; without theirs, ours."""
    return f"{ours / theirs:.2f}" if theirs else f"{ours} to 0"


def main(argv: list[str]) -> int:
    """Count and print; 1 if a path is over its budget."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the quick paths, and no library")
    args = parser.parse_args(argv)
    over = []
    print(
        "| path | of | operations | copies there (bytes) | copies back | waits: ours "
        "| a library's | for |\n|---|---|---|---|---|---|---|---|"
    )
    for name, path in PATHS.items():
        if args.quick and path.slow:
            continue
        counts = measure(path.run)
        if counts.own_waits > path.waits or counts.library_waits > path.library:
            over.append(name)
        print(
            f"| {name} | {path.unit} | {counts.operations:,} | {counts.to_device} "
            f"({counts.sent:,}) | {counts.to_host} | {counts.own_waits} | "
            f"{counts.library_waits} | {path.reason} |",
            flush=True,
        )
    if not args.quick:
        print("\n| ours | against | operations | bytes allocated | copies there | bytes there "
              "| waits | theirs |\n|---|---|---|---|---|---|---|---|")  # fmt: skip
        for library, (name, run, rival) in RIVALS.items():
            ours, theirs = measure(run), measure(rival)
            parts = [
                ratio(getattr(ours, part), getattr(theirs, part))
                for part in ("operations", "allocated", "to_device", "sent")
            ]
            waits = f"{ours.waits.total()} to {theirs.waits.total()}"
            where = "; ".join(f"{count} {place}" for place, count in theirs.waits.items())
            print(f"| {name} | {library} | {' | '.join(parts)} | {waits} | {where} |", flush=True)
    if over:
        print("over their budget: " + ", ".join(over), file=sys.stderr)
    return bool(over)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
