from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cfaug.cfmm.question_writing import (
    FEW,
    NO_QUESTIONS,
    NOT_NEEDED,
    QuestionExpansion,
    QuestionRequest,
    QuestionWriter,
    WrittenQuestion,
    WrittenQuestions,
)
from cfaug.core.errors import UserError
from cfaug.core.questions import (
    QUESTION,
    QUESTIONS,
    AskedImage,
    AskedQuestion,
    details_of,
    example_of,
    question_of,
)
from cfaug.core.types import Edited, Example, SourceImage

BASIC = AskedQuestion("basic", "basic", "How many <count> dogs are there?", ("2", "3"), 0)
FIRST = AskedQuestion(
    "c1", "counterfactual", "If one dog left, how many dogs would there be?", ("4", "1"), 1,
    {"presupposition": "one dog left", "source": "human", "verified": True},
)  # fmt: skip


def example(key: str = "a") -> Example:
    return example_of(AskedImage(key, "photo", None, "count", (BASIC, FIRST)))


def written(number: int, **changes: str) -> WrittenQuestion:
    found = {
        "text": f"If {number} dogs came, how many would there be?",
        "presupposition": f"{number} dogs came",
        "right": str(number + 2),
        "wrong": "99",
    }
    return WrittenQuestion(**found | changes)


GOOD = tuple(written(i) for i in (3, 4, 5, 6))


@dataclass
class Writer:
    """Answers with what it was given, whatever it is asked."""

    questions: tuple[WrittenQuestion, ...] = GOOD
    problem: str = ""
    asked: list[QuestionRequest] = field(default_factory=list)

    def write(self, requests: Sequence[QuestionRequest]) -> list[WrittenQuestions]:
        self.asked += requests
        extra = {"answer": "..."} if self.problem else {}
        return [WrittenQuestions(self.questions, self.problem, extra) for _ in requests]

    def describe(self) -> dict[str, str]:
        return {"question_writer": "a list"}


def expand(*questions: WrittenQuestion, count: int = 3) -> Edited:
    return QuestionExpansion(Writer(questions), count=count).edit([example()])[0]


def reasons(edited: Edited) -> list[str]:
    return [one.reason for one in edited.rejected]


def test_new_questions_follow_those_that_are_there() -> None:
    writer = Writer()
    assert isinstance(writer, QuestionWriter)
    (edited,) = QuestionExpansion(writer).edit([example()])
    (proposal,) = edited.proposals
    assert proposal.texts == (BASIC.text, FIRST.text, *(one.text for one in GOOD[:3]))
    assert [one[QUESTION] for one in proposal.details[:2]] == [details_of(BASIC), details_of(FIRST)]
    assert [one and (one.kind, one.after) for one in proposal.edits] == [
        None, *(("counterfactual", said) for said in
                ("one dog left", "3 dogs came", "4 dogs came", "5 dogs came")),
    ]  # fmt: skip
    new = [
        question_of(text, one[QUESTION], "here")
        for text, one in zip(proposal.texts[2:], proposal.details[2:], strict=True)
    ]
    assert [one.id for one in new] == ["c2", "c3", "c4"]
    assert [one.right for one in new] == ["5", "6", "7"]
    assert all(one.extra["source"] == "llm" and one.extra["verified"] is False for one in new)
    assert all(one[QUESTIONS] is None for one in proposal.details)
    assert edited.survivors == {"written": 4, "valid": 4, "enough": 1}
    assert reasons(edited) == [NOT_NEEDED]


def test_a_writer_is_told_the_questions_once() -> None:
    writer = Writer()
    QuestionExpansion(writer, ask_for=7, prompt="expand").edit([example("a"), example("b")])
    first, second = writer.asked
    # What a question says is never taken for a place of the prompt.
    assert "- How many <count> dogs are there? (right answer: 2)" in first.prompt
    assert "- If one dog left, how many dogs would there be? (right answer: 1)" in first.prompt
    assert "Kind of question: count" in first.prompt
    assert "Write 7 further" in first.prompt
    assert first.count == 7
    assert first.seed != second.seed


