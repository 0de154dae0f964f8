"""Records by key, in files that may be lost."""

from __future__ import annotations

import json

import pytest

from cfaug.core.files import KeptRecords

FOUND = {"a": {"text": "line\u2028line\n", "nll": [0.1, 1e-300]}, "b": {"text": None, "nll": ()}}


def test_what_is_kept_is_there_for_the_next_process_and_in_memory(tmp_path):
    for folder in (tmp_path / "kept", None):
        records = KeptRecords(folder)
        records.add(FOUND)
        again = records if folder is None else KeptRecords(folder)
        for one in (records, again):
            assert len(one) == 2
            assert "a" in one
            assert "c" not in one
            assert one["a"] == FOUND["a"]
            assert one["b"] == {"text": None, "nll": []}
    records.add({})
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_a_damaged_file_is_deleted_and_counted_and_the_others_are_read(tmp_path):
    records = KeptRecords(tmp_path)
    for key in FOUND:
        records.add({key: FOUND[key]})
    files = sorted(tmp_path.iterdir())
    assert [json.loads(one.read_text())["key"] in FOUND for one in files] == [True, True]
    files[0].write_bytes(files[0].read_bytes()[:-3])
    again = KeptRecords(tmp_path)
    assert again.damaged == 1
    assert len(again) == 1
    assert sorted(tmp_path.iterdir()) == files[1:]
    files[1].unlink()
    assert len(KeptRecords(tmp_path)) == 0


def test_a_disk_that_refuses_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        KeptRecords(tmp_path / "file" / "folder").add(FOUND)
