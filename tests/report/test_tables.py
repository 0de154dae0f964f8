"""The table's numbers, its files, the papers' layout, and the families corrected."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from scipy.stats import binomtest

from cfaug.core.errors import UserError
from cfaug.evaluation.benchmark import HasPrimaryMetrics
from cfaug.evaluation.choices.caption_choice import CaptionChoice
from cfaug.evaluation.choices.pairs import PairMatching
from cfaug.evaluation.questions.vqa import VisualQuestions
from cfaug.evaluation.retrieval import Retrieval
from cfaug.report.comparison import describe_below_chance
from cfaug.report.document import Entry
from cfaug.report.layout import comparisons_csv, write_tables
from cfaug.report.results import Result
from cfaug.report.significance_rows import describe_family, family_of
from cfaug.report.significance_table import significance_table
from cfaug.report.terminal import results_parts
from cfaug.stats.significance import holm, paired_t, summarise, welch
from tests.report.example import (
    ID,
    LABELS,
    MEANS,
    OOD,
    SEEDS,
    csv_lines,
    entries,
    latex,
    markdown,
    results,
)
from tests.report.test_joint_tests import Experiment, answers


def values(rows, arm):
    return np.array([r.value for r in rows if r.arm == arm and r.benchmark == OOD])


def test_the_table_holds_the_tests_of_its_rows():
    rows = results()
    table = significance_table(rows, untrained=["before"])
    row = table.get("counterfactual", (OOD, "acc1"))
    ours, base = values(rows, "counterfactual"), values(rows, "real")
    assert row.n == len(SEEDS)
    assert row.mean == pytest.approx(ours.mean())
    assert row.sd == pytest.approx(ours.std(ddof=1))
    assert row.p_welch == welch(summarise(ours), summarise(base))
    assert row.p_paired == pytest.approx(paired_t(ours - base))
    assert row.p_min == 1 / 32
    assert row.significant
    baseline = table.get("real", (OOD, "acc1"))
    assert math.isnan(baseline.p_welch)
    assert math.isnan(baseline.diff)
    made = [r.p_paired for r in table.rows if r.arm != "real"]
    assert [r.p_holm for r in table.rows if r.arm != "real"] == pytest.approx(holm(made).tolist())
    assert table.arms[:2] == ("before", "real")


def test_holm_runs_over_several_baselines_together():
    table = significance_table(results(), ["real", "more_real"])
    tested = [r for r in table.rows if r.arm != r.baseline]
    assert len(tested) == 2 * 4 * 2
    assert [r.p_holm for r in tested] == pytest.approx(holm([r.p_paired for r in tested]).tolist())
    said = (
        "16 comparisons: 5 arms against real and more_real on 2 metrics of "
        "shapescapes_ood_classification, shapescapes_id_classification."
    )
    for text in (table.note(), markdown(table), latex(table)):
        assert said in text.replace(r"\_", "_")
        assert "0.031" in text


def test_the_row_before_fine_tuning_may_be_a_baseline_and_counts_once():
    """It would be compared twice otherwise, and Holm's family would be larger than it is."""
    table = significance_table(results(), ["real", "before"], untrained=["before"])
    compared = [(row.arm, row.baseline, row.cell) for row in table.rows]
    assert len(set(compared)) == len(compared)
    assert table.arms[:2] == ("before", "real")


def test_the_row_before_fine_tuning_needs_no_seeds():
    rows = [r for r in results() if r.arm != "before" or r.seed == SEEDS[0]]
    row = significance_table(rows, untrained=["before"]).get("before", (OOD, "acc1"))
    assert row.n == 1
    assert all(map(math.isnan, (row.sd, row.p_welch, row.p_paired, row.p_holm)))
    with pytest.raises(UserError, match="before lacks seeds 12, 13, 14, 15"):
        significance_table(rows)
    with pytest.raises(UserError, match=r"run evaluate\.py"):
        significance_table([])


