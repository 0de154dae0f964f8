"""The page: its first line follows the numbers, it is one file, and nothing in it is live."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from unittest.mock import patch
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.outputs import RECORD
from cfaug.core.types import CounterfactualSet, Member
from cfaug.report.comparison import Headline
from cfaug.report.experiment_report import write_report
from cfaug.report.gallery import changed_pixels, outline, show
from cfaug.report.plots import curve, strip_plot
from cfaug.report.results import Result
from cfaug.report.significance_table import significance_table
from cfaug.report.summary_text import (
    cost,
    describe_pairing,
    how_tested,
    pairing,
    steps_part,
    verdict,
)
from tests.report.example import (
    ID,
    LABELS,
    MEANS,
    OOD,
    RATIOS,
    SOURCES,
    headline,
    notes,
    pair,
    results,
    runs,
)

HEADLINE = Headline(
    OOD, "acc1", ("before", "real"), ("counterfactual",), in_distribution=ID, controls=("unbiased",)
)
BASELINES = ["real", "more_real"]
VOID = {"meta", "img", "input"}


class Page(HTMLParser):
    """Collects what a browser would see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        # A number is kept together by an element of its own, which parts no sentence.
        self.feed(re.sub(r'<span class="unbroken">(.*?)</span>', r"\1", text))

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "head" not in self.open and data.strip():
            self.texts.append(data.strip())


def written(folder, rows, run_records, *, baselines=BASELINES, cautions=(), **changes) -> Page:
    arguments = {
        "title": "ShapeScapes", "samples": [pair("a-1")], "config_text": "data:\n  cf_ratio: 0.5",
        "headline": HEADLINE, **changes,
    }  # fmt: skip
    table = significance_table(
        rows, baselines, ["before"], labels=arguments["headline"].labels, cautions=cautions
    )
    # Fonts are embedded for a second; one test below looks at the PDFs.
    with patch("cfaug.report.experiment_report.write_pdfs", return_value=[]):
        (path,) = write_report(folder, rows=rows, runs=run_records, table=table, **arguments)
    page = Page(path.read_text(encoding="utf-8"))
    assert page.open == [], "every tag is closed"
    return page


def steps(rows, headline, baselines=BASELINES) -> dict[tuple[str, str], list[str]]:
    """Return {(arm, other): difference, interval, p, outcome} of the expected steps."""
    part = steps_part(rows, headline, baselines)
    return {labels: [cell.text for cell in cells] for labels, cells in part.rows}


def quoted(rows, headline=HEADLINE, baselines=BASELINES) -> str:
    said = verdict(rows, headline, baselines)
    assert len(said.partition(" (")[0].split()) <= 25, "a sentence that one can quote"
    assert said.count(". ") == 0
    return said


def test_the_verdict_follows_the_numbers():
    rows = results()
    gain = np.mean([r.value for r in rows if r.cell == (OOD, "acc1") and r.arm == "counterfactual"])
    gain -= np.mean([r.value for r in rows if r.cell == (OOD, "acc1") and r.arm == "real"])
    assert re.fullmatch(
        r"With counterfactual, accuracy out of distribution rises by "
        rf"{100 * gain:.1f} points against real "
        r"\(95 % [\d.]+ to [\d.]+, one-sided p = [\d.e-]+\)\.",
        quoted(rows),
    )
    assert {row[-1] for row in steps(rows, HEADLINE).values()} == {"reached"}
    title = steps_part(rows, HEADLINE, BASELINES).title
    assert title == "The expected order before < real < counterfactual"  # nobody declared it
    swapped = {**MEANS, "before": MEANS["real"], "real": MEANS["before"]}
    bad = steps(results(swapped), HEADLINE)
    assert re.fullmatch(r"worse \(two-sided p = .*\)", bad["real", "before"][-1])
    assert bad["real", "before"][0].startswith("-")
    assert bad["counterfactual", "real"][-1] == "reached"
    worse = results({**MEANS, "counterfactual": (0.2, 0.3)})
    assert re.search(r"falls by [\d.]+ points against real \(95 % [\d.]+ to", quoted(worse))
    same = results(dict.fromkeys(MEANS, (0.5, 0.5)))
    assert "no gain of accuracy out of distribution against real is shown: +" in quoted(same)
    assert {row[-1] for row in steps(same, HEADLINE).values()} == {"not shown"}
    absent = steps([r for r in results() if r.arm != "before"], HEADLINE)
    assert absent["real", "before"][-1] == "not compared: one of them has no results"
    plain = replace(HEADLINE, expected=False)
    assert steps_part(rows, plain, BASELINES).title == "Step by step"
    alone = Headline(OOD, "acc1", (), ("real",))
    assert "Nothing was compared" in quoted(results(), alone, ["real"])


