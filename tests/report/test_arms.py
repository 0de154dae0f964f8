"""Arms are what their runs' records say; a report is about some of them; tables of arms."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_ind, ttest_rel

from cfaug.core.errors import UserError
from cfaug.report.arm_results import ArmResults
from cfaug.report.arm_table import (
    ArmRow,
    ArmTablePart,
    MeasuredColumn,
    mark_best_two,
)
from cfaug.report.arms import (
    PAIRS_IN_BATCH,
    RATIO,
    Arm,
    arm_labels,
    full_names,
    read_arms,
    unnamed_settings,
)
from cfaug.report.comparison import ComparisonSettings
from cfaug.report.document import DAGGER, Column, Entry, make_part
from cfaug.report.drawing import wrap_text
from cfaug.report.records import Run
from tests.report.example import ID, LABELS, MEANS, OOD, RATIOS, SOURCES, USUAL, results, runs


def run(arm="x", seed=1, folder=Path("nowhere"), **record) -> Run:
    return Run(folder, "e", arm, {"state": "done", "seed": seed, **record})


def test_an_arm_is_read_from_its_records():
    identity = {
        "seed": 1, "data.seed": 2, "data.world.seed": 3, "content.real": "h", "optim.lr": 0.1,
        "data.cf_ratio": 0.6, "data.pairs_in_batch": True, "data.control": "real",
    }  # fmt: skip
    sources = {"counterfactual": {"source": "pairs"}}
    runs = [
        run("cf_ratio=0.1", seed, steps=5, cf_ratio=0.6, counts={"train": 10 + seed},
            identity=identity, sources=sources)
        for seed in (1, 2)
    ]  # fmt: skip
    [arm] = read_arms(runs).values()
    assert arm == Arm(
        "cf_ratio=0.1", True, 0.6, "pairs", "real", True,
        {"optim.lr": 0.1, "data.cf_ratio": 0.6, "data.pairs_in_batch": True,
         "data.control": "real"},
        frozenset({11, 12}),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "trained"), [([0, 0], False), ([0, 150], True), ([None], True), ([], True)]
)
def test_an_arm_is_untrained_if_no_run_took_a_step(steps, trained):
    runs = [run(seed=i, steps=n) for i, n in enumerate(steps)] or [run()]
    assert read_arms(runs)["x"].trained is trained


def test_arms_differ_in_one_setting():
    base = Arm("a", source="p", settings={RATIO: 0.3, "optim.lr": 1})
    assert base.differs_only_in(RATIO, replace(base, settings={RATIO: 0.6, "optim.lr": 1}))
    assert base.differs_only_in(RATIO, replace(base, source="", settings={"optim.lr": 1}))
    assert not base.differs_only_in(RATIO, replace(base, source="q"))
    assert not base.differs_only_in(RATIO, replace(base, settings={RATIO: 0.6, "optim.lr": 2}))
    assert not base.differs_only_in(PAIRS_IN_BATCH, replace(base, settings={"optim.lr": 1}))


GIVEN = {"real": "real only", "before": "before fine-tuning"}
SHARED = "counterfactual=PAIRS,loss=pair_aware,max_steps=1,model=clip_vit_b32,real=PHOTOS"


def named(arms, **records) -> dict[str, Arm]:
    """Arms by name, with nothing on record but what is given."""
    return {arm: Arm(arm, settings=records.get(arm, {})) for arm in arms}


def test_a_name_that_was_cut_is_told_from_the_runs_record():
    arms = [f"batch_size=8,{SHARED},2-more-{digest}" for digest in ("0123abcd", "ffff0000")]
    records = {
        arm: Arm(arm, settings={"optim.lr": lr, "model.x": 1})
        for arm, lr in zip(arms, (0.1, 0.2), strict=True)
    }
    assert list(arm_labels(records).values()) == ["lr=0.1", "lr=0.2"]
    # Without a record what is left says nothing, so the names stay.
    assert list(arm_labels(named(arms)).values()) == arms


def test_settings_that_no_name_shows():
    arms = {
        "a": Arm("a", settings={"optim.lr": 0.1, "trainer.max_steps": 5, "data.cf_ratio": 0}),
        "max_steps=7": Arm("max_steps=7", settings={
            "optim.lr": 0.2, "trainer.max_steps": 7, "data.cf_ratio": 0.5,
        }),
    }  # fmt: skip
    assert unnamed_settings(arms) == {"optim.lr": {"a": "0.1", "max_steps=7": "0.2"}}
    assert unnamed_settings({"a": arms["a"]}) == {}


NAMES = st.text(alphabet="ab=,0+ _", max_size=12) | st.sampled_from([*GIVEN, *GIVEN.values()])


@given(st.lists(NAMES, unique=True, max_size=6))
def test_no_two_arms_have_one_label(arms):
    labels = arm_labels(named(arms), GIVEN)
    assert list(labels) == arms
    assert len(set(labels.values())) == len(arms)


def test_full_names_come_once():
    said = full_names(arm_labels(named(SWEEP)), [*SWEEP, "x"])
    assert said == f"Arms by their full names: cf_ratio=0: {SWEEP[0]}; cf_ratio=0.9: {SWEEP[1]}."
    assert full_names({"x": "x"}, ["x"]) == ""


@given(st.text(max_size=60), st.integers(4, 20))
def test_text_is_wrapped_and_nothing_is_lost(text, width):
    from rich.cells import cell_len

    lines = wrap_text(text, width)
    assert all(cell_len(line) <= width for line in lines)
    kept = "".join(c for c in text if c.isprintable() and not c.isspace())
    assert "".join("".join(lines).split()) == kept


SWEEP = [f"cf_ratio={ratio},{SHARED}" for ratio in (0, 0.9)]


@pytest.mark.parametrize(
    ("arms", "given", "labels"),
    [
        (SWEEP, {}, ["cf_ratio=0", "cf_ratio=0.9"]),  # what all share is dropped
        (["cf_ratio=0,real=R", "cf_ratio=0.9,counterfactual=C,real=R"], {},
         ["cf_ratio=0", "cf_ratio=0.9,counterfactual=C"]),
        (["lr=1", "lr=1,seed_of=2"], {}, ["lr=1", "seed_of=2"]),
        (["real", "mine", "cf_ratio=0.5,lr=1", "base,cf_ratio=0.6,lr=1"], GIVEN,
         ["real only", "mine", "cf_ratio=0.5", "base,cf_ratio=0.6"]),
        ([*GIVEN], GIVEN, [*GIVEN.values()]),
        # Of several experiments, whose names stay.
        (["one-lr=1,size=5", "two-lr=1,size=5", "two-lr=2,size=5", "three-real"],
         {"three-real": "real only"}, ["one-lr=1", "two-lr=1", "two-lr=2", "real only"]),
        (["one-lr=1", "two-lr=1"], {}, ["one", "two"]),
        # A label for the label that an arm would have; never two of one name.
        (SWEEP, {"cf_ratio=0": "real only", SWEEP[1]: "mixed"}, ["real only", "mixed"]),
        (SWEEP, dict.fromkeys(SWEEP, "both"), SWEEP),
    ],
)  # fmt: skip
def test_labels_say_in_what_arms_differ(arms, given, labels):
    assert list(arm_labels(named(arms), given).values()) == labels


# What a report is about, told from the runs alone.


def headline(means, ratios=RATIOS, baselines=("real", "more_real"), sources=SOURCES):
    rows = results(means)
    arms = read_arms(runs(rows, ratios, sources))
    return USUAL.headline(rows, arms, baselines[0], {})


def test_generated_and_the_oracles_pairs_are_both_under_test():
    both = headline({**MEANS, "generated": (0.6, 0.6)}, {**RATIOS, "generated": 0.5})
    assert both.tested == ("generated", "counterfactual")
    assert both.order == ("before", "real")
    assert headline(MEANS).tested == ("counterfactual",)


def test_an_experiment_of_ones_own_is_about_its_most_counterfactual_arm():
    means = {"mine": (0.3, 0.3), "half": (0.4, 0.4), "most": (0.5, 0.5)}
    about = headline(means, {"mine": 0.0, "half": 0.5, "most": 0.67}, ["mine"])
    assert (about.order, about.tested, about.expected) == (("mine",), ("most",), False)


@pytest.mark.parametrize(
    ("baselines", "order", "tested"),
    [
        (["counterfactual"], ("before", "counterfactual"), ("unbiased",)),
        (["before"], ("before",), ("counterfactual",)),
        (["real", "counterfactual"], ("before", "real"), ("counterfactual",)),
    ],
)
def test_the_main_baseline_is_never_under_test(baselines, order, tested):
    asked = headline(MEANS, baselines=baselines)
    assert (asked.order, asked.tested) == (order, tested)


def test_controls_and_pairs_in_one_batch_are_known_by_what_they_were_trained_on():
    names = ["before", "real", "one", "two", "three", "four", "counterfactual"]
    sources = {
        "counterfactual": "pairs", "one": "shapescapes:unbiased", "two": "shapescapes:matched",
        "three": "pairs", "four_paired": "pairs", "four": "elsewhere",
    }  # fmt: skip
    rows = results(dict.fromkeys([*names, "four_paired"], (0.5, 0.5)))
    arms = read_arms(runs(rows, dict.fromkeys(names[2:], 0.5) | {"four_paired": 0.5}, sources))
    about = USUAL.headline(rows, arms, "real", {})
    assert about.tested == ("counterfactual",)
    assert about.paired == ("counterfactual", "four_paired")
    assert about.controls == ("one", "two")


def test_without_settings_nothing_is_known_by_its_name():
    means = {**MEANS, "zero": (0.4, 0.4)}
    rows = results(means)
    arms = read_arms(runs(rows, {**RATIOS, "zero": 0}))
    assert ComparisonSettings().choose_baselines(arms, None, {}) == ["more_real", "real", "zero"]
    assert USUAL.choose_baselines(arms, None, {}) == ["real", "more_real"]
    about = ComparisonSettings().headline(rows, arms, "zero", {})
    assert (about.order, about.tested, about.in_distribution) == (("zero",), ("unbiased",), None)


def test_the_headline_is_of_the_commands_first_benchmark():
    """Results of earlier commands, which tabulate=all adds, stand before it in the files."""
    rows = results(MEANS, more=[("pairs", "text_score"), ("pairs", "group_score")])
    arms = read_arms(runs(rows))
    about = ComparisonSettings().headline(rows, arms, "real", {}, ["absent", "pairs", ID])
    assert about.cell == ("pairs", "text_score")
    assert ComparisonSettings().headline(rows, arms, "real", {}).cell == (OOD, "acc1")
    assert USUAL.headline(rows, arms, "real", {}, ["pairs"]).cell == (OOD, "acc1")  # by name
    # Nothing can be said on what the baseline was not asked, such as a benchmark that refused it.
    rows = [row for row in rows if row.arm != "real" or row.benchmark == "pairs"]
    assert USUAL.headline(rows, arms, "real", {}).cell == ("pairs", "text_score")


def test_a_baseline_is_asked_for_by_name_or_label_and_counts_once():
    arms = read_arms(runs(results()))
    labels = {arm: LABELS[arm] for arm in arms}
    asked = ["real only", "real", "unbiased"]
    assert USUAL.choose_baselines(arms, asked, labels) == ["real", "unbiased"]
    with pytest.raises(UserError, match="no arm is called 'rael'; there are before, real"):
        USUAL.choose_baselines(arms, "rael", labels)


def test_a_counterpart_is_named_by_two_texts():
    with pytest.raises(UserError, match=r"in_distribution=\['_ood_'\] is invalid"):
        ComparisonSettings(in_distribution=["_ood_"])


@pytest.mark.parametrize(
    ("ratio", "setting", "theirs", "usual"),
    [
        (0.5, "counterfactual_members", "singles", "all"),
        (0.7, "counterfactual_captions", "shuffled", "own"),  # even with the largest share
        (0.6, "negatives", "none", "both"),
        (0.6, "negatives", "text", "both"),
        (0.6, "negatives", "image", "both"),
    ],
)
def test_what_stands_in_place_of_pairs_is_a_control(ratio, setting, theirs, usual):
    rows = results({"real": (0.4, 0.4), "pairs": (0.5, 0.5), "zother": (0.5, 0.5)})
    made = runs(rows, {"pairs": 0.6, "zother": ratio})
    for run in made:
        if run.arm != "real":
            value = theirs if run.arm == "zother" else usual
            run.record["identity"][f"data.{setting}"] = value
    about = ComparisonSettings().headline(rows, read_arms(made), "real", {})
    assert (about.tested, about.controls) == (("pairs",), ("zother",))


# A part of a table of arms in the direction of its metrics; best and second best of a column.

SETTINGS = {"labels": {"model": "arm"}, "commands": ("python evaluate.py",)}
LOSSES = tuple(MeasuredColumn(name, "", "stress", name) for name in ("loss", "gap"))
MEAN = MeasuredColumn("Mean", "", None, None)


def losses():
    """Rows of two losses, the lower the higher the example's accuracy."""
    return [
        replace(row, benchmark="stress", metric=metric, value=7 - row.value - i,
                better="lower", unit="nats")
        for row in results()
        if row.benchmark == OOD
        for i, metric in enumerate(("loss", "gap"))
    ]  # fmt: skip


