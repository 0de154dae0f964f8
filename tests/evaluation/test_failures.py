"""Failures as a file of lines: what is written is read, what is wrong is named by its line."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.types import CLUSTER
from cfaug.data.shards.shards import write_shards
from cfaug.evaluation.choices.caption_choice import CaptionChoice
from cfaug.evaluation.choices.pairs import PairMatching
from cfaug.evaluation.failures import (
    FAMILIES,
    Cell,
    Cells,
    FailureRule,
    Finder,
    HasFailureCells,
    ModelFailure,
    draw_twins,
    find_failures,
    read_failures,
    write_failures,
)
from cfaug.evaluation.retrieval import Matching, Retrieval
from cfaug.evaluation.stress.stress import Stress
from cfaug.report.items import Items, read_items, write_items
from cfaug.stats.significance import holm
from tests.evaluation.caption_items import choices, open_sets, world_pairs
from tests.evaluation.drawn_questions import Drawn, image, opened, rows
from tests.evaluation.joined import joined_sets
from tests.evaluation.stress.test_stress import opener

FINDER = Finder("zoo:classifier", "sha", "a_stress", "data")
TYPED = {"family": "stress", "kind": "background", "before": "on the beach", "after": "at night"}
WORD = st.text(min_size=1, max_size=5).filter(lambda text: bool(text.strip()))
SHARE = st.floats(0, 1)


def lines_of(*contents) -> str:
    return "".join(f"{json.dumps(content)}\n" for content in contents)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(WORD, min_size=2, max_size=2),
    st.lists(WORD, max_size=2, unique=True),
    SHARE,
    st.booleans(),
)
def test_what_is_written_is_read(words, labels, share, is_typed):
    before, after = words[0], f"{words[1]} x {words[0]}"
    failure = ModelFailure(
        "stress", "kind", before, after, tuple(labels), share, share / 2, -share, share, share,
        share, share, ("one", "two"), "typed" if is_typed else FINDER,
    )  # fmt: skip
    with TemporaryDirectory() as folder:
        file = Path(folder) / "failures.jsonl"
        failures = (failure, replace(failure, after=before, before=after))
        write_failures(file, failures)
        assert read_failures(file) == failures
        content = file.read_bytes()
        write_failures(file, read_failures(file))
        assert file.read_bytes() == content


def test_a_typed_finding_needs_four_keys(tmp_path):
    file = tmp_path / "failures.jsonl"
    file.write_text(lines_of(TYPED, {**TYPED, "labels": ["ball"], "effect": 0.5}))
    first, second = read_failures(file)
    assert (first.effect, first.size, first.found_by, first.labels) == (1, 1, "typed", ())
    assert (second.effect, second.size, second.labels) == (0.5, 0.5, ("ball",))
    assert second.words == "ball: background: on the beach → at night"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nothing", "not JSON"),
        ("[1]", "JSON object"),
        ("\ufeff[" + "[" * 5000, "not JSON"),
        (json.dumps({**TYPED, "after": "on the  Beach"}), "nothing is edited"),
        (json.dumps({**TYPED, "kind": " "}), "kind is empty"),
        (json.dumps({**TYPED, "befor": "x"}), "did you mean before"),
        (json.dumps({"family": "stress", "kind": "x", "before": "y"}), "after is missing"),
        (json.dumps({**TYPED, "effect": math.nan}), "NaN is not a number of JSON"),
        (json.dumps({**TYPED, "effect": 1.5}), "effect=1.5"),
        (json.dumps({**TYPED, "effect": "0.5"}), 'effect="0.5"'),
        (json.dumps({**TYPED, "effect": True}), "effect=true"),
        (json.dumps({**TYPED, "labels": "ball"}), "labels=ball"),
        (json.dumps({**TYPED, "items": [1]}), "items"),
        (json.dumps({**TYPED, "prevalence": -1}), "prevalence=-1"),
        (json.dumps({**TYPED, "low": 0.5, "high": 0.2}), "low=0.5 is above high=0.2"),
        (json.dumps({**TYPED, "p": 0.04, "p_holm": 0.01}), "p=0.04 is above p_holm=0.01"),
        (json.dumps({**TYPED, "before": "On the beach!"}), "is already in line 1"),
        (json.dumps({**TYPED, "found_by": "me"}), "should be 'typed'"),
        (json.dumps({**TYPED, "found_by": 3}), "found_by should be"),
        (json.dumps({**TYPED, "found_by": {"model": "x"}}), "weights is missing"),
        (json.dumps({**TYPED, "found_by": {"modl": "x"}}), "did you mean model"),
        ('{"kind": "\\ud800"}', "not JSON"),
        (json.dumps({**TYPED, "items": ["x" * 100] * 100_000}), "1,048,576 bytes"),
    ],
)  # fmt: skip
def test_an_invalid_line_is_named(tmp_path, line, said):
    file = tmp_path / "failures.jsonl"
    file.write_text(f"{lines_of(TYPED)}\n{line}\n", encoding="utf-8")
    with pytest.raises(UserError, match="line 3: ") as caught:
        read_failures(file)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 700


def test_duplicates_and_missing_files_are_refused(tmp_path):
    file = tmp_path / "failures.jsonl"
    file.write_text(lines_of(TYPED, {**TYPED, "effect": 0.2}))
    with pytest.raises(UserError, match=r"line 2: .* is already in line 1"):
        read_failures(file)
    with pytest.raises(UserError, match=r"failures=.* writes it"):
        read_failures(tmp_path / "other.jsonl")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="line 1: not JSON"):
        read_failures(file)


# Finding: cells against a slow rule.

LABELS = ("ball", "cube")


def cells_of(planted=0.5, photos=12, noise=0.02, names=("beach", "night", "snow")) -> Cells:
    """Two classes, edited in three ways; "snow" harms balls."""
    rng = np.random.default_rng(3)
    rows = [
        (p, label, after) for p in range(photos) for label in ("ball", "cube") for after in names
    ]
    delta = [
        planted * (label == "ball" and after == "snow") + noise * rng.normal()
        for _, label, after in rows
    ]
    return Cells(
        [f"{p}/{label}/{after}" for p, label, after in rows],
        np.array(delta),
        noise * rng.normal(size=len(rows)),
        [f"{label}-{p}" for p, label, _ in rows],
        [Cell((label,), "background", "grass", after) for _, label, after in rows],
    )


def test_the_planted_cell_is_found_and_no_other():
    result = find_failures(cells_of(), FailureRule(), "stress", FINDER)
    (failure,) = result.failures
    assert (result.measured, result.small) == (6, 0)
    assert (failure.labels, failure.after, failure.family) == (("ball",), "snow", "stress")
    assert failure.found_by == FINDER
    assert failure.low < failure.effect < failure.high
    assert 0.4 < failure.shrunk < failure.effect
    assert failure.prevalence == 0.5
    assert failure.items == tuple(f"{p}/ball/snow" for p in range(12))
    p = [failure.p, *[1.0] * 5]
    assert failure.p_holm == pytest.approx(holm(p)[0])
    assert not find_failures(cells_of(0.0), FailureRule(), "stress", FINDER).failures


@pytest.mark.parametrize(
    ("rule", "passes"),
    [
        (FailureRule(minimum=0.6), False),
        (FailureRule(alpha=1e-4), False),
        (FailureRule(minimum=0.4, alpha=0.01), True),
    ],
)
def test_the_rule_decides(rule, passes):
    assert bool(find_failures(cells_of(), rule, "stress", FINDER).failures) == passes


def test_a_rule_can_take_every_measured_cell():
    rule = FailureRule(minimum=-1, alpha=1)
    result = find_failures(cells_of(), rule, "stress", FINDER)
    assert len(result.failures) == result.measured > 1
    effects = [failure.effect for failure in result.failures]
    assert effects == sorted(effects, reverse=True)
    assert min(effects) < 0
    with pytest.raises(UserError, match=r"failure_rule\.minimum=-1\.1"):
        FailureRule(minimum=-1.1)


def test_small_cells_join_all_classes_or_are_not_measured():
    """Seven photos of each class are too few alone, and fourteen together are enough."""
    result = find_failures(cells_of(photos=7), FailureRule(minimum=0.2), "stress", FINDER)
    (failure,) = result.failures
    assert (failure.labels, failure.after, result.measured, result.small) == ((), "snow", 3, 0)
    few = find_failures(cells_of(photos=3), FailureRule(), "stress", FINDER)
    assert (few.failures, few.measured, few.small) == ((), 0, 3)
    assert "every edit is of fewer than 8 photos, at most 6 (background, grass to " in few.reason
    assert "failure_rule.least_items=6" in few.reason
    assert result.reason == ""


def test_why_no_cell_is_measured():
    cells = cells_of(photos=3)
    same = replace(cells, groups=[Cell((), "background", "snow", "Snow") for _ in cells.names])
    insertions = replace(cells, groups=[cell._replace(before="") for cell in cells.groups])
    unknown = replace(cells, control=np.full(len(cells.names), np.nan))
    for few, family, reason in (
        (Cells((), np.empty(0), np.empty(0), (), ()), "vqa", "no item is an edit of another"),
        (same, "stress", "words before and after are equal in all 18 edited items"),
        (insertions, "stress", "no item has words before its edit"),
        (unknown, "stress", "none of 18 edited items has a control, which is the reconstruction"),
        (unknown, "vqa", "which is the same item without the edit"),
    ):
        search = find_failures(few, FailureRule(), family, FINDER)
        assert (search.failures, search.measured) == ((), 0)
        assert reason in search.reason


def test_items_without_a_control_are_left_out():
    cells = cells_of()
    control = np.where(np.array(cells.clusters) == "ball-0", np.nan, cells.control)
    without = replace(cells, control=control)
    (failure,) = find_failures(without, FailureRule(), "stress", FINDER).failures
    assert "0/ball/snow" not in failure.items
    nothing = Cells(
        cells.names, cells.delta, np.full(len(control), np.nan), cells.clusters, cells.groups
    )
    assert find_failures(nothing, FailureRule(), "stress", FINDER).failures == ()


# Every benchmark with edits names its cells, losses and controls, against its items one by one.


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return open_sets(world_pairs(14), tmp_path_factory.mktemp("pairs"))


def read_cells(benchmark, evaluation, folder):
    """Return the cells from items as they are read again, and the items."""
    assert isinstance(benchmark, HasFailureCells)
    assert benchmark.kind in FAMILIES
    write_items(folder, Items("b", "w", "d", evaluation.items))
    cells = benchmark.failure_cells(read_items(folder, "b"))
    lengths = {len(x) for x in (cells.names, cells.delta, cells.control, cells.clusters)}
    assert lengths == {len(cells.groups)}
    items = rows(evaluation)
    assert [items[name][CLUSTER] for name in cells.names] == list(cells.clusters)
    return cells, items


def check_words(cells, sets):
    """Each cell has the words by which the captions of a pair differ: the subjects."""
    for cell, pair in zip(cells.groups, sets, strict=True):
        edit = pair.members[1].edit
        assert (cell.kind, cell.before, cell.after) == ("subject", edit.before, edit.after)
        assert cell.labels == (pair.members[0].label,)


def test_pairs_compare_the_second_image_with_the_first(pairs, encoder, tmp_path):
    benchmark = PairMatching(name="p").use(pairs)
    cells, items = read_cells(benchmark, benchmark.run(encoder), tmp_path)
    check_words(cells, world_pairs(14))
    for name, delta, control in zip(cells.names, cells.delta, cells.control, strict=True):
        score = items[name]
        assert delta == (score["text 1 image 1"] <= score["text 0 image 1"])
        assert control == (score["text 0 image 0"] <= score["text 1 image 0"])


def test_retrieval_compares_an_edited_row_with_the_first_of_its_set(pairs, encoder, tmp_path):
    benchmark = Retrieval(name="r").use(pairs)
    cells, items = read_cells(benchmark, benchmark.run(encoder), tmp_path)
    check_words(cells, world_pairs(14))
    for name, delta, control in zip(cells.names, cells.delta, cells.control, strict=True):
        key = name.removeprefix("text ").rpartition("_")[0]
        losses = [
            2 - items[f"text {key}_{n}"]["text_to_image_R@1"]
            - items[f"image {key}_{n}"]["image_to_text_R@1"]
            for n in (1, 0)
        ]  # fmt: skip
        assert [delta, control] == [loss / 2 for loss in losses]


def test_matching_compares_with_random_pairs_and_needs_photographs(pairs, matcher, tmp_path):
    benchmark = Matching(name="m").use(pairs, pairs)
    cells, items = read_cells(benchmark, benchmark.run(matcher), tmp_path)
    check_words(cells, world_pairs(14))
    for name, delta, control in zip(cells.names, cells.delta, cells.control, strict=True):
        hits = items[name]
        assert delta == 1 - (hits["IR_c"] + hits["TR_c"]) / 2
        assert control == 1 - (hits["IR_r"] + hits["TR_r"]) / 2
    alone = Matching(name="m").use(pairs, None)
    with pytest.raises(UserError, match=r"benchmark\.real=FOLDER"):
        alone.failure_cells(Items("b", "w", "d", alone.run(matcher).items))


def test_choice_compares_with_an_item_of_another_cell(encoder, tmp_path):
    index = open_sets(choices(), tmp_path)
    benchmark = CaptionChoice(name="c", blind=None).use(index)
    cells, items = read_cells(benchmark, benchmark.run(encoder), tmp_path)
    twins = draw_twins(cells.names, cells.groups)
    for row, (name, pair) in enumerate(zip(cells.names, world_pairs(14), strict=True)):
        cell, edit = cells.groups[row], pair.members[1].edit
        assert (cell.labels, cell.before, cell.after) == ((), edit.before, edit.after)
        assert cell.kind == items[name]["category"]
        assert cells.delta[row] == 1 - items[name]["accuracy"]
        assert cells.control[row] == cells.delta[twins[row]]
        assert cells.groups[twins[row]] != cell


def test_twins_are_of_another_cell_and_keyed_by_item():
    names = [f"i{n}" for n in range(60)]
    groups = [("a", "b", "c")[n % 3] for n in range(60)]
    twins = draw_twins(names, groups)
    assert all(groups[twin] != group for twin, group in zip(twins, groups, strict=True))
    assert len(set(twins.tolist())) > 25
    assert draw_twins(names, groups).tolist() == twins.tolist()
    assert draw_twins(names[:3], ["a", "a", "a"]).tolist() == [-1, -1, -1]


def test_questions_compare_a_counterfactual_one_with_the_basic_one(tmp_path):
    benchmark = opened([image(number) for number in range(6)], prior=False, blind=False)
    cells, items = read_cells(benchmark, benchmark.run(Drawn()), tmp_path)
    assert len(cells.names) == 6 * 4
    for name, delta, control, cell in zip(
        cells.names, cells.delta, cells.control, cells.groups, strict=True
    ):
        basic = items[f"{name.partition('/')[0]}/basic"]
        assert delta == 1 - items[name]["right"]
        assert control == 1 - basic["right"]
        assert cell == ((), items[name]["category"], basic["answer"], items[name]["answer"])


def test_stress_compares_an_edit_with_the_reconstruction(tmp_path):
    from cfaug.models.task_specs import ImageClassification
    from tests.models import tiny

    write_shards(joined_sets(), tmp_path / "lance")
    (benchmark,) = Stress(str(tmp_path / "lance")).open(opener(tmp_path))
    classifier = ImageClassification(str(tiny.save_classifier(tmp_path / "net"))).load()
    cells, items = read_cells(benchmark, benchmark.run(classifier), tmp_path)
    edits = [name for name, item in items.items() if item["set"] == "edited"]
    assert list(cells.names) == edits
    words = {"background": ("beach", "snow"), "adjective": ("red", "blue"),
             "domain": ("photo", "sketch")}  # fmt: skip
    for name, delta, control, cell in zip(
        cells.names, cells.delta, cells.control, cells.groups, strict=True
    ):
        item = items[name]
        assert delta == pytest.approx(item["p_photo"] - item["p"])
        assert control == pytest.approx(item["p_photo"] - item["p_reconstruction"])
        assert (cell.labels, cell.kind) == ((item["class"],), item["kind"])
        added = ("", "in the rain")
        assert (cell.before, cell.after) in (words[cell.kind], added)
        assert not np.isnan(control)
