"""``make xmai``: its sweeps compose, and every insertion of a detector without errors is true."""

from __future__ import annotations

import re
import subprocess
from itertools import product
from pathlib import Path

import pytest
import yaml

from cfaug.data.shards.shards import read_sets
from cfaug.run.compose import compose_jobs
from cfaug.run.generate import GenerateSettings, generate
from tests.test_conf import CONF

ROOT = Path(__file__).parents[2]
SWEEPS = ("xmai_methods", "xmai_methods_ve", "xmai_tradeoff", "xmai_errors")


def folders(name):
    """Return what a sweep writes, its placeholders filled by hand."""
    given = yaml.safe_load((ROOT / f"sweeps/{name}.yaml").read_text())["parameters"]
    choices = {k: v.get("values", [v.get("value")]) for k, v in given.items()}
    found = []
    for values in product(*choices.values()):
        one = dict(zip(choices, values, strict=True))
        filled = {"recipe.name": one["recipe"]} | one
        filled |= {f"recipe.editor.weights[{i}]": w
                   for i, w in enumerate(one.get("recipe.editor.weights", ()))}  # fmt: skip
        path = one["paths.shards"]
        found.append(re.sub(r"\$\{([^}]*)\}", lambda m, now=filled: str(now[m[1]]), path))
    return found


def test_make_xmai_asks_about_every_folder_that_its_sweeps_make():
    made = [folder for name in SWEEPS for folder in folders(name)]
    assert len(made) == len(set(made)) == 5 + 5 + 12 + 4
    lines = subprocess.run(
        ["make", "-n", "-o", ".venv/.installed", "xmai"], cwd=ROOT, check=True, capture_output=True,
        text=True,
    ).stdout.splitlines()  # fmt: skip
    asked = [one for line in lines for one in re.findall(r"shards/xmai/[\w.-]+", line)]
    assert set(asked) == set(made)
    swept = [one for line in lines for one in re.findall(r"sweeps/(\w+)\.yaml", line)]
    assert swept == list(SWEEPS)


@pytest.mark.slow
def test_with_the_attributes_weighed_most_every_insertion_is_true_and_errors_change_that(tmp_path):
    def run(*words):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        paths = [f"paths.shards={folder}", f"paths.worlds={tmp_path / 'worlds'}"]
        weights = "recipe.editor.weights=[1,20,5]"
        [(config, _)] = compose_jobs(
            CONF, "generate", ["recipe=xmai", "limit=40", weights, *words, *paths],
            multirun=False, command=GenerateSettings,
        )  # fmt: skip
        assert generate(GenerateSettings(**config)) == 0
        sets = list(read_sets(folder))
        assert len(sets) == 40
        return [one.scores.get("inserted_true") for one in sets]

    assert set(run()) == {1.0}
    wrong = run("zoo.detector.error_rate=1", "zoo.detector.errors=[attribute]")
    assert set(wrong) <= {0.0, 0.5}
    assert 0.0 in wrong
    assert set(run("zoo.detector.error_rate=1", "zoo.detector.errors=[missed]")) == {None}
