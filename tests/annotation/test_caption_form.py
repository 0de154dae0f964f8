"""How good is a caption, and which of two is better: checks, examples, means, and the sign test."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from cfaug.annotation.answers import draw_check, read_answers, split_checks, who_failed
from cfaug.annotation.assignment import Assignment
from cfaug.annotation.findings import Findings
from cfaug.annotation.forms import ORIGINAL, CaptionForm, Preference
from cfaug.annotation.page import share_out, write_questions
from cfaug.annotation.ratings import leave_out_inattentive, read_ratings, summarise_ratings
from cfaug.annotation.records import Answer
from cfaug.core.errors import UserError
from cfaug.data.shards.shards import read_scores
from cfaug.planning.build import build
from cfaug.stats.item_tests import mcnemar
from tests.annotation.making import HOSTILE, pairs, write_answers
from tests.annotation.text_sets import write_text_sets
from tests.files_of_settings import read_settings
from tests.report.example import data_of

PAPER: CaptionForm = build(read_settings("annotate/question/quality"))
FORM = replace(PAPER, per_kind=4, examples=3)
ALL = replace(FORM, per_kind=None)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return write_text_sets(tmp_path_factory.mktemp("q") / "xmai", "xmai", unchanged=[2])


def test_as_many_originals_as_changed_captions_of_other_photos(index, tmp_path):
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
    few, _ = split_checks(PAPER.items(write_text_sets(tmp_path / "few", "xmai", count=3)))
    assert Counter(item.kind for item in few) == {ORIGINAL: 1, "xmai": 1}, "shared evenly"


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
    by_kind = summarise_ratings(kept, everything, ALL, "sets").fields["quality"].by
    assert (by_kind[ORIGINAL].mean, by_kind["xmai"].mean) == (4.5, 3.5)
    assert (by_kind[ORIGINAL].images, by_kind["xmai"].answers) == (4, 8)
    only = [rating for rating in ratings if rating.annotator == "lazy"]
    with pytest.raises(UserError, match="every annotator failed a check of attention"):
        leave_out_inattentive(only, everything, ALL)


@pytest.mark.slow
def test_the_page_shows_the_examples_and_one_caption_at_a_time(watched, index, tmp_path):
    questions = share_out(
        FORM, FORM.items(index), Assignment(1, overlap_fraction=0), "t",
        examples=FORM.example_items(index),
    )  # fmt: skip
    file = write_questions(questions, tmp_path / "page.html", index.read_image)
    data = data_of(file)
    shown = "[...document.querySelectorAll('{} figcaption')].map((e) => e.textContent)"
    watched.open(file)
    assert watched.run(shown.format("#shown-examples")) == [t for _, t in data["examples"]]
    first = data["tasks"][data["people"]["1"][0][0]]
    assert watched.run(shown.format("#pictures")) == first["c"]
    assert watched.run("document.querySelectorAll('#pictures img').length") == 1
    assert watched.run("document.title") == "t", "captions are text, never markup"
    watched.press("4")
    watched.press("Enter")
    assert '"quality":4' in watched.run("window.cfaugAnswers()")


ASKED = Preference(
    title="Which caption is better?", text="Select the better one.", captions=["xmai", "clare"],
    options={"equal": "Equally good"}, accepted=["xmai"], attention=3, balanced=True,
)  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("two")
    ours = write_text_sets(root / "xmai", "xmai", unchanged=[3], false=[5, 6])
    theirs = write_text_sets(root / "clare", "clare", count=11, unchanged=[4], false=[6, 7])
    return ours, theirs


def test_photos_whose_text_both_methods_changed_are_asked_about_and_the_checks(folders):
    items = ASKED.items_of_two(*folders)
    real, checks = split_checks(items)
    assert [item.key for item in real] == [f"c{n:03d}" for n in (0, 1, 2, 5, 6, 7, 8, 9, 10)]
    assert real[1].texts == ("a ball number 1 xmai-word", "a ball number 1 clare-word")
    assert folders[0].text(real[1].row) == real[1].texts[0]
    assert len(checks) == 3
    for item in checks:
        place = ASKED.captions.index(item.expected)
        assert item.texts[place].endswith("choose this caption.")
        assert "do not" in item.texts[1 - place]
    assert ASKED.items_of_two(*folders) == items, "whoever reads answers finds the same checks"


def test_each_annotator_sees_either_order_equally_often(folders):
    items = ASKED.items_of_two(*folders)
    assignment = Assignment(5, 5, 1.0)
    asked = share_out(ASKED, items, assignment, "t", [9, 10, 11])
    assert all(len(order) == len(items) for order in asked.orders.values())
    for order in asked.orders.values():
        assert sum(swapped for _, swapped in order) == len(items) // 2
    first = [{task for task, swapped in order if swapped} for order in asked.orders.values()]
    assert len(set(map(frozenset, first))) > 1, "not the same half for everyone"


def test_the_page_offers_both_captions_as_text_and_no_method_by_name(folders, tmp_path):
    items = ASKED.items_of_two(*folders)
    questions = share_out(ASKED, items, Assignment(3), "t")
    page = write_questions(questions, tmp_path / "p.html", folders[0].read_image)
    data = data_of(page)
    task = next(task for task in data["tasks"] if task["k"] == "c000")
    assert [text for _, text in task["o"]] == [f"{HOSTILE} xmai-word", f"{HOSTILE} clare-word"]
    assert "<img src=//x" not in page.read_text()
    assert "examples" not in data


def lines(items, label, annotator="1", field="label"):
    return [{"key": i.key, "member": i.member, "annotator": annotator, field: label(i)}
            for i in items]  # fmt: skip


def test_answers_are_counted_by_majority_and_tested(folders, tmp_path):
    items = ASKED.items_of_two(*folders)
    real, _ = split_checks(items)
    files = []
    for who in range(5):

        def label(item, who=who):
            n = real.index(item)
            if n == 0:
                return ("xmai", "xmai", "clare", "clare", "equal")[who]  # no majority
            return "clare" if n == 1 else ("xmai" if who < 3 else "equal")

        file = tmp_path / f"a{who}.jsonl"
        files.append(write_answers(file, lines(real, label, str(who))))
    answers = read_answers(files, items, field="label", choices=ASKED.labels)
    section = ASKED.count(Findings(ASKED, items, answers))
    preference = section.data["preference"]
    assert preference["counts"] == {"xmai": 7, "clare": 1, "neither": 1}
    assert preference["p"] == mcnemar(7, 1)
    assert "for 7, that of clare for 1" in section.sentences[0]


def test_whoever_fails_a_check_of_attention_is_left_out(folders):
    asked = [draw_check(n, ("a", "b", "c"), range(50)) for n in range(60)]
    assert {answer for answer, _ in asked} == {"a", "b", "c"}
    assert len({row for _, row in asked}) > 20
    items = ASKED.items_of_two(*folders)
    checks = [place for place, item in enumerate(items) if item.expected]
    good = [Answer(place, "good", items[place].expected) for place in checks]
    other = {"xmai": "clare", "clare": "xmai"}
    bad = [replace(answer, annotator="bad") for answer in good[1:]]
    bad.append(Answer(checks[0], "bad", other[items[checks[0]].expected]))
    lazy = [Answer(0, "lazy", "xmai"), replace(good[0], annotator="lazy")]
    assert who_failed([*good, *bad, *lazy], items) == pytest.approx({"bad": 2 / 3, "lazy": 1 / 3})
    assert who_failed(good, items[:3]) == {}


def test_the_oracle_prefers_the_true_caption(folders):
    items = ASKED.items_of_two(*folders)
    scores = [read_scores(Path(index.source)) for index in folders]
    preferred = dict(
        zip((item.key for item in items), ASKED.oracle_answers(items, *scores), strict=True)
    )
    assert (preferred["c001"], preferred["c005"], preferred["c006"], preferred["c007"]) == (
        "equal", "clare", "equal", "xmai",
    )  # fmt: skip
    checks = [item for item in items if item.expected]
    assert [preferred[item.key] for item in checks] == [item.expected for item in checks]
    unknown = ASKED.oracle_answers(items, {}, scores[1])
    assert unknown == [item.expected or None for item in items]


def test_folders_that_cannot_be_compared_are_refused(folders, tmp_path):
    from cfaug.data.index import open_index
    from cfaug.data.shards.shards import write_shards

    write_shards(pairs(), tmp_path / "pairs")
    other = open_index(tmp_path / "pairs", tmp_path / "cache")
    with pytest.raises(UserError, match="6 of 6 sets do not have one image that both texts share"):
        ASKED.items_of_two(folders[0], other)
    nothing = write_text_sets(tmp_path / "n" / "clare", "clare", count=2, unchanged=[0, 1])
    with pytest.raises(UserError, match="no photo whose text they changed differently"):
        ASKED.items_of_two(folders[0], nothing)
    for changes, said in (
        ({"attention": -1}, r"attention=-1 should be a whole number from 0 to 20"),
        ({"attention": True}, "attention=true"),
        ({"captions": ["a"], "accepted": ["a"]}, "captions=.'a'. is invalid: names of two methods"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=said):
            replace(ASKED, reported=(), **changes)
