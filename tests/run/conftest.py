"""A small world and the scripts pointed at it."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet
from cfaug.data.shards.shards import read_sets
from cfaug.planning.training import TrainSettings
from cfaug.run.annotate import AnnotateSettings
from cfaug.run.evaluate_settings import EvaluateSettings
from cfaug.run.generate import generate as make
from cfaug.run.generate_settings import GenerateSettings
from cfaug.run.table import TableSettings
from cfaug.settings.arguments import read
from cfaug.settings.compose import compose_jobs
from cfaug.settings.read_if import SWEPT, CommandJob
from cfaug.settings.unread import find_unread_words
from tests.data.layouts import table
from tests.data.making import noise_image
from tests.imaging.tiny import save_pipeline
from tests.scripts import ROOT

CONF = ROOT / "conf"
COMMANDS = {
    "train": TrainSettings,
    "generate": GenerateSettings,
    "evaluate": EvaluateSettings,
    "table": TableSettings,
    "annotate": AnnotateSettings,
}

SCENES = [
    "data.world.real_scenes=80", "data.world.counterfactual_pairs=40",
    "data.world.unbiased_scenes=60", "data.world.id_scenes=30", "data.world.ood_pairs=12",
    "data.world.seed=5",
]  # fmt: skip
WORLD = [*SCENES, "data.batch_size=16"]
EVERYTHING = [
    "recipe.selection.min_clip_text=-1",
    "recipe.selection.min_clip_image=-1",
    "recipe.selection.min_clip_direction=null",
]


UNREAD = {
    "stage=captions": ("recipe.", "zoo."),
    "stage=images": ("data.", "limit=", "shards."),
    "zoo.diffusion=null": ("zoo.diffusion.weights=",),
    "data.source=": ("data.world.",),
}
"""The beginnings of words of ``generation`` that a command does not read with one of these; the
last one is a source with an absolute path."""


def output_of(run: Callable[..., int], *words: Any, code: int = 0) -> tuple[str, str]:
    """Return what a command prints on stdout and on stderr."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        ended = run(*words)
    assert ended == code, err.getvalue()
    return out.getvalue(), err.getvalue()


def refusal(run: Callable[..., int], *words: Any) -> str:
    """Return what a command says that refuses its words."""
    said = output_of(run, *words, code=2)[1]
    assert "Traceback" not in said
    return said


def stdout_of(run: Callable[..., int], *words: Any) -> str:
    """Return what a command prints that succeeds."""
    return output_of(run, *words)[0]


def stderr_of(run: Callable[..., int], *words: Any) -> str:
    """Return the messages of a command that succeeds."""
    return output_of(run, *words)[1]


def jobs_of(name: str, *words: str) -> list[tuple[dict[str, Any], list[str]]]:
    """Return the settings and the words of every job of a command line."""
    line = read(words)
    return compose_jobs(name, line.overrides, multirun=line.multirun, command=COMMANDS[name])


def compose(name: str, *words: str) -> dict[str, Any]:
    """Return the settings of a command line of one job."""
    [(config, _)] = jobs_of(name, *words)
    return config


def refuse_as_unread(name: str, words: Sequence[str], would_read: str) -> None:
    """Check that a typed setting that nothing reads is refused with what would read it (N33)."""
    with pytest.raises(UserError, match="would have no effect") as refused:
        compose(name, *words)
    assert would_read in str(refused.value)


def find_unread(
    name: str, words: Sequence[str], config: Mapping[str, Any], written: Mapping[str, Any] = {}
) -> set[str]:
    """Return the words of a job that are refused as ones that nothing reads.

    Args:
        written: {setting: value as written}, with ``${...}``.
    """
    job = CommandJob(config, words, {SWEPT: False})
    return {word for word, _ in find_unread_words(COMMANDS[name], job, lambda _: written)}


def make_sets(root: Path, *words: str, folder: str = "out") -> list[CounterfactualSet]:
    """Generate sets in a folder below another one, and return them."""
    paths = [f"paths.shards={root / folder}", f"paths.worlds={root / 'worlds'}"]
    assert make(GenerateSettings(**compose("generate", *words, *paths))) == 0
    return list(read_sets(root / folder))


def lay_photos(folder: Path, captions: Sequence[str]) -> Path:
    """Write a photo of noise for each caption, and the list of them."""
    names = [f"{number}.png" for number in range(len(captions))]
    rows = list(zip(names, captions, strict=True))
    table(folder / "captions.csv", ("image", "caption"), rows)
    for number, name in enumerate(names):
        (folder / name).write_bytes(noise_image(number))
    return folder


PUBLISHED = {".html", ".md", ".csv", ".tex", ".svg", ".pdf", ".parquet", ".tsv", ".tar", ".jsonl"}
"""The kinds of files that are handed on, but for ``checkpoint`` and Croissant's JSON."""
DRAWN = re.compile(rb"base64,[\w+/=]+")


def places_in(folder: Path, *places: Path) -> dict[str, list[str]]:
    """Return the places of this machine that stand in what is meant to be published, by file."""
    searched = [str(place).encode() for place in (*places, Path.home())]
    files = (file for file in folder.rglob("*") if file.suffix in PUBLISHED | {".json"})
    named = {}
    for file in files:
        if file.name not in ("run.json", ".cfaug.jsonl") and ".work" not in file.parts:
            text = DRAWN.sub(b"", file.read_bytes())
            named[str(file.relative_to(folder))] = [s.decode() for s in searched if s in text]
    assert named
    return {file: texts for file, texts in named.items() if texts}


