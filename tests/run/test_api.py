"""The public functions: the commands' settings, folders and results."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import cfaug
from cfaug.run.parallel import RayEngine
from cfaug.settings.arguments import write_override
from tests.run.conftest import SCENES, WORLD, stdout_of
from tests.scripts import ROOT

TINY = dict(word.split("=") for word in WORLD)
TINY_WORLD = dict(word.split("=") for word in SCENES)
GENERATED = {"recipe": "deletion", "limit": 2, "paths.shards": "made", "paths.worlds": "shards"}
PAGE = ROOT / "docs" / "quickstart.md"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def numbers(settings):
    return {key: int(value) for key, value in settings.items()}


def test_importing_it_imports_nothing_heavy():
    code = (
        "import cfaug, sys; dir(cfaug); print([m for m in ('torch', 'hydra') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_declared_for_type_checkers_and_documented():
    declared = {
        name.asname
        for node in ast.parse((ROOT / "cfaug/__init__.pyi").read_text()).body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    assert declared == set(cfaug.PUBLIC)
    for name in cfaug.PUBLIC:
        assert getattr(cfaug, name).__doc__
        assert name in dir(cfaug)
    assert {name for name in dir(cfaug) if not name.startswith("__")} == set(cfaug.PUBLIC)
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        _ = cfaug.trian


def test_a_mistake_is_the_commands_sentence():
    with pytest.raises(cfaug.UserError, match=r"did you mean data\.cf_ratio"):
        cfaug.mix({"data.cf_rato": 0.5})
    with pytest.raises(cfaug.UserError, match="duplicated setting: seed"):
        cfaug.mix({"seed": 1}, seed=2)


@pytest.mark.slow
def test_settings_may_be_nested_as_in_yaml():
    """N38: a nested dictionary was answered with a sentence of Hydra's grammar."""
    with pytest.raises(cfaug.UserError, match=r"^data\.cf_ratio=2 should be"):
        cfaug.mix({"data": {"cf_ratio": 2}})
    with pytest.raises(cfaug.UserError, match=r"did you mean data\.cf_ratio"):
        cfaug.mix({"data": {"cf_rato": 0.5}})
    with pytest.raises(cfaug.UserError, match=r"duplicated setting: data\.cf_ratio is given twice"):
        cfaug.mix({"data": {"cf_ratio": 0.5}, "data.cf_ratio": 0.6})
    with pytest.raises(cfaug.UserError, match=r"setting: data\.cf_ratio is given in both"):
        cfaug.mix({"data": {"cf_ratio": 0.5}}, **{"data.cf_ratio": 0.6})
    with pytest.raises(cfaug.UserError, match=r"^data\.real=\[a,{b:1}\] should be a text"):
        cfaug.mix({"data.real": ["a", {"b": 1}]})


@pytest.mark.parametrize("key", [5, None, ("a", "b")])
def test_names_of_settings_are_texts(key):
    """N38: ``{5: 1}`` was "token recognition error"."""
    with pytest.raises(cfaug.UserError, match="is not the name of a setting: names are texts"):
        cfaug.mix({key: 1})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cfaug.mix("data.cf_ratio=0.6"), "settings are a dictionary"),
        (lambda: cfaug.open_source(None), "None is invalid: it should be the name of a source"),
        (lambda: cfaug.evaluate(None), "None is invalid: it should be a run or a checkpoint"),
        (lambda: cfaug.evaluate("zoo:clip-0", weights="zoo:clip-1"), "already gives weights"),
        (lambda: cfaug.evaluate("zoo:clip-0", dry_run=True), "is for the command line"),
        (
            lambda: cfaug.evaluate("zoo:clip-0", benchmark="retrieval"),
            "needs benchmark.data=FOLDER",
        ),
        (lambda: cfaug.compare(None), "None is invalid: name an experiment"),
        (lambda: cfaug.compare(""), "'' is invalid: name an experiment"),
        (lambda: cfaug.compare([]), "name an experiment"),
        (lambda: cfaug.compare(["a", "b"]), "holds no run"),
        (lambda: cfaug.compare("a", name="b"), "already gives name"),
        (lambda: cfaug.read_run(None), "None is invalid: it should be the folder of a run"),
        # N20: a null byte ended in a traceback.
        (lambda: cfaug.open_source("a\0b"), "it should be the name of a source"),
        (lambda: cfaug.open_source("\ud800"), "it should be the name of a source"),
        (lambda: cfaug.mix({"name": ["a", Path("a\0b")]}), "a text has no null byte"),
        (lambda: cfaug.read_run("nowhere"), "nowhere is not a run, RUNS/EXPERIMENT/ARM/seed=N$"),
    ],
)
def test_misuse_is_answered_with_a_sentence(here, call, message):
    with pytest.raises(cfaug.UserError, match=re.escape(message).replace(r"\$", "$")):
        call()


