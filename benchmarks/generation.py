"""Candidates per second: InstructPix2Pix's released engine and ours, with the same weights.

The reference generates one pair at a time: a UNet call of four rows that stores every attention map
and copies the base's logits over the edited image's, with float32 weights (under float16 autocast
on a GPU). Ours generates many candidates per call and stores no map. Rounds are interleaved, so
that a machine that slows down slows all; ratios are within a round. Decoding and scoring are not
included.

    python benchmarks/generation.py                        # the zoo's or a tiny model, on a CPU
    python benchmarks/generation.py --device cuda --compile   # Stable Diffusion 1.5's shape
    python benchmarks/generation.py --weights sd35_tiny       # or flux2_tiny: their layers, small
    python benchmarks/generation.py --device cuda --weights sd35   # or flux2: the published shapes

On a GPU the weights are random, as the time does not depend on their values. TFLOP/s counts the
reference's operations for the rows that were computed.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from written_down import TEXTS, Reference, WrittenDown

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from cfaug.imaging.model import Diffusion

ARMS = ("reference", "independent", "tree(4)")
SHAPES: dict[str, dict[str, Any]] = {
    "sd15": {"sample_size": 64, "cross_attention_dim": 768, "attention_head_dim": 8},
    "tiny": {
        "sample_size": 16,
        "block_out_channels": (32, 64, 112),
        "down_block_types": ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        "layers_per_block": 1,
        "norm_num_groups": 8,
        "cross_attention_dim": 64,
        "attention_head_dim": 2,
    },
}
JOINT = ("sd35", "sd35_tiny", "flux2", "flux2_tiny")
"""Shapes of ``joint_generation``."""
KINDS = {  # kind: parts of the names of its operators (CPU) and kernels (CUDA)
    "attention": ("scaled_dot_product", "flash", "fmha", "attention"),
    "convolution": ("conv", "winograd", "implicit", "dgrad", "fprop"),
    "matrix products": ("mm", "gemm", "linear", "cutlass", "matmul"),
    "norms": ("norm", "layer_norm"),
    "gathering and copies": ("index", "cat", "copy", "clone", "memcpy", "gather", "contiguous"),
}


def wait(device: str) -> None:
    """Wait until a device has finished its work."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


@dataclass(frozen=True)
class Model:
    """Random weights in place of a ``DiffusionWeights``: the same in both arms."""

    shape: str
    dtype: str
    device: str
    channels_last: bool
    compile: bool

    def load(self) -> Diffusion:
        """Return the model; each text is embedded as its own random numbers."""
        import torch
        from diffusers import AutoencoderKL, UNet2DConditionModel

        from cfaug.imaging.model import DTYPES, Diffusion

        class Texts(Diffusion):
            def encode(self, text: str) -> Tensor:
                """Return (77, width)."""
                stream = torch.Generator().manual_seed(sum(map(ord, text)))
                width = self.unet.config.cross_attention_dim
                drawn = torch.randn(77, width, generator=stream)
                return drawn.to(self.device, self.dtype)

        torch.manual_seed(0)
        layout = torch.channels_last if self.channels_last else torch.preserve_format
        unet = UNet2DConditionModel(**SHAPES[self.shape])
        dtype = getattr(torch, DTYPES[self.dtype])
        unet = unet.to(self.device, memory_format=layout).eval().requires_grad_(False)
        unet = unet if dtype == torch.float32 else unet.to(dtype)
        scheduler = {"num_train_timesteps": 1000, "beta_start": 0.00085, "beta_end": 0.012,
                     "beta_schedule": "scaled_linear"}  # fmt: skip
        return Texts(unet, AutoencoderKL(), None, None, scheduler, torch.device(self.device), dtype)

    def describe(self) -> dict[str, str]:
        """Return the name of the shape."""
        return {"diffusion": self.shape}