def test_csv_is_the_contract(tmp_path):
    table = significance_table(results())
    paths = write_tables(table, tmp_path / "demo")
    assert [p.name for p in paths] == ["table.csv", "table.md", "table.tex"]
    read = list(csv.DictReader(io.StringIO(paths[0].read_text())))
    assert ",".join(list(read[0])[:10]) == (
        "arm,baseline,benchmark,metric,n,mean,sd,p_welch,p_paired,p_holm"
    )
    assert len(read) == len(table.rows)
    for line, row in zip(read, table.rows, strict=True):
        assert float(line["mean"]) == row.mean
        assert (line["p_paired"] == "") == math.isnan(row.p_paired)
    assert "nan" not in comparisons_csv(table)


def test_bold_is_best_and_underlined_is_significant():
    table = significance_table(results(), ["real", "more_real"])
    marks = {arm: cells[0] for arm, cells in entries(table, OOD).items()}
    assert [arm for arm, mark in marks.items() if mark.bold] == ["unbiased"]
    assert marks["counterfactual"].underlined
    assert marks["counterfactual"].above == ("1",)
    assert not marks["before"].underlined
    assert not marks["real"].underlined
    assert (marks["counterfactual"].signs, marks["before"].signs) == ("†", "↓‡")
    assert marks["before"].above == ("↓1",)
    best, other = marks["unbiased"], marks["counterfactual"]
    tex = latex(table)
    assert rf"\underline{{\textbf{{{best.text}}}}}$_{{{best.sub}}}^{{\dagger ,1}}$" in tex
    assert rf"\underline{{{other.text}}}" in tex
    text = markdown(table)
    assert f"<u>**{best.text}**</u>†<sup>1</sup> ± {best.sub}" in text
    assert "smallest attainable exact p = 0.031" in text


def test_a_gap_is_shown_as_a_gap():
    rows = [r for r in results() if not (r.arm == "unbiased" and r.benchmark == OOD)]
    table = significance_table(rows)
    assert table.get("unbiased", (OOD, "acc1")) is None
    assert "unbiased" not in entries(table, OOD)


def test_a_loss_is_marked_by_the_two_sided_test():
    rows = results({**MEANS, "collapsed": (0.1, 0.1), "same": (0.4, 0.7)})
    table = significance_table(rows)
    row = table.get("collapsed", (OOD, "acc1"))
    ours, base = values(rows, "collapsed"), values(rows, "real")
    assert row.p_welch > 0.99
    assert row.p_welch_two_sided == welch(summarise(ours), summarise(base), "two-sided")
    assert row.p_paired_two_sided == pytest.approx(paired_t(ours - base, "two-sided"))
    tested = [r for r in table.rows if r.arm != "real"]
    expected = holm([r.p_paired_two_sided for r in tested])
    assert [r.p_holm_two_sided for r in tested] == pytest.approx(expected.tolist())
    assert (row.worse, row.lost) == (True, True)
    better = table.get("counterfactual", (OOD, "acc1"))
    assert better.p_welch_two_sided <= 0.05
    assert (better.worse, better.lost) == (False, False)
    assert not table.get("same", (OOD, "acc1")).worse
    assert entries(table, OOD)["collapsed"][0].signs == "↓‡"
    assert r"^{\downarrow \ddagger }$" in latex(table)
    assert "↓: worse than real by a two-sided Welch t-test" in markdown(table)
    assert "§" not in markdown(table), "a mark that does not occur is not explained"


