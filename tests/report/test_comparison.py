"""What a report is about, told from the runs alone."""

from __future__ import annotations

import pytest

from cfaug.core.errors import UserError
from cfaug.report.arms import read_arms
from cfaug.report.comparison import ComparisonSettings
from tests.report.example import LABELS, MEANS, RATIOS, SOURCES, USUAL, results, runs


def headline(means, ratios=RATIOS, baselines=("real", "more_real"), sources=SOURCES):
    rows = results(means)
    arms = read_arms(runs(rows, ratios, sources))
    return USUAL.headline(rows, arms, baselines[0], {})


def test_generated_and_the_oracles_pairs_are_both_under_test():
    both = headline({**MEANS, "generated": (0.6, 0.6)}, {**RATIOS, "generated": 0.5})
    assert both.tested == ("generated", "counterfactual")
    assert both.order == ("before", "real")
    assert headline(MEANS).tested == ("counterfactual",)


def test_an_experiment_of_ones_own_is_about_its_most_counterfactual_arm():
    means = {"mine": (0.3, 0.3), "half": (0.4, 0.4), "most": (0.5, 0.5)}
    own = headline(means, {"mine": 0.0, "half": 0.5, "most": 0.67}, ["mine"])
    assert (own.order, own.tested) == (("mine",), ("most",))


@pytest.mark.parametrize(
    ("baselines", "order", "tested"),
    [
        (["counterfactual"], ("before", "counterfactual"), ("unbiased",)),
        (["before"], ("before",), ("counterfactual",)),
        (["real", "counterfactual"], ("before", "real"), ("counterfactual",)),
    ],
)
def test_the_main_baseline_is_never_under_test(baselines, order, tested):
    asked = headline(MEANS, baselines=baselines)
    assert (asked.order, asked.tested) == (order, tested)


def test_controls_and_pairs_in_one_batch_are_known_by_what_they_were_trained_on():
    names = ["before", "real", "one", "two", "three", "four", "counterfactual"]
    sources = {
        "counterfactual": "pairs", "one": "shapescapes:unbiased", "two": "shapescapes:matched",
        "three": "pairs", "four_paired": "pairs", "four": "elsewhere",
    }  # fmt: skip
    rows = results(dict.fromkeys([*names, "four_paired"], (0.5, 0.5)))
    arms = read_arms(runs(rows, dict.fromkeys(names[2:], 0.5) | {"four_paired": 0.5}, sources))
    found = USUAL.headline(rows, arms, "real", {})
    assert found.tested == ("counterfactual",)
    assert found.paired == ("counterfactual", "four_paired")
    assert found.controls == ("one", "two")


def test_without_settings_nothing_is_known_by_its_name():
    means = {**MEANS, "zero": (0.4, 0.4)}
    rows = results(means)
    arms = read_arms(runs(rows, {**RATIOS, "zero": 0}))
    assert ComparisonSettings().choose_baselines(arms, None, {}) == ["more_real", "real", "zero"]
    assert USUAL.choose_baselines(arms, None, {}) == ["real", "more_real"]
    own = ComparisonSettings().headline(rows, arms, "zero", {})
    assert (own.order, own.tested, own.in_distribution) == (("zero",), ("unbiased",), None)


def test_a_baseline_is_asked_for_by_name_or_label_and_counts_once():
    arms = read_arms(runs(results()))
    labels = {arm: LABELS[arm] for arm in arms}
    asked = ["real only", "real", "unbiased"]
    assert USUAL.choose_baselines(arms, asked, labels) == ["real", "unbiased"]
    with pytest.raises(UserError, match="no arm is called 'rael'; there are before, real"):
        USUAL.choose_baselines(arms, "rael", labels)


def test_a_counterpart_is_named_by_two_texts():
    with pytest.raises(UserError, match=r"in_distribution=\['_ood_'\] is invalid"):
        ComparisonSettings(in_distribution=["_ood_"])


@pytest.mark.parametrize(
    ("ratio", "setting", "theirs", "usual"),
    [
        (0.5, "counterfactual_members", "singles", "all"),
        (0.7, "counterfactual_captions", "shuffled", "own"),  # even with the largest share
        (0.6, "negatives", "none", "both"),
        (0.6, "negatives", "text", "both"),
        (0.6, "negatives", "image", "both"),
    ],
)
def test_what_stands_in_place_of_pairs_is_a_control(ratio, setting, theirs, usual):
    rows = results({"real": (0.4, 0.4), "pairs": (0.5, 0.5), "zother": (0.5, 0.5)})
    made = runs(rows, {"pairs": 0.6, "zother": ratio})
    for run in made:
        if run.arm != "real":
            value = theirs if run.arm == "zother" else usual
            run.record["identity"][f"data.{setting}"] = value
    found = ComparisonSettings().headline(rows, read_arms(made), "real", {})
    assert (found.tested, found.controls) == (("pairs",), ("zother",))
