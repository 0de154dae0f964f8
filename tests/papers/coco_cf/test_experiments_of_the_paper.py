"""Every experiment of the paper at its smallest size: trained, asked and printed by the scripts."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import yaml

from cfaug.planning.build import build
from cfaug.run.arm_names import arm_slug
from cfaug.settings.arguments import sweep_overrides
from cfaug.settings.choices import options_in
from cfaug.settings.settings_files import find_sweep, sweep_files
from tests.run.conftest import compose

SMALL = [
    "data.world.real_scenes=40", "data.world.counterfactual_pairs=40", "data.batch_size=16",
    "data.world.id_scenes=30", "data.world.ood_pairs=12", "logger=csv",
]  # fmt: skip
ONE_STEP = ["trainer.max_epochs=null", "trainer.max_steps=1"]
SEED = "seed=107"
TRAINED = sorted(
    path.stem for path in sweep_files() if path.stem.startswith("coco_cf_")
    and yaml.safe_load(path.read_text())["program"] == "train.py"
)  # fmt: skip
BESIDE = "coco_cf_3_control"
TABLES = [name for name in TRAINED if name != BESIDE]
ASKED = {"coco_cf_2": 2, "coco_cf_13": 1, "coco_cf_figure_3": 3}


def experiments() -> list[str]:
    """Every experiment of the paper's sweeps, once."""
    names: dict[str, None] = {}
    for sweep in TRAINED:
        words = sweep_overrides(find_sweep(f"{sweep}.yaml"))
        named = next(w for w in words if w.startswith("experiment="))
        names |= dict.fromkeys(named.removeprefix("experiment=").split(","))
    return list(names)


def test_the_sweeps_are_the_experiments():
    options = options_in("train")("experiment")
    arms = {name for name in options if name.startswith("coco_cf_") and "/" in name}
    assert set(experiments()) == arms
    assert sorted([*(f"coco_cf_{n}" for n in (3, 4, 5, 6, 11, 12)), BESIDE]) == TRAINED


@pytest.mark.parametrize("experiment", experiments())
def test_an_experiment_at_the_papers_scale(experiment):
    """COCO-CFs, B.3.2: learning rate, weight decay, batch; runs lie apart from the world's."""
    words = [f"experiment={experiment}", "scale=paper", "seed=107"]
    config = compose("train", *words)
    optim, trainer, data = (build(config[name]) for name in ("optim", "trainer", "data"))
    assert (optim.lr, optim.weight_decay, optim.schedule) == (5e-7, 1e-3, "linear")
    assert data.batch_size == 128
    assert data.world is None
    assert (trainer.max_epochs, trainer.max_steps) in ((3, None), (None, 0))
    assert config["paths"]["runs"] == "runs/paper"
    model = config["model"]["weights"]
    assert "zoo:" not in model
    assert arm_slug(words, config) == config["arm"]


@pytest.fixture(scope="module")
def paths(tmp_path_factory) -> list[str]:
    root = tmp_path_factory.mktemp("paper")
    return [f"paths.runs={root / 'runs'}", f"paths.shards={root / 'shards'}"]


@pytest.fixture(scope="module")
def trained(paths, script) -> Path:
    """Runs of every experiment with one step, what the tables ask of them, and the tables."""
    for experiment in experiments():
        arm = experiment.split("/")[-1]
        steps = [] if arm.endswith("before") else ONE_STEP
        words = [f"experiment={experiment}", f"arm={arm}", SEED, *SMALL, *steps, *paths]
        assert script("train")(words) == 0, experiment
    asked = [
        ["--multirun", "name=coco_cf_3,coco_cf_11", "benchmark=ood"],
        ["name=coco_cf_3", "benchmark=in_domain", "benchmark.only=[shapescapes_id_retrieval]"],
        ["name=coco_cf_5", "benchmark=cf", "benchmark.only=[shapescapes_cf_heldout_retrieval]"],
    ]
    for words in asked:
        assert script("evaluate")([*words, *paths]) == 0, words
    assert script("table")([*TABLES, *paths]) == 0
    return Path(paths[0].removeprefix("paths.runs=")) / "tables"


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_trained_runs(trained, name):
    rows = list(csv.DictReader((trained / f"{name}.csv").open()))
    ours = [row for row in rows if row["source"] == "ours"]
    assert ours
    assert all(row["text"] != "–" for row in ours if "correlation" not in row["part"])
    page = (trained / "report.html").read_text()
    assert f'id="{name}"' in page


@pytest.mark.slow  # its fixture trains
def test_the_counts_relate_as_in_the_paper(trained):
    """13,928 : 13,928 : 34,820 : 41,784, less rounding, with 40 real captions and 40 pairs."""
    parts = (trained / "coco_cf_3.md").read_text().split("### Ours")[1:3]
    counts = [
        [line.split("|")[2].strip() for line in part.splitlines() if line.startswith("| ")]
        for part in parts
    ]
    assert counts[0][2:7] == ["0", "32", "32", "80", "96"]
    assert counts[1][2:6] == ["80", "80", "96", "96"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "models"), ASKED.items())
def test_a_table_of_checkpoints(paths, script, name, models):
    words = ["--multirun", f"sweep=sweeps/{name}.yaml", SEED, *paths]
    assert script("evaluate")(words) == 0
    assert script("table")([name, *paths]) == 0
    root = Path(paths[0].removeprefix("paths.runs="))
    rows = list(csv.DictReader((root / "tables" / f"{name}.csv").open()))
    ours = {row["row"].split(" | ")[0] for row in rows if row["source"] == "ours"}
    assert len(ours) == models
