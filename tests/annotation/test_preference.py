"""Which of two captions is better: from two folders to the page, the answers and the sign test."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cfaug.annotation.answers import Answer, draw_check, read_answers, split_checks, who_failed
from cfaug.annotation.assignment import Assignment
from cfaug.annotation.caption_form import Preference
from cfaug.annotation.findings import Findings
from cfaug.annotation.page import share_out, write_questions
from cfaug.core.errors import UserError
from cfaug.data.shards.shards import read_scores
from cfaug.planning.build import build
from cfaug.stats.item_tests import mcnemar
from tests.annotation.making import HOSTILE, ROOT, pairs, write_answers
from tests.annotation.test_annotation_page import data_of
from tests.annotation.text_sets import write_text_sets

ASKED: Preference = build(
    yaml.safe_load((ROOT / "conf/annotate/question/preference.yaml").read_text())
)


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
    assert all(len(own) == len(items) for own in asked.orders.values())
    for own in asked.orders.values():
        assert sum(swapped for _, swapped in own) == len(items) // 2
    first = [{task for task, swapped in own if swapped} for own in asked.orders.values()]
    assert len(set(map(frozenset, first))) > 1, "not the same half for everyone"


def test_the_page_offers_both_captions_as_text_and_no_method_by_name(folders, tmp_path):
    items = ASKED.items_of_two(*folders)
    questions = share_out(ASKED, items, Assignment(3), "t")
    page = write_questions(questions, tmp_path / "p.html", folders[0].read_image)
    data = data_of(page)
    task = next(one for one in data["tasks"] if one["k"] == "c000")
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
    found = section.data["preference"]
    assert found["counts"] == {"xmai": 7, "clare": 1, "neither": 1}
    assert found["p"] == mcnemar(7, 1)
    assert "for 7, that of clare for 1" in section.sentences[0]


def test_whoever_fails_a_check_of_attention_is_left_out(folders):
    items = ASKED.items_of_two(*folders)
    checks = [place for place, item in enumerate(items) if item.expected]
    good = [Answer(place, "good", items[place].expected) for place in checks]
    other = {"xmai": "clare", "clare": "xmai"}
    bad = [replace(one, annotator="bad") for one in good[1:]]
    bad.append(Answer(checks[0], "bad", other[items[checks[0]].expected]))
    lazy = [Answer(0, "lazy", "xmai"), replace(good[0], annotator="lazy")]
    assert who_failed([*good, *bad, *lazy], items) == pytest.approx({"bad": 2 / 3, "lazy": 1 / 3})
    assert who_failed(good, items[:3]) == {}


def test_checks_ask_for_every_answer_and_are_the_same_for_everyone():
    asked = [draw_check(n, ("a", "b", "c"), range(50)) for n in range(60)]
    assert Counter(answer for answer, _ in asked).keys() == {"a", "b", "c"}
    assert len({row for _, row in asked}) > 20
    assert asked == [draw_check(n, ("a", "b", "c"), range(50)) for n in range(60)]


def test_the_oracle_prefers_the_true_caption(folders):
    items = ASKED.items_of_two(*folders)
    scores = [read_scores(Path(index.source)) for index in folders]
    found = dict(
        zip((item.key for item in items), ASKED.oracle_answers(items, *scores), strict=True)
    )
    assert (found["c001"], found["c005"], found["c006"], found["c007"]) == (
        "equal", "clare", "equal", "xmai",
    )  # fmt: skip
    checks = [item for item in items if item.expected]
    assert [found[item.key] for item in checks] == [item.expected for item in checks]
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
