"""How good is a caption: originals and changed ones, checks, examples, and the means by kind."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import yaml

from benchmarks.browser import Browser, find
from cfaug.annotation.answers import split_checks
from cfaug.annotation.assignment import Assignment
from cfaug.annotation.caption_form import ORIGINAL, CaptionForm
from cfaug.annotation.page import share_out, write_questions
from cfaug.annotation.ratings import leave_out_inattentive, read_ratings, summarise_ratings
from cfaug.core.errors import UserError
from cfaug.planning.build import build
from tests import skips
from tests.annotation.making import ROOT, write_answers
from tests.annotation.test_annotation_page import data_of
from tests.annotation.text_sets import write_text_sets

PAPER: CaptionForm = build(
    yaml.safe_load((ROOT / "conf/annotate/question/quality.yaml").read_text())
)
FORM = replace(PAPER, per_kind=4, examples=3)
ALL = replace(FORM, per_kind=None)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return write_text_sets(tmp_path_factory.mktemp("q") / "xmai", "xmai", unchanged=[2])


def test_as_many_originals_as_changed_captions_of_other_photos(index):
    real, checks = split_checks(FORM.items(index))
    assert Counter(item.kind for item in real) == {ORIGINAL: 4, "xmai": 4}
    assert len({item.key for item in real}) == 8
    assert "c002" not in {item.key for item in real}, "nothing was changed there"
    for item in real:
        assert item.member == (item.kind != ORIGINAL)
        assert item.text == index.text(item.row)
    assert [item.text.rpartition(" ")[2] for item in checks] == [f"{c.expected}." for c in checks]
    assert {i.name for i in FORM.items(index)} != {i.name for i in FORM.items(index, seed=1)}
    assert (PAPER.per_kind, PAPER.examples) == (50, 5)


def test_examples_are_originals_that_nobody_is_asked_about(index, tmp_path):
    asked = {item.key for item in FORM.items(index)}
    examples = FORM.example_items(index)
    assert len(examples) == 3
    assert not asked & {item.key for item in examples}
    assert all(item.text == index.text(item.row) for item in examples)
    items = FORM.items(index)
    questions = share_out(FORM, items, Assignment(3), "t", examples=examples)
    data = data_of(write_questions(questions, tmp_path / "q.html", index.read_image))
    assert [text for _, text in data["examples"]] == [item.text for item in examples]
    assert all(number < len(data["pictures"]) for number, _ in data["examples"])
    shown = next(task for task in data["tasks"] if task["k"] == items[0].key)
    assert (shown["c"], shown["s"]) == ([items[0].text], -1)


def test_answers_are_averaged_by_kind_without_those_who_do_not_attend(index, tmp_path):
    items, everything = FORM.items(index), ALL.items(index)
    lines = []
    for who, rate in (("1", 4), ("2", 5), ("lazy", 1)):
        for item in items:
            value = int(item.expected) if item.expected and who != "lazy" else rate
            value -= item.kind == "xmai"
            lines.append({"key": item.key, "member": item.member, "annotator": who,
                          "quality": max(1, value)})  # fmt: skip
    ratings = read_ratings([write_answers(tmp_path / "a.jsonl", lines)], everything, ALL)
    kept, failed = leave_out_inattentive(ratings, everything, ALL)
    assert list(failed) == ["lazy"]
    found = summarise_ratings(kept, everything, ALL, "sets").fields["quality"].by
    assert (found[ORIGINAL].mean, found["xmai"].mean) == (4.5, 3.5)
    assert (found[ORIGINAL].images, found["xmai"].answers) == (4, 8)
    only = [one for one in ratings if one.annotator == "lazy"]
    with pytest.raises(UserError, match="every annotator failed a check of attention"):
        leave_out_inattentive(only, everything, ALL)


def test_few_photos_are_shared_evenly(tmp_path):
    few = write_text_sets(tmp_path / "few", "xmai", count=3)
    real, _ = split_checks(PAPER.items(few))
    assert Counter(item.kind for item in real) == {ORIGINAL: 1, "xmai": 1}


@pytest.mark.slow
def test_the_page_shows_the_examples_and_one_caption_at_a_time(index, tmp_path):
    if find() is None:
        skips.skip("browser")
    questions = share_out(
        FORM, FORM.items(index), Assignment(1, overlap_fraction=0), "t",
        examples=FORM.example_items(index),
    )  # fmt: skip
    file = write_questions(questions, tmp_path / "page.html", index.read_image)
    data = data_of(file)
    shown = "[...document.querySelectorAll('{} figcaption')].map((e) => e.textContent)"
    with Browser(tmp_path / "profile") as browser:
        browser.open(file)
        assert browser.run(shown.format("#shown-examples")) == [t for _, t in data["examples"]]
        first = data["tasks"][data["people"]["1"][0][0]]
        assert browser.run(shown.format("#pictures")) == first["c"]
        assert browser.run("document.querySelectorAll('#pictures img').length") == 1
        assert browser.run("document.title") == "t", "captions are text, never markup"
        browser.press("4")
        browser.press("Enter")
        assert '"quality":4' in browser.run("window.cfaugAnswers()")
