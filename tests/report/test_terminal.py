"""Tables and messages on a terminal of 80 columns, in a log file, quiet and verbose."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from cfaug.core.errors import (
    LEVEL,
    UserError,
    Verbosity,
    choose_verbosity,
    printing_at,
    say,
    verbosity,
)
from cfaug.report.document import Curve, Document, Entry, Part
from cfaug.report.metric_words import spell_out, split_metric
from cfaug.report.results import Result
from cfaug.report.significance_rows import family_of
from cfaug.report.significance_table import significance_table
from cfaug.report.terminal import (
    MOST_METRICS,
    MOST_PARTS,
    join_parts,
    part_lines,
    print_document,
    print_parts,
    print_table,
    results_parts,
)
from tests.properties import examples
from tests.report.example import LABELS, MEANS, OOD, printed, results
from tests.scripts import ROOT

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
    assert [line for line in said if line.startswith("arm ")] == [
        "arm top 1", "arm top 1", "arm R@1 R@5 R@10", "arm R@1 R@5 R@10",
    ]  # fmt: skip
    assert said.count("a_folder_of_ones_own_with_a_long_name_retrieval") == 1
    first = said.index("Image to text")
    assert said[first + 1] == "arm R@1 R@5 R@10"
    assert said[said.index("Text to image") + 1] == "arm R@1 R@5 R@10"


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


# Any table: each number once, in lines that fit, below two header rows.

NAMES = st.sampled_from(["image", "text", "a longer name of a column", "R@1", "loss (nats)", "x"])
NUMBERS = st.integers(0, 99_999).map(lambda n: f"{n / 100:.2f}")


@st.composite
def tables(draw):
    spans = draw(st.lists(st.tuples(NAMES, st.integers(1, 4)), max_size=4))
    columns = [draw(NAMES) for _, span in spans for _ in range(span)]
    rows = [
        ((draw(NAMES),), tuple(Entry(f"{draw(NUMBERS)}{i:02d}") for i in range(len(columns))))
        for _ in range(draw(st.integers(0, 4)))
    ]
    groups = tuple(spans) if draw(st.booleans()) else ()
    return Part("title", ("arm",), groups, tuple(columns), tuple(rows))


@settings(max_examples=examples(100), deadline=None)
@given(tables(), st.integers(50, 120))
def test_each_number_is_printed_once_in_lines_that_fit(part, width):
    lines = [line.plain for line in part_lines(part, width, styled=False)]
    assert max(map(cell_len, lines)) <= width
    body = [line for line in lines if re.search(r"\d\.\d{4}", line)]
    numbers = [cell.text for _, cells in part.rows for cell in cells]
    assert sorted(re.findall(r"\d+\.\d{4}", " ".join(body))) == sorted(numbers)
    for name, _ in part.groups:
        words = " ".join(" ".join(lines).split())
        assert all(word in words for word in name.split())


def test_the_parts_of_a_benchmark_are_rows_of_one_table():
    kinds = ("colour", "background")
    parts = [
        spell_out(
            Part(f"stress [kind={kind}]", ("",), (), (metric, "acc5"),
                 ((("measured",), (Entry(f"{i}1.00"), Entry(f"{i}5.00"))),)),
            [metric, "acc5"],
        )
        for i, (kind, metric) in enumerate(zip(kinds, ("acc1", "delta_p"), strict=True), 1)
    ]  # fmt: skip
    [joined] = join_parts(parts)
    assert [labels for labels, _ in joined.rows] == [("kind=colour", ""), ("kind=background", "")]
    assert joined.columns == ("top 1", "top 5", "change of probability")
    assert [[cell.text for cell in cells] for _, cells in joined.rows] == [
        ["11.00", "15.00", ""], ["", "25.00", "21.00"],
    ]  # fmt: skip


def test_metrics_of_a_group_stand_together_and_lower_ones_are_named():
    part = Part("x", ("arm",), (), ("acc1", "drop1 (lower is better)", "acc5"),
                ((("a",), tuple(map(Entry, "123"))),))  # fmt: skip
    spelled = spell_out(part, ["acc1", "drop1", "acc5"])
    assert spelled.groups == (("Accuracy", 2), ("Accuracy lost", 1))
    assert spelled.columns == ("top 1", "top 5", "top 1")
    assert [cell.text for cell in spelled.rows[0][1]] == ["1", "3", "2"]
    assert spelled.notes == ("Lower is better: accuracy lost top 1.",)
    assert split_metric("score_gap") == ("", "score gap")


def rows_of(count, arm="a", seed=0, by=()):
    return [
        Result(f"x/{arm}/seed={seed}", arm, seed, "b", f"m{i}x", i / 100, 10, "w", by=dict(by),
               chance=0.5 if i == 0 else None)
        for i in range(count)
    ]  # fmt: skip


def said_of(parts):
    console = Console(file=io.StringIO(), width=80)
    print_parts(parts, console=console)
    return console.file.getvalue()


def test_many_numbers_are_cut_and_counted_unless_the_command_is_verbose():
    rows = rows_of(MOST_METRICS + 3)
    said = said_of(results_parts(rows, "FILE"))
    assert "3 more numbers are in FILE; verbose=true prints them." in said
    assert f"{MOST_METRICS - 1}.00" in said
    assert f"{MOST_METRICS}.00" not in said
    assert "b of a" in said
    assert re.search(r"^chance +50\.00$", said, re.MULTILINE)
    with printing_at(Verbosity.VERBOSE):
        said = said_of(results_parts(rows, "FILE"))
    assert f"{MOST_METRICS + 2}.00" in said
    assert "more numbers" not in said


def stress_rows(kinds, part_of_photos=10):
    """Return rows of a stress test in its order: sets, photos with an edit, kinds of edits."""

    def row(metric, value, n, chance=None, **by):
        return Result("x/a/seed=0", "a", 0, "s", metric, value, n, "w", by=by, chance=chance)

    photos = {"photos": "edited"}
    rows = []
    for name in ("original", "reconstruction"):
        rows += [row("acc1", 0.5, 10, 0.25, set=name), row("p", 0.4, 10, set=name)]
    rows += [row("acc1", 0.125, 40, 0.25, set="edited"), row("p", 0.1, 40, set="edited")]
    for name in ("original", "reconstruction"):
        rows.append(row("acc1", 0.5, part_of_photos, 0.25, set=name, **photos))
    rows.append(row("drop1", 0.0625, part_of_photos, set="reconstruction", **photos))
    for kind in kinds:
        rows.append(row("acc1", 0.2, 8, 0.25, set="edited", kind=kind))
    return rows


def test_all_kinds_of_edits_are_printed_and_chance_once():
    kinds = [f"kind{number}" for number in range(MOST_PARTS + 4)]
    said = said_of(results_parts(stress_rows(kinds), "FILE"))
    names = re.findall(r"^(?:kind|set|photos)=.*?(?=  )", said, re.MULTILINE)
    sets = ["set=original", "set=reconstruction", "set=edited"]
    assert [*dict.fromkeys(names)] == [*sets, *(f"kind={kind}, set=edited" for kind in kinds)]
    [chance] = re.findall(r"^.*chance.*$", said, re.MULTILINE)
    assert chance.split() == ["chance", "25.00"]
    # What is only known of the photos with an edit, which all are, is told of all photos.
    assert re.search(r"^set=reconstruction .* 6\.25$", said, re.MULTILINE)
    assert "more numbers" not in said
    said = said_of(results_parts(stress_rows(kinds[:1], part_of_photos=9), "FILE"))
    assert re.search(r"^photos=edited,", said, re.MULTILINE)


def test_chance_that_differs_between_parts_is_printed_for_each():
    rows = [*rows_of(1, by=[("k", "a")]), *rows_of(1, by=[("k", "b")])]
    rows[1] = replace(rows[1], chance=0.25)
    said = said_of(results_parts(rows, "FILE"))
    assert [*re.findall(r"k=. \| chance +(.*)", said)] == ["50.00", "25.00"]


def test_runs_that_are_compared_with_nothing_are_rows():
    rows = [*rows_of(2, seed=1), *rows_of(2, seed=2), *rows_of(2, "other", seed=1)]
    lines = [" ".join(line.split()) for line in said_of(results_parts(rows, "F")).splitlines()]
    assert "a, seed 1 0.00 1.00" in lines
    assert "other, seed 1 0.00 1.00" in lines


def test_a_table_shows_primary_numbers_and_a_verbose_one_all_with_the_tests(capsys):
    more = [(OOD, f"extra{i}x") for i in range(3)]
    rows = results({name: MEANS[name] for name in ("real", "unbiased")}, more=more)
    table = significance_table(rows, "real")
    shown = family_of(rows, {OOD: ["acc1"]})
    print_table(table, shown=shown)
    said = capsys.readouterr().out
    assert "extra" not in said
    assert "3 more numbers are in table.csv; verbose=true prints them." in said
    assert "95 %" not in said
    with printing_at(Verbosity.VERBOSE):
        print_table(table, shown=shown)
    said = capsys.readouterr().out
    assert "extra2x" in said
    assert "95 %" in said
    with printing_at(Verbosity.QUIET):
        print_table(table, shown=shown)
    assert not capsys.readouterr().out


def test_a_document_is_printed_with_its_curves_and_names_as_they_are(capsys):
    name = "columns.id=<key>"
    part = Part(
        name,
        ("a|b",),
        (("group", 2),),
        ("x_y", "z"),
        ((("*r*",), (Entry("1"), Entry("2", small="[0]"))),),
        notes=("note *1*",),
    )
    curve = Curve("curve", "steps", "accuracy", {"s": {1.0: {0: 0.5, 1: 0.7}}})
    print_document(Document("d", "title", (part,), ("last",), (curve,)))
    said = capsys.readouterr().out
    for text in ("title", name, "*r*", "2 [0]", "note *1*", "60.00", "last"):
        assert text in said
    assert not re.search(r"^\|", said, re.MULTILINE), "no Markdown"


# What is said: levels, colours and where.


def test_quiet_keeps_results_errors_and_warnings(capsys):
    with printing_at(Verbosity.QUIET):
        for text in ("error: x", "warning: x", "failed: x", "next: x", "drawing x"):
            say(text)
        say("a path", sys.stdout)
        say("a path on stderr", level=Verbosity.QUIET)
        say("a detail", sys.stdout, Verbosity.VERBOSE)
    said = capsys.readouterr()
    assert said.err == "error: x\nwarning: x\nfailed: x\na path on stderr\n"
    assert said.out == "a path\n"
    with printing_at(Verbosity.VERBOSE):
        say("a detail", sys.stdout, Verbosity.VERBOSE)
    assert capsys.readouterr().out == "a detail\n"


def test_a_table_for_a_full_disk_is_lost_and_the_command_goes_on():
    code = "from cfaug.report.terminal import print_parts; print_parts(['a sentence']); print(1)"
    with open("/dev/full", "w", encoding="utf-8") as full:
        ended = subprocess.run(
            [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, cwd=ROOT
        )
    assert (ended.returncode, ended.stderr) == (0, b""), "exit_with says that it was lost"


def test_a_level_holds_for_the_processes_that_are_started(monkeypatch):
    monkeypatch.delenv(LEVEL, raising=False)
    assert verbosity() == Verbosity.USUAL
    code = "from cfaug.core.errors import verbosity; print(verbosity().name)"
    with printing_at(Verbosity.QUIET):
        said = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT
        )
        assert said.stdout == "QUIET\n"
    assert LEVEL not in os.environ
    with pytest.raises(UserError, match="choose one"):
        choose_verbosity(True, True)


def test_quiet_and_verbose_are_the_same_setting_in_every_command():
    lines = {
        name: [
            line
            for line in (ROOT / f"conf/{name}.yaml").read_text(encoding="utf-8").splitlines()
            if line.startswith(("quiet:", "verbose:"))
        ]
        for name in ("train", "generate", "evaluate", "compare")
    }
    assert len(lines["train"]) == 2
    assert len({tuple(some) for some in lines.values()}) == 1


TELL = """
import sys
from cfaug.core.errors import say
from cfaug.core.progress import preparing
from cfaug.core import progress
from cfaug.report.significance_table import significance_table
from cfaug.report.terminal import print_table
from tests.report.example import results
import time
progress.QUIET_SECONDS, progress.SILENT_SECONDS, progress.REFRESH_SECONDS = 0.05, 0.1, 0.05
with preparing("loading the model x"):
    time.sleep(0.6)
