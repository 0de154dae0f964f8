"""Boxes, bars, ridges and bands of chance: their numbers against slow references, text escaped."""

from __future__ import annotations

import re
import statistics
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.report.charts import (
    box_plot,
    estimate_density,
    gap_figure,
    grouped_bars,
    name_extreme,
    read_gaps,
    sentences,
    shifts,
    summarise_box,
    write_gaps_page,
)
from cfaug.report.document import BarPlot, BoxPlot, Document, read_document, write_document
from cfaug.report.items import Items, write_items
from cfaug.report.page import Measure
from cfaug.report.paper_tables import write_tables_page
from cfaug.stats.ranking import COUNTERFACTUAL, GAPS, RANDOM, SCORES
from tests.report.example import notes

NATS = Measure("nats")
VALUES = st.dictionaries(st.text("abcdef", min_size=1, max_size=3),
                         st.floats(-5, 5, allow_nan=False), min_size=1, max_size=30)  # fmt: skip


@given(VALUES)
def test_a_box_is_what_its_definition_says(values):
    box = summarise_box(values)
    ordered = sorted(values.values())
    if len(ordered) > 1:
        first, median, third = statistics.quantiles(ordered, n=4, method="inclusive")
        assert (box.first, box.median, box.third) == pytest.approx((first, median, third))
    reach = 1.5 * (box.third - box.first)
    slack = 1e-9
    assert box.low in ordered
    assert box.high in ordered
    for name, value in values.items():
        beyond = max(value - box.third, box.first - value)
        if name in box.far:
            assert beyond > reach - slack
        else:
            assert beyond <= reach + slack
            assert box.low <= value <= box.high


@given(VALUES, st.booleans())
def test_an_extreme_is_named(values, largest):
    name, value = name_extreme(values, largest)
    assert value == (max if largest else min)(values.values())
    assert values[name.split(",")[0].split(" and ")[0]] == value


def test_a_box_plot_names_extremes_and_draws_chance():
    rows = {"clip": {"pilot": 0.2, "nurse": 1.9, "cook": 0.9, "poet": 0.8, "judge": 1.0},
            "a <b>model</b>": {"pilot": 1.0, "nurse": 1.0}}  # fmt: skip
    drawn = box_plot(rows, "MaxSkew@12, nats", NATS, {"clip": (0.4, 1.0, 1.4)})
    tree = ElementTree.fromstring(drawn.svg)
    assert tree.tag == "svg"
    titles = notes(tree)
    assert titles.count("nurse: 1.9") == titles.count("pilot: 0.2") == 2, "a circle and its name"
    assert "clip: median 0.9 nats of 5" in titles
    colours = {text.text: text.get("style") for text in tree.iter("text")}
    assert "var(--most)" in colours["nurse"]
    assert "var(--least)" in colours["pilot"]
    assert drawn.svg.count("var(--most)") == 2, "of equal values none is extreme"
    assert titles.count("by chance 1 (0.4 to 1.4) nats") == 1
    assert "<b>" not in drawn.svg


def test_bars_have_what_chance_gives_behind_them():
    groups = {"male": [("clip", 0.75, 0.5, 1.0)], "female": [("clip", 0.25, 0.0, 0.5)]}
    band = {"male": (0.3, 0.5, 0.7)}
    with_chance, without = (
        notes(ElementTree.fromstring(grouped_bars(groups, "share", chance=c).svg))
        for c in (band, None)
    )
    bars = ["male, clip: 75.0 %", "female, clip: 25.0 %"]
    assert with_chance == ["by chance 50.0 (30.0 to 70.0) %", *bars], "the band is drawn first"
    assert without == bars


@pytest.mark.slow
def test_figures_are_read_back_and_drawn(tmp_path):
    box = BoxPlot("over occupations", "nats", {"m": {"a": 1.0, "b": 2.0}}, "n", "nats",
                  {"m": (0.5, 1.0, 1.5)})  # fmt: skip
    bars = BarPlot("", "nats", {"g": [("m", 1.0, None, None)]}, ("m",), chance={"g": (0, 1, 2)})
    made = Document("social_figure_2", "t", (), bars=(bars,), boxes=(box,))
    write_document(made, tmp_path)
    assert read_document(tmp_path / "social_figure_2.json") == made
    page = write_tables_page(tmp_path).read_text()
    assert page.count("<svg") == 2
    assert page.count("<title>by chance 1") == 2


# Matching gaps on disk, in words and as Figure 3.


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
    gaps = read_gaps(tmp_path)
    assert list(gaps) == ["b"]
    assert (gaps["b"].kind, len(gaps["b"])) == ("probability", 5)
    right, image = scores["G(C_c,I_c)"], scores["G(C_c,I_o)"]
    np.testing.assert_array_equal(gaps["b"].gaps["IR_c"], right - image)
    assert np.isnan(gaps["b"].gaps["IR_r"]).tolist() == [True] + [False] * 4


def test_the_numbers_said_are_those_of_the_rows():
    gaps = made_gaps()
    assert np.isnan(gaps["IR_r"][0])
    assert shifts(gaps)["IR"].n == 29
    said = sentences(gaps)
    below = 100 * np.mean(made_gaps()["IR_c"] < 0)
    assert f"{below:.1f} % below zero, 30 pairs" in said[1]
    assert said[0].endswith("29 pairs")
    assert "Wilcoxon" in said[4]
    assert shifts(made_gaps(real=False)) == {}


def test_one_pair_is_said_without_a_spread():
    gaps = {name: np.array([2.0]) for name in GAPS}
    said = sentences(gaps)
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
    slow = np.array([sum(np.exp(-0.5 * ((point - values) / width) ** 2)) for point in at])
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
