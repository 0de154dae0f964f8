"""The speed of answering questions about images: shared encodings against a sequence per option.

"one option" is lmms-eval's way: a sequence of image, question and option for each option, one at a
time, with the image processed and encoded each time. "shared" is ``VisionLanguageModel`` as
``benchmark=vqa`` uses it: an image is read once for its questions, and a question once for its
options, in batches. Both score the same options of the same tiny model (checked, 1e-3). Rounds are
interleaved; the ratio is the geometric mean over rounds with Student's 95 % interval on its
logarithm. Weights are random, and pictures noise: times do not depend on them.

    python benchmarks/answering.py
    python benchmarks/answering.py --families llava qwen2_vl --images 64 --rounds 7
    python benchmarks/answering.py --device cuda
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from generation import interval, machine
from PIL import Image

from cfaug.core.answers import Question
from cfaug.core.rng import generator
from cfaug.models.vision_language import VisionLanguageModel

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

PROMPT = "Question: {question} Answer:"
PROMPTED = ("blip_2", "blip_2_t5", "instructblip", "instructblip_t5")
FAMILIES = ("llava", "qwen2_vl", "idefics3", "internvl", *PROMPTED)
CLOSE = 1e-3

BASIC = "How many dogs are there in the picture?"
CONDITIONS = ("two of them ran away", "another dog came", "all of them were cats",
              "the picture showed twice as many")  # fmt: skip
OPTIONS = ("two dogs", "three dogs", "none of them", "four dogs and a cat")

Scores = list[float]


def draw_images(count: int) -> list[Image.Image]:
    """Return pictures of noise."""
    draw = generator(0, "pictures")
    return [
        Image.fromarray(draw.integers(0, 256, (48, 64, 3), dtype=np.uint8)) for _ in range(count)
    ]


def ask_questions(options: int) -> list[Question]:
    """Return a basic question and four counterfactual ones, as for each image of CFMM."""
    texts = [BASIC, *(f"If {condition}, how many dogs would there be?" for condition in CONDITIONS)]
    return [Question(text, OPTIONS[:options]) for text in texts]


def shared(
    model: VisionLanguageModel, images: Sequence[Image.Image], questions: Sequence[Question], n: int
) -> Scores:
    """Answer in batches of n images."""
    scores: Scores = []
    for start in range(0, len(images), n):
        some = images[start : start + n]
        for answers in model.answer(some, [questions] * len(some)):
            scores += [score.nll for answer in answers for score in answer.scores]
    return scores


def one_option(
    model: VisionLanguageModel, images: Sequence[Image.Image], questions: Sequence[Question]
) -> Scores:
    """Score one sequence per option, without sharing anything."""
    scores: Scores = []
    for image in images:
        for question in questions:
            for option in question.options:
                alone = Question(question.text, (option,))
                [[answered]] = model.answer([image], [[alone]])
                scores.append(answered.scores[0].nll)
    return scores


def time_rounds(arms: dict[str, Callable[[], Scores]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of every round; arms are interleaved in alternating order."""
    expected = {name: arm() for name, arm in arms.items()}  # also allocates memory
    first, second = expected.values()
    if not np.allclose(first, second, rtol=CLOSE, atol=CLOSE):
        raise SystemExit(f"scores differ by {np.abs(np.subtract(first, second)).max()}")
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    names = list(arms)
    for number in range(rounds):
        for name in names if number % 2 else reversed(names):
            began = time.perf_counter()
            arms[name]()
            seconds[name].append(time.perf_counter() - began)
    return seconds


def measure(family: str, args: argparse.Namespace, folder: Path) -> str:
    """Return a line of the table for a family."""
    from tests.models.tiny_vlm import SAVERS

    SAVERS[family](folder / family)
    settings = {"prompt": PROMPT if family in PROMPTED else None}
    ours = VisionLanguageModel.load(folder / family, **settings).to(args.device)
    theirs = VisionLanguageModel.load(folder / family, sharing="none", **settings)
    theirs = theirs.to(args.device)
    images, questions = draw_images(args.images), ask_questions(args.options)
    seconds = time_rounds(
        {
            "shared": lambda: shared(ours, images, questions, args.batch),
            "one option": lambda: one_option(theirs, images, questions),
        },
        args.rounds,
    )
    if not ours.shares[True]:
        return f"| {family} | cannot share: read whole | | |"
    each = {name: statistics.median(times) / args.images * 1000 for name, times in seconds.items()}
    pairs = zip(seconds["one option"], seconds["shared"], strict=True)
    ratio = interval([slow / fast for slow, fast in pairs])
    return f"| {family} | {each['one option']:.0f} | {each['shared']:.1f} | {ratio} |"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--options", type=int, default=2, choices=range(2, len(OPTIONS) + 1))
    parser.add_argument("--batch", type=int, default=12, help="images in a batch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args(argv)
    import torch

    torch.set_num_threads(args.threads)
    print(
        f"{machine(args.device)}; {args.images} images x 5 questions x {args.options} options, "
        f"{args.batch} images a batch, {args.rounds} interleaved rounds"
    )
    print("| family | one option (ms an image) | shared (ms an image) | faster by (95 %) |")
    print("|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for family in args.families:
            print(measure(family, args, Path(folder)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