@contextmanager
def failing_at(step: int) -> Iterator[None]:
    """Let every contrastive training meanwhile fail in the step after so many."""
    from cfaug.train.contrastive_module import ContrastiveModule

    work = ContrastiveModule.training_step

    def fail(module: Any, *batch: Any) -> Any:
        if module.global_step == step:
            raise RuntimeError("the machine is gone")
        return work(module, *batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ContrastiveModule, "training_step", fail)
        yield


def exit_with(run: Callable[..., int], words: Sequence[str]) -> None:
    """End this process with a command's exit code."""
    sys.exit(run(*words))


def commands_of(page: Path) -> list[tuple[str, list[str]]]:
    """Return the command and the words of every command of a page of documentation."""
    from tests.test_readme import readme_commands

    commands = (shlex.split(command)[1:] for command, _ in readme_commands([page]))
    return [(Path(script).stem, words) for script, *words in commands]


class Place:
    """A folder of runs, and the scripts pointed at it."""

    def __init__(self, root: Path, shards: Path, script) -> None:
        self.root = root
        self.paths = [f"paths.runs={root}", f"paths.shards={shards}"]
        self.script = script

    def train(self, *words: str) -> int:
        arm = [] if any(word.startswith("arm=") for word in words) else ["arm=run"]
        return self.script("train")([*WORLD, "trainer.max_steps=3", *self.paths, *arm, *words])

    def evaluate(self, *words: str) -> int:
        return self.script("evaluate")([*self.paths, *words])

    def table(self, name: str, *words: str) -> int:
        return self.script("table")([name, *self.paths, *words])

    def annotate(self, step: str, *words: str) -> int:
        return self.script("annotate")([step, *self.paths, *words])

    def plan(self, *words: str) -> dict:
        """Return what a run would do."""
        return json.loads(stdout_of(self.train, *words, "dry_run=json").splitlines()[-1])

    def begin_with(self, root: Path) -> Place:
        """Begin with a copy of other runs, which several tests begin with."""
        shutil.copytree(root, self.root)
        return self

    def folder(self, arm: str = "run", seed: int = 107, name: str = "main") -> Path:
        return self.root / name / arm / f"seed={seed}"

    def record(self, arm: str = "run", seed: int = 107, name: str = "main") -> dict:
        return json.loads((self.folder(arm, seed, name) / "run.json").read_text())

    def weights(self, arm: str = "run", seed: int = 107) -> bytes:
        return (self.folder(arm, seed) / "checkpoint/model.safetensors").read_bytes()


class Plan:
    """What train.py says of runs without training them."""

    def __init__(self, train: Callable[[list[str]], int], *words: str) -> None:
        self.train, self.words = train, words

    def __call__(self, *words: str) -> tuple[list[dict], str]:
        """Return what each run would do, and what is said of it."""
        out, err = output_of(self.train, [*self.words, *words])
        return [json.loads(line) for line in out.splitlines()], err

    def refused(self, *words: str) -> str:
        return refusal(self.train, [*self.words, *words])

    def of(self, *words: str) -> Plan:
        return Plan(self.train, *self.words, *words)


@pytest.fixture
def plan(tmp_path: Path, script) -> Plan:
    paths = [f"paths.runs={tmp_path / 'runs'}", f"paths.shards={tmp_path / 'shards'}"]
    return Plan(script("train"), "dry_run=json", *paths)


@pytest.fixture(scope="session")
def shards(tmp_path_factory):
    return tmp_path_factory.mktemp("shards")


@pytest.fixture
def place(tmp_path, shards, script):
    return Place(tmp_path / "runs", shards, script)


def generation(folder: Path, worlds: Path, pipeline: Path) -> list[str]:
    """Overrides under which a few captions and candidates are enough, and all are accepted."""
    return [
        f"paths.shards={folder}", f"paths.worlds={worlds}",
        *(word for word in WORLD if word.startswith("data.world.")),
        f"zoo.diffusion.weights={pipeline}", "recipe.image_editor.steps=3", "limit=5",
        "recipe.draws.candidates=2", "shards.sets_per_shard=2", *EVERYTHING,
    ]  # fmt: skip


def files(folder: Path) -> dict[str, bytes]:
    """Every file that is part of a folder of shards, by name."""
    bookkeeping = {".work", ".launched"}
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not bookkeeping & set(file.parts) and file.name != "run.json"
    }


@pytest.fixture(scope="session")
def pipeline(tmp_path_factory):
    return save_pipeline(tmp_path_factory.mktemp("weights") / "sd")


class Generate:
    """Runs generate.py on a few captions, in a folder below another one."""

    def __init__(self, root: Path, worlds: Path, pipeline: Path, script) -> None:
        self.root, self.worlds, self.pipeline = root, worlds, pipeline
        self.main = script("generate")

    def _words(self, words: Sequence[str], folder: str = "out") -> list[str]:
        given = generation(self.root / folder, self.worlds, self.pipeline)
        unread = tuple(
            prefix for word in words for prefix in UNREAD.get(word.partition("/")[0], ())
        )
        return [*(word for word in given if not word.startswith(unread)), *words]

    def __call__(self, *words: str, folder: str = "out") -> tuple[dict, str]:
        """Return the JSON of its last line, and what it said."""
        out, err = output_of(self.main, self._words(words, folder))
        return json.loads(out.splitlines()[-1]), err

    def refused(self, *words: str) -> str:
        return refusal(self.main, self._words(words))


@pytest.fixture
def generate(tmp_path, shards, script, pipeline):
    return Generate(tmp_path, shards, pipeline, script)
