"""``make gpu`` on machines with no, one and two GPUs; its records, limits and comparisons."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from argparse import Namespace
from contextlib import suppress
from pathlib import Path

import pytest

import zoo
from cfaug.planning.training import TrainSettings
from cfaug.run.evaluate_settings import EvaluateSettings
from cfaug.run.generate_settings import GenerateSettings
from cfaug.settings.arguments import read
from cfaug.settings.compose import compose_jobs
from tests.test_benchmarks import commands
from tools import gpu, gpu_steps
from tools.gpu_steps import Machine, NotRunError, Step, StepError, Workplace

ROOT = Path(__file__).parents[1]
NONE, ONE, TWO = (
    Machine(names, f"{len(names)} GPUs") for names in ((), ("Tiny",), ("Tiny", "Tiny"))
)


@pytest.fixture
def workplace(tmp_path):
    def make(machine=NONE, seconds=60.0):
        return Workplace(tmp_path, machine, time.monotonic() + seconds, Namespace())

    return make


def test_every_script_is_measured_or_left_out_with_a_reason():
    assert not gpu_steps.BENCHMARKS.keys() & gpu_steps.ON_THE_PROCESSOR.keys()
    assert gpu_steps.BENCHMARKS.keys() | gpu_steps.ON_THE_PROCESSOR.keys() == commands()


@pytest.mark.parametrize("machine", [NONE, ONE, TWO])
def test_the_plan_names_every_step_and_what_it_lacks(monkeypatch, capsys, machine):
    monkeypatch.setattr(gpu, "probe", lambda: machine)
    assert gpu.main(["--plan"]) == 0
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines() if "  " in line] == [
        step.name for step in gpu_steps.list_steps()
    ]
    assert ("There is no GPU" in said) == (machine is NONE)
    assert re.findall(r"(?m)^(\S+) .*not run", said) == (["train-two"] if machine is ONE else [])


class Steps:
    """Steps that note their names when they run, and end as ``ends`` says."""

    def __init__(self, monkeypatch, folder):
        self.ran, self.ends = [], {}
        self.folder, self.machine, self.code = folder, ONE, "code"
        monkeypatch.setattr(gpu, "hash_code", lambda: self.code)
        monkeypatch.setattr(gpu, "probe", lambda: self.machine)
        monkeypatch.setattr(gpu, "list_steps", lambda: [*map(self.step, ("a", "b", "c", "d"))])

    def step(self, name):
        def work(at):
            self.ran.append(name)
            if name in self.ends:
                raise self.ends[name]
            return f"{name} is fine"

        return Step(name, "", work, 60, devices=2 if name == "d" else 1)

    def main(self, *words):
        self.ran.clear()
        return gpu.main(["--out", str(self.folder), *words])


@pytest.fixture
def steps(monkeypatch, tmp_path):
    return Steps(monkeypatch, tmp_path)


def test_a_failed_step_is_named_and_the_others_run(steps, capsys):
    steps.ends = {"a": StepError("other bytes"), "b": NotRunError("hydra is missing: pip")}
    assert steps.main() == 1
    assert steps.ran == ["a", "b", "c"]
    said = capsys.readouterr().out
    assert "a: failed" in said
    assert "  other bytes" in said
    assert "failed: a\nnot run: b, d\n" in said
    block = (steps.folder / "RESULTS-block.md").read_text()
    assert block.startswith("## Tiny\n")
    assert re.findall(r"(?m)^\| (\w+) \| ([\w ]+) \| \d+ \| (.*) \|$", block) == [
        ("a", "failed", "other bytes"), ("b", "not run", "hydra is missing: pip"),
        ("c", "done", "c is fine"), ("d", "not run", "needs 2 GPUs"),
    ]  # fmt: skip


def test_the_same_command_runs_only_what_is_not_done(steps, capsys):
    steps.ends = {"a": StepError("x"), "b": NotRunError("y")}
    steps.main()
    steps.ends = {}
    assert steps.main() == 0
    assert steps.ran == ["a", "b"]
    assert steps.main() == 0
    assert steps.ran == []
    assert "c is fine" in (steps.folder / "RESULTS-block.md").read_text()
    (steps.folder / "c.json").write_text("{")
    steps.main("c")
    assert steps.ran == ["c"]
    assert "c: done" in capsys.readouterr().out


def test_another_machine_other_data_and_other_code_are_not_done(steps, tmp_path):
    steps.main()
    steps.main("--photos", str(tmp_path))
    assert steps.ran == ["a", "b", "c"]
    steps.machine = TWO
    steps.main()
    assert steps.ran == ["a", "b", "c", "d"]
    steps.code = "other"
    steps.main()
    assert steps.ran == ["a", "b", "c", "d"]


def test_the_code_of_the_steps_has_a_hash(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "ROOT", tmp_path)
    hashes = [gpu.hash_code()]
    for file, text in (("cfaug/x.py", "1"), ("conf/x.yaml", "1"), ("conf/x.yaml", "2")):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
        hashes.append(gpu.hash_code())
    assert len(set(hashes)) == 4
    (tmp_path / "README.md").write_text("1")
    assert gpu.hash_code() == hashes[-1]


def test_steps_for_which_there_is_no_time_are_named(steps, capsys):
    assert steps.main("--minutes", "0") == 1
    assert steps.ran == []
    assert "left: a, b, c; the same command continues with them" in capsys.readouterr().out
    assert not list(steps.folder.glob("*.json"))


@pytest.mark.slow
def test_a_command_beyond_its_time_is_ended_with_its_children(workplace):
    at = workplace(seconds=5)  # a busy machine starts Python slowly
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)"
    )
    with pytest.raises(TimeoutError):
        at.run("-c", code)
    child = int((at.folder / "stdout.txt").read_text())
    until = time.monotonic() + 60
    while os.path.exists(f"/proc/{child}/cmdline") and time.monotonic() < until:
        if not Path(f"/proc/{child}/cmdline").read_bytes():  # a zombie
            return
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{child}")


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        ("import nothing_like_it.at_all", NotRunError, "nothing_like_it is missing: pip install"),
        ("raise SystemExit('error: diffusers is missing, which this command needs: pip')",
         NotRunError, "diffusers is missing"),
        ("import cfaug.nothing_like_it", StepError, "exit code 1: ModuleNotFoundError"),
        ("raise ValueError('7 apples')", StepError, "exit code 1: ValueError: 7 apples"),
        ("import os; os.kill(os.getpid(), 9)", StepError, "exit code -9: no message"),
    ],
)  # fmt: skip
def test_a_missing_library_is_told_from_a_failure(workplace, code, error, said):
    with pytest.raises(error, match=said):
        workplace().run("-c", code)
    assert workplace().run("-c", "print(5)") == "5\n"


def lay_run(folder, content, steps=gpu_steps.STEPS, resumed=17):
    run = folder / "gpu" / "check" / "seed=1"
    (run / "checkpoint").mkdir(parents=True, exist_ok=True)
    rows = [(0, 1), (0, 20), *((1, step) for step in (resumed, steps))]
    text = "".join(f"{attempt},{step}\n" for attempt, step in rows)
    (run / "metrics.csv").write_text("attempt,step\n" + text)
    (run / "checkpoint" / "model.safetensors").write_bytes(content)


@pytest.mark.parametrize(
    ("contents", "changes", "said"),
    [
        ({}, {}, None),
        ({"killed": b"2"}, {}, "two whole runs have the same"),
        ({"killed": b"2", "again": b"3"}, {}, "two whole runs differ as well"),
        ({}, {"resumed": 1}, "began again at step 1"),
        ({}, {"steps": 39}, "ended at .*39"),
    ],
)
def test_a_resumed_run_with_other_bytes_is_found(workplace, monkeypatch, contents, changes, said):
    def run(at, *words, code=0):
        folder = Path(next(w for w in words if w.startswith("paths.runs=")).partition("=")[2])
        assert code == (-9 if words[0] == "-c" else 0)
        lay_run(folder, contents.get(folder.name, b"1"), **changes)

    monkeypatch.setattr(Workplace, "run", run)
    work = gpu_steps.train_and_resume("bf16-mixed")
    if said is None:
        assert work(workplace()) == "40 steps, killed after 20, resumed at step 17: the same bytes"
    else:
        with pytest.raises(StepError, match=said):
            work(workplace())


@pytest.mark.parametrize(("value", "wrong"), [(0.505, False), (0.53, True), (float("nan"), True)])
def test_a_number_of_the_gpu_that_is_not_the_processors_is_named(
    workplace, monkeypatch, value, wrong
):
    def run(at, *words):
        device, runs = (
            next(w.partition("=")[2] for w in words if w.startswith(key))
            for key in ("device=", "paths.runs=")
        )
        Path(runs).mkdir(parents=True)
        line = {"benchmark": "x", "metric": "acc", "value": value if device == "cuda" else 0.5}
        (Path(runs) / "results.jsonl").write_text(json.dumps(line) + "\n")

    monkeypatch.setattr(Workplace, "run", run)
    work = gpu_steps.evaluate("benchmark=x")
    if wrong:
        with pytest.raises(StepError, match=r"x acc: .*, 0\.5 on the processor"):
            work(workplace(ONE))
    else:
        assert work(workplace(ONE)) == "1 numbers, at most 0.005 from the processor's"


def test_photos_need_photos_pairs_and_weights(tmp_path, monkeypatch):
    def run(at, *words):
        raise StepError("no route to the Hub")

    monkeypatch.setattr(Workplace, "run", run)
    options = Namespace(photos=None, pairs=None, weights="org/clip", size=10)
    at = Workplace(tmp_path, NONE, 0.0, options)
    with pytest.raises(NotRunError, match=r"give --photos FOLDER .* and --pairs FOLDER"):
        gpu_steps.compare_on_photos(at)
    options.photos = options.pairs = tmp_path
    with pytest.raises(NotRunError, match=r"org/clip is not on this .*hf download org/clip"):
        gpu_steps.compare_on_photos(at)


class ParsedError(Exception):
    pass


@pytest.mark.slow
def test_the_commands_for_a_gpu_compose(tmp_path, monkeypatch):
    """Also where there is none: what they run on is asked later."""
    asked = []

    def run(at, script, *words, code=0):
        if script == "-m":
            known = zoo.COMMANDS if words[0] == "zoo" else ("doctor",)
            assert words[1] in known
        if script.endswith(".py"):
            asked.append((Path(script).stem, words))
            if at.folder.name != "photos":
                raise ParsedError

    monkeypatch.setattr(Workplace, "run", run)
    options = Namespace(photos=tmp_path, pairs=tmp_path, weights="org/clip", size=10)
    for step in gpu_steps.list_steps():
        if not step.name.startswith("benchmark-"):
            with suppress(ParsedError, FileNotFoundError):  # there is no table
                step.work(Workplace(tmp_path / step.name, TWO, 0.0, options))
    assert [name for name, _ in asked] == [
        *["train"] * 3, *["generate"] * 3, *["evaluate"] * 2, "train", "evaluate",
    ]  # fmt: skip
    kinds = {"train": TrainSettings, "evaluate": EvaluateSettings, "generate": GenerateSettings}
    for name, words in asked:
        line = read([re.sub(r"^seed=107,.*", "seed=107", word) for word in words])
        compose_jobs(name, line.overrides, multirun=line.multirun, command=kinds[name])


@pytest.mark.slow
def test_the_command_checks_training_here(tmp_path):
    words = f"devices train-bf16 --out {tmp_path}"
    command = ["make", "gpu", f"BIN={Path(sys.executable).parent}", f"ARGS={words}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed after 20, resumed at step 17: the same bytes" in done.stdout
    block = (tmp_path / "RESULTS-block.md").read_text()
    assert "| train-bf16 | done |" in block
