"""Every command of docs/social.md runs, in order, on hand-laid files and tiny models."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cfaug.data.shards.shards import read_sets
from cfaug.data.sources import import_sets
from cfaug.report.results import read_results
from tests.data.foils import fairface
from tests.data.layouts import TEXTS, images, table
from tests.data.test_cultural_counterfactuals import cultural, cultural_rows
from tests.data.test_social_counterfactuals import social, social_rows
from tests.run.conftest import commands_of
from tests.scripts import ROOT

PAGE = ROOT / "docs" / "social.md"

TINY = {
    "zoo=paper": ["zoo=shapescapes", "limit=2", "recipe.image_editor.steps=2"],
    "data.grid=race_gender": ["data.grid=shapescapes"],
    "model=clip_vit_b32": ["model=tiny_clip"],
    "model=open_clip": ["model=tiny_clip"],
    "model.architecture=ViT-B-32": [],
    "weights=laion2b_s34b_b79k": ["weights=zoo:clip-1"],
    "benchmark=skew": ["benchmark=skew", "benchmark.permutations=50", "benchmark.resamples=50"],
    "benchmark.k=1000": ["benchmark.k=3"],
    "scale=social_folders": [
        "scale=social_folders", "model=tiny_clip", "trainer.max_steps=2", "data.batch_size=24",
        "data.holdout=0", "data.validation=0", "trainer.checkpoint=last", "trainer.progress=false",
        "data.counterfactual_holdout=0.34", "data.cf_ratio=0.9",
    ],
    "benchmark=attribute_detector": [  # this CLIP knows no word of "a male person"
        "benchmark=attribute_detector", "benchmark.prompts={male: a red ball, female: a blue cat}",
    ],
    "recipe=social_oracle": ["recipe=social_oracle", "limit=6", "recipe.draws.candidates=2"],
}  # fmt: skip
"""What stands in for what cannot run here."""

DRAWN = ["recipe.draws.candidates=1", "recipe.selection.minimum={sim_0: -1, sim_1: -1}"]


def lay_files(folder: Path) -> None:
    """Lay out the grid that the page shows, and parquet as the Hub has it."""
    [grid] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (folder / "mine.yaml").write_text(grid)
    subjects = ["barber", "chef", "doctor"]
    rows = [
        row
        for number, subject in enumerate(subjects)
        for again in range(2)
        for row in social_rows(subject, f"{subject}_{again}", 100 * (2 * number + again))
    ]
    social(folder / "SocialCounterfactuals", rows)
    cultural(folder / "CulturalCounterfactuals" / "religion", cultural_rows())
    fairface(folder / "FairFace")
    images(folder / "PHOTOS")
    photos = [(f"{name}.png", text) for name, text in TEXTS.items()]
    table(folder / "PHOTOS" / "captions.csv", ["image", "caption"], photos)


def shrink(words: list[str]) -> list[str]:
    """Return the words of a command as it is run here."""
    shrunk = [small for word in words for small in TINY.get(word, [word])]
    return [*shrunk, *DRAWN] if "zoo=shapescapes" in shrunk else shrunk


@pytest.mark.slow
def test_every_command_of_the_page_runs(tmp_path, monkeypatch, script, capfd):
    monkeypatch.chdir(tmp_path)
    lay_files(tmp_path)
    commands = commands_of(PAGE)
    assert len(commands) >= 10
    for name, words in commands:
        names_only_model = name == "evaluate" and any(word.startswith("model=") for word in words)
        alike = ["max_indistinct=1"] if names_only_model else []  # to the tiny model
        assert script(name)([*shrink(words), *alike]) == 0, capfd.readouterr().err
    made = list(read_sets(tmp_path / "shards" / "social"))
    assert made
    assert list(import_sets(tmp_path / "hub" / "social")) == made
    assert "They are not what a person is" in (tmp_path / "hub/social/README.md").read_text()
    captions = (tmp_path / "shards/captions/captions/00000.jsonl").read_text()
    assert "A photo of an old woman nurse" in captions
    files = (tmp_path / "runs").rglob("results.jsonl")
    benchmarks = {row.benchmark for file in files for row in read_results(file)}
    assert {"social_skew", "SocialCounterfactuals_skew", "oracle_skew"} <= benchmarks
    assert (tmp_path / "runs/tables/report.html").is_file()