def test_a_folder_above_runs_is_answered_with_the_runs(here):
    (here / "runs/mine/real/seed=1").mkdir(parents=True)
    (here / "runs/mine/real/seed=1/run.json").write_text("{}")
    for folder in ("runs/mine", "runs/mine/real"):
        with pytest.raises(cfaug.UserError, match=r"there are runs/mine/real/seed=1$"):
            cfaug.read_run(folder)


def test_a_dry_run_trains_nothing(here):
    with pytest.raises(cfaug.UserError, match=r"cfaug\.mix draws a mixture"):
        cfaug.fine_tune({**numbers(TINY), "trainer.max_steps": 2}, dry_run=True)
    assert not Path("runs").exists()


@pytest.mark.slow
def test_calls_from_threads_wait_for_each_other(here):
    """Hydra composes one configuration at a time in a process."""
    settings = {**numbers(TINY), "data.cf_ratio": 0.5, "data.size": 40}
    alone = cfaug.mix(settings, seed=3).counts
    with ThreadPoolExecutor(3) as pool:
        counts = list(pool.map(lambda _: cfaug.mix(settings, seed=3).counts, range(3)))
    assert counts == [alone] * 3


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (np.int64(107), "107"), (np.uint8(7), "7"), (np.float32(0.5), "0.5"),
        (np.float64(0.5), "0.5"), (np.bool_(True), "True"), ([np.int32(1), 2], "[1,2]"),
    ],
)  # fmt: skip
def test_numbers_of_numpy_are_written_as_numbers(value, written):
    """N21: seed=np.int64(107) "should be a whole number"."""
    assert write_override("key", value) == f"key={written}"


def test_a_missing_extra_is_named(here, monkeypatch):
    def lack(*_, **__):
        raise ModuleNotFoundError("No module named 'diffusers'", name="diffusers")

    monkeypatch.setattr("cfaug.run.generate.make_part", lack)
    with pytest.raises(cfaug.UserError, match=r"pip install 'cfaug\[generate\]'"):
        cfaug.generate_sets(limit=1)


def test_an_installed_package_names_its_own_command(here, monkeypatch):
    monkeypatch.setenv("CFAUG_CALLED_BY", "cfaug")
    with pytest.raises(cfaug.UserError, match="train one with `cfaug train data"):
        cfaug.compare("nothing")


@pytest.mark.slow
def test_what_python_trains_the_command_finds(here, script):
    data = {**numbers(TINY), "data.cf_ratio": 0.5, "trainer.max_steps": 2}
    mixture = cfaug.mix(data, seed=107)
    run = cfaug.fine_tune(data, seed=107, name="mine", arm="half")
    assert run.folder == here / "runs/mine/half/seed=107"
    assert run.record["counts"]["train"] == len(mixture.train)
    weights = (run.folder / "checkpoint/model.safetensors").read_bytes()
    words = [f"{key}={value}" for key, value in data.items()]
    said = stdout_of(script("train"), [*words, "seed=107", "name=mine", "arm=half"])
    assert "already done" in said
    assert script("train")([*words, "seed=107", "name=mine", "arm=again"]) == 0
    assert Path("runs/mine/again/seed=107/checkpoint/model.safetensors").read_bytes() == weights
    results = cfaug.evaluate(run, benchmark="ood")
    assert results == cfaug.read_run(run.folder).results()
    assert {row.benchmark for row in results} >= {"shapescapes_ood_retrieval"}
    photos = cfaug.open_source("shapescapes:real", numbers(TINY_WORLD))
    assert len(photos) == 80


