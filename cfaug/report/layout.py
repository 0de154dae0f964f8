"""The papers' layout of a table: a row per arm, a column per metric, one block per benchmark.

Bold is best in its column; underlined is better than the first baseline by the papers' test (one-
tailed Welch, p <= 0.05), an arrow is worse by the same test, two-sided; a superscript number says
the same of each further baseline; a dagger is what the paired test leaves after Holm. The subscript
is the standard deviation over seeds. Values are percent.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from cfaug.report.tables import ALPHA, Row, Table

WORSE, KEPT, LOST = "↓", "†", "‡"

LATEX_SPECIAL = str.maketrans(
    {"\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$",
     "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
     "–": "--", "±": r"$\pm$", "†": r"$\dagger$", "Δ": r"$\Delta$", "→": r"$\rightarrow$",
     "↓": r"$\downarrow$", "‡": r"$\ddagger$", "κ": r"$\kappa$", "α": r"$\alpha$", "×": r"$\times$"}
)  # fmt: skip
TEX_SIGNS = str.maketrans({WORSE: r"\downarrow ", KEPT: r"\dagger ", LOST: r"\ddagger "})
MARKDOWN_SPECIAL = str.maketrans(
    {"|": r"\|", "_": r"\_", "*": r"\*", "<": "&lt;", ">": "&gt;", "`": r"\`"}
)


@dataclass(frozen=True)
class Mark:
    """One cell as it is printed: percent, and how it stands out.

    Attributes:
        mean: percent.
        sd: percent.
        best: whether it is the largest of its column, of arms that were asked the same.
        significant: whether it is better than the first baseline.
        signs: of a loss against the first baseline, and of what Holm's correction leaves.
        also: the further baselines by number, those it is worse than with an arrow.
        row: against the first baseline.
    """

    mean: str
    sd: str
    best: bool
    significant: bool
    signs: str
    also: tuple[str, ...]
    row: Row


@dataclass(frozen=True)
class Block:
    """One benchmark: its metrics as columns, its arms as rows; ``None`` where nothing was run."""

    benchmark: str
    metrics: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Mark | None, ...]], ...]


def percent(value: float, digits: int = 2) -> str:
    """Return a fraction as percent without the sign; a dash for ``nan``.

    >>> percent(0.78283), percent(float("nan"))
    ('78.28', '–')
    """
    return "–" if math.isnan(value) else f"{100 * value:.{digits}f}"


def points(value: float, digits: int = 1) -> str:
    """Return a difference of fractions in percentage points with its sign; a dash for ``nan``.

    >>> points(0.0312), points(-0.5, 2)
    ('+3.1', '-50.00')
    """
    return "–" if math.isnan(value) else f"{100 * value:+.{digits}f}"


def p_text(p: float) -> str:
    """Return a p-value to two significant digits; a dash for ``nan``.

    >>> p_text(0.0312), p_text(0.00002), p_text(0.5)
    ('0.031', '2.0e-5', '0.50')
    """
    if math.isnan(p):
        return "–"
    if p < 0.001:
        return f"{p:.1e}".replace("e-0", "e-")
    return f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def blocks(table: Table) -> list[Block]:
    """Arrange the table for printing."""
    found = []
    for benchmark, metrics in table.benchmarks.items():
        marks = {(a, m): _mark(table, a, (benchmark, m)) for a in table.arms for m in metrics}
        arms = [a for a in table.arms if any(marks[a, m] for m in metrics)]
        lines = tuple((a, tuple(marks[a, m] for m in metrics)) for a in arms)
        found.append(Block(benchmark, tuple(metrics), lines))
    return found


def _mark(table: Table, arm: str, cell: tuple[str, str]) -> Mark | None:
    row = table.get(arm, cell)
    if row is None:
        return None
    column = [other.mean for a in table.arms if (other := table.get(a, cell))]
    further = [(i, table.get(arm, cell, b)) for i, b in enumerate(table.baselines[1:], 1)]
    also = [
        f"{WORSE * r.worse}{i}" for i, r in further if r is not None and (r.significant or r.worse)
    ]
    return Mark(
        mean=percent(row.mean),
        sd=percent(row.sd, 1),
        # Equal to what is printed: two arms that read the same are both bold.
        best=cell in table.one_test and percent(row.mean) == percent(max(column)),
        significant=row.significant,
        signs=WORSE * row.worse + KEPT * row.kept + LOST * row.lost,
        also=tuple(also),
        row=row,
    )


def legend(table: Table, best: str = "Bold", better: str = "Underlined") -> list[str]:
    """Return what the marks mean.

    Args:
        table: whose marks.
        best: what the best of a column looks like.
        better: what is better than the first baseline looks like.
    """
    first, *others = map(table.label, table.baselines)
    lines = [
        f"Percent, mean over seeds with standard deviation. {best}: best in its column. {better}: "
        f"better than {first} by a one-tailed Welch t-test (p <= {ALPHA}); {WORSE}: worse by the "
        f"same test, two-sided. {KEPT}: better than {first} by the test paired by seed after "
        f"Holm's correction; {LOST}: worse by the same, two-sided."
    ]
    return lines + [
        f"Superscript {i}: better than {b} by the Welch test; {WORSE}{i}: worse."
        for i, b in enumerate(others, 1)
    ]


def to_markdown(table: Table) -> str:
    """Return one Markdown table per benchmark, the comparisons with their p, and the notes."""
    parts = []
    for block in blocks(table):
        head = ["arm", *block.metrics]
        body = [
            [markdown_text(table.label(arm)), *(_md_mark(mark) for mark in marks)]
            for arm, marks in block.lines
        ]
        parts.append(f"### {markdown_text(block.benchmark)}\n\n{markdown_table(head, body)}")
    parts += map(markdown_text, [*legend(table), *table.all_notes()])
    columns = ["arm", "baseline", "benchmark", "metric", "difference", "95 % interval",
               "p_welch", "p_paired", "p_holm", "p_permutation"]  # fmt: skip
    body = [
        [*map(markdown_text, (table.label(r.arm), table.label(r.baseline), *r.cell)),
         percent(r.diff), markdown_text(interval_text(r)),
         *map(p_text, (r.p_welch, r.p_paired, r.p_holm, r.p_permutation))]
        for r in table.comparisons
    ]  # fmt: skip
    parts.append(f"### Comparisons\n\n{markdown_table(columns, body)}")
    parts.append(
        "Difference and its BCa bootstrap interval (paired by seed) in percentage points. The "
        "interval is too short with few seeds: see `cfaug/metrics/effects.py`."
    )
    return "\n\n".join(parts) + "\n"


def interval_text(row: Row) -> str:
    """Return the bootstrap interval of a difference in points, or why there is none."""
    if math.isnan(row.ci_low):
        return f"n/a ({row.reason})" if row.reason else "n/a"
    return f"{percent(row.ci_low)} to {percent(row.ci_high)}"


def markdown_text(text: str) -> str:
    """Return text so that Markdown shows it as it is."""
    return " ".join(text.splitlines()).translate(MARKDOWN_SPECIAL)


def markdown_table(head: list[str], body: list[list[str]]) -> str:
    """Return a Markdown table with aligned columns; the head is escaped here, the body is not."""
    named = [markdown_text(name) for name in head]
    widths = [max(3, *map(len, column)) for column in zip(named, *body, strict=True)]
    rows = [named, ["-" * width for width in widths], *body]
    padded = ([t.ljust(w) for t, w in zip(row, widths, strict=True)] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in padded)


def _md_mark(mark: Mark | None) -> str:
    if mark is None:
        return "–"
    text = f"**{mark.mean}**" if mark.best else mark.mean
    text = f"<u>{text}</u>" if mark.significant else text
    also = f"<sup>{','.join(mark.also)}</sup>" if mark.also else ""
    return f"{text}{mark.signs}{also} ± {mark.sd}"


def to_latex(table: Table) -> str:
    r"""Return a LaTeX table in the layout of the papers' Table 3; needs ``booktabs`` only."""
    parts = []
    for block in blocks(table):
        head = " & ".join([tex_text(m) for m in ("arm", *block.metrics)])
        body = "\n".join(
            " & ".join([tex_text(table.label(arm)), *(_tex_mark(mark) for mark in marks)]) + r" \\"
            for arm, marks in block.lines
        )
        lines = concerning(table.all_notes(), block.benchmark, table.benchmarks)
        notes = " ".join(map(tex_text, [*legend(table), *lines]))
        parts.append(
            "\\begin{table}\n\\centering\n"
            f"\\begin{{tabular}}{{l{'r' * len(block.metrics)}}}\n"
            f"\\toprule\n{head} \\\\\n\\midrule\n"
            f"{body}\n\\bottomrule\n\\end{{tabular}}\n"
            f"\\caption{{{tex_text(block.benchmark)}. {notes}}}\n\\end{{table}}\n"
        )
    return "% \\usepackage{booktabs}\n" + "\n".join(parts)