def part_of(rows, columns=(*LOSSES, MEAN)):
    names = ("real", "counterfactual", "before")
    arms = [
        (
            ArmRow(f"demo/{name}", name, baseline=None if name == "real" else "demo/real"),
            ArmResults(f"demo/{name}", [row for row in rows if row.arm == name]),
        )
        for name in names
    ]
    return ArmTablePart("mine", columns, arms, **SETTINGS)


def test_every_cell_is_tested_in_its_own_direction():
    rows = losses()
    part = part_of(rows).part()
    assert part.columns == tuple(f"{n} (nats, lower is better)" for n in ("loss", "gap", "Mean"))
    real, ours, before = (cells for _, cells in part.rows)
    grid = {
        arm: np.array([[row.value for row in rows if (row.arm, row.metric) == (arm, metric)]
                       for metric in ("loss", "gap")])
        for arm in ("real", "counterfactual")
    }  # fmt: skip
    for i, cell in enumerate(ours[:2]):
        tested, baseline = grid["counterfactual"][i], grid["real"][i]
        p = ttest_ind(tested, baseline, equal_var=False, alternative="less").pvalue
        assert cell.numbers["p_independent"] == pytest.approx(p)
        paired = ttest_rel(tested, baseline, alternative="less").pvalue
        assert cell.numbers["p_paired"] == pytest.approx(paired)
        assert cell.text == f"{tested.mean():.4g}"
    assert ours[2].text == f"{grid['counterfactual'].mean():.4g}"
    assert all((c.bold, c.underlined, c.above) == (True, True, DAGGER) for c in ours)
    assert not any(c.bold or c.underlined or c.above for c in (*real, *before))
    assert any("in the unit above the column" in note for note in part.notes)


