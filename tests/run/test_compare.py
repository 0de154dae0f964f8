"""What a report is about, told from the runs alone."""

from __future__ import annotations

import pytest

from cfaug.run.compare import _headline
from tests.report.example import MEANS, RATIOS, results, runs


def headline(means, ratios=RATIOS, baselines=("real", "more_real")):
    rows = results(means)
    return _headline(rows, runs(rows, ratios), baselines, {})


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
