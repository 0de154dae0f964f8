"""Data settings that contradict each other are refused."""

from __future__ import annotations

import pytest

from cfaug.coco_cf.mixtures import PaperMixture
from cfaug.core.errors import UserError
from cfaug.data.mixture.settings import DataSettings


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (
            {"plan": PaperMixture("medium"), "cf_ratio": 0.6},
            r"data\.plan=medium .* data\.cf_ratio=0\.6",
        ),
        ({"plan": PaperMixture("medium"), "cf_ratio": 0.5}, r"data\.cf_ratio=0\.5"),
        ({"plan": PaperMixture("real"), "size": 100}, r"data\.size=100"),
        (
            {"plan": PaperMixture("all"), "counterfactual_members": "unedited"},
            "counterfactual_members",
        ),
        ({"plan": "medium"}, r"data\.plan='medium' should be an object .*plan@data\.plan=NAME"),
        ({"plan": PaperMixture("human_validated")}, r"human_labels=FILE: .*key.*member.*label"),
        ({"drop_last": "no"}, r"data\.drop_last=no should be true or false"),
        ({"stratify": 5}, r"data\.stratify=5"),
        ({"world": "fog"}, r"data\.world=fog should be null or settings of its own"),
        ({"split": "rows"}, "choose from group, random"),
        ({"real_captions": "some"}, "choose from all, edited"),
        ({"counterfactual_holdout": 1}, r"data\.counterfactual_holdout=1 should be a number in"),
        ({"counterfactual_holdout": True}, r"data\.counterfactual_holdout=true"),
        ({"control": "real"}, r"data\.control=real is the control of a plan"),
        ({"plan": PaperMixture("all"), "control": "both"}, "choose from real, counterfactual"),
        (
            {"plan": PaperMixture("all"), "control_source": "x"},
            r"data\.control_source=x needs data\.control",
        ),
    ],
)
def test_settings_that_contradict_a_plan_are_refused(given, named):
    with pytest.raises(UserError, match=named):
        DataSettings("real", "cf", **given)


def test_a_seed_follows_the_run_s_unless_it_is_given():
    assert DataSettings("real", "cf").with_seed(107).seed == 108
    assert DataSettings("real", "cf", seed=0).with_seed(107).seed == 0
