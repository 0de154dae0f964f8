"""CFMM's tables and figure: the paper's rows beside ours."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import yaml

from cfaug.core.errors import UserError
from cfaug.evaluation.questions.question_checks import total
from cfaug.papers.cfmm.composition import cells, derived_part, drop, mean_phi, text_part, totals
from cfaug.planning.build import build
from cfaug.report.arm_results import Runs
from cfaug.report.document import Document, Part, to_markdown
from cfaug.report.items import write_items
from cfaug.report.paper_tables import published
from cfaug.stats.choices import accuracies
from tests.files_of_settings import settings_file
from tests.paper_tables import table
from tests.report.example import picture
from tests.report.question_example import ASKED, IMAGES, question_items

DEMONSTRATED = ("count-0", "color-0")
"""Images that a prompt with examples does not score."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Runs:
    """Two models, one of them with two prompts, and one with two checkpoints."""
    root = tmp_path_factory.mktemp("runs")
    llava, qwen = root / "weights" / "llava", root / "weights" / "qwen"
    without = [f"{key}/{name}" for key in DEMONSTRATED for name in ("b", "c1", "c2", "c3", "c4")]
    write_items(llava / "seed=0", question_items("llava", blind=True).items)
    shown = question_items("llava", (0.9, 0.9), benchmark="own_vqa_icl", left_out=without, seed=7)
    write_items(llava / "seed=0", shown.items)
    for seed in (0, 1):
        items = question_items("qwen", (0.95, 0.95), seed=10 + seed).items
        write_items(qwen / f"seed={seed}", items)
    return Runs(root)


NAMED = {"LLaVA": "weights/llava", "Qwen": "weights/qwen"}


def ours(document: Document) -> list[Part]:
    return [part for part in document.parts if part.ours]


def marks(part: Part) -> list[str]:
    return ["".join("b" * c.bold + "u" * c.underlined or "." for c in row) for _, row in part.rows]


def test_table_2_has_the_papers_layout_and_marks(runs):
    theirs = table("cfmm_2").build(runs).parts[0]
    assert not theirs.ours
    assert theirs.labels == ("Model", "Prompt")
    assert [name for name, _ in theirs.groups] == [
        "Count", "Color", "Size", "Shape", "Direction", "Common",
    ]  # fmt: skip
    assert theirs.columns == ("acc_b", "acc_c", "acc+") * 6
    rows = dict(theirs.rows)
    assert [cell.text for cell in rows["Qwen-VL", "0-shot"][:3]] == ["86.78", "50.65", "42.24"]
    assert rows["InfMLLM", "1-shot ICL"][0].bold  # 92.53
    assert rows["InfMLLM", "0-shot"][0].underlined  # 91.09
    assert sum(cell.signs == "‡" for row in rows.values() for cell in row) == 14
    assert rows["Monkey", "0-shot"][12].signs == "‡"
    assert theirs.rules == (3, 6, 9, 12, 15, 18)


def test_table_2_shows_the_means_of_the_items_by_category(runs):
    (part,) = ours(table("cfmm_2", models=NAMED).build(runs))
    assert [name for name, _ in part.groups] == ["Count", "Color", "other"]
    rows = dict(part.rows)
    assert list(rows) == [
        ("LLaVA", "0-shot"), ("LLaVA", "0-shot, without the image"), ("LLaVA", "1-shot ICL"),
        ("Qwen", "0-shot"),
    ]  # fmt: skip
    items, at = question_items("llava"), 0
    for category, many in IMAGES.items():
        names, values = items.texts("category"), items.items.metric("right")
        right = np.array([v for v, n in zip(values, names, strict=True) if n == category])
        b, c = right[:: ASKED + 1], right.reshape(many, ASKED + 1)[:, 1:]
        expected = [b.mean(), c.mean(), (b[:, None] * c).mean()]
        cells = rows["LLaVA", "0-shot"][at : at + 3]
        assert [cell.numbers["value"] for cell in cells] == pytest.approx(expected)
        assert [cell.numbers["n"] for cell in cells] == [many, ASKED * many, ASKED * many]
        at += 3
    few = rows["LLaVA", "1-shot ICL"][0].numbers["n"]
    assert few == IMAGES["count"] - 1