def text_files(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.mark.slow
def test_a_run_stays_that_run_in_another_working_directory(here, script, monkeypatch):
    """N7: results() was empty after os.chdir, as the folder of a run was relative.

    What is written holds no absolute path, and is what the command writes.
    """
    data = {**numbers(TINY), "data.cf_ratio": 0, "trainer.max_steps": 0}
    trained = cfaug.fine_tune(data, seed=1, name="e", arm="a")
    read = cfaug.read_run("runs/e/a/seed=1")
    shutil.copytree("runs", "by_command")
    asked = {"benchmark.only": ["shapescapes_ood_retrieval"]}
    photos = cfaug.open_source("shapescapes:real", numbers(TINY_WORLD))
    mixture = cfaug.mix(data, seed=1)
    folder = cfaug.generate_sets({"stage": "captions", **GENERATED})
    assert folder == here / "made"
    results = cfaug.evaluate(read, asked, benchmark="ood")
    words = ["benchmark=ood", "benchmark.only=[shapescapes_ood_retrieval]"]
    assert script("evaluate")(["runs=[by_command/e/a/seed=1]", *words]) == 0
    assert text_files(here / "runs") == text_files(here / "by_command")
    assert not any(str(here).encode() in text for text in text_files(here / "runs").values())
    monkeypatch.chdir("/")
    assert trained.results() == read.results() == results != []
    assert trained.folder == read.folder == here / "runs/e/a/seed=1"
    assert photos.read_image(-1)
    assert mixture.sources[0].read_image(0)
    assert cfaug.evaluate(trained, {**asked, "paths.shards": here / "shards"}, benchmark="ood")


@pytest.mark.slow
def test_a_checkpoint_is_asked(here):
    settings = {**numbers(TINY_WORLD), "benchmark.only": ["shapescapes_ood_retrieval"]}
    results = cfaug.evaluate("zoo:clip-0", settings, benchmark="ood")
    assert {row.benchmark for row in results} == {"shapescapes_ood_retrieval"}


def quickstart() -> str:
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return code


def test_the_quickstart_is_short():
    assert len(quickstart().splitlines()) < 30


@pytest.mark.slow
def test_the_quickstart_runs(here):
    code = quickstart().replace(
        '"trainer.max_steps": 60, "data.size": 600', '"trainer.max_steps": 2'
    )
    assert code != quickstart()
    tiny = f"short = {{**short, **{numbers(TINY)}}}\n"
    before, rest = code.split("photos =", 1)
    world = numbers(TINY_WORLD)
    rest = rest.replace('"shapescapes:real"', f'"shapescapes:real", {world}')
    exec(compile(before + tiny + "photos =" + rest, str(PAGE), "exec"), {})
    assert (Path("runs/quick/report.html")).is_file()
    Path("runs/quick/ratio-0,wise_ft=0/seed=107").mkdir(
        parents=True
    )  # no run, as wise_ft=0 leaves it
    labels = {"comparison.labels": {"ratio-0": "photos alone", "cf_ratio=0": "another"}}
    again = cfaug.compare("quick", labels, baseline="photos alone", quiet=True)
    assert "photos alone" in str(again)


def test_an_image_of_a_source(here):
    photos = cfaug.open_source("shapescapes:real", numbers(TINY_WORLD))
    image = photos.image(-1)
    assert (image.mode, image.size) == ("RGB", (32, 32))
    with pytest.raises(IndexError, match="out of range"):
        photos.image(len(photos))


def test_settings_of_ones_own_folder(here, tmp_path):
    experiments = tmp_path / "own/experiment"
    experiments.mkdir(parents=True)
    (experiments / "mine.yaml").write_text(
        "# @package _global_\nname: mine\narms:\n  small: {data: {cf_ratio: 0, size: 40}}\n"
    )
    asked = {**numbers(TINY), "experiment": "mine/small"}
    assert cfaug.mix(asked, config_dir=experiments.parent).counts["train"] == 32
    with pytest.raises(cfaug.UserError, match="config_dir nowhere: there is no such folder"):
        cfaug.mix(asked, config_dir="nowhere")


@pytest.mark.slow
def test_quiet_prints_nothing_unless_it_fails(here, capfd):
    settings = {**numbers(TINY), "data.cf_ratio": 0.5, "data.size": 40}
    cfaug.mix(settings, quiet=True)
    assert capfd.readouterr() == ("", "")
    with pytest.raises(cfaug.UserError, match="no finished run in"):
        cfaug.compare("nothing", quiet=True)


def test_settings_are_arrays_too_and_no_sets():
    assert write_override("a", np.array(["x", "y z"])) == 'a=[x,"y z"]'
    assert write_override("a", {"lr=1": np.bool_(True)}) == "a={lr\\=1:True}"
    with pytest.raises(cfaug.UserError, match=r"\{'x'\} is a set: a setting is a text, a number"):
        write_override("a", {"x"})


def test_fine_tune_trains_in_a_worker_of_its_engine(here, monkeypatch):
    def run(engine, make_worker, jobs, *_):
        yield from ((job, 1) for job in jobs)

    monkeypatch.setattr(RayEngine, "run", run)
    with pytest.raises(cfaug.UserError, match="the run failed"):
        cfaug.fine_tune({**numbers(TINY), "data.size": 40, "engine": "ray"})
    assert not list(Path("runs").glob("*"))


def test_a_table_and_annotation_are_the_commands(here):
    file = cfaug.table("edit_quality", {"table.partial": True}, quiet=True)
    assert file == here / "runs/tables/edit_quality.csv"
    assert file.read_text().startswith("part,")
    with pytest.raises(cfaug.UserError, match="lacks"):
        cfaug.table("wise_ft", {"table.experiment": "e"})
    with pytest.raises(cfaug.UserError, match="already gives table"):
        cfaug.table("wise_ft", table="wise_ft")
    world = {key.removeprefix("data."): value for key, value in numbers(TINY_WORLD).items()}
    asked = {"pairs": "shapescapes:ood_pairs", "annotate.out": "page.html", **world}
    assert cfaug.annotate("export", asked, quiet=True) == [here / "page.html"]
    with pytest.raises(cfaug.UserError, match="weights"):
        cfaug.annotate("export", asked, weights="zoo:clip-0")
