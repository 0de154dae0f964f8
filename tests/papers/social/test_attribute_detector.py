"""Attributes told apart by prompts: against one image and prompt at a time."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from cfaug.annotation.record import read_human_answers
from cfaug.core.errors import UserError
from cfaug.core.protocols import Benchmark
from cfaug.data.index import open_index
from cfaug.evaluation.context import EvaluationContext
from cfaug.papers.social.attribute_detector import AttributeDetector
from cfaug.papers.social.grid_sets import read_grid_sets
from tests.evaluation.drawn_questions import rows
from tests.evaluation.twin import Twin
from tests.grid_sets import RACE_GENDER, every_grid_set, grid_set, lay_grid_sets

COLOURS = {"colour": ("red", "orange"), "background": ("on the beach", "in the snow")}
ANSWERS = {"good": "asked", "unclear": "left_out", "not_female": "male"}


@pytest.fixture(scope="module")
def sets():
    shapes = {"attributes": COLOURS, "grid": "colour_background", "subject_type": "shape"}
    return [*every_grid_set(("doctor", "engineer"), sets=1), grid_set("ball", **shapes)]


@pytest.fixture(scope="module")
def index(tmp_path_factory, sets):
    root = tmp_path_factory.mktemp("sets")
    return open_index(lay_grid_sets(root / "sets", sets), root / "index")


@pytest.fixture(scope="module")
def grid_sets(index):
    return read_grid_sets(index)


def test_every_image_is_taken_for_the_value_of_the_nearest_prompt(sets, grid_sets, people_encoder):
    asked = AttributeDetector(name="x").use(grid_sets)
    assert isinstance(asked, Benchmark)
    evaluation = asked.run(people_encoder)
    items, twin = rows(evaluation), Twin(people_encoder)
    assert len(items) == 24  # of the grid with genders only
    texts = {value: twin.text(f"A {value} person") for value in RACE_GENDER["gender"]}
    hits = []
    for counterfactual in sets[:4]:
        for place, member in enumerate(counterfactual.members):
            image = twin.image(counterfactual.images[member.image_name])
            scores = {value: float(image @ text) for value, text in texts.items()}
            item = items[f"{counterfactual.key}_{place}"]
            asked_for = member.extra["attributes"]["gender"]
            assert item["asked"] == item["truth"] == asked_for
            assert item["cluster"] == counterfactual.key
            assert item["label"] == " ".join(member.extra["attributes"].values())
            assert json.loads(item["scores"]) == pytest.approx(scores, abs=1e-5)
            assert item["predicted"] == max(scores, key=scores.__getitem__)
            hits.append(item["predicted"] == asked_for)
            assert item["accuracy"] == hits[-1]
            other = next(value for name, value in scores.items() if name != asked_for)
            assert item["margin"] == pytest.approx(scores[asked_for] - other, abs=1e-5)
    assert len({item["predicted"] for item in items.values()}) == 2, "the model tells nothing apart"
    values = {(o.metric, *sorted(o.by.items())): o.value for o in evaluation.outcomes}
    assert values["accuracy",] == pytest.approx(np.mean(hits))
    taken = [item["predicted"] for item in items.values()]
    truth = [item["truth"] for item in items.values()]
    for gender in RACE_GENDER["gender"]:
        right = sum(p == t == gender for p, t in zip(taken, truth, strict=True))
        recall = right / truth.count(gender)
        assert values["recall", ("value", gender)] == pytest.approx(recall)
        if taken.count(gender):
            precision = right / taken.count(gender)
            assert values["precision", ("value", gender)] == pytest.approx(precision)
        else:  # undefined, and not 0
            assert ("precision", ("value", gender)) not in values
    of_label = [i["accuracy"] for i in items.values() if i["label"] == "Black female"]
    by = (("grid", "race_gender"), ("label", "Black female"))
    assert values["accuracy", *by] == pytest.approx(np.mean(of_label))
    assert all(o.better == "higher" for o in evaluation.outcomes)


def test_own_prompts_and_prompts_with_the_subject(grid_sets, sets, people_encoder):
    twin = Twin(people_encoder)
    prompts = {"male": "a man", "female": ["a woman", "a lady"]}
    items = rows(AttributeDetector(name="x", prompts=prompts).use(grid_sets).run(people_encoder))
    doctor = sets[0]
    image = twin.image(doctor.images["0"])
    mean = (twin.text("a woman") + twin.text("a lady")) / 2
    scores = json.loads(items[f"{doctor.key}_0"]["scores"])
    assert scores["female"] == pytest.approx(float(image @ (mean / mean.norm())), abs=1e-5)
    assert scores["male"] == pytest.approx(float(image @ twin.text("a man")), abs=1e-5)
    node = AttributeDetector(name="x", attribute="colour", template="a {value} {subject}")
    items = rows(node.use(grid_sets).run(people_encoder))
    ball = sets[-1]
    assert len(items) == 4
    scores = json.loads(items[f"{ball.key}_2"]["scores"])
    wanted = float(twin.image(ball.images["2"]) @ twin.text("an orange ball"))
    assert scores["orange"] == pytest.approx(wanted, abs=1e-5)


def test_a_model_that_knows_no_prompt_says_nothing(grid_sets, encoder, people_encoder):
    with pytest.raises(UserError, match="no image is left: its prompts are equally similar"):
        AttributeDetector(name="x").use(grid_sets).run(encoder)
    same = {"male": "a man", "female": "a man"}
    with pytest.raises(UserError, match="equally similar"):
        AttributeDetector(name="x", prompts=same).use(grid_sets).run(people_encoder)
    shapes = AttributeDetector(name="x", attribute="colour", template="a {value} {subject}")
    items = shapes.use(grid_sets).run(encoder).items
    assert items["left_out"] == [None] * 4
    assert set(items["predicted"]) <= {"red", "orange"}


def lines(file, *answers):
    records = [
        {"key": key, "member": member, "annotator": str(who), "label": label}
        for key, member, who, label in answers
    ]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(file)


def test_what_people_see_is_the_truth(grid_sets, sets, people_encoder, tmp_path, capsys):
    key = sets[0].key
    said = [(key, 0, 1, "good"), (key, 1, 1, "not_female"), (key, 2, 1, "unclear"),
            (key, 3, 1, "good"), (key, 3, 2, "unclear"), (key, 4, 1, "good"),
            (key, 4, 2, "good"), (key, 4, 3, "unclear")]  # fmt: skip
    labels = lines(tmp_path / "labels.jsonl", *said)
    node = AttributeDetector(name="x", labels=labels, answers=ANSWERS)
    evaluation = node.use(grid_sets).run(people_encoder)
    items = rows(evaluation)
    truth = {name: item["truth"] for name, item in items.items() if item["truth"] is not None}
    assert truth == {f"{key}_0": "male", f"{key}_1": "male", f"{key}_4": "male"}
    assert items[f"{key}_2"]["left_out"] == "people said: unclear"
    assert items[f"{key}_3"]["left_out"] == "nobody said, or no majority"
    assert np.isnan(items[f"{key}_3"]["accuracy"])
    assert evaluation.outcomes[0].n == 3
    assert "21 images are left out" in capsys.readouterr().err
    again = AttributeDetector(name="x").use(grid_sets).data_hash
    assert node.use(grid_sets).data_hash != again
    every = lines(tmp_path / "b.jsonl", (key, 0, 1, "unclear"))
    with pytest.raises(UserError, match="no image is left"):
        replace(node, labels=every).use(grid_sets).run(people_encoder)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([("none", 0, 1, "good")], "has answers about 1 images that are not in"),
        ([("none", 0, 1, "fine")], "line 1: label='fine' is invalid: choose from good"),
        ([("none", 0, 1, "good")] * 2, "line 2: '1' is duplicated"),
        ([("none", 0, 1, "")], "lacks label"),
        ([], "has no answers"),
    ],
)
def test_answers_that_do_not_fit(grid_sets, tmp_path, answers, said):
    labels = lines(tmp_path / "labels.jsonl", *answers)
    with pytest.raises(UserError, match=said):
        AttributeDetector(name="x", labels=labels, answers=ANSWERS).use(grid_sets)


def test_a_majority_is_more_than_half(tmp_path):
    file = lines(tmp_path / "a.jsonl", ("a", 0, 1, "x"), ("a", 0, 2, "y"), ("b", 1, 1, "x"))
    read = read_human_answers(file, ("x", "y"))
    assert (dict(read.labels), read.disputed) == ({"b_1": "x"}, 1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"attribute": "age"}, "attribute=age is invalid: .* background, colour, gender, race"),
        ({"grids": ["religion_gender"]}, "'religion_gender' is missing in .*: choose from"),
        ({"grids": ["colour_background"]}, "attribute=gender is invalid"),
        ({"grids": []}, r"grids=\[\] is invalid: name some, or null for all"),
        ({"prompts": {"male": "a man"}}, "'female' has no prompt; gender has male, female"),
        ({"prompts": {"male": "a", "female": "b", "man": "c"}}, "'man' is not a value"),
        ({"prompts": {"male": "a man", "female": []}}, "prompt of 'female' is empty"),
        ({"labels": "x.jsonl"}, "answers is invalid, it is empty"),
        ({"labels": "x.jsonl", "answers": {"good": "boy"}}, "good is 'boy'"),
    ],
)
def test_settings_that_do_not_fit_the_sets(grid_sets, changes, said):
    with pytest.raises(UserError, match=said):
        AttributeDetector(name="x", **changes).use(grid_sets)


def test_it_opens_like_any_benchmark(index, tmp_path):
    with pytest.raises(UserError, match=r"\{value\} is missing"):
        AttributeDetector(template="A person")
    context = EvaluationContext(lambda _: index, has_world=False, held_out=lambda: None)
    (opened,) = AttributeDetector(str(tmp_path / "sets")).open(context)
    assert opened.name == "sets_attribute_detector"
    other = replace(AttributeDetector(str(tmp_path / "sets")), template="a {value}")
    assert other.open(context)[0].data_hash != opened.data_hash