def test_answers_without_the_image_do_not_compete(runs):
    (part,) = ours(table("cfmm_2", models=NAMED).build(runs))
    assert marks(part)[1] == "." * 9
    assert all("b" in column for column in zip(*marks(part), strict=True))


def test_several_checkpoints_have_a_mean_and_a_spread(runs):
    (part,) = ours(table("cfmm_3", models=NAMED).build(runs))[:1]
    cell = dict(part.rows)["Qwen", "0-shot"][0]
    totals = [question_items("qwen", (0.95, 0.95), seed=10 + s).total("acc_b") for s in (0, 1)]
    assert cell.numbers["value"] == pytest.approx(np.mean(totals))
    assert cell.numbers["sd"] == pytest.approx(np.std(totals, ddof=1))
    assert cell.text == f"{np.mean(totals):.2f}"


def test_table_3_sums_categories_and_tests_what_the_paper_does_not(runs):
    document = table("cfmm_3", models=NAMED).build(runs)
    theirs, derived, said, totals, drops, pairs = document.parts
    assert [part.ours for part in document.parts] == [False] * 3 + [True] * 3
    assert [cell.text for cell in theirs.rows[0][1]] == ["483.65", "341.10", "262.86"]
    assert (len(theirs.rows), len(derived.rows)) == (21, 21)
    assert len(said.rows) == len(published("cfmm_text")["rows"])
    items = question_items("llava")
    expected = sum(100 * mean for mean in items.means("acc_plus").values())
    assert dict(totals.rows)["LLaVA", "0-shot"][2].numbers["value"] == pytest.approx(expected)
    assert [labels for labels, _ in drops.rows] == [
        ("LLaVA", "0-shot"), ("LLaVA", "1-shot ICL"), ("Qwen", "0-shot"),
    ]  # fmt: skip
    row = dict(zip(drops.columns, drops.rows[0][1], strict=True))
    measured = items.images.measure()
    assert row["drop"].numbers["value"] == pytest.approx(measured.drop)
    assert row["phi"].text == f"{measured.phi:+.3f}"
    assert row["strict"].text == f"{100 * measured.strict:.2f}"
    assert [labels for labels, _ in pairs.rows] == [
        ("LLaVA, 1-shot ICL", "LLaVA, 0-shot"), ("LLaVA, 0-shot", "Qwen, 0-shot"),
    ]  # fmt: skip
    left_out, difference, *_ = pairs.rows[0][1]
    assert left_out.text == str(5 * len(DEMONSTRATED))
    assert not math.isnan(difference.numbers["value"])
    assert "LLaVA, 1-shot ICL: questions left out: 10 (too long)." in document.notes


def test_drops_are_corrected_over_the_rows(runs):
    drops = ours(table("cfmm_3", models=NAMED).build(runs))[1]
    p, holm = (
        [float(row[drops.columns.index(name)].text.replace("–", "nan")) for _, row in drops.rows]
        for name in ("p", "Holm")
    )
    smallest = int(np.argmin(p))
    assert holm[smallest] == pytest.approx(min(1, 3 * p[smallest]), rel=0.05)


def test_every_model_that_was_asked_is_read_by_default(runs):
    (part,) = ours(table("cfmm_2").build(runs))
    assert {labels[0] for labels, _ in part.rows} == {"llava", "qwen, seed=0", "qwen, seed=1"}


def test_two_question_sets_of_a_model_are_told_apart_by_the_prompts_setting(tmp_path):
    folder = tmp_path / "weights" / "llava" / "seed=0"
    for name in ("mine_vqa", "own_vqa"):
        write_items(folder, question_items("llava", benchmark=name).items)
    with pytest.raises(UserError, match=r"table\.prompts\.'0-shot'=mine_vqa"):
        table("cfmm_2").build(Runs(tmp_path))
    prompts = {"0-shot": "mine_vqa"}
    assert ours(table("cfmm_2", prompts=prompts).build(Runs(tmp_path)))


