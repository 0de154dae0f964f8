"""Questions that a server writes: what is asked of it, what is kept, and what it becomes."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cfaug.core.answers import Question
from cfaug.core.errors import RejectedError, UserError
from cfaug.core.pixels import decode_image
from cfaug.core.protocols import Answerer
from cfaug.core.types import Edited, Example, SourceImage
from cfaug.data.questions import (
    QUESTION,
    QUESTIONS,
    QuestionImage,
    SourceQuestion,
    details_of,
    example_of,
    question_of,
)
from cfaug.data.sources.question_sets import read_questions
from cfaug.data.sources.question_sets.rows import EmbeddedImage, FileImage
from cfaug.evaluation.questions.question_checks import validate
from cfaug.generate.chat_asking import ChatSettings
from cfaug.generate.question_server import (
    QuestionRequest,
    QuestionServer,
    WrittenQuestion,
    WrittenQuestions,
)
from cfaug.models.task_specs import VisionLanguage
from cfaug.papers.cfmm.question_writing import (
    FEW,
    NO_ANSWER,
    NO_QUESTIONS,
    NOT_NEEDED,
    OTHERWISE,
    AnswererJudge,
    QuestionExpansion,
    QuestionJudge,
    QuestionWriter,
)
from tests.data.question_files import encode_image, own_record, put_image, write_own
from tests.generate.chatting import says, serving
from tests.models.tiny_vlm import save_llava
from tests.test_conf import _compose

BASIC = SourceQuestion("basic", "basic", "How many <count> dogs are there?", ("2", "3"), 0)
FIRST = SourceQuestion(
    "c1", "counterfactual", "If one dog left, how many dogs would there be?", ("4", "1"), 1,
    {"presupposition": "one dog left", "source": "human", "verified": True},
)  # fmt: skip


def example(key: str = "a") -> Example:
    return example_of(QuestionImage(key, "photo", None, "count", (BASIC, FIRST)))


def written(number: int, **changes: str) -> WrittenQuestion:
    fields = {
        "text": f"If {number} dogs came, how many would there be?",
        "presupposition": f"{number} dogs came",
        "right": str(number + 2),
        "wrong": "99",
    }
    return WrittenQuestion(**fields | changes)


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
    return [rejection.reason for rejection in edited.rejected]


def test_new_questions_follow_those_that_are_there() -> None:
    writer = Writer()
    assert isinstance(writer, QuestionWriter)
    (edited,) = QuestionExpansion(writer).edit([example()])
    (proposal,) = edited.proposals
    assert proposal.texts == (BASIC.text, FIRST.text, *(question.text for question in GOOD[:3]))
    assert [d[QUESTION] for d in proposal.details[:2]] == [details_of(BASIC), details_of(FIRST)]
    assert [edit and (edit.kind, edit.after) for edit in proposal.edits] == [
        None, *(("counterfactual", said) for said in
                ("one dog left", "3 dogs came", "4 dogs came", "5 dogs came")),
    ]  # fmt: skip
    new = [
        question_of(text, d[QUESTION], "here")
        for text, d in zip(proposal.texts[2:], proposal.details[2:], strict=True)
    ]
    assert [q.id for q in new] == ["c2", "c3", "c4"]
    assert [q.right for q in new] == ["5", "6", "7"]
    assert all(q.extra["source"] == "llm" and q.extra["verified"] is False for q in new)
    assert all(d[QUESTIONS] is None for d in proposal.details)
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
    plain = example()
    of_kind = replace(plain, extra={**plain.extra, "category": category})
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

    def judge(self, image: SourceImage | None, questions: Sequence[SourceQuestion]) -> list[str]:
        return [
            "seen otherwise" * question.text.startswith(tuple(self.wrong)) for question in questions
        ]

    def describe(self) -> dict[str, str]:
        return {"question_judge": "numbers"}


def test_a_second_model_rejects_what_it_answers_otherwise() -> None:
    editor = QuestionExpansion(Writer(), judge=Judge(3))
    (edited,) = editor.edit([example()])
    (proposal,) = edited.proposals
    assert proposal.texts[2:] == tuple(question.text for question in GOOD[1:])
    assert [d[QUESTION]["id"] for d in proposal.details] == ["basic", "c1", "c2", "c3", "c4"]
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
    answers = [details[QUESTION]["answer"] for details in proposal.details[2:]]
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
    file = tmp_path / "own.txt"
    file.write_text("<category> <basic> <given>")
    with pytest.raises(UserError, match="should have <count> once"):
        QuestionExpansion(Writer(), prompt=str(file))
    file.write_text("<count> <given> <basic> <category>!")
    writer = Writer()
    QuestionExpansion(writer, prompt=str(file)).edit([example()])
    assert writer.asked[0].prompt.startswith("5 - If one dog left")
    assert writer.asked[0].prompt.endswith("count!")
    folder = tmp_path / "prompts"
    folder.mkdir()
    (folder / "size.txt").write_text(file.read_text())
    with pytest.raises(UserError, match=r"lacks any\.txt"):
        QuestionExpansion(Writer(), prompt=str(folder))
    with pytest.raises(UserError, match="has no questions"):
        QuestionExpansion(writer).edit([Example("a", "a", ("a dog",))])


FAST = ChatSettings(retries=0, backoff=0)


def server_of(url, **settings):
    return QuestionServer(url, "a-model", **{"settings": FAST, **settings})


def answer_of(number, **changes):
    return {
        "question": f"If  {number} dogs came, how many dogs would there be?",
        "presupposition": f"{number} dogs came",
        "right_answer": str(number + 50),
        "wrong_answer": "99",
    } | changes


def questions(*numbers, **changes):
    return says(json.dumps({"questions": [answer_of(i, **changes) for i in numbers]}))


def request_for(tone=None, count=5, prompt="Write more."):
    image = None if tone is None else EmbeddedImage(f"{tone}", lambda: encode_image(tone))
    return QuestionRequest(prompt, image, count, 7)


def test_questions_are_asked_for_with_their_form():
    with serving(lambda number, body: questions(1, 2, 3)) as server:
        writer = server_of(server.url)
        assert isinstance(writer, QuestionWriter)
        (answer,) = writer.write([request_for(count=2)])
    (_, _, body) = server.asked[0]
    said = body["messages"][0]["content"]
    assert said.startswith("Write more.\n\nAnswer with JSON:")
    assert "at most 2 of them" in said
    form = body["response_format"]["json_schema"]["schema"]
    assert form["properties"]["questions"]["items"]["required"] == [
        "question", "presupposition", "right_answer", "wrong_answer",
    ]  # fmt: skip
    text = "If 1 dogs came, how many dogs would there be?"
    assert answer.questions[0] == WrittenQuestion(text, "1 dogs came", "51", "99")
    assert len(answer.questions) == 2  # no more than were wanted


def test_an_image_is_sent_where_it_is_asked_for():
    with serving(lambda number, body: questions(1)) as server:
        server_of(server.url, images=True).write([request_for(3), request_for(4), request_for(4)])
        server_of(server.url).write([request_for(3)])
    shown = [body["messages"][0]["content"] for _, _, body in server.asked]
    assert len(shown) == 3  # the same question about the same image is asked once
    sent = {parts[0]["image_url"]["url"] for parts in shown[:2]}
    address = "data:image/png;base64,"
    assert {base64.b64decode(url.removeprefix(address)) for url in sent} == {
        encode_image(3), encode_image(4),
    }  # fmt: skip
    assert shown[0][1]["text"].startswith("Write more.")
    assert isinstance(shown[2], str)


def test_a_broken_or_missing_image_rejects_its_questions_alone(tmp_path):
    (tmp_path / "a.png").write_bytes(b"broken")
    broken = replace(request_for(), image=FileImage(tmp_path / "a.png"))
    with serving(lambda number, body: questions(1)) as server:
        writer = server_of(server.url, images=True)
        for request, reason in ((broken, "photo_broken"), (request_for(), "no image")):
            with pytest.raises(RejectedError) as caught:
                writer.write([request])
            assert caught.value.reason == reason
        assert server_of(server.url).write([broken])[0].questions
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ('{"questions": [{"question": "Who?"}]}', "wrong JSON"),
        ('{"questions": [7]}', "wrong JSON"),
        ('{"variations": []}', "wrong JSON"),
        ("[]", "wrong JSON"),
        ('{"questions": []}', "empty answer"),
        (json.dumps({"questions": [answer_of(1, wrong_answer=" ")]}), "empty answer"),
        (json.dumps({"questions": [answer_of(1, question="\ud800")]}), "wrong JSON"),
        ("If a dog came?", "no JSON"),
    ],
)
def test_an_answer_of_another_form_is_asked_for_again_and_counted(said, problem):
    with serving(lambda number, body: says(said)) as server:
        (answer,) = server_of(server.url, attempts=2).write([request_for()])
    assert (answer.questions, answer.problem) == ((), problem)
    assert len(server.asked) == 2
    again = server.asked[1][2]["messages"]
    assert again[-1]["content"].startswith(f"That was not valid ({problem}). Answer with JSON")


def test_valid_answers_are_kept(tmp_path):
    with serving(lambda number, body: questions(1)) as server:
        for _ in range(2):
            writer = server_of(server.url, cache=str(tmp_path))
            assert writer.write([request_for()])[0].questions[0].right == "51"
        assert len(server.asked) == 1
    with pytest.raises(UserError, match="start the server"):
        server_of(server.url, cache=str(tmp_path)).write([request_for(prompt="Another.")])


@pytest.mark.slow
def test_a_question_set_is_expanded_by_one_command(tmp_path: Path, script, capfd):
    """Two people's questions an image become five, three of them unverified; nothing else moves."""

    def answer(number, body):
        said = body["messages"][0]["content"][1]["text"]
        return questions(1, 2) if "dogs 2 " in said else questions(11, 12, 13, 14, 15)

    records = [own_record(i) for i in range(3)]
    for number, record in enumerate(records):
        record["basic"]["q"] = f"How many dogs {number} are there?"
        record["counterfactuals"] = record["counterfactuals"][:1]
    file = write_own(tmp_path / "in", records)
    put_image(tmp_path / "in" / "0.png", 9)
    with serving(answer) as server:
        words = [
            "recipe=cfmm", "zoo=paper", f"data.source={file}", f"paths.shards={tmp_path / 'out'}",
            f"zoo.question_writer.base_url={server.url}", f"paths.cache={tmp_path / 'cache'}",
            f"export.questions={tmp_path / 'questions'}",
        ]  # fmt: skip
        assert script("generate")(words) == 0
        asked = len(server.asked)
        assert script("generate")([*words[:-1]]) == 0
        assert len(server.asked) == asked
    out = capfd.readouterr().out
    assert json.loads(out.splitlines()[-1])["sets"] == 2
    before, after = read_questions(file), read_questions(tmp_path / "questions")
    assert [image.key for image in after] == ["0", "1"]
    for old, new in zip(before, after, strict=False):
        assert new.questions[:2] == old.questions
        assert [q.extra["verified"] for q in new.questions[1:]] == [True, False, False, False]
        assert [q.right for q in new.questions[2:]] == ["61", "62", "63"]
        assert old.image is not None
        assert new.image is not None
        assert new.image.read() == old.image.read()
        assert (new.category, new.group, new.extra) == (old.category, old.group, old.extra)
    assert validate(after) == []

    people = tmp_path / "people"
    people.mkdir()
    ask = [
        "annotate/question=question_review", f"pairs={tmp_path / 'out'}",
        f"paths.cache={tmp_path / 'cache'}", f"paths.shards={tmp_path / 'shards'}",
        f"paths.runs={tmp_path / 'runs'}",
    ]  # fmt: skip
    page = people / "page.html"
    assert script("annotate")(["export", *ask, f"annotate.out={page}"]) == 0
    assert "Right answer: 61" in page.read_text()
    said = [("0", 2, "good"), ("0", 3, "leak"), ("1", 4, "ambiguous")]
    (people / "answers.jsonl").write_text(
        "".join(
            json.dumps({"key": key, "member": member, "annotator": "1", "label": label}) + "\n"
            for key, member, label in said
        )
    )
    read = [f"annotate.out={people}", f"annotate.answers=[{people / 'answers.jsonl'}]"]
    assert script("annotate")(["read", *ask, *read]) == 0
    final = [
        *words[:-1], f"export.questions={tmp_path / 'final'}",
        f"export.verified={people / 'labels.jsonl'}",
    ]  # fmt: skip
    assert script("generate")(final) == 0
    verified = [
        [q.extra["verified"] for q in image.questions[1:]]
        for image in read_questions(tmp_path / "final")
    ]
    assert verified == [[True, True, False], [True, False, False]]


