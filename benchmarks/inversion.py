"""Editing a photo: LANCE's way, one photo and one f at a time, and ours, with equal weights.

LANCE inverts by null-text optimisation, then samples source and edit again for every share f of the
steps with the source's self-attention. Ours inverts directly and samples the edits of all f as a
tree that attends to one source, with the attention that the inversion has computed. Null-text
inversion itself is also timed: LANCE's code, and ours for one photo at a time and for many at once.
Rounds are interleaved, and ratios are within a round. Decoding and scoring are not included. A
row-step is a forward pass of one row of the UNet; a backward pass counts as one more, or as two if
gradients of the weights are computed as well.

    python benchmarks/inversion.py                       # the zoo's model, on a CPU
    python benchmarks/inversion.py --count                # Stable Diffusion 1.4's shape, calculated
    python benchmarks/inversion.py --device cuda          # the same, timed; random weights
    python benchmarks/inversion.py --quick                # a check of a few seconds that it runs
"""

from __future__ import annotations

import argparse
import io
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

from generation import SHAPES, Model, interval, machine, wait
from null_text import Control, PaperWay

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from cfaug.core.types import ImageJob

TEXTS = ("a red ball on the beach", "a blue ball on the beach")
SHARES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
GUIDANCE = 7.5
SD14_VAE = {
    "block_out_channels": (128, 256, 512, 512), "layers_per_block": 2, "latent_channels": 4,
    "down_block_types": ("DownEncoderBlock2D",) * 4, "up_block_types": ("UpDecoderBlock2D",) * 4,
}  # fmt: skip


@dataclass(frozen=True)
class Photo:
    """A photo in memory."""

    content: bytes
    digest: str

    def read(self) -> bytes:
        """Return the encoded file."""
        return self.content


class RandomWeights(Model):
    """A model of random weights, with an autoencoder for photos."""

    def load(self) -> Any:
        """Return the model; tokens are the zoo's, padded to the texts' length."""
        from dataclasses import replace

        from diffusers import AutoencoderKL
        from transformers import CLIPTokenizer

        from cfaug.imaging.model import load_tools, resolve

        loaded = super().load()
        tokenizer = load_tools(CLIPTokenizer, resolve("zoo:diffusion", None, ()) / "tokenizer")
        tokenizer.model_max_length = 77
        vae = AutoencoderKL(**(SD14_VAE if self.shape == "sd15" else {}))
        vae = vae.to(loaded.device, loaded.dtype).eval().requires_grad_(False)
        return replace(loaded, vae=vae.to(loaded.dtype), tokenizer=tokenizer)


class Rows:
    """A counter of the row-steps of a UNet that it is attached to."""

    def __init__(self, unet: Any) -> None:
        self.count = 0
        self._unet = unet
        self._hook = unet.register_forward_pre_hook(self._add, with_kwargs=True)

    def _add(self, unet: Any, args: tuple[Tensor, ...], said: dict[str, Any]) -> None:
        import torch

        backwards = 0
        if torch.is_grad_enabled() and said["encoder_hidden_states"].requires_grad:
            backwards = 2 if next(unet.parameters()).requires_grad else 1
        self.count += len(args[0]) * (1 + backwards)

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()


def timed(work: Callable[[], Any], unet: Any, device: str) -> tuple[float, int]:
    """Return the seconds and the UNet's row-steps of a call."""
    wait(device)
    with Rows(unet) as rows:
        started = time.perf_counter()
        work()
        wait(device)
        return time.perf_counter() - started, rows.count


