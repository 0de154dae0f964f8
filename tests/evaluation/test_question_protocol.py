"""Prompts as models receive them: wordings, solved examples, chains of thought."""

from __future__ import annotations

import json

import pytest
import yaml

from cfaug.core.answers import Answered
from cfaug.core.errors import UserError
from cfaug.editing.edit_prompts import SHIPPED_WORDINGS, fill, read_wording
from tests.evaluation.drawn_questions import Drawn, Picture, Writer, image, opened, rows

IMAGES = [image(n) for n in range(4)]
COUNT = {"question": "How many?", "answer": "2", "rationale": "I see two.", "options": ["2", "3"]}
COLOR = {"question": "Which color?", "answer": "blue", "rationale": "It is.", "options": ["blue"]}


@pytest.fixture
def solved(tmp_path):
    """Write examples, of which the one about counts shows the first image, and return the file."""

    def write(**categories):
        (tmp_path / "two.png").write_bytes(IMAGES[0].image.content)
        file = tmp_path / "solved.yaml"
        file.write_text(yaml.safe_dump(categories))
        return str(file)

    return write


def asked(model, images=IMAGES, **settings):
    evaluation = opened(images, prior=False, **settings).run(model)
    return evaluation, rows(evaluation), {question.text: question for question in model.questions}


def test_the_plain_wording_is_the_question_alone():
    model = Drawn()
    asked(model, blind=False)
    assert [question.text for question in model.questions] == [
        q.text for entry in IMAGES for q in entry.questions
    ]
    assert not any(question.demonstrations or question.opening for question in model.questions)


def test_options_are_shown_in_an_order_that_is_drawn_by_question():
    shown = {}
    for seed in (0, 1, 0):
        model = Drawn()
        evaluation, items, _ = asked(
            model, blind=False, wording="listed", option_order="shuffled", order_seed=seed
        )
        lines = [question.text.splitlines()[1] for question in model.questions]
        for line, row in zip(lines, items.values(), strict=True):
            offered = line.removeprefix("Options: ").removesuffix(".").split(", ")
            assert sorted(offered) == sorted(json.loads(row["options"]))
        assert shown.setdefault(seed, (lines, evaluation.outcomes)) == (lines, evaluation.outcomes)
    assert shown[0][0] != shown[1][0]
    asked(model := Drawn(), blind=False, wording="listed")
    assert model.questions[0].text.endswith("Options: 2, 3, 12.")
    hashes = [
        opened(IMAGES, wording="listed", option_order=order, order_seed=seed).data_hash
        for order, seed in (("given", 0), ("given", 1), ("shuffled", 0), ("shuffled", 1))
    ]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3


def test_an_example_stands_before_its_categorys_questions_and_its_image_is_not_asked(solved):
    file = solved(count=[{**COUNT, "image": "two.png"}], any=[COLOR])
    evaluation, items, texts = asked(model := Drawn(), demonstrations=file, shots=1)
    assert evaluation.outcomes[0].benchmark == "asked_vqa_icl"
    assert {n for n, row in items.items() if row["left_out"]} == {
        f"i0/{q.id}" for q in IMAGES[0].questions
    }
    assert items["i0/basic"]["left_out"] == "demonstration"
    for question in model.questions:
        (example,) = question.demonstrations
        about_count = int(question.text.split(" of ")[1][0]) % 2 == 1
        assert (example.question, example.answer) == (
            ("How many?", "2") if about_count else ("Which color?", "blue")
        )
    seen = [
        question for question in model.questions if question.demonstrations[0].image is not None
    ]
    assert len(seen) == 10  # those about counts, with their image; blind ones have none
    unshown, _, _ = asked(Drawn(), demonstrations=file)
    assert unshown.outcomes[0].benchmark == "asked_vqa"
    left = [outcome.value for outcome in unshown.outcomes if outcome.metric == "questions_left_out"]
    assert left == [5]
    assert texts


def test_thoughts_are_shown_or_written_before_the_options(solved):
    file = solved(any=[COUNT])
    asked(drawn := Drawn(), demonstrations=file, shots=1, chain_of_thought="one_stage")
    assert {q.demonstrations[0].answer for q in drawn.questions} == {"I see two. Answer: 2"}
    assert {q.opening for q in drawn.questions} == {""}

    class Thinking(Writer):
        @staticmethod
        def said(question):
            if question.text.startswith("If 1"):
                return "Answer: 2"
            return f"Of {question.text[3]}. Answer: 2 Answer: 3"

        def write(self, images, questions, max_new_tokens):
            texts = super().write(images, questions, max_new_tokens)
            whole = zip(questions, texts, strict=True)
            return [
                Answered(left_out="context") if " of 12 " in question.text else text
                for question, text in whole
            ]

    model = Thinking()
    long = image(12, group="long")
    evaluation, items, _ = asked(
        model, [*IMAGES, long], demonstrations=file, shots=1, chain_of_thought="two_stage",
        batch_size=100,
    )  # fmt: skip
    ranked = [question for question in model.questions if question.opening]
    for question in ranked:
        assert question.opening == f"Of {question.text[3]}. Answer:"
        assert question.text.endswith("\nExplain your reasoning, then give the answer.")
    reasons = {name: row["left_out"] for name, row in items.items()}
    assert {reason for name, reason in reasons.items() if name.endswith("c1")} == {
        "rationale",
        "context",
    }
    assert {reason for name, reason in reasons.items() if name.startswith("i12/")} == {"context"}
    assert items["i0/basic"]["rationale"] == "Of 0. Answer: 2 Answer: 3"
    assert items["i12/basic"]["rationale"] is None
    assert evaluation.outcomes[0].benchmark == "asked_vqa_cot"


