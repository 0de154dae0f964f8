"""Captions without an image are trained against, or left out, because somebody said so."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from cfaug.core.errors import UserError
from cfaug.data.index import Index, open_index
from cfaug.data.mixture.mixture import plan_mixture
from cfaug.data.mixture.settings import DataSettings
from cfaug.planning.mixture_plan import count_negatives, use_negatives
from cfaug.planning.sources import Opened, check_negatives
from cfaug.train.mixture_task import ContrastiveTask
from cfaug.train.settings import LossSettings, TrainerSettings
from tests.data.layouts import captions_csv, negclip


@pytest.fixture
def index(tmp_path: Path) -> Index:
    negclip(tmp_path / "negclip")
    return open_index(tmp_path / "negclip", tmp_path / "cache")


@pytest.mark.parametrize("role", ["real", "counterfactual", "control"])
@pytest.mark.parametrize("loss", [None, LossSettings(), LossSettings("masked", 2.0)])
def test_negatives_nobody_spoke_of_are_refused(
    index: Index, role: str, loss: LossSettings | None
) -> None:
    opened = Opened(
        **(dict.fromkeys(("real", "counterfactual", "control", "labels")) | {role: index})
    )
    with pytest.raises(UserError, match=r"negclip has captions without an image.*loss=negatives"):
        check_negatives(opened, loss)
    check_negatives(opened, LossSettings(negative_captions="used"))
    check_negatives(opened, LossSettings(negative_captions="ignored"))


def test_a_source_without_negatives_needs_nothing(tmp_path: Path) -> None:
    captions_csv(tmp_path / "x")
    plain = open_index(tmp_path / "x", tmp_path / "cache")
    check_negatives(Opened(plain, None, None, None), None)


def test_those_of_the_training_rows_are_count_negatives(index: Index) -> None:
    mixture = plan_mixture(index, None, cf_ratio=0, size=None, seed=1, validation=0)
    assert count_negatives(mixture, LossSettings(negative_captions="used")).counts["negatives"] == 3
    assert (
        count_negatives(mixture, None)
        == count_negatives(mixture, LossSettings("masked"))
        == mixture
    )


@pytest.mark.parametrize(("arm", "said"), [("text", "used"), ("none", "ignored")])
def test_an_arm_says_what_wrong_captions_are_for(index: Index, arm: str, said: str) -> None:
    """Beside NegCLIP's list; pairs need no word where the counterfactuals are left out."""
    opened, data = Opened(None, index, None, None), DataSettings("r", "c", negatives=arm)
    for loss in (None, LossSettings(), LossSettings(negative_captions=said)):
        assert use_negatives(data, opened, loss) == LossSettings(negative_captions=said)
    weighted = LossSettings("masked", negative_weight=2.0)
    assert use_negatives(data, opened, weighted) == LossSettings(
        "masked", negative_captions=said, negative_weight=2.0
    )
    other = LossSettings(negative_captions="ignored" if said == "used" else "used")
    with pytest.raises(UserError, match="contradict each other"):
        use_negatives(data, opened, other)
    usual = DataSettings("r", "c")
    assert use_negatives(usual, opened, other) == other
    assert use_negatives(usual, opened, None) is None


def test_pairs_need_a_place_for_captions_where_those_are_wrong_answers(tmp_path: Path) -> None:
    captions_csv(tmp_path / "x")
    opened = Opened(None, open_index(tmp_path / "x", tmp_path / "cache"), None, None)
    found = {
        arm: use_negatives(DataSettings("r", "c", negatives=arm), opened, None)
        for arm in (None, "none", "text", "image", "both")
    }
    assert found.pop("text") == LossSettings(negative_captions="used")
    assert set(found.values()) == {None}
    real_only = DataSettings("r", "c", cf_ratio=0, negatives="text")
    assert use_negatives(real_only, opened, None) is None


@pytest.mark.parametrize("arm", ["text", "image"])
def test_a_loss_of_pairs_has_no_place_for_wrong_answers_alone(arm: str) -> None:
    task = SimpleNamespace(
        data=DataSettings("r", "c", negatives=arm), trainer=TrainerSettings(), loss=None
    )
    bridgetower = SimpleNamespace(takes_negatives=False)
    with pytest.raises(UserError, match=rf"data\.negatives={arm}: .* data\.negatives=both or none"):
        ContrastiveTask.make_module(task, bridgetower, 1)  # type: ignore[arg-type]
