"""The paper's questions about edits, from the page to the means."""

from __future__ import annotations

import json

import pytest

from cfaug.annotation.forms import Form
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from cfaug.planning.build import build
from tests.annotation.making import EDITS
from tests.annotation.test_form import ALL, joined
from tests.annotation.test_form import lines as filled_in
from tests.files_of_settings import read_settings
from tests.run.conftest import refusal, stdout_of
from tests.run.test_annotate import annotate  # noqa: F401


def test_the_papers_questions_have_these_answers():
    form: Form = build(read_settings("annotate/question/lance"))
    assert {name: field.kind for name, field in form.fields.items()} == {
        name: field.kind for name, field in EDITS.fields.items()
    }
    assert (form.per_kind, *form.leave_out) == (10, "reconstruction")


@pytest.mark.slow
def test_a_form_from_the_page_to_the_means(place, annotate, tmp_path):  # noqa: F811
    write_shards([joined(n) for n in range(3)], tmp_path / "joined")
    words = ["annotate/question=lance", f"pairs={tmp_path / 'joined'}"]
    everyone = ["annotate.assignment.annotators=3", "annotate.assignment.overlap_fraction=1"]
    assert "27 questions about 9 images" in stdout_of(annotate, "export", *words, *everyone)
    folder = place.root / "annotation"
    items = ALL.items(open_index(tmp_path / "joined", tmp_path / "cache"))
    for who, realism in enumerate((2, 3, 5), 1):
        rows = [filled_in(item, str(who), realism=realism) for item in items[:4]]
        (folder / f"answers-x-{who}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    out = stdout_of(annotate, "read", *words)
    assert "12 forms about 4 of 9 images" in out
    assert "Image Realism (1-5): 3.33, alpha -0." in out
    assert "Edit Success (1-5)" in (folder / "ratings.html").read_text()
    assert "Edit Success (1-5)" in (folder / "ratings.json").read_text()
    for mode in ("simulate", "taxonomy"):
        assert "is a form that people fill in" in refusal(annotate, mode, *words)
    assert "not with a form" in refusal(annotate, "export", *words, "annotate.screening=gold.jsonl")
