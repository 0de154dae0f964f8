"""A run is identified by what was asked: its folder, its hash, and who may write there.

``<runs>/<experiment>/<arm>/seed=<seed>/run.json`` says what a folder holds. The same hash and done
is skipped, the same hash unfinished is resumed, another hash is refused with the difference.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from cfaug.errors import UserError
from cfaug.files import write_json
from cfaug.locks import hold_lock
from cfaug.renames import old_key, old_word, update_record
from cfaug.report.identities import ABSENT, CONTENT, by_different_rules
from cfaug.report.records import check_record
from cfaug.report.results import read_record
from cfaug.run.arguments import flatten
from cfaug.run.names import check_arm, check_owner, clean_name
from cfaug.world_source import is_world

NOT_A_RESULT = (
    "paths", "logger", "name", "arm", "dry_run", "overwrite", "part", "parts", "parallel",
    "on_error", "share_image_cache", "image_cache_mib", "extend", "threads", "data.workers",
    "trainer.devices", "trainer.num_nodes", "trainer.accelerator", "trainer.device",
    "trainer.save_every_steps", "trainer.save_every_minutes", "trainer.keep_last",
    "trainer.log_every_steps", "trainer.progress",
)  # fmt: skip
"""Settings that change where, how fast or how often, but never what comes out."""

REPLACED_BY_CONTENT = (
    "data.real", "data.counterfactual", "data.human_labels", "data.control_source",
    "data.edits", "data.prompts", "data.format", "model.name_or_path", "model.pretrained",
)  # fmt: skip
"""Settings whose content is hashed in their place: the same bytes elsewhere are the same run."""

NEUTRAL: Mapping[str, Any] = MappingProxyType(
    {
        "data.control": None, "data.plan": None, "data.real_captions": "all",
        "data.split": "group", "data.counterfactual_holdout": 0, "data.holdout": 0,
        "data.world.shortcut": "background", "data.world.domains": ["photo"],
        "model.geometry": None, "optim.decay_rule": "matrices", "optim.layer_decay": None,
        "optim.warmup_ratio": None, "trainer.accumulate_grad_batches": 1,
        "trainer.micro_batch_size": None, "trainer.early_stopping": None,
    }
)  # fmt: skip
"""Settings left out at these values, at which they change nothing: a run that was finished before
there was such a setting is still the same run."""

LENGTH = ("trainer.max_steps", "trainer.max_epochs", "trainer.early_stopping")
"""Settings in which a run may differ from what it is extended to."""

EXTENDED = "extended_from"
"""Key of an identity: the steps after which a run was extended, each time."""

SHORT = {"data", "trainer", "optim"}
"""Groups left out of a slug, where ``cf_ratio=0.6`` says enough."""

Verdict = Literal["new", "resume", "done"]


def _is_under(key: str, names: Sequence[str]) -> bool:
    return any(key == name or key.startswith(name + ".") for name in names)


def arm_folder(experiment: Path, overrides: Sequence[str], config: Mapping[str, Any]) -> Path:
    """Return the folder of an arm; one that was named when settings had other names keeps its name.

    Args:
        experiment: the folder of its arms.
        overrides: as for ``arm_slug``.
        config: as for ``arm_slug``.
    """
    folder = experiment / arm_slug(overrides, config)
    typed = [old_word(word, "train") for word in overrides]
    former = experiment / arm_slug(typed, config, named=lambda key: old_key(key, "train"))
    return former if former.exists() and not folder.exists() else folder


def arm_slug(
    overrides: Sequence[str],
    config: Mapping[str, Any],
    named: Callable[[str], str] = lambda key: key,
) -> str:
    """Name the arm after every override that changes the result.

    Args:
        overrides: as typed.
        config: the resolved configuration.
        named: gives the name of a setting in the slug.

    >>> arm_slug(["data.cf_ratio=.6", "seed=107"], {"data": {"cf_ratio": 0.6}, "arm": None})
    'cf_ratio=0.6'
    >>> arm_slug(["seed=1", "data.workers=2"], {"data": {"workers": 2}, "arm": None})
    'default'

    Raises:
        UserError: for an ``arm`` that leaves no name of a folder.
    """
    keys = [override.split("=", 1)[0].lstrip("+~") for override in overrides]
    if config.get("arm") is not None:
        check_arm(config["arm"])
        if "arm" in keys:
            return clean_name(config["arm"])
    flat = flatten(config)
    pieces = {}
    for key, override in zip(keys, overrides, strict=True):
        if key in {"seed", "experiment", "scale"} or _is_under(key, NOT_A_RESULT):
            continue
        head, _, tail = named(key).partition(".")
        name = tail if head in SHORT and tail not in {"", "seed"} else named(key)
        value = flat.get(key, override.partition("=")[2])
        pieces[name] = Path(str(value)).name if key in REPLACED_BY_CONTENT else value
    parts = [str(config["arm"])] if config.get("arm") else []
    parts += [f"{name}={value}" for name, value in sorted(pieces.items())]
    return clean_name(",".join(parts) or "default")


def identity(config: Mapping[str, Any], content: Mapping[str, str]) -> dict[str, Any]:
    """Return what ``config_hash`` is the hash of: settings that change the result, and content.

    Args:
        config: the resolved configuration.
        content: hash of each index and of the initial weights, by name.
    """
    left_out = (*NOT_A_RESULT, *REPLACED_BY_CONTENT)
    settings = {
        k: v
        for k, v in flatten(config).items()
        if not _is_under(k, left_out) and not (k in NEUTRAL and v == NEUTRAL[k])
    }
    return {**settings, **_content(content)}


def _content(hashes: Mapping[str, str]) -> dict[str, str]:
    return {f"content.{name}": value for name, value in hashes.items()}


def older_content(hashes: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an identity that an older rule made otherwise.

    Args:
        hashes: of each index by the older rule, by name, as ``identity`` takes them.
    """
    return _content(hashes)


