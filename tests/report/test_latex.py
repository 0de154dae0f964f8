"""Tables as LaTeX, compiled: in a class of two columns, with booktabs alone."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from cfaug.report.document import (
    LATEX_ESCAPES,
    Column,
    Document,
    Entry,
    make_part,
    text_column,
    to_latex,
)
from cfaug.report.layout import table_document
from cfaug.report.significance_table import significance_table
from tests import skips
from tests.report.example import results

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("pdflatex") is None, reason=skips.reason("latex")),
]

PAPER = r"""\documentclass[twocolumn]{article}
\usepackage{booktabs}
\begin{document}
Tables~\ref{%s} and others.
%s
\end{document}
"""


def compile_latex(folder, tables: str) -> str:
    """Compile a paper of these tables twice, so that references are known; return the log."""
    [first, *_] = re.findall(r"\\label\{(.*?)\}", tables)
    (folder / "paper.tex").write_text(PAPER % (first, tables), encoding="utf-8")
    words = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "-no-shell-escape"]
    for _ in range(2):
        done = subprocess.run(
            [*words, "paper.tex"], cwd=folder, capture_output=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout.decode(errors="replace")[-3000:]
    assert (folder / "paper.pdf").stat().st_size > 10_000
    return (folder / "paper.log").read_text(errors="replace")


def widest(log: str) -> float:
    """Return by how many points the widest line is too wide."""
    return max(map(float, re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide", log)), default=0)


def test_the_tables_of_an_experiment_compile_and_fit(tmp_path):
    table = significance_table(results(), ["real", "more_real"])
    log = compile_latex(tmp_path, to_latex(table_document(table)))
    assert "undefined" not in log
    assert widest(log) < 10


def test_every_sign_that_is_escaped_compiles(tmp_path):
    signs = "".join(map(chr, LATEX_ESCAPES))
    cell = Entry(signs, "1.0", bold=True, underlined=True, signs="↓", above=("†",), small="[1, 2]")
    names = ("plain", signs, *(f"a rather long name of a column {n}" for n in range(6)))
    columns = [text_column(names[0], lambda _: "1"), *[_column(name, cell) for name in names[1:]]]
    wide = make_part(signs, ("row",), columns, [(("a" + signs,), None)], [f"A note: {signs}."])
    narrow = make_part(
        "Narrow", ("row",), [_column("a", Entry("12.3"), "both"), _column("b", Entry("1"), "both")],
        [(("a",), None)], ["A note. " * 40],
    )  # fmt: skip
    tables = to_latex(Document("x", f"Title {signs}", (narrow, wide)))
    assert tables.count(r"\begin{table*}") == 1
    log = compile_latex(tmp_path, tables)
    assert "undefined" not in log
    alone = tmp_path / "narrow"
    alone.mkdir()
    assert widest(compile_latex(alone, to_latex(Document("y", "Title", (narrow,))))) == 0


def _column(name, cell, group=""):
    return Column(name, lambda _: cell, group)
