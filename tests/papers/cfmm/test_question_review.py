"""People verify questions: what is asked, which answers are refused, what their verdicts change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfaug.annotation.question import QuestionReview
from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.export import export_questions
from cfaug.data.index import Index, open_index
from cfaug.data.questions import CATEGORY, QUESTION, SourceQuestion, details_of
from cfaug.data.shards.shards import read_sets, write_shards
from cfaug.data.sources.question_sets import read_questions
from tests.annotation.making import pairs
from tests.data.question_files import encode_image
from tests.files_of_settings import settings_file

CONF = settings_file("annotate/question/question_review")


def asked(number: int, verified: bool | None = False, **changes: Any) -> SourceQuestion:
    kind = "counterfactual" if number else "basic"
    extra = {} if verified is None else {"verified": verified}
    default = SourceQuestion(f"c{number}", kind, f"If {number}, who?", ("a dog", "a cat"), 1, extra)
    return replace(default, **changes)


def a_set(key: str, questions: Sequence[SourceQuestion], tone: int = 1) -> CounterfactualSet:
    members = tuple(
        Member(entry.text, "0", key, extra={CATEGORY: "count", QUESTION: details_of(entry)})
        for entry in questions
    )
    return CounterfactualSet(key, key, members, {"0": encode_image(tone)})


SETS = [
    a_set("one", [asked(0, None), asked(1, True), asked(2), asked(3)]),
    a_set("two", [asked(0, None), asked(1), asked(2, answer=None)], tone=2),
]


def index_of(folder: Path, sets: Sequence[CounterfactualSet]) -> Index:
    write_shards(sets, folder / "shards")
    return open_index(folder / "shards", folder / "cache")


def review(**changes: Any) -> QuestionReview:
    settings = yaml.safe_load(CONF.read_text())
    settings.pop("_target_")
    return QuestionReview(**settings | changes)


def test_what_nobody_verified_is_asked_about_with_its_options(tmp_path: Path) -> None:
    index = index_of(tmp_path, SETS)
    items = review().items(index)
    assert [item.name for item in items] == ["one_2", "one_3", "two_1", "two_2"]
    assert review().shown(items[0]) == {
        "c": ["If 2, who?"], "s": -1, "n": "Right answer: a cat. Wrong: a dog.",
    }  # fmt: skip
    assert items[3].note == "Options: a dog; a cat. No right answer is known."
    assert review().rows_shown(items[0]) == {2: "one_2"}
    assert review().accepts(items[0], "good")
    assert not review().accepts(items[0], "leak")
    everything = review(only_new=False).items(index)
    assert len(everything) == 7
    other = index_of(tmp_path / "other", [a_set("one", [asked(0), asked(1), asked(2, answer=0)])])
    hashes = {item.name: item.texts_hash for item in items}
    changed = review().items(other)[-1]
    # An answer is about a question of which this option is right.
    assert (changed.name, changed.texts_hash == hashes["one_2"]) == ("one_2", False)


def test_other_sets_and_answers_are_refused(tmp_path: Path) -> None:
    index = index_of(tmp_path / "pairs", pairs())
    with pytest.raises(UserError, match="holds no questions"):
        review().items(index)
    known = index_of(tmp_path / "known", [a_set("one", [asked(0, None), asked(1, True)])])
    with pytest.raises(UserError, match=r"annotate\.question\.only_new=false"):
        review().items(known)
    for options in ({"yes": "Yes", "no": "No"}, {"good": "Good", "bad": "Bad"}):
        with pytest.raises(UserError, match="good and some of wrong_answer"):
            review(options=options, accepted=[next(iter(options))])


def test_verdicts_verify_questions_or_leave_them_out(tmp_path: Path) -> None:
    folder = tmp_path / "sets"
    write_shards(SETS, folder)
    verdicts = {"one_2": True, "one_3": False, "two_1": False, "two_2": False, "none_1": True}
    assert export_questions(read_sets(folder), tmp_path / "out", verdicts) == 1
    (question_set,) = read_questions(tmp_path / "out")
    assert [q.text for q in question_set.questions] == ["If 0, who?", "If 1, who?", "If 2, who?"]
    assert [q.extra.get("verified") for q in question_set.questions] == [None, True, True]
    assert export_questions(read_sets(folder), tmp_path / "all") == 2
