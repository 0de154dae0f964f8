"""Captions without an image: negatives of the images they are beside, and never examples."""

from __future__ import annotations

import pickle

import numpy as np

from cfaug.data.index import Index, open_index
from cfaug.data.mixture.mixture import plan_mixture
from tests.data.layouts import NEGATIVES, TEXTS, cells, images, jsonl, negclip, parquet, table


def negatives(index: Index) -> list[list[str]]:
    return [index.negatives(row) for row in range(len(index))]


def test_negatives_are_read_beside_their_images(tmp_path):
    negclip(tmp_path / "x")
    index = open_index(tmp_path / "x", tmp_path / "cache")
    assert len(index) == 3
    assert negatives(index) == NEGATIVES
    assert index.has_negatives
    assert index.reading.negatives == 3
    assert "(3 negatives without an image)" in index.reading.line("real", "x")
    assert negatives(pickle.loads(pickle.dumps(index))) == NEGATIVES  # as a worker gets it


def test_negatives_of_parquet(tmp_path):
    parquet(tmp_path / "x" / "all.parquet", {
        "image": cells(), "caption": list(TEXTS.values()), "negative_captions": NEGATIVES,
    })  # fmt: skip
    index = open_index(tmp_path / "x", tmp_path / "cache")
    assert [index.text(row) for row in range(3)] == list(TEXTS.values())
    assert negatives(index) == NEGATIVES


def test_they_are_part_of_the_content_and_their_absence_is_not(tmp_path):
    hashes = []
    for number, (first, second) in enumerate((("x", ""), ("y", ""), ("", ""))):
        folder = tmp_path / str(number)
        images(folder)
        rows = [("a.png", "A", first), ("b.png", "B", second)]
        table(folder / "captions.csv", ["image", "caption", "neg_caption"], rows)
        hashes.append(open_index(folder, tmp_path / "cache").hash)
    images(tmp_path / "plain")
    rows = [("a.png", "A"), ("b.png", "B")]
    table(tmp_path / "plain" / "captions.csv", ["image", "caption"], rows)
    plain = open_index(tmp_path / "plain", tmp_path / "cache")
    assert not plain.has_negatives
    assert plain.hash == hashes[2]
    assert len(set(hashes)) == 3


def test_a_photo_with_several_captions(tmp_path):
    """As many negatives as captions: each has its own; otherwise each has all."""
    images(tmp_path / "x")
    jsonl(tmp_path / "x" / "captions.jsonl", [
        {"image": "a.png", "captions": ["A", "B"], "negative_captions": ["-A", "-B"]},
        {"image": "b.png", "captions": ["C", "D"], "negatives": ["-C", "-D", "-E"]},
        {"image": "a.png", "caption": "F"},
    ])  # fmt: skip
    index = open_index(tmp_path / "x", tmp_path / "cache")
    assert [index.text(row) for row in range(5)] == ["A", "B", "F", "C", "D"]
    every = ["-C", "-D", "-E"]
    assert negatives(index) == [["-A"], ["-B"], [], every, every]


def test_a_damaged_column_is_noticed(tmp_path):
    negclip(tmp_path / "x")
    index = open_index(tmp_path / "x", tmp_path / "cache")
    content = (index.folder / "negatives.arrow").read_bytes()
    (index.folder / "negatives.arrow").write_bytes(content[::-1])
    again = open_index(tmp_path / "x", tmp_path / "cache")
    assert negatives(again) == NEGATIVES
    (index.folder / "negatives.arrow").unlink()
    assert negatives(open_index(tmp_path / "x", tmp_path / "cache")) == NEGATIVES


def test_a_batch_has_the_negatives_of_all_its_rows(tmp_path):
    from cfaug.data.mixture.loader import Examples, Share
    from tests.data.loading import TRANSFORM

    negclip(tmp_path / "x")
    index = open_index(tmp_path / "x", tmp_path / "cache")
    examples = Examples((index, None), TRANSFORM, rows=3)
    whole = np.array([[0, 2], [0, 0]])
    batch = examples.__getitems__(Share(whole[:1], whole))
    assert batch["negatives"] == [*NEGATIVES[2], *NEGATIVES[0]]
    assert batch["texts"] == [index.text(2)]


def test_no_negative_is_ever_an_example(tmp_path):
    negclip(tmp_path / "x")
    index = open_index(tmp_path / "x", tmp_path / "cache")
    mixture = plan_mixture(index, None, cf_ratio=0, size=None, seed=1, validation=0)
    drawn = {index.text(row) for _, row in mixture.train.tolist()}
    assert len(mixture.train) == 3
    assert not drawn & {text for texts in NEGATIVES for text in texts}
