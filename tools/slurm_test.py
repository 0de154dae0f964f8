"""Prove the SLURM scripts on one machine: ``make slurm-test``, as root on Debian.

This installs Debian's slurm if it is missing, starts a cluster of this one machine in a temporary
folder, submits a sweep (``sweeps/train.sbatch``) and a generation (``sweeps/generate.sbatch``),
kills a task of each, submits both again, and compares every byte with a run without SLURM. It does
the same with the sweep through Hydra's submitit launcher. It stops the processes that it started
and removes the files that it wrote.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 1800
"""The timeout, in seconds, for anything that should happen."""

CONFIGURATION = """
ClusterName=cfaug
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,bf_interval=2
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
KillWait=5
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

TASK = ["--cpus-per-task=1", "--gpus-per-task=0", "--array=0-1"]
"""The resources of this machine, in place of the scripts' own requests."""

TRAIN = [
    "sweep={folder}/sweep.yaml", "trainer.max_steps=8", "trainer.save_every_steps=2",
    "trainer.progress=false", "data.batch_size=16", "data.world.seed=5",
    "data.world.real_scenes=80", "data.world.counterfactual_pairs=40",
    "paths.shards={folder}/world",
]  # fmt: skip

SWEEP = """
program: train.py
method: grid
parameters:
  name: {value: slurm}
  data.cf_ratio: {values: [0, 0.6]}
  seed: {values: [107, 108]}
"""

GENERATE = [
    "zoo=shapescapes", "data.source=shapescapes:counterfactual",
    "limit=4", "shards.sets_per_shard=2", "recipe.draws.candidates=2",
    "paths.worlds={folder}/world",
]  # fmt: skip


