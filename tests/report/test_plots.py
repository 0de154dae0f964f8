"""What all figures share: bytes, theme, escaping, PDFs, and nothing that a page could trip over."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import subprocess
import sys
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Text
from matplotlib.transforms import Affine2D

from cfaug.annotation.page import disagreement_matrix
from cfaug.report.charts import box_plot, gap_figure, grouped_bars, tradeoff_plot
from cfaug.report.drawing import COLOURS, THEME, Drawing, elide_text, style, write_pdfs
from cfaug.report.page import PERCENT, Measure
from cfaug.report.plots import curve, limits_of, new_axes, strip_plot
from tests.report.example import notes

NAME = "<script>alert(1)</script> $x_1$ \\frac{ 中文 😀\x00\x1b\ud800 #1d1f22"
"""A name with markup, mathematics, letters that the font lacks, control characters, a colour."""

ARMS = {"before": {1: 0.4, 2: 0.5}, NAME: {1: 0.6, 2: 0.61}}


class Agreement:
    matrix = np.array([[5.0, 1.0], [2.0, 3.0]])


FIGURES = {
    "strip": lambda name: strip_plot({"a": {1: 0.4, 2: 0.5}, name: {1: 0.6, 2: 0.7}}, name, [name]),
    "curve": lambda name: curve({name: {0.0: {1: 0.4}, 1.0: {1: 0.5}}}, name, name),
    "bars": lambda name: grouped_bars({name: [(name, 0.5, 0.4, 0.6)]}, name, legend=(name,)),
    "box": lambda name: box_plot({name: {name: 1.0, "b": 2.0}}, name),
    "tradeoff": lambda name: tradeoff_plot({name: [(name, {1: 0.1}, {1: 0.2})]}, name, name),
    "gap": lambda name: gap_figure({"IR_r": np.array([1.0, 2.0])}, name, "logit"),
    "matrix": lambda name: disagreement_matrix(Agreement(), ["a", name]),
}


@pytest.mark.parametrize("kind", FIGURES)
def test_any_name_is_shown_letter_by_letter(kind, capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = FIGURES[kind](NAME)
        tree = ElementTree.fromstring(drawn.svg)
    assert capfd.readouterr().err == ""
    said = "".join(text.text for text in tree.iter("text")).replace(" ", "")
    assert "<script>alert(1)</script>$x_1$" in said
    assert kind == "box" or "\\frac{中文😀" in said
    assert not list(tree.iter("script"))
    assert "#1d1f22" in said.replace("…", "#1d1f22"), "a name is no colour"


@pytest.mark.parametrize("kind", FIGURES)
def test_colours_are_those_of_the_theme_and_nothing_has_an_id(kind):
    text = FIGURES[kind]("plain").svg
    assert {f"--{name}" for name in re.findall(r"var\(--(\w+)\)", text)} <= {
        f"--{name}" for name in COLOURS
    }
    assert "var(--quiet)" in text
    assert not re.findall("#[0-9a-f]{6}", text), "a colour that does not follow the theme"
    for word in (" id=", "href", "clip-path", "<style", "<defs", "<use", "url("):
        assert word not in text
    tree = ElementTree.fromstring(text)
    assert tree.get("role") == "img"
    assert tree.get("aria-label")


@pytest.mark.parametrize("kind", FIGURES)
def test_all_text_stays_inside_the_figure(kind):
    drawn = FIGURES[kind](
        "a name of several words, longer than the figure is wide, as are those of "
        "benchmarks of which someone wrote down all that there is to say"
    )
    width, height = (72 * size for size in drawn.figure.get_size_inches())
    texts = [text for text in drawn.figure.findobj(Text) if re.search("[a-z]", text.get_text())]
    assert len(texts) >= 2
    places = [text.get_window_extent() for text in texts]
    for place in [*places, drawn.figure.get_tightbbox().transformed(Affine2D().scale(72))]:
        assert -1 <= place.x0 < place.x1 <= width + 1
        assert -1 <= place.y0 < place.y1 <= height + 1


PILED = "o" + "\u0301" * 400 + "".join(letter + "\u0302\u20dd\ufe0f" * 30 for letter in "an arm")


@pytest.mark.parametrize("name", [PILED, "word " * 2000], ids=["marks", "words"])
@pytest.mark.parametrize("kind", FIGURES)
def test_piled_marks_and_endless_labels_leave_room_for_the_axes(kind, name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns of axes without room
        drawn = FIGURES[kind](name)
    assert all(axes.bbox.width > 60 for axes in drawn.figure.axes)
    assert all(axes.bbox.height > 12 for axes in drawn.figure.axes)
    assert drawn.figure.bbox.height < 800
    sizes = [text.get_fontsize() for text in drawn.figure.findobj(Text) if text.get_text()]
    assert min(sizes) > 9


def test_what_is_elided_ends_with_an_ellipsis_and_marks_of_a_language_stay():
    tree = ElementTree.fromstring(FIGURES["strip"]("word " * 2000).svg)
    assert any(text.text.endswith("…") for text in tree.iter("text"))
    assert elide_text("ที่ ế̤ " + "x" * 9, 9, 2) == ["ที่ ế̤", "x" * 9]
    assert elide_text("o" + "\u0301" * 9, 9, 2) == ["o" + "\u0301" * 3]


SHARES = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@given(SHARES, st.lists(st.floats(-9, 9), max_size=4), st.booleans())
def test_an_axis_of_shares_ends_where_shares_do(values, intervals, signed):
    if signed:
        values = [-value for value in values]
    low, high = limits_of(values, PERCENT, intervals)
    assert low < high
    assert low <= min(values) <= max(values) <= high
    assert low >= -1
    assert high <= 1
    assert low >= 0 or min(values) < 0


def test_axes_of_other_units_have_room_on_both_sides():
    assert limits_of([0.0, 1.0], Measure("nats")) == pytest.approx((-0.06, 1.06))
    assert limits_of([0.0, 2.0], PERCENT) == pytest.approx(
        (-0.12, 2.12)
    )  # no share: drawn as it is


@pytest.mark.parametrize("drawn", [
    strip_plot({"a": {1: 0.0, 2: 0.04}, "b": {1: 0.01, 2: 0.0}}, "recall, %"),
    strip_plot({"a": {1: 1.0, 2: 0.9}}, "recall, %"),
    box_plot({"a": {"x": 0.0, "y": 1.0, "z": 0.5}}, "share, %"),
    grouped_bars({"a": [("x", 0.98, 0.9, 1.06)]}, "share, %"),
    curve({"a": {0.0: {1: 0.0, 2: 0.02}, 1.0: {1: 1.0, 2: 0.98}}}, "x", "share, %"),
])  # fmt: skip
def test_no_tick_lies_outside_of_the_percents_that_there_are(drawn):
    """F, 9: a figure of recall from -4 to 4 %."""
    [axes] = drawn.figure.axes
    axis = axes.yaxis if drawn.label.endswith("by x") else axes.xaxis
    low, high = axis.get_view_interval()
    assert (low, high) == (max(low, 0), min(high, 1))
    ticks = [t.label1.get_text() for t in axis.get_major_ticks() if low <= t.get_loc() <= high]
    assert ticks
    assert all(0 <= float(text.replace("\u2212", "-")) <= 100 for text in ticks)


def test_chance_is_a_line_with_its_name_or_a_remark_where_it_is_far():
    near = strip_plot({"a": {1: 0.14, 2: 0.2}}, "acc1, %", chance=0.1)
    assert "chance 10.0" in near.svg
    assert any(set(line.get_xdata()) == {0.1} for line in near.figure.axes[0].lines)
    far = strip_plot({"a": {1: 0.94, 2: 0.95}}, "acc1, %", chance=0.001)
    assert "acc1, % (by chance 0.1)" in far.svg
    assert far.figure.axes[0].get_xlim()[0] > 0.8
    assert "chance" not in strip_plot({"a": {1: 0.94}}, "acc1, %").svg


BAD = math.nan, math.inf, -math.inf, 1e300
TOLD = "missing or infinite value"


def with_one(bad):
    """Figures of which one value is missing, each with a row or a point of missing ones alone."""
    return {
        "strip": lambda: strip_plot({"a": {1: 0.4, 2: bad}, "b": {1: bad}, "c": {2: 0.5}}, "x"),
        "curve": lambda: curve(
            {"s": {0.0: {1: 0.4}, 0.5: {1: bad}, 1.0: {1: 0.5, 2: bad}}, "t": {bad: {1: 0.3}}},
            "x", "y", chance=(bad, 0.1, 0.2),
        ),
        "box": lambda: box_plot(
            {"r": {"a": 1.0, "b": bad, "c": 2.0}, "q": {"a": bad}}, "x", chance={"r": (0, bad, 1)}
        ),
        "tradeoff": lambda: tradeoff_plot(
            {"s": [("p", {1: 0.1, 2: bad}, {1: 0.2, 2: 0.1}), ("q", {1: 0.1}, {1: bad})]}, "x", "y"
        ),
        "bars": lambda: grouped_bars(
            {"g": [("a", bad, bad, bad), ("b", 0.5, bad, 0.6), ("c", 0.3, 0.2, 0.4)]}, "x",
            chance={"g": (bad, 0.1, 0.2)},
        ),
        "gap": lambda: gap_figure(
            {"IR_r": np.array([bad, bad]), "IR_c": np.array([1.0, bad, 2.0])}, "m", "logit"
        ),
    }  # fmt: skip


def without_any(bad):
    """The same figures without a value that can be drawn."""
    return {
        "strip": lambda: strip_plot({"a": {1: bad}, "b": {}}, "x"),
        "curve": lambda: curve({"s": {0.0: {1: bad}}}, "x", "y"),
        "box": lambda: box_plot({"r": {"a": bad}}, "x"),
        "tradeoff": lambda: tradeoff_plot({"s": [("p", {1: bad}, {1: 0.2})]}, "x", "y"),
        "gap": lambda: gap_figure({"IR_r": np.array([bad])}, "m", "logit"),
    }


def said_in(drawn):
    return [text.text for text in ElementTree.fromstring(drawn.svg).iter("text")]


@pytest.mark.parametrize("kind", with_one(0.0))
def test_a_missing_value_is_left_out_and_told(kind):
    whole = len(notes(ElementTree.fromstring(with_one(0.25)[kind]().svg)))
    for bad in BAD[:2] if kind == "gap" else BAD[::3]:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            drawn = with_one(bad)[kind]()
        assert "nan" not in drawn.svg
        assert "inf" not in drawn.svg.replace(TOLD, "")
        assert 0 < len(notes(ElementTree.fromstring(drawn.svg))) < whole
        says_so = any(TOLD in text for text in said_in(drawn))
        assert says_so == (kind in {"strip", "curve", "box", "tradeoff"})
        assert (kind in {"strip", "box"}) == ("no values" in said_in(drawn))


@pytest.mark.parametrize("kind", without_any(0.0))
def test_a_figure_without_values_says_so_in_its_place(kind):
    drawn = without_any(math.nan)[kind]()
    assert "no values" in said_in(drawn)
    assert drawn.pdf().startswith(b"%PDF")


def test_a_line_has_a_gap_where_all_seeds_are_missing():
    def parts(middle):
        drawn = curve(
            {"s": {0.0: {1: 0.4}, 1.0: {1: middle}, 2.0: {1: 0.5}, 3.0: {1: 0.6}}}, "x", "y"
        )
        paths = [path.get("d").split() for path in ElementTree.fromstring(drawn.svg).iter("path")]
        return max(path.count("L") for path in paths)

    assert parts(0.3) == 3
    assert parts(math.nan) == 1


def test_rows_and_series_of_one_name_are_all_drawn():
    """Two checkpoints, or two answers, may be called the same."""
    bars = grouped_bars({"g": [("m", 0.5, 0.4, 0.6), ("m", 0.4, 0.3, 0.5)]}, "x", legend=("m", "m"))
    tree = ElementTree.fromstring(bars.svg)
    assert [text.text for text in tree.iter("text")].count("m") == 2
    tree = ElementTree.fromstring(disagreement_matrix(Agreement(), ["same", "same"]).svg)
    assert [text.text for text in tree.iter("text")].count("same") == 4
    assert len(notes(tree)) == 4


def test_every_colour_is_told_from_the_others():
    assert len(set(COLOURS.values())) == len(COLOURS) > 10
    assert THEME.count("prefers-color-scheme: dark") == 1


@pytest.mark.slow
def test_a_pdf_embeds_its_fonts_and_tells_no_time(capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = FIGURES["strip"](NAME).pdf()
    assert capfd.readouterr().err == "", "letters that the font lacks are no news"
    assert made.startswith(b"%PDF-")
    assert b"/FontFile2" in made, "TrueType, as pdf.fonttype 42 says"
    assert b"/Type3" not in made
    assert b"CreationDate" not in made


def test_figures_that_are_no_more_are_deleted(tmp_path):
    drawing = FIGURES["bars"]("a")
    (tmp_path / "t-10-1.pdf").write_bytes(b"another table's")
    (tmp_path / "t-1-4.pdf").write_bytes(b"a user's")
    write_pdfs([drawing] * 3, tmp_path, "t-1")
    assert [file.name for file in write_pdfs([drawing], tmp_path, "t-1")] == ["t-1-1.pdf"]
    assert sorted(file.name for file in tmp_path.glob("*.pdf")) == [
        "t-1-1.pdf", "t-1-4.pdf", "t-10-1.pdf",
    ]  # fmt: skip


def test_a_file_of_its_own_follows_the_theme():
    text = FIGURES["strip"]("a").svg_file()
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme: dark" in root[0].text


def test_what_a_page_cannot_show_is_refused():
    """Markers are drawn by reference, which only circles survive."""
    with style():
        axes = new_axes(100)
        axes.plot([0, 1], [0, 1], "s")
    with pytest.raises(ValueError, match="only circles"):
        _ = Drawing.of(axes, "a").svg


def digests() -> list[str]:
    """Return a hash of each figure's SVG, and of the PDF of the last one."""
    drawn = [draw("a $name$") for draw in FIGURES.values()]
    made = [*(drawing.svg.encode() for drawing in drawn), drawn[-1].pdf()]
    return [hashlib.sha256(content).hexdigest() for content in made]


@pytest.mark.slow
def test_another_process_writes_the_same_bytes(tmp_path):
    """Whatever the user's matplotlibrc says."""
    settings = tmp_path / "matplotlibrc"
    settings.write_text("font.size: 30\nsvg.fonttype: path\naxes.grid: True\n")
    environment = {**os.environ, "PYTHONHASHSEED": "2", "MATPLOTLIBRC": str(settings)}
    code = "import json; from tests.report.test_plots import digests; print(json.dumps(digests()))"
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    assert json.loads(run.stdout) == digests()


@pytest.mark.parametrize("kind", ["bars", "curve", "gap"])
def test_wide_letters_leave_room_for_the_axes(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = FIGURES[kind]("W" * 200)
    assert all(axes.bbox.width > 5 for axes in drawn.figure.axes)
