"""Captions without an image are trained against, or left out, because somebody said so."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfaug.data.index import Index, open_index
from cfaug.errors import UserError
from cfaug.run.sources import Opened, check_negatives
from cfaug.train.settings import LossSettings
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
    from cfaug.data.planning.mixture import plan_mixture
    from cfaug.run.contrastive_plan import count_negatives

    mixture = plan_mixture(index, None, cf_ratio=0, size=None, seed=1, validation=0)
    assert count_negatives(mixture, LossSettings(negative_captions="used")).counts["negatives"] == 3
    assert (
        count_negatives(mixture, None)
        == count_negatives(mixture, LossSettings("masked"))
        == mixture
    )
