"""Every command of docs/xmai.md runs, in order, on hand-laid files and tiny models."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cfaug.core.types import ENTAILMENT
from cfaug.data.shards.shards import read_sets
from cfaug.report.document import read_document
from tests.data.layouts import jsonl, table
from tests.report.example import picture
from tests.run.conftest import commands_of
from tests.scripts import ROOT

PAGE = ROOT / "docs" / "xmai.md"

SHAPES, COLOURS = ("ball", "cube", "star"), ("red", "blue", "green", "yellow")
PHOTOS = 6

OWN = ["zoo=shapescapes", "force=true", "data.leave_out=null", "recipe.scorers.truth=null"]
TRAINED = ["trainer.max_steps=2", "data.batch_size=4", "trainer.progress=false", "data.holdout=0",
           "data.validation=0", "trainer.checkpoint=last"]  # fmt: skip

TINY = {
    "zoo=paper": OWN,
    "model=clip_vit_b32": ["model=tiny_clip"],
    "model=vilt_entailer": ["model=tiny_vilt_entailer"],
    "limit=40": ["limit=6"],
    "benchmark.name=k_insertion": ["benchmark.name=k_insertion", "benchmark.synonyms=null"],
    "benchmark.name=world_insertion": ["benchmark.name=world_insertion", "benchmark.synonyms=null"],
    "sweep=sweeps/xmai_lambdas.yaml": [
        "sweep=sweeps/xmai_lambdas.yaml", "recipe.editor.weights=[1,5,5],[0,0,-1]",
    ],
    "sweep=sweeps/xmai_thresholds.yaml": [
        "sweep=sweeps/xmai_thresholds.yaml", "recipe.editor.threshold=0.5,0.9",
    ],
}  # fmt: skip
"""What stands in for what cannot run here."""


def words_of(number: int) -> tuple[str, str]:
    return SHAPES[number % 3], COLOURS[number % 4]


def lay_files(folder: Path) -> None:
    """Lay out photos with captions, what is in them, and SNLI-VE, as the page has them."""
    (folder / "PHOTOS").mkdir()
    flickr = folder / "SNLI_VE" / "flickr30k-images"
    flickr.mkdir(parents=True)
    authors = folder / "AUTHORS" / "images"
    authors.mkdir(parents=True)
    captions, lines, objects, hypotheses = [], [], [], []
    for number in range(PHOTOS):
        shape, colour = words_of(number)
        image = picture(shape, colour)
        detections = [{"label": shape, "score": 0.9, "box": [1, 1, 20, 20], "attributes": [colour]}]
        for place, name in (
            (folder / "PHOTOS", f"{number}.png"), (authors, f"{number}.png"),
            (flickr, f"{number}00.jpg"),
        ):  # fmt: skip
            (place / name).write_bytes(image)
        lines += [
            {"image": name, "detections": detections}
            for name in (f"{number}.png", f"{number}00.jpg")
        ]
        texts = [f"a {shape} on the beach, {number}", f"there is a {shape} in the snow, {number}"]
        captions += [(f"{number}.png", text) for text in texts]
        objects.append((f"{number}.png", texts[0], [shape], [colour]))
        hypotheses += [
            {"Flikr30kID": f"{number}00", "gold_label": label, "sentence1": texts[0],
             "sentence2": f"a {shape} is here, {label}", "pairID": f"{number}00.jpg#{n}"}
            for n, label in enumerate(ENTAILMENT)
        ]  # fmt: skip
    table(folder / "PHOTOS" / "captions.csv", ("image", "caption"), captions)
    table(
        folder / "AUTHORS" / "objects.csv", ("file", "original", "objects", "attributes"), objects
    )
    jsonl(folder / "detections.jsonl", lines)
    for split in ("train", "test"):
        jsonl(folder / "SNLI_VE" / f"snli_ve_{split}.jsonl", hypotheses)
    (folder / "sweeps").symlink_to(ROOT / "sweeps")
    (folder / "conf").symlink_to(ROOT / "conf")


def shrink(words: list[str]) -> list[str]:
    """Return the words of a command as it is run here."""
    shrunk = [small for word in words for small in TINY.get(word, [word])]
    shrunk = [word.replace("-paper/", "-shapescapes/") for word in shrunk]
    source = [word for word in shrunk if word.startswith("data.source=")]
    named = any(word.startswith("detections@") for word in shrunk)
    is_xmai = "recipe=xmai" in shrunk or "--multirun" in shrunk
    if is_xmai and source and not named:
        file = "recipe.annotators.detections.file=detections.jsonl"
        shrunk += ["detections@recipe=file", file]
    if "--multirun" in shrunk:
        shrunk.append("limit=4")
    return shrunk


def answer(page: Path, file: Path, field: str) -> None:
    """Answer a page as two attentive people do, who like the first answer or say 4."""
    text = page.read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    lines = []
    for who in list(data["people"])[:2]:
        for number, _ in data["people"][who]:
            task = data["tasks"][number]
            lines.append({"key": task["k"], "member": task["m"], "annotator": who,
                          field: _choice(task, field), "texts": task["h"]})  # fmt: skip
    jsonl(file, lines)


def _choice(task: dict, field: str) -> str | int:
    asked = [text for text in [*(t for _, t in task["o"]), *task.get("c", [])] if "choose" in text]
    if field == "quality":
        return int(re.search(r"choose (\d)", asked[0])[1]) if asked else 4
    return next(
        label for label, text in task["o"] if not asked or (text.endswith(" choose this caption.")
        and "do not" not in text)
    )  # fmt: skip


@pytest.mark.slow
def test_every_command_of_the_page_runs(tmp_path, monkeypatch, script, capfd):
    monkeypatch.chdir(tmp_path)
    lay_files(tmp_path)
    # The training is run by test_text_recipes.
    commands = [
        command for command in commands_of(PAGE) if "xmai_training" not in " ".join(command[1])
    ]
    assert len(commands) >= 25
    for name, asked in commands:
        words = shrink(asked)
        if name == "train":
            words += TRAINED
        elif name == "evaluate" and any(word.startswith("model=") for word in words):
            words.append("max_indistinct=1")  # captions are alike to the tiny model
        if (name, words[0]) == ("annotate", "read"):
            if "annotate/question=quality" in words:
                answer(Path("quality.html"), Path("quality.jsonl"), "quality")
            else:
                page = Path("runs/annotation/annotate.html")
                answer(page, Path("preference.jsonl"), "label")
        assert script(name)(words) == 0, (words, capfd.readouterr().err)
    insertions = [pair.members[1].edit for pair in read_sets(tmp_path / "shards" / "xmai")]
    assert {edit.kind for edit in insertions if edit is not None} == {"insertion"}
    tables = tmp_path / "runs" / "tables"
    documents = {file.stem: read_document(file) for file in tables.glob("*.json")}
    assert documents.keys() == {"xmai_1", "xmai_2", "xmai_3", "xmai_4", "xmai_5", "xmai_preference"}
    for document in documents.values():
        assert any(part.ours for part in document.parts), document.name
    shown = (tmp_path / "runs/tables/xmai_2.md").read_text()
    assert "Ours: vilt" in shown
    assert "METEOR" in shown.partition("Ours")[2]
