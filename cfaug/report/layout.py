"""The papers' layout of a table: a row per arm, a column per metric, one block per benchmark.

Bold is best in its column; underlined is better than the first baseline by the papers' test (one-
tailed Welch, p <= 0.05); a superscript number is the same against each further baseline; the
subscript is the standard deviation over seeds. Values are percent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cfaug.report.tables import ALPHA, Row, Table, to_csv

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

LATEX_SPECIAL = str.maketrans(
    {"\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$",
     "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
     "–": "--", "±": r"$\pm$", "†": r"$\dagger$", "Δ": r"$\Delta$", "→": r"$\rightarrow$",
     "κ": r"$\kappa$", "α": r"$\alpha$", "×": r"$\times$"}
)  # fmt: skip
MARKDOWN_SPECIAL = str.maketrans(
    {"|": r"\|", "_": r"\_", "*": r"\*", "<": "&lt;", ">": "&gt;", "`": r"\`"}
)


@dataclass(frozen=True)
class Mark:
    """One cell as it is printed: percent, how it stands out, and against which other baselines."""

    mean: str
    sd: str
    best: bool
    significant: bool
    also: tuple[int, ...]
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
    others = enumerate(table.baselines[1:], 1)
    also = [i for i, b in others if (r := table.get(arm, cell, b)) and r.significant]
    # Equal to what is printed: two arms that read the same are both bold.
    best = percent(row.mean) == percent(max(column))
    return Mark(percent(row.mean), percent(row.sd, 1), best, row.significant, tuple(also), row)


def legend(table: Table) -> list[str]:
    """Return what the marks mean, and the note on n."""
    first, *others = table.baselines
    lines = [
        "Percent, mean over seeds with standard deviation. Bold: best in its column. Underlined: "
        f"better than {first} by a one-tailed Welch t-test (p <= {ALPHA})."
    ]
    lines += [f"Superscript {i}: the same against {b}." for i, b in enumerate(others, 1)]
    return [*lines, table.note()]


def to_markdown(table: Table) -> str:
    """Return one Markdown table per benchmark, the comparisons with their p, and the notes."""
    parts = []
    for block in blocks(table):
        head = ["arm", *block.metrics]
        body = [
            [markdown_text(arm), *(_md_mark(mark) for mark in marks)] for arm, marks in block.lines
        ]
        parts.append(f"### {markdown_text(block.benchmark)}\n\n{markdown_table(head, body)}")
    parts += legend(table)
    columns = ["arm", "baseline", "benchmark", "metric", "difference", "95 % interval",
               "p_welch", "p_paired", "p_holm", "p_permutation"]  # fmt: skip
    body = [
        [*map(markdown_text, (r.arm, r.baseline, r.benchmark, r.metric)), percent(r.diff),
         f"{percent(r.ci_low)} to {percent(r.ci_high)}",
         *map(p_text, (r.p_welch, r.p_paired, r.p_holm, r.p_permutation))]
        for r in table.rows
        if r.arm != r.baseline
    ]  # fmt: skip
    parts.append(f"### Comparisons\n\n{markdown_table(columns, body)}")
    parts.append(
        "Difference and its BCa bootstrap interval (paired by seed) in percentage points. The "
        "interval is too short with few seeds: see `cfaug/metrics/effects.py`."
    )
    return "\n\n".join(parts) + "\n"


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
    also = f"<sup>{','.join(map(str, mark.also))}</sup>" if mark.also else ""
    return f"{text}{also} ± {mark.sd}"


def to_latex(table: Table) -> str:
    r"""Return a LaTeX table in the layout of the papers' Table 3; needs ``booktabs`` only."""
    parts = []
    for block in blocks(table):
        head = " & ".join([tex_text(m) for m in ("arm", *block.metrics)])
        body = "\n".join(
            " & ".join([tex_text(arm), *(_tex_mark(mark) for mark in marks)]) + r" \\"
            for arm, marks in block.lines
        )
        notes = " ".join(tex_text(line) for line in legend(table))
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
    also = f"^{{{','.join(map(str, mark.also))}}}" if mark.also else ""
    return f"{text}$_{{{mark.sd.replace('–', '-')}}}{also}$"


def print_table(table: Table, console: Console | None = None) -> None:
    """Print the table in the papers' layout, with its notes, to ``console`` (stdout by default)."""
    from rich import box
    from rich import table as rich_table
    from rich.console import Console as RichConsole
    from rich.text import Text

    out = console or RichConsole()
    for block in blocks(table):
        shown = rich_table.Table(title=Text(block.benchmark), title_justify="left", box=box.SIMPLE)
        shown.add_column("arm", no_wrap=True)
        for metric in block.metrics:
            # With spaces a long name wraps; with underscores it would be cut.
            shown.add_column(Text(metric.replace("_", " ")), justify="right")
        for arm, marks in block.lines:
            shown.add_row(Text(arm), *(_rich_mark(mark) for mark in marks))
        out.print(shown)
    for line in legend(table):
        out.print(Text(line, style="dim"))


def _rich_mark(mark: Mark | None) -> Text:
    from rich.text import Text

    if mark is None:
        return Text("–", style="dim")
    style = " ".join(["bold"] * mark.best + ["underline"] * mark.significant)
    text = Text(mark.mean, style=style)
    if mark.also:
        text.append(f"^{','.join(map(str, mark.also))}", style="not bold not underline")
    return text.append(f" {mark.sd}", style="dim not bold not underline")


def write_tables(table: Table, folder: Path, stem: str = "table") -> list[Path]:
    """Write ``table.csv``, ``table.md`` and ``table.tex``, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"csv": to_csv(table), "md": to_markdown(table), "tex": to_latex(table)}
    paths = [folder / f"{stem}.{suffix}" for suffix in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths
