from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.core.questions import (
    CATEGORY,
    QUESTION,
    AskedImage,
    details_of,
    example_of,
    question_of,
    questions_of,
)
from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.export import export_questions, write_questions
from cfaug.data.sources.question_sets import read_questions
from tests.data.question_files import encode_image, own_record, write_own


def asked(folder: Path, count: int = 3) -> list[AskedImage]:
    return read_questions(write_own(folder, [own_record(i) for i in range(count)]))


def without_image(one: AskedImage) -> AskedImage:
    return replace(one, image=None)


def files(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_what_is_written_is_read_back_and_has_the_same_bytes(tmp_path):
    first = asked(tmp_path / "in")
    odd = replace(first[1].questions[1], answer=-1, extra={"answer": "a cow", "source": "llm"})
    questions = (first[1].questions[0], odd, *first[1].questions[2:])
    first[1] = replace(first[1], questions=questions)
    assert write_questions(first, tmp_path / "out") == 3
    again = read_questions(tmp_path / "out")
    assert [without_image(one) for one in again] == [without_image(one) for one in first]
    for i, one in enumerate(again):
        assert one.image.read() == encode_image(i)
    write_questions(again, tmp_path / "once_more")
    assert files(tmp_path / "once_more") == files(tmp_path / "out")


def test_an_image_of_several_entries_is_written_once(tmp_path):
    first = asked(tmp_path / "in", 1)[0]
    write_questions([first, replace(first, key="other")], tmp_path / "out")
    assert len(files(tmp_path / "out")) == 2
    assert len(read_questions(tmp_path / "out")) == 2


def test_other_questions_and_full_folders_are_refused(tmp_path):
    (one,) = asked(tmp_path / "in", 1)
    plain = replace(one, questions=tuple(replace(q, kind="question") for q in one.questions))
    for wrong, said in ((plain, "only one basic question"), (without_image(one), "has no image")):
        with pytest.raises(UserError, match=said):
            write_questions([wrong], tmp_path / said.split()[0])
    with pytest.raises(UserError, match="no question to write"):
        write_questions([], tmp_path / "empty")
    with pytest.raises(UserError, match="not empty"):
        write_questions([one], tmp_path / "in")


def test_sets_whose_members_are_questions_are_exported(tmp_path):
    (one,) = asked(tmp_path / "in", 1)
    about = {CATEGORY: one.category, "coco_id": 5}
    members = tuple(
        Member(q.text, "0", one.key, extra={**about, QUESTION: details_of(q)})
        for q in one.questions
    )
    made = CounterfactualSet(one.key, one.group, members, {"0": encode_image(4)})
    assert export_questions([made], tmp_path / "out") == 1
    (back,) = read_questions(tmp_path / "out")
    assert back.questions == one.questions
    assert back.extra == {"coco_id": 5}
    assert (back.category, back.group) == (one.category, one.group)
    assert back.image.read() == encode_image(4)
    captions = replace(made, members=tuple(replace(m, extra={}) for m in members))
    with pytest.raises(UserError, match="is not a question with its options"):
        export_questions([captions], tmp_path / "other")
    two = replace(
        made,
        images={"0": encode_image(4), "1": encode_image(5)},
        members=(members[0], replace(members[1], image_name="1")),
    )
    with pytest.raises(UserError, match="not questions about one image"):
        export_questions([two], tmp_path / "third")


def test_an_example_carries_the_questions_as_json(tmp_path):
    (one,) = asked(tmp_path, 1)
    example = example_of(one)
    assert json.loads(json.dumps(dict(example.extra))) == example.extra
    assert questions_of(example) == one.questions
    assert (example.texts, example.group) == ((one.questions[0].text,), one.group)
    assert example.extra["coco_id"] == 100
    with pytest.raises(UserError, match="has no questions"):
        questions_of(replace(example, extra={}))
    with pytest.raises(UserError, match="1 basic and 0 counterfactual"):
        example_of(replace(one, questions=one.questions[:1]))
    with pytest.raises(UserError, match="not a question with its options"):
        question_of("Who?", None, "here")
