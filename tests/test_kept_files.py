"""Files with their checksum in their name: what is damaged or deleted is not read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfaug.core.files import read_kept, write_kept


def test_what_is_whole_is_read_in_order_and_what_is_damaged_is_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    files = [write_kept(folder, name, ".json", b'["%d"]' % i) for i, name in enumerate("cab")]
    assert [len(file.stem) for file in files] == [len("c-01234567")] * 3
    write_kept(folder, "d", ".npy", b"not asked for")
    assert write_kept(folder, "c", ".json", b'["0"]') == files[0]
    found: list[str] = []
    assert read_kept(folder, "*.json", lambda file: found.extend(json.loads(file.read_text()))) == 0
    assert found == ["1", "2", "0"]
    files[1].write_bytes(b'["7"]')
    assert read_kept(folder, "*.json", lambda file: None) == 1
    assert not files[1].exists()
    assert files[2].exists()
    assert read_kept(tmp_path / "missing", "*", print) == 0


@pytest.mark.parametrize("error", [ValueError, KeyError, TypeError, EOFError, OSError])
def test_what_its_reader_refuses_is_deleted(tmp_path: Path, error: type[Exception]) -> None:
    file = write_kept(tmp_path, "a", ".json", b"x")

    def refuse(_: Path) -> None:
        raise error

    assert read_kept(tmp_path, "*.json", refuse) == 1
    assert not file.exists()


def test_what_another_process_deletes_meanwhile_is_not_damaged(tmp_path: Path) -> None:
    first, second = (write_kept(tmp_path, name, ".json", b"x") for name in "ab")
    seen: list[Path] = []

    def read(file: Path) -> None:
        seen.append(file)
        second.unlink()

    assert read_kept(tmp_path, "*.json", read) == 0
    assert seen == [first]