def test_one_training_each_has_no_p(tmp_path):
    rows = [row for row in results() if row.seed == 11]
    assert re.fullmatch(
        r"With counterfactual, accuracy out of distribution rose from [\d.]+ to [\d.]+ % "
        r"\(one training each: more seeds are needed to know\)\.",
        quoted(rows),
    )
    assert cost(rows, HEADLINE, BASELINES).endswith("against real (one training each).")
    shares = replace(HEADLINE, labels={"counterfactual": "cf_ratio=0.6"}, share=0.6)
    assert quoted(rows, shares).startswith("With 60 % counterfactual examples, accuracy out of")


def test_a_sentence_without_p_has_no_note_on_p(tmp_path):
    by_chance = [replace(r, value=0.5, chance=0.5) for r in results() if r.cell == (OOD, "acc1")]
    about = replace(HEADLINE, order=("real",), in_distribution=None)
    assert "is shown to be better than chance" in quoted(by_chance, about, ["real"])
    assert how_tested(by_chance, about, ["real"]) == ""
    assert how_tested(results(), about, ["real"]).startswith("p: one-sided t-test paired by seed")
    once = [row for row in results() if row.seed == 11]
    assert how_tested(once, about, ["real"]) == ""
    page = written(tmp_path, by_chance, runs(by_chance), headline=about)
    assert not any(text.startswith("p: ") or "BCa" in text for text in page.texts)


def test_every_arm_under_test_is_spoken_of(tmp_path):
    both = replace(HEADLINE, tested=("generated", "counterfactual"))
    rows = results({**MEANS, "generated": (0.64, 0.6), "unbiased": (0.64, 0.74)})
    said = steps(rows, both)
    for arm in both.tested:
        assert said[arm, "real"][-1] == said[arm, "more_real"][-1] == "reached"
    assert quoted(rows, both).startswith("With generated, accuracy")
    worse = steps(results({**MEANS, "generated": (0.38, 0.6)}), both)
    assert worse["counterfactual", "real"][-1] == "reached"
    assert worse["generated", "more_real"][-1].startswith("worse (two-sided")
    assert re.search(r"it loses [\d.]+ points against real \(95 % ", cost(rows, both, BASELINES))
    compared = {(f.arm, f.other) for f in pairing(rows, both)}
    assert compared == {("generated", "unbiased"), ("counterfactual", "unbiased")}
    page = written(tmp_path, rows, runs(rows), headline=both)
    accents = [attributes for tag, attributes in page.tags
               if tag == "tr" and attributes.get("class") == "accent"]  # fmt: skip
    assert len(accents) == 2


def test_unedited_sources_are_no_pairs():
    rows = results({**MEANS, "generated": (0.6, 0.7), "generated_sources": (0.4, 0.7),
                    "generated_paired": (0.6, 0.7)})  # fmt: skip
    both = headline(rows, dict.fromkeys(SOURCES, 0.5))
    arms = {finding.arm for finding in pairing(rows, both)}
    assert arms == {"generated", "generated_paired", "counterfactual"}


