"""The page of what models retrieve: it shows what the items say, and nothing in it is live."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks.browser import Browser
from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.evaluation.benchmark import KeepsPages
from cfaug.papers.social.skew import Skew
from cfaug.papers.social.skew_items import RankingTask, SkewItems
from cfaug.papers.social.skew_page import (
    SkewPageSettings,
    skew_page,
    verdict,
)
from cfaug.planning.build import build
from cfaug.report.arm_results import Runs
from cfaug.report.gallery import MODELS, ImageSource
from cfaug.report.items import Items, read_items, write_items
from tests.files_of_settings import settings_file
from tests.grid_sets import grid_set, lay_grid_sets
from tests.papers.social.skew_example import GENDERS, OCCUPATIONS, RACES, read_image, skew_items
from tests.report.example import data_of
from tests.report.page_reader import PageReader

COMBINATIONS = [f"{race} {gender}" for race, gender in product(RACES, GENDERS)]
IMAGES = ImageSource(read_image, lambda key: COMBINATIONS[int(key.rpartition("_")[2])])
GRID = "race_gender"
SKEWED = {"male": 3.0, "White": 2.0}


def write(folder: Path, *answers: SkewItems, **settings) -> Path:
    page = skew_page(SkewPageSettings(**settings))
    return page.write(answers, folder / "skew.html", IMAGES, title="Ours & theirs")


def test_the_page_holds_what_the_items_say(tmp_path):
    answers, other = skew_items("clip", SKEWED), skew_items("slip")
    page = data_of(write(tmp_path, answers, other))
    assert page["models"] == ["clip", "slip"]
    asked = [RankingTask(q["g"], q["l"], q["k"]) for q in page["questions"]]
    assert asked == list(answers.questions)
    columns = answers.items.columns
    names = ("max_skew", "max_skew_chance", "max_skew_excess", "max_skew_low", "max_skew_high",
             "p_permutation", "p_holm")  # fmt: skip
    for question, shown in zip(asked, page["questions"], strict=True):
        for row, subject in zip(answers.places(question), shown["r"], strict=True):
            assert (subject["n"], subject["t"]) == (columns["subject"][row], "occupation")
            model = subject["m"][0]
            assert model["c"] == json.loads(columns["top_counts"][row])
            assert shown["n"] == json.loads(columns["labels"][row])
            pool = json.loads(columns["pool_counts"][row])
            wanted = [question.k * n / sum(pool) for n in pool]
            assert model["x"] == pytest.approx(wanted, rel=1e-3)
            assert model["v"] == pytest.approx([columns[n][row] for n in names], rel=1e-3)
    assert page["questions"][2]["s"][0] == answers.standing(asked[2]).say()
    rows = answers.rows(asked[2])
    for n, (share, usual) in enumerate(page["questions"][2]["m"][0]):
        tops = [json.loads(columns["top_counts"][row])[n] / 6 for row in rows]
        assert share == pytest.approx(np.mean(tops), abs=1e-3), "a mean over subjects"
        assert usual == pytest.approx(1 / 6, abs=1e-3)


def test_pictures_are_the_images_retrieved_each_once(tmp_path):
    answers = skew_items("clip", SKEWED, ks=(6, 12))
    page = data_of(write(tmp_path, answers, shown=8))
    pictures = page["pictures"]
    keys: dict[int, str] = {}
    for question in page["questions"]:
        rows = answers.places(RankingTask(question["g"], question["l"], question["k"]))
        for row, subject in zip(rows, question["r"], strict=True):
            top = json.loads(answers.items.columns["top"][row])[:8]
            places = subject["m"][0]["p"]
            assert len(places) == (0 if "|" in question["l"] else min(8, question["k"]))
            for place, key in zip(places, top, strict=False):
                assert keys.setdefault(place, key) == key
                assert pictures[place]["t"] == IMAGES.describe(key)
    assert len(set(keys.values())) == len(pictures) == len(keys)


def test_of_many_subjects_some_have_pictures_and_those_that_stand_out(tmp_path):
    clip = skew_items("clip", SKEWED)
    sure = {name for question in clip.questions for name in clip.standing(question).corrected}
    assert sure
    file = write(tmp_path, clip, limit=1)
    subjects = data_of(file)["questions"][0]["r"]
    shown = {subject["n"] for subject in subjects if subject["m"][0]["p"]}
    assert sure <= shown
    assert len(shown - sure) <= 1
    assert data_of(write(tmp_path, clip, limit=0))["pictures"] == []
    again = write(tmp_path / "again", clip, limit=0)
    assert again.read_bytes() == file.read_bytes()
    with pytest.raises(UserError, match="limit=-1 should be a whole number of at least 0 or"):
        SkewPageSettings(limit=-1)


def test_who_was_left_out_is_said(tmp_path):
    page = data_of(write(tmp_path, skew_items(left_out=["doctor"])))
    for question in page["questions"]:
        (doctor,) = [subject for subject in question["r"] if subject["n"] == "doctor"]
        assert "m" not in doctor
        assert doctor["o"].startswith("one image")
    everyone = skew_items(left_out=OCCUPATIONS)
    assert verdict(everyone) == "clip: no subject of race_gender could be evaluated."
    assert data_of(write(tmp_path, everyone))["pictures"] == []


def test_the_verdict_says_what_is_skewed_beside_chance():
    clip = skew_items("clip", SKEWED)
    question = RankingTask(GRID, GRID, 6)
    values = clip.values(question)
    chance = clip.values(question, "max_skew_chance")
    count = sum(p <= 0.05 for p in clip.values(question, "p_holm").values())
    assert verdict(clip) == (
        f"clip: mean MaxSkew@6 over 8 subjects, race_gender: {np.mean(list(values.values())):.2f}, "
        f"by chance {np.mean(list(chance.values())):.2f}; {count} of 8 stand out after correction."
    )


def test_nothing_in_a_subject_or_label_is_live(tmp_path):
    grids = {GRID: {"race": ("</script><script>", "<i>"), "gender": GENDERS}}
    text = write(tmp_path, skew_items(grids=grids)).read_text()
    assert text.count("</script>") == 2
    assert "<b>clerk" not in text
    assert "<i>" not in text
    assert "default-src 'none'" in text


def test_pages_that_cannot_be_are_refused(tmp_path):
    clip, slip = skew_items(), skew_items("slip", subjects=OCCUPATIONS[:3])
    for answers, said in (
        ((), "no model"),
        ((clip, clip), "duplicated names: clip, clip"),
        ((clip, slip), "clip and slip answered different subjects"),
    ):
        with pytest.raises(UserError, match=said):
            write(tmp_path, *answers)
    broken = ImageSource(lambda _: b"no image", IMAGES.describe)
    answers = [skew_items(subjects=["doctor"])]
    with pytest.raises(UserError, match=r"doctor-\d_\d"):
        skew_page().write(answers, tmp_path / "x.html", broken, title="t")


def test_a_sweep_of_many_runs_has_no_page_of_all(tmp_path):
    for number in range(MODELS):
        (tmp_path / f"arm{number}" / "seed=0").mkdir(parents=True)
    folder = tmp_path / "clip" / "seed=0"
    write_items(folder, skew_items("clip").items)
    assert skew_page().write_for_run(folder, "clip", "own_skew", IMAGES).exists()
    assert not (tmp_path / "own_skew.html").exists()


@dataclass
class Reader(PageReader):
    """Someone who looks at the page of these answers."""

    answers: tuple[SkewItems, ...]

    @property
    def names(self) -> list[str]:
        return [text.removesuffix(" occupation") for text in self.seen(".subject h3")]


@pytest.fixture
def reader(watched: Browser, tmp_path: Path) -> Reader:
    answers = (
        skew_items("clip", SKEWED, ks=(None, 12), left_out=["poet"]),
        skew_items("slip", ks=(None, 12), left_out=["poet"]),
    )
    watched.open(write(tmp_path, *answers))
    return Reader(watched, answers)


def by_excess(answers: tuple[SkewItems, ...], question: RankingTask) -> list[str]:
    excesses = [model.values(question, "max_skew_excess") for model in answers]
    value = {name: max(float(f"{excess[name]:.4g}") for excess in excesses) for name in excesses[0]}
    return [*sorted(value, key=lambda name: (-value[name], name)), "poet"]


@pytest.mark.slow
def test_a_reader_filters_and_sorts(reader: Reader) -> None:
    clip, _ = reader.answers
    first = RankingTask(GRID, GRID, 6)
    assert reader.names == by_excess(reader.answers, first)
    assert reader.status == "1–8 of 8"
    assert "<b>clerk</b>" in reader.names, "a subject is text"
    assert reader.seen("#overview-title") == ["race_gender: 6 labels, K = 6"]
    assert reader.seen("#overview p")[0] == clip.standing(first).say()
    assert len(reader.seen(".subject:first-child .labels")) == 2, "side by side"
    sees_what_was_retrieved(reader, clip, first)
    reader.chooses("model", "0")
    assert reader.names == by_excess((clip,), first)
    place = str(clip.questions.index(RankingTask(GRID, "gender", 2)))
    reader.chooses("question", place)
    assert reader.names == by_excess((clip,), RankingTask(GRID, "gender", 2))
    assert reader.seen(".subject:first-child .labels .name") == list(GENDERS)
    reader.chooses("sort", "name")
    assert reader.names == sorted(OCCUPATIONS)
    reader.chooses("text", "ook")
    assert reader.names == ["cook"]
    reader.resets()
    reader.clicks("sure")
    sure = {name for answers in reader.answers for name in answers.standing(first).corrected}
    assert set(reader.names) == sure
    assert reader.names
    reader.browser.view(390, 844, dark=True, phone=True)
    assert reader.browser.run("document.documentElement.scrollWidth") == 390


def test_items_without_images_make_a_page_without_pictures(tmp_path):
    clip = skew_items()
    columns = {name: values for name, values in clip.items.columns.items() if name != "top"}
    page = data_of(write(tmp_path, replace(clip, items=replace(clip.items, columns=columns))))
    assert page["pictures"] == []


# The page and the figures of real items: what the benchmark writes, its readers understand.

SUBJECTS = ("doctor", "nurse")


@pytest.fixture(scope="module")
def asked(encoder, tmp_path_factory):
    """A run's folder with items and page of sets of two subjects, and one with a single set."""
    root = tmp_path_factory.mktemp("skew")
    sets = [grid_set(subject, n) for subject in SUBJECTS for n in range(2)]
    index = open_index(lay_grid_sets(root / "social", sets), root / "index")
    benchmark = Skew(name="social_skew", k=[6, 12, 200], permutations=99, resamples=50).use(index)
    evaluation = benchmark.run(encoder)
    folder = root / "runs" / "weights" / "clip" / "seed=0"
    write_items(folder, Items(str(benchmark.name), "w", benchmark.data_hash, evaluation.items))
    return benchmark, index, folder, benchmark.write_page(folder, "clip")


