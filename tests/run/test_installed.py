"""The wheel, installed outside the checkout: the command ``cfaug`` with its settings and sweeps."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from itertools import product
from pathlib import Path

import pytest
import yaml

from tests.files_of_settings import settings_file
from tests.run.conftest import WORLD

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow

TINY = [*WORLD, "trainer.max_steps=2"]


def build(kind: str, source: Path, folder: Path) -> Path:
    """Build an ``sdist`` or a ``wheel`` of a source tree, and return the file."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)],
        cwd=source, check=True, capture_output=True,
    )  # fmt: skip
    [built] = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    return build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory) -> Path:
    """Return the wheel that is built from the sdist, as for a release."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    [source] = folder.glob("cfaug-*/")
    return build("wheel", source, folder)


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Return what runs the installed command in a folder of its own.

    What cfaug needs comes from this environment; cfaug itself from the wheel alone, because an
    editable installation's path file counts only in the environment it stands in.
    """
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "env", with_pip=False)
    python = folder / "env/bin/python"
    [site] = (folder / "env/lib").glob("python3*/site-packages")
    # A path of letters beyond ASCII, written as it is, would stop Python where LC_ALL=C.
    needed = ascii(sysconfig.get_path("purelib"))
    (site / "needed.pth").write_text(f"import sys; sys.path.append({needed})\n")
    uv = Path(sys.executable).with_name("uv")
    subprocess.run(
        [uv, "pip", "install", "--offline", "--no-deps", "--python", python, wheel],
        check=True, capture_output=True,
    )  # fmt: skip
    work = folder / "work"
    work.mkdir()
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}

    def run(*words: str, code: int = 0, program: Path = folder / "env/bin/cfaug") -> str:
        done = subprocess.run(
            [str(program), *words], cwd=work, env=kept, capture_output=True, text=True
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    run.work, run.python = work, python
    return run


def test_both_are_as_a_package_index_takes_them(sdist, wheel):
    words = [sys.executable, "-m", "twine", "check", "--strict", sdist, wheel]
    said = subprocess.run(words, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.M)[1]
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text()
    (date,) = re.findall(
        rf"(?m)^## {re.escape(version)} - (\d{{4}}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text()
    )
    assert f"date-released: {date}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_wheel_holds_every_setting_and_sweep(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    for name in ("conf", "sweeps"):
        here = {f"cfaug/{file.relative_to(ROOT)}" for file in (ROOT / name).rglob("*.yaml")}
        assert here
        assert here <= held
    plugins = [*(ROOT / "cfaug/papers").glob("*/"), *(ROOT / "cfaug/worlds").glob("*/")]
    files = (file for folder in plugins for file in folder.rglob("*") if file.is_file())
    parts = {file.relative_to(ROOT).as_posix() for file in files if file.suffix != ".pyc"}
    assert {Path(part).suffix for part in parts} >= {".py", ".yaml", ".json", ".mk"}
    assert parts <= held
    assert "cfaug/weights/clip-0/model.safetensors" in held
    assert not [name for name in held if name.startswith(("tests/", "benchmarks/", "zoo/"))]


def test_it_is_the_wheel_that_runs(installed):
    code = "import cfaug; print(cfaug.__file__)"
    assert "site-packages" in installed("-c", code, program=installed.python)
    assert installed("--version").startswith("cfaug ")
    assert "cfaug train data.cf_ratio=0.6" in installed("train", "--help")


def test_a_run_is_trained_by_torchrun_and_evaluated(installed):
    words = ["arm=two", "trainer.devices=2", "trainer.accelerator=cpu", *TINY]
    installed("train", "data.cf_ratio=0.6", "seed=107", *words)
    assert (installed.work / "runs/main/two/seed=107/checkpoint/model.safetensors").is_file()
    only = "benchmark.only=[shapescapes_ood_classification]"
    assert "main/two/seed=107" in installed("evaluate", "name=main", "benchmark=ood", only)
    said = installed("evaluate", "name=nothing", code=2)
    assert "cfaug train" in said
    assert ".py" not in said


def test_sweeps_are_found(installed):
    sweep = ["sweep=sweeps/ratio_curve.yaml", "dry_run=true", "data.size=20", *WORLD]
    said = installed("train", "--multirun", *sweep)
    many = len(list(_product(ROOT / "sweeps/ratio_curve.yaml")))
    assert f"{many} runs" in said


def _product(file: Path):
    parameters = yaml.safe_load(file.read_text())["parameters"].values()
    return product(*(spec.get("values", [1]) for spec in parameters))


def test_a_paper_has_its_table_and_its_sweeps(installed):
    assert "COCO-CFs" in installed("table", "coco_cf_1", "table.partial=true")
    assert (installed.work / "runs/tables/coco_cf_1.tex").is_file()
    said = installed("train", "--multirun", "sweep=sweeps/xmai_training.yaml", code=2)
    assert "shards/xmai_training" in said  # which is to be made first


def test_settings_and_classes_of_ones_own(installed):
    (installed.work / "mine/recipe").mkdir(parents=True)
    text = settings_file("recipe/substitution").read_text()
    (installed.work / "mine/recipe/own.yaml").write_text(text)
    words = ["recipe=own", "stage=captions", "zoo=captions", "limit=1", "data.source=c.jsonl"]
    (installed.work / "c.jsonl").write_text('{"caption": "a dog on the beach"}\n')
    installed("generate", "--config-dir=mine", *words)
    assert list((installed.work / "shards").glob("*/captions"))


def test_the_zoo_and_the_doctor(installed):
    assert "zoo:clip-0" in installed("zoo")
    said = installed("doctor")
    assert " from a wheel:" in said  # the path behind it is cut to the width
    assert len(said.splitlines()) < 40
