"""Golden outputs: small runs of every ``make`` target, to prove that a change changes no result.

    python tools/golden.py run FOLDER            # on the commit before, and again on the one after
    python tools/golden.py compare BEFORE AFTER

Each target runs the commands of the page of the same name at a reduced size, in order and in one
process. All files that they write are compared byte for byte, apart from what names a moment, a
folder or a module: settings and records of runs, logs and caches; identities within texts are
masked. Bytes depend on the processor, so that both folders are made on one machine.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from string import Template

import yaml

ROOT = Path(__file__).resolve().parent.parent

COMMANDS = Path(__file__).with_suffix(".yaml")

SHARED = {
    "WORLD": (
        "data.world.real_scenes=40 data.world.counterfactual_pairs=40 data.world.id_scenes=30 "
        "data.world.unbiased_scenes=40 data.world.ood_pairs=12"
    ),
    "SHORT": (
        "data.batch_size=8 trainer.max_steps=3 trainer.val_every_steps=2 trainer.progress=false"
    ),
    "STEPS": (
        "trainer.max_epochs=null trainer.max_steps=2 trainer.progress=false data.batch_size=16 "
        "data.world.real_scenes=40 data.world.counterfactual_pairs=40 data.world.id_scenes=30 "
        "data.world.unbiased_scenes=40 data.world.ood_pairs=12"
    ),
    "NEGATIVES": (
        "seed=107 data.world.compositional_pairs=44 data.world.compositional_test_pairs=24 "
        "data.size=10 data.batch_size=5 trainer.max_steps=1 trainer.progress=false"
    ),
    "NEGATED": (
        "seed=107 data.size=10 data.batch_size=5 trainer.max_steps=1 trainer.progress=false"
    ),
    "DRAWN": (
        "recipe.draws.candidates=2 recipe.image_editor.steps=2 recipe.selection.min_clip_text=-1 "
        "recipe.selection.min_clip_image=-1 recipe.selection.min_clip_direction=null"
    ),
    "ANNOTATED": (
        "pairs=shapescapes:counterfactual world.seed=108 world.real_scenes=60 "
        "world.counterfactual_pairs=60"
    ),
}
"""Words that several commands share."""

UNLIKE = re.compile(
    r"/(config\.yaml|run\.json|card\.json|README\.md|metrics\.csv|ledger\.jsonl?|timings?\.json)$"
    r"|\.(lock|log|pdf|ckpt|crc32)$|/\.work/|/cache/|/shards/index/"
)
"""Files that name moments, versions, folders or modules, and those that only speed things up."""

MASKED = (
    (re.compile(rb"[0-9a-f]{16,64}"), b"HASH"),
    (re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+\d\d:?\d\d)?"), b"TIME"),
    (re.compile(rb"_target_: [\w.]+"), b"MODULE"),
    (re.compile(rb"commit HASH, dirty \w+"), b"COMMIT"),
    (re.compile(rb"(?s)<h2>Training examples of each arm</h2>.*?</section>"), b"SECONDS OF RUNS"),
)
"""Identities, modules, moments and durations within texts, and what is compared in their place."""

TEXTS = {".json", ".jsonl", ".csv", ".md", ".tex", ".html", ".svg", ".txt", ".yaml"}


def run(folder: Path, targets: Sequence[str]) -> None:
    """Run the commands of targets in a folder; settings and sweeps are those of this checkout.

    Raises:
        SystemExit: with what a command said that failed.
    """
    for target in targets:
        place = folder / target
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        (place / "sweeps").symlink_to(ROOT / "sweeps")
        started = time.monotonic()
        with contextlib.chdir(place):
            for line in read_commands()[target]:
                command(line)
        print(f"{target}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def read_commands() -> dict[str, list[str]]:
    """Return the commands of each target."""
    files = (COMMANDS, *sorted(ROOT.glob("tests/*/*/golden.yaml")))
    pages = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files]
    return {
        target: [Template(line).substitute(SHARED) for line in lines]
        for targets in pages
        for target, lines in targets.items()
    }


def command(line: str) -> None:
    """Run one command in this process, and show what it said only if it fails."""
    name, *words = shlex.split(line)
    main = import_module(f"cfaug.run.{name}").main
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(words)
    if code:
        raise SystemExit(f"{line}\nended with {code}:\n{said.getvalue()[-3000:]}")


def read_outputs(folder: Path) -> dict[str, bytes]:
    """Return {file: its content, with identities and moments masked} of all that is compared."""
    names = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    return {name: masked(folder / name) for name in names if not UNLIKE.search(f"/{name}")}


def masked(file: Path) -> bytes:
    """Return what is compared of a file; of parquet its columns, without the schema's metadata."""
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(file)
        return repr([table.schema.remove_metadata(), table.to_pylist()]).encode()
    content = file.read_bytes()
    if file.suffix in TEXTS:
        for pattern, word in MASKED:
            content = pattern.sub(word, content)
    return content


def compare(before: Path, after: Path) -> list[str]:
    """Return a line for each file that is missing, new or different."""
    ours, theirs = read_outputs(after), read_outputs(before)
    lines = [f"missing: {name}" for name in theirs.keys() - ours.keys()]
    lines += [f"new: {name}" for name in ours.keys() - theirs.keys()]
    common = ours.keys() & theirs.keys()
    lines += [f"different: {name}" for name in common if ours[name] != theirs[name]]
    return sorted(lines)


def main(argv: Sequence[str]) -> int:
    """Run or compare; return 1 if outputs differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("run")
    made.add_argument("folder", type=Path)
    made.add_argument("targets", nargs="*", default=list(read_commands()), metavar="TARGET")
    compared = commands.add_parser("compare")
    compared.add_argument("before", type=Path)
    compared.add_argument("after", type=Path)
    given = parser.parse_args(argv)
    if given.command == "run":
        run(given.folder.absolute(), given.targets)
        return 0
    lines = compare(given.before, given.after)
    print("\n".join(lines) or f"{len(read_outputs(given.after))} files are equal")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