@pytest.mark.parametrize(
    ("real", "arm", "said", "reason"),
    [
        ([0.5], [0.6], "counterfactual against real: one seed, so no test over seeds.", "one seed"),
        ([0.5, 0.6, 0.7], [0.6, 0.7, 0.8], "the same difference of +10.0 points: these seeds "
         "cannot test it", "the same difference"),
        ([0.5, 0.6], [0.5, 0.6], "every seed gives the same number in both", "the same difference"),
    ],
)  # fmt: skip
def test_what_seeds_cannot_test_is_named_for_what_it_is(real, arm, said, reason):
    rows = [
        replace(results()[0], arm=name, seed=seed, value=value, weights=f"{name} {seed}")
        for name, by_seed in (("real", real), ("counterfactual", arm))
        for seed, value in enumerate(by_seed)
    ]
    table = significance_table(rows)
    row = table.get("counterfactual", (OOD, "acc1"))
    assert row.reason.startswith(reason)
    assert all(map(math.isnan, (row.bca_low, row.bca_high, row.t_low, row.t_high)))
    for text in (markdown(table), latex(table), comparisons_csv(table)):
        assert said in text
        assert "share their seeds" not in text
    assert f"n/a ({row.reason})" in markdown(table)


def test_cautions_stand_in_every_file_and_in_the_rows_they_concern():
    leak = "shapescapes_ood_classification: up to 5 of 800 <test> images were trained on_."
    table = significance_table(results(), cautions=[leak, "general | caution"])
    assert "Caution: shapescapes\\_ood\\_classification: up to 5 of 800 &lt;test&gt;" in markdown(
        table
    )
    assert r"general \| caution" in markdown(table)
    ood, identical = latex(table).split(r"\begin{table}")[1:]
    assert r"shapescapes\_ood\_classification: up to 5 of 800 \textless{}test\textgreater{}" in ood
    assert "up to 5" not in identical
    assert r"general \textbar{} caution" in identical
    for line in csv_lines(table):
        assert (leak in line["note"]) == (line["benchmark"] == OOD)
        assert "Caution: general | caution" in line["note"]


def test_labels_are_the_same_in_every_format_and_full_names_come_once():
    table = significance_table(results(), ["real", "more_real"], labels=LABELS)
    for text in (markdown(table), latex(table)):
        assert "real + counterfactual pairs" in text
        assert "better than real only" in text
    assert "real + counterfactual pairs: counterfactual;" in markdown(table)
    for line in csv_lines(table):
        assert line["label"] == LABELS[line["arm"]]


def test_chance_is_a_row_and_arms_at_chance_get_no_marks_against_each_other():
    # n is 800: 40 of 800 right is chance of 5 %, and 70 of 800 is not
    levels = {"real": (0.05, 0.5), "counterfactual": (0.052, 0.6), "more_real": (0.5, 0.6)}
    rows = [replace(r, chance=0.05) for r in results(levels, noise=0.0)]
    rows = [
        replace(r, value=r.value + 1e-4 * r.seed * (r.arm != "real")) for r in rows
    ]  # so that every test over seeds finds a difference
    table = significance_table(rows)
    assert table.at_chance == {("real", (OOD, "acc1")), ("counterfactual", (OOD, "acc1"))}
    assert table.get("counterfactual", (OOD, "acc1")).significant
    by_arm = {arm: cells[0] for arm, cells in entries(table, OOD).items()}
    assert by_arm["counterfactual"] == Entry(
        by_arm["counterfactual"].text, sub=by_arm["counterfactual"].sub
    )
    assert by_arm["more_real"].underlined
    assert by_arm["more_real"].bold
    assert by_arm["chance"].text == "5.00"
    said = markdown(table)
    assert r"| chance         | 5.00" in said
    assert "Not shown to be better than chance (exact binomial test, p > 0.05)" in unescape(said)
    assert {line["chance"] for line in csv_lines(table)} == {"0.05"}


