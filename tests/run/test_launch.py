"""What a command answers before settings count, and who starts it: SLURM, submitit, torchrun."""

from __future__ import annotations

import csv
import errno
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from functools import reduce
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from cfaug import __main__, __version__
from cfaug.core.errors import UserError
from cfaug.core.processes import SPINS, use_threads, wait_briefly
from cfaug.run.launch import report
from tests.run.conftest import (
    WORLD,
    compose,
    failing_at,
    files,
    generation,
    refusal,
    stderr_of,
    stdout_of,
)
from tests.scripts import ROOT


@pytest.mark.parametrize("name", ["train", "generate", "evaluate"])
def test_the_version_is_this_packages(script, name):
    said = stdout_of(script(name), ["--version"])
    assert said.startswith(f"cfaug {__version__}\n")
    assert "torch " in said
    assert "Hydra" not in said


def test_the_package_says_what_its_commands_are():
    assert {"train", "generate", "evaluate"} < set(stdout_of(__main__.main, []).split())
    assert stdout_of(__main__.main, ["--version"]).startswith(f"cfaug {__version__}\n")
    assert "no command is called 'trian'" in refusal(__main__.main, ["trian"])


def test_a_sweep_for_slurm_where_there_is_none_names_other_ways(script, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    said = refusal(script("train"), ["-m", "hydra/launcher=submitit_slurm", "seed=1,2"])
    assert said.count("\n") == 1
    assert "no sbatch on this machine" in said
    assert "submitit_local" in said


def test_an_error_repeats_a_setting_as_it_was_typed(script):
    said = refusal(script("train"), ["weights=a,b"])
    assert said.endswith(
        "error: weights=a,b names several values, a sweep: add --multirun (-m); weights=[a,b] is a "
        "list, and 'weights=\"a,b\"' one text\n"
    )
    said = refusal(script("train"), ["model.weights=a,b"])
    assert "error: model.weights=a,b names several values" in said
    assert "; model.weights=[a,b] is a list" in said
    assert "data.mixture=mine: choose from " in refusal(script("train"), ["data.mixture=mine"])


def test_a_launcher_that_is_not_there_is_a_sentence(script):
    said = refusal(script("train"), ["-m", "hydra/launcher=banana", "seed=1,2"])
    assert "hydra/launcher/banana" in said
    assert "submitit_local" in said


@pytest.mark.parametrize("number", [errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG])
def test_a_path_that_cannot_be_is_the_users_mistake(number):
    assert "/a/file" in refusal(report, OSError(number, "impossible", "/a/file"))


@pytest.mark.slow
def test_evaluate_takes_one_run_as_it_takes_a_list(place):
    assert place.train("data.cf_ratio=0", "trainer.max_steps=0", "arm=cf_ratio=0") == 0
    folder = place.folder("cf_ratio=0", 0)
    for typed in (f"runs={folder}", f"runs=[{folder}]"):
        said = stdout_of(place.evaluate, typed, "benchmark=heldout")
        assert "validation_retrieval of cf_ratio=0" in said
    assert "seed=9" in refusal(place.evaluate, f"runs={folder.with_name('seed=9')}")


# Hydra's submitit launcher, with the executor that needs no cluster.


@pytest.mark.slow
def test_parts_through_submitit_make_the_bytes_of_one_run(
    tmp_path, generate, script, shards, pipeline
):
    words = generation(tmp_path / "launched", shards, pipeline)
    launcher = [
        "hydra/launcher=submitit_local", f"hydra.launcher.submitit_folder={tmp_path / 'submitit'}"
    ]  # fmt: skip
    assert script("generate")(["-m", *launcher, "part=0,1", "parts=2", *words]) == 0
    generate()
    made = files(tmp_path / "launched")
    assert {"card.json", "gallery.html", "00002.tar"} <= set(made)
    assert made == files(tmp_path / "out")


@pytest.mark.slow
def test_a_launcher_gets_the_mixture_that_a_setting_chose(place, tmp_path):
    launcher = [
        "hydra/launcher=submitit_local", f"hydra.launcher.submitit_folder={tmp_path / 'submitit'}"
    ]  # fmt: skip
    assert place.train("-m", *launcher, "data.negatives=image", "seed=1,2") == 0
    for seed in (1, 2):
        identity = place.record(seed=seed)["identity"]
        assert identity["data.negatives"] == "image"
        assert identity["data._target_"] == "cfaug.NegativesData"


@pytest.mark.slow
def test_a_launcher_without_a_sweep_and_a_mistyped_key_are_told_before_anything_starts(place):
    assert "--multirun" in refusal(place.train, "hydra/launcher=submitit_local")
    said = refusal(place.train, "-m", "hydra/launcher=submitit_local", "seed=1,2", "sed=3")
    assert "did you mean seed?" in said
    assert not place.root.exists()


# What a task of each SLURM script runs; ``make slurm-test`` proves them under SLURM itself.


# Not "#!" and Python's path: that may be long and have spaces.
TOLD = f"""#!/bin/sh
exec "{sys.executable}" -c 'import json, sys; print(json.dumps(sys.argv[1:]))' "$@"
"""


@pytest.mark.parametrize(
    ("script", "command"), [("train", ["train.py", "--multirun"]), ("generate", ["generate.py"])]
)
def test_a_task_makes_its_part_with_the_words_as_given(tmp_path, script, command):
    for name, content in {"srun": '#!/bin/sh\nexec "$@"\n', "told": TOLD}.items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    words = ["arm=with spaces", "data.source=a b.jsonl", "seed=1,2"]
    environment = {
        **os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": str(tmp_path / "told"),
        "SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "7",
    }  # fmt: skip
    said = subprocess.run(
        ["bash", ROOT / "sweeps" / f"{script}.sbatch", *words],
        env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert json.loads(said) == [*command, "part=3", "parts=7", *words]


def test_a_ray_cluster_of_a_slurm_job_runs_the_command(tmp_path):
    """``srun`` and ``scontrol`` are stand-ins: this machine has no SLURM."""
    for name, said in (("scontrol", "echo node1; echo node2"), ("srun", 'printf "%s\\n" "$@"')):
        (tmp_path / name).write_text(f"#!/bin/bash\n{said}\n")
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHON": "python3",
        "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_JOB_NUM_NODES": "2",
    }  # fmt: skip
    words = ["zoo=paper", "data.source=captions.jsonl", "engine.workers=32"]
    printed = subprocess.run(
        ["bash", ROOT / "sweeps/ray.sbatch", "generate.py", *words],
        env=environment, capture_output=True, text=True, check=True,
    ).stdout.split("\n")  # fmt: skip
    start = ["ray", "symmetric-run", "--address", "node1:6379", "--min-nodes", "2", "--"]
    assert printed[: len(start)] == start
    _, script, *typed = printed[len(start) : -1]
    assert (script, typed[:3]) == ("generate.py", words)
    assert compose("generate", *typed)["engine"]["gpus_per_worker"] == 1


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("rayjob.yaml", lambda content: content["spec"]["entrypoint"]),
        ("sky.yaml", lambda content: content["run"]),
    ],
)
def test_files_for_kubernetes_and_clouds_hold_commands_that_compose(file, command):
    content = yaml.safe_load((ROOT / "sweeps/clusters" / file).read_text(encoding="utf-8"))
    ranks = {"$SKYPILOT_JOB_RANK": "3", "$SKYPILOT_NUM_JOBS": "8"}
    words = [
        reduce(lambda text, name: text.replace(name, ranks[name]), ranks, word)
        for word in shlex.split(command(content))
    ]
    assert words[:2] in (["python", "/cfaug/generate.py"], ["python", "generate.py"])
    settings = compose("generate", *words[2:])
    assert settings["paths"]["shards"] == "/shared/shards/pairs"
    if file == "rayjob.yaml":
        cluster = content["spec"]["rayClusterSpec"]
        [workers] = cluster["workerGroupSpecs"]
        [container] = workers["template"]["spec"]["containers"]
        assert container["image"]
        assert container["volumeMounts"]
        each = int(container["resources"]["limits"]["nvidia.com/gpu"])
        engine = settings["engine"]
        assert engine["workers"] * engine["gpus_per_worker"] == each * workers["replicas"]
    else:
        assert (settings["part"], settings["parts"]) == (3, 8)


