"""A set of N images: SocialCounterfactuals' released way, and ours, with the same weights.

The released way generates N - 1 images in batches, two at a time by default, with the base again
in every batch; its last batch is padded with base rows that are discarded; every attention map is
stored in float32. Ours computes the base once per step; if a set has too many rows for one call,
further calls reuse the base's queries and keys. A third arm has the released batches with our
attention, which shows the gain from fewer rows alone. Rounds are interleaved, and ratios are within
a round. Decoding and scoring are not included.

    python benchmarks/sets.py                       # 12 images by the zoo's model, on a CPU
    python benchmarks/sets.py --images 28 --rows 16 # any set, on any memory
    python benchmarks/sets.py --device cuda         # Stable Diffusion's shape; random weights
    python benchmarks/sets.py --count               # calculated rows and memory of the paper's sets
    python benchmarks/sets.py --picture sets.png    # a set of each of four subjects of the world
    python benchmarks/sets.py --quick               # a check of a few seconds that it runs
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

from generation import SHAPES, Model, interval, machine
from inversion import timed
from written_down import Reference, WrittenDown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from cfaug.core.types import ImageJob

PAPER = {"race x gender": 12, "physical x gender": 28, "physical x race": 84}
P, GUIDANCE = 0.5, 7.5


def captions(count: int) -> list[str]:
    """Return the texts of a set: colour x background, the base first."""
    from cfaug.worlds.shapescapes.settings import COLOURS, PLACES, CaptionWording, Factors, caption

    every = product(COLOURS, PLACES)
    texts = [caption(Factors("ball", *both), CaptionWording()) for both in islice(every, count)]
    return texts + [f"{texts[0]} {number}" for number in range(count - len(texts))]


def released_batches(count: int, most: int) -> list[list[int]]:
    """Return a set's batches in the released code: the base begins and pads each batch.

    Args:
        count: the number of images of the set.
        most: the largest number of images beside the base in a batch (``--batch_size``).

    >>> released_batches(12, 2)[0], released_batches(12, 2)[-1], len(released_batches(12, 2))
    ([0, 1, 2], [0, 11, 0], 6)
    """
    batches = math.ceil((count - 1) / most)
    beside = math.ceil((count - 1 + batches) / batches) - 1
    cut = [list(range(first, min(first + beside, count))) for first in range(1, count, beside)]
    return [[0, *batch, *[0] * (beside - len(batch))] for batch in cut]


class Bench:
    """All ways over the same weights.

    Args:
        args: the arguments of the command line.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        from cfaug.imaging.prompt_to_prompt import PromptToPrompt

        self.args = args
        self.texts = captions(args.images)
        self.cut = released_batches(args.images, args.batch)
        maps = WrittenDown()
        loaded = self._weights("fp32").load()
        loaded.unet.set_attn_processor(maps)
        self.reference = Reference(loaded, maps, args.steps)
        self.ours = PromptToPrompt(self._weights(args.dtype), steps=args.steps, max_rows=args.rows)
        side = loaded.unet.config.sample_size
        self.shape = (loaded.unet.config.in_channels, side, side)

    def _weights(self, dtype: str) -> Any:
        from cfaug.imaging.model import DiffusionWeights

        options = {"dtype": dtype, "device": self.args.device}
        if self.args.weights in SHAPES:
            return Model(self.args.weights, **options, channels_last=False, compile=False)
        return DiffusionWeights(self.args.weights, **options)

    def job(self, members: Sequence[int], seed: int = 0) -> ImageJob:
        """Return a candidate for some of the set's texts."""
        from cfaug.core.types import Draw, Example, ImageJob, Proposal

        texts = tuple(self.texts[member] for member in members)
        proposal = Proposal(Example("k", "k", texts[:1]), texts, (None,) * len(texts))
        return ImageJob(proposal, Draw(seed, P, GUIDANCE))

    def released(self) -> Tensor:
        """Generate the set the released way; return its latents."""
        import torch

        from cfaug.imaging import schedules

        device = self.reference.loaded.device
        latents: dict[int, Tensor] = {}
        with torch.inference_mode():
            for batch in self.cut:
                address = [(0, 0)] * len(batch)
                drawn = self.reference.sample(
                    P, GUIDANCE,
                    lambda step, a=address: schedules.noise_batch(a, step, self.shape, device),
                    [self.texts[member] for member in batch],
                )  # fmt: skip
                latents |= dict(zip(reversed(batch), reversed(list(drawn)), strict=True))
        return torch.stack([latents[member] for member in range(self.args.images)])

    def released_rows(self) -> Tensor:
        """Generate the released batches with our attention; return the set's latents."""
        import torch

        latents: dict[int, Tensor] = {}
        for batch in self.cut:
            (drawn,) = self.ours.sample([self.job(batch)])
            latents |= dict(zip(reversed(batch), reversed(list(drawn)), strict=True))
        return torch.stack([latents[member] for member in range(self.args.images)])

    def whole(self) -> Tensor:
        """Generate the set our way; return its latents."""
        (drawn,) = self.ours.sample([self.job(range(self.args.images))])
        return drawn


