"""Every command of docs/controls.md runs, in order, on hand-laid files and a tiny world."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfaug.report.document import read_document
from tests.data.compositional import trohn_img, trohn_text
from tests.data.making import noise_image
from tests.report.example import picture
from tests.run.conftest import WORLD, commands_of
from tests.scripts import ROOT

PAGE = ROOT / "docs" / "controls.md"

TRAINED = [
    "trainer.max_steps=1", "data.batch_size=4", "trainer.progress=false", "data.validation=0",
    "trainer.checkpoint=last", "data.holdout=0",
]  # fmt: skip


def lay_files(folder: Path) -> None:
    """Lay out photos with captions that rules apply to, and TROHN's sets."""
    photos = folder / "PHOTOS"
    photos.mkdir()
    lines = ["image,caption"]
    for number, shape in enumerate(["ball", "cube", "star", "ball", "cube", "star"]):
        (photos / f"{number}.png").write_bytes(picture(shape, "red"))
        lines.append(f"{number}.png,a red {shape} on the grass")
    (photos / "captions.csv").write_text("\n".join(lines) + "\n")
    five = folder / "FIVE_CAPTIONS"
    five.mkdir()
    lines = []
    for number, shape in enumerate(["ball", "cube", "star"] * 4):
        (five / f"{number}.png").write_bytes(noise_image(number))
        said = ["on the grass", "at night", "in the snow", "on the beach", "on a road"]
        lines += [
            json.dumps({"image": f"{number}.png", "caption": f"a red {shape} {w}"}) for w in said
        ]
    (five / "captions.jsonl").write_text("\n".join(lines) + "\n")
    trohn_text(folder / "trohn_text")
    trohn_img(folder / "trohn_img")


@pytest.mark.slow
def test_every_command_of_the_page_runs(tmp_path, monkeypatch, script, capfd):
    monkeypatch.chdir(tmp_path)
    lay_files(tmp_path)
    commands = commands_of(PAGE)
    assert len(commands) >= 30
    printed = []
    for asked, words in commands:
        words = ["dry_run=json" if word == "dry_run=true" else word for word in words]
        if asked == "train":
            tiny = TRAINED if "data=folder" in words else [*WORLD, *TRAINED]
            words += [word for word in tiny if "data=folder" not in words or ".world." not in word]
        if asked == "evaluate" and "benchmark=choice" not in words:
            some = "shapescapes_id_classification,shapescapes_ood_classification"
            words += [f"benchmark.only=[{some}]", "benchmark=shapescapes"]
        if asked == "evaluate" and any(word.startswith("wise_ft=") for word in words):
            words = ["wise_ft=[0,1]" if w.startswith("wise_ft=") else w for w in words]
            words += ["arm=both"]
        if "model=clip_vit_b32" in words:  # the tiny one, which knows no umbrella
            words = ["weights=zoo:clip-0", "max_indistinct=1", *words[1:]]
        if "world@data.world=compositional" in words:
            words += ["data.world.compositional_test_pairs=6"]
        assert script(asked)(words) == 0, (words, capfd.readouterr().err)
        if "dry_run=json" in words:
            printed.append(json.loads(capfd.readouterr().out.splitlines()[-1]))
    said, captions = printed
    assert (captions["counts"]["real"], captions["sizes"]["real"]) == (12, 60)
    assert captions["real_captions"] == {"photos": 12, "captions": 60}
    assert said["counts"]["text_negatives"] == said["counts"]["counterfactual"]
    assert set(said["a_batch"]) == {"positives", "text_negatives", "image_negatives"}
    for arm, words in (
        ("text_negatives", "originals of counterfactuals, whose captions were wrong answers"),
        ("plain", "originals of counterfactuals, which took no part"),
    ):
        [card] = (tmp_path / "runs" / "controls" / arm).glob("seed=*/checkpoint/README.md")
        assert words in card.read_text()
    document = read_document(tmp_path / "runs" / "tables" / "wise_ft.json")
    assert [labels for labels, _ in document.parts[0].rows] == [("both", "0"), ("both", "1")]
