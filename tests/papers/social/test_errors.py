"""Tables 1 to 3: what people said of hand-laid images, beside what the paper prints."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cfaug.annotation.assignment import items_of
from cfaug.annotation.findings import Findings, count_strata
from cfaug.annotation.record import FILE, Sorting, illustrate, record_of, write_record
from cfaug.annotation.records import Answer
from cfaug.annotation.strata import ILLUSTRATIONS, STRATA
from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.document import to_markdown
from cfaug.report.items import Items, write_items
from cfaug.report.page import DASH
from tests.annotation.making import WHY
from tests.grid_sets import grid_set, lay_grid_sets
from tests.paper_tables import table
from tests.papers.social.questions import ERRORS

SAID = ("good", "not_female", "good", "good", "not_male", "good",
        "good", "not_female", "unclear", "out_of_frame", "good", "good")  # fmt: skip
"""Of two sets of three races and two genders."""


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A folder of runs in which answers were read."""
    root = tmp_path_factory.mktemp("runs")
    sets = lay_grid_sets(root / "sets", [grid_set("doctor"), grid_set("nurse")])
    index = open_index(sets, root / "index")
    items = items_of(index, ERRORS)
    answers = [Answer(i, "1", label) for i, label in enumerate(SAID)]
    findings = Findings(ERRORS, items, [*answers, Answer(0, "2", "unclear")])
    sections = [count_strata(findings, ERRORS.strata), illustrate(findings, index.read_image)]
    write_record(
        record_of(findings, Sorting(WHY), "sets", index.read_image, sections), root / "annotation"
    )
    return root


def parts(root: Path, name: str):
    document = table(name).build(Runs(root))
    theirs, ours = document.parts
    assert (theirs.ours, ours.ours) == (False, True)
    return document, theirs, ours


def test_table_1_counts_an_image_once(root):
    document, theirs, ours = parts(root, "social_1")
    assert [(labels[0], cells[0].text) for labels, cells in theirs.rows] == [
        ("Good", "90.8%"), ("Cannot discern gender", "5.2%"),
        ("Failure to generate female subject", "2.2%"),
        ("Subject completely out of frame/focus", "1.0%"),
        ("Failure to generate male subject", "0.8%"),
    ]  # fmt: skip
    counts = {labels[0]: cells[1].text for labels, cells in ours.rows}
    assert counts == {
        "Good": "6.5", "Cannot discern gender": "1.5", "Failure to generate female subject": "2",
        "Subject completely out of frame/focus": "1", "Failure to generate male subject": "1",
    }  # fmt: skip
    assert ours.rows[0][1][0].text == f"{100 * 6.5 / 12:.1f}%"
    assert "13 answers to 12 images" in ours.notes[0]
    assert document.notes == ()


def test_table_2_shows_an_image_of_every_failure(root):
    document, theirs, ours = parts(root, "social_2")
    assert [labels[0] for labels, _ in theirs.rows] == list(
        dict.fromkeys(labels[0] for labels, _ in ours.rows)
    )
    assert [labels for labels, _ in ours.rows][1] in [
        ("Failure to generate female subject", "A photo of a White female doctor",
         "a_photo_of_race_gender_doctor-0"),
        ("Failure to generate female subject", "A photo of a White female nurse",
         "a_photo_of_race_gender_nurse-0"),
    ]  # fmt: skip
    assert len(document.pictures) == len(ours.rows) == 5
    assert all(picture.png for picture in document.pictures)


def test_table_3_is_of_the_images_that_can_fail_so(root):
    _, theirs, ours = parts(root, "social_3")
    assert theirs.columns == ("White", "Black", "Indian", "Asian", "Middle Eastern", "Latino")
    assert [cell.text for cell in theirs.rows[0][1]] == ["3%", "4%", "1%", "2%", "12%", "5%"]
    assert ours.columns == ("White", "Black", "Latino")
    shares = {labels[0]: [c.text for c in cells] for labels, cells in ours.rows}
    assert shares == {
        "Failure to generate female subject": ["100.0%", "0.0%", "0.0%"],
        "Failure to generate male subject": ["0.0%", "0.0%", "50.0%"],
    }
    assert ours.rows[1][1][2].numbers == {"value": 0.5, "n": 2}
    by_gender = table("social_3", by="gender").build(Runs(root)).parts[1]
    assert [cell.text for cell in by_gender.rows[0][1]] == [DASH, "33.3%"]
    with pytest.raises(UserError, match=r"table.by=age: .*race, gender"):
        table("social_3", by="age").build(Runs(root))


