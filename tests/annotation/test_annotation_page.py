"""The page: what it asks, that nothing in it is live, and what a person does.

That is done in headless Chromium, where there is one.
"""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cfaug.annotation.assignment import Assignment, items_of
from cfaug.annotation.page import MAX_PAGE, Questionnaire, ask_one, share_out, write_questions
from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from tests.annotation.making import HOSTILE, WHICH, WHY, pairs, read, write_answers
from tests.report.example import data_of

ALONE = Assignment(1, overlap_fraction=0)


def test_what_is_no_pair_is_refused(tmp_path):
    pair = pairs(2)[1]
    triple = replace(
        pair, members=(*pair.members, replace(pair.members[1], text="A cow in room 1"))
    )
    shared = replace(pair, members=tuple(replace(m, image_name="0") for m in pair.members))
    for n, bad in enumerate((triple, shared, replace(pair, members=pair.members[:1]))):
        write_shards([bad], tmp_path / str(n))
        with pytest.raises(UserError, match="'pair-0001' does not have 2 captions"):
            items_of(open_index(tmp_path / str(n), tmp_path / "cache"), WHICH)


def test_a_larger_set_is_asked_about_with_as_many_captions(tmp_path):
    first, second = pairs(2)
    third = replace(first.members[1], text="A cow in room 1", image_name="2")
    images = {**first.images, "2": second.images["0"]}
    write_shards(
        [replace(first, members=(*first.members, third), images=images)], tmp_path / "three"
    )
    index = open_index(tmp_path / "three", tmp_path / "cache")
    with pytest.raises(UserError) as refused:
        items_of(index, WHICH)
    assert "annotate.question.captions=[original,edited_1,edited_2]" in str(refused.value)
    captions = ["original", "edited_1", "edited_2"]
    asked = items_of(index, replace(WHICH, captions=captions))
    assert [(item.member, item.texts[2]) for item in asked] == [
        (member, "A cow in room 1") for member in range(3)
    ]


def test_the_page_asks_the_papers_question(index, items, tmp_path):
    plan = Assignment(3, 2, 0.25)
    questions = share_out(WHICH, items, plan, "Which?")
    file = write_questions(questions, tmp_path / "new" / "page.html", index.read_image)
    page, text = data_of(file), file.read_text()
    assert WHICH.text in text
    assert "default-src 'none'" in text
    assert [len(page["people"][who]) for who in "123"] == [5, 5, 5]
    assert page["options"] == [["both", "Both"], ["neither", "Neither"]]
    task = page["tasks"][3]
    assert (task["k"], task["m"]) == ("pair-0001", 1)
    assert task["o"] == [["original", "A cat in room 1"], ["counterfactual", "A dog in room 1."]]
    shown = page["pictures"][task["p"][0]]
    image = Image.open(io.BytesIO(base64.b64decode(shown["i"]))).convert("RGB")
    original = Image.open(io.BytesIO(index.read_image(3))).convert("RGB")
    assert np.array_equal(np.asarray(image), np.asarray(original))
    swaps = [bool(swap) for who in "123" for _, swap in page["people"][who]]
    assert 0 < sum(swaps) < len(swaps)
    again = write_questions(questions, tmp_path / "again.html", index.read_image)
    assert again.read_bytes() == file.read_bytes()


def test_nothing_in_a_caption_is_live(index, items, tmp_path):
    questions = share_out(WHICH, items, ALONE, f"Which? {HOSTILE}")
    text = write_questions(questions, tmp_path / "p.html", index.read_image).read_text()
    assert "<script>document" not in text
    assert "<img src=//" not in text
    assert data_of(tmp_path / "p.html")["tasks"][0]["o"][0][1] == HOSTILE


