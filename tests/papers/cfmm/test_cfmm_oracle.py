"""What the oracle says: of readers who are known, by whether a condition changes the answer."""

from __future__ import annotations

import base64

import numpy as np
import pytest
import yaml

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.data.export import write_questions
from cfaug.data.questions import BASIC, COUNTERFACTUAL
from cfaug.evaluation.questions.question_items import (
    QuestionItems,
    QuestionRow,
    Reply,
    question_columns,
    reply_columns,
)
from cfaug.planning.build import build
from cfaug.report.arm_results import Runs
from cfaug.report.document import to_markdown
from cfaug.report.items import Items, write_items
from cfaug.stats.cluster_tests import cluster_mean
from cfaug.worlds.shapescapes.question_parts import CHANGES
from tests.files_of_settings import settings_file
from zoo.vlm_training import draw_images

FILE = settings_file("table/cfmm_oracle")
PAIRS = 12


def table(**changes):
    content = yaml.safe_load(FILE.read_text())
    assert content["image_roots"] == "${paths.image_roots}"
    return build(content | {"image_roots": []} | changes)


def rows_of(pairs: int = PAIRS) -> list[QuestionRow]:
    images = draw_images(5, "test-oracle", 0, pairs)
    return [QuestionRow(image, question) for image in images for question in image.questions]


def ignore(row: QuestionRow) -> int:
    """Answer as if nothing were supposed; the first option where that is none."""
    right = str(row.image.questions[0].right)
    return row.question.options.index(right) if right in row.question.options else 0


def know(row: QuestionRow) -> int:
    assert row.question.answer is not None
    return row.question.answer


def items_of(name: str, reader, pairs: int = PAIRS) -> Items:
    rows = rows_of(pairs)
    replies = [Reply(reader(row)) for row in rows]
    blind = [Reply(0) for _ in rows]
    columns = question_columns(rows) | reply_columns(rows, replies)
    columns |= reply_columns(rows, blind, "blind_") | {"left_out": [""] * len(rows)}
    return Items("own_vqa", f"weights of {name}", "data", columns)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Runs:
    root = tmp_path_factory.mktemp("runs")
    write_items(root / "weights" / "ignores" / "seed=0", items_of("ignores", ignore))
    write_items(root / "weights" / "knows" / "seed=0", items_of("knows", know))
    return Runs(root)


def cells(document, *labels: str) -> dict:
    [part] = document.parts
    return dict(zip(part.columns, dict(part.rows)[labels], strict=True))


def test_items_say_whether_a_condition_changes_the_answer():
    items = QuestionItems("x", items_of("x", know))
    for row, changed in zip(rows_of(), items.changed, strict=True):
        if row.question.kind == BASIC:
            assert np.isnan(changed)
        else:
            assert changed == row.question.extra[CHANGES]


def test_items_without_a_known_answer_say_nothing_of_its_change():
    items = items_of("x", know, 1)
    answers = [None, *items.columns["answer"][1:]]
    unknown = QuestionItems("x", Items("own_vqa", "", "", {**items.columns, "answer": answers}))
    known = [unknown.texts("kind")[row] for row in np.flatnonzero(~np.isnan(unknown.changed))]
    assert known == [COUNTERFACTUAL] * 4
    assert {unknown.keys[row] for row in np.flatnonzero(~np.isnan(unknown.changed))} == {
        unknown.keys[5]
    }


def test_who_ignores_conditions_is_told_from_who_knows(runs):
    document = table().build(runs)
    assert "knows, 0-shot: 100.0 % of counterfactual and 100.0 % of basic" in document.answer
    knows, ignores = (cells(document, name, "0-shot") for name in ("knows", "ignores"))
    for name in ("acc_b", "acc_c", "answer changes", "answer stays", "acc+"):
        assert knows[name].numbers["value"] == 1
    assert ignores["acc_b"].numbers["value"] == ignores["answer stays"].numbers["value"] == 1
    rows = [row for row in rows_of() if row.question.kind == COUNTERFACTUAL]
    right = {
        changes: np.mean([ignore(row) == row.question.answer for row in rows
                          if row.question.extra[CHANGES] is changes])
        for changes in (True, False)
    }  # fmt: skip
    assert ignores["answer changes"].numbers["value"] == pytest.approx(right[True])
    assert right[True] < 0.15 < right[False]
    assert ignores["acc+"].numbers["value"] == ignores["acc_c"].numbers["value"]
    by_rule = cells(document, "ignores the condition", "by rule")
    assert by_rule["answer stays"].numbers["value"] == 1
    assert by_rule["acc_c"].numbers["value"] == pytest.approx(
        ignores["acc_c"].numbers["value"], abs=0.1
    )
    blind = cells(document, "knows", "0-shot, without the image")
    assert blind["acc_b"].numbers["value"] == 0.5
    assert blind["phi"].text == "–"


def test_intervals_are_of_pairs_of_pictures(runs):
    cell = cells(table().build(runs), "ignores", "0-shot")["acc_c"]
    rows = [row for row in rows_of() if row.question.kind == COUNTERFACTUAL]
    values = [float(ignore(row) == row.question.answer) for row in rows]
    clusters = [row.image.group for row in rows]
    assert len(set(clusters)) == PAIRS
    drawn = cluster_mean(values, clusters)
    assert cell.small == f"[{100 * drawn.low:.1f}, {100 * drawn.high:.1f}]"


def test_checkpoints_of_a_model_are_one_row_with_a_spread(tmp_path):
    for seed, reader in enumerate((ignore, know)):
        write_items(tmp_path / "weights" / "two" / f"seed={seed}", items_of("two", reader))
    models = {"Two": "weights/two"}
    cell = cells(table(models=models).build(Runs(tmp_path)), "Two", "0-shot")["answer stays"]
    assert (cell.numbers["value"], cell.sub) == (1, "0.00")
    write_items(tmp_path / "weights" / "two" / "seed=2", items_of("two", know, PAIRS - 2))
    with pytest.raises(UserError, match="answered other questions"):
        table(models=models).build(Runs(tmp_path))


def test_the_picture_has_a_bar_by_category_and_condition(runs):
    document = table(models={"Ignores": "weights/ignores"}).build(runs)
    [bars] = document.bars
    assert list(bars.groups) == ["Count", "Color", "Size", "Shape", "Direction", "Common"]
    for group in bars.groups.values():
        values = {name: value for name, value, *_ in group}
        assert (values["basic"], values["answer stays"]) == (1, 1)
    assert bars.groups["Color"][1] == ("answer changes", 0, 0, 0)
    assert "ignores the condition" in to_markdown(document)


def test_pictures_stand_beside_what_was_answered(runs, tmp_path):
    images = draw_images(5, "test-oracle", 0, PAIRS)
    write_questions(images, tmp_path / "questions")
    file = str(tmp_path / "questions" / "questions.jsonl")
    document = table(questions=file, models={"Ignores": "weights/ignores"}).build(runs)
    assert len(document.pictures) == 6
    color = images[2]  # the second pair's first picture
    basic, *others = color.questions
    changed = next(question for question in others if question.extra[CHANGES])
    [picture] = [picture for picture in document.pictures if picture.caption.startswith(basic.text)]
    assert f"{basic.text} {basic.right}. Ignores: {basic.right}." in picture.caption
    assert f"{changed.text} {changed.right}. Ignores: {basic.right}." in picture.caption
    shown = decode_image(base64.b64decode(picture.png), "the picture")
    assert color.image is not None
    assert shown.tobytes() == decode_image(color.image.read(), "the image").tobytes()