@pytest.mark.parametrize(
    ("category", "said"),
    [
        ("count", "should be as certain as possible."),
        ("Size", "clear answers based on the information in the provided image.\n"),
        ("common", "world knowledge and common sense."),
    ],
)
def test_the_printed_prompts_differ_by_category(category: str, said: str) -> None:
    writer = Writer()
    one = example()
    of_kind = replace(one, extra={**one.extra, "category": category})
    QuestionExpansion(writer).edit([of_kind])
    prompt = writer.asked[0].prompt
    assert said in prompt
    assert "generate 5 new counterfactual questions" in prompt
    assert f"category: {category}\n" in prompt
    assert "- How many <count> dogs are there? (right answer: 2)" in prompt


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"text": "If it were blue, what colour is it?", "right": "blue"},
         "answer in the condition"),
        ({"presupposition": "it were 77", "right": "77"}, "answer in the condition"),
        ({"text": "How many dogs are there?"}, "condition missing"),
        ({"wrong": "5"}, "equal options"),
        ({"right": "Five", "wrong": "five"}, "options differ in case or space only"),
        ({"text": FIRST.text.upper()}, "duplicated question"),
        ({"text": GOOD[1].text}, "duplicated question"),
        ({"text": "If " + "very " * 60 + "big, who?"}, "too long"),
    ],
)  # fmt: skip
def test_a_question_that_is_not_valid_is_kept_with_its_reason(
    changes: dict[str, str], reason: str
) -> None:
    edited = expand(*GOOD[1:], written(3, **changes), count=3)
    assert reasons(edited) == [reason]
    assert len(edited.proposals) == 1
    assert edited.rejected[0].extra[QUESTION]["kind"] == "counterfactual"
    first = expand(written(3, **changes), *GOOD[1:], count=3)
    assert first.proposals
    assert first.survivors["valid"] == 3


def test_too_few_valid_questions_are_no_proposal() -> None:
    edited = expand(*GOOD[:2])
    assert edited.proposals == ()
    assert edited.rejected_by == "enough"
    assert reasons(edited) == [FEW, FEW]


class Judge:
    """Finds questions of some numbers wrong."""

    def __init__(self, *wrong: int) -> None:
        self.wrong = [f"If {number} " for number in wrong]

    def judge(self, image: SourceImage | None, questions: Sequence[AskedQuestion]) -> list[str]:
        return ["seen otherwise" * one.text.startswith(tuple(self.wrong)) for one in questions]

    def describe(self) -> dict[str, str]:
        return {"question_judge": "numbers"}


def test_a_second_model_rejects_what_it_answers_otherwise() -> None:
    editor = QuestionExpansion(Writer(), judge=Judge(3))
    (edited,) = editor.edit([example()])
    (proposal,) = edited.proposals
    assert proposal.texts[2:] == tuple(one.text for one in GOOD[1:])
    assert [one[QUESTION]["id"] for one in proposal.details] == ["basic", "c1", "c2", "c3", "c4"]
    assert edited.survivors == {"written": 4, "valid": 4, "judged": 3, "enough": 1}
    assert reasons(edited) == ["seen otherwise"]
    assert editor.describe()["question_judge"] == "numbers"
    (none,) = QuestionExpansion(Writer(), judge=Judge(3, 4)).edit([example()])
    assert none.rejected_by == "enough"
    assert sorted(reasons(none)) == ["seen otherwise"] * 2 + [FEW] * 2


def test_no_answer_is_rejected_with_its_reason() -> None:
    (edited,) = QuestionExpansion(Writer((), "no JSON")).edit([example()])
    assert (edited.rejected_by, reasons(edited)) == ("written", ["no JSON"])
    assert edited.rejected[0].extra == {"answer": "..."}
    assert reasons(expand()) == [NO_QUESTIONS]


def test_the_right_answer_stands_first_as_often_as_second() -> None:
    many = [written(i, right=str(i + 1000)) for i in range(100)]
    editor = QuestionExpansion(Writer(tuple(many)), count=100, ask_for=100)
    (proposal,) = editor.edit([example()])[0].proposals
    answers = [one[QUESTION]["answer"] for one in proposal.details[2:]]
    assert 30 < sum(answers) < 70


def test_settings_and_prompts_that_are_invalid_are_named(tmp_path: Path) -> None:
    for settings, said in (
        ({"count": 0}, "count=0"),
        ({"ask_for": 2}, "ask_for=2 is less than count=3"),
        ({"max_words": True}, r"max_words=true should be a whole number of at least 1"),
        ({"prompt": str(tmp_path / "none.txt")}, "cannot be read"),
    ):
        with pytest.raises(UserError, match=said):
            QuestionExpansion(Writer(), **settings)  # type: ignore[arg-type]
    own = tmp_path / "own.txt"
    own.write_text("<category> <basic> <given>")
    with pytest.raises(UserError, match="should have <count> once"):
        QuestionExpansion(Writer(), prompt=str(own))
    own.write_text("<count> <given> <basic> <category>!")
    writer = Writer()
    QuestionExpansion(writer, prompt=str(own)).edit([example()])
    assert writer.asked[0].prompt.startswith("5 - If one dog left")
    assert writer.asked[0].prompt.endswith("count!")
    folder = tmp_path / "prompts"
    folder.mkdir()
    (folder / "size.txt").write_text(own.read_text())
    with pytest.raises(UserError, match=r"lacks any\.txt"):
        QuestionExpansion(Writer(), prompt=str(folder))
    with pytest.raises(UserError, match="has no questions"):
        QuestionExpansion(writer).edit([Example("a", "a", ("a dog",))])
