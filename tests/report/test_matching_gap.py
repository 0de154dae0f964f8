"""Matching gaps on disk, in words and as Figure 3."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.report.charts import (
    estimate_density,
    gap_figure,
    read_gaps,
    sentences,
    shifts,
    write_gaps_page,
)
from cfaug.report.items import Items, write_items
from cfaug.stats.ranking import COUNTERFACTUAL, GAPS, RANDOM, SCORES


def made_gaps(count=30, real=True):
    """Return gaps of pairs, the first of which has no photograph."""
    rng = np.random.default_rng(2)
    gaps = {name: rng.normal(1 if name in COUNTERFACTUAL else 4, size=count) for name in GAPS}
    for name in RANDOM:
        gaps[name][0] = np.nan
    return gaps if real else {name: gaps[name] for name in COUNTERFACTUAL}


def write_scores(folder, benchmark="b", count=5):
    """Write the scores of pairs as items, the first of which has no photograph."""
    rng = np.random.default_rng(3)
    names = [name for some in SCORES.values() for name in some]
    scores = {name: rng.normal(size=count).astype(np.float32).astype(float) for name in names}
    for name in SCORES["r"]:
        scores[name][0] = np.nan
    keys = [f"p{i}" for i in range(count)]
    columns = {"item": keys, "cluster": keys, **scores, "kind": ["probability"] * count}
    write_items(folder, Items(benchmark, "w", "d", columns))
    return scores


def test_the_gaps_are_those_of_the_saved_scores(tmp_path):
    assert read_gaps(tmp_path) == {}
    scores = write_scores(tmp_path, "b")
    write_items(tmp_path, Items("other", "w", "d", {"item": ["x"], "cluster": ["x"]}))
    found = read_gaps(tmp_path)
    assert list(found) == ["b"]
    assert (found["b"].kind, len(found["b"])) == ("probability", 5)
    right, image = scores["G(C_c,I_c)"], scores["G(C_c,I_o)"]
    np.testing.assert_array_equal(found["b"].gaps["IR_c"], right - image)
    assert np.isnan(found["b"].gaps["IR_r"]).tolist() == [True] + [False] * 4


def test_the_numbers_said_are_those_of_the_rows():
    found = made_gaps()
    assert np.isnan(found["IR_r"][0])
    assert shifts(found)["IR"].n == 29
    said = sentences(found)
    below = 100 * np.mean(made_gaps()["IR_c"] < 0)
    assert f"{below:.1f} % below zero, 30 pairs" in said[1]
    assert said[0].endswith("29 pairs")
    assert "Wilcoxon" in said[4]
    assert shifts(made_gaps(real=False)) == {}


def test_one_pair_is_said_without_a_spread():
    one = {name: np.array([2.0]) for name in GAPS}
    said = sentences(one)
    assert said[0] == "IR_r: mean 2, 0.0 % below zero, 1 pair"
    assert "0.0 % of 1 anchor (" in said[4]
    assert "nan" not in " ".join(said)


def test_the_figure_is_a_picture_with_a_ridge_a_gap_and_nothing_unescaped():
    figure = gap_figure(made_gaps(), "<b>&model", "logit").svg
    tree = ElementTree.fromstring(figure)
    ridges = [e for e in tree.iter("g") if re.match("[IT]R_[rc]: mean", e.findtext("title", ""))]
    assert [e.findtext("title")[-8:] for e in ridges] == ["29 pairs", "30 pairs"] * 2
    width, height = map(float, tree.get("viewBox").split()[2:])
    for ridge in ridges:
        numbers = [float(n) for n in re.findall(r"-?\d+\.?\d*", ridge.find("path").get("d"))]
        assert len(numbers) > 100
        assert all(0 <= x <= width for x in numbers[::2])
        assert all(0 < y <= height for y in numbers[1::2])
    assert "<b>" not in figure
    said = {text.text for text in tree.iter("text")}
    assert {"<b>&model", "text, counterfactual", "score of the right pair minus that of the wrong "
            "one (logit)"} <= said  # fmt: skip
    assert gap_figure(made_gaps(), "<b>&model", "logit").svg == figure


def test_a_density_is_that_of_its_definition():
    """A Gaussian kernel on every value, of Silverman's width, a value at a time."""
    values = np.random.default_rng(1).normal(2.0, 1.5, 500)
    at, density = estimate_density(values, (-3.0, 7.0))
    spread = min(values.std(), np.subtract(*np.quantile(values, [0.75, 0.25])) / 1.349)
    width = 0.9 * spread * len(values) ** -0.2
    slow = np.array([sum(np.exp(-0.5 * ((one - values) / width) ** 2)) for one in at])
    np.testing.assert_allclose(density / density.max(), slow / slow.max(), atol=0.01)


def test_constant_gaps_and_a_single_pair_can_be_drawn():
    for values in ([2.0], [0.0, 0.0], [1e-9, 1e9]):
        drawn = gap_figure({"IR_c": np.array(values), "TR_c": np.array(values)}, "m", "logit")
        assert "nan" not in drawn.svg


def test_the_page_holds_every_benchmark(tmp_path):
    with pytest.raises(UserError, match="benchmark=matching"):
        write_gaps_page(tmp_path, "model")
    write_scores(tmp_path, "<a>")
    page = write_gaps_page(tmp_path, "<model>").read_text()
    assert page.count("<svg") == 1
    assert "&lt;model&gt;" in page
    assert "<a>" not in page
    assert "://" not in re.sub(r"http://www\.w3\.org/\S+", "", page)