def test_other_answers_have_rows_of_their_own(tmp_path):
    sets = lay_grid_sets(tmp_path / "sets", [grid_set("doctor")])
    index = open_index(sets, tmp_path / "index")
    options = {**ERRORS.options, "not_race": "Another race"}
    asked = replace(ERRORS, options=options, reported=(*ERRORS.reported, "not_race"))
    findings = Findings(asked, items_of(index, asked), [Answer(0, "1", "not_race")])
    sections = [count_strata(findings, asked.strata)]
    write_record(
        record_of(findings, Sorting(WHY), "s", index.read_image, sections), tmp_path / "annotation"
    )
    ours = table("social_1").build(Runs(tmp_path)).parts[1]
    assert (ours.rows[-1][0], ours.rows[-1][1][0].text) == (("not_race",), "100.0%")


# Table 4: precision, recall and F1 of a model's answers, beside the paper's.

TRUTH = ("male", "male", None, "female", "female", "female")
TAKEN = ("male", "female", "male", "female", "female", "male")


def items(name: str, taken=TAKEN) -> Items:
    columns = {
        "item": [f"{n}" for n in range(6)], "cluster": ["set"] * 6, "truth": list(TRUTH),
        "asked": ["male", "male", "female", "female", "female", "female"],
        "predicted": list(taken), "accuracy": np.ones(6),
        "left_out": [None if value else "people said: unclear" for value in TRUTH],
    }  # fmt: skip
    return Items(name, "w", "d", columns)


def test_table_4_has_the_papers_layout(tmp_path):
    write_items(tmp_path / "weights/a/seed=0", items("sets_attribute_detector"))
    document = table("social_4").build(Runs(tmp_path))
    theirs, ours, taken = document.parts
    assert [(labels[0], *(c.text for c in cells)) for labels, cells in theirs.rows] == [
        ("male", "0.99", "0.95", "0.97", "549"), ("female", "0.96", "0.99", "0.97", "589"),
    ]  # fmt: skip
    assert theirs.columns == ours.columns
    assert [(labels[0], *(c.text for c in cells)) for labels, cells in ours.rows] == [
        ("male", "0.50", "0.50", "0.50", "2"), ("female", "0.67", "0.67", "0.67", "3"),
    ]  # fmt: skip
    assert ours.notes == ("5 images; 1 more are left out.",)
    assert [[c.text for c in cells] for _, cells in taken.rows] == [["1", "1"], ["1", "2"]]
    assert "0.99" in to_markdown(document)


def test_checkpoints_are_averaged_and_what_is_undefined_is_no_zero(tmp_path):
    never = ["female"] * 6
    write_items(tmp_path / "weights/a/seed=0", items("sets_attribute_detector"))
    write_items(tmp_path / "weights/a/seed=1", items("sets_attribute_detector", never))
    document = table("social_4", models={"A": "weights/a"}).build(Runs(tmp_path))
    male = document.parts[1].rows[0][1]
    assert male[0].text == "0.50"  # of the one that took any for male
    assert (male[1].text, male[1].sub) == ("0.25", "0.35")


def test_another_record_than_the_questions_is_refused(root, tmp_path):
    with pytest.raises(UserError, match="choose from categories, examples, strata"):
        table("social_1", shows="all")
    content = json.loads((root / "annotation" / FILE).read_text())
    folder = tmp_path / "annotation"
    folder.mkdir()

    def written(**changes):
        (folder / FILE).write_text(json.dumps({**content, **changes}))
        return Runs(tmp_path)

    other = [{**tally, "counts": {"yes": 1.0}} for tally in content["tallies"]]
    with pytest.raises(MissingError, match="answers to another question"):
        table("social_1").build(written(tallies=other))
    with pytest.raises(UserError, match="is not what cfaug annotate read writes of this question"):
        table("social_2").build(written(**{ILLUSTRATIONS: [{"key": 1}]}))
    with pytest.raises(UserError, match="is not what cfaug annotate read writes of this question"):
        table("social_3").build(written(**{STRATA: {"offered": [], "tallies": [1]}}))