def test_pages_that_cannot_be_are_refused(index, items, tmp_path, monkeypatch):
    questions = share_out(WHICH, items, ALONE, "Which?")
    with pytest.raises(UserError, match="side=5"):
        write_questions(questions, tmp_path / "p.html", index.read_image, side=5)
    with pytest.raises(UserError, match="nothing to ask"):
        write_questions(share_out(WHICH, [], ALONE, ""), tmp_path / "p.html", bytes)
    monkeypatch.setattr("cfaug.annotation.page.MAX_PAGE", 500)
    with pytest.raises(UserError, match=r"pages=each.*annotate\.side.*annotate\.sample"):
        write_questions(questions, tmp_path / "p.html", index.read_image)
    assert MAX_PAGE > 500
    assert not (tmp_path / "p.html").exists()


def open_page(browser, index, questions: Questionnaire, file: Path) -> dict:
    browser.open(write_questions(questions, file, index.read_image))
    return data_of(file)


def downloaded(browser) -> str:
    """Return the name under which the page offers its answers."""
    return browser.run(
        "(() => { let name = ''; HTMLAnchorElement.prototype.click = function () {"
        " name = this.download; }; document.getElementById('save').click(); return name; })()"
    )


def test_a_person_answers_stops_and_goes_on(watched, index, items, tmp_path):
    file = tmp_path / "page.html"
    run, press = watched.run, watched.press
    page = open_page(watched, index, share_out(WHICH, items, Assignment(2, 2, 0.5), "Which?"), file)
    count = "document.getElementById('count').textContent"
    choose = ("(() => { const s = document.getElementById('who'); s.value = '2';"
              " s.dispatchEvent(new Event('change')); })()")  # fmt: skip
    assert run(count) == ""
    run(choose)
    order = page["people"]["2"]
    assert run(count) == f"0 of {len(order)} answered"
    for key in ("1", "2", "ArrowLeft", "3"):
        press(key)
    watched.open(file)  # the page is closed and opened again
    run(choose)
    assert run(count) == f"2 of {len(order)} answered"
    run("[...document.querySelectorAll('#options button')].at(-1).click()")
    for _ in order[3:]:
        press("1")
    assert run("document.getElementById('end').hidden") is False
    assert downloaded(watched) == f"answers-{page['plan']}-2.jsonl"
    saved = write_answers(tmp_path / "a.jsonl", run("cfaugAnswers()").splitlines())
    answers = read(saved, items)
    first = [page["tasks"][place]["o"][swap][0] for place, swap in order]
    assert [answer.label for answer in answers] == [first[0], "both", "neither", *first[3:]]
    names = [f"{page['tasks'][place]['k']}_{page['tasks'][place]['m']}" for place, _ in order]
    assert [items[answer.item].name for answer in answers] == names
    assert {answer.annotator for answer in answers} == {"2"}


def test_captions_are_shown_as_they_are(watched, index, items, tmp_path):
    notes = [f"labelled {HOSTILE}", "labelled both"]
    questions = ask_one(WHY, [items[0], items[3]], notes, HOSTILE)
    open_page(watched, index, questions, tmp_path / "page.html")
    shown = watched.run("[...document.querySelectorAll('figcaption')].map((f) => f.textContent)")
    assert shown[0] == HOSTILE
    assert watched.run("document.querySelectorAll('figure.about figcaption').length") == 1
    assert watched.run("document.title") == HOSTILE
    assert watched.run("document.querySelectorAll('#options button').length") == len(WHY.options)
    watched.press("8")
    watched.press("4")
    assert downloaded(watched) == f"categories-{questions.hash}-1.jsonl"
    saved = write_answers(tmp_path / "c.jsonl", watched.run("cfaugAnswers()").splitlines())
    answers = read(saved, items, WHY)
    assert [(a.item, a.label) for a in answers] == [(0, "attribute"), (3, "annotation")]


def test_a_page_of_ones_own_holds_no_other_images(index, items, tmp_path):
    questions = share_out(WHICH, items, Assignment(3, overlap_fraction=0), "Which?")
    file = write_questions(questions, tmp_path / "p.html", index.read_image, annotators=["2"])
    page = data_of(file)
    assert list(page["people"]) == ["2"]
    places = [place for place, _ in page["people"]["2"]]
    assert len(page["tasks"]) == len(places) == 4
    assert places != sorted(places)
