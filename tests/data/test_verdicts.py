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


def list_of_photos(file: Path, row: Callable[[int, str], dict[str, object]]) -> None:
    """Write a line for each of three photos: ``row`` gets its number and its name."""
    jsonl(file, [row(n, name) for n, name in enumerate(("a.png", "b.png", "c.png"))])


def spatial_relations(x: Path) -> None:
    """VSR: ``label`` is 1 if the caption is right."""
    images(x / "images")
    about = {"image_link": "http://a/b.jpg", "relation": "left of"}
    list_of_photos(x / "test.jsonl", lambda n, name: {
        "image": name, **about, "caption": f"The {name[0]} is left of the dog.", "label": n % 2,
    })  # fmt: skip


def pope(x: Path) -> None:
    """POPE: the text is a question, ``label`` its answer."""
    images(x / "images")
    list_of_photos(x / "coco_pope_random.jsonl", lambda n, name: {
        "question_id": n, "image": name, "text": f"Is there a dog, {n}?",
        "label": ("yes", "no")[n % 2],
    })  # fmt: skip


def hateful_memes(x: Path) -> None:
    """Hateful Memes: ``label`` is the class of the meme, ``text`` what is written on it."""
    images(x / "img")
    list_of_photos(x / "train.jsonl", lambda n, name: {
        "id": n, "img": f"img/{name}", "label": n % 2, "text": f"its their character, {n}",
    })  # fmt: skip


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


@pytest.mark.parametrize("columns", [("text", "premise"), ("sentence", ""), ("text", "id")])
def test_hypotheses_are_not_read_as_captions(tmp_path, columns):
    """SNLI-VE and e-SNLI-VE in tables: contradictions are there beside what follows."""
    images(tmp_path / "x")
    text, other = columns
    rows = [
        {"image": f"{name}.png", text: f"{name} is out", "gold_label": label, other: "Two men"}
        for name, label in zip("abc", ("entailment", "contradiction", "-"), strict=True)
    ]
    jsonl(tmp_path / "x" / "ve.jsonl", rows)
    with pytest.raises(UserError, match="'gold_label' is entailment in 1 rows, contradiction"):
        open_index(tmp_path / "x", tmp_path / "cache")


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("verdict", "SUPPORTS,REFUTES,NOT ENOUGH INFO"), ("pair", "match,mismatch,match"),
        ("gold_label", "e,n,c"), ("falsified", "True,False,True"),
        ("gold_label", "contradiction,contradiction,-"),
    ],
)  # fmt: skip
def test_other_words_of_a_verdict_are_refused(tmp_path, column, values):
    images(tmp_path / "x")
    rows = [(f"{n}.png", f"{n} is out", v) for n, v in zip("abc", values.split(","), strict=True)]
    table(tmp_path / "x" / "captions.csv", ["image", "caption", column], rows)
    with pytest.raises(UserError, match=f"'{column}' is .* would be read as a right caption"):
        open_index(tmp_path / "x", tmp_path / "cache")


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("mood", "neutral,neutral,neutral", ""), ("letter", "e,n,c", ""),
        ("gold_label", "entailment,entailment,-", ""), ("lang", "en,en,en", ""),
        ("lang", "en,de,en", "texts are of 2 languages (en in 2 rows, de in 1 rows)"),
    ],
)  # fmt: skip
def test_words_that_are_no_verdict_are_kept(tmp_path, column, values, said):
    images(tmp_path / "x")
    rows = [(f"{n}.png", f"{n} is out", v) for n, v in zip("abc", values.split(","), strict=True)]
    table(tmp_path / "x" / "captions.csv", ["image", "caption", column], rows)
    notes = notes_on(tmp_path / "x")
    assert said in notes
    assert bool(said) == bool(notes)


def test_a_premise_that_is_not_read_is_said(tmp_path):
    images(tmp_path / "x")
    rows = [(f"{name}.png", f"{name} is out", "Two men", str(n)) for n, name in enumerate("abc")]
    table(tmp_path / "x" / "captions.csv", ["image", "caption", "premise", "label"], rows)
    assert "premise is not read" in notes_on(tmp_path / "x")


def notes_on(folder: Path) -> str:
    reading = open_index(folder, folder.parent / "cache").reading
    assert reading is not None
    return " ".join((*reading.notes, *reading.left_out))


def test_classes_without_names_are_said_to_be_no_verdict(tmp_path):
    """VSR and Hateful Memes on the Hub, where the classes may also be what is wanted."""
    cells = [{"bytes": noise_image(n), "path": None} for n in range(3)]
    texts = [f"a dog {n}" for n in range(3)]
    parquet(tmp_path / "x" / "a.parquet", {"image": cells, "caption": texts, "label": [0, 1, 0]})
    assert "1 captions are of class 1 and 2 of class 0" in notes_on(tmp_path / "x")


def test_questions_with_their_answers_are_no_captions(tmp_path):
    """MME: NAME.txt beside NAME.jpg has two questions, each with yes or no."""
    images(tmp_path / "x")
    for name in "abc":
        (tmp_path / "x" / f"{name}.txt").write_text(
            f"Is there a dog in {name}? Please answer yes or no.\tYes\n"
            f"Is there a cat in {name}? Please answer yes or no.\tNo\n"
        )
    with pytest.raises(UserError, match="6 of 6 captions are questions with their answers"):
        open_index(tmp_path / "x", tmp_path / "cache")


def test_questions_are_said(tmp_path):
    """LLaVA's lists of questions: ``text`` is one."""
    images(tmp_path / "x" / "images")
    rows = [{"question_id": n, "image": f"{n}.png", "text": f"What is {n}?"} for n in "abc"]
    jsonl(tmp_path / "x" / "questions.jsonl", rows)
    assert "3 of 3 captions are questions" in notes_on(tmp_path / "x")


def test_pairs_of_equal_photos_are_left_out_and_counted(tmp_path):
    cells = [{"bytes": noise_image(n), "path": None} for n in (0, 1, 2, 0, 3, 4)]
    columns = {"id": [0, 1, 2], "image_0": cells[:3], "image_1": cells[3:], "tag": [""] * 3,
               "caption_0": ["a b", "c d", "e f"], "caption_1": ["b a", "d c", "f e"],
               "secondary_tag": [""] * 3, "collapsed_tag": ["Object"] * 3}  # fmt: skip
    parquet(tmp_path / "x" / "data" / "test.parquet", columns)
    assert len(open_index(tmp_path / "x", tmp_path / "cache")) == 4
    assert "1 items whose two photos are equal" in notes_on(tmp_path / "x")


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