class Bench:
    """Both ways over the same weights."""

    def __init__(self, args: argparse.Namespace) -> None:
        from cfaug.imaging.cross_attention import CrossAttention
        from cfaug.imaging.inversion import NullText
        from cfaug.imaging.photo_editing import InvertAndEdit

        self.args = args
        paper = self._weights("fp32").load()
        self.paper = PaperWay(paper, args.steps, args.inner_steps)
        self.direct = InvertAndEdit(
            self._weights(args.dtype), steps=args.steps, max_rows=args.rows,
            cross=CrossAttention("refine", 0.8, edited_weight=2.0),
        )  # fmt: skip
        self.null_text = {
            rows: InvertAndEdit(
                self._weights("fp32"), steps=args.steps, max_rows=args.rows,
                inversion=NullText(inner_steps=args.inner_steps, max_rows=rows),
            )
            for rows in (1, args.photos)
        }  # fmt: skip
        self.photos = [self._draw(seed) for seed in range(args.photos)]

    def _weights(self, dtype: str) -> Any:
        from cfaug.imaging.model import DiffusionWeights

        options = {"dtype": dtype, "device": self.args.device}
        if self.args.weights in SHAPES:
            return RandomWeights(self.args.weights, **options, channels_last=False, compile=False)
        return DiffusionWeights(self.args.weights, **options)

    def _draw(self, seed: int) -> Photo:
        from cfaug.worlds.shapescapes.drawing import Scene, render
        from cfaug.worlds.shapescapes.settings import STYLES, Factors

        buffer = io.BytesIO()
        scene = Scene(Factors("ball", "red", "beach"), seed)
        image = render(scene, 64, STYLES["clear"]).image()
        image.resize((self.direct._side,) * 2).save(buffer, "PNG")
        return Photo(buffer.getvalue(), str(seed))

    def jobs(self, photos: int) -> list[ImageJob]:
        """Return one edit for each of some photos, for every f."""
        from cfaug.core.types import Draw, Example, ImageJob, Proposal

        jobs = []
        for photo in self.photos[:photos]:
            example = Example(photo.digest, "g", TEXTS[:1], photo)
            proposal = Proposal(example, TEXTS, (None, None))
            jobs += [ImageJob(proposal, Draw(0, f, GUIDANCE)) for f in SHARES]
        return jobs

    def encoded(self, photo: Photo) -> tuple[Tensor, Tensor, Tensor]:
        """Return latents (channels, height, width), texts (2, tokens, width) and the empty text."""
        import numpy as np
        import torch

        loaded = self.paper.loaded
        (job, *_) = self.jobs(1)
        shown = torch.from_numpy(np.array(self.direct._prepare(_with(job, photo))))
        with torch.no_grad():
            texts = torch.stack([loaded.encode(text) for text in TEXTS])
            pixels = shown.permute(2, 0, 1).float() / 255
            return loaded.encode_image(pixels), texts, loaded.encode("")

    def control(self) -> Control:
        """Return prompt-to-prompt's control: refinement, with doubled weight for edited words."""
        import torch

        from cfaug.imaging.cross_attention import CrossAttention, refine_alignment, tokenize

        loaded = self.paper.loaded
        base, edited = (tokenize(loaded.tokenizer, text) for text in TEXTS)
        aligned = torch.from_numpy(refine_alignment(base, edited)).to(loaded.device)
        weight = CrossAttention("refine", edited_weight=2.0).factors(base, edited)
        return Control(
            aligned.clamp(min=0), (aligned >= 0).float(),
            torch.from_numpy(weight).float().to(loaded.device),
        )  # fmt: skip

    def invert_paper(self, photos: int) -> list[Any]:
        """Invert photos one by one, LANCE's way."""
        inversions = []
        for photo in self.photos[:photos]:
            clean, texts, empty = self.encoded(photo)
            inversions.append(self.paper.invert(clean, texts[0], empty, GUIDANCE))
        return inversions

    def edit_paper(self) -> Tensor:
        """Edit one photo LANCE's way; return the edits for every f."""
        import torch

        _, texts, _ = self.encoded(self.photos[0])
        [(start, empties)] = self.invert_paper(1)
        self.paper.maps.control = self.control()
        drawn = [self.paper.edit(start, texts, empties, GUIDANCE, f)[1] for f in SHARES]
        return torch.stack(drawn)

    def edit_ours(self, editor: Any, photos: int = 1) -> Tensor:
        """Return the edits of photos for every f."""
        jobs = self.jobs(photos)
        shown = {job.image.digest: editor._prepare(job) for job in jobs if job.image is not None}
        tree, latents = editor._denoise(jobs, shown)
        return latents[[edited for _, edited in tree.jobs]]

    def invert_ours(self, rows: int, photos: int) -> Any:
        """Invert photos by null-text optimisation, at most ``rows`` at a time."""
        import torch

        from cfaug.imaging.tree import plan_edits

        editor = self.null_text[rows]
        jobs = self.jobs(photos)[:: len(SHARES)]
        shown = {job.image.digest: editor._prepare(job) for job in jobs if job.image is not None}
        with torch.no_grad():
            return editor._invert(plan_edits(jobs, self.args.steps, by_guidance=True), shown)