def test_the_cost_is_named_as_such():
    said = cost(results(), HEADLINE, ["more_real"])
    assert re.fullmatch(
        r"In distribution it loses \d+\.\d points against more_real "
        r"\(95 % \d+\.\d to \d+\.\d, p = \S+\)\.",
        said,
    )
    said = cost(results(), HEADLINE, BASELINES)
    assert "no difference from real is shown: +1.0 points (95 % -0.5 to +2.5, p = 0.14)" in said
    only_ood = [r for r in results() if r.benchmark == OOD]
    assert "not known" in cost(only_ood, HEADLINE, BASELINES)
    rows = [replace(r, benchmark="flickr") for r in only_ood]
    assert cost(rows, replace(HEADLINE, benchmark="flickr", in_distribution=None), BASELINES) == ""


def test_before_with_one_seed_is_tested_unpaired():
    rows = [r for r in results() if r.arm != "before" or r.seed in (11, 12)]
    assert steps(rows, HEADLINE)["real", "before"][-1] == "reached"


def test_what_pairing_brings_is_computed():
    rows = results({**MEANS, "counterfactual": (0.8, 0.72), "unbiased": (0.6, 0.9)})
    says = describe_pairing(pairing(rows, HEADLINE), HEADLINE)
    assert f"bring more in counterfactual against unbiased on {OOD}" in says
    assert f"bring less in counterfactual against unbiased on {ID}" in says
    rows = results({**MEANS, "counterfactual": (0.6, 0.7), "unbiased": (0.6, 0.7)})
    assert "No difference is shown" in describe_pairing(pairing(rows, HEADLINE), HEADLINE)
    rows = [r for r in rows if r.arm != "unbiased"]
    assert (
        "No arm with the same number of unpaired images of the same kind was run"
        in describe_pairing(pairing(rows, HEADLINE), HEADLINE)
    )


def test_the_page_is_one_file_that_asks_for_nothing(usual):
    _, page, file = usual
    assert sorted(p.name for p in file.parent.iterdir()) == [RECORD, "report.html"]
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "link", "iframe", "object", "base"})
    for tag, attributes in page.tags:
        for name in {"src", "href", "srcset", "action", "poster"} & attributes.keys():
            assert tag == "img"
            assert attributes[name].startswith("data:image/")
    text = file.read_text()
    for word in ("url(", "@import", "://"):
        assert word not in text


def test_everything_from_outside_is_escaped(tmp_path):
    attack = "<script>alert(1)</script>\"'&"
    nasty = pair("n-1", before=attack, after=f"{attack} {attack}")
    rows = [replace(r, arm=attack) if r.arm == "unbiased" else r for r in results()]
    records = runs(rows, git=attack)
    page = written(tmp_path, rows, records, title=attack, config_text=attack, samples=[nasty])
    assert "script" not in {tag for tag, _ in page.tags}
    assert "<script>" not in (tmp_path / "report.html").read_text()
    assert "".join(page.texts).count("<script>") >= 4, "shown as text"
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)


def test_generic_results_make_a_page(tmp_path):
    arms = ("real", "counterfactual")
    rows = [
        replace(r, benchmark="flickr_retrieval", metric="text_to_image_R@1")
        for r in results()
        if r.benchmark == OOD and r.arm in arms
    ]
    about = Headline("flickr_retrieval", "text_to_image_R@1", arms[:1], arms[1:])
    page = written(tmp_path, rows, [], headline=about, samples=[], baselines=["real"])
    assert page.texts[0].startswith("With counterfactual, text_to_image_R@1 on flickr_retrieval ri")
    assert "Sample pairs" not in page.texts
    missing = replace(about, benchmark="elsewhere")
    page = written(tmp_path, rows, [], headline=missing, samples=[], baselines=["real"])
    assert "no results" in page.texts[0]