def test_a_written_answer_behind_a_shown_thought_is_what_follows_the_marker(solved):
    class Thinking(Writer):
        @staticmethod
        def said(question):
            return "2" if question.text.startswith("If 0") else "3 minus one. Answer: 2"

    _, items, _ = asked(
        Thinking(), IMAGES[:1], demonstrations=solved(any=[COUNT]), shots=1, protocol="write",
        chain_of_thought="one_stage",
    )  # fmt: skip
    assert items["i0/basic"]["unparsed"] == 1
    assert items["i0/c1"]["chosen"] == "2"


@pytest.mark.parametrize(
    ("content", "settings", "said"),
    [
        ({"count": [COUNT]}, {}, "'color' has 0 examples, and benchmark.shots=1"),
        ({"any": [COUNT]}, {"shots": 2}, "has 1 examples, and benchmark.shots=2"),
        ({"any": [{**COUNT, "answer": 2}]}, {}, "quotation marks"),
        ({"any": [{**COUNT, "answer": "4"}]}, {}, "not one of its options"),
        ({"any": [{**COUNT, "rationale": ""}]}, {"chain_of_thought": "one_stage"}, "a rationale"),
        ({"any": [{"question": "a", "answer": "b"}]}, {"wording": "listed"}, "lacks the options"),
        ({"any": [{**COUNT, "image": "../a.png"}]}, {}, "outside"),
        ({"any": [{**COUNT, "image": "a.png"}]}, {}, r"a\.png cannot be read"),
        ({"any": [{**COUNT, "key": "nothing"}]}, {}, "no image 'nothing'"),
        ({"any": [{**COUNT, "key": "i0", "image": "two.png"}]}, {}, "choose one"),
        ({"any": [{**COUNT, "photo": "a.png"}]}, {}, "and no other"),
        ({"any": COUNT}, {}, "a list of examples"),
        ({"any": [{**COUNT, "options": "2"}]}, {}, "list of texts"),
    ],
)
def test_an_example_that_cannot_be_shown_is_named(solved, content, settings, said):
    with pytest.raises(UserError, match=said):
        asked(Drawn(), demonstrations=solved(**content), **{"shots": 1, **settings})


def test_an_example_may_name_an_image_of_the_set(solved):
    _, items, _ = asked(Drawn(), demonstrations=solved(any=[{**COUNT, "key": "i2"}]), shots=1)
    assert {name[:2] for name, row in items.items() if row["left_out"]} == {"i2"}
    twin = image(9, image=Picture(IMAGES[2].image.content))
    file = solved(any=[{**COUNT, "key": "i2"}])
    _, items, _ = asked(Drawn(), [*IMAGES, twin], demonstrations=file)
    assert {name[:2] for name, row in items.items() if row["left_out"]} == {"i2", "i9"}


def test_a_wording_is_shipped_or_a_file_that_is_checked(tmp_path):
    for name in SHIPPED_WORDINGS:
        assert "{question}" in read_wording(name).question
    whole = {"question": "Q: {question}", "written": "{question} {options}",
             "rationale": "{question}", "marker": "A:", "prior": "A:"}  # fmt: skip
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump(whole))
    asked(model := Drawn(), IMAGES[:1], wording=str(file), blind=False)
    assert model.questions[0].text.startswith("Q: If 0")
    for changes, said in (
        ({"question": "Q"}, "needs {question} exactly once"),
        ({"prior": "{question}"}, "may not have the placeholder {question}"),
        ({"rationale": "{question} {image}"}, "may not have the placeholder {image}"),
        ({"marker": ""}, "should be a text"),
        ({"more": "a"}, "and no other"),
    ):
        file.write_text(yaml.safe_dump({**whole, **changes}))
        with pytest.raises(UserError, match=said):
            read_wording(str(file))
    file.write_text("a: [")
    with pytest.raises(UserError, match="not valid YAML"):
        read_wording(str(file))
    with pytest.raises(UserError, match="choose plain, short, listed"):
        read_wording("nothing")
    assert fill("{options}: {question}", "{options}?", ["a", "b"]) == "a, b: {options}?"
