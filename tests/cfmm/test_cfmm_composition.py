"""CFMM's Figure 4 of question files written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from cfaug.planning.build import build
from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.document import read_document, to_markdown
from cfaug.report.paper_tables import published, write_tables_page
from tests.report.example import picture

FILE = Path(__file__).parents[2] / "conf/table/cfmm_figure_4.yaml"


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
    file.write_text("".join(json.dumps(one) + "\n" for one in records))
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
    rows = {labels[1]: [cell.text for cell in own] for labels, own in kinds.rows}
    assert rows["basic"] == ["4", "5.00", "2", "100.0", "0.0", "–", "–"]
    assert rows["counterfactual"] == ["6", "11.00", "2", "66.7", "33.3", "66.7", "66.7"]


def test_the_plots_show_shares(questions, tmp_path):
    document = figure(questions={"mine": str(questions)}).build(Runs(tmp_path))
    (bars,), (curve,) = document.bars, document.curves
    assert bars.groups["Count"][1][1] == 0.5
    assert sum(own[0][1] for own in bars.groups.values()) == pytest.approx(1)
    assert curve.series["basic"] == {5.0: {0: 1.0}}
    (tmp_path / "cfmm_figure_4.json").write_text(document.to_json())
    assert read_document(tmp_path / "cfmm_figure_4.json") == document
    page = write_tables_page(tmp_path).read_text()
    assert "very many dogs" in page
    assert "words of a question" in to_markdown(document)


def test_without_a_file_the_command_is_named_or_the_paper_stands_alone(tmp_path):
    with pytest.raises(MissingError, match=r"table\.questions"):
        figure().build(Runs(tmp_path))
    document = figure(partial=True).build(Runs(tmp_path))
    assert [part.ours for part in document.parts] == [False, False]
