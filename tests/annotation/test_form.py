"""A form about edited images: from the page that a person fills in to the numbers of Table 4."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.annotation.assignment import Assignment
from cfaug.annotation.forms import EditedItem, Field
from cfaug.annotation.page import share_out, write_questions
from cfaug.annotation.ratings import (
    OVERALL,
    Rating,
    ratings_part,
    read_ratings,
    read_summary,
    summarise_ratings,
    write_ratings,
    write_ratings_page,
)
from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from cfaug.stats.agreement import krippendorff_alpha
from tests.annotation.making import EDITS, HOSTILE, write_answers
from tests.report.example import data_of, picture

ALL = replace(EDITS, per_kind=None)
KINDS = ("adjective", "background", "domain")
FULL = {"realism": 4, "edit_success": 5, "fidelity": 3, "label_consistent": True,
        "ethical_issues": False, "ethical_details": ""}  # fmt: skip


def joined(number: int) -> CounterfactualSet:
    """A photo, its reconstruction, and an edit of every kind."""
    text = HOSTILE if number == 0 else f"a red ball {number}"
    edits = [None, Edit("reconstruction", "", ""), *(Edit(k, "red", f"{k}-ed") for k in KINDS)]
    members = tuple(
        Member(text if e is None or not e.before else f"{text} {e.after}", str(i), "s", e, "ball")
        for i, e in enumerate(edits)
    )
    images = {str(i): picture("ball", "red" if i < 2 else "blue") for i in range(len(edits))}
    return CounterfactualSet(f"photo-{number:03d}", f"g{number}", members, images)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("joined")
    write_shards([joined(n) for n in range(12)], folder / "shards")
    return open_index(folder / "shards", folder / "cache")


def test_the_questions_are_asked_about_ten_images_of_each_kind(index):
    items = EDITS.items(index)
    assert Counter(item.kind for item in items) == dict.fromkeys(KINDS, 10)
    assert [i.name for i in items] == [i.name for i in ALL.items(index) if i in items]
    assert {i.name for i in items} != {i.name for i in EDITS.items(index, seed=1)}
    first = ALL.items(index)[0]
    assert (first.name, first.photo, first.row, first.kind) == ("photo-000_2", 0, 2, "adjective")
    assert (first.label, first.change) == ("ball", "red → adjective-ed")
    assert [f.kind for f in EDITS.fields.values()] == ["scale"] * 3 + ["check"] * 2 + ["text"]
    everyone = Assignment(15, 15, 1.0).distribute(items)
    assert [len(share) for share in everyone] == [30] * 15


def test_sources_that_cannot_be_asked_about(tmp_path):
    whole = joined(1)
    bare = replace(whole, members=whole.members[:2], images={k: whole.images[k] for k in "01"})
    no_photo = replace(whole, members=whole.members[2:])
    for n, (bad, said) in enumerate(((bare, "no edited image"), (no_photo, "no photo"))):
        write_shards([bad], tmp_path / str(n))
        with pytest.raises(UserError, match=said):
            EDITS.items(open_index(tmp_path / str(n), tmp_path / "cache"))


def lines(item: EditedItem, who: str, **values) -> dict:
    return {"key": item.key, "member": item.member, "annotator": who, "texts": item.texts_hash,
            "seconds": 2.5, **FULL, **values}  # fmt: skip


def test_answers_come_back_from_jsonl_and_csv(index, tmp_path):
    items = ALL.items(index)
    given = [lines(items[0], "1", ethical_details="a, b"), lines(items[1], "Ann", realism=1)]
    file = write_answers(tmp_path / "a.jsonl", [*given, given[0]])
    ratings = read_ratings([file], items, ALL)
    assert [(r.item, r.annotator) for r in ratings] == [(0, "1"), (1, "Ann")]
    assert ratings[0].values == {**FULL, "ethical_details": "a, b"}
    table = tmp_path / "b.csv"
    names = list(given[0])
    rows = [",".join(f'"{answer[name]}"' for name in names) for answer in given]
    table.write_text("\n".join([",".join(names), *rows]) + "\n")
    assert read_ratings([table], items, ALL) == ratings
    other = write_answers(tmp_path / "c.jsonl", [given[0], given[0] | {"realism": 2}])
    with pytest.raises(UserError, match=r"answers differently about photo-000_2 in .*line 1"):
        read_ratings([other], items, ALL)
    with pytest.raises(UserError, match="no answers"):
        read_ratings([write_answers(tmp_path / "d.jsonl", [])], items, ALL)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"realism": 6}, "realism='6' is invalid: enter a whole number from 1 to 5"),
        ({"realism": True}, "realism='True'"),
        ({"realism": 4.5}, r"realism='4\.5'"),
        ({"fidelity": None}, "lacks fidelity"),
        ({"label_consistent": "maybe"}, "enter true or false"),
        ({"ethical_details": "x" * 2001}, "up to 2,000 characters"),
        ({"member": 1}, "'photo-000_1' is not an edited image"),
        ({"annotator": "<b>"}, "annotator='<b>'"),
        ({"texts": "abc"}, "other captions"),
    ],
)
def test_invalid_answers_are_named(index, tmp_path, change, said):
    items = ALL.items(index)
    file = write_answers(tmp_path / "a.jsonl", [lines(items[0], "1") | change])
    with pytest.raises(UserError, match=said):
        read_ratings([file], items, ALL)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_means_and_agreement_are_those_of_a_slow_twin(data):
    items = [
        EditedItem(f"k{i}", 2, ("a", "b"), 2, kind=KINDS[i % 2], photo=0, label="x", change="y")
        for i in range(6)
    ]
    ratings = [
        Rating(i, who, {**FULL, "realism": data.draw(st.integers(1, 5)),
                        "label_consistent": data.draw(st.booleans())})
        for i in range(6) for who in "abc" if data.draw(st.booleans())
    ]  # fmt: skip
    if not ratings:
        return
    summary = summarise_ratings(ratings, items, ALL, "s")
    for name in ("realism", "label_consistent"):
        for kind in (*KINDS, OVERALL):
            means = []
            for i in range(6):
                values = [float(r.values[name]) for r in ratings if r.item == i]
                if values and kind in (items[i].kind, OVERALL):
                    means.append(sum(values) / len(values))
            if not means:
                assert kind not in summary.fields[name].by
                continue
            score = summary.fields[name].by[kind]
            assert score.mean == pytest.approx(np.mean(means))
            assert score.images == len(means)
            sd = np.std(means, ddof=1) if len(means) > 1 else math.nan
            assert score.sd == pytest.approx(sd, nan_ok=True)
        given_ = {(r.item, r.annotator): float(r.values[name]) for r in ratings}
        table = [[given_.get((i, who)) for who in "abc"] for i in range(6)]
        level = "ordinal" if name == "realism" else "nominal"
        alpha = krippendorff_alpha(table, level)
        assert summary.fields[name].alpha == pytest.approx(alpha, nan_ok=True)


def test_the_record_comes_back_and_the_page_shows_it(index, tmp_path):
    items = ALL.items(index)
    ratings = [
        Rating(0, "1", FULL | {"ethical_issues": True, "ethical_details": HOSTILE}),
        Rating(0, "2", FULL | {"realism": 2}), Rating(1, "1", FULL),
    ]  # fmt: skip
    summary = summarise_ratings(ratings, items, ALL, "shards")
    back = read_summary(write_ratings(summary, tmp_path))
    assert repr(back) == repr(summary)
    part = ratings_part(summary)
    assert part.columns == ("Adjective", "Background", "Overall", "Agreement")
    cells = dict(part.rows)
    realism, ethics = cells["Image Realism (1-5)",], cells["Ethical issues (%)",]
    assert [entry.text for entry in realism[:3]] == ["3.0", "4.0", "3.5"]
    assert [entry.text for entry in ethics[:3]] == ["50.0", "0.0", "25.0"]
    assert (realism[2].sub, ethics[2].sub, realism[0].sub) == ("0.7", "35.4", "")
    text = write_ratings_page(summary, tmp_path).read_text()
    assert "<script>document" not in text
    assert "Image Fidelity (1-5)" in text
    assert "3 forms about 2 of 36 images" in text


def test_a_record_that_is_none_is_refused(tmp_path):
    for text in ("[]", '{"source": 1}', '{"source": "", "title": "", "annotators": 1, "items": 1, '
                 '"fields": {"a": {"kind": "text"}}, "remarks": []}'):  # fmt: skip
        (tmp_path / "ratings.json").write_text(text)
        with pytest.raises(UserError, match="cfaug annotate read"):
            read_summary(tmp_path / "ratings.json")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Field("T", "t", "slider"), "kind=slider"),
        (lambda: Field("T", "t", "scale", 1, 12), "low, high=1, 12"),
        (lambda: Field("T", "t", "scale", ends=["bad"]), "ends"),
        (lambda: replace(EDITS, fields={"remark": Field("T", "t", "text")}), "no scale and no"),
        (lambda: replace(EDITS, fields={"key": Field("T", "t", "check")}), "called 'key'"),
        (lambda: replace(EDITS, per_kind=0), "per_kind=0"),
    ],
)
def test_invalid_forms_name_the_setting(make, said):
    with pytest.raises(UserError, match=said):
        make()


@pytest.mark.slow
def test_a_person_fills_in_the_form_stops_and_goes_on(watched, index, tmp_path):
    form = replace(EDITS, per_kind=1)
    items = form.items(index)
    questions = share_out(form, items, Assignment(1, overlap_fraction=0), "How good?")
    file = write_questions(questions, tmp_path / "page.html", index.read_image)
    order = [place for place, _ in data_of(file)["people"]["1"]]
    run, press = watched.run, watched.press
    watched.open(file)
    count = "document.getElementById('count').textContent"
    assert run("document.querySelectorAll('#pictures img').length") == 2
    about = "document.querySelector('figure.about figcaption').textContent"
    assert run(about) == items[order[0]].texts[1]
    assert "Class: ball. Edit (" in run("document.getElementById('note').textContent")
    press("Enter")
    assert run(count) == "0 of 3 answered", "a scale is open"
    for key in "7354":  # the first is beyond the scale
        press(key)
    run("document.querySelector('input[name=label_consistent]').click()")
    press("Enter")
    watched.open(file)
    assert run(count) == "1 of 3 answered"
    for key in ("1", "ArrowRight", "ArrowLeft"):  # what was begun is still there
        press(key)
    assert run("document.querySelector('input[name=realism]').checked")
    run("(() => { const t = document.querySelector('textarea'); t.value = 'odd 5';"
        " t.dispatchEvent(new Event('input')); t.focus(); })()")  # fmt: skip
    press("5")  # is text there
    run("document.activeElement.blur()")
    for key in ("2", "2", "Enter", "5", "5", "5"):
        press(key)
    run("document.getElementById('keep').click()")
    assert run("document.getElementById('end').hidden") is False
    saved = run("cfaugAnswers()").splitlines()
    ratings = read_ratings([write_answers(tmp_path / "a.jsonl", saved)], items, form)
    assert [r.item for r in ratings] == order
    scales = [[r.values[n] for n in ("realism", "edit_success", "fidelity")] for r in ratings]
    assert scales == [[3, 5, 4], [1, 2, 2], [5, 5, 5]]
    assert [r.values["label_consistent"] for r in ratings] == [True, False, False]
    assert ratings[1].values["ethical_details"].startswith("odd 5")
    assert json.loads(saved[0])["texts"] == items[order[0]].texts_hash
