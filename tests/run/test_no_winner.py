"""Two arms with the same weights never win against each other, whatever they were asked."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest
from PIL import Image

PLACES = ["on the sea", "in a wood", "by night"]


def picture(file, number):
    noise = np.random.default_rng(number).integers(0, 255, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(noise).resize((48, 48), Image.Resampling.NEAREST).save(file)


@pytest.fixture
def own_data(tmp_path):
    """Photos with captions, and pairs made of other photos."""
    photos, pairs = tmp_path / "photos", tmp_path / "pairs"
    photos.mkdir()
    pairs.mkdir()
    with (photos / "captions.jsonl").open("w") as handle:
        for i in range(40):
            picture(photos / f"{i}.png", i)
            caption = f"a ball number {i} {PLACES[i % 3]}"
            handle.write(json.dumps({"image": f"{i}.png", "caption": caption}) + "\n")
    with (pairs / "pairs.csv").open("w") as handle:
        table = csv.writer(handle)
        table.writerow(["image", "caption", "cf_image", "cf_caption"])
        for i in range(40):
            names = [f"{i}_{side}.png" for side in (0, 1)]
            for side, name in enumerate(names):
                picture(pairs / name, 100 + 2 * i + side)
            texts = [f"a {what} number {i}" for what in ("cone", "ring")]
            table.writerow([names[0], texts[0], names[1], texts[1]])
    return [f"data.real={photos}", f"data.counterfactual={pairs}"]


@pytest.mark.slow
def test_a_run_that_learned_nothing_beats_no_other(place, own_data, capsys):
    words = [
        "data=folder", *own_data, "data.cf_ratio=0,0.9", "seed=1,2,3", "name=fp",
        "trainer.max_steps=1", "optim.lr=1e-12", "data.batch_size=4", *place.paths,
    ]  # fmt: skip
    assert place.script("train")(["--multirun", *words]) == 0
    for benchmark in ((), ("benchmark=heldout",)):
        capsys.readouterr()
        assert place.evaluate("name=fp", "max_indistinct=1", *benchmark) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert re.search(
            r"have the same weights at every seed: no comparison|is not one test for all arms", said
        )
        report = (place.root / "fp/report.html").read_text()
        assert "was not compared with" in report
        with (place.root / "fp/table.csv").open() as handle:
            rows = [row for row in csv.DictReader(handle) if row["arm"] != row["baseline"]]
        assert {row["reason"] for row in rows} <= {"the same weights", "other test data"}
        assert {row["p_paired"] + row["p_welch"] + row["p_holm"] for row in rows} == {""}
        for text in (said, report, (place.root / "fp/table.md").read_text()):
            assert " beats " not in text
        # Arms are called by what sets them apart.
        assert {row["label"].partition(",")[0] for row in rows} == {"cf_ratio=0.9"}