def tex_text(text: str) -> str:
    """Return text so that LaTeX prints it as it is."""
    return " ".join(text.splitlines()).translate(LATEX_SPECIAL).replace("<=", r"$\leq$")


def _tex_mark(mark: Mark | None) -> str:
    if mark is None:
        return "--"
    text = rf"\textbf{{{mark.mean}}}" if mark.best else mark.mean
    text = rf"\underline{{{text}}}" if mark.significant else text
    above = ",".join([*([mark.signs] if mark.signs else []), *mark.also])
    raised = f"^{{{above.translate(TEX_SIGNS)}}}" if above else ""
    return f"{text}$_{{{mark.sd.replace('–', '-')}}}{raised}$"


def concerning(sentences: Sequence[str], benchmark: str, known: Collection[str]) -> list[str]:
    """Return the sentences that name a benchmark, or none of those known."""
    kept = []
    for line in sentences:
        named = {name for name in known if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", line)}
        if not named or benchmark in named:
            kept.append(line)
    return kept


def to_csv(table: Table) -> str:
    """Return the table as CSV: fractions in full precision, empty where a test was not made.

    ``label`` is what the other tables call the arm; ``note`` holds the sentences under them that
    concern the row.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [f.name for f in fields(Row)]
    writer.writerow([*names, "label", "note"])
    lines = [*table.notes, *(f"Caution: {line}" for line in table.cautions)]
    for row in table.rows:
        found = [getattr(row, name) for name in names]
        said = " ".join(concerning(lines, row.benchmark, table.benchmarks))
        cells = ["" if isinstance(v, float) and math.isnan(v) else v for v in found]
        writer.writerow([*cells, table.label(row.arm), said])
    return text.getvalue()


def write_tables(table: Table, folder: Path, stem: str = "table") -> list[Path]:
    """Write ``table.csv``, ``table.md`` and ``table.tex``, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"csv": to_csv(table), "md": to_markdown(table), "tex": to_latex(table)}
    paths = [folder / f"{stem}.{suffix}" for suffix in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths
