"""A document in every format: parsed back, balanced, aligned, and nothing taken for markup."""

from __future__ import annotations

import csv
import io
import re
from html import unescape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.report.document import (
    DAGGER,
    NUMBERS,
    Curve,
    Document,
    DocumentImage,
    Entry,
    GapPlot,
    Part,
    read_document,
    tex_text,
    to_csv,
    to_latex,
    to_markdown,
    write_document,
)
from cfaug.report.paper_tables import write_tables_page
from tests.properties import examples

HOSTILE = "<script>alert(1)</script>|_$%&#{}~^\\\n</style>`*"
TEXT = st.text(max_size=20)


def document(text: str = "plain", value: float = 0.5) -> Document:
    entry = Entry(text, "1.0", bold=True, underlined=True, above=DAGGER,
                  numbers={"value": value, "sd": 0.01, "n": 5, "p_holm": 0.03})  # fmt: skip
    part = Part(
        title=f"Ours {text}",
        labels=("row", text),
        groups=((text or "group", 2), ("", 1)),
        columns=("R@1", "R@5", text),
        rows=((("a", text), (entry, Entry("2"), Entry("3"))), (("b", text), (entry,) * 3)),
        rules=(1,),
        notes=(f"note {text}",),
    )
    curve = Curve(text, "x", "y", {text: {0.5: {1: 0.25, 2: 0.35}, 0.0: {1: 0.1, 2: 0.2}}})
    gaps = GapPlot(text, "logit", {"IR_r": [1.0, 2.0, 3.0], "IR_c": [0.5, -0.5, 0.25]})
    return Document(
        "coco_cf_3", f"Table {text}", (part,), (f"end {text}",), (curve,), (gaps,),
        (DocumentImage(text, "aGk="),),
    )  # fmt: skip


def test_a_part_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="does not fit"):
        Part("t", ("row",), (), ("a", "b"), ((("x",), (Entry("1"),)),))
    with pytest.raises(ValueError, match="do not span"):
        Part("t", ("row",), (("g", 1),), ("a", "b"), ())


@settings(max_examples=examples(50), deadline=None)
@given(TEXT, st.floats(0, 1))
def test_csv_says_everything_in_full_precision(text, value):
    text = text.replace("\r", " ").replace("\0", " ")
    rows = list(csv.DictReader(io.StringIO(to_csv(document(text, value)))))
    cells = [row for row in rows if row["part"] == f"Ours {text}"]
    assert len(cells) == 6
    assert set(NUMBERS) <= set(rows[0])
    assert float(cells[0]["value"]) == value
    assert cells[0]["text"] == text
    assert cells[1]["value"] == ""
    assert {row["source"] for row in rows} == {"ours"}
    seeds = [float(row["value"]) for row in rows if "seed" in row["row"] and row not in cells]
    assert sorted(seeds) == [0.1, 0.2, 0.25, 0.35]


@settings(max_examples=examples(50), deadline=None)
@given(TEXT)
def test_latex_is_balanced_and_escaped(text):
    tex = to_latex(document(text))
    code = "\n".join(line for line in tex.splitlines() if not line.startswith("%"))
    bare = re.sub(r"\\[{}$&#%_\\]", "", code)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert "#" not in bare
    for name in (r"table\*?", "tabular"):
        [kind] = re.findall(rf"\\begin\{{({name})\}}", code)
        assert code.count(rf"\end{{{kind}}}") == 1
    rows = re.findall(r"^.*\\\\$", code, re.MULTILINE)
    spans = [re.sub(r"\\&", "", row).count("&") for row in rows]
    assert code.count(r"\label{tab:coco-cf-3}") == 1
    [note] = re.findall(r"\\parbox\{\\linewidth\}\{\\footnotesize note (.*)\}$", code, re.MULTILINE)
    assert note == tex_text(text).strip() or text.strip() != text
    assert spans[0] == 3  # two labels and two groups
    assert set(spans[1:]) == {4}


def split_row(line: str) -> list[str]:
    return re.split(r"(?<!\\)\|", line)[1:-1]


@settings(max_examples=examples(50), deadline=None)
@given(TEXT)
def test_markdown_is_aligned(text):
    lines = to_markdown(document(text)).split("\n")
    tables = [[]]
    for line in lines:
        if line.startswith("| "):
            tables[-1].append(line)
        elif tables[-1]:
            tables.append([])
    first = tables[0]
    assert len(first) == 4
    assert {len(split_row(line)) for line in first} == {5}
    assert len({len(line) for line in first}) == 1


@pytest.mark.slow
def test_nothing_is_taken_for_markup(tmp_path):
    paths = write_document(document(HOSTILE), tmp_path)
    names = [f"coco_cf_3{end}" for end in ("-1.pdf", "-2.pdf", ".csv", ".json", ".md", ".tex")]
    assert sorted(path.name for path in paths) == names
    page = write_tables_page(tmp_path).read_text()
    assert "<script>" not in page
    assert page.count("</style>") == 1
    assert "&lt;script&gt;" in page
    assert "<script>" not in (tmp_path / "coco_cf_3.md").read_text()
    assert len(re.findall("<svg", page)) == 2


@settings(max_examples=examples(50), deadline=None)
@given(TEXT, st.floats(allow_nan=False, allow_infinity=False))
def test_json_gives_the_document_back(tmp_path_factory, text, value):
    folder = tmp_path_factory.mktemp("document")
    made = document(text, value)
    (folder / "coco_cf_3.json").write_text(made.to_json())
    assert read_document(folder / "coco_cf_3.json") == made


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": 1, "parts": 3}', "no json"])
def test_another_file_is_named(tmp_path, text):
    (tmp_path / "coco_cf_9.json").write_text(text)
    with pytest.raises(UserError, match=r"coco_cf_9\.json is not a table.*cfaug table coco_cf_9"):
        write_tables_page(tmp_path)


def test_a_picture_must_be_base64(tmp_path):
    bad = Document("x", "t", (), pictures=(DocumentImage("c", '"><script>'),))
    write_document(bad, tmp_path)
    with pytest.raises(UserError, match="not base64"):
        write_tables_page(tmp_path)


def test_tables_stand_in_the_papers_order(tmp_path):
    for name in ("coco_cf_figure_2", "coco_cf_10", "coco_cf_2"):
        write_document(Document(name, name, ()), tmp_path)
    page = write_tables_page(tmp_path).read_text()
    sections = re.findall(r'<section id="(\w+)"', page)
    assert sections == ["coco_cf_2", "coco_cf_10", "coco_cf_figure_2"]


def test_marks_are_explained_where_they_are_used_and_nowhere_else(tmp_path):
    cell = Entry("1.0", numbers={"value": 0.01, "p_paired": 0.2})
    tested = Part("Ours", ("Model",), (), ("acc",), ((("m",), (cell,)),))
    bold = Part("Ours", ("Model",), (), ("p",), ((("m",), (Entry("0.01", bold=True),)),))
    write_document(Document("lance_2", "t", (bold,)), tmp_path)
    alone = write_tables_page(tmp_path).read_text()
    assert "standard deviation over seeds" not in alone
    assert "The paper's tables, its numbers and ours" in unescape(alone)
    write_document(Document("coco_cf_3", "t", (tested,)), tmp_path)
    write_document(Document("lance_edits", "t", (bold,)), tmp_path)
    both = unescape(write_tables_page(tmp_path).read_text())
    assert "standard deviation over seeds" in both
    assert "This holds for coco_cf_3;" in both
    assert "The papers' tables, their numbers and ours" in both
    assert re.findall(r'<section id="(\w+)"', both) == ["coco_cf_3", "lance_2", "lance_edits"]


def test_signs_that_latex_prints_as_others_are_named():
    """In LaTeX's own encoding of fonts | < > are printed as a dash and Spanish marks."""
    assert tex_text("|D| > 0 <= 1 < 2") == (
        r"\textbar{}D\textbar{} \textgreater{} 0 $\leq$ 1 \textless{} 2"
    )
