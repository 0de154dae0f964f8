"""The steps of ``make gpu``: commands that run elsewhere than on a processor, and their checks."""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STEPS = 40
"""Training steps of a check; the run that is killed is killed after half of them."""
CLOSE = 0.02
"""The largest difference between a number of the GPU and the processor's, of 1 or relatively."""

MULTIPLY = """
import sys, torch
torch.manual_seed(0)
a, b = torch.randn(2, 256, 256, dtype=torch.float64)
for device in sys.argv[1:]:
    for dtype, most in ((torch.float32, 1e-3), (torch.bfloat16, .05), (torch.float16, .01)):
        error = ((a.to(device, dtype) @ b.to(device, dtype)).cpu().double() - a @ b).abs().max()
        assert error < most * 16, f"a matrix product of {device} in {dtype} is wrong by {error}"
"""

KILLED = """
import sys
from pathlib import Path
from cfaug.run.train import main
from tests.children import work_until_line
work_until_line(Path(sys.argv[1]), int(sys.argv[2]), main, (sys.argv[3:],), {})
"""

MISSING = re.compile(
    r"No module named '([\w.]+)'|(?m:^|error: )([\w.]+) is missing(?:, which|: pip)"
)
OURS = ("cfaug", "tests", "benchmarks", "tools")

TRAIN = [
    "name=gpu", "arm=check", "seed=1", "data.seed=2", "data.batch_size=16", "data.world.seed=5",
    "data.world.real_scenes=200", "data.world.counterfactual_pairs=80",
    f"trainer.max_steps={STEPS}", f"trainer.val_every_steps={STEPS}", "trainer.save_every_steps=8",
    "trainer.progress=false", "trainer.deterministic=warn",
]  # fmt: skip

BENCHMARKS = {
    "answering": ("--families llava --images 2 --rounds 1", "--images 32 --rounds 3"),
    "captions": ("--count 4 --repeats 1 --threads 1", "--count 100 --repeats 2 --roberta"),
    "compositional": ("--quick", "--rounds 3"),
    "evaluation": ("--quick", "--images 500 --repeats 2"),
    "generation": (
        "--steps 2 --candidates 4 --reference-candidates 1 --repeats 1 --threads 1",
        "--compile --repeats 3",
    ),
    "insertion": (
        "--only batching --count 6 --few 2 --rounds 1 --threads 1",
        "--shapes paper --only batching --count 100 --few 20 --rounds 2",
    ),
    "inversion": ("--quick", "--steps 20 --photos 2 --repeats 2"),
    "real_size": ("--quick", "--precision bf16-mixed --batch 128 --steps 12 --repeats 1"),
    "seeds": ("--quick", "--seeds 4"),
    "sets": ("--quick", "--repeats 3"),
    "sharing": ("--pairs 2 --steps 2 --scenes 1", "--pairs 40"),
    "training": ("--quick", "--model vit-b-32 --repeats 2"),
}
"""{script that runs a model: (its words for a quick run, its words on a GPU)}."""

ON_THE_PROCESSOR = {
    "cluster_simulation": "a simulation of a queue",
    "device_audit": "counts of what a GPU would be sent, without one",
    "few_clusters": "a simulation of tests",
    "gallery": "a browser's time",
    "loader": "images are read and decoded by the processor",
    "near_duplicates": "hashes of images, without a model",
    "page_picture": "a browser's picture of a page",
    "p_laws": "simulated choices, without a model",
    "rivals": "a part of training.py",
    "seeds_and_items": "a simulation of tests",
    "shards": "files are written, without a model",
    "skew": "metrics of arrays",
    "ten_million": "plans and indexes, without pixels or a model",
    "vqa_picture": "draws a picture",
}
"""{script that is left out: what it measures}."""


class StepError(Exception):
    """A step that failed; the message says how."""


class NotRunError(Exception):
    """A step that this machine lacks something for; the message says what."""


@dataclass(frozen=True)
class Machine:
    """What the probe found.

    Attributes:
        devices: names of the GPUs; empty on a machine without one that torch can use.
        text: the machine in one line.
    """

    devices: tuple[str, ...]
    text: str

    @property
    def device(self) -> str:
        """The name of the device for the commands."""
        return "cuda" if self.devices else "cpu"