def what_follows_the_seed(written: Mapping[str, str], data: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that differ between the seeds of one arm, as they are written.

    Args:
        written: ``${alternate:${seed},[a,b]}`` and the like, by the setting's dotted name.
        data: the node ``data``; a world without a seed of its own is drawn anew for every seed.
    """
    found = {key: rule for key, rule in written.items() if not _is_under(key, NOT_A_RESULT)}
    world = data.get("world")
    if isinstance(world, Mapping) and world.get("seed") is None:
        for key in CONTENT:
            name = data.get(key.removeprefix("data."))
            if isinstance(name, str) and is_world(name):
                found.setdefault(key, name)
    return found


def config_hash(what: Mapping[str, Any]) -> str:
    """Return the sha256 of an identity, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def _as_texts(what: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in what.items()}


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run and the identity it must have.

    Attributes:
        path: of the folder.
        identity: as ``identity`` gives it.
        older: those of its values that an older rule made otherwise, by that rule: a run that was
            made then is still this run.
        replaces: hash of the finished run that this one goes on from (``extend=true``).
        arm: the arm's name as given by hand; ``None`` where its settings name it.
    """

    path: Path
    identity: Mapping[str, Any]
    older: Mapping[str, str] = field(default_factory=dict)
    replaces: str | None = None
    arm: str | None = None

    @property
    def hash(self) -> str:
        """The ``config_hash``."""
        return config_hash(self.identity)

    def verdict(self, overwrite: bool) -> Verdict:
        """Say what is to be done with this folder; changes nothing.

        Raises:
            UserError: if another configuration's run lies there: the difference and two ways out;
                if its record is damaged: the way out; if the folder is another arm's.
        """
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
            if self._took_no_step(record):
                return "new"
            raise UserError(self.difference(record.get("identity") or {}))
        return "done" if record.get("state") == "done" else "resume"

    def state(self) -> str:
        """Return what lies here: absent, other (another configuration's), done, failed, or cut off.

        At work is what a process of this machine holds; unreadable, a damaged record; to extend, a
        shorter run that this one goes on from.
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
            return "absent" if self._took_no_step(record) else "other"
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
        """Say whether a record is of the finished run that this one goes on from."""
        return self.replaces is not None and record.get("config_hash") == self.replaces

    def _took_no_step(self, record: Mapping[str, Any]) -> bool:
        """Say whether a run failed before its first step, so that nothing is lost with it."""
        if record.get("state") != "failed" or self.has_checkpoint:
            return False
        curve = self.path / "metrics.csv"
        rows = curve.read_bytes().count(b"\n") if curve.exists() else 0
        return rows <= 1 and not (self.path / "last.ckpt").exists()

    def record(self) -> dict[str, Any]:
        """Read what lies here.

        Raises:
            UserError: if it cannot be read, or is no record of a run.
        """
        file = self.path / "run.json"
        record = read_record(file)
        check_record(record, file, complete=False)
        return update_record(record)

    def write_record(self, record: Mapping[str, Any]) -> None:
        """Write ``run.json`` so that a reader sees the old file or the new one."""
        write_json(self.path / "run.json", record, indent=2, sort_keys=False)

    def _is_of(self, record: Mapping[str, Any]) -> bool:
        """Say whether a record is of this run."""
        identities = (self.identity, {**self.identity, **self.older})
        if record.get("config_hash") in [config_hash(one) for one in identities]:
            return True
        other = record.get("identity")  # of a time when trainer.precision=32 was a number
        texts = [_as_texts(one) for one in identities]
        return isinstance(other, Mapping) and _as_texts(other) in texts

    def differing(self, other: Mapping[str, Any]) -> list[str]:
        """Return the keys whose values differ from another identity's, by either rule."""
        return [
            key
            for key in sorted({*other, *self.identity})
            if str(other.get(key, ABSENT)) != str(self.identity.get(key, ABSENT))
            and (key not in other or other[key] != self.older.get(key))
        ]

    def difference(self, other: Mapping[str, Any]) -> str:
        """Say how another identity, which lies here, differs, and what to do about it."""
        lines = [
            f"  {key}: there {other.get(key, ABSENT)!r}, asked {self.identity.get(key, ABSENT)!r}"
            for key in self.differing(other)
        ]
        return "\n".join(
            [
                f"{self.path} holds a run of another configuration:",
                *lines,
                *self._of_rules(other),
                "Two ways out: overwrite=true starts anew there (the old run is removed), "
                "or arm=NAME (or name=NAME) puts this run elsewhere.",
                *self._way_on(other),
            ]
        )

    def _way_on(self, other: Mapping[str, Any]) -> list[str]:
        """Name ``extend=true`` where nothing but the length differs."""
        if not set(self.differing(other)) <= {*LENGTH, EXTENDED}:
            return []
        return [
            "A third, if its last state was kept (trainer.keep_last=true): extend=true goes on "
            "from there to more steps."
        ]

    def _of_rules(self, other: Mapping[str, Any]) -> list[str]:
        """Explain hashes of content that cannot be compared because their rules differ."""
        keys = [
            key
            for key, value in self.identity.items()
            if by_different_rules(key, value, other.get(key))
            and self.older.get(key) != other.get(key)
        ]
        if not keys:
            return []
        return [
            f"({', '.join(keys)} without 2: is an older version's hash; by its rule too the data "
            "are others now: files changed, or are read otherwise than then)"
        ]

    def clear(self) -> None:
        """Remove the run that lies here; only what a run writes, never anything else."""
        for name in ("run.json", "config.yaml", "metrics.csv", "last.ckpt", "results.jsonl"):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / "checkpoint", ignore_errors=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for this process.

        Raises:
            UserError: if another process is at work there.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        busy = f"another process is at work on {self.path}: wait for it, or choose arm=NAME"
        with hold_lock(self.path / ".lock", refusal=busy):
            yield