def _with(job: ImageJob, photo: Photo) -> ImageJob:
    from dataclasses import replace

    example = replace(job.proposal.example, image=photo)
    return replace(job, proposal=replace(job.proposal, example=example))


def measure(bench: Bench) -> None:
    """Print both tables."""
    args = bench.args
    unet = bench.paper.loaded.unet
    ours = bench.direct._diffusion.unet
    edits = {
        "LANCE's way": lambda: timed(bench.edit_paper, unet, args.device),
        "direct, tree": lambda: timed(lambda: bench.edit_ours(bench.direct), ours, args.device),
    }
    many = args.photos
    arms = {
        "one at a time, LANCE's way": lambda: timed(
            lambda: bench.invert_paper(many), unet, args.device
        ),
        "one at a time, ours": lambda: timed(
            lambda: bench.invert_ours(1, many), bench.null_text[1]._diffusion.unet, args.device
        ),
        "together, ours": lambda: timed(
            lambda: bench.invert_ours(many, many),
            bench.null_text[many]._diffusion.unet,
            args.device,
        ),
    }
    bench.edit_ours(bench.direct)  # allocates memory
    rounds = {name: [] for name in (*edits, *arms)}
    order = [*edits.items(), *arms.items()]
    for repeat in range(args.repeats):
        shift = repeat % len(order)
        for name, run in order[shift:] + order[:shift]:
            rounds[name].append(run())
            if args.device == "cuda" and name == "direct, tree" and not repeat:
                print_memory()
    wanted, edited = bench.edit_paper(), bench.edit_ours(bench.null_text[1])
    apart = float((edited.float() - wanted).norm() / wanted.norm())
    print(
        f"{machine(args.device)}; weights {args.weights}, {args.steps} steps; null-text made "
        f"{sum(bench.paper.updates)} updates of at most {args.steps * args.inner_steps}; with the "
        f"same inversion our edits differ by {apart:.1e}, relatively\n"
    )
    table("one edit, six f", edits, rounds, 1)
    print()
    table(f"null-text inversion of {many} photos", arms, rounds, many)


def table(title: str, arms: Any, rounds: dict[str, list[tuple[float, int]]], photos: int) -> None:
    """Print a row for each arm; ratios are to the first."""
    print(f"| {title} | seconds a photo | row-steps a photo | fewer | faster by (95 %) |")
    print("|---|---|---|---|---|")
    first = rounds[next(iter(arms))]
    for name in arms:
        seconds = statistics.median(s for s, _ in rounds[name]) / photos
        rows = statistics.median(n for _, n in rounds[name]) / photos
        fewer = statistics.median(n for _, n in first) / photos / rows
        ratio = [a / b for (a, _), (b, _) in zip(first, rounds[name], strict=True)]
        print(f"| {name} | {seconds:.3g} | {rows:.0f} | {fewer:.2f} | {interval(ratio)} |")


def print_memory() -> None:
    """Print the GPU's peak memory."""
    import torch

    print(f"most memory so far: {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB\n")


