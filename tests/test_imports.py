"""No circles among modules, whatever kind of import makes them; required packages are imported."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import cfaug

ROOT = Path(cfaug.__file__).parent
IMPORT = re.compile(r"^ *(?:import|from(?= \S+ import )) (\w+)", re.MULTILINE)
"""Of a tenth of the time that parsing takes; one module a line, as ruff has it."""


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(package: str) -> dict[str, set[str]]:
    """Every module of a package with those it imports: at the top, inside, or for types only."""
    files = {module_name(file): file for file in (ROOT / package).rglob("*.py")}
    graph = {}
    for name, file in files.items():
        found = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                whole = {f"{node.module}.{one.name}" for one in node.names}
                found |= {one if one in files else node.module for one in whole}
            elif isinstance(node, ast.Import):
                found |= {one.name for one in node.names}
        graph[name] = (found & set(files)) - {name}
    return graph


@pytest.mark.parametrize("package", ["data", "coco_cf"])
def test_no_module_imports_itself_by_way_of_others(package):
    graph = imports_of(package)
    assert sum(map(len, graph.values())) > 3
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def names_of(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(one).name) for one in requirements}


@pytest.fixture(scope="module")
def imported() -> set[str]:
    """The distributions that the package and its scripts import, stubs such as _typeshed aside."""
    # trackio, an extra with a web server of its own, has a stand-in in the tests.
    found = {**packages_distributions(), "trackio": ["trackio"]}
    example = ROOT / "run/example_recipe"  # whose test its new owner runs
    files = [one for one in ROOT.rglob("*.py") if one.parent != example]
    files += ROOT.parent.glob("*.py")
    modules = {name for file in files for name in IMPORT.findall(file.read_text())}
    modules -= {*sys.stdlib_module_names, "cfaug", "_typeshed"}
    assert modules <= set(found), "every one is installed where tests run"
    return {canonicalize_name(name) for module in modules for name in found[module]}


@pytest.fixture(scope="module")
def declared() -> dict[str, Any]:
    return tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["project"]


def test_every_required_package_is_imported(imported, declared):
    assert names_of(declared["dependencies"]) <= imported


def test_every_imported_package_is_declared(imported, declared):
    extras = declared["optional-dependencies"]
    optional = [one for extra in extras.keys() - {"dev", "docs"} for one in extras[extra]]
    assert imported <= names_of([*declared["dependencies"], *optional])


def test_no_release_of_lightning_with_malware_is_allowed_or_pinned(declared):
    """2.6.2 and 2.6.3 stole credentials when imported (GHSA-w37p-236h-pfx3)."""
    malware = ["2.6.2", "2.6.3"]
    required = {one.name: one.specifier for one in map(Requirement, declared["dependencies"])}
    assert list(required["lightning"].filter(["2.6.1", *malware, "2.6.6"])) == ["2.6.1", "2.6.6"]
    lines = (ROOT.parent / "requirements.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "lightning==" in line)
    assert pins.keys() == {"lightning", "pytorch-lightning"}  # the first installs the second
    assert not {pin.split()[0] for pin in pins.values()} & set(malware)


UNNEEDED = (
    "datasets", "diffusers", "fontTools.ttLib", "nltk", "open_clip", "peft",
    "pyarrow.dataset", "sklearn", "tensorboard", "timm", "transformers.trainer", "wandb",
    "webdataset",
)  # fmt: skip
"""What a short run of the tiny CLIP has no use for, though another run would."""


@pytest.mark.slow
def test_a_short_run_imports_only_what_it_needs(tmp_path):
    words = [
        "data.cf_ratio=0.5", "data.size=16", "data.batch_size=8", "trainer.max_steps=1",
        "data.world.real_scenes=40", "data.world.counterfactual_pairs=20",
        f"paths.runs={tmp_path}/runs", f"paths.shards={tmp_path}/shards",
    ]  # fmt: skip
    code = (
        f"import sys, train\nassert train.main({words!r}) == 0\n"
        f"print([name for name in {UNNEEDED!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT.parent, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