def test_the_page_marks_a_loss_and_explains_it(tmp_path):
    rows = results({**MEANS, "collapsed": (0.1, 0.1)})
    page = written(tmp_path, rows, runs(rows), headline=replace(HEADLINE, labels=LABELS))
    assert any("↓‡" in text for text in page.texts)
    assert any("↓: worse than real only by a two-sided Welch t-test" in text for text in page.texts)
    assert any(text.startswith("Arms by their full names: before fine-tuning: before;")
               for text in page.texts)  # fmt: skip
    assert "more_real" not in page.texts, "every table calls an arm the same"


def test_the_ratio_is_drawn_when_there_are_three(usual, tmp_path):
    assert "Ratio against metric" not in usual[1].texts
    rows = results({**MEANS, "less": (0.5, 0.7), "cf_ratio=0.9": (0.6, 0.7)})
    ratios = {**RATIOS, "less": 0.3, "cf_ratio=0.9": 0.9}
    sources = {**SOURCES, "less": SOURCES["counterfactual"]}
    page = written(tmp_path, rows, runs(rows, ratios, sources))
    assert "Ratio against metric" in page.texts
    ticks = [t for t in page.texts if t in {"0", "0.3", "0.5"}]
    assert ticks[:3] == ["0", "0.3", "0.5"]
    assert any("0.3, seed 11" in t for t in page.texts)


@pytest.mark.slow
def test_every_figure_of_the_page_is_a_pdf_beside_it(tmp_path):
    rows = results()
    page, *pdfs = write_report(
        tmp_path, title="x", rows=rows, runs=runs(rows), samples=[], config_text="",
        table=significance_table(rows, BASELINES, ["before"]), headline=HEADLINE,
    )  # fmt: skip
    assert [pdf.name for pdf in pdfs] == ["report-1.pdf", "report-2.pdf"]
    assert page.read_text().count('role="img"') == 2
    assert all(pdf.read_bytes().startswith(b"%PDF-") for pdf in pdfs)


def test_strip_plot_has_a_dot_a_seed_and_joins_only_shared_seeds():
    drawn = strip_plot({"a": {1: 0.1, 2: 0.2}, "b<": {2: 0.3, 3: 0.4}}, "acc1").svg
    assert drawn.count("<circle") == 4
    assert drawn.count("stroke-opacity: 0.35") == 1
    assert "b&lt;" in drawn
    assert "b<, seed 3: 40.0 %" in notes(ElementTree.fromstring(drawn))
    assert "nan" not in strip_plot({"one": {1: 0.5}}, "acc1").svg, "one seed, no interval"
    assert "nan" not in curve({"s": {0.0: {1: 0.5}}}, "x", "y").svg


def test_changed_pixels_and_their_outline():
    first = Image.new("RGB", (8, 6), "white")
    second = first.copy()
    second.putpixel((2, 1), (0, 0, 0))
    second.putpixel((3, 1), (0, 255, 255))
    second.putpixel((7, 5), (250, 250, 250))
    mask = changed_pixels(first, second)
    assert np.argwhere(mask).tolist() == [[1, 2], [1, 3]], "a slight change is JPEG's own"
    drawn = outline(mask)
    assert drawn.count("M2 1h2 M2 2h2 M2 1v1 M4 1v1") == 2
    assert changed_pixels(first, first.resize((4, 4))) is None
    assert 'viewBox="0 0 115 86"' in outline(np.ones((600, 800), bool))


