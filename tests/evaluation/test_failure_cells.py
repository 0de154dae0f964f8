"""Every benchmark with edits names its cells, losses and controls, against its items one by one."""

from __future__ import annotations

import numpy as np
import pytest

from cfaug.compositional.caption_choice import CaptionChoice
from cfaug.compositional.pairs import PairMatching
from cfaug.core.errors import UserError
from cfaug.core.types import CLUSTER
from cfaug.data.shards.shards import write_shards
from cfaug.evaluation.failures import FAMILIES, HasFailureCells, draw_twins
from cfaug.evaluation.retrieval import Matching, Retrieval
from cfaug.lance.stress import Stress
from cfaug.report.items import Items, read_items, write_items
from tests.evaluation.caption_items import choices, open_sets, world_pairs
from tests.evaluation.joined import joined_sets
from tests.evaluation.questions import Drawn, image, opened, rows
from tests.lance.test_stress import opener


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return open_sets(world_pairs(14), tmp_path_factory.mktemp("pairs"))


def cells_of(benchmark, evaluation, folder):
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
    benchmark = PairMatching(name="p").ask(pairs)
    cells, items = cells_of(benchmark, benchmark.run(encoder), tmp_path)
    check_words(cells, world_pairs(14))
    for name, delta, control in zip(cells.names, cells.delta, cells.control, strict=True):
        score = items[name]
        assert delta == (score["text 1 image 1"] <= score["text 0 image 1"])
        assert control == (score["text 0 image 0"] <= score["text 1 image 0"])


def test_retrieval_compares_an_edited_row_with_the_first_of_its_set(pairs, encoder, tmp_path):
    benchmark = Retrieval(name="r").ask(pairs)
    cells, items = cells_of(benchmark, benchmark.run(encoder), tmp_path)
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
    benchmark = Matching(name="m").ask(pairs, pairs)
    cells, items = cells_of(benchmark, benchmark.run(matcher), tmp_path)
    check_words(cells, world_pairs(14))
    for name, delta, control in zip(cells.names, cells.delta, cells.control, strict=True):
        hits = items[name]
        assert delta == 1 - (hits["IR_c"] + hits["TR_c"]) / 2
        assert control == 1 - (hits["IR_r"] + hits["TR_r"]) / 2
    alone = Matching(name="m").ask(pairs, None)
    with pytest.raises(UserError, match=r"benchmark\.real=FOLDER"):
        alone.failure_cells(Items("b", "w", "d", alone.run(matcher).items))


def test_choice_compares_with_an_item_of_another_cell(encoder, tmp_path):
    index = open_sets(choices(), tmp_path)
    benchmark = CaptionChoice(name="c", blind=None).ask(index)
    cells, items = cells_of(benchmark, benchmark.run(encoder), tmp_path)
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
    cells, items = cells_of(benchmark, benchmark.run(Drawn()), tmp_path)
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
    cells, items = cells_of(benchmark, benchmark.run(classifier), tmp_path)
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
