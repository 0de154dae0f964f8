"""Comparisons are corrected for the metrics that a benchmark is about; the others cost nothing."""

from __future__ import annotations

import math

import pytest

from cfaug.cfmm.vqa import VisualQuestions
from cfaug.compositional.caption_choice import CaptionChoice
from cfaug.compositional.pairs import PairMatching
from cfaug.evaluation.benchmark import HasPrimaryMetrics
from cfaug.evaluation.retrieval import Retrieval
from cfaug.report.layout import comparisons_csv
from cfaug.report.results import Result
from cfaug.report.significance_rows import describe_family, family_of
from cfaug.report.significance_table import significance_table
from cfaug.stats.significance import holm
from cfaug.xmai.insertion import Insertion
from tests.report.example import ID, OOD, results
from tests.report.test_joint_tests import Experiment, answers

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

    one = Experiment(tmp_path).add("base", answers(0.0, seeds)).add("good", answers(0.2, seeds))
    items, primary = RunItems(one.runs, one.rows), {"own": ("acc1",)}
    table = significance_table(one.rows, "base", items=items, primary=primary)
    found = table.over_items
    if len(seeds) > 1:
        family = family_of(one.rows, primary)
        found, _ = compare_over_seeds_and_items(table.comparisons, one.rows, items, family=family)
        p = {one.row.metric: (one.p, one.p_holm) for one in found}
    else:
        p = {one.row.metric: (one.test.p, one.p_holm) for one in found}
        assert "Holm over 1 comparison)" in table.item_note()
    assert p["acc1"][1] == p["acc1"][0]
    assert not math.isnan(p["loss"][0])
    assert math.isnan(p["loss"][1])


def test_benchmarks_of_many_numbers_name_theirs():
    for kind in (PairMatching, CaptionChoice, Insertion, VisualQuestions):
        assert isinstance(kind("x"), HasPrimaryMetrics)
        assert kind.primary_metrics
    assert not isinstance(Retrieval("x"), HasPrimaryMetrics)