def test_a_pair_shows_both_sides_of_the_edit():
    sample = show(pair("p-1"))
    assert sample.pixelated
    assert [m.caption for m in sample.members] == [
        "a red <mark>ball</mark> on the sea", "a red <mark>cube</mark> on the sea",
    ]  # fmt: skip
    assert [m.edit for m in sample.members] == ["", "subject: ball → cube"]
    assert all(m.outline for m in sample.members)
    assert re.fullmatch(r"\d+ % of the pixels changed", sample.members[1].share)
    large = show(pair("p-2", size=512, kind="JPEG"))
    assert not large.pixelated
    assert large.members[0].picture.startswith("data:image/jpeg")
    assert len(large.members[0].picture) < 100_000
    made = pair("p-3")
    small = io.BytesIO()
    Image.new("RGB", (16, 16)).save(small, "PNG")
    members = tuple(replace(m, text=f"<i> {m.text}") for m in made.members)
    images = {**made.images, "b": small.getvalue()}
    other = show(replace(made, members=members, images=images))
    assert other.members[0].caption == "&lt;i&gt; a red <mark>ball</mark> on the sea"
    assert other.members[1].share == "sizes differ: 32x32, 16x16"
    assert other.members[0].outline is None


def test_captions_of_one_photo_are_not_edits():
    photo = CounterfactualSet(
        key="photo", group="photo", images={"a": pair("x").images["a"]},
        members=tuple(Member(f"caption {i}", "a", "photo") for i in range(5)),
    )  # fmt: skip
    sample = show(photo)
    assert len(sample.members) == 4
    assert sample.left_out == 1
    assert not any(m.outline or m.share or "<mark>" in m.caption for m in sample.members)


def test_a_broken_picture_is_named():
    whole = pair("p-1")
    broken = replace(whole, images={**whole.images, "b": b"no picture"})
    with pytest.raises(UserError, match="p-1"):
        show(broken)


@pytest.mark.slow
def test_a_browser_lays_the_page_out(watched, usual):
    watched.open(usual[2])
    assert watched.run("document.documentElement.scrollWidth") <= 1200
    drawn = "[...document.querySelectorAll('svg circle')].filter((c) => c.getBBox().width).length"
    assert watched.run(drawn) >= len(usual[0]) / 2
    assert watched.run("document.querySelector('h1').getBoundingClientRect().height") > 20


@pytest.mark.slow
def test_letters_of_all_figures_have_one_size_on_a_screen_and_on_a_phone(watched, tmp_path):
    rows = results({**MEANS, "less": (0.5, 0.7), "cf_ratio=0.9": (0.6, 0.7)})
    ratios = {**RATIOS, "less": 0.3, "cf_ratio=0.9": 0.9}
    sources = {**SOURCES, "less": SOURCES["counterfactual"]}
    written(tmp_path, rows, runs(rows, ratios, sources))
    for width in (1280, 400):
        watched.view(width, 900)
        watched.open(tmp_path / "report.html")
        watched.view(width, 900)
        assert watched.run("document.documentElement.scrollWidth") == width
        figures = "[...document.querySelectorAll('figure > svg')]"
        scales = watched.run(f"{figures}.map((s) => s.getScreenCTM().a)")
        assert len(scales) == 3, "two strips and the curve"
        assert max(scales) - min(scales) < 0.01
        assert 11.5 * min(scales) > 8.5, "CSS pixels of the smallest letters"


@pytest.fixture(scope="module")
def usual(tmp_path_factory) -> tuple[list[Result], Page, Path]:
    """The example's rows, its page as read, and the page's file."""
    folder, rows = tmp_path_factory.mktemp("report"), results()
    return rows, written(folder, rows, runs(rows)), folder / "report.html"


def test_the_first_lines_are_the_verdict_and_the_cost_unbroken(usual):
    rows, page, file = usual
    assert page.texts[0] == verdict(rows, HEADLINE, BASELINES)
    assert page.texts[1] == cost(rows, HEADLINE, BASELINES)
    text = file.read_text(encoding="utf-8")
    said = re.search(r"<h1>(.*?)</h1>", text)[1]
    assert re.search(r"\de-\d", said), "the example's p are small enough to break"
    assert "p = " not in re.sub(r'<span class="unbroken">p = [\d.e-]+\d</span>', "", said)
    assert ".unbroken { white-space: nowrap; }" in text