def test_threads_hold_for_torch_and_for_processes_to_come():
    use_threads(2)
    assert torch.get_num_threads() == 2
    assert os.environ["OMP_NUM_THREADS"] == "2"
    use_threads(None)
    assert torch.get_num_threads() == 2
    with pytest.raises(UserError, match=r"threads=0 should .* or null \(all cores\)"):
        use_threads(0)


def test_threads_soon_sleep_when_they_wait_unless_the_user_says_otherwise(monkeypatch):
    for given, spins in (
        ({}, SPINS), ({"OMP_WAIT_POLICY": "ACTIVE"}, None), ({"GOMP_SPINCOUNT": "5"}, "5"),
    ):  # fmt: skip
        for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
            monkeypatch.delenv(name, raising=False)
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        wait_briefly()
        assert os.environ.get("GOMP_SPINCOUNT") == spins
    assert int(SPINS) < 10_000


@pytest.mark.slow
def test_a_run_that_goes_on_with_other_threads_says_so(place, monkeypatch):
    words = ["data.cf_ratio=0", "seed=1", "trainer.save_every_steps=1"]
    with failing_at(2):
        assert place.train(*words) == 1
    monkeypatch.setattr("cfaug.run.run_folder.threads", lambda: 9)
    said = "resumed with 9 threads, and began with 1: the last bits may differ; threads=1"
    assert said in stderr_of(place.train, *words)


