"""Check this machine's GPU, and write a block of measurements for RESULTS.md: ``make gpu``.

Every step is a few commands in processes of their own, with a time limit. The result of a finished
step is kept in ``runs/gpu/STEP.json``, so the same command continues with the steps that are left:
those that failed, those that the time did not suffice for, and all of them after a change of code
or on another device. Without a GPU the steps run on the processor, in their smallest form. A step
that needs a missing library or missing data is not run, and the reason is printed. Only Python's
own library is imported here, so a machine's own environment will do.

    python -m tools.gpu                                  # all steps
    python -m tools.gpu train-bf16 benchmark-generation  # these
    python -m tools.gpu --plan                           # print the steps
    python -m tools.gpu --photos FOLDER --pairs FOLDER   # with CLIP ViT-B/32 on your own data
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tools.gpu_steps import (
    BENCHMARKS,
    ON_THE_PROCESSOR,
    ROOT,
    Machine,
    NotRunError,
    Step,
    StepError,
    Workplace,
    list_steps,
)

CLIP = "openai/clip-vit-base-patch32"

PROBE = """
import json, os, platform, torch
cuda = torch.cuda.is_available()
names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else []
cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
print(json.dumps({"devices": names, "cores": cores, "torch": torch.__version__,
                  "cuda": torch.version.cuda if cuda else None,
                  "python": platform.python_version()}))
"""


def probe() -> Machine:
    """Ask torch, in a process of its own, which devices there are."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, encoding="utf-8"
    )
    if done.returncode:
        raise SystemExit(f"{sys.executable} has no torch that works:\n{done.stderr[-1000:]}")
    probed = json.loads(done.stdout)
    versions = f"torch {probed['torch']}, python {probed['python']}, {probed['cores']} cores"
    if not probed["devices"]:
        return Machine((), f"no GPU; {versions}")
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = "unknown"
    if shutil.which(query[0]):
        result = subprocess.run(query, capture_output=True, text=True, encoding="utf-8")
        driver = (result.stdout.split() or [driver])[0]
    names = ", ".join(probed["devices"])
    return Machine(
        tuple(probed["devices"]), f"{names}; driver {driver}, CUDA {probed['cuda']}, {versions}"
    )


