"""Every writer, pointed at something of a user's: its bytes stand afterwards."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.outputs import RECORD, begin_folder, write_output
from cfaug.data.export import (
    PublisherStatements,
    export_clip_benchmark,
    export_fiftyone,
    export_hub,
    export_lmms_eval,
    export_questions,
    export_vlmevalkit,
)
from cfaug.data.mixture.leakage import Leaks
from cfaug.data.shards.shards import write_shards
from cfaug.editing.edit_prompts import EditAnswer, EditFormat, write_rows
from cfaug.evaluation.failures import write_failures
from cfaug.generate.folder import FolderRecord, claim
from cfaug.generate.recipe import RunSettings
from cfaug.report.document import Document, write_document
from cfaug.report.gallery import write_gallery
from cfaug.report.page import write_page
from cfaug.report.records import write_leaks
from cfaug.run.exports import check_exports
from cfaug.run.new_recipe import write_example
from cfaug.run.run_folder import RunFolder
from tests.data.making import pair
from zoo.command import fresh_folder
from zoo.diffusion import main as train_diffusion

SETS = [pair(0), pair(1)]
ABOUT = PublisherStatements("Pairs")
YEARS = "years of work"
PLACES = (
    "hub",
    "clip_benchmark",
    "questions",
    "lmms_eval",
    "vlmevalkit",
    "fiftyone",
    "layout",
    "croissant",
)


def answers() -> list[EditAnswer]:
    return [EditAnswer("a cat", next(iter(EditFormat.short().prompts)), ("a dog",))]


def write_zoo(folder: Path) -> None:
    with fresh_folder(str(folder)) as fresh:
        (fresh / "weights").write_text("new")


def save_model(folder: Path) -> None:
    from cfaug.models.checkpoints import replace_checkpoint

    with replace_checkpoint(folder) as fresh:
        (fresh / "config.json").write_text("new")


FILES: dict[str, Callable[[Path], object]] = {
    "failures": lambda file: write_failures(file, []),
    "rows": lambda file: write_rows(file, answers()),
    "page": lambda file: write_page(file, "new", "a page of questions for annotators"),
    "gallery": lambda file: write_gallery(SETS, file, title="new"),
    "croissant": lambda file: export_hub(SETS, file.with_suffix(""), ABOUT, croissant=file),
    "vlmevalkit": lambda file: export_vlmevalkit(lambda: SETS, file),
}
"""Writers of a file that a user names."""
FOLDERS: dict[str, Callable[[Path], object]] = {
    "hub": lambda folder: export_hub(SETS, folder, ABOUT),
    "clip_benchmark": lambda folder: export_clip_benchmark(SETS, folder),
    "lmms_eval": lambda folder: export_lmms_eval(SETS, folder),
    "fiftyone": lambda folder: export_fiftyone(SETS, folder),
    "recipe": lambda folder: write_example("mine", folder),
    "zoo": write_zoo,
    "model": save_model,
}
"""Writers of a whole folder that a user names."""


def look(place: Path) -> dict[str, bytes]:
    """Return what lies below a place: bytes, and where links lead."""
    return {
        str(path.relative_to(place)): os.fsencode(os.readlink(path))
        if path.is_symlink()
        else path.read_bytes()
        for path in sorted(place.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.parametrize("writer", FILES)
def test_no_writer_of_a_file_replaces_what_is_not_its_own(writer, tmp_path):
    (tmp_path / "theirs.txt").write_text(YEARS)
    for number, kind in enumerate(("file", "link", "dangling", "folder", "other", "changed")):
        file = tmp_path / f"{number}.tsv"
        if kind == "file":
            file.write_text(YEARS)
        elif kind in ("link", "dangling"):
            file.symlink_to("theirs.txt" if kind == "link" else "nowhere")
        elif kind == "folder":
            file.mkdir()
        elif kind == "other":
            write_output(file, b"ours", "another kind")
        else:
            FILES[writer](file)
            file.write_text(YEARS)
        before = look(tmp_path)
        with pytest.raises(UserError, match=str(file)):
            FILES[writer](file)
        assert look(tmp_path) == before


@pytest.mark.parametrize("writer", FOLDERS)
def test_no_writer_of_a_folder_replaces_what_is_not_its_own(writer, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "thesis.txt").write_text(YEARS)
    for number, kind in enumerate(("full", "file", "link", "dangling", "other", "added")):
        folder = tmp_path / f"f{number}"
        if kind == "full":
            (folder / "deep").mkdir(parents=True)
            (folder / "deep/thesis.txt").write_text(YEARS)
        elif kind == "file":
            folder.write_text(YEARS)
        elif kind in ("link", "dangling"):
            folder.symlink_to("theirs" if kind == "link" else "nowhere")
        elif kind == "other":
            write_failures(folder / "failures.jsonl", [])
        else:
            FOLDERS[writer](folder)
            (folder / "thesis.txt").write_text(YEARS)
        before = look(tmp_path)
        with pytest.raises(UserError, match=str(folder)):
            FOLDERS[writer](folder)
        assert look(tmp_path) == before


def fixed_writers() -> Iterator[tuple[str, Callable[[Path], object], tuple[str, ...]]]:
    """Yield writers of files with fixed names in a folder, and these names."""
    document = Document("table", "A table", [])
    yield "tables", lambda place: write_document(document, place), ("table.csv", "table.json")
    shards = ("00000.tar", "00000.json", "card.json")
    yield "shards", lambda place: write_shards(SETS, place), shards

    def generate(place: Path) -> None:
        wanted = FolderRecord({"a": 1}, {"b": 2}, 1)
        with claim(place, wanted, RunSettings(overwrite=True)):  # type: ignore[call-arg]
            pass

    of_shards = ("gallery.html", "00003.parquet", "captions/00000.jsonl", "run.json", "chosen.json")
    yield "generate", generate, (*shards, *of_shards)
    run = ("run.json", "config.yaml", "metrics.csv", "results.jsonl", "checkpoint/a.txt")
    yield "train", lambda place: RunFolder(place, {}).check_owned(), run


@pytest.mark.parametrize(
    ("write", "names"),
    [(w, n) for _, w, n in fixed_writers()],
    ids=[i for i, *_ in fixed_writers()],
)
def test_no_name_in_a_named_folder_replaces_a_users_file(write, names, tmp_path):
    for number, name in enumerate(names):
        for link in (False, True):
            place = tmp_path / f"{number}{link}"
            (place / name).parent.mkdir(parents=True)
            (tmp_path / "theirs").write_text(YEARS)
            if link:
                (place / name).symlink_to(tmp_path / "theirs")
            else:
                (place / name).write_text(YEARS)
            with pytest.raises(UserError, match=str(place)):
                write(place)
            assert (place / name).read_text() == YEARS
            assert (place / name).is_symlink() == link


def test_other_files_beside_those_of_a_run_or_of_shards_stay_when_it_is_made_anew(tmp_path):
    run = RunFolder(tmp_path / "run", {})
    checkpoint = run.path / "checkpoint"
    with run.lock():
        run.write_record({"config_hash": "x"})
    save_model(checkpoint)
    for name in ("notes.txt", "checkpoint/notes.txt", "checkpoint/deep/notes.txt"):
        (run.path / name).parent.mkdir(exist_ok=True)
        (run.path / name).write_text(YEARS)
    run.clear()
    run.write_record({"config_hash": "y"})
    save_model(checkpoint)
    assert list(look(run.path).values()).count(YEARS.encode()) == 3
    assert (checkpoint / "config.json").read_text() == "new"
    (run.path / "metrics.csv").symlink_to(tmp_path / "theirs")
    with pytest.raises(UserError, match=r"metrics\.csv is a link"):
        run.clear()

    shards = tmp_path / "shards"
    theirs = ("2019-results.json", "0_notes.tmp", "captions/thesis.txt", "01.parquet")
    for made in (1, 2):
        wanted = FolderRecord({"a": made}, {"b": 2}, 1)
        with claim(shards, wanted, RunSettings(overwrite=True)):  # type: ignore[call-arg]
            (shards / "captions").mkdir(exist_ok=True)
            for name in ("00000.json", "captions/00000.jsonl"):
                assert not (shards / name).exists()
                (shards / name).write_text("{}")
            for name in theirs:
                if made == 1:
                    (shards / name).write_text(YEARS)
                assert (shards / name).read_text() == YEARS


def test_a_killed_write_of_shards_goes_on(tmp_path):
    write_shards(SETS, tmp_path)
    (tmp_path / "00000.json").unlink()  # killed before the commit
    (tmp_path / "card.json").unlink()
    assert write_shards(SETS, tmp_path)["sets"] == 2


def test_leaks_are_noted_beside_no_file_of_another(tmp_path):
    (tmp_path / "leaks.json").write_text(json.dumps({"years": "of work"}))
    before = look(tmp_path)

    some = np.array([1])
    leaks = Leaks(rows=some, ids=some, images=1, equal=1, checked=0, total=2)
    with pytest.raises(UserError, match=r"leaks\.json"):
        write_leaks(tmp_path, "retrieval", leaks)
    assert look(tmp_path) == before


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ({"hub": "x", "questions": "x"}, "export.hub=.* and export.questions="),
        ({"hub": "x", "clip_benchmark": "x/in"}, "one would lie in the other"),
        ({"hub": "x/in", "lmms_eval": "x"}, "one would lie in the other"),
        ({"hub": "x", "vlmevalkit": "x/a.tsv"}, "one would lie in the other"),
        ({"hub": "shards"}, "paths.shards=.* and export.hub="),
        ({"hub": "."}, "paths.shards=.* and export.hub="),
        ({"hub": "x", "croissant": "x/croissant.json"}, None),
        ({"hub": "shards/hub", "questions": "shards/questions"}, None),
        ({"hub": "full"}, r"export.hub=.*thesis\.txt"),
        ({"vlmevalkit": "full/thesis.tsv"}, r"export.vlmevalkit=.*thesis\.tsv"),
    ],
)
def test_places_of_exports_are_checked_before_anything_is_made(places, said, tmp_path):
    (tmp_path / "full").mkdir()
    for name in ("thesis.txt", "thesis.tsv"):
        (tmp_path / "full" / name).write_text(YEARS)
    export = dict.fromkeys(PLACES) | {k: str(tmp_path / v) for k, v in places.items()}
    if said is None:
        check_exports(tmp_path / "shards", export, overwrite=False)
        return
    with pytest.raises(UserError, match=said):
        check_exports(tmp_path / "shards", export, overwrite=False)


def test_the_same_output_twice_is_fine(tmp_path):
    for name in ("failures", "rows", "page", "gallery"):
        for _ in range(2):
            FILES[name](tmp_path / name)
    for _ in range(2):
        save_model(tmp_path / "model")
        write_shards(SETS, tmp_path / "shards")
    for name in ("hub", "clip_benchmark"):
        FOLDERS[name](tmp_path / name)
    with pytest.raises(UserError, match="no question"):
        export_questions([], tmp_path / "asked")
    assert not (tmp_path / "asked").exists()
    assert (tmp_path / RECORD).is_file()


def test_a_folder_in_which_a_library_writes_is_new_empty_or_begun(tmp_path):
    place = tmp_path / "work"
    begin_folder(place, "states")
    (place / "state.pt").write_text("of ours")
    begin_folder(place, "states")
    with pytest.raises(UserError, match=r"work=.*work holds what cfaug did not .*state\.pt"):
        begin_folder(place, "something else", "work")
    with pytest.raises(UserError, match="is not a folder"):
        begin_folder(place / "state.pt", "states")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    with pytest.raises(UserError, match="is not a folder"):
        begin_folder(tmp_path / "link", "states")


def test_states_of_a_training_of_the_zoo_replace_nothing(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "state.pt").write_text("years")
    (work / "state.tmp").write_text("years")
    before = look(work)
    with pytest.raises(UserError, match=r"work=.* holds what cfaug did not write"):
        train_diffusion([f"out={tmp_path / 'out'}", f"work={work}"])
    assert look(tmp_path) == {f"work/{name}": content for name, content in before.items()}
