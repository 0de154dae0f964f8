"""What an agent of Weights & Biases types, by its own functions, makes the runs of a multirun."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import yaml
from wandb.sdk.launch.sweeps.utils import create_sweep_command, create_sweep_command_args

from cfaug.__main__ import main
from tests.run.conftest import WORLD

SLUG = "real-data,-all"


def sweep_file(folder, place):
    """Write a grid in the form of the shipped ones; two words in W&B's own form."""
    fixed = (word.split("=", 1) for word in [*WORLD, *place.paths, "trainer.max_steps=0"])
    content = {
        "program": "train.py",
        "method": "grid",
        "command": [
            "${env}", "${interpreter}", "-m", "cfaug", "train", "${args_no_hyphens}",
            "--data.cf_ratio=0.6", "--logger=csv",
        ],
        "parameters": {
            "name": {"value": "one table"},
            "arm": {"values": ["real data, all", "cf_ratio=0.6"]},
            "data.cf_ratio": {"value": 0.6},
            "data.size": {"value": None},
            "seed": {"value": 107},
            **{key: {"value": yaml.safe_load(value)} for key, value in fixed},
        },
    }  # fmt: skip
    file = folder / "grid.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return file


def type_as_agent(command: list[str], point: dict[str, Any]) -> list[str]:
    """Return the command of one point of a grid, as W&B's agent expands it."""
    # A run that was preempted comes back with this key among its own.
    args = {**point, "_wandb": {"cli_version": "0.31.0"}}
    expanded = create_sweep_command_args({"args": {k: {"value": v} for k, v in args.items()}})
    words: list[str] = []
    for part in create_sweep_command([*command]):
        words += expanded[part[2:-1]] if part.startswith("${args") else [part]
    return words


def runs(root):
    """Return every run's folder, below the root, and its record."""
    found = {file.parent: json.loads(file.read_text()) for file in root.rglob("run.json")}
    return {str(folder.relative_to(root)): record for folder, record in found.items()}


def test_an_agents_words_make_the_runs_of_a_multirun(tmp_path, place):
    file = sweep_file(tmp_path, place)
    content = yaml.safe_load(file.read_text())
    grid = content["parameters"]
    values = [one.get("values", [one.get("value")]) for one in grid.values()]
    for point in product(*values):
        words = type_as_agent(content["command"], dict(zip(grid, point, strict=True)))
        assert words[:4] == ["${env}", "${interpreter}", "-m", "cfaug"]
        assert any(word.startswith("_wandb={") for word in words)
        assert main(words[4:]) == 0

    # The same file without W&B.
    multirun = tmp_path / "multirun"
    assert place.script("train")(["-m", f"sweep={file}", f"paths.runs={multirun}"]) == 0
    by_agent, by_multirun = runs(place.root), runs(multirun)
    assert set(by_agent) == {f"one table/{arm}/seed=107" for arm in ("cf_ratio=0.6", SLUG)}
    assert by_agent.keys() == by_multirun.keys()
    for name, record in by_agent.items():
        assert record["state"] == "done"
        assert record["config_hash"] == by_multirun[name]["config_hash"]