def measure(bench: Bench) -> None:
    """Print each way's time, and the differences of their latents."""
    args = bench.args
    wanted, batches, whole = bench.released(), bench.released_rows(), bench.whole()
    apart = [
        float((latents.float() - wanted).norm() / wanted.norm()) for latents in (batches, whole)
    ]
    ours = bench.ours._diffusion.unet
    arms = {
        "the released way": (bench.released, bench.reference.loaded.unet),
        "its batches, our attention": (bench.released_rows, ours),
        "ours": (bench.whole, ours),
    }
    rounds: dict[str, list[tuple[float, int]]] = {name: [] for name in arms}
    order = list(arms.items())
    for repeat in range(args.repeats):
        shift = repeat % len(order)
        for name, (work, unet) in order[shift:] + order[:shift]:
            rounds[name].append(timed(work, unet, args.device))
    print(
        f"{machine(args.device)}; weights {args.weights}, {args.dtype}, {args.steps} steps, "
        f"{args.images} images, at most {args.rows} rows a call; latents differ from the released "
        f"way's by {apart[0]:.1e} and {apart[1]:.1e}, relatively\n"
    )
    print("| a set | seconds | images/s | rows a step | fewer rows | faster by (95 %) | than its "
          "batches by |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    first, second = rounds["the released way"], rounds["its batches, our attention"]
    for name, runs in rounds.items():
        seconds = statistics.median(s for s, _ in runs)
        rows, most = runs[0][1] / args.steps, first[0][1] / args.steps
        faster, than = (
            interval([a / b for (a, _), (b, _) in zip(theirs, runs, strict=True)])
            for theirs in (first, second)
        )
        print(f"| {name} | {seconds:.3g} | {args.images / seconds:.3g} | {rows:.0f} | "
              f"{most / rows:.2f} | {'1' if runs is first else faster} | "
              f"{than if name == 'ours' else ''} |")  # fmt: skip
    if args.device == "cuda":
        import torch

        print(f"\nmost memory held: {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")


def count(batch: int) -> None:
    """Print the rows of the paper's sets, and the size of the base's reused queries and keys."""
    import torch
    from diffusers import UNet2DConditionModel

    with torch.device("meta"):
        unet = UNet2DConditionModel(**SHAPES["sd15"])
    heads = sum(
        2 * layer.to_q.out_features * tokens
        for name, layer in unet.named_modules()
        if name.endswith("attn1")
        for tokens in [_tokens(name, 64)]
    )
    print("| set | images | rows a step, released | ours | fewer |\n|---|---|---|---|---|")
    for name, images in PAPER.items():
        released = 2 * sum(map(len, released_batches(images, batch)))
        print(f"| {name} | {images} | {released} | {2 * images} | {released / images / 2:.2f} |")
    print(
        f"\nA base lends its queries and keys, two rows of {heads * 2 / 1e6:.0f} MB in bf16 each, "
        "to the calls that follow in the same step, however many there are. To recompute it would "
        "take two more rows in each of them."
    )


def picture(file: Path, weights: str) -> None:
    """Write a picture of four sets of the embedded world in rows, with the base at the left."""
    import numpy as np
    from PIL import Image

    from cfaug.core.types import Draw, ImageJob
    from cfaug.editing.caption_grids import AttributeGrid, read_grid
    from cfaug.imaging.model import DiffusionWeights
    from cfaug.imaging.prompt_to_prompt import PromptToPrompt

    examples = {
        example.group: example for example in reversed(list(read_grid("shapescapes").examples()))
    }
    subjects = list(reversed(examples.values()))[:4]
    proposals = [edited.proposals[0] for edited in AttributeGrid().edit(subjects)]
    editor = PromptToPrompt(DiffusionWeights(weights), steps=12)
    drawn = editor.edit(
        [ImageJob(proposal, Draw(seed, 0.4, 3.0)) for seed, proposal in enumerate(proposals)]
    )
    rows = [np.concatenate(drawn_set.images, axis=1) for drawn_set in drawn]
    sheet = Image.fromarray(np.concatenate(rows))
    sheet.quantize(128, dither=Image.Dither.NONE).save(file, optimize=True)


def _tokens(name: str, side: int) -> int:
    """Return the number of positions of a self-attention layer of Stable Diffusion 1's UNet."""
    part, block, *_ = name.split(".")
    if part == "mid_block":
        return (side // 8) ** 2
    halvings = int(block) if part == "down_blocks" else 3 - int(block)
    return int((side // 2**halvings) ** 2)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--device", default="cpu", choices=["cpu", "cuda"])
    add("--weights", help="a folder, zoo:NAME, or a shape of random weights: sd15, tiny")
    add("--dtype", choices=["fp32", "bf16"], help="our dtype (fp32 on a CPU, bf16 on a GPU)")
    add("--steps", type=int, default=10, help="sampler steps (%(default)s; the paper: 100)")
    add("--images", type=int, default=12, help="images of the set (%(default)s)")
    add("--batch", type=int, default=2, help="the released code's images beside the base (2)")
    add("--rows", type=int, default=64, help="most rows of our UNet calls (%(default)s)")
    add("--repeats", type=int, default=5, help="number of rounds (%(default)s)")
    add("--threads", type=int, help="number of CPU threads")
    add("--count", action="store_true", help="count the paper's sets and time nothing")
    add("--picture", type=Path, help="draw four sets into this file and time nothing")
    add("--quick", action="store_true", help="five images, three steps, one round")
    args = parser.parse_args(argv)

    import torch

    if args.count:
        count(args.batch)
        return 0
    if args.picture:
        picture(args.picture, args.weights or "zoo:diffusion")
        return 0
    if args.quick:
        args.images, args.steps, args.repeats, args.rows = 5, 3, 1, 4
    args.dtype = args.dtype or ("bf16" if args.device == "cuda" else "fp32")
    args.weights = args.weights or ("sd15" if args.device == "cuda" else "zoo:diffusion")
    if args.threads:
        torch.set_num_threads(args.threads)
    measure(Bench(args))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
