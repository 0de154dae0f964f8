"""Workers of a Ray cluster: the same bytes, whoever is lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from threading import Event, Timer
from types import SimpleNamespace

import psutil
import pytest

from benchmarks import shards
from cfaug.core.errors import UserError
from cfaug.run import generate, parallel
from cfaug.run.parallel import RayEngine
from tests import skips
from tests.run import ray_tasks
from tests.run.conftest import output_of
from tests.scripts import ROOT

pytestmark = pytest.mark.slow

try:
    import ray
except ModuleNotFoundError:
    ray = None


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """Start a cluster of this machine, which pretends to have two cores and a GPU."""
    if ray is None:
        skips.skip("ray")
    ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, logging_level="ERROR")
    yield
    ray.shutdown()


def answers(engine: RayEngine, make_worker, count: int = 5) -> dict[int, int]:
    return dict(engine.run(make_worker, range(count), "counting", "tasks"))


def test_every_task_is_done_also_with_more_workers_than_the_cluster_has_room_for():
    engine = RayEngine(workers=2, gpus_per_worker=1)
    assert answers(engine, lambda: ray_tasks.square) == {n: n * n for n in range(5)}


def test_a_claim_beyond_the_cluster_is_said(capsys):
    """A worker of more cores than there are waited without a word."""
    remote = SimpleNamespace(options=lambda **_: SimpleNamespace())
    cluster = SimpleNamespace(
        cluster_resources=lambda: {"CPU": 2.0}, nodes=lambda: [], remote=lambda _: remote
    )
    RayEngine(cpus_per_worker=64, gpus_per_worker=0.5)._start(cluster, lambda: len, 0)
    said = capsys.readouterr().err
    assert "engine.cpus_per_worker=64, and the cluster has 2 CPUs now: workers wait" in said
    assert "engine.gpus_per_worker=0.5, and the cluster has 0 GPUs now" in said


def test_workers_start_where_the_path_of_python_has_spaces(tmp_path, monkeypatch):
    """Ray gave up after minutes."""
    python = tmp_path / "a folder; 'x" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert answers(RayEngine(workers=1), lambda: ray_tasks.square, 1) == {0: 0}


def test_a_task_whose_worker_is_lost_is_started_again_but_not_for_ever(tmp_path, capsys):
    lost = partial(ray_tasks.lose_worker, tmp_path, 1)
    assert answers(RayEngine(workers=1), lost) == {n: n * n for n in range(5)}
    assert "Its work is started again" in capsys.readouterr().err
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(UserError, match="one of the tasks lost its worker 2 times, the last time"):
        answers(RayEngine(workers=1, tries=2), partial(ray_tasks.lose_worker, tmp_path, 9))
    assert len(list(tmp_path.iterdir())) == 1 + 2


def test_an_error_of_ours_is_raised_and_not_tried_again(tmp_path):
    with pytest.raises(UserError, match=r"^the folder is full$"):
        answers(RayEngine(workers=1), partial(ray_tasks.refuse, tmp_path))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_worker_has_the_threads_of_this_command(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    names = ["OMP_NUM_THREADS", "TERM"]
    said = dict(RayEngine(workers=1).run(ray_tasks.environment, names, "asking", "names"))
    assert said == {"OMP_NUM_THREADS": "3", "TERM": "dumb"}


@pytest.mark.parametrize(
    ("error", "address", "message"),
    [
        (ConnectionError("no instance"), "auto", r"engine\.address=auto: no Ray cluster answers"),
        (Exception("timed out"), None, r"Ray did not start on this machine \(timed out\)"),
    ],
)
def test_a_cluster_that_does_not_answer_is_a_sentence(monkeypatch, error, address, message):
    def refuse(*_, **__):
        raise error

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(UserError, match=message):
        answers(RayEngine(address=address), lambda: ray_tasks.square)


DRAWN = [
    "recipe=social_oracle", "recipe.image_editor.image_size=16", "recipe.draws.candidates=2",
    "limit=6", "shards.sets_per_shard=2", "shards.batch=2",
]  # fmt: skip
ONE_WORKER = ["engine=ray", "engine.workers=1"]


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file of a folder of shards, apart from its locks."""
    files = [file for file in folder.rglob("*") if file.is_file() and ".work" not in file.parts]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def test_shards_are_those_of_one_process_after_a_lost_worker_and_after_sigterm(
    tmp_path, script, monkeypatch
):
    words = [*DRAWN, f"paths.worlds={tmp_path / 'worlds'}"]
    make = script("generate")
    assert make([*words, f"paths.shards={tmp_path / 'alone'}"]) == 0
    alone = contents(tmp_path / "alone")
    assert len([name for name in alone if name.endswith(".tar")]) == 3

    maker = partial(ray_tasks.shard_maker_that_dies, tmp_path / "marker")
    with monkeypatch.context() as patch:
        patch.setattr(generate, "_shard_maker", maker)
        said = output_of(make, [*words, f"paths.shards={tmp_path / 'lost'}", "engine=ray"])[1]
    assert "a worker was lost" in said
    assert (tmp_path / "marker").exists()
    assert contents(tmp_path / "lost") == alone

    there = tmp_path / "stopped"
    words.append(f"paths.shards={there}")
    command = [sys.executable, "generate.py", *words, *ONE_WORKER]
    child = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    while not list(there.glob("captions/0*.json")):
        assert child.poll() is None, child.stderr.read()
        time.sleep(0.05)
    started = psutil.Process(child.pid).children(recursive=True)
    child.send_signal(signal.SIGTERM)
    assert child.wait(300) == 130
    assert psutil.wait_procs(started, 120)[1] == []  # the workers, and the cluster of the command
    assert make(words) == 0
    assert contents(there) == alone


