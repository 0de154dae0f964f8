"""Settings that need more of a counterfactual source than images with captions."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.data.index import Index, open_index
from cfaug.data.mixture.settings import DataSettings
from cfaug.data.shards.shards import write_shards
from cfaug.planning.mixture_plan import check_sets, content_trained_with
from cfaug.planning.sources import Opened
from cfaug.train.settings import LossSettings
from tests.data.layouts import captions_csv
from tests.data.making import pair
from tests.data.test_set_captions import neutral_set

INVARIANT = LossSettings(set_invariance=0.5)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Index]:
    folder = tmp_path_factory.mktemp("sources")
    write_shards([neutral_set(n) for n in range(2)], folder / "neutral", sets_per_shard=2)
    write_shards([pair(n) for n in range(2)], folder / "pairs", sets_per_shard=2)
    captions_csv(folder / "singles")
    names = ("neutral", "pairs", "singles")
    return {name: open_index(folder / name, folder / "cache") for name in names}


def check(source: Index, loss: LossSettings | None = None, **data: object) -> None:
    check_sets(DataSettings("r", "c", **data), Opened(None, source, None, None), loss)


def test_what_has_sets_with_neutral_prompts_may_be_trained_on_in_every_way(sources):
    for captions in ("own", "neutral", "shuffled"):
        check(sources["neutral"], counterfactual_captions=captions)
    check(sources["neutral"], INVARIANT, pairs_in_batch=True)
    check(sources["pairs"], counterfactual_captions="shuffled")


@pytest.mark.parametrize(
    ("source", "loss", "data", "message"),
    [
        ("pairs", None, {"counterfactual_captions": "neutral"}, "no column 'neutral'"),
        ("pairs", INVARIANT, {"pairs_in_batch": True}, r"set_invariance=0\.5 needs the neutral"),
        ("neutral", INVARIANT, {}, r"data\.pairs_in_batch=true"),
        ("neutral", INVARIANT, {"pairs_in_batch": True, "cf_ratio": 0}, "cf_ratio above 0"),
        ("singles", None, {"counterfactual_captions": "shuffled"}, "has no set of two"),
    ],
)
def test_what_a_source_lacks_is_named(sources, source, loss, data, message):
    with pytest.raises(UserError, match=message):
        check(sources[source], loss, **data)


def test_an_arm_without_sets_may_share_the_settings_of_the_others(sources):
    for captions in ("neutral", "shuffled"):
        check(sources["pairs"], cf_ratio=0, counterfactual_captions=captions)


def test_neutral_prompts_are_part_of_a_run_that_trains_with_them(sources, tmp_path: Path):
    """The hash of a source knows its captions, not its other columns."""
    opened = Opened(None, sources["neutral"], None, None)
    usual = DataSettings("r", "c")
    neutral = DataSettings("r", "c", counterfactual_captions="neutral")
    assert content_trained_with(usual, opened, None) == opened.content
    assert content_trained_with(usual, opened, LossSettings()) == opened.content
    assert content_trained_with(neutral, opened, None) != opened.content
    assert content_trained_with(usual, opened, INVARIANT) == content_trained_with(
        neutral, opened, None
    )
    write_shards([neutral_set(0), neutral_set(1, without=0)], tmp_path / "x", sets_per_shard=2)
    other = Opened(None, open_index(tmp_path / "x", tmp_path / "cache"), None, None)
    assert other.content == opened.content
    assert content_trained_with(neutral, other, None) != content_trained_with(neutral, opened, None)
