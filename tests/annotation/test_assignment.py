"""Who answers what: the paper's counts, fair shares, strata, nothing that depends on order."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.annotation.answers import read_answers
from cfaug.annotation.assignment import Assignment, items_of
from cfaug.annotation.findings import Findings, count_strata
from cfaug.annotation.page import share_out, write_questions
from cfaug.annotation.question import AnnotationQuestion
from cfaug.annotation.record import Sorting, illustrate, read_record, record_of, write_record
from cfaug.annotation.records import Answer, ImageItem
from cfaug.annotation.strata import ILLUSTRATIONS, STRATA, Strata
from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from tests.annotation.making import WHY, write_answers
from tests.grid_sets import grid_set, lay_grid_sets
from tests.properties import examples
from tests.report.example import data_of


def numbered(pairs: int) -> list[ImageItem]:
    return [
        ImageItem(f"pair-{n:05d}", member, ("a cat", "a dog"), 2 * n + member)
        for n in range(pairs)
        for member in (0, 1)
    ]


def test_the_papers_questions():
    """COCO-CFs, section 4.1: a tenth of the images labelled by three (there of 34,820)."""
    items = numbered(60)
    shared = Assignment(annotators=12).distribute(items)
    assert sum(map(len, shared)) == 120 + 2 * 12
    times = Counter(Counter(i for share in shared for i in share).values())
    assert times == {1: 120 - 12, 3: 12}
    assert {len(share) for share in shared} == {12}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 25), st.integers(1, 7), st.integers(2, 7), st.floats(0, 1), st.integers(0, 9))
def test_every_image_once_and_the_overlap_by_different_people(pairs, people, raters, overlap, seed):
    items = numbered(pairs)
    if raters > people:
        overlap = 0.0
    plan = Assignment(people, raters, overlap, None, seed)
    shared = plan.distribute(items)
    several = plan.choose_overlap(items)
    assert all(len(set(share)) == len(share) for share in shared)
    times = Counter(i for share in shared for i in share)
    assert times == {i: raters if i in several else 1 for i in range(len(items))}
    loads = [len(share) for share in shared]
    assert max(loads) - min(loads) <= 1


def test_images_of_a_screening_go_to_everyone():
    items, everyone = numbered(20), {3, 17}
    plan = Assignment(4, 2, 0.1)
    shared = plan.distribute(items, everyone)
    assert all(everyone <= set(share) for share in shared)
    times = Counter(i for share in shared for i in share)
    others = {i: 2 if i in plan.choose_overlap(items) else 1 for i in range(40)}
    assert times == others | dict.fromkeys(everyone, 4)
    assert max(map(len, shared)) - min(map(len, shared)) <= 1


def test_a_sample_is_drawn_by_key():
    items = numbered(50)
    drawn = Assignment(sample=10).choose_items(items)
    assert len(drawn) == 10
    assert drawn == sorted(drawn, key=items.index)
    assert set(drawn) == set(Assignment(sample=10).choose_items(items[::-1]))
    assert set(drawn) < set(Assignment(sample=20).choose_items(items))
    assert Assignment(sample=1000).choose_items(items) == items


ERRORS = AnnotationQuestion(
    title="Does the image show what its caption asks for?", text="Say what the image shows.",
    options={"good": "Good", "unclear": "It cannot be discerned", "not_female": "No female person",
             "out_of_frame": "Out of frame", "not_male": "No male person"},
    accepted=["good"], show_caption=True, strata=Strata(
        "attributes", 100, {"grid": "race_gender", "subject_type": "occupation"},
        {"not_female": {"gender": "female"}, "not_male": {"gender": "male"}},
    ),
    illustrated=["unclear", "not_female", "out_of_frame", "not_male"],
)  # fmt: skip
FEW = replace(ERRORS, strata=replace(ERRORS.strata, each=2))
ATTRIBUTES = {"race": ("White", "Middle Eastern"), "gender": ("male", "female")}


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("social")
    sets = [grid_set(name, attributes=ATTRIBUTES) for name in ("doctor", "judge", "nurse", "pilot")]
    sets.append(grid_set("doctor", attributes=ATTRIBUTES, grid="religion_gender"))
    return open_index(lay_grid_sets(folder / "shards", sets), folder / "cache")


@pytest.fixture(scope="module")
def items(index):
    return items_of(index, FEW)


def test_every_image_knows_what_its_caption_asks_for(items):
    assert len(items) == 16  # of one grid
    assert items[1].stratum == (("race", "White"), ("gender", "female"))
    assert items[1].text == "A photo of a White female doctor"


def test_as_many_images_of_each_label_are_drawn_by_key(items, capsys):
    drawn = FEW.draw(items, seed=0)
    assert Counter(item.stratum for item in drawn) == dict.fromkeys({i.stratum for i in items}, 2)
    assert [item.name for item in drawn] == [i.name for i in items if i in drawn]
    assert drawn == FEW.draw(items[::-1], seed=0)[::-1]
    assert drawn != FEW.draw(items, seed=1)
    assert replace(ERRORS, strata=replace(ERRORS.strata, each=None)).draw(items, 0) == items
    assert not capsys.readouterr().err
    assert len(ERRORS.draw(items, 0)) == 16
    said = capsys.readouterr().err
    assert "fewer than 100 images of 4 of 4 strata" in said
    assert "Middle Eastern, female" in said


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=30), st.integers(1, 5), st.integers(0, 9)
)
def test_a_draw_takes_the_smaller_of_what_is_there_and_what_is_asked(strata, each, seed):
    items = [ImageItem(f"s{i}", 0, ("t",), i, "t", (("x", s),)) for i, s in enumerate(strata)]
    drawn = Strata("x", each).draw(items, seed)
    there = Counter(strata)
    assert Counter(i.stratum[0][1] for i in drawn) == {s: min(n, each) for s, n in there.items()}
    more = [*items, ImageItem("other", 0, ("t",), 99, "t", (("x", "other"),))]
    assert [i for i in Strata("x", each).draw(more, seed) if i.key != "other"] == drawn


def test_an_answer_is_offered_only_where_it_fits(items, index, tmp_path):
    questions = share_out(FEW, items[:2], Assignment(1, overlap_fraction=0), "?")
    page = data_of(write_questions(questions, tmp_path / "p.html", index.read_image))
    assert [name for name, _ in page["options"]] == list(FEW.options)
    assert [task["x"] for task in page["tasks"]] == [["not_female"], ["not_male"]]
    assert "task" in (text := (tmp_path / "p.html").read_text())
    assert "unfit.includes(value)" in text
    line = {"key": items[0].key, "member": 0, "annotator": "1", "label": "not_female"}
    file = write_answers(tmp_path / "a.jsonl", [line])
    with pytest.raises(UserError, match=r"line 1: label=not_female does not fit .*White male"):
        read_answers([file], items, field="label", choices=FEW.labels, offers=FEW.offers)
    fits = write_answers(tmp_path / "b.jsonl", [line | {"label": "not_male"}])
    (answer,) = read_answers([fits], items, field="label", choices=FEW.labels, offers=FEW.offers)
    assert answer.label == "not_male"


def answers(items) -> list[Answer]:
    """Return what two people say of the first set, and one of the second."""
    said = [("good", "good"), ("not_female", "good"), ("unclear",) * 2, ("not_female",) * 2,
            ("not_male",), ("good",), ("out_of_frame",), ("good",)]  # fmt: skip
    return [
        Answer(i, str(w), label) for i, labels in enumerate(said) for w, label in enumerate(labels)
    ]


def test_outcomes_are_counted_by_label(items, index, tmp_path):
    findings = Findings(FEW, items, answers(items))
    section = count_strata(findings, FEW.strata)
    backwards = Findings(FEW, items, [*answers(items)[6:], Answer(12, "1", "good")])
    assert count_strata(backwards, FEW.strata).rows[0][0] == "White, male"
    assert section.rows[1] == ("White, female", "2", "75.0", "0.0", "25.0", "0.0", "0.0")
    assert section.columns[:2] == ("asked for", "images")
    last = Findings(FEW, items, answers(items)[-1:])
    assert [row[0] for row in section.rows] == [  # of the source, whoever was answered first
        "White, male", "White, female", "Middle Eastern, male", "Middle Eastern, female",
    ]  # fmt: skip
    assert [row[0] for row in count_strata(last, FEW.strata).rows] == ["Middle Eastern, female"]
    sections = [section, illustrate(findings, index.read_image)]
    record = record_of(findings, Sorting(WHY), "grid", index.read_image, sections)
    back = read_record(write_record(record, tmp_path))
    kept = back.extra[STRATA]
    assert kept["offered"] == {"not_female": {"gender": "female"}, "not_male": {"gender": "male"}}
    tallies = {tuple(t["stratum"].values()): (t["images"], t["counts"]) for t in kept["tallies"]}
    slow = {}
    for i, labels in findings.by_item.items():
        images, counts = slow.setdefault(tuple(v for _, v in items[i].stratum), [0, Counter()])
        slow[tuple(v for _, v in items[i].stratum)][0] = images + 1
        for label in labels:
            counts[label] += 1 / len(labels)
    for stratum, (images, counts) in slow.items():
        assert tallies[stratum][0] == images
        assert {k: v for k, v in tallies[stratum][1].items() if v} == counts
    shown = [
        (illustrated["category"], illustrated["key"], illustrated["member"])
        for illustrated in back.extra[ILLUSTRATIONS]
    ]
    assert shown == [
        ("unclear", items[2].key, 2), ("not_female", items[3].key, 3),
        ("out_of_frame", items[6].key, 2), ("not_male", items[4].key, 0),
    ]  # fmt: skip


def test_sources_that_cannot_be_asked_about(index, tmp_path):
    def asked(**changes):
        return items_of(index, replace(FEW, strata=replace(FEW.strata, **changes)))

    with pytest.raises(UserError, match=r"none of 20 images has grid=physical_gender"):
        asked(only={"grid": "physical_gender"})
    with pytest.raises(UserError, match=r"lacks the column 'attribute' and has .*attributes"):
        asked(column="attribute")
    with pytest.raises(UserError, match="lacks the column 'seed'"):
        asked(only={"seed": "1"})
    with pytest.raises(UserError, match=r"has no 'age' among its attributes \(race, gender\)"):
        asked(offered={"not_male": {"age": "old"}})
    assert asked(column="subject", offered={})[0].stratum == (("subject", "doctor"),)
    judge = grid_set("judge", attributes=ATTRIBUTES)
    bare = replace(judge.members[0], extra={**judge.members[0].extra, "attributes": {}})
    write_shards([replace(judge, members=(bare, *judge.members[1:]))], tmp_path / "bare")
    with pytest.raises(UserError, match=r"judge-0_0 does not say what it should show"):
        items_of(open_index(tmp_path / "bare", tmp_path / "cache"), FEW)


@pytest.mark.slow
def test_the_page_offers_what_fits(watched, items, index, tmp_path):
    questions = share_out(FEW, items[:2], Assignment(1, overlap_fraction=0), "?")
    file = write_questions(questions, tmp_path / "page.html", index.read_image)
    order = [items[place] for place, _ in data_of(file)["people"]["1"]]
    options = "[...document.querySelectorAll('#options span')].map(one => one.textContent)"
    watched.open(file)
    for item in order:
        unfit = FEW.options["not_male" if item.member else "not_female"]
        assert watched.run(options) == [text for text in FEW.options.values() if text != unfit]
        watched.press("5")  # there are four
        watched.press("4")
    saved = [json.loads(line) for line in watched.run("cfaugAnswers()").splitlines()]
    fourth = {0: "not_male", 1: "out_of_frame"}
    assert [answer["label"] for answer in saved] == [fourth[item.member] for item in order]


def test_what_is_drawn_depends_on_keys_the_seed_and_the_person():
    plan, items = Assignment(3, 3, 1.0, seed=3), numbered(40)
    first, second, third = plan.distribute(items)
    assert sorted(first) == sorted(second) == sorted(third)
    assert first != second != third
    assert [first, second, third] == plan.distribute(items)
    assert first != Assignment(3, 3, 1.0, seed=4).distribute(items)[0]
    sides = [[plan.is_reversed(who, item) for item in items] for who in (1, 2)]
    assert sides[0] != sides[1]
    assert 20 < sum(sides[0]) < 60
    some, back = Assignment(4, seed=3), items[::-1]
    assert {back[i].name for i in some.choose_overlap(back)} == {
        items[i].name for i in some.choose_overlap(items)
    }


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Assignment(annotators=0), "annotators=0"),
        (lambda: Assignment(annotators=10**6), "annotators="),
        (lambda: Assignment(overlap_fraction=1.5), "overlap_fraction=1.5"),
        (lambda: Assignment(annotators_per_item=1), "annotators_per_item=1"),
        (lambda: Assignment(annotators=2), "annotators_per_item=3"),
        (lambda: Assignment(sample=0), "sample=0"),
        (lambda: Strata("a", each=0), r"each=0 should be a whole number"),
        (lambda: replace(FEW, illustrated=["bad"]), r"illustrated=\['bad'\] is invalid"),
        (lambda: replace(FEW, strata=Strata("a", offered={"no": {}})), r"strata.offered=\['no'\]"),
    ],
)
def test_settings_that_are_invalid(make, said):
    with pytest.raises(UserError, match=said):
        make()
