"""The folder of one run: its identity and state, and what is published from it.

A finished run with the same hash is skipped, an unfinished one is resumed, and a run with another
hash is refused with the difference.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from cfaug.core.atomic_files import write_json
from cfaug.core.cards import CARD, is_edited
from cfaug.core.errors import UserError, name_some, say
from cfaug.core.outputs import RECORD, remove_own
from cfaug.core.processes import check_logger, hold_lock, is_checkout
from cfaug.core.safety.json_text import load_json
from cfaug.planning.build import build_untrusted
from cfaug.report.arms import ABSENT, same_identity
from cfaug.report.records import UNFINISHED, check_record, read_config, read_run, setting_node
from cfaug.report.results import RESULTS, read_record
from cfaug.run.folder_names import check_owner
from cfaug.run.identity import EXTENDED, LENGTH, config_hash

FILES = (
    "run.json", "config.yaml", "metrics.csv", "last.ckpt", RESULTS, "wandb/published.json",
    "wandb/pairs/pairs.json",
)  # fmt: skip
"""Files of a run that a new run in its folder removes; the record first."""
CHECKPOINT = "checkpoint"
Verdict = Literal["new", "resume", "done"]


def is_ours(record: Path) -> bool:
    """Return whether a file is the record of a run."""
    try:
        content = load_json(record.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and "config_hash" in content


def _as_text(value: Any) -> str:
    """Return a value as text; 1 and 1.0 give the same text, whichever was typed."""
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if whole else value)


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run and the identity that it must have.

    Attributes:
        replaces: hash of the finished run that this one extends (``extend=true``).
        arm: the arm's name, if given by hand; ``None`` for an arm named after its settings.
    """

    path: Path
    identity: Mapping[str, Any]
    replaces: str | None = None
    arm: str | None = None

    @property
    def hash(self) -> str:
        """The ``config_hash``."""
        return config_hash(self.identity)

    def verdict(self, overwrite: bool) -> Verdict:
        """Return whether to start, resume or skip this run, without changing anything."""
        check_owner(self.path.parent, self.arm)
        record_file = self.path / "run.json"
        if overwrite or not record_file.exists():
            return "new"
        try:
            record = self.record()
        except UserError as error:
            raise UserError(f"{error}; overwrite=true starts this run anew") from error
        if self.extends(record):
            return "resume"
        if not self._is_of(record):
            if self.took_no_step(record):
                return "new"
            raise UserError(self.difference(record.get("identity") or {}))
        return "done" if record.get("state") == "done" else "resume"

    def state(self) -> str:
        """Return the state: absent, other (another configuration's), done, failed, or interrupted.

        Further states: cut off, killed without a word; at work, held by a process of this machine;
        unreadable, a damaged record; to extend, a shorter run that this one extends.
        """
        file = self.path / "run.json"
        if not file.exists():
            return "absent"
        try:
            record = self.record()
        except UserError:
            return "unreadable"
        if self.extends(record):
            return "to extend"
        if not self._is_of(record):
            return "absent" if self.took_no_step(record) else "other"
        if record.get("state") != "running":
            lost = record.get("state") == "done" and not self.has_checkpoint
            return "done, checkpoint removed" if lost else str(record.get("state"))
        try:
            with self.lock():
                return "cut off"
        except UserError:
            return "at work"

    @property
    def has_checkpoint(self) -> bool:
        """Whether the weights of a finished run are still there."""
        return (self.path / "checkpoint").is_dir()

    def extends(self, record: Mapping[str, Any]) -> bool:
        """Say whether a record is of the finished run that this one extends."""
        return self.replaces is not None and record.get("config_hash") == self.replaces

    def took_no_step(self, record: Mapping[str, Any]) -> bool:
        """Say whether a run ended before its first step, so that removing it loses nothing."""
        if record.get("state") not in UNFINISHED or self.has_checkpoint:
            return False
        curve = self.path / "metrics.csv"
        rows = curve.read_bytes().count(b"\n") if curve.exists() else 0
        return rows <= 1 and not (self.path / "last.ckpt").exists()

    def record(self) -> dict[str, Any]:
        """Read the record."""
        file = self.path / "run.json"
        record = read_record(file)
        check_record(record, file, complete=False)
        return record

    def write_record(self, record: Mapping[str, Any]) -> None:
        """Write ``run.json`` so that a reader sees the old file or the new one."""
        write_json(self.path / "run.json", record, indent=2, sort_keys=False)

    def _is_of(self, record: Mapping[str, Any]) -> bool:
        """Say whether a record is of this run; ``skew=1`` and ``skew=1.0`` are one setting."""
        other = record.get("identity")
        return record.get("config_hash") == self.hash or (
            isinstance(other, Mapping)
            and other.keys() == self.identity.keys()
            and not self.differing(other)
        )

    def differing(self, other: Mapping[str, Any]) -> list[str]:
        """Return the keys whose values differ from another identity's."""
        return [
            key
            for key in sorted({*other, *self.identity})
            if _as_text(other.get(key, ABSENT)) != _as_text(self.identity.get(key, ABSENT))
        ]

    def difference(self, other: Mapping[str, Any]) -> str:
        """Explain how the identity of the run in this folder differs, and what to do."""
        differing = self.differing(other)
        lines = [
            f"{self.path} holds a run of another configuration:",
            *(
                f"  {key}: there {other.get(key, ABSENT)!r}, "
                f"asked {self.identity.get(key, ABSENT)!r}"
                for key in differing
            ),
            "Two ways out: overwrite=true starts anew there (the old run is removed), "
            "or arm=NAME (or name=NAME) puts this run elsewhere.",
        ]
        if set(differing) <= {*LENGTH, EXTENDED}:
            lines.append(
                "A third, if its last state was kept (trainer.keep_last=true): extend=true goes on "
                "from there to more steps."
            )
        return "\n".join(lines)

    def longer(self, steps: int) -> RunFolder:
        """Return the folder with the identity of the run's extension to ``steps`` steps.

        Changes nothing on disk. A run that is being extended, or was extended to this length, keeps
        its identity. The result differs from a run that had this length from its first step,
        because its schedule was shorter; so the step of the extension is part of its identity.
        """
        if not (self.path / "run.json").exists():
            raise UserError(
                f"extend=true: there is no run in {self.path}; arm=NAME names the run to extend, "
                "and without extend=true it is trained"
            )
        record = self.record()
        there = dict(record.get("identity") or {})
        history = there.pop(EXTENDED, [])
        differing = self.differing(there)
        if not set(differing) <= set(LENGTH):
            raise UserError(self.difference(there))
        if not differing and not history:
            return self
        if not differing:
            return replace(self, identity={**self.identity, EXTENDED: history})
        done = record.get("steps") or 0
        if record.get("state") != "done":
            raise UserError(
                f"extend=true: the run in {self.path} is not finished; finish it first, by its own "
                "command"
            )
        if steps <= done:
            raise UserError(
                f"extend=true: {self.path} has {done} steps already, and {steps} are requested"
            )
        if not (self.path / "last.ckpt").exists():
            raise UserError(
                f"extend=true: {self.path} did not keep its last state (trainer.keep_last=true "
                f"keeps it): overwrite=true trains all {steps} steps anew"
            )
        return replace(
            self,
            identity={**self.identity, EXTENDED: [*history, done]},
            replaces=record.get("config_hash"),
        )

    def set_results_aside(self, steps: int) -> None:
        """Rename the results of the weights after ``steps`` steps: the extended run has others."""
        results = self.path / RESULTS
        if results.exists():
            os.replace(results, results.with_name(f"{results.stem}-{steps}-steps{results.suffix}"))

    def check_owned(self) -> None:
        """Refuse a folder in which a run would replace files that are of no run."""
        if (self.path / ".lock").is_file():
            return  # a run was at work here
        there = [name for name in (*FILES, CHECKPOINT) if os.path.lexists(self.path / name)]
        record = self.path / "run.json"
        if not there or (record.is_file() and is_ours(record)):
            return
        raise UserError(
            f"{self.path} is no folder of a run, and holds {', '.join(there)}, which a run writes: "
            "arm=NAME or name=NAME puts the run elsewhere, or move the folder away"
        )

    def clear(self) -> None:
        """Remove the run in this folder, and only files that a run wrote.

        A model card that somebody edited is set aside, with a message on stderr.
        """
        checkpoint = self.path / CHECKPOINT
        links = [name for name in (*FILES, CHECKPOINT) if (self.path / name).is_symlink()]
        if links:
            raise UserError(
                f"{self.path / links[0]} is a link, and a link is not replaced: remove it, or "
                "arm=NAME puts the run elsewhere"
            )
        for name in FILES:
            (self.path / name).unlink(missing_ok=True)
        card = checkpoint / CARD
        if not checkpoint.is_symlink() and card.is_file() and is_edited(card):
            os.replace(card, aside := self.path / f"edited-{CARD}")
            say(f"{card} was edited, or is of an earlier version: it is kept as {aside}")
        if (checkpoint / RECORD).is_file():
            remove_own(checkpoint)
        else:  # of an earlier version
            shutil.rmtree(checkpoint, ignore_errors=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for this process."""
        self.path.mkdir(parents=True, exist_ok=True)
        busy = f"another process is at work on {self.path}: wait for it, or choose arm=NAME"
        with hold_lock(self.path / ".lock", refusal=busy):
            yield

    def leave(self) -> None:
        """Remove the folder, which this process holds, if there is nothing in it but its lock."""
        with suppress(OSError):
            if [entry.name for entry in self.path.iterdir()] == [".lock"]:
                (self.path / ".lock").unlink()
                for folder in (self.path, *list(self.path.parents)[:2]):
                    folder.rmdir()  # fails where there is anything else


PACKAGES = (
    "cfaug", "torch", "torchvision", "transformers", "lightning", "open_clip_torch", "numpy",
    "pillow", "hydra-core", "safetensors",
)  # fmt: skip


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that decide a result."""
    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed


def git_revision() -> dict[str, Any] | None:
    """Return the checkout's commit and whether it had local changes, or None outside git."""
    if not is_checkout():
        return None  # an installed package may lie within a repository of something else
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(here), *words],
            capture_output=True,
            timeout=10,
            check=True,
            encoding="utf-8",
            errors="replace",
        )
        return done.stdout.strip()

    try:
        return {
            "commit": git("rev-parse", "HEAD"),
            "dirty": bool(git("status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.SubprocessError):
        return None


def now() -> str:
    """Return the date and time in UTC, as ISO 8601 writes them."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def hardware() -> dict[str, Any]:
    """Return processor, cores and, if torch is already imported, the GPUs that it sees."""
    processor = platform.processor()
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                processor = line.split(":", 1)[1].strip()
                break
    facts: dict[str, Any] = {
        "machine": platform.machine(),
        "processor": processor,
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
    }
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        facts["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return facts


def threads() -> int | None:
    """Return torch's number of threads; CPU results may differ in the last bits with it."""
    torch = sys.modules.get("torch")
    return None if torch is None else int(torch.get_num_threads())


def peak_rss_mib() -> int:
    """Return the largest resident memory of this process so far, in MiB."""
    with suppress(OSError):
        status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) // 1024
    # On other systems; on Linux, this figure may be that of the parent process.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak / (1024 * 1024 if sys.platform == "darwin" else 1024))


# After evaluation: model cards with results, tables for W&B, warnings about forgetting.


def check_result_loggers(folders: Sequence[Path]) -> None:
    """Refuse runs whose results go to a logger that is not installed, before they are measured.

    Args:
        folders: the folders of the runs; ``hand_over`` reports one with unreadable settings.
    """
    for folder in folders:
        try:
            kind = setting_node(read_config(folder), "logger", folder).get("kind")
        except UserError:
            continue
        if kind == "wandb":  # the other loggers get only curves
            try:
                check_logger(kind)
            except UserError as error:
                raise UserError(f"{folder} was trained with logger={kind}: {error}") from error


def publish_runs(folders: Sequence[Path], experiment: Path | None) -> None:
    """Add results and the report to the runs of W&B whose training was logged there.

    Args:
        experiment: the folder with the table and the report; ``None`` without one.
    """
    for folder in folders:
        logger = setting_node(read_config(folder), "logger", folder)
        if logger.get("kind") == "wandb":  # the other loggers get only curves
            from cfaug.train.wandb_runs import publish

            publish(build_untrusted(logger), folder, experiment)


def hand_over(
    experiment: Path, folders: Sequence[Path], threshold: float | None
) -> dict[str, list[str]]:
    """Write each run's model card, and warn on stderr of arms that forgot something.

    Args:
        experiment: the folder of the runs' arms.
        threshold: decrease of accuracy or recall@1 beyond which a warning is printed; ``None``
            prints none.

    Returns:
        {benchmark: its warnings}.
    """
    from cfaug.report.checkpoint_tables import alarms, changes, initial_values, unshown_falls
    from cfaug.train.card import write_card

    initial = initial_values(experiment)
    kept = {run.folder for run in same_identity([read_run(folder) for folder in folders])[0]}
    deltas, edited = [], []
    for folder in folders:
        try:
            run_deltas = changes(folder, initial)
        except UserError:
            continue  # its damaged results were reported when it was evaluated
        edited.append(write_card(folder, run_deltas, threshold))
        if folder in kept:
            deltas += run_deltas
    cards = [card for card in edited if card is not None]
    if cards:
        say(
            f"kept as edited, or as an earlier version wrote it, without these results: "
            f"{name_some(cards)}; remove the file and evaluate again for a new card"
        )
    if threshold is None:
        return {}
    warned = alarms(deltas, threshold)
    for line in (*(line for some in warned.values() for line in some),
                 *unshown_falls(deltas, threshold)):  # fmt: skip
        say(line)
    return warned