class Bench:
    """Both engines over the same weights."""

    ours: Any
    shape: tuple[int, int, int]
    device: torch.device

    def __init__(self, args: argparse.Namespace) -> None:
        from cfaug.imaging.model import DiffusionWeights
        from cfaug.imaging.prompt_to_prompt import PromptToPrompt

        def weights(dtype: str, layout: bool, compiled: bool) -> Any:
            options = {"dtype": dtype, "device": args.device, "channels_last": layout,
                       "compile": compiled}  # fmt: skip
            if args.weights in SHAPES:
                return Model(args.weights, **options)
            return DiffusionWeights(args.weights, **options)

        self.args = args
        self.ours = PromptToPrompt(
            weights(args.dtype, args.channels_last, args.compile),
            steps=args.steps, max_rows=args.rows, row_multiple=16 if args.compile else 2,
        )  # fmt: skip
        processor = WrittenDown()
        loaded = weights("fp32", False, False).load()
        loaded.unet.set_attn_processor(processor)
        self.reference = Reference(loaded, processor, args.steps)
        self.device = loaded.device
        side = loaded.unet.config.sample_size
        self.shape = (loaded.unet.config.in_channels, side, side)

    def jobs(self, count: int, branches: int) -> list[Any]:
        """Return candidates, ``branches`` for each seed."""
        from cfaug.core.rng import generator
        from cfaug.core.types import Draw, Example, ImageJob, Proposal

        jobs = []
        proposal = Proposal(Example("k", "k", TEXTS[:1]), TEXTS, (None,) * len(TEXTS))
        for seed in range(count // branches):
            stream = generator(seed, "benchmark")
            cfg = float(stream.uniform(7.5, 15))
            jobs += [
                ImageJob(proposal, Draw(seed, float(p), cfg))
                for p in stream.uniform(0.1, 0.9, branches)
            ]
        return jobs

    def latent_steps(self, jobs: list[Any]) -> int:
        """Return the number of latents that are denoised over all steps."""
        from cfaug.imaging.tree import plan

        return plan(jobs, self.args.steps).latent_steps(self.args.steps)

    def run(self, arm: str) -> tuple[float, int, int]:
        """Return seconds, candidates and UNet rows."""
        import torch

        jobs = self.jobs(self.args.candidates, 4 if arm == "tree(4)" else 1)
        if arm == "reference":
            jobs = jobs[: self.args.reference_candidates]
        wait(self.args.device)
        started = time.perf_counter()
        if arm == "reference":
            stream = torch.Generator(self.device).manual_seed(0)

            def noise(_: int) -> Tensor:
                drawn = torch.randn((1, *self.shape), generator=stream, device=self.device)
                return drawn.expand(2, -1, -1, -1)

            with torch.inference_mode():
                for job in jobs:
                    self.refer(job.draw.p, job.draw.cfg, noise)
        else:
            self.ours.sample(jobs)
        wait(self.args.device)
        return time.perf_counter() - started, len(jobs), 2 * self.latent_steps(jobs)

    def refer(self, p: float, cfg: float, noise: Callable[[int], Tensor]) -> Tensor:
        """Return the reference's pair; step -1 of ``noise`` is the initial noise of both images."""
        return self.reference.sample(p, cfg, noise)

    def difference(self) -> float:
        """Return the relative difference of the two engines' latents of a candidate."""
        import torch

        from cfaug.imaging import schedules

        (job,) = self.jobs(1, 1)

        def drawn(step: int) -> Tensor:
            return schedules.noise_batch([(job.draw.seed, 0)] * 2, step, self.shape, self.device)

        with torch.inference_mode():
            wanted = self.refer(job.draw.p, job.draw.cfg, drawn)
            latents = self.ours.sample([job])[0]
            return float((latents - wanted).norm() / wanted.norm())

    def flop_per_row(self) -> float:
        """Return the floating-point operations of one row of the UNet."""
        import torch
        from torch.utils.flop_counter import FlopCounterMode

        rows = torch.zeros(4, *self.shape, device=self.device)
        with torch.inference_mode(), FlopCounterMode(display=False) as counted:
            self.ask(rows)
        return counted.get_total_flops() / 4

    def ask(self, rows: Tensor) -> Tensor:
        """Call the reference's network once: both texts, without and with guidance."""
        import torch

        texts = torch.stack([self.reference.loaded.encode(text) for text in ("", "", *TEXTS)])
        return self.reference.call(rows, 500.0, texts)

    def peak(self) -> float:
        """Return the best FLOP/s of several products of large matrices, in our dtype."""
        import torch

        from cfaug.imaging.model import DTYPES

        side = 8192 if self.args.device == "cuda" else 1024
        dtype = getattr(torch, DTYPES[self.args.dtype])
        a = torch.randn(side, side, device=self.args.device, dtype=dtype)
        best = math.inf
        for _ in range(10):
            wait(self.args.device)
            started = time.perf_counter()
            a @ a
            wait(self.args.device)
            best = min(best, time.perf_counter() - started)
        return 2 * side**3 / best

    def breakdown(self) -> dict[str, float]:
        """Return the shares of an independent run's time by kind of work."""
        from torch.profiler import ProfilerActivity, profile

        cuda = self.args.device == "cuda"
        chosen = [ProfilerActivity.CUDA] if cuda else [ProfilerActivity.CPU]
        with profile(activities=chosen) as profiled:
            seconds, _, _ = self.run("independent")
        spent: dict[str, float] = {}
        for event in profiled.key_averages():
            micro = event.self_device_time_total if cuda else event.self_cpu_time_total
            name = event.key.lower()
            kind = next((k for k, parts in KINDS.items() if any(p in name for p in parts)), None)
            spent[kind or "other operators"] = spent.get(kind or "other operators", 0) + micro / 1e6
        busy = sum(spent.values())
        spent["between operators (Python, launches)"] = max(0.0, seconds - busy)
        total = sum(spent.values())
        return {kind: value / total for kind, value in spent.items()}


def machine(device: str) -> str:
    """Return the name of the machine."""
    import torch

    versions = f"python {platform.python_version()}, torch {torch.__version__}"
    if device == "cuda":
        return f"{torch.cuda.get_device_name()}, {versions}"
    info = (
        Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    )
    models = [line.split(":")[1].strip() for line in info.splitlines() if "model name" in line]
    name = models[0] if models else platform.processor() or platform.machine()
    load = f"load average {os.getloadavg()[0]:.1f}"
    return f"{name}, {torch.get_num_threads()} threads, {load}, {versions}"


def interval(ratios: list[float]) -> str:
    """Return the geometric mean of ratios and its 95 % interval (Student's t on logarithms)."""
    import numpy as np
    from scipy import stats

    logs = np.log(ratios)
    if len(logs) < 2:
        return f"{ratios[0]:.2f}"
    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs))
    low, high = np.exp([logs.mean() - half, logs.mean() + half])
    return f"{np.exp(logs.mean()):.2f} ({low:.2f} to {high:.2f})"


