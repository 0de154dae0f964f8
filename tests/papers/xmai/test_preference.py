"""People's preference by command: pages, simulated annotators, answers read back, the table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cfaug.annotation.answers import split_checks
from cfaug.annotation.assignment import Assignment
from cfaug.annotation.forms import Preference
from cfaug.core.errors import UserError
from cfaug.planning.build import build
from cfaug.report.arm_results import MissingError, Runs
from cfaug.run.annotation_steps import AnnotationSource, Export, ReadAnswers, Simulate
from tests.annotation.making import WHY, write_answers
from tests.annotation.test_caption_form import ALL, FORM
from tests.annotation.text_sets import write_text_sets
from tests.files_of_settings import read_settings

ASKED: Preference = build(read_settings("annotate/question/preference"))
FIVE = Assignment(5, 5, 1.0)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("preference")
    write_text_sets(root / "xmai", "xmai", false=[5, 6])
    write_text_sets(root / "clare", "clare", false=range(3, 12))
    return root


@pytest.fixture
def source(root) -> AnnotationSource:
    from cfaug.data.index import open_index

    def no_oracle() -> Path:
        raise UserError("nobody knows")

    def open_other(name: str):
        return open_index(Path(name), root / "cache")

    return AnnotationSource("xmai", open_other(str(root / "xmai")), no_oracle, open_other)


def read(question, answers: list[str], out: Path) -> ReadAnswers:
    return ReadAnswers(str(out), question, WHY, answers, [], None, 0.8, {})


def test_simulated_annotators_prefer_what_is_true_and_the_table_prints_it(root, source, capsys):
    asked = replace(ASKED, against=str(root / "clare"))
    Simulate(str(root / "runs"), asked, WHY, FIVE, 0.0, 10, None).run(source)
    files = sorted((root / "runs").glob("answers-*.jsonl"))
    assert len(files) == 5
    read(asked, [str(file) for file in files], root / "runs/preference").run(source)
    said = capsys.readouterr().out
    assert "is left out" not in said
    preference = json.loads((root / "runs/preference/annotation.json").read_text())["preference"]
    assert preference["counts"] == {"xmai": 7, "clare": 0, "neither": 5}
    assert "most annotators prefer the caption of xmai for 7" in said
    node = read_settings("table/xmai_preference")
    document = build(node).build(Runs(root / "runs"))
    ours = [part for part in document.parts if part.ours]
    assert [cell.text for cell in ours[0].rows[0][1]] == ["7", "0", "5", "12", "0.016"]
    theirs = document.parts[0].rows[0]
    assert [cell.text for cell in theirs[1]] == ["63", "26", "11", "100", "1.1e-4"]


def test_whoever_does_not_attend_is_named_and_left_out(root, source, tmp_path, capsys):
    asked = replace(ASKED, against=str(root / "clare"))
    lines = [
        {"key": item.key, "member": item.member, "annotator": who,
         "label": item.expected if item.expected and who == "good" else "xmai"}
        for who in ("good", "bad")
        for item in source.items(asked)
    ]  # fmt: skip
    read(asked, [write_answers(tmp_path / "a.jsonl", lines)], tmp_path / "out").run(source)
    assert "annotator bad is left out" in capsys.readouterr().out
    lines = [line for line in lines if line["annotator"] == "bad"]
    with pytest.raises(UserError, match="every annotator failed a check of attention"):
        read(asked, [write_answers(tmp_path / "b.jsonl", lines)], tmp_path / "out").run(source)


def test_the_page_asks_everyone_the_checks_and_a_sample_of_photos(root, source, tmp_path, capsys):
    asked = replace(ASKED, against=str(root / "clare"))
    page = tmp_path / "p.html"
    Export(str(page), asked, replace(FIVE, sample=4), None, "one", 64).run(source)
    assert page.exists()
    assert "35 questions about 7 images" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"annotate.question.against=FOLDER: name the sets"):
        Export(str(page), ASKED, FIVE, None, "one", 64).run(source)


def test_quality_is_read_back_with_an_equivalence_test(root, source, tmp_path, capsys):
    form = replace(FORM, per_kind=6)
    Export(str(tmp_path / "q.html"), form, FIVE, None, "one", 64).run(source)
    assert "to 5 people" in capsys.readouterr().out
    real, checks = split_checks(form.items(source.index))
    lines = [
        {"key": item.key, "member": item.member, "annotator": str(who),
         "quality": int(item.expected or 3 + (place + who) % 2)}
        for who in range(5)
        for place, item in enumerate([*real, *checks])
    ]  # fmt: skip
    answers = write_answers(tmp_path / "a.jsonl", lines)
    read(ALL, [answers], root / "runs2/quality").run(source)
    node = read_settings("table/xmai_preference")
    document = build(node).build(Runs(root / "runs2"))
    (part,) = [part for part in document.parts if part.ours]
    cells = dict(zip(part.columns, part.rows[0][1], strict=True))
    assert part.rows[0][0] == ("xmai",)
    assert cells["original"].numbers["n"] == 6
    assert float(cells["p, equivalent"].text) < 0.05
    theirs = dict(zip(document.parts[1].columns, document.parts[1].rows[0][1], strict=True))
    assert (theirs["t"].text, theirs["p, different"].text) == ("0.713", "0.48")
    assert theirs["difference [90 %]"].small == "[-0.07, +0.17]"


def test_simulated_annotators_rate_false_captions_low_whoever_answers_how_much(
    root, source, tmp_path
):
    few = Assignment(4, 2, 0.25)
    Simulate(str(tmp_path), ALL, WHY, few, 0.0, 10, None).run(source)
    answers = [str(file) for file in tmp_path.glob("answers-*.jsonl")]
    read(ALL, answers, tmp_path / "quality").run(source)
    ratings = json.loads((tmp_path / "quality/ratings.json").read_text())
    assert ratings["annotators"] == 4, "everyone answered the checks"
    means = {kind: summary["mean"] for kind, summary in ratings["fields"]["quality"]["by"].items()}
    assert means["original"] == 5
    assert means["xmai"] == pytest.approx((10 * 5 + 2 * 1) / 12)
    asked = replace(ASKED, against=str(root / "clare"))
    Simulate(str(tmp_path / "p"), asked, WHY, few, 0.5, 10, None).run(source)
    answers = [str(file) for file in (tmp_path / "p").glob("answers-*.jsonl")]
    read(asked, answers, tmp_path / "preference").run(source)
    record = json.loads((tmp_path / "preference/annotation.json").read_text())
    assert record["annotators"] == 4, "who errs about captions attends all the same"


def test_what_the_oracle_cannot_judge_is_left_out_and_counted(root, source, tmp_path, capsys):
    asked = replace(ASKED, against=str(tmp_path / "some"))
    write_text_sets(tmp_path / "some", "eda", unknown=[0, 1, 2])
    Simulate(str(tmp_path / "out"), asked, WHY, FIVE, 0.0, 10, None).run(source)
    assert "cannot judge the captions of 3 questions" in capsys.readouterr().err
    lines = (tmp_path / "out/answers-simulated-1.jsonl").read_text().splitlines()
    assert len(lines) == 9 + 3
    write_text_sets(tmp_path / "none", "eda", unknown=range(12))
    asked = replace(ASKED, against=str(tmp_path / "none"))
    with pytest.raises(UserError, match="no set says whether its captions are true"):
        Simulate(str(tmp_path / "out"), asked, WHY, FIVE, 0.0, 10, None).run(source)


def test_answers_to_other_questions_and_nobody_asked(tmp_path, root, source):
    node = read_settings("table/xmai_preference")
    with pytest.raises(MissingError, match="nobody was asked"):
        build(node).build(Runs(tmp_path))
    assert [part.ours for part in build(node | {"partial": True}).build(Runs(tmp_path)).parts] == [
        False, False,
    ]  # fmt: skip
    with pytest.raises(UserError, match=r"margin=0 should be a number in \(0, 9\)"):
        build(node | {"margin": 0})
    asked = replace(ASKED, against=str(root / "clare"))
    Simulate(str(tmp_path), asked, WHY, FIVE, 0.1, 10, None).run(source)
    answers = [str(file) for file in tmp_path.glob("answers-*.jsonl")]
    read(asked, answers, tmp_path / "preference").run(source)
    record = json.loads((tmp_path / "preference/annotation.json").read_text())
    for wrong in (None, {"first": "a"}, {"first": "a", "second": "b", "counts": {"a": -1}}):
        file = tmp_path / "preference/annotation.json"
        file.write_text(json.dumps(record | {"preference": wrong}))
        with pytest.raises(UserError, match="does not hold answers to annotate/question=prefer"):
            build(node).build(Runs(tmp_path))