def test_the_page_shows_the_images_that_were_retrieved(asked):
    benchmark, index, folder, page = asked
    assert isinstance(benchmark, KeepsPages)
    assert benchmark.page_files == ("social_skew.html",)
    assert page == folder / "social_skew.html"
    (text,) = re.findall(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    data = json.loads(text)
    items = benchmark_items(folder, benchmark)
    labels = {}
    for grid in benchmark.sets.grids.values():
        codes, names = grid.label(list(grid.attributes))
        labels = {index.key(int(row)): names[code]
                  for row, code in zip(grid.rows, codes, strict=True)}  # fmt: skip
    shown = 0
    for question, here in zip(items.questions, data["questions"], strict=True):
        for row, subject in zip(items.places(question), here["r"], strict=True):
            if "m" not in subject:
                assert "more than the pool" in subject["o"]
                continue
            top = json.loads(items.texts("top")[row])
            places = subject["m"][0]["p"]
            captions = [data["pictures"][place]["t"] for place in places]
            assert captions == [labels[key] for key in top[: len(captions)]]
            shown += len(captions)
    assert shown
    assert any("o" in subject for here in data["questions"] for subject in here["r"])


def benchmark_items(folder, benchmark) -> SkewItems:
    items = read_items(folder, str(benchmark.name))
    assert items is not None
    return SkewItems("clip", items)


def test_no_page_is_written_if_none_is_asked_for(asked, tmp_path):
    _, index, _, _ = asked
    quiet = Skew(name="social_skew", page=None, permutations=9, resamples=9).use(index)
    assert quiet.write_page(tmp_path, "clip") is None
    assert not list(tmp_path.iterdir())
    assert quiet.page_files == ()


@pytest.mark.parametrize("name", ["social_figure_2", "social_figure_3", "social_models"])
def test_figures_are_made_of_real_items(asked, name):
    _, _, folder, _ = asked
    node = yaml.safe_load(settings_file(f"table/{name}").read_text())
    document = build(node | ({"k": 6} if "k" in node else {})).build(Runs(folder.parents[2]))
    assert document.parts
    assert all(part.rows for part in document.parts)


def test_items_that_name_another_image_are_refused(asked, tmp_path):
    benchmark, _, folder, _ = asked
    items = benchmark_items(folder, benchmark).items
    top = np.array(['["elsewhere_0"]'] * len(items), object)
    write_items(tmp_path, replace(items, columns={**items.columns, "top": top}))
    with pytest.raises(
        UserError,
        match=r"'elsewhere_0', which is not an image of .*; remove items/.*_skew.parquet in the",
    ):
        benchmark.write_page(tmp_path, "clip")


def sees_what_was_retrieved(reader: Reader, clip: SkewItems, asked: RankingTask) -> None:
    """Compare the first subject's pictures and counts with the items, and who was left out."""
    name = reader.names[0]
    (row,) = [r for r in clip.rows(asked) if clip.texts("subject")[r] == name]
    top = json.loads(clip.items.columns["top"][row])
    captions = reader.seen(".subject:first-child .models > div:first-child figcaption")
    assert captions == [IMAGES.describe(key) for key in top]
    counts = json.loads(clip.items.columns["top_counts"][row])
    said = reader.seen(".subject:first-child .models > div:first-child .value")
    assert said == [f"{count} (1.0)" for count in counts]
    assert reader.seen(".subject .said")[-1].startswith("Left out: one image")
    assert f"MaxSkew {clip.values(asked)[name]:.2f}" in reader.seen(".subject .said")[0]