def test_a_mean_over_metrics_of_two_directions_is_refused():
    rows = [replace(row, better="higher") if row.metric == "gap" else row for row in losses()]
    with pytest.raises(UserError, match=r"several units or directions \(loss, gap\)"):
        part_of(rows)
    cells = part_of(rows, LOSSES).part().rows[1][1]
    assert [cell.underlined for cell in cells] == [True, False]


def test_rows_of_one_seed_say_that_they_have_no_test():
    rows = [row for row in losses() if row.seed == 11]
    said = " ".join(part_of(rows).part().notes)
    assert "demo/counterfactual, demo/before: one seed, so no test over seeds" in said
    assert "Tested against" not in said
    assert "one seed" not in " ".join(part_of(losses()).part().notes)


def entry(value):
    return Entry("–") if value is None else Entry(f"{value:.2f}", numbers={"value": value})


def part(*values):
    columns = [Column(str(at), lambda row, at=at: entry(row[at])) for at in range(len(values))]
    rows = [((str(n),), row) for n, row in enumerate(zip(*values, strict=True))]
    return make_part("", ("row",), columns, rows)


def marks(marked, column=0):
    return "".join(
        "b" * cells[column].bold + "u" * cells[column].underlined or "." for _, cells in marked.rows
    )


def test_ties_as_printed_are_marked_alike():
    marked = mark_best_two(part([0.501, 0.499, 0.3, 0.301, 0.1, None]), ["higher"])
    assert marks(marked) == "bbuu.."
    assert marks(mark_best_two(part([0.5, 0.4, 0.3]), ["lower"])) == ".ub"


def test_what_stands_beside_does_not_compete_and_no_direction_is_no_mark():
    marked = mark_best_two(part([1.0, 0.4, 0.3], [1.0, 2.0, 3.0]), ["higher", None], beside=[0])
    assert (marks(marked), marks(marked, 1)) == (".bu", "...")


@pytest.mark.parametrize("values", product((0.1, 0.2, 0.3), repeat=3))
@pytest.mark.parametrize("better", ["higher", "lower"])
def test_marks_equal_a_slow_count(values, better):
    sign = 1 if better == "higher" else -1
    distinct = {sign * v for v in values}
    above = [sum(other > sign * v for other in distinct) for v in values]
    expected = "".join("bu."[min(n, 2)] for n in above)
    assert marks(mark_best_two(part(values), [better])) == expected
