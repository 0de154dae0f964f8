"""SNLI-VE as parquet of the Hub: images once, hypotheses with labels by the schema's names."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from tests.data.hostile import assert_refused
from tests.data.making import noise_image

NAMES = ["entailment", "neutral", "contradiction"]


def write(file, rows, names=NAMES):
    file.parent.mkdir(parents=True, exist_ok=True)
    columns = {
        "image": [{"bytes": noise_image(n), "path": None} for n, *_ in rows],
        "filename": [f"{n}.jpg" for n, *_ in rows],
        "premise": ["a premise" for _ in rows],
        "hypothesis": [text for _, text, _ in rows],
        "label": [label for *_, label in rows],
    }
    features = {"label": {"names": names, "_type": "ClassLabel"}}
    about = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(pa.table(columns).replace_schema_metadata(about), file)


ROWS = [(1, "a man", 0), (1, "nobody agrees", -1), (1, "a cat", 2), (2, "a dog", 1)]


def read(index):
    of = (index.group_name, index.text, index.label, index.extra_row)
    return [tuple(part(row) for part in of) for row in range(len(index))]


def test_rows_of_one_image_are_a_set_with_labels_by_name(tmp_path):
    write(tmp_path / "hub" / "data" / "test-00000-of-00001.parquet", ROWS)
    index = open_index(tmp_path / "hub", tmp_path / "cache")
    premise = {"premise": "a premise"}
    assert read(index) == [
        ("1.jpg", "a man", "entailment", premise), ("1.jpg", "a cat", "contradiction", premise),
        ("2.jpg", "a dog", "neutral", premise),
    ]  # fmt: skip
    assert index.images.tolist() == [0, 0, 1]
    assert index.kind == "entailment_parquet"
    assert index.read_image(2) == noise_image(2)
    assert "1 pairs without a gold label" in index.reading.line("source", "hub")


def test_a_split_is_named_with_the_folder_and_labels_may_be_words(tmp_path):
    hub = tmp_path / "hub"
    write(hub / "test-00000-of-00001.parquet", ROWS)
    words = [(number, text, "-" if label < 0 else NAMES[label]) for number, text, label in ROWS]
    write(hub / "dev-00000-of-00001.parquet", words)
    dev = read(open_index(f"{hub}:dev", tmp_path / "cache"))
    assert dev == read(open_index(f"{hub}:test", tmp_path / "cache"))
    assert_refused(hub, tmp_path / "cache", "several splits; name one")


@pytest.mark.parametrize(
    ("row", "names", "said"),
    [
        ((3, "a dog", 7), NAMES, "row 5: the label 7 has no name"),
        ((3, "a dog", 1), ["yes", "no", "maybe"], "row 1: the label 'yes' is invalid"),
        ((3, " ", 1), NAMES, "row 5: the caption is empty"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(tmp_path, row, names, said):
    write(tmp_path / "hub" / "a.parquet", [*ROWS, row], names)
    with pytest.raises(UserError, match=said):
        open_index(tmp_path / "hub", tmp_path / "cache")