SIGNALLED = """
import ctypes, os, signal, sys, time
from threading import Timer
import ray
from cfaug.core.processes import interruptible
from cfaug.run.parallel import RayEngine

moment, said = sys.argv[1], []

def forget_handlers():  # as Ray's C++ does
    ctypes.CDLL(None).signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(0.5)

def signalled(function):
    def call(*args, **kwargs):
        forget_handlers()
        # Ray itself forgets them 0.3 s after it began to end, until they are set again.
        timer = Timer(0.8, os.kill, [os.getpid(), signal.SIGTERM])
        timer.start()
        function(*args, **kwargs)
        timer.join()  # where Ray ends before the signal
        said.append("finished")
    return call

setattr(ray, moment, signalled(getattr(ray, moment)))
try:
    with interruptible():
        said += list(RayEngine(workers=1).run(lambda: len, ["ab"], "counting", "words"))
except KeyboardInterrupt:
    print(said, ray.is_initialized())
"""


@pytest.mark.parametrize(
    ("moment", "said"), [("init", "['finished'] False"), ("shutdown", "['finished'] False")]
)
def test_a_signal_while_ray_starts_or_ends_is_an_interruption_once_it_has(moment, said):
    command = [sys.executable, "-c", SIGNALLED, moment]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines()[-1:] == [said], done.stderr


def test_the_simulated_cluster_predicts_a_run_whose_workers_are_killed(tmp_path):
    made = shards.compare_with_kills(tmp_path)
    assert made.kills == len(shards.KILLED_IN)
    assert made.predicted_wall == pytest.approx(made.wall, rel=0.5)
    assert made.lost / 3 < made.predicted_lost < made.lost * 3


def test_a_closed_port_is_refused_at_once_and_a_silent_one_can_be_left(monkeypatch):
    """Ray asked a closed port for 14 minutes, and one Ctrl-C meanwhile waited for its answer."""
    asked, silent = [], Event()
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda *_, **__: (asked.append("init"), silent.wait()))
    monkeypatch.setattr(ray, "shutdown", lambda: asked.append("shutdown"))
    monkeypatch.setattr(parallel, "SECONDS_TO_FINISH", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            answers(RayEngine(address=address), lambda: ray_tasks.square)
    assert asked == ["init"]
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UserError, match=rf"RAY_ADDRESS={address}: no Ray cluster .*refused"):
        answers(RayEngine(), lambda: ray_tasks.square)
    assert asked == ["init", "shutdown"]
    silent.set()


SPEAKING = """
from cfaug.run.parallel import RayEngine
list(RayEngine(workers=1).run(lambda: print, ["run 1", "run 2", "run 3"], "saying", "words"))
"""


def test_every_line_of_a_worker_is_printed_before_ray_ends():
    """Ray took lines that differ in a number for repeats, and lost the last, such as an error."""
    command = [sys.executable, "-c", SPEAKING]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    said = [line.rpartition(") ")[2] for line in done.stdout.splitlines()]
    assert said == ["run 1", "run 2", "run 3"], done.stderr
