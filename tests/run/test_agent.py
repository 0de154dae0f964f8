"""The actual ``wandb sweep`` and ``wandb agent``, against a stand-in for the service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.run.conftest import WORLD
from tests.run.service import serving
from tests.scripts import ROOT

BIN = Path(sys.executable).parent
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


def wandb(address, folder, *words):
    environment = {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "WANDB_BASE_URL": address,
        "WANDB_API_KEY": "x" * 40,
        "WANDB_DIR": str(folder),
        "WANDB_CONFIG_DIR": str(folder / "config"),
    }
    del environment["WANDB_MODE"]
    return subprocess.Popen(
        [str(BIN / "wandb"), *words],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def finished(process):
    try:
        said = process.communicate(timeout=500)[0]
    finally:
        process.kill()
    assert process.returncode == 0, said
    return said


def runs(root):
    """Return every run's folder, below the root, and its record."""
    records = {file.parent: json.loads(file.read_text()) for file in root.rglob("run.json")}
    return {str(folder.relative_to(root)): record for folder, record in records.items()}


@pytest.mark.slow
def test_an_agent_makes_the_runs_of_a_multirun(tmp_path, place, capfd):
    file = sweep_file(tmp_path, place)
    with serving() as (service, address):
        assert "wandb agent" in finished(wandb(address, tmp_path, "sweep", "-p", "grid", str(file)))
        (sweep,) = service.sweeps.values()
        said = finished(wandb(address, tmp_path, "agent", f"lab/grid/{sweep.name}"))
    assert not service.unknown
    grid = yaml.safe_load(file.read_text())["parameters"]
    assert yaml.safe_load(sweep.config)["parameters"] == grid
    assert not sweep.points
    assert [point["arm"] for point in sweep.handed_out] == grid["arm"]["values"]
    assert said.count("_wandb={") >= 2
    assert said.count("--data.cf_ratio=0.6") == 2

    (agent,) = service.agents
    assert [operation for operation, _ in service.log].count("CreateAgent") == 1
    states = service.states[agent]
    # The first heartbeat asks for work, one more after every run; others say what is at work.
    assert states[0] == states[-1] == {}
    assert sum(not state for state in states) == 3
    running = {run for state in states for run, alive in state.items() if alive}
    assert running <= {f"{sweep.name}run1", f"{sweep.name}run2"}

    # The same file without W&B.
    multirun = tmp_path / "multirun"
    assert place.script("train")(["-m", f"sweep={file}", f"paths.runs={multirun}"]) == 0
    by_agent, by_multirun = runs(place.root), runs(multirun)
    assert set(by_agent) == {f"one table/{arm}/seed=107" for arm in ("cf_ratio=0.6", SLUG)}
    assert by_agent.keys() == by_multirun.keys()
    for name, record in by_agent.items():
        assert record["state"] == "done"
        assert record["config_hash"] == by_multirun[name]["config_hash"]