def test_questions_of_the_world_are_there_already(script, tmp_path, capsys):
    words = ["recipe=cfmm", "data.source=shapescapes_vqa:train", f"paths.shards={tmp_path}"]
    assert script("generate")(words) == 2
    said = capsys.readouterr().err
    assert "error: data.source=shapescapes_vqa:train: the world has its own" in said
    asked = re.search(r"asked by python evaluate.py (.*)", said)[1]
    [(config, _)] = _compose("evaluate", *asked.split(), "model=tiny_vlm")
    assert config["benchmark"]["data"] == "shapescapes_vqa:train"


def test_a_zoo_without_a_writer_is_told_from_those_that_may_have_one(script, tmp_path, capsys):
    words = ["recipe=cfmm", "data.source=questions.jsonl", f"paths.shards={tmp_path}"]
    assert script("generate")(words) == 2
    assert "choose a zoo that has one, such as zoo=paper\n" in capsys.readouterr().err


# Models as judges of questions.


def image_of(data):
    return EmbeddedImage("a photo", lambda: data)


def asked_question(text, options, answer):
    return SourceQuestion("new", "counterfactual", text, options, answer)


@pytest.mark.slow
def test_questions_that_a_model_answers_otherwise_are_rejected(tmp_path):
    judge = AnswererJudge(VisionLanguage(weights=str(save_llava(tmp_path))), "cpu")
    assert isinstance(judge, QuestionJudge)
    texts, options = ("If it rained?", "If it snowed?", "If so?"), ("red", "a long blue line")
    photo = encode_image(200)
    model = judge.model.load(Answerer)
    likeliest = []
    for text in texts:
        ((answered,),) = model.answer([decode_image(photo, "")], [[Question(text, options)]])
        likeliest.append(0 if answered.scores[0].mean_nll < answered.scores[1].mean_nll else 1)
    same = [
        asked_question(text, options, choice) for text, choice in zip(texts, likeliest, strict=True)
    ]
    other = [
        asked_question(text, options, 1 - choice)
        for text, choice in zip(texts, likeliest, strict=True)
    ]
    assert judge.judge(image_of(photo), [*same, *other]) == [""] * 3 + [OTHERWISE] * 3
    assert judge.judge(image_of(photo), []) == []
    long = asked_question("If " + "so " * 600, options, 0)
    assert judge.judge(image_of(photo), [long, same[0]]) == [NO_ANSWER, ""]
    with pytest.raises(RejectedError) as caught:
        judge.judge(image_of(b"broken"), same)
    assert caught.value.reason == "photo_broken"
    assert "sha256:" in judge.describe()["question_judge"]
