"""The page of questions: it shows what the benchmark wrote, and nothing in it is live."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.browser import Browser
from cfaug.core.errors import UserError
from cfaug.data.questions import SourceQuestion
from cfaug.evaluation.benchmark import KeepsPages
from cfaug.evaluation.questions.question_page import ShownAnswers, question_page, verdict
from cfaug.report.gallery import ImageSource
from cfaug.report.items import Items, write_items
from tests.evaluation.drawn_questions import Drawn, Picture, Writer, image, opened
from tests.report.example import data_of
from tests.report.page_reader import PageReader

IMAGES = [image(n) for n in range(8)]
HOSTILE = "</script><img src=x onerror=alert(1)>"


def answers(model: str = "llava", seed: int = 0, images=IMAGES, **settings) -> ShownAnswers:
    benchmark = opened(images, **settings)
    evaluation = benchmark.run(Drawn(seed, longest=200))
    return ShownAnswers(model, Items(str(benchmark.name), f"w{seed}", "d", evaluation.items))


def read_image(digest: str) -> bytes:
    (content,) = {asked.image.content for asked in IMAGES if asked.image.digest == digest}
    return content


def write(folder: Path, *asked: ShownAnswers, limit: int | None = None) -> Path:
    file = folder / "asked_vqa.html"
    return question_page(limit).write(asked, file, ImageSource(read_image), title="Ours & theirs")


def test_every_answer_stands_beside_its_question(tmp_path):
    asked = [answers("llava"), answers("qwen", 1)]
    page = data_of(write(tmp_path, *asked))
    assert page["models"] == ["llava", "qwen"]
    assert page["asked"] == ["With the image", "Without the image", "Options alone"]
    assert [shown["k"] for shown in page["images"]] == [expected.key for expected in IMAGES]
    assert len(page["pictures"]) == len(IMAGES)
    rows = {name: row for row, name in enumerate(asked[0].items.columns["item"])}
    for shown, expected in zip(page["images"], IMAGES, strict=True):
        assert shown["c"] == expected.category
        for on_page, question in zip(shown["q"], expected.questions, strict=True):
            assert "".join(on_page["t"]) == question.text
            if question.kind == "basic":
                assert len(on_page["t"]) == 1
            else:  # the condition is marked
                assert on_page["t"][1] == question.text.partition(",")[0]
            assert (on_page["o"], on_page["a"]) == (list(question.options), question.answer)
            row = rows[on_page["i"]]
            for model, answer in zip(asked, on_page["m"], strict=True):
                columns = model.items.columns
                for place, prefix in enumerate(("", "blind_", "prior_")):
                    assert on_page["o"][answer["c"][place]] == columns[f"{prefix}chosen"][row]
                    assert answer["r"][place] == columns[f"{prefix}right"][row]
                assert answer.get("f", 0) == columns["flips"][row]
                assert "l" not in answer


def test_tables_have_the_means_of_the_items_with_intervals(tmp_path):
    llava = answers()
    seen, blind, prior = data_of(write(tmp_path, llava))["tables"][0]
    assert [t["t"] for t in (seen, blind, prior)] == [
        "With the image", "Without the image", "Options alone"
    ]  # fmt: skip
    assert [row[0] for row in seen["r"]] == ["color", "count", "all"]
    metrics = ["right", "acc_b", "acc_c", "acc_plus", "strict"]
    for table, prefix in ((seen, ""), (blind, "blind_"), (prior, "prior_")):
        for row in table["r"]:
            assert len(row) == len(table["h"])
            rows = [r for r, c in enumerate(llava.texts("category")) if row[0] in (c, "all")]
            for name, cell in zip(metrics, row[2:], strict=False):
                if name == "strict" and prefix:
                    continue
                value = 100 * np.nanmean(llava.items.metric(prefix + name)[rows])
                mean, low, high = map(float, re.findall(r"[\d.]+", cell))
                assert mean == pytest.approx(value, abs=0.06)
                assert low <= mean <= high
    phi = llava.pairs.images.measure().phi
    assert float(seen["r"][-1][-1].split()[0]) == pytest.approx(phi, abs=0.006)
    assert verdict(llava).startswith("llava answers ")
    assert f"phi {phi:.2f} [" in verdict(llava)


def test_what_was_left_out_or_written_is_said(tmp_path):
    basic, *others = IMAGES[0].questions
    odd = [
        basic, replace(others[0], text="why " * 60), replace(others[1], answer=None), *others[2:]
    ]  # fmt: skip
    images = [image(0, questions=odd), *IMAGES[1:]]
    llava = answers(images=images)
    [first, *_] = data_of(write(tmp_path, llava))["images"]
    assert [q["m"][0].get("l") for q in first["q"]] == [None, "context", "no_answer", None, None]
    assert first["q"][1]["m"][0]["r"] == [None, None, None]
    assert first["q"][2]["a"] is None
    assert "2 left out" in (tmp_path / "asked_vqa.html").read_text()
    benchmark = opened(IMAGES, protocol="write")
    said = type("Says", (Writer,), {"said": staticmethod(lambda question: "2 " * 900)})
    items = benchmark.run(said()).items
    wrote = ShownAnswers("m", Items("q", "w", "d", items))
    [first, *_] = data_of(write(tmp_path, wrote))["images"]
    answer = first["q"][0]["m"][0]
    assert (answer["c"][0], answer["r"][0]) == (None, 0)
    assert answer["w"].startswith("2 2 2")
    assert len(answer["w"]) < 700


def test_questions_of_other_sets_have_a_page_too(tmp_path):
    plain = [
        image(n, questions=[SourceQuestion("q0", "question", "Is it?", ("yes", "no"), n % 2)])
        for n in range(4)
    ]
    llava = answers(images=[*plain, image(5, image=None, questions=plain[0].questions)])
    page = data_of(write(tmp_path, llava))
    assert page["tables"][0][0]["h"] == ["category", "questions", "right"]
    assert page["images"][-1]["p"] is None
    assert re.match(r"llava answers [\d.]+ % of 5 questions right; ", verdict(llava))


def test_of_many_images_a_sample_is_shown_that_models_do_not_change(tmp_path):
    first = [shown["k"] for shown in data_of(write(tmp_path, answers(), limit=3))["images"]]
    both = data_of(write(tmp_path, answers(), answers("qwen", 1), limit=3))["images"]
    assert len(first) == 3
    assert first == [shown["k"] for shown in both]
    assert first == sorted(first)
    assert "3 images shown, drawn at random" in (tmp_path / "asked_vqa.html").read_text()


def test_nothing_in_a_question_is_live(tmp_path):
    texts = [replace(q, text=f"If {HOSTILE}, what?", options=("a", HOSTILE), answer=1)
             for q in IMAGES[0].questions]  # fmt: skip
    hostile = answers(HOSTILE, images=[image(0, questions=texts, category=HOSTILE)])
    text = write(tmp_path, hostile).read_text()
    assert text.count("</script>") == 2
    assert "<img src=x" not in text
    assert "default-src 'none'" in text
    assert not re.search(r"https?://", text)
    assert data_of(tmp_path / "asked_vqa.html")["images"][0]["q"][1]["o"][1] == HOSTILE


def test_answers_that_cannot_stand_on_one_page_are_refused(tmp_path):
    llava = answers()
    for others, said in (
        ((), "no model"), ((llava, llava), "duplicated names: llava, llava"),
        ((llava, answers("other", images=IMAGES[1:])), "answered different questions"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=said):
            write(tmp_path, *others)
    broken = {**llava.items.columns, "options": ["[1]"] * len(llava)}
    with pytest.raises(UserError, match=r"options of i0/basic should be a list.*remove items/"):
        write(tmp_path, ShownAnswers("m", replace(llava.items, columns=broken)))
    del broken["chosen"]
    with pytest.raises(UserError, match="lack chosen"):
        ShownAnswers("m", replace(llava.items, columns=broken))


def test_the_benchmark_writes_its_page_and_one_of_all_models(tmp_path):
    benchmark = opened(IMAGES, page=2)
    assert isinstance(benchmark, KeepsPages)
    assert benchmark.page_files == ("asked_vqa.html",)
    for seed, name in enumerate(("llava", "qwen")):
        folder = tmp_path / name / "seed=0"
        evaluation = benchmark.run(Drawn(seed))
        write_items(folder, Items("asked_vqa", f"w{seed}", "d", evaluation.items))
        page = benchmark.write_page(folder, name)
        assert page == folder / "asked_vqa.html"
        assert data_of(page)["models"] == [name]
    assert data_of(tmp_path / "asked_vqa.html")["models"] == ["llava", "qwen"]
    other = opened([image(0, image=Picture(b"another"))], page=2)
    with pytest.raises(UserError, match=r"name '.*', which is not an image of asked.jsonl"):
        other.write_page(folder, "qwen")
    quiet = opened(IMAGES, page=None)
    assert quiet.page_files == ()
    assert quiet.write_page(folder, "qwen") is None
    assert quiet.data_hash == benchmark.data_hash
    for wrong, said in ((0, 0), (-1, -1), (True, "true"), ("all", "all")):
        with pytest.raises(UserError, match=f"benchmark.page={said} should be a whole number"):
            opened(IMAGES, page=wrong)


@pytest.fixture
def reader(watched: Browser, tmp_path: Path) -> PageReader:
    watched.open(write(tmp_path, answers(), answers("qwen", 1)))
    return PageReader(watched)


@pytest.mark.slow
def test_a_reader_chooses_categories_answers_and_words(reader):
    llava, qwen = answers(), answers("qwen", 1)
    assert reader.status == "1–8 of 8"
    reader.chooses("category", "count")
    assert reader.status == "1–4 of 4"
    reader.resets()
    right, blind = (llava.items.metric(name) == 1 for name in ("right", "blind_right"))
    first = llava.texts("chosen")
    expected = {
        "wrong": ~right, "right": right, "blind": right & blind, "blinded": ~right & blind,
        "flips": llava.items.metric("flips") == 1,
        "differ": np.array([a != b for a, b in zip(first, qwen.texts("chosen"), strict=True)]),
        "fall": (llava.items.metric("acc_c") == 0) & np.repeat(right[::5], 5),
        "out": np.zeros(len(llava), bool),
    }  # fmt: skip
    for choice, rows in expected.items():
        reader.chooses("answer", choice)
        keys = {key for key, fits in zip(llava.keys, rows, strict=True) if fits}
        shown = reader.seen("#images .key")
        assert {text.partition(";")[0] for text in shown} == keys, choice
        assert len(reader.seen(".question:not(.passed)")) == rows.sum()
    reader.resets()
    reader.chooses("text", "i3/c2")
    assert [text.partition(";")[0] for text in reader.seen("#images .key")] == ["i3"]
    assert reader.seen(".options .right")[0].startswith("✓ ")
    reader.resets()
    assert len(reader.seen("#tables h3")) == 3
    reader.chooses("model", "")
    assert len(reader.seen("#tables h3")) == 6
    assert math.isclose(reader.browser.run("document.querySelectorAll('mark').length"), 4 * 8)
    reader.browser.view(390, 844, dark=True, phone=True)
    assert reader.browser.run("document.documentElement.scrollWidth") == 390
