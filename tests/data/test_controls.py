"""What a plan is held against: controls of its size, and a test set it never sees."""

from __future__ import annotations

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.data.mixture.mixture import mix
from cfaug.data.mixture.records import COUNTERFACTUAL, REAL
from cfaug.data.mixture.settings import DataSettings, Sources
from tests.data.making import Columns
from tests.data.planned import PAIRS, REAL_ROWS, mixed, pairs, photos, settings_of


@pytest.mark.parametrize("split", ["group", "random"])
@pytest.mark.parametrize(("plan", "train"), [("base", 13_928), ("real", 13_928)])
def test_a_control_has_as_many_training_rows_of_one_source(plan, train, split):
    for control, source in (("real", REAL), ("counterfactual", COUNTERFACTUAL)):
        if plan == "real" and control == "counterfactual":
            continue  # the plan reads no counterfactual source
        found = mixed(plan, photos(REAL_ROWS), pairs(PAIRS), control=control, split=split)
        assert found.counts["train"] == train
        assert (found.train[:, 0] == source).all()
        assert (found.validation[:, 0] == source).all()
        assert found.sources[1 - source] is None
        assert 0 < found.counts["validation"] <= 3_483


def test_a_control_draws_from_a_larger_source_where_its_own_is_too_small():
    with pytest.raises(UserError, match=r"34820 training.*17410: .*data\.control_source"):
        mixed("medium", photos(REAL_ROWS), pairs(PAIRS), control="real")
    with pytest.raises(UserError, match=r"34820 training.*validate on; there are 34820"):
        mixed("medium", photos(REAL_ROWS), pairs(PAIRS), control="counterfactual")
    more = photos(50_000)
    found = mix(
        settings_of("medium", control="real", control_source="more"),
        Sources(photos(REAL_ROWS), pairs(PAIRS), more),
    )  # fmt: skip
    assert found.counts == {
        "real": 34_820, "counterfactual": 0, "total": 34_820, "train": 34_820,
        "validation": 8_705, "dropped": 0,
    }  # fmt: skip
    assert found.sources == (more, None)


# The withheld third of Table 5, and validated rows.


def test_the_papers_withheld_split():
    """COCO-CFs, A.1: of 34,820 rows 30 % test, 56 % train, 14 % validate."""
    asked = DataSettings(None, "cf", cf_ratio=1, counterfactual_holdout=0.3, seed=108)
    cf = Columns.of((i, 2) for i in range(PAIRS))
    found = mix(asked, Sources(None, cf))
    assert found.counts["train"] == 19_499 == int(0.56 * 34_820)
    assert found.counts["validation"] in (4_873, 4_874, 4_875)
    used = {row // 2 for _, row in (*found.train.tolist(), *found.validation.tolist())}
    assert PAIRS - len(used) == 5_223
    at_random = mix(
        DataSettings(None, "cf", cf_ratio=1, counterfactual_holdout=0.3, seed=9, split="random"),
        Sources(None, cf),
    )
    again = {row // 2 for _, row in (*at_random.train.tolist(), *at_random.validation.tolist())}
    assert again == used


def test_real_rows_of_withheld_groups_are_kept_out_too():
    real, cf = photos(400), pairs(400)
    found = mix(settings_of("all", counterfactual_holdout=0.3), Sources(real, cf))
    used = np.concatenate([found.train, found.validation])
    groups = [
        set(one.groups[used[used[:, 0] == s, 1]].tolist()) for s, one in enumerate((real, cf))
    ]
    assert len(groups[0] | groups[1]) == 70
