"""What looks like data by its name but is a pipe, a socket or a device: never waited for."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.core.files import checksum, require_regular
from cfaug.core.weights import sha256
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from cfaug.generate.folder import RECORD
from cfaug.generate.folder import read_record as read_made
from cfaug.report.records import read_config
from cfaug.report.results import read_record, read_results
from tests.data.making import noise_image, pair


@pytest.fixture(autouse=True)
def no_waiting():
    """End a test that waits for a pipe's other end."""

    def late(*_: object) -> None:
        raise AssertionError("waited for 5 s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(5)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pipe(file: Path) -> None:
    os.mkfifo(file)


def plug(file: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(file.parent):
        server.bind(file.name)  # a path may have 108 bytes


def link_to_a_device(file: Path) -> None:
    file.symlink_to("/dev/zero")


def captioned(folder: Path) -> None:
    (folder / "a.png").write_bytes(noise_image(0))
    (folder / "a.txt").write_text("noise")


LAYOUTS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "tar": ("00000.tar", lambda folder: None),
    "shards": ("00000.json", lambda folder: write_shards([pair(0)], folder)),
    "card of shards": ("card.json", lambda folder: write_shards([pair(0)], folder)),
    "image": ("x.jpg", captioned),
    "text": ("a.txt", captioned),
    "list": ("captions.jsonl", captioned),
    "table": ("captions.csv", captioned),
    "parquet": ("a.parquet", lambda folder: None),
    "class folders": ("cat/x.png", lambda folder: (folder / "cat").mkdir()),
    "nshards": ("nshards.txt", lambda folder: None),
    "prompt": ("0000001/prompt.json", lambda folder: (folder / "0000001").mkdir()),
    "coco": ("annotations/captions_val2017.json", lambda folder: [
        (folder / name).mkdir() for name in ("annotations", "val2017")]),
    "karpathy": ("dataset_coco.json", captioned),
}  # fmt: skip


@pytest.mark.parametrize("special", [pipe, plug, link_to_a_device])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_source_with_one_is_read_without_it_or_refused_by_name(tmp_path, layout, special):
    name, rest = LAYOUTS[layout]
    folder = tmp_path / "source"
    folder.mkdir()
    rest(folder)
    (folder / name).unlink(missing_ok=True)
    special(folder / name)
    found, message = [], ""
    try:
        index = open_index(folder, tmp_path / "cache")
        found = [Path(index.file_name(row)).name for row in range(len(index))]
    except UserError as error:
        message = str(error)
    assert (str(folder) in message) != bool(found)
    assert name not in found


def test_a_column_or_an_image_that_became_one_is_not_waited_for(tmp_path):
    write_shards([pair(0)], tmp_path / "shards")
    index = open_index(tmp_path / "shards", tmp_path / "cache")
    (tmp_path / "shards/00000.tar").unlink()
    pipe(tmp_path / "shards/00000.tar")
    with pytest.raises(UserError, match="cannot be read"):
        index.read_image(0)
    (index.folder / "groups.npy").unlink()
    pipe(index.folder / "groups.npy")
    with pytest.raises(UserError, match=r"groups\.npy is not a regular file but a pipe"):
        open_index(index.folder, tmp_path / "cache")


@pytest.mark.parametrize(
    "read", [require_regular, checksum, read_record, read_results, lambda file: sha256([file])]
)
def test_records_and_weights_are_files(tmp_path, read):
    pipe(tmp_path / "run.json")
    with pytest.raises(UserError, match=r"run\.json is not a regular file but a pipe"):
        read(tmp_path / "run.json")
    with pytest.raises(UserError, match="is not a regular file but a device"):
        read(Path("/dev/zero"))


def test_what_made_a_folder_is_a_file(tmp_path):
    pipe(tmp_path / RECORD)
    with pytest.raises(UserError, match="is not a regular file but a pipe"):
        read_made(tmp_path)
    (tmp_path / RECORD).unlink()
    (tmp_path / RECORD).write_text("[" * 100_000)
    with pytest.raises(UserError, match="cannot be read"):
        read_made(tmp_path)


def test_the_settings_of_a_run_are_a_file(tmp_path):
    pipe(tmp_path / "config.yaml")
    with pytest.raises(UserError, match=r"config\.yaml is not a regular file but a pipe"):
        read_config(tmp_path)