# CFMM's own numbers: transcribed whole, and what the definitions make of them.

METRICS = ("acc_b", "acc_c", "acc_plus")
WRONG_TOTAL = ("BLIP2", "0-shot")
"""The one row of 21 whose printed total (240.83) is not the sum of its cells (240.85)."""

AVERAGE_DROP = 105.75
"""As the paper's text says it."""


def off_grid() -> set[tuple[str, str, str]]:
    return {
        (cell["model"], cell["prompt"], cell["column"]) for cell in published("cfmm_2")["off_grid"]
    }


def answers(images: int, b: float, c: float, plus: float) -> tuple[np.ndarray, np.ndarray]:
    """Return right and wrong answers, four counterfactual ones an image, that give these cells."""
    basic = np.arange(images) < round(b * images / 100)
    counterfactual = np.zeros((images, 4), dtype=bool)
    right, wrong = counterfactual[basic].reshape(-1), counterfactual[~basic].reshape(-1)
    both = round(plus * 4 * images / 100)
    right[:both] = True
    wrong[: round(c * 4 * images / 100) - both] = True
    counterfactual[basic], counterfactual[~basic] = right.reshape(-1, 4), wrong.reshape(-1, 4)
    return basic, counterfactual


def test_the_definitions_give_every_cell_of_table_2_but_fourteen():
    images, missed = published("cfmm_2")["images"], set()
    for (model, prompt), by_category in cells().items():
        for category, printed in by_category.items():
            measured = accuracies(*answers(images[category], *printed))
            for name, value in zip(METRICS, printed, strict=True):
                if abs(100 * getattr(measured, name) - value) > 0.0101:
                    missed.add((model, prompt, f"{category} {name}"))
    assert missed == off_grid()
    assert len(missed) == 14
    assert all(column.endswith("acc_b") for _, _, column in missed)


def test_totals_are_sums_of_the_categories_in_all_rows_but_one():
    wrong = []
    for setting, by_category in cells().items():
        for place, printed in enumerate(totals()[setting]):
            summed = total({name: values[place] / 100 for name, values in by_category.items()})
            if abs(summed - printed) > 0.0101:
                wrong.append((setting, place, round(summed, 2), printed))
    assert wrong == [(WRONG_TOTAL, 2, 240.85, 240.83)]


def test_average_drops_and_the_slight_negative_correlation():
    zero = [setting for setting in totals() if setting[1] == "0-shot"]
    assert len(zero) == 7
    assert fmean(map(drop, zero)) == pytest.approx(105.60, abs=0.005)
    assert fmean(map(drop, totals())) == pytest.approx(116.14, abs=0.005)
    assert all(abs(fmean(map(drop, some)) - AVERAGE_DROP) > 0.1 for some in (zero, totals()))
    phi = [mean_phi(cells()[setting].values()) for setting in zero]
    assert -0.135 < min(phi) < max(phi) < -0.05
    rows = dict(derived_part().rows)
    assert rows["Qwen-VL", "0-shot"][2].text == "-0.112"


def test_six_categories_have_1198_images_and_the_text_rounds_them():
    figure, table = published("cfmm_figure_4"), published("cfmm_2")
    assert figure["categories"] == table["images"]
    assert sum(figure["categories"].values()) == 1198
    images, questions = figure["rows"][0]["values"][:2]
    assert (images, questions) == (1200, 5 * 1200)


def test_the_text_is_held_against_the_tables():
    rows = {labels[0]: [cell.text for cell in row] for labels, row in text_part().rows}
    assert rows["LLaVA, 0-shot: acc_c of counting questions"] == ["50.63", "50.65"]
    assert rows["InfMLLM, 0-shot: acc_b of colour questions"] == ["93.21", "93.21"]
    gain = rows["Qwen-VL: total by which 1-shot ICL is better, more than"]
    assert gain == ["40", "acc_b -1.10, acc_c +44.56, acc+ +39.15"]


