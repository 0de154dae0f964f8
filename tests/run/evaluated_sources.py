"""Tiny sources for every benchmark, and what one setting after another may be changed to.

A paper adds those of its benchmarks in ``tests/papers/PAPER/evaluated.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from PIL import Image

from cfaug.core.types import ENTAILMENT
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from cfaug.evaluation.context import EvaluationContext
from cfaug.worlds.shapescapes import WorldSettings
from cfaug.worlds.shapescapes.parts import make_part
from tests.contributed import contributed
from tests.data.compositional import sugarcrepe, winoground
from tests.evaluation.drawn_questions import image
from tests.evaluation.joined import joined_sets, picture, random_sets
from tests.evaluation.text_sets import text_set

WORLD = WorldSettings(seed=3, style="drawing", id_scenes=12, ood_pairs=6)

SOLVED = """\
color: [{question: "Which?", answer: red, options: [red, blue], rationale: it is, key: i0}]
count: [{question: "How many?", answer: "2", options: ["2", "3"], rationale: they are}]
"""


class Sources:
    """The folders and files that cases name, made when they are first needed.

    Args:
        root: the folder for them.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._open = cache(lambda name: open_index(self._place(name), root / "index"))

    def __getitem__(self, name: str) -> str:
        path = self.root / name
        if not path.exists():
            (MAKERS | contributed("evaluated", "MAKERS"))[name.partition(".")[0]](path)
        return str(path)

    @property
    def context(self) -> EvaluationContext:
        """The context of a checkpoint."""
        return EvaluationContext(
            open=self._open,
            read=lambda reader, folder: open_index(folder, self.root / "index", reader=reader),
            questions=lambda name: list(map(image, range(3 if Path(name).stem == "fewer" else 6))),
            labels=Path, has_world=False, held_out=lambda: None,
        )  # fmt: skip

    def _place(self, name: str) -> Path:
        if not name.startswith("shapescapes:"):
            return Path(name)
        folder = self.root / name.replace(":", "_")
        if not folder.exists():
            part = name.removeprefix("shapescapes:")
            write_shards(islice(make_part(WORLD, part), 12), folder)
        return folder


def _texts(path: Path, word: str, count: int) -> None:
    write_shards([text_set(n, word, label=ENTAILMENT[n % 3]) for n in range(count)], path)


def _photos(path: Path) -> None:
    path.mkdir()
    lines = []
    for n in range(4):
        (path / f"{n}.png").write_bytes(picture(2, n))
        lines += [{"image": f"{n}.png", "captions": [f"thing {n}", f"the thing {n}"]}]
    (path / "captions.jsonl").write_text("\n".join(map(json.dumps, lines)))


def _classes(path: Path, *names: str, first: int = 0) -> None:
    for n, name in enumerate(names, start=first):
        (path / name).mkdir(parents=True, exist_ok=True)
        (path / name / f"{n}.png").write_bytes(picture(3, n))


def _masks(path: Path, height: int) -> None:
    """Write the masks of the joined sets, white in the upper part."""
    path.mkdir()
    for n in range(9):
        mask = Image.new("L", (32, 32))
        mask.paste(255, (0, 0, 32, height - 8))
        mask.save(path / f"group-{n}.png")