def test_far_below_chance_is_said_once_a_benchmark():
    """0 of 30 at chance 25 % has a p of 0.0002; 3 of 30 may be chance."""
    low, rare = (("pairs", "text_score"), 0.0), (("pairs", "image_score"), 0.1)
    rows = [
        Result("e/a", "a", seed, *cell, value, 30, f"w{seed}", "d", chance=0.25)
        for cell, value in (low, rare, (("pairs", "group_score"), 0.0))
        for seed in (1, 2)
    ]
    said = (
        "Below chance (exact binomial test, p < 0.001) on pairs: text_score, group_score. Check "
        "the columns and paths: are captions or images swapped?"
    )
    assert binomtest(0, 30, 0.25).pvalue < 0.001 < binomtest(3, 30, 0.25).pvalue
    assert describe_below_chance(rows) == [said]
    assert describe_below_chance([replace(row, chance=None) for row in rows]) == []
    high = [replace(row, value=1.0) for row in rows]
    assert describe_below_chance(high) == []
    assert results_parts(rows, "file").count(said) == 1
    others = [replace(row, arm="real", weights=f"real {row.seed}") for row in rows]
    table = significance_table([*rows, *others], "real")
    assert markdown(table).count("Below chance") == 1
    assert rf"Caution: {said}".replace("_", r"\_").replace("<", r"\textless{}") in latex(table)


def no_spread(benchmark: str, metrics: list[str], arms: list[str]) -> list[Result]:
    """Results of which every seed gives the same in every arm."""
    return [
        Result(f"e/{arm}", arm, seed, benchmark, metric, 0.5, 30, f"{arm} {seed}", "d", chance=0.5)
        for arm in arms
        for seed in (1, 2, 3)
        for metric in metrics
    ]


def test_every_benchmark_has_its_own_notes_however_many_others_there_are():
    arms = ["real", "a", "b"]
    rows = [row for n in range(4) for row in no_spread(f"test_{n}", ["image", "group"], arms)]
    rows += no_spread("many", [f"m{n}" for n in range(8)], arms)
    table = significance_table(rows, "real")
    blocks = re.split(r"\\begin\{table\*?\}", latex(table).replace(r"\_", "_"))[1:]
    assert len(blocks) == 5
    for name, block in zip(table.benchmarks, blocks, strict=True):
        metrics = ", ".join(table.benchmarks[name])
        for arm in ("a", "b"):
            same = f"{arm} against real on {name} {metrics}: every seed gives the same number in"
            assert block.count(same) == 1
        assert f"{name} {table.benchmarks[name][0]} (real, a, b)" in block
        assert "The same holds" not in block
        assert ("and 3 more" in block) == (name == "many")
        assert not any(f"on {other} " in block for other in table.benchmarks if other != name)
    # Over all benchmarks they are shortened.
    assert len([line for line in table.untested_notes() if "every seed gives" in line]) == 6
    assert table.untested_notes()[-1].startswith("16 more comparisons cannot be tested either")
    for line in csv_lines(table):
        assert f"on {line['benchmark']} " in line["note"]


def test_a_published_table_keeps_what_its_reader_needs():
    rows = results(more=[("flat", "acc1")])
    rows = [replace(row, value=0.5) if row.benchmark == "flat" else row for row in rows]
    table = significance_table(rows, "real", labels=LABELS)
    table = replace(table, asides=("Only the last command's benchmarks are tabled.",))
    tex = latex(table)
    below = {
        block.partition("}{")[2].partition(".}")[0]: block.partition(r"\footnotesize ")[2]
        for block in re.split(r"(?=\\begin\{table\*?\})", tex.partition("\n% ")[0])[1:]
    }
    ood, _, flat = below.values()
    for notes in (ood, flat):
        assert "Percent, mean over 5 seeds with standard deviation." in notes
        assert "full names" not in notes
        assert "last command" not in notes
        assert "one-sided" not in notes
        assert "p_holm" not in notes.replace(r"\_", "_")
    # A mark and its correction are told where the mark stands.
    for text in (r"$\dagger$: better than real only", "Holm's correction is over 12 comparisons"):
        assert text in ood
        assert text not in flat
    comments = [line[2:] for line in tex.splitlines() if line.startswith("% ")]
    assert any(line.startswith("Arms by their full names: ") for line in comments)
    assert "Only the last command's benchmarks are tabled." in comments
    assert "last command" in markdown(table)
    assert all("last command" in line["note"] for line in csv_lines(table))