@pytest.mark.slow
def test_a_run_is_recorded_with_its_threads_and_is_the_same_run(place):
    words = ["data.cf_ratio=0", "seed=1", "trainer.max_steps=1"]
    assert place.train(*words, "threads=2") == 0
    assert place.record(seed=1)["threads"] == 2
    assert "already done" in stdout_of(place.train, *words, "threads=1")
    assert "threads=0" in refusal(place.train, *words, "threads=0")
    assert place.train(*words, "threads=1.5") == 2
    assert "threads=0" in refusal(place.evaluate, "name=main", "threads=0")


# ``trainer.devices=2``: train.py starts torchrun, whose two processes train what one trains.


# A gradient that is zero in exact arithmetic is rounding noise in floating point, and Adam with a
# small eps blows it up to a whole step. With this eps a step is linear in it.
WORDS = ["seed=107", "data.cf_ratio=0.6", "optim.eps=0.01", "trainer.accelerator=cpu"]


def run(place, arm):
    folder = place.folder(arm)
    with (folder / "metrics.csv").open() as handle:
        losses = [float(row["train/loss"]) for row in csv.DictReader(handle)]
    return load_file(folder / "checkpoint/model.safetensors"), losses, place.record(arm)


@pytest.mark.slow
def test_two_processes_of_a_command_train_what_one_trains(place, capfd):
    assert place.train(*WORDS, "arm=one") == 0
    assert place.train(*WORDS, "arm=two", "trainer.devices=2") == 0, capfd.readouterr().err
    weights, losses, record = run(place, "one")
    weights_of_two, losses_of_two, record_of_two = run(place, "two")
    assert record_of_two["state"] == "done"
    assert record_of_two["config_hash"] == record["config_hash"]
    [attempt] = record_of_two["attempts"]
    assert (attempt["start_step"], attempt["end_step"]) == (0, 3)
    assert record_of_two["counts"]["seen"] == record["counts"]["seen"] == 3 * 16
    assert weights.keys() == weights_of_two.keys()
    assert (
        max((weights[k].double() - weights_of_two[k].double()).abs().max().item() for k in weights)
        < 1e-6
    )
    assert len(losses_of_two) == 3  # rank 0 alone writes
    assert max(abs(a - b) for a, b in zip(losses, losses_of_two, strict=True)) < 1e-5
    capfd.readouterr()
    assert place.train(*WORDS, "arm=two") == 0
    assert "already done" in capfd.readouterr().out


@pytest.mark.slow
def test_what_a_process_rejects_is_one_sentence_and_exit_code_2(place, capfd):
    assert place.train(*WORDS, "arm=two", "trainer.devices=2", "optim.lr=1e9") == 2
    err = capfd.readouterr().err
    assert "the loss is nan" in err
    assert "Traceback" not in err
    assert "torch/distributed" not in err
    assert err.count("optim.lr=1e+09 is ") == 1  # what is planned is said once
    assert err.count("failed: ") == 1


@pytest.mark.slow
def test_a_scheduler_tells_every_process_and_each_step_is_saved(place):
    """Every process of the job at once, and the command passes it on to torchrun once more."""
    folder = place.root / "main/two/seed=107"
    words = [*WORLD, *WORDS, *place.paths, "arm=two", "trainer.devices=2", "trainer.max_steps=9999"]
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(
        [sys.executable, str(root / "train.py"), *words], stderr=subprocess.PIPE, text=True,
        cwd=place.root.parent, env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
    )  # fmt: skip
    try:
        until = time.monotonic() + 300
        while _lines(folder / "metrics.csv") < 2 and time.monotonic() < until:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGUSR1)
        _, err = process.communicate(timeout=200)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert f"{folder} is saved at step " in err
    assert (folder / "last.ckpt").exists()


def _lines(file) -> int:
    return max(0, file.read_bytes().count(b"\n") - 1) if file.exists() else 0


@pytest.mark.slow
def test_a_job_of_a_plugin_that_is_refused_is_a_sentence(place):
    place.folder().parent.mkdir(parents=True)
    place.folder().touch()
    said = refusal(place.train, "-m", "hydra/sweeper=basic", "seed=107")
    assert "ended with exit code 2; its messages are above" in said
