"""Box plots and bands of chance: their numbers against a slow reference, their text escaped."""

from __future__ import annotations

import statistics
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Text

from cfaug.report.charts import box_plot, grouped_bars, name_extreme, summarise_box
from cfaug.report.document import BarPlot, BoxPlot, Document, read_document, write_document
from cfaug.report.page import Measure
from cfaug.report.paper_tables import write_tables_page
from cfaug.report.plots import WIDTH
from tests.report.example import HOSTILE, notes

NATS = Measure("nats")
VALUES = st.dictionaries(st.text("abcdef", min_size=1, max_size=3),
                         st.floats(-5, 5, allow_nan=False), min_size=1, max_size=30)  # fmt: skip


@given(VALUES)
def test_a_box_is_what_its_definition_says(values):
    box = summarise_box(values)
    found = sorted(values.values())
    if len(found) > 1:
        first, median, third = statistics.quantiles(found, n=4, method="inclusive")
        assert (box.first, box.median, box.third) == pytest.approx((first, median, third))
    reach = 1.5 * (box.third - box.first)
    slack = 1e-9
    assert box.low in found
    assert box.high in found
    assert all(box.low <= values[name] <= box.high or name in box.far for name in values)
    for name in box.far:
        beyond = max(values[name] - box.third, box.first - values[name])
        assert beyond > reach - slack


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
    found = notes(tree)
    assert found.count("nurse: 1.9") == found.count("pilot: 0.2") == 2, "a circle and its name"
    assert "clip: median 0.9 nats of 5" in found
    colours = {text.text: text.get("style") for text in tree.iter("text")}
    assert "var(--most)" in colours["nurse"]
    assert "var(--least)" in colours["pilot"]
    assert drawn.svg.count("var(--most)") == 2, "of equal values none is extreme"
    assert found.count("by chance 1 (0.4 to 1.4) nats") == 1
    assert "<b>" not in drawn.svg


def test_long_names_stay_inside_the_picture():
    rows = {"m": {"a" * 200: 0.0, HOSTILE * 3: 5.0, "c": 2.0}}
    drawn = box_plot(rows, "nats", NATS)
    assert "<script" not in drawn.svg
    names = [text for text in drawn.figure.findobj(Text) if text.get_text().endswith("…")]
    assert len(names) == 2
    for name in names:
        place = name.get_window_extent()
        assert place.x0 >= 0
        assert place.x1 <= WIDTH


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


def test_documents_without_them_keep_their_bytes():
    bars = BarPlot("", "nats", {"g": [("m", 1.0, None, None)]})
    text = Document("lance_figure_3", "t", (), bars=(bars,)).to_json()
    assert "boxes" not in text
    assert "chance" not in text


def test_bars_that_have_no_number_are_no_mistake():
    """A pool smaller than K has none, of every group."""
    nan = float("nan")
    drawn = grouped_bars({"White": [("CLIP", nan, nan, nan)]}, "share").svg
    assert "White" in drawn
    assert "<title" not in drawn