# Figure 4, of question files written by hand.

FILE = settings_file("table/cfmm_figure_4")


def figure(**changes):
    content = yaml.safe_load(FILE.read_text())
    assert content["image_roots"] == "${paths.image_roots}"
    return build(content | {"image_roots": []} | changes)


def record(number: int, category: str, wrote: str = "human") -> dict:
    (right, wrong), further = (("two", "three"), 1 + number % 2)
    return {
        "id": str(number), "image": "one.png", "category": category,
        "basic": {"q": "How many dogs are there?", "options": [right, wrong], "answer": 0},
        "counterfactuals": [
            {"q": f"If {place} more dogs came, how many would there be <b>?", "presupposition": "",
             "options": [wrong, "very many dogs"], "answer": place % 2, "source": wrote,
             "verified": wrote == "human"}
            for place in range(further)
        ],
    }  # fmt: skip


@pytest.fixture
def questions(tmp_path) -> Path:
    (tmp_path / "one.png").write_bytes(picture("ball", "red"))
    records = [record(0, "count"), record(1, "count", "llm"), record(2, "odd"), record(3, "odd")]
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(entry) + "\n" for entry in records))
    return file


def test_the_composition_of_a_file_beside_the_papers(questions, tmp_path):
    document = figure(questions={"mine": str(questions)}).build(Runs(tmp_path))
    theirs, ours, categories, _, answers = document.parts
    assert [cell.text for cell in theirs.rows[0][1]] == ["1,200", "6,000", "9.51", "17.97", "1.28"]
    images, asked, basic, counterfactual, words = ours.rows[0][1]
    assert (images.text, asked.text) == ("4", "10")
    assert (basic.text, basic.sub) == ("5.00", "0.00")
    assert counterfactual.text == "11.00"
    lengths = [1, 1, 1, 1, *[1, 1, 3, 1, 1, 3]]
    assert words.numbers["value"] == pytest.approx(np.mean(lengths))
    assert words.numbers["sd"] == pytest.approx(np.std(lengths, ddof=1))
    rows = dict(categories.rows)
    recovered = published("cfmm_figure_4")["categories"]
    assert [cell.numbers["value"] for cell in rows["The paper",][:6]] == [*recovered.values()]
    assert categories.columns == (*recovered, "odd")
    assert [cell.text for cell in rows["mine",]] == ["2", "0", "0", "0", "0", "0", "2"]
    assert rows["mine",][0].small == "50.0 %"
    assert [labels for labels, _ in answers.rows] == [
        ("mine", "three"), ("mine", "two"), ("mine", "very many dogs"),
    ]  # fmt: skip
    assert [cells[0].text for _, cells in answers.rows] == ["4", "4", "2"]


def test_kinds_say_where_the_right_option_stands_and_who_wrote(questions, tmp_path):
    kinds = figure(questions={"mine": str(questions)}).build(Runs(tmp_path)).parts[3]
    rows = {labels[1]: [cell.text for cell in row] for labels, row in kinds.rows}
    assert rows["basic"] == ["4", "5.00", "2", "100.0", "0.0", "–", "–"]
    assert rows["counterfactual"] == ["6", "11.00", "2", "66.7", "33.3", "66.7", "66.7"]


def test_the_plots_show_shares(questions, tmp_path):
    document = figure(questions={"mine": str(questions)}).build(Runs(tmp_path))
    (bars,), (curve,) = document.bars, document.curves
    assert bars.groups["Count"][1][1] == 0.5
    assert sum(group[0][1] for group in bars.groups.values()) == pytest.approx(1)
    assert curve.series["basic"] == {5.0: {0: 1.0}}
    assert "words of a question" in to_markdown(document)
