"""What the images of counterfactual sets are called in training."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet
from cfaug.data.index import open_index
from cfaug.data.mixture.hard_negatives import SetCaptions
from cfaug.data.mixture.loader import Examples, RankBatch
from cfaug.data.shards.shards import write_shards
from tests.data.loading import TRANSFORM
from tests.data.making import pair

SETS, MEMBERS = 6, 5


def neutral_set(number: int, without: int | None = None) -> CounterfactualSet:
    """Return a set of five whose members say its neutral prompt, all but one of them."""
    cf_set = pair(number, members=MEMBERS)
    members = [
        replace(m, extra={} if i == without else {"neutral": f"scene {number}"})
        for i, m in enumerate(cf_set.members)
    ]
    return replace(cf_set, members=tuple(members))


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    write_shards([neutral_set(n) for n in range(SETS)], folder / "cf", sets_per_shard=2)
    return open_index(folder / "cf", folder / "index")


def called(captions: SetCaptions) -> list[str]:
    return [captions.text(row) for row in range(len(captions.index))]


def test_a_source_keeps_its_own_captions(index):
    assert called(SetCaptions(index)) == [index.text(row) for row in range(len(index))]


def test_every_image_of_a_set_may_have_its_neutral_prompt(index):
    expected = [f"scene {number}" for number in range(SETS) for _ in range(MEMBERS)]
    assert called(SetCaptions(index, "neutral")) == expected


def test_shuffled_captions_are_permuted_within_each_set(index):
    plain, shuffled = called(SetCaptions(index)), called(SetCaptions(index, "shuffled", seed=3))
    orders = []
    for start in range(0, len(plain), MEMBERS):
        mine, theirs = plain[start : start + MEMBERS], shuffled[start : start + MEMBERS]
        assert sorted(mine) == sorted(theirs)
        orders.append(tuple(mine.index(text) for text in theirs))
    assert len(set(orders)) > 1  # no one permutation for all
    assert shuffled == called(SetCaptions(index, "shuffled", seed=3))
    assert shuffled != called(SetCaptions(index, "shuffled", seed=4))
    assert shuffled == called(pickle.loads(pickle.dumps(SetCaptions(index, "shuffled", seed=3))))


def test_a_permutation_follows_its_set_wherever_that_stands(index, tmp_path):
    write_shards([neutral_set(n) for n in (4, 1)], tmp_path / "cf", sets_per_shard=2)
    other = open_index(tmp_path / "cf", tmp_path / "index")
    here, there = (called(SetCaptions(source, "shuffled", seed=3)) for source in (index, other))
    assert there == [*here[4 * MEMBERS : 5 * MEMBERS], *here[MEMBERS : 2 * MEMBERS]]


def test_neutral_prompts_that_are_missing_are_named(tmp_path):
    write_shards([neutral_set(0), neutral_set(1, without=3)], tmp_path / "some", sets_per_shard=2)
    write_shards([pair(0)], tmp_path / "none", sets_per_shard=2)
    some, none = (open_index(tmp_path / n, tmp_path / "index") for n in ("some", "none"))
    with pytest.raises(UserError, match="pair-00001_3 has no neutral prompt"):
        called(SetCaptions(some, "neutral"))
    with pytest.raises(UserError, match="none has no column 'neutral'"):
        SetCaptions(none, "neutral")


def test_a_batch_has_the_captions_and_the_neutral_prompts_of_the_whole(index):
    """Rows of the real source, here the same sets, keep their captions and have no prompt."""
    captions = SetCaptions(index, "shuffled", seed=1)
    examples = Examples((index, index), TRANSFORM, 40, captions=captions, neutral=True)
    whole = np.array([[1, 7], [0, 7], [1, 0], [1, 8]])
    batch = examples.__getitems__(RankBatch(whole[:2], whole))
    assert batch["texts"] == [captions.text(7), index.text(7)]
    assert batch["neutral_texts"] == ["scene 1", "scene 0"]
    assert batch["neutrals"].tolist() == [0, -1, 1, 0]
    plain = Examples((index, index), TRANSFORM, 40).__getitems__(RankBatch(whole[:2], whole))
    assert plain["texts"] == [index.text(7), index.text(7)]
    assert "neutrals" not in plain