def label(path: Path, label: str, keys: list[str]) -> None:
    lines = [
        {"key": key, "member": member, "annotator": "1", "label": label}
        for key in keys
        for member in (0, 1)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


KEYS = [f"caption-{n}" for n in range(5)]


MAKERS: dict[str, Callable[[Path], object]] = {
    "texts": lambda path: _texts(path, "small", 8),
    "bigger": lambda path: _texts(path, "big", 4),
    "photos": _photos,
    "classes": lambda path: _classes(path, "cat", "dog", "cat", "dog"),
    "animals": lambda path: _classes(path, "cat", "dog", "cat", "dog", "dog"),
    "kittens": lambda path: _classes(path, *["cat", "dog"] * 6, first=100),
    "puppies": lambda path: _classes(path, *["cat", "dog"] * 6, first=200),
    "names": lambda path: path.write_text("kitten\npuppy\n"),
    "edits": lambda path: write_shards(joined_sets(), path),
    "words": lambda path: write_shards(random_sets(), path),
    "masks": lambda path: _masks(path, 32),
    "halves": lambda path: _masks(path, 16),
    "winoground": winoground,
    "sugarcrepe": sugarcrepe,
    "solved": lambda path: path.write_text(SOLVED),
    "shown": lambda path: path.write_text(SOLVED.replace("they are", "there are two")),
    "asked": Path.touch,
    "fewer": Path.touch,
    "matched": lambda path: label(path, "original", KEYS),
    "kept": lambda path: label(path, "yes", KEYS[:3]),
    "also": lambda path: path.write_text(
        f"caption,image\n{text_set(0, 'small').members[0].text},{text_set(2, 'small').key}_0\n"
    ),
    "follows": lambda path: label(path, ENTAILMENT[0], KEYS[:3]),
}


@dataclass(frozen=True)
class Case:
    """A shipped benchmark on a tiny source.

    Attributes:
        words: the words of the command line; ``@NAME`` is a source.
        changes: {setting of the benchmark: another value}; other settings are changed by type.
        checks: {setting: the error of another value}, of settings that only check the source.
        model: words that choose what is evaluated.
    """

    words: tuple[str, ...]
    changes: Mapping[str, Any] = field(default_factory=dict)
    checks: Mapping[str, str] = field(default_factory=dict)
    model: tuple[str, ...] = ("weights=zoo:clip-0",)


VLM = ("model=tiny_vlm",)
ASKED = {"data": "fewer", "demonstrations": "@solved.yaml", "wording": "listed"}
FORMS = {"form": "does not hold|holds"}
PAIRED = {"data": "shapescapes:ood_pairs", "tags": ["tag"], "form": "bivlc", "question": "caption"}
EDITED = {"data": "@words", "random": "@words", "more": {"again": "@words"}, "control": "domain"}
STRESSED = {
    **EDITED, "parts": ["class"], "classes": "imagenet", "templates": ["an image of {c}"],
    "clusters": {"_target_": "cfaug.evaluation.stress.edit_clusters.EditClusters", "encoder": {
        "_target_": "cfaug.models.specs.HFClip", "weights": "zoo:clip-0"}},
}  # fmt: skip

CASES = {
    "retrieval": Case(
        ("benchmark=retrieval", "benchmark.data=@texts"),
        {"data": "@bigger", "captions_per_image": 1, "counterfactual_holdout": 0.6,
         "human_labels": "@matched.jsonl", "edited_by": "@bigger", "folds": 2,
         "prompt": "a photo of {c}", "also_right": "@also.csv"},
    ),
    "classification": Case(
        ("benchmark=classification", "benchmark.data=@classes"),
        {"data": "@animals", "templates": ["an image of {c}"], "classes": "@names.txt",
         "label": "species"},
        {"label": "has no column"},
    ),
    "linear_probe": Case(
        ("benchmark=linear_probe", "benchmark.data=@classes", "benchmark.train=@kittens"),
        {"data": "@animals", "train": "@puppies", "label": "species", "shots": 3,
         "validation": 0.5},
        {"label": "has no column"},
    ),
    "pairs": Case(("benchmark=pairs", "benchmark.data=@winoground"), PAIRED, FORMS),
    "pairs by a vlm": Case(("benchmark=pairs", "benchmark.data=@winoground"), PAIRED, FORMS, VLM),
    "pairs in the world": Case(
        ("benchmark=pairs", "benchmark.data=shapescapes:ood_pairs"),
        {"data": "@winoground", "tags": ["category"], "form": "bivlc", "images": "/nowhere",
         "question": "caption"},
        {"tags": "category"},
    ),
    "choice": Case(
        ("benchmark=choice", "benchmark.data=@sugarcrepe", "benchmark.blind=null"),
        {"data": "@winoground", "tags": ["category"], "form": "winoground", "question": "caption",
         "together": ["category"], "groups": {"swap": ["swap_obj", "swap_att"]},
         "drop": ["swap_att"],
         "blind": "zoo:language/causal"},
        {"data": "labelled|choice", "truth": "is labelled", **FORMS},
    ),
    "matching": Case(
        ("benchmark=matching", "benchmark.data=shapescapes:ood_pairs"),
        {"data": "@winoground", "real": "shapescapes:ood_pairs"},
    ),
    "matching with photos": Case(
        ("benchmark=matching", "benchmark.data=shapescapes:ood_pairs",
         "benchmark.real=shapescapes:ood_pairs"),
        {"data": "@winoground", "real": None},
        {"data": "none of the"},
    ),
    "vqa": Case(
        ("benchmark=vqa", "benchmark.data=@asked.jsonl"),
        {**ASKED, "shots": 1, "chain_of_thought": "two_stage", "option_order": "shuffled"},
        {"shots": "needs benchmark.demonstrations", "option_order": "would have no effect"},
        VLM,
    ),
    "vqa with examples": Case(
        ("benchmark=vqa", "benchmark.data=@asked.jsonl", "benchmark.wording=listed",
         "benchmark.demonstrations=@solved.yaml", "benchmark.shots=1",
         "benchmark.option_order=shuffled", "benchmark.chain_of_thought=two_stage"),
        {**ASKED, "shots": 0, "demonstrations": "@shown.yaml", "wording": "plain",
         "chain_of_thought": "one_stage", "protocol": "write"},
        {"wording": "would have no effect", "protocol": "writes rationale and answer together"},
        VLM,
    ),
    "written vqa": Case(
        ("benchmark=vqa", "benchmark.data=@asked.jsonl", "benchmark.protocol=write"),
        {**ASKED, "shots": 1, "chain_of_thought": "one_stage"},
        {"shots": "needs benchmark.demonstrations", "chain_of_thought": "needs benchmark.shots"},
        VLM,
    ),
    "entailment": Case(
        ("benchmark=entailment", "benchmark.data=@texts"),
        {"data": "@bigger", "photos": "@photos", "answers": "@follows.jsonl"},
        {"photos": "premises"}, ("model=tiny_vilt_entailer",),
    ),
    "stress": Case(("benchmark=stress", "benchmark.data=@edits"), STRESSED),
    "stress of a classifier": Case(
        ("benchmark=stress", "benchmark.data=@edits"), STRESSED, model=("model=tiny_classifier",)
    ),
    "edit_quality": Case(
        ("benchmark=edit_quality", "benchmark.data=@edits", "benchmark.masks=@masks"),
        {"data": {"a": "@edits", "b": ["@words", "@edits"]}, "masks": "@halves",
         "judge": "oracle"},
        {"judge": "has no oracle"},
    ),
}  # fmt: skip