def count(steps: int) -> None:
    """Print the calculated cost of Stable Diffusion 1.4's shape, without its weights."""
    import torch
    from diffusers import UNet2DConditionModel
    from torch.utils.flop_counter import FlopCounterMode

    from cfaug.core.types import Draw, Example, ImageJob, Proposal
    from cfaug.imaging.tree import plan_edits

    with torch.device("meta"):
        unet = UNet2DConditionModel(**SHAPES["sd15"])
        latents, texts = torch.zeros(1, 4, 64, 64), torch.zeros(1, 77, 768)
        with torch.no_grad(), FlopCounterMode(display=False) as counted:
            unet(latents, torch.zeros(1), encoder_hidden_states=texts)
    flop = counted.get_total_flops()
    weights = sum(weight.numel() for weight in unet.parameters())
    print(f"a UNet of {weights / 1e6:.0f} million weights ({weights * 2 / 2**30:.1f} GiB in bf16), "
          f"{flop / 1e12:.3f} TFLOP a row\n")  # fmt: skip
    print(
        "| edits of a photo | LANCE's way, at most | direct, tree | fewer | TFLOP an edit, ours |"
    )
    print("|---|---|---|---|---|")
    for edits in (1, 2, 4, 8):
        example = Example("k", "k", TEXTS[:1], Photo(b"", "0"))
        jobs = [
            ImageJob(Proposal(example, (TEXTS[0], f"edit {k}"), (None, None)), Draw(0, f, GUIDANCE))
            for k in range(edits)
            for f in SHARES
        ]
        tree = plan_edits(jobs, steps, remembered=True, controlled=lambda _: int(0.8 * (steps + 1)))
        # One row more than steps: the source's own attention at pure noise.
        ours = steps + 1 + tree.row_steps()
        # A forward pass, and a backward one through weights that require gradients: 1 + 2 rows.
        paper = steps + steps * (3 + 10 * 3) + len(SHARES) * steps * 2 * (1 + edits)
        cost = ours * flop / edits / 1e12
        print(f"| {edits} | {paper} | {ours} | {paper / ours:.2f} | {cost:.0f} |")
    kept = (steps + 1) * 4 * 64 * 64 * 4 / 2**20
    more = steps * 77 * 768 * 4 / 2**20
    print(
        f"\nA direct inversion is {kept:.1f} MiB, and null-text's {kept + more:.1f} MiB, beside "
        "the source's attention, for as long as its photo is edited."
    )


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--device", default="cpu", choices=["cpu", "cuda"])
    add("--weights", help="a folder, zoo:NAME, or a shape of random weights: sd15, tiny")
    add(
        "--dtype",
        choices=["fp32", "bf16"],
        help="number format of direct edits (fp32 on a CPU, bf16 on a GPU)",
    )
    add("--steps", type=int, default=50, help="number of DDIM steps (%(default)s)")
    add("--inner-steps", type=int, default=10, help="most null-text updates per step (%(default)s)")
    add("--photos", type=int, default=4, help="null-text inversions per round (%(default)s)")
    add("--rows", type=int, default=64, help="most rows of a UNet call (%(default)s)")
    add("--repeats", type=int, default=3, help="number of rounds (%(default)s)")
    add("--threads", type=int, help="number of CPU threads")
    add("--count", action="store_true", help="count Stable Diffusion 1.4's cost and time nothing")
    add("--quick", action="store_true", help="two photos, four steps, one round")
    args = parser.parse_args(argv)

    import torch

    if args.count:
        count(args.steps)
        return 0
    if args.quick:
        args.steps, args.inner_steps, args.photos, args.repeats = 4, 2, 2, 1
    args.dtype = args.dtype or ("bf16" if args.device == "cuda" else "fp32")
    args.weights = args.weights or ("sd15" if args.device == "cuda" else "zoo:diffusion")
    if args.threads:
        torch.set_num_threads(args.threads)
    measure(Bench(args))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
