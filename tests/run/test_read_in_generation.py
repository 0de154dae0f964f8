"""What generate.py says that it reads is true: real sources, editors and exports, changed."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import pytest

from cfaug.core.errors import UserError
from cfaug.core.validation import Share
from cfaug.editing.baselines import RandomDeletion
from cfaug.generate.source import digest_of
from cfaug.planning.build import build
from cfaug.run.generate import generate, plan_job, write_exports
from cfaug.run.generate_settings import GenerateSettings
from cfaug.settings.read_if import ReadIf
from tests import children
from tests.data.making import noise_image
from tests.run.conftest import places_in
from tests.run.generation_changes import changes, leaves, merge, runs_elsewhere, settle

WORLD = [
    "data.source=shapescapes:real", "data.leave_out=null", "data.world.seed=5",
    "data.world.real_scenes=12", "data.world.image_size=16",
]  # fmt: skip
CAPTIONS = [
    "A black dog and a white cat sit on two wooden tables near the old house.",
    "There are 12 red cars in Paris, and I'm standing next to Mary in the street.",
    "a man in a hat rides a brown horse slowly across a green field",
    "a photo of a small bird on a branch",
    "a dog on the grass",
    "an apple near a dog",
    "an old man with an umbrella and a boy",
    "dogs",
]
EXPORTS = ("hub", "clip_benchmark", "questions", "lmms_eval", "vlmevalkit", "fiftyone", "croissant")
NOWHERE = {**dict.fromkeys(EXPORTS), "verified": None}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    """A changed place, such as ``cache=other``, is written to from here."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def sources(tmp_path):
    """Words that name a world, a list, a folder of photos and a grid."""
    (tmp_path / "c.jsonl").write_text(
        "".join(json.dumps({"caption": caption, "topic": "x"}) + "\n" for caption in CAPTIONS)
    )
    (tmp_path / "photos").mkdir()
    for number in range(3):
        (tmp_path / "photos" / f"{number}.png").write_bytes(noise_image(number))
    lines = [f"{number % 3}.png,a dog {number}\n" for number in range(4)]
    (tmp_path / "photos" / "captions.csv").write_text("image,caption\n" + "".join(lines))
    none = "data.leave_out=null"
    return {
        "world": ["recipe=deletion", *WORLD, "data.leave_out={colour: 0.5}"],
        "list": ["recipe=deletion", none, f"data.source={tmp_path / 'c.jsonl'}"],
        "folder": ["recipe=deletion", none, f"data.source={tmp_path / 'photos'}"],
        "grid": ["recipe=social", "zoo=captions", "data.grid=race_gender"],
    }


def examine(
    tree: Any, keys: dict[str, Any], outcome: Any, refused: str = "told"
) -> tuple[list[str], list[str]]:
    """Return the settings that are accepted without effect, and those refused with an effect."""

    def attempt(config: dict[str, Any]) -> Any:
        try:
            return outcome(config)
        except (UserError, OSError) as error:
            return [refused, str(error)]

    before, dead, alive = attempt(settle(tree)), [], []
    assert before[0] != refused, before
    for change in changes(tree, keys, []):
        now = attempt(change.config)
        if change.is_refused() and now[0] not in (refused, before[0]):
            alive.append(change.key)
        if not change.is_refused() and now == before:
            dead.append(change.key)
    return dead, alive


UNSEEN_IN = {
    "world": {"recipe.example_per"},  # each photo has one caption
    "list": {"recipe.example_per", "recipe.source_images"},  # captions without photos
    "folder": set(),
    "grid": {"recipe.example_per", "recipe.source_images"},  # captions without photos
}
"""Settings that a kind of source need not show; they are the recipe's, and say what it takes."""


def read(config: dict[str, Any]) -> list[Any]:
    """Return the content of the examples, and the folder of the scenes."""
    data = config["data"]
    job = plan_job(GenerateSettings(**config), Path(config["paths"]["shards"]))
    world = None if data["grid"] or data["world"] is None else data["world"]
    drawn = str(data["source"]).startswith("shapescapes:") and world is not None
    return [digest_of(job.examples), build(world).content_hash() if drawn else None]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["world", "list", "folder", "grid"])
def test_every_setting_of_a_source_changes_the_examples_or_is_refused(kind, sources, tmp_path):
    tree = merge(*sources[kind], "stage=captions", f"paths.worlds={tmp_path / 'worlds'}")
    every = leaves(tree)
    asked = ("data.", "limit", "recipe.example_per", "recipe.source_images")
    dead, alive = examine(tree, {k: v for k, v in every.items() if k.startswith(asked)}, read)
    assert set(dead) <= UNSEEN_IN[kind]
    assert alive == []


def edit(config: dict[str, Any]) -> list[Any]:
    job = plan_job(GenerateSettings(**config), Path(config["paths"]["shards"]))
    annotated = job.annotation.annotate(job.examples)
    return [job.editor.edit([annotated.done[place] for place in sorted(annotated.done)])]