@dataclass(frozen=True)
class Workplace:
    """Where a step runs its commands.

    Attributes:
        folder: the step's folder; its output is in ``log.txt``.
        until: the time on the monotonic clock at which the step is stopped.
        options: the options of the command line.
    """

    folder: Path
    machine: Machine
    until: float
    options: argparse.Namespace

    def run(self, *words: str, code: int = 0) -> str:
        """Run Python with these words to its end, and return its standard output.

        Args:
            code: the exit code that it has to end with.

        Raises:
            StepError: if it ends otherwise.
            NotRunError: if a library is missing.
            TimeoutError: if the step's time is up.
        """
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        said = self.folder / "stdout.txt"
        with said.open("wb") as out, (self.folder / "log.txt").open("ab+") as log:
            start = log.tell()
            child = subprocess.Popen(
                [sys.executable, *words], cwd=ROOT, env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL, stdout=out, stderr=log, start_new_session=True,
            )  # fmt: skip
            try:
                ended = child.wait(max(0.0, self.until - time.monotonic()))
            except subprocess.TimeoutExpired as error:
                raise TimeoutError from error
            finally:
                # Also the processes that a killed command left behind.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            log.seek(start)
            errors = log.read().decode(errors="replace")
        text = said.read_text(encoding="utf-8", errors="replace")
        if ended != code:
            match = MISSING.search(errors) or MISSING.search(text)
            name = (match[1] or match[2]).partition(".")[0] if match else ""
            if name and name not in OURS:
                raise NotRunError(f"{name} is missing: pip install '.[all]'")
            last = (errors.strip() or text.strip() or "no message").splitlines()[-1]
            raise StepError(f"exit code {ended}: {last[:300]} (all of it: {self.folder}/log.txt)")
        return text

    def start_anew(self) -> None:
        """Empty the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)


@dataclass(frozen=True)
class Step:
    """A step.

    Attributes:
        work: runs it and returns what it found.
        seconds: its time limit on a GPU; on a processor, the limit is twice that.
        devices: the number of GPUs that it needs on a machine with a GPU.
    """

    name: str
    summary: str
    work: Callable[[Workplace], str]
    seconds: int
    devices: int = 1


def check_devices(at: Workplace) -> str:
    """Compare matrix products in three number formats with the processor's in float64."""
    count = len(at.machine.devices)
    names = [f"cuda:{number}" for number in range(count)] or ["cpu"]
    at.run("-c", MULTIPLY, *names)
    at.run("-m", "cfaug", "doctor", "devices")
    return f"{', '.join(names)}: matrix products in fp32, bf16 and fp16 are right"


def train(at: Workplace, name: str, *words: str) -> Path:
    """Train a run in a folder of its own, and return the run's folder."""
    at.run("train.py", *TRAIN, *words, *_train_paths(at, name))
    return at.folder / name / "gpu" / "check" / "seed=1"


def _train_paths(at: Workplace, name: str) -> list[str]:
    return [f"paths.runs={at.folder / name}", f"paths.shards={at.folder / 'shards'}"]


