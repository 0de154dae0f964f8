"""The printed table: every number at 80 columns, and marks that survive a log file."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import pytest
from rich.cells import cell_len

from cfaug.report.layout import print_table
from cfaug.report.significance_table import significance_table
from tests.report.example import LABELS, MEANS, OOD, printed, results

RETRIEVAL = tuple(f"{way}_R@{k}" for way in ("image_to_text", "text_to_image") for k in (1, 5, 10))
LONG = (
    "counterfactual=my_folder_of_pairs,loss=pair_aware,max_steps=1,model=clip_vit_b32,real=X-0a1b"
)


def own_data(arms):
    """Rows of arms with long names on a benchmark of six metrics."""
    level = dict(zip(arms, (0.3, 0.45, 0.2, 0.6), strict=False))
    rows = results({arm: (level[arm], level[arm]) for arm in arms})
    wide = [
        replace(row, benchmark="a_folder_of_ones_own_with_a_long_name_retrieval", metric=metric,
                value=row.value + 0.01 * i)
        for row in rows
        if row.benchmark == OOD
        for i, metric in enumerate(RETRIEVAL)
    ]  # fmt: skip
    return [*rows, *wide]


@pytest.mark.parametrize("width", [60, 120])
def test_every_number_is_printed_and_no_line_is_longer(width):
    arms = [f"cf_ratio={ratio},{LONG}" for ratio in (0, 0.3, 0.6, 0.9)]
    table = significance_table(own_data(arms), arms[:3], cautions=[f"{'caution ' * 20}{LONG}"])
    text = printed(table, width)
    for row in table.rows:
        assert f"{100 * row.mean:.2f}±{100 * row.sd:.1f}" in text
    assert "…" not in text
    assert max(map(cell_len, text.splitlines())) <= width
    assert "".join(LONG) in "".join(text.split()), "a long name is broken, not cut"


def test_a_wide_benchmark_is_split_between_its_groups_of_metrics():
    rows = own_data(["real", "counterfactual"])
    lines = printed(significance_table(rows, "real", labels=LABELS)).splitlines()
    said = [" ".join(line.split()) for line in lines]
    group = "text R@1 text R@5 text R@10"
    assert [line for line in said if line.startswith("arm ")] == [
        "arm acc1", "arm acc1", f"arm {group}", "arm image R@1 image R@5 image R@10",
    ]  # fmt: skip
    assert said.count("a_folder_of_ones_own_with_a_long_name_retrieval") == 2


def test_marks_survive_a_log_file_and_are_explained():
    table = significance_table(results(), ["real", "more_real"])
    text = printed(table)
    by_arm = {}
    for line in text.splitlines():
        if "±" in line:
            by_arm.setdefault(line.split()[0], line.split()[-1])
    row = table.get("unbiased", (OOD, "acc1"))
    assert by_arm["unbiased"] == f"{100 * row.mean:.2f}±{100 * row.sd:.1f}*_†^1"
    assert by_arm["before"].endswith("↓‡^↓1")
    said = " ".join(text.split())
    for part in (
        "*: best in its column",
        "_: better than real",
        "↓: worse",
        "†: better",
        "‡: worse",
    ):
        assert part in said
    assert "\x1b" not in text


def test_a_terminal_has_bold_and_underline():
    text = printed(significance_table(results()), force_terminal=True, color_system="standard")
    assert "Bold: best in its column" in " ".join(text.replace("\x1b[2m", "").split())
    assert "\x1b[1;4m" in text
    assert "*" not in text


def test_names_cannot_act_on_a_terminal():
    nasty = "[red]a\x1b]0;owned\x07b"
    rows = [replace(r, arm=nasty) if r.arm == "unbiased" else r for r in results()]
    text = printed(significance_table(rows))
    assert "[red]a ]0;owned b" in text
    assert "\x1b" not in text


def test_a_table_whose_reader_has_left_ends_nothing(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        print_table(significance_table(results(MEANS), ["before"]))