def run(*words: str, **options: object) -> str:
    """Run a command; return its output, or stop with it if it fails."""
    done = subprocess.run(  # type: ignore[call-overload]
        words, capture_output=True, encoding="utf-8", cwd=ROOT, **options
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return str(done.stdout)


def wait(what: str, holds: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    until = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > until:
            raise SystemExit(f"not within {PATIENCE} s: {what}")
        time.sleep(0.2)


def install() -> None:
    """Install slurm and munge with Debian's package manager, if they are missing."""
    if all(shutil.which(program) for program in ("slurmctld", "slurmd", "sbatch", "munged")):
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run("apt-get", "update", env=environment)
    packages = ("slurm-wlm", "munge")
    run("apt-get", "install", "-y", "--no-install-recommends", *packages, env=environment)


def free_ports(count: int) -> list[int]:
    """Return ports that are not in use."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [int(sock.getsockname()[1]) for sock in sockets]


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[None]:
    """Run a cluster of this machine, with all its files in ``folder``."""
    for name in ("munge", "state", "spool"):
        (folder / name).mkdir(mode=0o755)
    key = folder / "munge" / "key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    ports = free_ports(2)
    file = folder / "slurm.conf"
    file.write_text(
        CONFIGURATION.format(
            host=socket.gethostname().split(".")[0], folder=folder, cores=os.cpu_count(),
            controller_port=ports[0], node_port=ports[1],
        ),
        encoding="utf-8",
    )  # fmt: skip
    os.environ["SLURM_CONF"] = str(file)
    munge = [
        "munged", "--foreground", "--force", f"--key-file={key}",
        f"--socket={folder}/munge/socket", f"--pid-file={folder}/munge/pid",
        f"--log-file={folder}/munge/log", f"--seed-file={folder}/munge/seed",
    ]  # fmt: skip
    daemons = [munge, ["slurmctld", "-D", "-f", str(file)], ["slurmd", "-D", "-f", str(file)]]
    started: list[subprocess.Popen[bytes]] = []
    try:
        with (folder / "daemons.log").open("wb") as log:
            for command in daemons:
                started.append(subprocess.Popen(command, stdout=log, stderr=log))
                if command is munge:
                    wait("munge's socket", (folder / "munge" / "socket").exists)
        wait("an idle node", node_is_idle)
        yield
    finally:
        subprocess.run(["scancel", "--user=root"], capture_output=True, check=False)
        for daemon in reversed(started):
            daemon.terminate()
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()


def node_is_idle() -> bool:
    """Say whether the cluster is ready to start a job."""
    words = ["sinfo", "--noheader", "--format=%T"]
    result = subprocess.run(words, capture_output=True, encoding="utf-8", check=False)
    return result.stdout.strip() == "idle"


def submit(script: str, words: list[str], logs: Path) -> str:
    """Submit an array and return its number."""
    output = f"--output={logs}/%x-%A_%a.log"
    job = run("sbatch", "--parsable", *TASK, output, f"sweeps/{script}", *words).strip()
    print(f"sbatch {script}: job {job}", flush=True)
    return job


def states(job: str) -> dict[str, str]:
    """Return the state of each task of an array."""
    said = run("scontrol", "--oneliner", "show", "job", job)
    by_task = {}
    for line in said.splitlines():
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        by_task[fields["ArrayTaskId"]] = fields["JobState"]
    return by_task


def finished(job: str) -> dict[str, str]:
    """Wait until all tasks of an array have ended, and return the state of each."""
    alive = {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING"}
    wait(f"the end of job {job}", lambda: not alive & set(states(job).values()))
    return states(job)


def process_of(*words: str) -> int | None:
    """Return the id of the Python process with these words in its command line."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            command = (entry / "cmdline").read_bytes().split(b"\0")
            if b"python" in command[0] and {word.encode() for word in words} <= set(command):
                return int(entry.name)
    return None


def cut(job: str, begun: Callable[[], bool], kill: Callable[[], None]) -> None:
    """Kill a task once it has begun its work, and check that the job did not succeed."""
    wait(f"job {job} at work", begun)
    kill()
    ended = finished(job)
    print(f"  killed: {ended}", flush=True)
    if set(ended.values()) == {"COMPLETED"}:
        raise SystemExit(f"job {job} was killed and yet completed")


def content(folder: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Return the sha256 of every file with one of these endings, by its path."""
    files = (file for file in folder.rglob("*") if file.name.endswith(names) and file.is_file())
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


def compare(what: str, local: dict[str, str], other: dict[str, str]) -> None:
    """Compare the files of two folders."""
    if not local or local != other:
        raise SystemExit(f"{what}: other bytes than without SLURM\n{local}\n{other}")
    print(f"{what}: {len(local)} files, the same bytes as without SLURM", flush=True)


def hashes(runs: Path) -> dict[str, str]:
    """Return every run's config hash; all must be done."""
    by_run = {}
    for file in runs.rglob("run.json"):
        record = json.loads(file.read_text(encoding="utf-8"))
        if record["state"] != "done":
            raise SystemExit(f"{file} is {record['state']}")
        by_run[str(file.relative_to(runs))] = record["config_hash"]
    return by_run


def prove_training(folder: Path, python: str) -> None:
    """Test a sweep: killed midway, submitted again, and through submitit."""
    (folder / "sweep.yaml").write_text(SWEEP, encoding="utf-8")
    words = [word.format(folder=folder) for word in TRAIN]
    local, slurm = folder / "local", folder / "slurm"
    run(python, "train.py", "--multirun", *words, f"paths.runs={local}")
    print("the sweep without SLURM: done", flush=True)

    mine = [*words, f"paths.runs={slurm}"]
    job = submit("train.sbatch", mine, folder)
    cut(
        job,
        lambda: any(file.stat().st_size for file in slurm.rglob("last.ckpt")),
        lambda: print(run("scancel", "--signal=KILL", f"{job}_0"), end=""),
    )
    ended = finished(submit("train.sbatch", mine, folder))
    print(f"  submitted again: {ended}", flush=True)
    attempts = [
        json.loads(f.read_text(encoding="utf-8"))["attempts"] for f in slurm.rglob("run.json")
    ]
    if max(map(len, attempts)) < 2:
        raise SystemExit("no run went on from a checkpoint")
    compare("training", content(local, (".safetensors",)), content(slurm, (".safetensors",)))
    compare("config hashes", hashes(local), hashes(slurm))

    launched = folder / "submitit"
    launcher = ["hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=60"]
    run(python, "train.py", "--multirun", *words, *launcher, f"paths.runs={launched}")
    compare("submitit", content(local, (".safetensors",)), content(launched, (".safetensors",)))
    compare("config hashes", hashes(local), hashes(launched))


def prove_generation(folder: Path, python: str) -> None:
    """Test a generation: one part's process is killed, and the job submitted again."""
    words = [word.format(folder=folder) for word in GENERATE]
    local, slurm = folder / "shards-local", folder / "shards-slurm"
    for part in (0, 1):
        run(python, "generate.py", f"part={part}", "parts=2", *words, f"paths.shards={local}")
    print("the generation without SLURM: done", flush=True)

    mine = [*words, f"paths.shards={slurm}"]
    job = submit("generate.sbatch", mine, folder)

    def first_part() -> int | None:
        return process_of("part=0", mine[-1])

    def kill() -> None:
        number = first_part()
        if number is None:
            raise SystemExit("part 0 ended before it could be killed")
        os.kill(number, signal.SIGKILL)

    cut(job, lambda: any(slurm.rglob("*.jsonl")) and first_part() is not None, kill)
    ended = finished(submit("generate.sbatch", mine, folder))
    print(f"  submitted again: {ended}", flush=True)
    compare("generation", content(local, (".tar",)), content(slurm, (".tar",)))


def main() -> None:
    """Run both tests, or those named on the command line, and clean up."""
    proofs = {"training": prove_training, "generation": prove_generation}
    names = sys.argv[1:] or list(proofs)
    if not set(names) <= set(proofs):
        raise SystemExit(f"{' '.join(names)}: choose among {', '.join(proofs)}")
    if os.geteuid() != 0:
        raise SystemExit("make slurm-test installs packages and starts daemons: run it as root")
    install()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))
    # One thread on any machine, since the last bit on a CPU depends on the number.
    os.environ.update(PYTHON=sys.executable, OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1")
    folder = Path(tempfile.mkdtemp(prefix="cfaug-slurm-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        with cluster(folder):
            print(run("sinfo"), end="", flush=True)
            for name in names:
                proofs[name](folder, sys.executable)
    except BaseException:
        for file in sorted(folder.glob("*.log")):
            print(f"--- {file.name}\n{file.read_text(encoding='utf-8')[-3000:]}", file=sys.stderr)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("SLURM: proved")


if __name__ == "__main__":
    main()
