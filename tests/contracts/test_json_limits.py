"""JSON of others that is too deep, or has a number of thousands of digits, is refused by name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.annotation.ratings import read_summary
from cfaug.annotation.record import read_record as read_annotation
from cfaug.core.errors import UserError
from cfaug.core.safety.json_text import DEEPEST, MOST_DIGITS, json_file, load_json
from cfaug.core.safety.safe_loading import check_folder
from cfaug.core.weights import find_weights, tensor_shapes
from cfaug.data.index import open_index
from cfaug.data.sources.lists import json_lines
from cfaug.editing.edit_prompts import EditFormat
from cfaug.evaluation.failures import read_failures
from cfaug.generate.folder import read_record as read_folder
from cfaug.report.document import read_document
from cfaug.report.item_lists.evaluator_logs import read_log
from cfaug.report.results import read_record
from tests.data.making import noise_image, write_tar
from tests.properties import examples

ROOT = Path(__file__).parents[2]
DEEP = "[" * 100_000 + "]" * 100_000
HUGE = "1" + "0" * 5_000
BAD = {"deep": DEEP, "objects": '{"a":' * 100_000 + "1" + "}" * 100_000, "huge": HUGE}


def place(file: Path, value: str, template: str = '{{"caption": "a dog", "x": {}}}') -> Path:
    """Write JSON with a text in place of a value."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(template.format(value))
    return file


def in_named(name: str, read: Callable[[Path], Any], **options: str):
    """Return a reader of a file that has the value in it."""
    return lambda folder, value: read(place(folder / name, value, **options))


def in_source(name: str, template: str):
    """Return a reader of a folder of images with a list that has the value in it."""

    def read(folder: Path, value: str) -> Any:
        for number in range(2):
            (folder / f"{number}.png").write_bytes(noise_image(number))
        place(folder / name, value, template)
        return open_index(folder, folder.parent / "cache")

    return read


def in_tar(folder: Path, value: str) -> Any:
    about = f'{{"caption": "a dog", "x": {value}}}'.encode()
    write_tar(
        folder / "00000.tar",
        [("0.jpg", noise_image(0)), ("0.txt", b"a dog"), ("0.json", about)],
    )
    return open_index(folder, folder.parent / "cache")


def in_safetensors(folder: Path, value: str) -> Any:
    header = f'{{"a": {{"dtype": "F32", "shape": [{value}], "data_offsets": [0, 4]}}}}'.encode()
    file = folder / "model.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    return tensor_shapes(file)


READERS = {
    "a file": in_named("a.json", json_file),
    "lines": in_named("a.jsonl", lambda file: list(json_lines(file))),
    "run.json": in_named("run.json", read_record),
    "a table": in_named("table.json", read_document),
    "answers": in_named("summary.json", read_annotation),
    "ratings": in_named("ratings.json", read_summary),
    "prompts": in_named("edit_format.json", lambda file: EditFormat.read(file.parent)),
    "failures": in_named("failures.jsonl", read_failures),
    "a folder of shards": in_named("run.json", lambda file: read_folder(file.parent)),
    "config.json": in_named("config.json", lambda file: check_folder(file.parent)),
    "an index of weights": in_named(
        "model.safetensors.index.json", lambda file: find_weights(file.parent)
    ),
    "a log of lm-eval": in_named("samples_a.jsonl", read_log),
    "safetensors": in_safetensors,
    "COCO": in_source(
        "captions.json",
        '{{"images": [{{"id": 1, "file_name": "0.png"}}], '
        '"annotations": [{{"image_id": 1, "caption": "a", "x": {}}}]}}',
    ),
    "captions.json": in_source("captions.json", '[{{"image": "0.png", "caption": "a", "x": {}}}]'),
    "captions.jsonl": in_source("captions.jsonl", '{{"image": "0.png", "caption": "a", "x": {}}}'),
    "tars": in_tar,
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("reader", READERS)
def test_json_beyond_a_limit_is_refused_by_name(reader, bad, tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    with pytest.raises(UserError) as refused:
        READERS[reader](folder, BAD[bad])
    assert str(folder) in str(refused.value)
    assert len(str(refused.value)) < 1_000


def test_what_is_within_the_limits_is_read_as_before():
    content = {"a": [1, 2.5, "x", None, True, {"b": []}], "n": 10**MOST_DIGITS // 10}
    assert load_json(json.dumps(content)) == content
    assert load_json(json.dumps(content).encode("utf-16")) == content
    deepest = "[" * DEEPEST + "]" * DEEPEST
    assert load_json(deepest)
    with pytest.raises(ValueError, match="levels"):
        load_json(f"[{deepest}]")
    with pytest.raises(ValueError, match="digits"):
        load_json(f"[-{'9' * MOST_DIGITS}]")


def depth(content: Any) -> int:
    parts = content.values() if isinstance(content, dict) else content
    return 1 + max(map(depth, parts), default=0) if isinstance(content, dict | list) else 0


@given(
    st.recursive(
        st.text('"[]{}\\\\a', max_size=3),
        lambda part: (
            st.lists(part, max_size=3)
            | st.dictionaries(st.text("[}\\", max_size=2), part, max_size=3)
        ),
        max_leaves=20,
    ),
    st.integers(DEEPEST - 4, DEEPEST),
)
@settings(max_examples=examples(200))
def test_brackets_in_texts_are_no_levels(part, outer):
    content = part
    for _ in range(outer):
        content = ["]]][[[", {"}": content}] if _ % 2 else [content]
    deepest = depth(content)
    text = json.dumps(content)
    if deepest <= DEEPEST:
        assert load_json(text) == content
    else:
        with pytest.raises(ValueError, match="levels"):
            load_json(text)


KEPT = {
    "core/kept_records.py", "core/safety/chat_renderer.py", "core/safety/chat_templates.py",
    "data/export/evaluator_scores.py", "data/index/extra_columns.py", "report/training_table.py",
    "annotation/ratings.py", "planning/build.py", "papers/xmai/insertions/mentions.py",
}  # fmt: skip
"""Modules that read again what they, or a process of theirs, wrote just before."""


def test_json_of_others_is_read_by_one_function():
    plain = {
        str(file.relative_to(ROOT / "cfaug"))
        for file in (ROOT / "cfaug").rglob("*.py")
        if re.search(r"\bjson\.loads?\b[^`]", file.read_text(encoding="utf-8"))
    }
    here = {name for name in KEPT if (ROOT / "cfaug" / name).is_file()}
    assert plain == {name for name in KEPT if not name.startswith("papers/")} | here
