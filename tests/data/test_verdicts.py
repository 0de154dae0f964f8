"""Public sets of right and wrong texts in their layouts: never read as captions that are right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.sources.question_sets import read_questions
from tests.data.layouts import images, jsonl, parquet, table
from tests.data.making import noise_image
from tests.data.question_files import own_record, write_own


def foil(x: Path) -> None:
    """FOIL-COCO's file under the name of COCO's captions."""
    import json

    names = {i + 1: f"COCO_val2014_{i + 1:012d}.jpg" for i in range(2)}
    for i, name in names.items():
        (x / "val2014").mkdir(exist_ok=True)
        (x / "val2014" / name).write_bytes(noise_image(i, kind="JPEG"))
    (x / "annotations").mkdir()
    annotations = [
        {"image_id": i, "id": 10 * i + wrong, "foil_id": i, "foil": bool(wrong),
         "target_word": "bicycle" if wrong else "ORIG", "caption": f"a {word} by a wall"}
        for i in names for wrong, word in enumerate(("bicycle", "motorcycle"))
    ]  # fmt: skip
    photos = [{"id": i, "file_name": name} for i, name in names.items()]
    content = json.dumps({"images": photos, "annotations": annotations})
    (x / "annotations" / "captions_val2014.json").write_text(content)


def spatial_relations(x: Path) -> None:
    """VSR: ``label`` is 1 if the caption is right."""
    images(x / "images")
    rows = [
        {"image": f"{name}.png", "image_link": "http://a/b.jpg", "relation": "left of",
         "caption": f"The {name} is left of the dog.", "label": n % 2}
        for n, name in enumerate("abc")
    ]  # fmt: skip
    jsonl(x / "test.jsonl", rows)


def pope(x: Path) -> None:
    """POPE: the text is a question, ``label`` its answer."""
    images(x / "images")
    rows = [
        {"question_id": n, "image": f"{name}.png", "text": f"Is there a dog, {n}?",
         "label": ("yes", "no")[n % 2]}
        for n, name in enumerate("abc")
    ]  # fmt: skip
    jsonl(x / "coco_pope_random.jsonl", rows)


def hateful_memes(x: Path) -> None:
    """Hateful Memes: ``label`` is the class of the meme, ``text`` what is written on it."""
    images(x / "img")
    rows = [
        {"id": n, "img": f"img/{name}.png", "label": n % 2, "text": f"its their character, {n}"}
        for n, name in enumerate("abc")
    ]
    jsonl(x / "train.jsonl", rows)


def foils_in_a_table(x: Path) -> None:
    images(x / "images")
    rows = [(f"{name}.png", f"a {word} {name}", str(word == "cat"))
            for name in "abc" for word in ("dog", "cat")]  # fmt: skip
    table(x / "captions.csv", ["image", "caption", "is_foil"], rows)


def foil_beside_the_caption(x: Path) -> None:
    """A verdict in a column called as a wrong caption is."""
    images(x / "images")
    rows = [(f"{name}.png", f"a dog {name}", str(n % 2)) for n, name in enumerate("abc")]
    table(x / "captions.csv", ["image", "caption", "foil"], rows)


def matches_in_parquet(x: Path) -> None:
    cells = [{"bytes": noise_image(n), "path": None} for n in range(3)]
    texts = [f"a dog {n}" for n in range(3)]
    parquet(x / "test.parquet", {"image": cells, "caption": texts, "match": [True, False, True]})


@pytest.mark.parametrize(
    ("lay_out", "column"),
    [
        (foil, "foil"), (spatial_relations, "label"), (pope, "label"), (hateful_memes, "label"),
        (foils_in_a_table, "is_foil"), (foil_beside_the_caption, "negative"),
        (matches_in_parquet, "match"),
    ],
)  # fmt: skip
def test_wrong_captions_are_not_read_as_right_ones(tmp_path, lay_out: Callable, column):
    (tmp_path / "x").mkdir()
    lay_out(tmp_path / "x")
    with pytest.raises(UserError, match="which texts are right about their image") as caught:
        open_index(tmp_path / "x", tmp_path / "cache")
    assert repr(column) in str(caught.value)
    assert "neg_caption" in str(caught.value)


@pytest.mark.parametrize("values", ["1,1,1", "yes,yes,", "0,1,2", "dog,cat,dog"])
def test_other_values_are_kept(tmp_path, values):
    images(tmp_path / "x" / "images")
    rows = [(f"{n}.png", f"a dog {n}", v) for n, v in zip("abc", values.split(","), strict=True)]
    table(tmp_path / "x" / "captions.csv", ["image", "caption", "label"], rows)
    index = open_index(tmp_path / "x", tmp_path / "cache")
    assert [index.extra_row(row)["label"] for row in range(3)] == values.split(",")


def question(answer: object) -> dict:
    return {"q": "Which one?", "options": ["a dog", "a cat"], "answer": answer}


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ((2, 1), "no answer is 0.*count from 1"),
        (("B", "A"), "'answer' is 'B', which is not one of the options a dog, a cat"),
        (("(a)", "(b)"), "number of the right option, from 0"),
        (("1", "0"), "without quotes, or its text"),
    ],
)
def test_answers_from_1_and_letters_are_not_options(tmp_path, answers, said):
    basic, further = map(question, answers)
    file = write_own(tmp_path, [own_record(0, basic=basic, counterfactuals=[further])])
    with pytest.raises(UserError, match=said):
        read_questions(file)


def test_first_options_that_are_never_right_are_said(tmp_path, capsys):
    records = [own_record(n, basic=question(1), counterfactuals=[question(1)]) for n in range(6)]
    for record in records:
        for asked in (record["basic"], *record["counterfactuals"]):
            asked["options"] = ["a dog", "a cat", "a cow"]
    assert len(read_questions(write_own(tmp_path, records))) == 6
    assert "answer to none of 12 questions" in capsys.readouterr().err
