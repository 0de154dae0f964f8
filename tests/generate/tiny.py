"""A world of two colours a caption, with parts that are real, small, and as fast as Python.

A text's colours are what its words hash to; an image is its text's colours under a candidate's
noise, with as much of the base image as p says; the scorer sees colours. So scores spread over the
thresholds, and every image is a function of text and chance alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

from cfaug.core.outputs import RECORD
from cfaug.core.rng import generator
from cfaug.core.types import Edit, Edited, Example, ImageJob, Images, Proposal
from cfaug.generate.job import Job, JobIdentity
from cfaug.generate.recipe import Pipeline, Recipe, RunSettings, ShardSettings
from cfaug.generate.sampling import Draws
from cfaug.imaging.prompt_to_prompt import edit_at_once
from cfaug.imaging.select import CosineScorer, clip_selection

SIDE = 4
WORDS = ["cat", "dog", "ball", "tree", "house", "star"]


def colours(text: str) -> np.ndarray:
    """Return what a text looks like: float32 (3, SIDE, SIDE) in [-1, 1]; one word, one part."""
    planes = [
        generator(0, "look", word).uniform(-1, 1, (3, SIDE, SIDE)).astype(np.float32)
        for word in text.split()
    ]
    return np.mean(planes, axis=0) * 2


@dataclass
class WordSwap:
    """Replaces the last word of a caption; those about a star have no edit."""

    edited: list[int] = field(default_factory=list)
    broken: frozenset[str] = frozenset()
    members: int = 2

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        self.edited.append(len(examples))
        for example in examples:
            if example.key in self.broken:
                raise RuntimeError(f"cannot read {example.key}")
        return [self._one(example) for example in examples]

    def describe(self) -> dict[str, str]:
        return {"editor": "word swap"}

    def _one(self, example: Example) -> Edited:
        *head, last = example.text.split()
        if last == "star":
            return Edited((), {"words": 5, "similarity": 0})
        others = [word for word in WORDS if word not in (last, "star")][: self.members - 1]
        texts = (example.text, *(" ".join([*head, other]) for other in others))
        edits = (None, *(Edit("noun", last, other) for other in others))
        proposal = Proposal(example, texts, edits, {"rank": 1})
        return Edited((proposal,), {"words": 5, "similarity": 2})


@dataclass
class Painter:
    """An image editor: latents are colours and noise, and decoding squeezes them into [0, 1]."""

    broken: frozenset[str] = frozenset()
    together: int = 10**9
    sampled: list[int] = field(default_factory=list)
    decoded: int = 0
    flagged: float = 2.0

    def edit(self, jobs: Sequence[ImageJob]) -> list[Images]:
        return edit_at_once(self, jobs)

    def sample(self, jobs: Sequence[ImageJob]) -> list[Tensor]:
        self.sampled.append(len(jobs))
        if len({job.texts for job in jobs}) > self.together:
            raise MemoryError("too many at once")
        for job in jobs:
            if self.broken & set(job.texts[0].split()):
                raise RuntimeError(f"cannot draw {job.texts[0]!r}")
        return [self._one(job) for job in jobs]

    def sample_halving(
        self,
        jobs: Sequence[ImageJob],
        rounds: int,
        keep: Callable[[Sequence[int], list[Tensor]], Sequence[int]],
    ) -> dict[int, Tensor]:
        """Guesses are exact: what is given up is what ends in the worse half."""
        latents = dict(enumerate(self.sample(jobs)))
        for _ in range(rounds):
            left = keep(list(latents), list(latents.values()))
            latents = {number: latents[number] for number in left}
        return latents

    def _one(self, job: ImageJob) -> Tensor:
        stream = generator(job.draw.seed, "paint", str(job.draw.cfg))
        noise = stream.standard_normal((3, SIDE, SIDE), dtype=np.float32)
        base = colours(job.texts[0]) * (job.draw.cfg / 10) + noise
        edited = [colours(text) * (job.draw.cfg / 10) + noise for text in job.texts[1:]]
        p = np.float32(job.draw.p)
        return torch.from_numpy(np.stack([base, *(p * base + (1 - p) * look for look in edited)]))

    def decode(self, latents: Tensor) -> Tensor:
        self.decoded += len(latents)
        return latents.clamp(-4, 4) / 8 + 0.5

    def same_text(self, texts: Sequence[str]) -> bool:
        return any(text == texts[0] for text in texts[1:])

    def unsafe(self, images: Tensor) -> list[bool]:
        return [bool(image.max() > self.flagged) for image in images]

    def describe(self) -> dict[str, str]:
        return {"painter": "hand"}


class Copyist:
    """An image editor that draws nothing: every text has the same grey image of its own size."""

    def edit(self, jobs: Sequence[ImageJob]) -> list[Images]:
        return [
            Images((np.full((len(job.texts[0]), 3, 3), 99, np.uint8),), (0,) * len(job.texts))
            for job in jobs
        ]

    def describe(self) -> dict[str, str]:
        return {"copyist": "grey"}


class Eye(CosineScorer):
    """A scorer: what it sees of an image is what a text would look like."""

    def __init__(self, name: str = "eye", prefix: str = "") -> None:
        super().__init__(prefix)
        self.name = name

    def texts(self, texts: Sequence[str]) -> Tensor:
        return self._unit(torch.from_numpy(np.stack([colours(text) for text in texts])))

    def images(self, images: Tensor) -> Tensor:
        return self._unit(images - 0.5)

    def _unit(self, rows: Tensor) -> Tensor:
        flat = rows.flatten(1)
        if self.name != "eye":
            flat = flat.sign()
        return torch.nn.functional.normalize(flat, dim=-1)

    def describe(self) -> dict[str, str]:
        return {"eye": self.name}


def captions(count: int) -> list[Example]:
    examples = []
    for i in range(count):
        word = WORDS[i % len(WORDS)]
        text = f"a {WORDS[(i // 6) % len(WORDS)]} beside {i} {word}"
        examples.append(Example(f"photo{i // 2}-{i % 2}", f"photo{i // 2}", (text,)))
    return examples


def studio(**changes: Any) -> Pipeline:
    parts: dict[str, Any] = {
        "editor": Painter(), "scorers": {"scorer": Eye()}, "select": clip_selection(0.45, 0.6, 0.3),
        "report": {"report": Eye("sign", "report_")},
    }  # fmt: skip
    return Pipeline(**{**parts, **changes})


def recipe(
    editor: Any = None, pipeline: Pipeline | None = None, draws: Draws | None = None
) -> Recipe:
    parts = {} if pipeline is None else {
        "image_editor": pipeline.editor, "scorers": pipeline.scorers,
        "report": pipeline.report, "selection": pipeline.select,
        "postprocess": pipeline.finish,
    }  # fmt: skip
    return Recipe("tiny", editor, draws=draws or Draws(), **parts)


def job(folder: Path, **changes: Any) -> Job:
    """Return a job of which parts of the recipe, settings of the run and examples may differ."""
    settings: dict[str, Any] = {
        "captions": captions(17), "editor": WordSwap(), "studio": studio(),
        "draws": Draws(candidates=6, sampling="tree(2)"), "image_settings": None,
        "shards": ShardSettings(sets_per_shard=4, batch=5), **changes,
    }  # fmt: skip
    examples = settings.pop("captions")
    parts = [settings.pop(name) for name in ("editor", "studio", "draws")]
    about = JobIdentity({"recipe": "tiny", "zoo": "none"}, {}, settings.pop("image_settings"))
    shards = settings.pop("shards")
    return Job(folder, recipe(*parts), lambda: examples, RunSettings(**settings), shards, about)


def contents(folder: Path) -> dict[str, str]:
    """Return the hash of every file that is a result, by path."""
    files = (file for file in sorted(folder.rglob("*")) if file.is_file() and file.name != RECORD)
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if ".work" not in file.parts
    }


def card(folder: Path) -> dict:
    return json.loads((folder / "card.json").read_text())


def log(folder: Path) -> list[dict]:
    return [
        row for file in sorted(folder.glob("*.parquet")) for row in pq.read_table(file).to_pylist()
    ]