def read_rows(run: Path) -> list[dict[str, str]]:
    """Return the rows of a run's metrics."""
    with (run / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def hash_weights(run: Path) -> dict[str, str]:
    """Return {name: sha256} of the files of weights of a run."""
    files = sorted((run / "checkpoint").glob("*.safetensors"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def train_and_resume(precision: str) -> Callable[[Workplace], str]:
    """Return a step that compares a run that was killed and resumed with one that was not."""

    def work(at: Workplace) -> str:
        at.start_anew()
        words = [f"trainer.precision={precision}", f"trainer.device={at.machine.device}"]
        whole = train(at, "whole", *words)
        log = at.folder / "killed" / "gpu" / "check" / "seed=1" / "metrics.csv"
        at.run(
            "-c", KILLED, str(log), str(STEPS // 2 + 1), *TRAIN, *words,
            *_train_paths(at, "killed"), code=-signal.SIGKILL,
        )  # fmt: skip
        resumed = train(at, "killed", *words)
        rows = read_rows(resumed)
        first = min(int(row["step"]) for row in rows if row["attempt"] == "1")
        if first < 2 or int(rows[-1]["step"]) != STEPS:
            raise StepError(f"the killed run began again at step {first} and ended at {rows[-1]}")
        expected = hash_weights(whole)
        if not expected or hash_weights(resumed) != expected:
            again = hash_weights(train(at, "again", *words))
            raise StepError(
                "the weights of the resumed run differ from the whole run's; "
                + (
                    "two whole runs have the same"
                    if again == expected
                    else "two whole runs differ as well: kernels of this device are not repeatable"
                )
            )
        return f"{STEPS} steps, killed after {STEPS // 2}, resumed at step {first}: the same bytes"

    return work


def train_in_two(at: Workplace) -> str:
    """Compare the validation loss of two processes with that of one."""
    at.start_anew()
    accelerator = f"trainer.accelerator={'gpu' if at.machine.devices else 'cpu'}"
    losses = []
    for count in (1, 2):
        run = train(at, f"processes-{count}", accelerator, f"trainer.devices={count}")
        losses += [float(row["val/loss"]) for row in read_rows(run) if row.get("val/loss")][-1:]
    first, second = losses
    if not abs(first - second) < 0.05 * first:
        raise StepError(f"validation loss {second:.4f} with two processes, {first:.4f} with one")
    return f"validation loss {first:.4f} with one process, {second:.4f} with two"


def generate(*words: str, compiled: bool = False) -> Callable[[Workplace], str]:
    """Return a step that makes sets with the tiny Stable Diffusion, compiled on a GPU."""

    def work(at: Workplace) -> str:
        at.start_anew()
        node = "zoo.diffusion" if compiled else "zoo.photo_diffusion"
        more = [f"{node}.device={at.machine.device}"]
        if compiled and at.machine.devices:
            more += [f"{node}.compile=true", f"{node}.dtype=bf16"]
        sets = at.folder / "sets"
        paths = [f"paths.shards={sets}", f"paths.worlds={at.folder / 'world'}"]
        at.run("generate.py", *words, *more, *paths)
        commits = [json.loads(f.read_text("utf-8")) for f in sets.glob("[0-9]*.json")]
        tars = list(sets.glob("[0-9]*.tar"))
        if not commits or len(tars) != len(commits) or not all(f.stat().st_size for f in tars):
            raise StepError(f"{len(tars)} shards in {sets}, {len(commits)} of them complete")
        sizes = sum(file.stat().st_size for file in tars)
        shape = "compiled UNet, bf16" if len(more) > 1 else "fp32"
        return f"{shape}: {len(tars)} shard complete, {sizes:,} bytes"

    return work


def evaluate(*words: str, questions: bool = False) -> Callable[[Workplace], str]:
    """Return a step that compares every number of an evaluation with the processor's."""

    def work(at: Workplace) -> str:
        at.start_anew()
        more = list(words)
        if questions:
            folder = at.folder / "questions"
            at.run("-m", "zoo", "questions", f"out={folder}", "part=test", "pairs=12")
            more.append(f"benchmark.data={folder / 'questions.jsonl'}")
        by_device: dict[str, dict[tuple[str, str], float]] = {}
        for device in dict.fromkeys((at.machine.device, "cpu")):
            runs = at.folder / device
            paths = [f"paths.runs={runs}", f"paths.shards={at.folder / 'shards'}"]
            at.run("evaluate.py", *more, f"device={device}", "feature_cache=0", *paths)
            (file,) = runs.rglob("results.jsonl")
            lines = map(json.loads, file.read_text("utf-8").splitlines())
            by_device[device] = {
                (result["benchmark"], result["metric"]): result["value"] for result in lines
            }
        expected, numbers = by_device["cpu"], by_device[at.machine.device]
        if not numbers or numbers.keys() != expected.keys():
            raise StepError(f"{len(numbers)} numbers, {len(expected)} on the processor")
        apart = {key: abs(numbers[key] - expected[key]) for key in numbers}
        wrong = [key for key, by in apart.items() if not by <= CLOSE * max(1, abs(expected[key]))]
        if wrong:
            key = wrong[0]
            raise StepError(f"{' '.join(key)}: {numbers[key]}, {expected[key]} on the processor")
        if not at.machine.devices:
            return f"{len(numbers)} numbers"
        return f"{len(numbers)} numbers, at most {max(apart.values()):.2g} from the processor's"

    return work


def measure(name: str) -> Callable[[Workplace], str]:
    """Return a step that runs a script of benchmarks/."""

    def work(at: Workplace) -> str:
        words = BENCHMARKS[name][bool(at.machine.devices)].split()
        at.folder.mkdir(parents=True, exist_ok=True)
        script = f"benchmarks/{name}.py"
        output = at.run(script, "--device", at.machine.device, *words)
        if "|" not in output and "faster by" not in output:
            raise StepError(f"{script} printed no comparison: {output[-200:]}")
        return output.strip()

    return work


def compare_on_photos(at: Workplace) -> str:
    """Fine-tune on photos alone and with counterfactuals, five seeds each, and compare them."""
    photos, pairs, weights = at.options.photos, at.options.pairs, at.options.weights
    if photos is None or pairs is None:
        raise NotRunError(
            "give --photos FOLDER (photos with captions, docs/data.md) and --pairs FOLDER "
            "(of python generate.py zoo=paper data.source=PHOTOS paths.shards=FOLDER)"
        )
    at.folder.mkdir(parents=True, exist_ok=True)
    try:
        at.run("-c", "import sys; from cfaug.core.weights import resolve; resolve(sys.argv[1])",
               weights)  # fmt: skip
    except StepError as error:
        raise NotRunError(
            f"{weights} is not on this machine and could not be fetched: hf download {weights}, "
            "or --weights FOLDER"
        ) from error
    paths = [f"paths.runs={at.folder / 'runs'}", f"paths.shards={at.folder / 'shards'}"]
    at.run(
        "train.py", "--multirun", "name=photos", "data=folder", f"data.real={photos}",
        f"data.counterfactual={pairs}", "data.cf_ratio=0,0.5", "seed=107,108,109,110,111",
        "model=clip_vit_b32", f"model.weights={weights}", f"data.size={at.options.size}",
        f"trainer.device={at.machine.device}", "trainer.max_epochs=1", "trainer.progress=false",
        "share_image_cache=true", *paths,
    )  # fmt: skip
    at.run("evaluate.py", "name=photos", f"device={at.machine.device}", *paths)
    table = at.folder / "runs" / "photos" / "table.md"
    return table.read_text(encoding="utf-8").strip()


def list_steps() -> list[Step]:
    """Return all steps, in their order."""
    sets = ("limit=2", "shards.sets_per_shard=2", "recipe.draws.candidates=2")
    null_text = "recipe.image_editor.inversion._target_=cfaug.imaging.inversion.NullText"
    lance = ("recipe=photo_edits", "limit=1")
    tiny_vlm = ("model=tiny_vlm", "weights=zoo:vlm-both-0", "benchmark=vqa")
    world = ("data.world.ood_pairs=60", "data.world.id_scenes=100")
    return [
        Step("devices", "matrix products on every device", check_devices, 60),
        Step("train-bf16", "train, kill, resume", train_and_resume("bf16-mixed"), 150),
        Step("train-fp16", "train, kill, resume", train_and_resume("16-mixed"), 150),
        Step("train-two", "train in two processes", train_in_two, 150, devices=2),
        Step("generation", "sets, UNet compiled", generate(*sets, compiled=True), 240),
        Step("inversion", "edits of photos", generate(*lance), 120),
        Step("null-text", "gradients in the sampler", generate(*lance, null_text), 150),
        Step(
            "evaluation", "retrieval, classification, pairs",
            evaluate("weights=zoo:clip-0", "benchmark=shapescapes", *world), 120,
        ),
        Step("questions", "answers of a language model", evaluate(*tiny_vlm, questions=True), 120),
        *(
            Step(f"benchmark-{name}", f"benchmarks/{name}.py", measure(name), 240)
            for name in BENCHMARKS
        ),
        Step("photos", "CLIP on your photos, five seeds", compare_on_photos, 600),
    ]  # fmt: skip
