"""Every command of docs/cfmm.md runs, in order, on hand-laid questions and a tiny LLaVA."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from cfaug.data.sources.question_sets import read_questions
from cfaug.report.document import read_document
from cfaug.report.items import read_items
from tests.generate.chatting import says, serving
from tests.models.tiny_vlm import save_llava
from tests.report.example import picture
from tests.run.conftest import commands_of
from tests.scripts import ROOT

PAGE = ROOT / "docs" / "cfmm.md"
IMAGES = 6
CATEGORIES = ("count", "color", "odd")
SMALL = "benchmark.max_new_tokens=6"
WRITES = ("benchmark.chain_of_thought=two_stage", "benchmark.protocol=write")


def record(number: int) -> dict:
    options = [str(number), str(number + 3)]
    further = [
        {"q": f"If {n} of them left, how many would there be?", "presupposition": f"{n} left",
         "options": [f"{number} or so", f"no more than {n}"], "answer": (number + n) % 2,
         "source": "human", "verified": True}
        for n in (1, 2)
    ]  # fmt: skip
    return {
        "id": str(number), "image": f"{number}.png", "category": CATEGORIES[number % 3],
        "basic": {"q": f"How many things, {number}?", "options": options, "answer": number % 2},
        "counterfactuals": further,
    }  # fmt: skip


def lay_files(folder: Path) -> None:
    """Lay out questions, the page's own examples, their image, and a model in the Hub's form."""
    shapes, colours = ("ball", "cube", "star"), ("red", "blue")
    for number in range(IMAGES):
        (folder / f"{number}.png").write_bytes(picture(shapes[number % 3], colours[number // 3]))
    (folder / "cats.jpg").write_bytes(picture("cube", "green"))
    lines = [json.dumps(record(number)) + "\n" for number in range(IMAGES)]
    (folder / "questions.jsonl").write_text("".join(lines))
    shown = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    examples = yaml.safe_load(shown)
    (folder / "examples.yaml").write_text(yaml.safe_dump({**examples, "any": examples["count"]}))
    save_llava(folder / "MODEL")


def propose(number: int, body: dict) -> dict:
    """Answer as a chat server that proposes five counterfactual questions."""
    proposed = [
        {"question": f"If {n} things came, how many would there be?",
         "presupposition": f"{n} things came", "right_answer": f"{n + 40}", "wrong_answer": "99"}
        for n in range(11, 16)
    ]  # fmt: skip
    return says(json.dumps({"questions": proposed}))


def review(page: Path, file: Path) -> None:
    """Answer a page of questions as people do who find every one good."""
    data = json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)[1])
    lines = [
        {"key": (task := data["tasks"][number])["k"], "member": task["m"], "annotator": who,
         "label": "good", "texts": task["h"]}
        for who, numbers in data["people"].items() for number, _ in numbers
    ]  # fmt: skip
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_line_of_questions_on_the_page_is_read(tmp_path):
    line = re.search(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    (tmp_path / "questions.jsonl").write_text(line)
    (tmp_path / "dogs.jpg").write_bytes(picture("ball", "red"))
    (image,) = read_questions(tmp_path / "questions.jsonl")
    assert [question.right for question in image.questions] == ["2", "1"]


@pytest.mark.slow
def test_every_command_of_the_page_runs(tmp_path, monkeypatch, script, capfd):
    monkeypatch.chdir(tmp_path)
    lay_files(tmp_path)
    commands = commands_of(PAGE)
    assert len(commands) >= 10
    with serving(propose) as server:
        for name, words in commands:
            words = [re.sub(r"http://localhost:8000/v1", server.url, word) for word in words]
            words += [SMALL] if {*words} & {*WRITES} else []
            words += ["trainer.max_steps=2", "data.batch_size=4"] if "task=vqa" in words else []
            if (name, words[0]) == ("annotate", "read"):
                review(Path("runs/annotation/annotate.html"), Path("answers.jsonl"))
            assert script(name)(words) == 0, (words, capfd.readouterr().err)
    (folder,) = (tmp_path / "runs").glob("weights/*/seed=0")
    items = read_items(folder, "questions_vqa")
    assert len(items) == 3 * IMAGES
    tables = tmp_path / "runs" / "tables"
    documents = {file.stem: read_document(file) for file in tables.glob("*.json")}
    assert documents.keys() == {"cfmm_2", "cfmm_3", "cfmm_figure_4"}
    for document in documents.values():
        assert any(part.ours for part in document.parts), document.name
    by_category = next(part for part in documents["cfmm_2"].parts if part.ours)
    assert {labels[1] for labels, _ in by_category.rows} >= {"0-shot", "1-shot ICL", "1-shot CoT"}
    assert any("without the image" in labels[1] for labels, _ in by_category.rows)
    totals = documents["cfmm_3"].parts
    pairs = next(part for part in totals if "question by question" in part.title)
    assert len(pairs.rows) == 2  # listed and written against plain
    assert [len(image.questions) for image in read_questions(tmp_path / "expanded")] == [6] * IMAGES
