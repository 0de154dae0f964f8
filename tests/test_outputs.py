"""Outputs: what cfaug wrote is replaced, and nothing else is."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core import outputs
from cfaug.core.errors import UserError
from cfaug.core.outputs import (
    RECORD,
    begin_record,
    check_output,
    check_output_folder,
    output_folder,
    owner_of,
    read_outputs,
    remove_output,
    write_output,
)
from tests.properties import examples

LIST, MODEL = "a list", "a model"


def fill(folder: Path, *texts: str, kind: str = MODEL) -> None:
    """Write a folder of files 0.txt, in/1.txt, in/2.txt, ..."""
    with output_folder(folder, kind) as fresh:
        (fresh / "in").mkdir()
        for number, text in enumerate(texts):
            (fresh / (f"in/{number}.txt" if number else "0.txt")).write_text(text)


def content(folder: Path) -> dict[str, str]:
    """Return the texts of all files of a folder but the record."""
    return {
        str(file.relative_to(folder)): file.read_text()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != RECORD
    }


def test_a_file_of_ours_is_replaced_by_its_own_kind_only(tmp_path):
    file = tmp_path / "new/list.jsonl"
    write_output(file, b"1", LIST)
    assert owner_of(file) == LIST
    write_output(file, b"22", LIST)
    assert file.read_bytes() == b"22"
    assert sorted(path.name for path in file.parent.iterdir()) == [RECORD, "list.jsonl"]
    with pytest.raises(UserError, match=r"out=.* holds a list and is not replaced by a page"):
        write_output(file, b"", "a page", "out")
    assert file.read_bytes() == b"22"


@pytest.mark.parametrize("other", ["file", "changed", "link", "dangling", "folder"])
def test_anything_else_is_refused_and_stays_as_it_is(tmp_path, other):
    file, theirs = tmp_path / "list.jsonl", tmp_path / "theirs"
    theirs.write_text("years")
    if other == "file":
        file.write_text("years")
    elif other == "changed":
        write_output(file, b"1", LIST)
        file.write_text("2")
    elif other == "folder":
        file.mkdir()
    else:
        file.symlink_to(theirs if other == "link" else tmp_path / "nowhere")
    before = (file.is_symlink(), file.read_text() if file.is_file() else None)
    with pytest.raises(UserError, match=r"list\.jsonl.* name (another|one)"):
        write_output(file, b"", LIST)
    assert (file.is_symlink(), file.read_text() if file.is_file() else None) == before
    assert theirs.read_text() == "years"
    assert not (tmp_path / "nowhere").exists()


def test_streams_are_written_to(tmp_path):
    script = (
        "from pathlib import Path; from cfaug.core.outputs import write_output\n"
        "write_output(Path('/dev/stdout'), b'two', 'a list')"
    )
    with (tmp_path / "log").open("w") as log:
        log.write("one ")
        log.flush()
        subprocess.run([os.sys.executable, "-c", script], stdout=log, check=True)
    assert (tmp_path / "log").read_text() == "one two"
    assert Path("/dev/stdout").is_symlink()
    write_output(Path("/dev/null"), b"two", LIST)
    os.mkfifo(tmp_path / "pipe")
    check_output(tmp_path / "pipe", LIST)


@given(st.lists(st.sampled_from(["ours", "theirs", "other kind", "remove"]), max_size=8))
@settings(max_examples=examples(30), deadline=None)
def test_what_a_user_wrote_last_is_never_lost(tmp_path_factory, steps):
    file = tmp_path_factory.mktemp("any") / "a.txt"
    theirs = False  # whether the file's content is the user's
    for number, step in enumerate(steps):
        if step == "theirs":
            file.write_text(f"theirs {number}")
            theirs = True
        elif step == "remove":
            file.unlink(missing_ok=True)
            theirs = False
        else:
            before = file.read_bytes() if file.exists() else None
            kind = LIST if step == "ours" else "a page"
            try:
                write_output(file, f"ours {number}".encode(), kind)
                assert not theirs
            except UserError:
                assert file.read_bytes() == before


def test_a_killed_writer_leaves_a_file_that_is_still_ours(tmp_path, monkeypatch):
    file = tmp_path / "list"
    write_output(file, b"old", LIST)

    def kill(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", kill)
        with pytest.raises(KeyboardInterrupt):
            write_output(file, b"new", LIST)
    assert (file.read_bytes(), owner_of(file)) == (b"old", LIST)
    write_output(file, b"newer", LIST)


def test_a_damaged_record_owns_nothing_and_goes_on(tmp_path):
    file = tmp_path / "list"
    write_output(file, b"1", LIST)
    record = tmp_path / RECORD
    for text in ("", "{", '{"file": "list"}\n[]\nnull\n\xff\x00', "[" * 100_000):
        record.write_text(text)
        assert owner_of(file) is None
        with pytest.raises(UserError, match="no record that it wrote it"):
            write_output(file, b"2", LIST)
    write_output(tmp_path / "other", b"3", LIST)
    assert owner_of(tmp_path / "other") == LIST
    record.unlink()
    record.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        write_output(tmp_path / "third", b"3", LIST)
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_of_an_earlier_call_is_removed_only_if_it_is_ours(tmp_path):
    write_output(tmp_path / "ours", b"", LIST)
    (tmp_path / "theirs").touch()
    for name in ("ours", "theirs", "missing"):
        remove_output(tmp_path / name, LIST)
    assert content(tmp_path) == {"theirs": ""}


def test_a_record_may_begin_with_what_an_earlier_version_wrote(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "table.csv").write_text("1")
        begin_record(folder, earlier=folder == old)
        begin_record(folder, earlier=True)  # only the first counts
    write_output(old / "table.csv", b"2", "table.csv")
    with pytest.raises(UserError, match="no record"):
        write_output(new / "table.csv", b"2", "table.csv")


# Folders.


def test_a_folder_of_ours_is_replaced_as_a_whole(tmp_path):
    folder = tmp_path / "parent/mine"
    fill(folder, "a", "b", "c")
    fill(folder, "d", "e")
    assert content(folder) == {"0.txt": "d", "in/1.txt": "e"}
    assert [path.name for path in (tmp_path / "parent").iterdir()] == ["mine"]
    lines = map(json.loads, (folder / RECORD).read_text().splitlines())
    assert {line["kind"] for line in lines} == {MODEL}
    with (
        pytest.raises(UserError, match="holds a model already"),
        output_folder(folder, MODEL, replace=False),
    ):
        pass
    with pytest.raises(UserError, match="holds a model and is not replaced by a page"):
        fill(folder, kind="a page")


@pytest.mark.parametrize(
    "theirs", ["thesis.txt", "in/thesis.txt", "deep/er/thesis.txt", ".git/HEAD", "0.txt", "link"]
)
def test_a_folder_with_a_file_of_somebody_else_is_refused(tmp_path, theirs):
    folder, file = tmp_path / "mine", tmp_path / "mine" / theirs
    fill(folder, "a", "b")
    file.parent.mkdir(parents=True, exist_ok=True)
    if theirs == "link":
        file.symlink_to(tmp_path)
    else:
        file.write_text("years")
    before = content(folder)
    with pytest.raises(UserError, match=r"(thesis|HEAD|0\.txt|link).*nothing in it is replaced"):
        fill(folder, "c")
    assert content(folder) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine"]


def test_folders_of_others_files_and_links_are_refused(tmp_path, monkeypatch):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "thesis.txt").write_text("years")
    (tmp_path / "link").symlink_to(theirs)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").symlink_to(theirs / "thesis.txt")
    monkeypatch.chdir(theirs)
    for folder in (theirs, Path(), tmp_path / "link", tmp_path / "dangling", tmp_path / "file"):
        with pytest.raises(UserError, match="name a new or an empty folder"):
            fill(folder, "a")
    assert content(theirs) == {"thesis.txt": "years"}
    assert len(list(tmp_path.iterdir())) == 4


def test_empty_folders_links_to_them_and_the_folder_of_the_shell_are_filled(tmp_path, monkeypatch):
    for name in ("empty", "linked", "here"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("linked")
    monkeypatch.chdir(tmp_path / "here")
    inode = Path().stat().st_ino
    for folder in (tmp_path / "empty", tmp_path / "link", Path()):
        for text in "ab":
            fill(folder, text, text)
            assert content(folder.resolve()) == {"0.txt": text, "in/1.txt": text}
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "here").stat().st_ino == inode
    assert len(list(tmp_path.iterdir())) == 4


def test_a_folder_that_fails_or_is_killed_leaves_the_old_one(tmp_path, monkeypatch):
    folder = tmp_path / "mine"
    fill(folder, "old")
    with pytest.raises(FileNotFoundError), output_folder(folder, MODEL) as fresh:
        (fresh / "missing" / "half").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    script = (
        "import os; from pathlib import Path; from cfaug.core import outputs\n"
        "with outputs.output_folder(Path('mine'), 'a model') as fresh:\n"
        "    (fresh / 'half').touch()\n"
        "    if {0}: os._exit(1)\n"
        "    rename = Path.rename\n"
        "    Path.rename = lambda a, b: (rename(a, b), os._exit(1))\n"
    )
    for within in (True, False):
        command = [os.sys.executable, "-c", script.format(within)]
        subprocess.run(command, cwd=tmp_path, check=False)
        assert len(list(tmp_path.iterdir())) == 2
        with pytest.raises(ZeroDivisionError), output_folder(folder, MODEL):
            raise ZeroDivisionError
        assert content(folder) == {"0.txt": "old"}
        assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_what_comes_while_a_folder_is_written_is_kept(tmp_path):
    folder = tmp_path / "mine"
    fill(folder, "old")
    with pytest.raises(UserError, match=r"thesis\.txt"), output_folder(folder, MODEL):
        (folder / "thesis.txt").write_text("years")
    assert content(folder) == {"0.txt": "old", "thesis.txt": "years"}


def test_a_file_that_is_kept_may_be_anybodys(tmp_path):
    folder = tmp_path / "mine"
    fill(folder, "old")
    (folder / "README.md").write_text("edited")
    check_output_folder(folder, MODEL, keeps=("README.md",))
    with output_folder(folder, MODEL, keeps=("README.md",)) as fresh:
        (fresh / "README.md").write_text((folder / "README.md").read_text())
    assert content(folder) == {"README.md": "edited"}
    assert "README.md" not in read_outputs(folder)


def test_a_folder_whose_parent_cannot_be_written_is_filled_in_its_place(tmp_path, monkeypatch):
    folder = tmp_path / "mounted"
    folder.mkdir()
    monkeypatch.setattr(outputs.os, "access", lambda *_: False)
    for text in "ab":
        fill(folder, text)
        assert content(folder) == {"0.txt": text}
