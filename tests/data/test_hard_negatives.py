"""The counterfactuals of pairs as wrong answers: what an arm shows, counts and never mixes up."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.index import Index, open_index
from cfaug.data.mixture.hard_negatives import PairNegatives, find_pairs, keep_whole_sets
from cfaug.data.mixture.loader import Examples, RankBatch, TrainingBatches, ValidationBatches
from cfaug.data.mixture.mixture import mix
from cfaug.data.mixture.order import epoch_order
from cfaug.data.mixture.records import COUNTERFACTUAL, Mixture
from cfaug.data.mixture.settings import DataSettings, NegativesData, RatioData, Sources
from cfaug.data.shards.shards import write_shards
from tests.data.layouts import NEGATIVES, TEXTS, cells, images, jsonl, negclip, parquet, table
from tests.data.loading import TRANSFORM, pixels_of
from tests.data.making import pair

ARMS = ("none", "text", "image", "both")
SETS = 40


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    write_shards([pair(n) for n in range(SETS)], folder / "cf", sets_per_shard=16)
    return open_index(folder / "cf", folder / "index")


def asked(arm: str | None, **given: object) -> DataSettings:
    usual = {"cf_ratio": 1.0, "seed": 1, "batch_size": 8}
    if arm is None:
        return RatioData(None, "cf", **(usual | given))
    return NegativesData(None, "cf", negatives=arm, **(usual | given))


def mixed(index: Index, arm: str | None, **given: object) -> Mixture:
    return mix(asked(arm, **given), Sources(None, index))


def original(text: str) -> bool:
    return text.endswith("0")


def test_every_arm_has_as_many_positives_of_the_same_pairs(index):
    """Drawn as the pairs are, an original stands in both places; counts say what is contrasted."""
    pairs = mixed(index, None)
    drawn = Counter(np.asarray(index.sets)[pairs.train[:, 1]].tolist())
    counts = {}
    for arm in ARMS:
        mixture = mixed(index, arm)
        assert Counter(np.asarray(index.sets)[mixture.train[:, 1]].tolist()) == drawn
        said = {name: mixture.counts[name] for name in ("train", "counterfactual", "total")}
        assert said == dict.fromkeys(said, len(pairs.train))
        texts = [index.text(row) for row in mixture.train[:, 1].tolist()]
        assert all(map(original, texts)) == (arm != "both")
        held = [index.text(row) for row in mixture.validation[:, 1].tolist()]
        assert len(held) == len(set(held)) == mixture.counts["validation"]
        assert not set(held) & set(texts)
        counts[arm] = mixture.counts["text_negatives"], mixture.counts["image_negatives"]
    n = len(pairs.train)
    assert counts == {"none": (0, 0), "text": (n, 0), "image": (0, n), "both": (n, n)}


def test_the_pairs_themselves_are_drawn_as_without_the_setting(index):
    usual, both = mixed(index, None), mixed(index, "both")
    np.testing.assert_array_equal(usual.train, both.train)
    np.testing.assert_array_equal(usual.validation, both.validation)
    assert both.visits is None


def test_a_pair_that_is_cut_has_one_place_and_no_partner(index):
    for arm in ARMS:
        mixture = mixed(index, arm, size=9, validation=0)
        counts = Counter(np.asarray(index.sets)[mixture.train[:, 1]].tolist())
        assert sorted(counts.values()) == [1, 2, 2, 2, 2]
        expected = {"text": 9, "both": 8}.get(arm, 0)
        assert mixture.counts["text_negatives"] == expected


@settings(max_examples=30, deadline=None)
@given(size=st.integers(4, 80), batch_size=st.integers(1, 20), seed=st.integers(0, 5))
def test_no_batch_has_an_original_twice_where_there_is_room(index, size, batch_size, seed):
    mixture = mixed(index, "text", size=size, validation=0)
    order = epoch_order(mixture, data_seed=1, seed=seed, epoch=0, batch_size=batch_size)
    assert sorted(order.tolist()) == list(range(size))
    rows = mixture.train[order, 1]
    half = len(np.unique(rows))
    assert len(np.unique(rows[:half])) == half  # each once before any comes again
    if half >= 2 * batch_size:
        for at in range(0, size, batch_size):
            batch = rows[at : at + batch_size]
            assert len(np.unique(batch)) == len(batch)


def test_the_order_is_a_function_of_the_seed_and_the_same_in_the_arms(index):
    orders = {}
    for arm in ("none", "text", "image"):
        mixture = mixed(index, arm)
        orders[arm] = [
            mixture.train[
                epoch_order(mixture, data_seed=1, seed=s, epoch=0, batch_size=8), 1
            ].tolist()
            for s in (3, 3, 4)
        ]
        assert orders[arm][0] == orders[arm][1] != orders[arm][2]
    assert orders["none"] == orders["text"] == orders["image"]


def test_windows_of_files_hold_either_visit_of_an_example(index):
    mixture = mixed(index, "none", validation=0)
    given = {"data_seed": 1, "seed": 3, "epoch": 0, "batch_size": 8}
    order = epoch_order(mixture, window=1, **given)
    assert sorted(order.tolist()) == list(range(2 * SETS))
    first = mixture.train[order, 1][:SETS]
    assert len(set(first.tolist())) == SETS
    files = np.asarray(index.files)[first[: SETS - 8]]  # what came last is late again
    assert (np.diff(files) != 0).sum() == len(set(files.tolist())) - 1


def shares(index: Index, arm: str, **given: object) -> list[RankBatch]:
    data = asked(arm, batch_size=6)
    mixture = mix(data, Sources(None, index))
    return list(
        TrainingBatches(mixture, data, seed=2, data_seed=1, start_step=0, total_steps=8, **given)
    )


def read(index: Index, arm: str, share: RankBatch) -> dict:
    examples = Examples((None, index), TRANSFORM, 80, pairs=PairNegatives(index, arm))
    batch = examples.__getitems__(share)
    assert isinstance(batch, dict)
    return batch


def partner(text: str) -> str:
    return text[:-1] + "1"


@pytest.mark.parametrize("arm", ARMS)
def test_a_batch_has_the_wrong_answers_of_its_arm(index, arm):
    for share in shares(index, arm):
        batch = read(index, arm, share)
        for pixels, text in zip(batch["pixels"], batch["texts"], strict=True):
            np.testing.assert_array_equal(pixels.numpy(), pixels_of(text))
        wrong = [partner(text) for text in batch["texts"]]
        if arm == "text":
            assert batch["negatives"] == wrong
            assert batch["negative_owners"].tolist() == list(range(len(wrong)))
        else:
            assert batch["negatives"] == []
        if arm == "image":
            expected = np.stack([pixels_of(text) for text in wrong])
            np.testing.assert_array_equal(batch["negative_pixels"].numpy(), expected)
            assert batch["negative_image_owners"].tolist() == list(range(len(wrong)))
        else:
            assert "negative_pixels" not in batch
        if arm == "both":  # whole pairs: every image has its pair's other caption in the batch
            assert {partner(t) for t in batch["texts"] if original(t)} == {
                t for t in batch["texts"] if not original(t)
            }


@pytest.mark.parametrize("world", [2, 4, 7])
def test_processes_share_the_wrong_images_of_a_batch(index, world):
    whole = [read(index, "image", share) for share in shares(index, "image")]
    parts = [
        [read(index, "image", share) for share in shares(index, "image", rank=rank, world=world)]
        for rank in range(world)
    ]
    for number, batch in enumerate(whole):
        mine = [batches[number] for batches in parts]
        joined = torch.cat([part["negative_pixels"] for part in mine])
        assert torch.equal(joined, batch["negative_pixels"])
        for part in mine:
            assert torch.equal(part["negative_image_owners"], batch["negative_image_owners"])


def test_rows_of_the_real_source_have_no_counterfactual(index):
    examples = Examples((index, index), TRANSFORM, 80, pairs=PairNegatives(index, "text"))
    whole = np.array([[0, 4], [COUNTERFACTUAL, 2], [0, 6], [COUNTERFACTUAL, 8]])
    batch = examples.__getitems__(RankBatch(whole, whole))
    assert batch["negatives"] == [partner(index.text(2)), partner(index.text(8))]
    assert batch["negative_owners"].tolist() == [1, 3]


def test_validation_is_asked_with_the_wrong_answers_too(index):
    mixture = mixed(index, "text", validation=0.4)
    for share in ValidationBatches(mixture, 5):
        batch = read(index, "text", share)
        assert batch["negatives"] == [partner(text) for text in batch["texts"]]


def test_only_pairs_of_different_captions_are_drawn(tmp_path):
    def captioned(number: int, *texts: str):
        cf_set = pair(number, members=len(texts))
        members = [replace(m, text=t) for m, t in zip(cf_set.members, texts, strict=True)]
        return replace(cf_set, members=tuple(members))

    sets = [
        captioned(0, "a cat", "a dog"),
        captioned(1, "a cat"),
        captioned(2, "a cat", "A cat."),
        captioned(3, "a cat", "a dog", "a cow"),
        captioned(4, "a hen", "a cock"),
    ]
    write_shards(sets, tmp_path / "cf", sets_per_shard=16)
    index = open_index(tmp_path / "cf", tmp_path / "index")
    rows = find_pairs(index, "both")
    assert np.asarray(index.sets)[rows].tolist() == [0, 0, 4, 4]
    rows[0] = False
    assert np.asarray(index.sets)[keep_whole_sets(index, rows)].tolist() == [4, 4]
    write_shards(sets[1:4], tmp_path / "none", sets_per_shard=16)
    none = open_index(tmp_path / "none", tmp_path / "index")
    with pytest.raises(UserError, match="no set of two captions that differ"):
        find_pairs(none, "text")


def test_pairs_of_one_image_have_no_wrong_image(tmp_path):
    cf_set = pair(0)
    members = tuple(replace(m, image_name="image0") for m in cf_set.members)
    same = replace(cf_set, members=members, images={"image0": cf_set.images["image0"]})
    write_shards([same, pair(1)], tmp_path / "cf", sets_per_shard=16)
    index = open_index(tmp_path / "cf", tmp_path / "index")
    for arm in ("none", "text"):
        assert find_pairs(index, arm).all()
    for arm in ("image", "both"):
        with pytest.raises(UserError, match=r"1 of 2 pairs of .* show one image, such as pair-0"):
            find_pairs(index, arm)


def wrong_captions(folder: Path) -> Index:
    negclip(folder / "list")
    return open_index(folder / "list", folder / "index")


def test_captions_without_an_image_are_the_wrong_answers_of_their_rows(tmp_path):
    """NegCLIP's list: of three rows two have some; a row is one example, in either arm."""
    index = wrong_captions(tmp_path)
    for arm, expected in (("text", 3), ("none", 0)):
        mixture = mixed(index, arm, validation=0)
        assert (
            sorted(mixture.train[:, 1].tolist())
            == np.flatnonzero(list(map(bool, NEGATIVES))).tolist()
        )
        assert mixture.counts["text_negatives"] == expected
        assert mixture.visits is None
    for arm in ("image", "both"):
        with pytest.raises(UserError, match="has wrong captions without one"):
            mixed(index, arm)


# Captions without an image: negatives of the images they are beside.


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
    from cfaug.data.mixture.loader import Examples, RankBatch
    from tests.data.loading import TRANSFORM

    negclip(tmp_path / "x")
    index = open_index(tmp_path / "x", tmp_path / "cache")
    examples = Examples((index, None), TRANSFORM, rows=3)
    whole = np.array([[0, 2], [0, 0]])
    batch = examples.__getitems__(RankBatch(whole[:1], whole))
    assert batch["negatives"] == [*NEGATIVES[2], *NEGATIVES[0]]
    assert batch["texts"] == [index.text(2)]
