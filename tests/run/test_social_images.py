"""The image side of ``recipe=social``: its numbers, its options, and what it writes of yields."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from cfaug.imaging.clip import LabelScorer
from cfaug.imaging.prompt_to_prompt import SafetyChecker
from cfaug.run.compose import compose_jobs
from cfaug.run.generate import GenerateSettings, build_recipe, generate
from tests.test_conf import CONF


def compose(*words):
    overrides = ["recipe=social", *words]
    [(config, _)] = compose_jobs(
        CONF, "generate", overrides, multirun=False, command=GenerateSettings
    )
    return GenerateSettings(**config)


def test_the_paper_s_numbers() -> None:
    recipe = build_recipe(compose("zoo=paper"))
    draws, select = recipe.draws, recipe.selection
    assert (draws.candidates, draws.p2p_threshold, draws.p_law) == (100, (0.1, 0.9), "uniform")
    assert (select.names, select.keep, select.per) == (
        ("sim_0", "sim_1", "sim_direction"),
        10,
        "set",
    )
    # An image below .2 rejects a set, whatever its mean; sets are ranked by their mean direction.
    good = {"sim_0": 0.3, "sim_1": (0.2, 0.4), "sim_direction": (0.1, 0.3)}
    assert select.reject(good) == ""
    assert select.reject({**good, "sim_1": (0.19, 0.9)}) == "caption_1"
    assert select.pool_all(good)["sim_direction"] == pytest.approx(0.2)
    assert recipe.image_editor.steps == 100
    assert recipe.image_editor.safety is None
    assert "labels" not in recipe.scorers


def test_a_safety_checker_and_a_second_encoder_are_options() -> None:
    recipe = build_recipe(
        compose(
            "zoo=paper", "+recipe_part@recipe=found_labels",
            "recipe.image_editor.safety=${zoo.safety_checker}",
        )
    )  # fmt: skip
    assert isinstance(recipe.image_editor.safety, SafetyChecker)
    assert isinstance(recipe.scorers["labels"], LabelScorer)
    assert recipe.selection.names == ("sim_0", "sim_1", "label_0", "label_1", "sim_direction")
    scores = {"sim_0": 1, "sim_1": (1,), "sim_direction": (1,), "label_0": 0, "label_1": (-0.01,)}
    assert recipe.selection.reject(scores) == "label"
    recipe.pipeline("png")  # every score that is asked for is given


@pytest.mark.slow
def test_a_set_is_drawn_in_rounds_and_counted(tmp_path, capfd) -> None:
    settings = compose(
        "zoo=shapescapes", "limit=2", "recipe.image_editor.steps=3", "recipe.draws.candidates=4",
        "recipe.draws.p_law=adaptive", "+recipe_part@recipe=found_labels",
        "recipe.selection.minimum={sim_0: -1, sim_1: 0.3, label_0: -1, label_1: -1}",
        f"paths.shards={tmp_path / 'out'}", f"paths.worlds={tmp_path / 'worlds'}",
    )  # fmt: skip
    assert generate(settings) == 0
    said = capfd.readouterr()
    summary = json.loads(said.out.splitlines()[-1])
    counts = json.loads((tmp_path / "out" / "card.json").read_text())["yields"]
    of = counts["of"]["colour_background"]
    assert (counts["by"], of["sets"], of["candidates"]) == ("grid", 2, 8)
    assert of["kept"] == summary["sets"]
    assert f"colour_background             2            {of['without']}           8" in said.err
    rows = pq.read_table(tmp_path / "out" / "00000.parquet").to_pylist()
    assert {row["p_density"] for row in rows if row["candidate"] == 0} == {1.0}
    assert all(-1 <= row["label_1"] <= 1 for row in rows)