UNSEEN = {
    "checklist": {"lists.folder", "max_words"},
    "deletion": set(),
    "negclip_swaps": set(),
    "negate": set(),
    "affirm": {"per"},  # of its one kind
    "paraphrase": set(),
    "substitution": {"max_words", "refill_to_k", "noun_runs", "top_k", "repair_article"},
    "clare": {"max_words", "likelihoods.guesses", "keep_unchanged"},
}
"""Settings of editors that these few captions do not show."""


def find_dead_settings(tree: Any) -> tuple[set[str], list[str]]:
    place = "recipe.editor."
    keys = {k: v for k, v in leaves(tree).items() if k.startswith(place)}
    dead, alive = examine(tree, keys, edit)
    config = settle(tree)
    return {key.removeprefix(place) for key in dead if not runs_elsewhere(key, config)}, alive


@pytest.mark.slow
@pytest.mark.parametrize("recipe", UNSEEN)
def test_every_setting_of_an_editor_changes_its_edits_or_is_refused(recipe, sources, tmp_path):
    words = WORLD if recipe in ("substitution", "clare") else sources["list"][1:]
    paths = [f"paths.worlds={tmp_path / 'worlds'}", f"paths.cache={tmp_path / 'cache'}"]
    dead, alive = find_dead_settings(merge(f"recipe={recipe}", *words, *paths, "stage=captions"))
    assert dead <= UNSEEN[recipe]
    assert alive == []


@dataclass(frozen=True)
class Planted(RandomDeletion):
    """An editor with a setting that it ignores, and one that it wrongly declares as unread."""

    ignored: bool = False

    share: Annotated[Share, ReadIf({"keep_unchanged": (False,)})] = 0.1


def test_a_dead_setting_and_a_wrong_declaration_are_found(sources):
    target = f"recipe.editor._target_={__name__}.Planted"
    words = [*sources["list"], target, "stage=captions"]
    assert find_dead_settings(merge(*words)) == ({"ignored"}, ["recipe.editor.share"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hub", "clip_benchmark"])
def test_every_setting_of_an_export_changes_it_or_is_refused(kind, tmp_path):
    """N33: details of the card, and a layout, without export.hub."""
    folder = tmp_path / "out"
    paths = [f"paths.shards={folder}", f"paths.worlds={tmp_path / 'worlds'}"]
    tree = merge("recipe=deletion", *WORLD, *paths, "limit=3", f"export.{kind}=x")
    assert generate(GenerateSettings(**{**settle(tree), "export": NOWHERE})) == 0
    number = count()

    def export(config: dict[str, Any]) -> list[Any]:
        place = tmp_path / f"{next(number)}"
        named = {name: config["export"][name] for name in EXPORTS}
        there = {name: None if to is None else str(place / name) for name, to in named.items()}
        write_exports(folder, {**config["export"], **there})
        every = [file for file in sorted(place.rglob("*")) if file.is_file()]
        return [{str(file.relative_to(place)): file.read_bytes() for file in every}]

    keys = {k: v for k, v in leaves(tree).items() if k.startswith("export.")}
    dead, alive = examine(tree, keys, export)
    assert dead == [f"export.{kind}"]  # another folder
    assert alive == []
    for published in (folder, tmp_path / "0"):
        assert places_in(published, tmp_path) == {}


def export_until_killed(folder: Path, export: dict[str, Any]) -> None:
    """Export, and end by SIGKILL between the data and the card of the Hub's form."""
    from cfaug.data.export import hub

    hub.write_card = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    write_exports(folder, export)


@pytest.mark.slow
def test_a_killed_export_is_written_by_the_same_command(tmp_path):
    """G1: half an export stood there, and the same command refused it every time."""
    folder = tmp_path / "out"
    paths = [f"paths.shards={folder}", f"paths.worlds={tmp_path / 'worlds'}"]
    settings = settle(merge("recipe=deletion", *WORLD, *paths, "limit=3", "export.hub=x"))
    assert generate(GenerateSettings(**{**settings, "export": NOWHERE})) == 0
    cut, whole = ({**settings["export"], "hub": str(tmp_path / name)} for name in ("cut", "whole"))
    for _ in range(2):
        child = children.start(export_until_killed, folder, cut)
        child.join()
        assert child.exitcode == -signal.SIGKILL
    for export in (cut, whole):
        write_exports(folder, export)
    made = [
        {file.relative_to(there): file.read_bytes() for file in there.rglob("*") if file.is_file()}
        for there in (tmp_path / "cut", tmp_path / "whole")
    ]
    assert len(made[0]) > 3
    assert made[0] == made[1]
    assert not list(tmp_path.glob("*.tmp*"))
    assert {path.name for path in tmp_path.iterdir()} == {"cut", "out", "whole", "worlds"}
