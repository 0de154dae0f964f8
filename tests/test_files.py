from __future__ import annotations

import stat

import pytest

from cfaug.files import whole_folder, write_file


def test_a_folder_takes_its_place_when_it_is_full(tmp_path):
    folder = tmp_path / "parent" / "cache"
    with whole_folder(folder, "card.json") as fresh:
        (fresh / "card.json").write_text("{}")
        assert not folder.exists()
    assert [path.name for path in (tmp_path / "parent").iterdir()] == ["cache"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_a_folder_that_failed_leaves_nothing(tmp_path):
    def fill():
        with whole_folder(tmp_path / "cache", "card.json") as fresh:
            (fresh / "half").write_text("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("whole", [True, False])
def test_what_another_process_made_first_is_kept_if_it_is_whole(tmp_path, whole):
    def fill():
        with whole_folder(tmp_path / "cache", "card.json") as fresh:
            (fresh / "card.json").write_text("second")
            (tmp_path / "cache").mkdir()
            (tmp_path / "cache" / ("card.json" if whole else "litter")).write_text("first")

    if whole:
        fill()
        assert (tmp_path / "cache/card.json").read_text() == "first"
    else:
        with pytest.raises(OSError, match="not empty"):
            fill()
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_a_file_is_the_old_one_until_it_is_the_whole_new_one(tmp_path):
    file = tmp_path / "a.json"
    write_file(file, b"old")
    with pytest.raises(TypeError):
        write_file(file, "not bytes")
    assert file.read_bytes() == b"old"
    write_file(file, b"new")
    assert file.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [file]