def report(bench: Bench, args: argparse.Namespace) -> None:
    import statistics

    for arm in ARMS:
        bench.run(arm)  # compiles and allocates
    measured: dict[str, list[tuple[float, int, int]]] = {arm: [] for arm in ARMS}
    for repeat in range(args.repeats):
        for arm in ARMS[repeat % 3 :] + ARMS[: repeat % 3]:
            measured[arm].append(bench.run(arm))
    flop, peak = bench.flop_per_row(), bench.peak()
    print(
        f"{machine(args.device)}; weights {args.weights}, {args.dtype}, {args.steps} steps, at "
        f"most {args.rows} rows a call; {flop / 1e9:.2f} GFLOP a row; matrix products reach "
        f"{peak / 1e12:.3g} TFLOP/s; a candidate differs by {bench.difference():.1e}, relatively\n"
    )
    print("| engine | candidates/s | rows/s | TFLOP/s | of peak | faster per candidate by (95 %) |")
    print("|---|---|---|---|---|---|")
    rates = {arm: [count / s for s, count, _ in runs] for arm, runs in measured.items()}
    for arm, runs in measured.items():
        rows = statistics.median(n / s for s, _, n in runs)
        ratio = [a / b for a, b in zip(rates[arm], rates["reference"], strict=True)]
        print(f"| {arm} | {statistics.median(rates[arm]):.3g} | {rows:.0f} | "
              f"{rows * flop / 1e12:.3g} | {rows * flop / peak:.0%} | "
              f"{'1' if arm == 'reference' else interval(ratio)} |")  # fmt: skip
    print("\n| where an independent run's time goes | share |\n|---|---|")
    for kind, share in sorted(bench.breakdown().items(), key=lambda item: -item[1]):
        print(f"| {kind} | {share:.0%} |")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--device", default="cpu", choices=["cpu", "cuda"])
    add(
        "--weights",
        help="a folder, zoo:NAME, or a shape of random weights: sd15, tiny, " + ", ".join(JOINT),
    )
    add(
        "--dtype",
        choices=["fp32", "bf16", "fp16"],
        help="number format of ours (fp32 on a CPU, bf16 on a GPU)",
    )
    add("--steps", type=int, default=10, help="sampler steps (%(default)s; the paper: 100)")
    add(
        "--candidates",
        type=int,
        help="candidates of ours per round, a multiple of 4 (8; on a GPU 16)",
    )
    add(
        "--reference-candidates",
        type=int,
        default=2,
        help="candidates of the reference per round (%(default)s)",
    )
    add("--rows", type=int, default=64, help="most rows of a UNet call (%(default)s)")
    add("--repeats", type=int, default=5, help="number of rounds (%(default)s)")
    add("--threads", type=int, help="number of CPU threads")
    add("--channels-last", action="store_true")
    add("--compile", action="store_true")
    args = parser.parse_args(argv)

    import torch

    cuda = args.device == "cuda"
    args.candidates = args.candidates or (16 if cuda else 8)
    args.dtype = args.dtype or ("bf16" if cuda else "fp32")
    shipped = Path(__file__).parents[1] / "cfaug/weights/diffusion"
    args.weights = args.weights or (
        "sd15" if cuda else "zoo:diffusion" if shipped.exists() else "tiny"
    )
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.weights in JOINT:
        from joint_generation import JointBench

        report(JointBench(args), args)
    else:
        report(Bench(args), args)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
