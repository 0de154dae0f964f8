"""The page of changed texts: it shows what the items say, and nothing in it is live."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.browser import Browser
from cfaug.core.errors import UserError
from cfaug.evaluation.text_pairs.text_pair_items import InsertionItems
from cfaug.papers.xmai.insertion import MethodTests, insertion_page, verdicts
from cfaug.report.gallery import ImageSource
from cfaug.report.items import write_items
from tests.evaluation.joined import picture
from tests.report.example import data_of
from tests.report.insertion_example import METHODS, insertion_items
from tests.report.page_reader import PageReader

IMAGES = ImageSource(lambda name: picture(2, sum(name.encode())))


def write(folder: Path, *answers: InsertionItems, limit: int = 5) -> Path:
    file = folder / "insertion.html"
    return insertion_page(limit).write(answers, file, IMAGES, title="Ours & theirs")


def with_column(answers: InsertionItems, **columns) -> InsertionItems:
    items = replace(answers.items, columns={**answers.items.columns, **columns})
    return InsertionItems(answers.model, items)


def test_the_texts_that_fell_most_are_shown_with_their_ranks(tmp_path):
    first, second = insertion_items("clip"), insertion_items("slip2")
    page = data_of(write(tmp_path, first, second))
    assert page["models"] == ["clip", "slip2"]
    assert page["methods"] == list(METHODS)
    for method in METHODS:
        rows = [r for r, name in enumerate(first.texts("method")) if name == method]
        rows = [row for row in rows if first.items.columns["changed"][row]]
        drop = {row: sum(m.items.columns["mrr_drop"][row] for m in (first, second)) for row in rows}
        most = sorted(rows, key=lambda row: -drop[row])[:5]
        shown = [text for text in page["texts"] if text["m"] == method]
        assert [text["i"] for text in shown] == [first.texts("item")[row] for row in most]
        for text, row in zip(shown, most, strict=True):
            assert "".join(text["t"][0]) == first.texts("text_before")[row]
            assert "".join(text["t"][1]) == first.texts("text")[row]
            assert text["t"][1][1::2] == [method]  # the word that was inserted is marked
            assert text["l"] == first.label_kept[row]
            for model, answer in zip((first, second), text["r"], strict=True):
                names = ("rank_original", "rank", "mrr_original", "mrr")
                wanted = [model.items.columns[name][row] for name in names]
                assert answer == pytest.approx(wanted, rel=1e-3)
    digests = {first.texts("image")[first.texts("item").index(text["i"])] for text in page["texts"]}
    assert len(page["pictures"]) == len(digests)


def test_tables_hold_the_tests_of_every_method(tmp_path):
    answers = insertion_items("clip")
    photos, kept, batches, against, alike = data_of(write(tmp_path, answers))["tables"][0]
    tested = MethodTests(answers)
    for table, tests in (
        (photos, tested.drops), (kept, tested.kept_drops), (batches, tested.batch_drops),
        (against, tested.against),
    ):  # fmt: skip
        for row, test in zip(table["r"], tests, strict=True):
            assert len(row) == len(table["h"])
            names, cells = row[:-8], row[-8:]
            assert names == [test.method, *([test.other] if test.other else [])]
            assert cells[0] == f"{test.keys}"
            numbers = [test.test.before, test.test.after]
            assert [float(cell) for cell in cells[1:3]] == pytest.approx(numbers, abs=6e-4)
            assert float(cells[3].split(" ")[0]) == pytest.approx(test.test.mean.mean, abs=6e-4)
            assert cells[4] == f"{test.test.lost} / {test.test.won}"
    assert [row[1] for row in photos["r"]] == ["24"] * 4
    assert [row[:2] for row in against["r"]] == [["deletion", name] for name in list(METHODS)[1:]]
    for row in alike["r"]:
        rows = [r for r, name in enumerate(answers.texts("method")) if name == row[0]]
        assert float(row[4]) == pytest.approx(answers.items.columns["bleu"][rows].mean(), abs=6e-4)
    alone = insertion_items("clip", methods={"xmai": 0.15})
    titles = [table["t"] for table in data_of(write(tmp_path, alone))["tables"][0]]
    assert len(titles) == 4  # nothing to compare it with


def test_a_sentence_says_the_drop_and_what_is_known_of_the_truth():
    answers = insertion_items("clip", methods={"xmai": 0.15})
    (line,) = verdicts(MethodTests(answers))
    (test,) = MethodTests(answers).drops
    assert line.startswith(
        f"clip, xmai: MRR {test.test.before:.3f} → {test.test.after:.3f}, a drop"
    )
    assert "6 of 18 judged texts are no longer as true as before; over the 12 that are" in line
    unknown = np.array(["unknown"] * len(answers), object)
    (line,) = verdicts(MethodTests(with_column(answers, label_kept=unknown)))
    assert "true" not in line
    titles = [table["t"] for table in _tables(with_column(answers, label_kept=unknown))]
    assert titles == ["Among all photos", "In batches", "Similarity"]


def test_a_method_whose_texts_all_became_false_is_said_so():
    answers = insertion_items("clip", methods={"xmai": 0.15})
    false = with_column(answers, label_kept=np.array(["changed"] * len(answers), object))
    (line,) = verdicts(MethodTests(false))
    assert line.endswith("; 24 of 24 judged texts are no longer as true as before.")
    assert len(_tables(false)) == 3  # there is none of the texts that stayed true


def test_a_photo_that_is_found_better_is_said_to_rise():
    (line,) = verdicts(MethodTests(insertion_items("clip", methods={"xmai": -0.15})))
    (test,) = MethodTests(insertion_items("clip", methods={"xmai": -0.15})).drops
    mean = test.test.mean
    assert mean.mean < 0
    rise, low, high = (f"{round(-v, 3) + 0.0:.3f}" for v in (mean.mean, mean.high, mean.low))
    assert f"a rise of {rise} [{low}, {high}] over" in line


def _tables(answers):
    from cfaug.papers.xmai.insertion import _InsertionPageData

    return _InsertionPageData([MethodTests(answers)], 3).content()["tables"][0]


def test_nothing_in_a_text_is_live(tmp_path):
    answers = insertion_items("clip", methods={"</script><script>alert(1)</script>": 0.1})
    texts = np.array(["<img src=x onerror=alert(2)>"] * len(answers), object)
    text = write(tmp_path, with_column(answers, text=texts)).read_text()
    assert text.count("</script>") == 2
    assert "<img src=x" not in text
    assert not re.search(r"https?://", text)


def test_answers_that_cannot_stand_on_one_page_are_refused(tmp_path):
    first, second = insertion_items("clip"), insertion_items("slip2", photos=3)
    with pytest.raises(UserError, match="clip and slip2 answered different texts"):
        write(tmp_path, first, second)
    with pytest.raises(UserError, match="duplicated names"):
        write(tmp_path, first, first)


def test_one_page_a_model_and_one_of_all(tmp_path):
    answers = [insertion_items("clip"), insertion_items("slip2")]
    folders = [tmp_path / of_model.model / "seed=0" for of_model in answers]
    for folder, of_model in zip(folders, answers, strict=True):
        write_items(folder, of_model.items)
        page = insertion_page(2).write_for_run(folder, of_model.model, "own_insertion", IMAGES)
        assert data_of(page)["models"] == [of_model.model]
    assert data_of(tmp_path / "own_insertion.html")["models"] == ["clip", "slip2"]
    before = page.read_bytes()
    again = insertion_page(2).write_for_run(folder, "slip2", "own_insertion", IMAGES)
    assert again.read_bytes() == before
    with pytest.raises(UserError, match=r"has no items of other: run evaluate.py benchmark=insert"):
        insertion_page().write_for_run(folder, "slip2", "other", IMAGES)


@pytest.fixture
def reader(watched: Browser, tmp_path: Path) -> PageReader:
    watched.open(write(tmp_path, insertion_items("clip"), insertion_items("slip2")))
    return PageReader(watched)


def test_a_reader_chooses_methods_answers_and_words(reader):
    assert reader.status == "1–19 of 19"  # three methods change all, one only four texts
    reader.chooses("method", "xmai")
    assert reader.status == "1–5 of 5"
    assert all("xmai;" in line for line in reader.seen(".text .quiet"))
    reader.chooses("label", "changed")
    assert {line.partition("; ")[2] for line in reader.seen(".text .quiet")} <= {
        "right answer changed by the edit"
    }
    reader.resets()
    reader.chooses("text", "p1-0")
    assert all("p1-0" in key for key in reader.seen(".text .key"))
    reader.resets()
    assert reader.seen("#tables h3")[0] == "Among all photos"
    reader.chooses("model", "")
    assert len(reader.seen("#tables h3")) == 2 * 5
    reader.browser.view(390, 844, dark=True, phone=True)
    assert reader.browser.run("document.documentElement.scrollWidth") == 390
