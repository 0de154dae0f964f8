"""Tables of trained arms: directions, corrections, and results against the method."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy.stats import ttest_1samp

from cfaug.core.errors import UserError
from cfaug.planning.build import build
from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.items import Items, write_items
from cfaug.report.joint_tests import TITLE
from cfaug.report.results import Result, append_results
from tests.files_of_settings import settings_file

CONF = settings_file("table/social_debias")
SEEDS = (107, 108, 109, 110, 111)
PART = {"grid": "colour_background", "labelling": "colour_background", "k": "12"}
CELLS = {  # benchmark, metric, part, unit, better
    "max_skew": ("shapescapes_unseen_skew", "max_skew", PART, "nats", "lower"),
    "max_skew_excess": ("shapescapes_unseen_skew", "max_skew_excess", PART, "nats", "lower"),
    "rank_gap": ("shapescapes_unseen_skew", "rank_gap", PART, "places", "lower"),
    "text": ("shapescapes_every_retrieval", "image_to_text_R@1", {}, "fraction", "higher"),
    "image": ("shapescapes_every_retrieval", "text_to_image_R@1", {}, "fraction", "higher"),
    "subject": ("shapescapes_id_classification", "acc1", {}, "fraction", "higher"),
}
MEANS = {  # skew, excess, gap, retrieval both ways, classification
    "before": (1.6, 0.6, 0.40, 0.30, 0.30, 0.70),
    "real": (1.7, 0.7, 0.45, 0.40, 0.40, 0.80),
    "shuffled": (1.7, 0.7, 0.45, 0.30, 0.30, 0.75),
    "sets": (1.3, 0.3, 0.30, 0.60, 0.60, 0.80),
    "sets_one_batch": (1.7, 0.7, 0.45, 0.60, 0.60, 0.60),
    "sets_neutral": (2.0, 1.0, 0.60, 0.60, 0.60, 0.80),
    "sets_invariant": (1.1, 0.1, 0.20, 0.20, 0.40, 0.80),
    "sets_invariant_90": (1.4, 0.4, 0.35, 0.50, 0.50, 0.70),
    "shuffled_90": (1.3, 0.3, 0.32, 0.10, 0.10, 0.70),
}


def value(arm: str, cell: str, seed: int) -> float:
    rng = np.random.default_rng([seed, *map(ord, arm + cell)])
    return MEANS[arm][list(CELLS).index(cell)] + float(rng.normal(0, 0.01))


def put(root: Path, arms=MEANS, cells=CELLS, seeds=SEEDS, data="d") -> Path:
    for arm in arms:
        for seed in seeds:
            folder = root / "social_debias" / arm / f"seed={seed}"
            folder.mkdir(parents=True)
            record = {
                "state": "done", "experiment": "social_debias", "arm": arm, "seed": seed,
                "steps": 0 if arm == "before" else 150, "identity": {"data.cf_ratio": 0.5},
                "counts": {"train": 960, "counterfactual": 480, "real": 480},
            }  # fmt: skip
            (folder / "run.json").write_text(json.dumps(record))
            rows = [
                Result(f"social_debias/{arm}/seed={seed}", arm, seed, benchmark, metric,
                       value(arm, cell, seed), 4, f"{arm} {seed}", data, better=better, unit=unit,
                       by=by)
                for cell in cells
                for benchmark, metric, by, unit, better in [CELLS[cell]]
            ]  # fmt: skip
            append_results(folder / "results.jsonl", rows)
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return put(tmp_path_factory.mktemp("runs"))


AGAINST_REAL = {"partial": True, "baselines": ["real"]}
ENTRY = {"arm": "sets", "baseline": "real", "column": "subject"}


def table(**changes):
    return build(yaml.safe_load(CONF.read_text()) | changes)


@pytest.fixture(scope="module")
def document(root):
    return table().build(Runs(root))


def differences(document, baseline: str) -> dict:
    [part] = [part for part in document.parts if part.title == f"Less {baseline}"]
    return {arm: dict(zip(CELLS, cells, strict=False)) for (arm,), cells in part.rows}


def test_arms_stand_by_skew_and_cost(document):
    values = document.parts[0]
    assert [arm for (arm,), _ in values.rows][:4] == [
        "before fine-tuning", "real data alone", "sets, captions shuffled", "sets",
    ]  # fmt: skip
    assert values.groups == (
        ("Skew of unseen subjects", 3), ("Retrieval", 2), ("Classification", 1),
    )  # fmt: skip
    assert values.columns[0] == "MaxSkew@12 (nats, lower is better)"
    bold = [
        {arm for (arm,), cells in values.rows if cells[column].bold} for column in range(len(CELLS))
    ]
    invariant = "sets, each in one batch, with the term of invariance"
    assert bold[0] == bold[1] == bold[2] == {invariant}  # the lowest
    assert invariant not in bold[3]


def test_every_metric_is_tested_in_its_own_direction(document):
    """A lower skew is better, a lower recall is worse; equal ones are neither."""
    by_arm = differences(document, "real data alone")
    assert by_arm["sets"]["max_skew_excess"].signs == by_arm["sets"]["text"].signs == "†"
    assert by_arm["sets"]["max_skew"].text.startswith("-")
    assert by_arm["sets, neutral captions"]["max_skew_excess"].signs == "‡"
    assert by_arm["sets, neutral captions"]["max_skew_excess"].text.startswith("+")
    assert by_arm["sets, each in one batch"]["max_skew_excess"].signs == ""
    assert by_arm["sets, each in one batch"]["subject"].signs == "‡"
    invariant = by_arm["sets, each in one batch, with the term of invariance"]
    assert (invariant["rank_gap"].signs, invariant["text"].signs) == ("†", "‡")


def test_holm_runs_over_every_test_of_the_table_and_no_other(document):
    """A slow twin: each p from its definition, corrected once over arms, baselines and metrics."""
    wanted, got = [], []
    labels = yaml.safe_load(CONF.read_text())["arms"]
    baselines = ("real", "before", "shuffled", "shuffled_90")
    for baseline in baselines:
        by_arm = differences(document, labels[baseline])
        for arm in MEANS:
            if arm == baseline:
                continue
            for cell, (*_, better) in CELLS.items():
                numbers = by_arm[labels[arm]][cell].numbers
                if cell == "max_skew" or (baseline != "real" and arm in baselines):
                    assert "p_holm" not in numbers
                    continue
                sign = 1 if better == "higher" else -1
                gains = [sign * (value(arm, cell, s) - value(baseline, cell, s)) for s in SEEDS]
                wanted.append(ttest_1samp(gains, 0, alternative="greater").pvalue)
                got.append(numbers["p_holm"])
    assert len(got) == (8 + 5 + 5 + 5) * 5
    largest, corrected = 0.0, [0.0] * len(wanted)
    for place, at in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        largest = max(largest, min(1.0, (len(wanted) - place) * wanted[at]))
        corrected[at] = largest
    assert got == pytest.approx(corrected, rel=1e-6)
    assert "p_holm corrects p_paired for 115 comparisons" in " ".join(document.parts[0].notes)


def test_what_happened_is_said_whichever_way_it_went(document):
    said = {line.partition(":")[0]: line for line in document.notes if " against " in line}
    assert len(said) == 4 * 5  # every arm under test against every baseline
    sets = said["sets against real data alone"]
    assert sets.count(": better (p ") == 2
    assert "MaxSkew over chance -0." in sets
    assert "no cost is seen" in sets
    assert "it gains Retrieval text R@1 +" in sets
    invariant = said["sets, each in one batch, with the term of invariance against real data alone"]
    assert "it costs Retrieval text R@1 -" in invariant
    neutral = said["sets, neutral captions against real data alone"]
    assert neutral.count(": worse (two-sided p ") == 2
    assert "not shown by these seeds" in said["sets, each in one batch against real data alone"]
    one_batch = said["sets, each in one batch against before fine-tuning"]
    assert one_batch.count(": worse (") + one_batch.count(": worse by the interval alone (") == 2


DECLARED = (  # arm, baseline, cell, better
    ("sets_invariant_90", "before", "max_skew_excess", "lower"),
    ("sets_invariant_90", "real", "max_skew_excess", "lower"),
    ("sets_invariant_90", "shuffled_90", "text", "higher"),
)


def test_declared_comparisons_are_corrected_among_themselves(document):
    part = document.parts[1]
    assert part.title == "Declared before looking"
    p = []
    for (arm, baseline, cell, better), (labels, cells) in zip(DECLARED, part.rows, strict=True):
        gaps = [value(arm, cell, s) - value(baseline, cell, s) for s in SEEDS]
        tested = ttest_1samp(gaps, 0, alternative="greater" if better == "higher" else "less")
        p.append(tested.pvalue)
        assert cells[0].numbers["value"] == pytest.approx(sum(gaps) / len(SEEDS))
        assert cells[1].text == better
        assert labels[0].startswith(
            "sets, with the term of invariance, nine of ten examples against "
        )
    shown = [cells[3].bold for _, cells in part.rows]
    for (labels, _), better in zip(part.rows, shown, strict=True):
        before = document.answer.partition("not shown to be better")[0 if better else 2]
        assert f"{labels[0]} on {labels[1]} (" in before
    order = sorted(range(3), key=p.__getitem__)
    corrected = [max((3 - place) * p[at] for place, at in enumerate(order[: order.index(i) + 1]))
                 for i in range(3)]  # fmt: skip
    assert [cells[3].numbers["p_holm"] for _, cells in part.rows] == pytest.approx(corrected)
    assert "Holm over these 3 alone" in part.notes[0]
    in_table = differences(document, "before fine-tuning")[
        "sets, with the term of invariance, nine of ten examples"
    ]
    assert in_table["max_skew_excess"].numbers["p_holm"] > part.rows[0][1][3].numbers["p_holm"]


def test_an_arm_may_be_declared_to_be_hardly_worse(tmp_path):
    put(tmp_path, arms=("real", "sets"))
    margins = {"better": ENTRY, "wide": {**ENTRY, "margin": 0.5}, "thin": {**ENTRY, "margin": 1e-6}}
    document = table(declared=margins, **AGAINST_REAL).build(Runs(tmp_path))
    rows = [cells for _, cells in document.parts[1].rows]
    gaps = [value("sets", "subject", s) - value("real", "subject", s) for s in SEEDS]
    for cells, margin in zip(rows, (0, 0.5, 1e-6), strict=True):
        tested = ttest_1samp([gap + margin for gap in gaps], 0, alternative="greater")
        assert float(cells[2].text) == pytest.approx(tested.pvalue, rel=0.2, abs=1e-3)
    assert rows[1][1].text == "worse by less than 50.0"
    assert "shown to be no worse: sets against real data alone" in document.answer
    for margin in (0, "much", True):
        with pytest.raises(UserError, match="margin"):
            table(declared={"x": {**ENTRY, "margin": margin}}).check()


def test_declared_comparisons_are_made_over_items_as_well(tmp_path):
    """Where a table asks for it: of the columns whose benchmark kept items."""
    root = put(tmp_path, arms=("real", "sets_neutral"))
    for arm, right in (("real", 0.5), ("sets_neutral", 0.8)):
        for seed in SEEDS:
            drawn = np.random.default_rng([seed, len(arm)]).random(60) < right
            columns = {
                "item": [f"i{n}" for n in range(60)], "cluster": [f"c{n // 2}" for n in range(60)],
                "acc1": drawn.astype(float),
            }  # fmt: skip
            items = Items("shapescapes_id_classification", f"{arm} {seed}", "d", columns)
            write_items(root / "social_debias" / arm / f"seed={seed}", items)
    declared = {"cost": {"arm": "sets_neutral", "baseline": "real", "column": "subject"}}
    with_items = table(**AGAINST_REAL, declared=declared, seeds_and_items=True).build(Runs(root))
    [part] = [part for part in with_items.parts if part.title == TITLE]
    [(labels, cells)] = part.rows
    assert labels[:3] == (
        "sets, neutral captions", "real data alone", "shapescapes_id_classification"
    )  # fmt: skip
    shown = dict(zip(part.columns, cells, strict=True))
    assert float(shown["p"].text) < 0.05
    # Nothing declared: all tested columns with items, against the main baseline.
    every = table(**AGAINST_REAL, declared={}, seeds_and_items=True).build(Runs(root))
    [again] = [part for part in every.parts if part.title == TITLE]
    assert [row for row, _ in again.rows] == [labels]


def test_few_seeds_hide_no_cost(tmp_path):
    """Three seeds leave nothing after Holm; the interval shows what is lost all the same."""
    put(tmp_path, arms=("real", "sets_one_batch"), seeds=(107, 108, 109))
    document = table(declared={}, **AGAINST_REAL).build(Runs(tmp_path))
    [said] = [n for n in document.notes if n.startswith("sets, each in one b")]
    assert "not shown by these seeds" in said
    assert "it costs Classification subject -" in said


def test_what_is_missing_is_named_with_the_commands(tmp_path):
    put(tmp_path, arms=("before", "real", "sets"), seeds=(107, 108))
    with pytest.raises(MissingError, match=r"(?s)a finished run of social_debias/shuffled.*sweeps"):
        table().build(Runs(tmp_path))
    partial = table(partial=True).build(Runs(tmp_path))
    assert [part.title for part in partial.parts[1:]] == [
        "Less real data alone", "Less before fine-tuning",
    ]  # fmt: skip
    with pytest.raises(MissingError, match="a finished run of social_debias/before"):
        table(partial=True).build(Runs(tmp_path / "nothing"))


def test_a_metric_that_nobody_was_asked_is_missing(tmp_path):
    put(tmp_path, ("before", "real"), [cell for cell in CELLS if cell != "subject"])
    with pytest.raises(MissingError, match="shapescapes_id_classification acc1 of social_debias/"):
        table().build(Runs(tmp_path))
    assert len(table(partial=True).build(Runs(tmp_path)).parts[0].columns) == 5


def test_arms_that_were_asked_about_other_subjects_are_no_table(tmp_path):
    put(tmp_path, arms=["real"])
    put(tmp_path, arms=["sets"], data="other")
    with pytest.raises(UserError, match="other test data"):
        table(declared={}, **AGAINST_REAL).build(Runs(tmp_path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"baselines": ["rael"]}, "'rael' is not an arm"),
        ({"baselines": []}, "is missing"),
        ({"columns": {"x": {"name": "x", "benchmark": "b", "metric": "m"}}}, "is missing"),
        ({"columns": {"x": {"name": "x", "metric": "m"}}}, "benchmark"),
        ({"declared": {"x": {"arm": "sets"}}}, "it has arm, baseline, column"),
        ({"declared": {"x": ENTRY | {"arm": "a"}}}, "arm 'a' is"),
        ({"declared": {"x": ENTRY | {"baseline": "sets"}}},
         "baseline 'sets' is invalid: choose from real"),
        ({"declared": {"x": ENTRY | {"arm": "real"}}}, "compared with itself"),
        ({"declared": {"x": ENTRY | {"column": "acc"}}},
         "column 'acc' is invalid: choose from max_skew"),
        ({"against": {"none": []}}, "'none' is not an arm"),
        ({"against": {"sets": ["real"]}}, "'sets' is not a baseline"),
        ({"against": {"real": ["sets", "no"]}}, "'no' is not an arm"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_is_refused(root, changes, message):
    with pytest.raises(UserError, match=message):
        table(**changes).build(Runs(root))


def test_comparisons_sentences_and_columns_are_left_out_where_the_table_says_so(root, document):
    against = {"before": ["sets"], "shuffled_90": ["sets_invariant_90"]}
    columns = yaml.safe_load(CONF.read_text())["columns"]
    columns["subject"]["differs"] = False
    fewer = table(against=against, verdicts=False, columns=columns).build(Runs(root))
    assert set(differences(fewer, "before fine-tuning")) == {"sets"}
    assert len(differences(fewer, "sets, captions shuffled, nine of ten examples")) == 1
    assert set(differences(fewer, "real data alone")) == set(
        differences(document, "real data alone")
    )
    texts = [
        [[cell.text for cell in cells] for _, cells in either.parts[0].rows]
        for either in (fewer, document)
    ]
    assert texts[0] == texts[1]
    # A correction over fewer tests costs less.
    new, old = (
        differences(either, "before fine-tuning")["sets"]["text"].numbers
        for either in (fewer, document)
    )
    assert new["p_paired"] == old["p_paired"]
    assert new["p_holm"] < old["p_holm"]
    assert fewer.parts[0].columns == document.parts[0].columns
    assert fewer.parts[-1].columns == document.parts[-1].columns[:-1]
    assert len(document.notes) - len(fewer.notes) == 4 * 5
    assert not [line for line in fewer.notes if ": better (p " in line]