MORE = [("choice", "accuracy"), ("choice", "blind"), ("choice", "brittleness")]
PRIMARY = {"choice": ("accuracy",), OOD: ()}


def part(metric: str, **by: str) -> Result:
    return Result("e/a", "a", 1, "choice", metric, 0.5, 9, "w", "d", by=by)


def test_a_family_is_primary_metrics_of_the_whole():
    parts = [part("accuracy", category="swap"), part("blind", category="swap")]
    rows = [*results(more=MORE), *parts]
    family = family_of(rows, PRIMARY)
    assert family == {(OOD, "acc1"), (ID, "acc1"), ("choice", "accuracy")}
    assert family_of(rows, None) == family_of(rows, {}) == {row.cell for row in rows}
    says = describe_family(rows, family, PRIMARY)
    assert says.startswith("Corrected for their primary metrics only (choice: accuracy)")
    assert describe_family(rows, family_of(rows, None), None) == ""


def test_of_parts_alone_the_largest_count():
    rows = [part("mrr", method="a"), part("mrr", method="b"), part("mrr", method="a", kept="yes")]
    family = family_of(rows, {"choice": ("mrr",)})
    assert family == {("choice [method=a]", "mrr"), ("choice [method=b]", "mrr")}
    # A benchmark without any of its primary metrics is corrected for all it has.
    assert family_of(rows, {"choice": ("other",)}) == {row.cell for row in rows}


def test_other_metrics_are_tested_and_not_corrected():
    rows = results(more=MORE)
    plain = significance_table(rows, "real")
    table = significance_table(rows, "real", primary=PRIMARY)
    kept = [row for row in table.comparisons if row.metric in ("acc1", "accuracy")]
    others = [row for row in table.comparisons if row.metric not in ("acc1", "accuracy")]
    assert [row.p_holm for row in kept] == holm([row.p_paired for row in kept]).tolist()
    assert all(math.isnan(row.p_holm) and not math.isnan(row.p_paired) for row in others)
    assert not any(row.kept or row.lost for row in others)
    assert f"p_holm corrects p_paired for {len(kept)} comparisons" in table.note()
    assert any("Corrected for their primary metrics only" in note for note in table.notes)
    same = significance_table(rows, "real", primary={"choice": (), OOD: ()})
    assert comparisons_csv(same) == comparisons_csv(plain)


@pytest.mark.parametrize("seeds", [(1,), (1, 2, 3)])
def test_tests_over_items_have_the_same_family(tmp_path, seeds):
    from cfaug.report.joint_tests import compare_over_seeds_and_items
    from cfaug.report.significance_table import RunItems

    written = Experiment(tmp_path).add("base", answers(0.0, seeds)).add("good", answers(0.2, seeds))
    items, primary = RunItems(written.runs, written.rows), {"own": ("acc1",)}
    table = significance_table(written.rows, "base", items=items, primary=primary)
    tests = table.over_items
    if len(seeds) > 1:
        family = family_of(written.rows, primary)
        tests, _ = compare_over_seeds_and_items(
            table.comparisons, written.rows, items, family=family
        )
        p = {test.row.metric: (test.p, test.p_holm) for test in tests}
    else:
        p = {test.row.metric: (test.test.p, test.p_holm) for test in tests}
        assert "Holm over 1 comparison)" in table.item_note()
    assert p["acc1"][1] == p["acc1"][0]
    assert not math.isnan(p["loss"][0])
    assert math.isnan(p["loss"][1])


def test_benchmarks_of_many_numbers_name_theirs():
    for kind in (PairMatching, CaptionChoice, VisualQuestions):
        assert isinstance(kind("x"), HasPrimaryMetrics)
        assert kind.primary_metrics
    assert not isinstance(Retrieval("x"), HasPrimaryMetrics)
