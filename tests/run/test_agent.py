"""The actual ``wandb sweep`` and ``wandb agent``, against a stand-in for the service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.run.conftest import WORLD, stdout_of
from tests.run.service import serving
from tests.scripts import ROOT

BIN = Path(sys.executable).parent
SLUG = "real-data,-all"


def sweep_file(folder, place):
    """Write a grid in the form of the shipped ones; two words in W&B's own form."""
    fixed = (word.split("=", 1) for word in [*WORLD, *place.paths, "dry_run=json"])
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


def plans(said):
    """Return what each run would do, by its folder."""
    lines = [json.loads(line) for line in said.splitlines() if line.startswith('{"run"')]
    return {line["run"]: {**line, "estimate_s": None} for line in lines}


@pytest.mark.slow
def test_an_agent_plans_the_runs_of_a_multirun(tmp_path, place):
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
    by_multirun = plans(stdout_of(place.script("train"), ["-m", f"sweep={file}"]))
    assert plans(said) == by_multirun
    assert list(by_multirun) == [
        f"{place.root}/one table/{arm}/seed=107" for arm in (SLUG, "cf_ratio=0.6")
    ]
