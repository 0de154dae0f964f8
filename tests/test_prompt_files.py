"""Files of prompts: shipped ones by name, others by path, within a size."""

from __future__ import annotations

import pytest

from cfaug.core.errors import UserError
from cfaug.core.files import MOST_BYTES, find_prompt_file, read_keys


def test_a_shipped_prompt_is_found_by_its_name():
    place = ("editing/question_wordings", "benchmark.wording", "the same keys")
    assert find_prompt_file("plain", ("plain",), *place).is_file()
    with pytest.raises(UserError, match=r"benchmark\.wording=plian: there is no such file; choose"):
        find_prompt_file("plian", ("plain",), *place)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a: 1\n", "should have the keys a, b, and no other"),
        ("a: 1\nb: 2\nc: 3\n", "and no other"),
        ("- a\n- b\n", "and no other"),
        ("a: [", "is not YAML"),
        ("a: !!python/object/apply:os.system ['true']\n", "is not YAML"),
        ("#" * (MOST_BYTES + 1), "at most 1,048,576 are read"),
    ],
)
def test_another_file_is_refused(content, said, tmp_path):
    (tmp_path / "own.yaml").write_text(content)
    with pytest.raises(UserError, match=said):
        read_keys(tmp_path / "own.yaml", ("a", "b"))


def test_its_own_file_is_read(tmp_path):
    (tmp_path / "own.yaml").write_text("a: 1\nb: x\n")
    assert read_keys(tmp_path / "own.yaml", ("b", "a")) == {"a": 1, "b": "x"}