print_table(significance_table(results(), "real"))
say("error: wrong")
say("next: this")
"""


def in_a_terminal(code, columns=80, **variables):
    """What a program prints on a terminal, stdout and stderr together."""
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    environment = {**kept, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **variables}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT,
        env=environment,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    try:
        while chunk := os.read(mine, 4096):
            said += chunk
    except OSError:  # the end of a terminal whose other side is closed
        pass
    os.close(mine)
    assert process.wait() == 0, said
    return said.decode().replace("\r\n", "\n")


ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOURS = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7])(?:;\d+)*m")


@pytest.mark.slow
def test_a_terminal_of_80_columns_has_colours_bold_and_lines_that_fit():
    said = in_a_terminal(TELL)
    assert "\x1b[1;31merror:" in said
    assert "\x1b[36mnext:" in said
    assert "\x1b[1;4m" in said, "bold and underlined numbers"
    assert re.search(r"loading the model x \S 0:00:0\d", ESCAPES.sub("", said))
    last = said.rpartition("shapescapes_ood_classification")[2]
    lines = ESCAPES.sub("", last).split("\n")
    assert max(map(cell_len, lines)) <= 80
    assert not any("loading" in line for line in lines), "it goes away"


@pytest.mark.slow
def test_a_terminal_without_colours_has_none():
    said = in_a_terminal(TELL, NO_COLOR="1")
    assert not COLOURS.search(said)
    assert "error: wrong" in ESCAPES.sub("", said)


@pytest.mark.slow
def test_a_log_file_has_no_codes_and_a_line_for_what_takes_long():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    said = subprocess.run(
        [sys.executable, "-c", TELL], capture_output=True, text=True, cwd=ROOT, env=environment,
        check=True,
    )  # fmt: skip
    assert "\x1b" not in said.stdout + said.stderr
    lines = said.stderr.splitlines()
    assert lines[-2:] == ["error: wrong", "next: this"]
    assert {line[:-1] for line in lines[:-2]} == {"loading the model x: 0:00:0"}
    environment[LEVEL] = str(Verbosity.QUIET.value)
    quiet = subprocess.run(
        [sys.executable, "-c", TELL], capture_output=True, text=True, cwd=ROOT, env=environment,
        check=True,
    )  # fmt: skip
    assert (quiet.stdout, quiet.stderr) == ("", "error: wrong\n")
