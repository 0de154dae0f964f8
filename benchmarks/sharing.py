"""What sharing attention adds to sharing noise: Figure 2 of the paper, in ShapeScapes.

    python benchmarks/sharing.py                       # about 10 minutes on one core
    python benchmarks/sharing.py --pairs 20 --out /tmp/sharing
    python benchmarks/sharing.py --device cuda

The zoo's Stable Diffusion generates pairs for full captions that differ in the subject, with
independent noise, with the same noise (p = 0), and with attention shared for a share p of the
steps; the oracle re-renders them for comparison. The zoo's judge recognises a picture's factors,
the zoo's tiny CLIP (ours, not OpenAI's) gives the directional similarity, and the preservation of
the background is measured outside a box around both subjects, found by the subject's colour.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from scipy import ndimage

from cfaug.core.rng import derive, generator
from cfaug.core.types import Draw, Example, ImageJob, Proposal
from cfaug.imaging.clip import ClipScorer
from cfaug.imaging.model import DiffusionWeights
from cfaug.imaging.select import direction
from cfaug.models.specs import HFClip
from cfaug.worlds.shapescapes.drawing import Scene, render
from cfaug.worlds.shapescapes.judge import Judge, load_judge
from cfaug.worlds.shapescapes.settings import (
    COLOURS,
    PLACES,
    STYLES,
    SUBJECTS,
    CaptionWording,
    Factors,
    caption,
    edit_factors,
)

SHARES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)
SIZE = 64
CHUNK = 5
SHOWN = 7
LIGHT = np.linspace(0.75, 1.25, 7)
TEXTURE = np.linspace(-0.16, 0.16, 7)
NEAR = 0.12
Pixels = NDArray[np.uint8]
Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class Pair:
    """A requested pair: a scene, the same scene with another subject, and the seed of both."""

    source: Factors
    target: Factors
    seed: int

    def texts(self) -> tuple[str, str]:
        """Return the two full captions."""
        return caption(self.source, CaptionWording()), caption(self.target, CaptionWording())


def _proposal(texts: tuple[str, str]) -> Proposal:
    return Proposal(Example("pair", "pair", texts[:1]), texts, (None, None))


@dataclass(frozen=True)
class Arm:
    """One way of making the pairs: its name and uint8 pixels (pairs, 2, 3, 64, 64)."""

    name: str
    pixels: Pixels


def draw_pairs(seed: int, count: int) -> list[Pair]:
    """Draw subject swaps with independent and uniform factors."""
    pairs = []
    for i in range(count):
        rng = generator(seed, "sharing", i)
        before, after = rng.choice(len(SUBJECTS), 2, replace=False)
        colour, place = rng.choice(list(COLOURS)), rng.choice(list(PLACES))
        source = Factors(SUBJECTS[before], str(colour), str(place))
        target = edit_factors(source, "subject", SUBJECTS[after])
        pairs.append(Pair(source, target, derive(seed, "sharing", i, "noise") % 2**32))
    return pairs


def oracle(pairs: Sequence[Pair]) -> Arm:
    """Render the pairs with the world's own code."""
    look = STYLES["clear"]
    pixels = [
        [render(Scene(shown, pair.seed), SIZE, look).pixels for shown in (pair.source, pair.target)]
        for pair in pairs
    ]
    return Arm("oracle re-rendering", np.array(pixels).transpose(0, 1, 4, 2, 3))


def generate(
    pairs: Sequence[Pair],
    model: DiffusionWeights,
    noise: str,
    shares: Sequence[float],
    *,
    steps: int,
    cfg: float,
) -> list[Pixels]:
    """Generate the pairs for every share, each uint8 (pairs, 2, 3, 64, 64)."""
    from rich.console import Console
    from rich.progress import track

    from cfaug.imaging.prompt_to_prompt import PromptToPrompt

    editor = PromptToPrompt(model, steps=steps, noise=noise)
    by_share: list[list[Pixels]] = [[] for _ in shares]
    starts = range(0, len(pairs), CHUNK)
    for start in track(starts, f"{noise} noise", console=Console(stderr=True)):
        part = pairs[start : start + CHUNK]
        # The shares of a pair are adjacent, so that the editor generates their common source once.
        jobs = [
            ImageJob(_proposal(pair.texts()), Draw(pair.seed, p, cfg))
            for pair in part
            for p in shares
        ]
        for i, latents in enumerate(editor.sample(jobs)):
            images = (editor.decode(latents) * 255).round().byte().cpu().numpy()
            by_share[i % len(shares)].append(images)
    return [np.stack(rows) for rows in by_share]


def colour_box(pixels: Pixels, colour: str) -> Box | None:
    """Return the box of a coloured subject and its shadow: top, left, bottom, right.

    A pixel has the colour if it is near it under some light and texture; the largest patch of such
    pixels, with small gaps closed, is the subject. ``None`` if there is none.
    """
    picture = pixels.transpose(1, 2, 0).astype(np.float64) / 255
    base = np.array(COLOURS[colour]) / 255
    # Texture is added before light is multiplied: a grid over both, in the world's ranges.
    looks = np.array([s * (base + t) for s in LIGHT for t in TEXTURE]).clip(0, 1)
    near = np.linalg.norm(picture[:, :, None] - looks, axis=3).min(axis=2) < NEAR
    closed = ndimage.binary_closing(near, iterations=2, border_value=0)
    patches, count = ndimage.label(closed)
    if count == 0:
        return None
    sizes = ndimage.sum_labels(closed, patches, range(1, count + 1))
    rows, columns = np.nonzero(patches == 1 + int(np.argmax(sizes)))
    # The shadow falls a sixteenth of the side to the right and below.
    reach = SIZE // 16 + 2
    return (
        max(0, int(rows.min()) - 2),
        max(0, int(columns.min()) - 2),
        min(SIZE, int(rows.max()) + 1 + reach),
        min(SIZE, int(columns.max()) + 1 + reach),
    )


def measurable(scenes: int) -> set[tuple[str, str]]:
    """Return the colours and backgrounds for which the box is right on the world's own scenes.

    It is right if, in nine of ten scenes, it contains all pixels that the subject touches, and is
    at most half as large again as the tightest such box. (It fails for a blue subject in the
    water.)
    """
    kept = set()
    for colour, place in product(COLOURS, PLACES):
        right = 0
        for i in range(scenes):
            factors = Factors(SUBJECTS[i % len(SUBJECTS)], colour, place)
            shown = render(Scene(factors, derive(0, "measurable", i)), SIZE, STYLES["clear"])
            box = colour_box(shown.pixels.transpose(2, 0, 1), colour)
            right += box is not None and _holds(box, shown.touched)
        if right >= 0.9 * scenes:
            kept.add((colour, place))
    return kept


def _holds(box: Box, touched: NDArray[np.bool_]) -> bool:
    top, left, bottom, right = box
    rows, columns = np.nonzero(touched)
    tight = (np.ptp(rows) + 1) * (np.ptp(columns) + 1)
    inside = touched[top:bottom, left:right].sum()
    return bool(inside == touched.sum() and (bottom - top) * (right - left) <= 1.5 * tight)


def outside(pixels: Pixels, colour: str) -> float:
    """Return the mean absolute difference (of 255) outside the boxes of both pictures.

    It is nan if less than a tenth of the picture is outside, or a subject is not found.
    """
    kept = np.ones((SIZE, SIZE), dtype=bool)
    for picture in pixels:
        box = colour_box(picture, colour)
        if box is None:
            return float("nan")
        kept[box[0] : box[2], box[1] : box[3]] = False
    if kept.mean() < 0.1:
        return float("nan")
    difference = np.abs(pixels[0].astype(int) - pixels[1])
    return float(difference[:, kept].mean())


@dataclass(frozen=True)
class Row:
    """An arm's measurements, one number per pair; nan if a pair is not measurable."""

    name: str
    target: NDArray[np.float64]
    every: NDArray[np.float64]
    direction: NDArray[np.float64]
    outside: NDArray[np.float64]


def measure(
    arm: Arm, pairs: Sequence[Pair], where: set[tuple[str, str]], judge: Judge, scorer: ClipScorer
) -> Row:
    """Measure an arm's pairs."""
    import torch

    sources, targets = (judge.factors(arm.pixels[:, side]) for side in (0, 1))
    floats = torch.from_numpy(arm.pixels).float() / 255
    before, after = (scorer.images(floats[:, side]) for side in (0, 1))
    said, edited = (scorer.texts([pair.texts()[side] for pair in pairs]) for side in (0, 1))
    along, _ = direction(before, after, said, edited)
    kept = [
        outside(pixels, pair.source.colour)
        if (pair.source.colour, pair.source.background) in where
        else float("nan")
        for pixels, pair in zip(arm.pixels, pairs, strict=True)
    ]
    three = list(zip(sources, targets, pairs, strict=True))
    return Row(
        arm.name,
        np.array([float(t.subject == p.target.subject) for _, t, p in three]),
        np.array([float(s == p.source and t == p.target) for s, t, p in three]),
        along.double().numpy(),
        np.array(kept),
    )


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown, with paired differences from the arm with the same noise."""
    same = next(row for row in rows if row.name.startswith("same noise"))
    lines = [
        "| | target subject right | all of both right | CLIP direction "
        "| difference outside (0-255) | less than same noise |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        both = ~np.isnan(row.outside) & ~np.isnan(same.outside)
        gain = (same.outside - row.outside)[both]
        error = gain.std(ddof=1) / np.sqrt(len(gain))
        less = "" if row is same else f"{gain.mean():+.2f} ± {error:.2f}"
        lines.append(
            f"| {row.name} | {row.target.mean():.3f} | {row.every.mean():.3f} "
            f"| {row.direction.mean():.3f} | {np.nanmean(row.outside):.2f} "
            f"(n = {int((~np.isnan(row.outside)).sum())}) | {less} |"
        )
    return "\n".join(lines)


def picture(arms: Sequence[Arm], columns: Iterable[int]) -> Image.Image:
    """Return the arms' targets in rows under their common source, enlarged to twice the size."""
    columns = list(columns)
    by_name = {arm.name: arm for arm in arms}
    same = next(arm for name, arm in by_name.items() if name.startswith("same noise"))
    drawn = [arm for arm in arms if not arm.name.startswith("oracle")]
    rows = [("source", same.pixels[columns, 0])]
    rows += [(arm.name, arm.pixels[columns, 1]) for arm in drawn if "independent" not in arm.name]
    rows += [(arm.name, arm.pixels[columns, 1]) for arm in drawn if "independent" in arm.name]
    side, margin = 2 * SIZE, 150
    sheet = Image.new("RGB", (margin + side * len(columns), side * len(rows)), "white")
    pen = ImageDraw.Draw(sheet)
    for y, (name, pixels) in enumerate(rows):
        pen.text((6, y * side + side // 2 - 6), name, fill="black")
        for x, shown in enumerate(pixels):
            image = Image.fromarray(np.ascontiguousarray(shown.transpose(1, 2, 0)))
            large = image.resize((side, side), Image.Resampling.NEAREST)
            sheet.paste(large, (margin + x * side, y * side))
    return sheet.quantize(128, dither=Image.Dither.NONE)


def main(argv: list[str]) -> int:
    """Measure, print the table, and write it and the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--cfg", type=float, default=3.0)
    parser.add_argument("--scenes", type=int, default=12, help="on which boxes are tried")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="zoo:diffusion")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--out", type=Path, help="folder for sharing.table.md, .json and .png")
    options = parser.parse_args(argv)
    pairs = draw_pairs(options.seed, options.pairs)
    how = {"steps": options.steps, "cfg": options.cfg}
    model = DiffusionWeights(options.model, device=options.device)
    (apart,) = generate(pairs, model, "independent", (0.0,), **how)
    shared = generate(pairs, model, "shared", SHARES, **how)
    names = [f"shared attention, p = {p}" if p else "same noise, p = 0" for p in SHARES]
    arms = [
        oracle(pairs),
        Arm("independent noise", apart),
        *(Arm(name, pixels) for name, pixels in zip(names, shared, strict=True)),
    ]
    where = measurable(options.scenes)
    judge, scorer = load_judge(), ClipScorer(HFClip("zoo:clip-0").load().eval(), "standard")
    rows = [measure(arm, pairs, where, judge, scorer) for arm in arms]
    text = table(rows)
    print(f"{len(where)} of {len(COLOURS) * len(PLACES)} colours and backgrounds measurable\n")
    print(text)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "sharing.table.md").write_text(text + "\n", encoding="utf-8")
        means = [
            {
                "name": row.name,
                "target": row.target.mean(),
                "every": row.every.mean(),
                "direction": row.direction.mean(),
                "outside": float(np.nanmean(row.outside)),
            }
            for row in rows
        ]
        record = {"pairs": len(pairs), "model": options.model, "arms": means}
        (options.out / "sharing.json").write_text(
            json.dumps(record, indent=1) + "\n", encoding="utf-8"
        )
        picture(arms, range(min(SHOWN, len(pairs)))).save(
            options.out / "sharing.png", optimize=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