def write(file: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    part = file.with_name(f".{file.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(file)


def hash_code() -> str:
    """Return the sha256 of all that the steps run."""
    folders = ("cfaug", "conf", "benchmarks", "tools")
    files = (file for name in folders for file in sorted((ROOT / name).rglob("*")))
    digest = hashlib.sha256()
    for file in files:
        if file.suffix in (".py", ".yaml"):
            digest.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return digest.hexdigest()


class Rehearsal:
    """All steps on this machine, with what is known of each.

    Attributes:
        records: {step: its record}: ``state`` (done, failed, not run, left), ``said``, ``seconds``.
    """

    def __init__(self, folder: Path, machine: Machine, options: argparse.Namespace) -> None:
        self.folder, self.machine, self.options = folder.resolve(), machine, options
        data = [str(getattr(options, name)) for name in ("photos", "pairs", "weights", "size")]
        self.subject = [hash_code(), machine.text, *data]
        self.records: dict[str, dict[str, object]] = {}

    def read(self, step: Step) -> dict[str, object] | None:
        """Return the record of a step that is done: of this code, device and data."""
        try:
            record = json.loads((self.folder / f"{step.name}.json").read_text("utf-8"))
        except (OSError, ValueError):
            return None
        same = record.get("state") == "done" and record.get("of") == self.subject
        return record if same else None

    def run(self, step: Step, until: float) -> None:
        """Run a step unless it is done, or say why not."""
        record = self.read(step)
        if record is None:
            record = self._run(step, until)
            print(f"{step.name}: {record['state']}, {record['seconds']} s", flush=True)
        else:
            print(f"{step.name}: done before", flush=True)
        if record["state"] != "done" or not step.name.startswith(("benchmark-", "photos")):
            print(f"  {record['said']}", flush=True)
        self.records[step.name] = record

    def _run(self, step: Step, until: float) -> dict[str, object]:
        start = time.monotonic()
        state, said = "done", ""
        if 0 < len(self.machine.devices) < step.devices:
            state, said = "not run", f"needs {step.devices} GPUs"
        elif start >= until:
            state, said = "left", "the time was up"
        else:
            seconds = step.seconds * (1 if self.machine.devices else 2)
            limit = min(until, start + seconds)
            at = Workplace(self.folder / step.name, self.machine, limit, self.options)
            at.folder.mkdir(parents=True, exist_ok=True)
            try:
                said = step.work(at)
            except StepError as error:
                state, said = "failed", str(error)
            except NotRunError as error:
                state, said = "not run", str(error)
            except TimeoutError:
                if limit == until:
                    state, said = "left", "the time was up"
                else:
                    state, said = "failed", f"took more than {seconds} s"
        spent = round(time.monotonic() - start)
        record = {"state": state, "said": said, "seconds": spent, "of": self.subject}
        if state in ("done", "failed"):
            write(self.folder / f"{step.name}.json", json.dumps(record, indent=1) + "\n")
        return record

    def block(self) -> str:
        """Return the Markdown for benchmarks/RESULTS.md."""
        return "\n".join(self._block()) + "\n"

    def _block(self) -> Iterator[str]:
        title = self.machine.devices[0] if self.machine.devices else "a machine without a GPU"
        yield f"## {title}\n\n`make gpu` on: {self.machine.text}.\n"
        yield "| step | state | s | result |\n|---|---|---|---|"
        outputs = {}
        for name, record in self.records.items():
            said = str(record["said"])
            if "\n" in said:
                outputs[name], said = said, "below"
            said = said.replace("|", "\\|")
            yield f"| {name} | {record['state']} | {record['seconds']} | {said} |"
        left_out = "; ".join(f"{name} ({why})" for name, why in ON_THE_PROCESSOR.items())
        yield f"\nNot of a GPU, and left out: {left_out}."
        for name, output in outputs.items():
            script = name.removeprefix("benchmark-")
            words = BENCHMARKS.get(script, ("", ""))[bool(self.machine.devices)]
            command = f"python benchmarks/{script}.py --device {self.machine.device} {words}"
            yield f"\n### {name}\n"
            if script in BENCHMARKS:
                yield f"`{command.strip()}`\n"
            yield output


def main(argv: list[str]) -> int:
    """Run the steps, and return 0 if none failed and none is left."""
    steps = list_steps()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("steps", nargs="*", metavar="STEP", help=", ".join(step.name for step in steps))
    add("--plan", action="store_true", help="print the steps and run none")
    add("--minutes", type=float, default=20, help="time for all steps (%(default)s)")
    add("--out", type=Path, default=ROOT / "runs" / "gpu", help="folder of results (%(default)s)")
    add("--photos", type=Path, help="folder of photos with captions, for the last step")
    add("--pairs", type=Path, help="folder of counterfactual sets of such photos")
    add("--weights", default=CLIP, help="CLIP for the last step (%(default)s)")
    add("--size", type=int, default=2000, help="examples of each of its runs (%(default)s)")
    options = parser.parse_args(argv)
    unknown = set(options.steps) - {step.name for step in steps}
    if unknown:
        parser.error(f"no step {', '.join(sorted(unknown))}: see --help")
    for name in ("photos", "pairs"):
        folder = getattr(options, name)
        if folder is not None:
            setattr(options, name, folder.resolve())
    machine = probe()
    print(machine.text, flush=True)
    if not machine.devices:
        print("There is no GPU that torch can use: each step runs on the processor, in its "
              "smallest form.", flush=True)  # fmt: skip
    chosen = [step for step in steps if step.name in options.steps or not options.steps]
    if options.plan:
        for step in chosen:
            lacks = 0 < len(machine.devices) < step.devices
            note = f"; not run: needs {step.devices} GPUs" if lacks else ""
            print(f"{step.name:24} {step.summary}{note}")
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    rehearsal = Rehearsal(options.out, machine, options)
    until = time.monotonic() + 60 * options.minutes
    for step in chosen:
        rehearsal.run(step, until)
    block = options.out / "RESULTS-block.md"
    write(block, rehearsal.block())
    for state, advice in (
        ("failed", ""), ("not run", ""), ("left", "; the same command continues with them"),
    ):  # fmt: skip
        names = [name for name, record in rehearsal.records.items() if record["state"] == state]
        if names:
            print(f"{state}: {', '.join(names)}{advice}")
    print(f"wrote {block}")
    states = {record["state"] for record in rehearsal.records.values()}
    return int(bool(states & {"failed", "left"}))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the step's processes, too
    sys.exit(main(sys.argv[1:]))
