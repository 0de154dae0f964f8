"""What a run's folder says: ``run.json`` and results, checked; and which runs make up an arm.

``<runs>/<experiment>/<arm>/seed=<seed>/``: experiment and arm are the folder's place, whatever its
files say, so that either may be renamed, moved and copied.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cfaug.errors import UserError
from cfaug.files import require_regular
from cfaug.messages import visible
from cfaug.renames import update_record, update_settings
from cfaug.report.results import RECORD, RESULTS, Result, read_record, read_results

CONFIG = "config.yaml"
STATES = ("running", "done", "failed")
SEED = re.compile(r"seed=(-?\d+)")
NAMED = 3
"""Differing settings that one message names."""

VARY = ("seed", "data.seed")
"""Settings that differ between the runs of one arm by their nature."""

CONTENT = {
    "data.real": "content.real", "data.counterfactual": "content.counterfactual",
    "data.control_source": "content.control", "data.human_labels": "content.labels",
    "model.name_or_path": "content.weights", "model.pretrained": "content.weights",
}  # fmt: skip
"""What the identity of a run holds in place of a path."""


INDEXED = ("content.real", "content.counterfactual", "content.control")
"""Hashes of an index's content, before which the rule stands that they were made by."""

ABSENT = "(absent)"
"""Stands in messages for a setting that an identity lacks."""


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _count(value: Any) -> bool:
    return _whole(value) and value >= 0


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _counts(value: Any) -> bool:
    return _object(value) and all(map(_count, value.values()))


REQUIRED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "state": (lambda value: value in STATES, " or ".join(STATES)),
    "seed": (_whole, "a whole number"),
}
OPTIONAL: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "experiment": (_text, "a text"),
    "arm": (_text, "a text"),
    "config_hash": (_text, "a text"),
    "data_seed": (_whole, "a whole number"),
    "cf_ratio": (_number, "a number"),
    "counts": (_counts, "an object of whole numbers"),
    "steps": (_count, "a whole number"),
    "threads": (_whole, "a whole number"),
    "wall_s": (_number, "a number"),
    "peak_rss_mib": (_number, "a number"),
    "best": (_object, "an object"),
    "parameters": (_counts, "an object of whole numbers"),
    "hardware": (_object, "an object"),
    "versions": (_object, "an object"),
    "identity": (_object, "an object"),
    "by_seed": (_object, "an object"),
    "attempts": (
        lambda value: isinstance(value, list) and all(map(_object, value)),
        "a list of objects",
    ),
}
"""Fields that a record may lack, or hold null for: not known, or not yet."""


@dataclass(frozen=True)
class Run:
    """A run on disk.

    Attributes:
        folder: as it was named.
        experiment: the name of the folder of arms it lies in.
        arm: the name of the folder of seeds it lies in.
        record: the content of ``run.json``, with this experiment and arm.
    """

    folder: Path
    experiment: str
    arm: str
    record: Mapping[str, Any]

    @property
    def seed(self) -> int:
        """The seed it was trained with."""
        return int(self.record["seed"])

    @property
    def done(self) -> bool:
        """Whether it was finished."""
        return bool(self.record["state"] == "done")

    def results(self) -> list[Result]:
        """Return its results, under the names that its place gives them; none if it has no file.

        Raises:
            UserError: if the file cannot be read, or holds rows of another seed.
        """
        file = self.folder / RESULTS
        rows = read_results(file) if file.exists() else []
        others = {row.seed for row in rows} - {self.seed}
        if others:
            raise UserError(
                f"{file} holds rows of seed {min(others)}, but the run is of seed {self.seed}: the "
                "file was copied here; remove it, and evaluate the run again"
            )
        name = f"{self.experiment}/{self.arm}/seed={self.seed}"
        return [replace(row, run=name, arm=self.arm) for row in rows]


def experiment_folder(folder: Path) -> Path:
    """Return the folder of arms that a run's folder lies in."""
    return folder.parent.parent if len(folder.parts) > 2 else folder.absolute().parent.parent


def read_run(folder: Path) -> Run:
    """Read ``run.json`` of a run's folder, under the present names of settings and classes.

    Raises:
        UserError: naming the file and the field, if it is missing, damaged, or another seed's.
    """
    file = folder / RECORD
    record = read_record(file)
    check_record(record, file)
    named = SEED.fullmatch(folder.absolute().name)
    if named and int(named[1]) != record["seed"]:
        raise UserError(
            f"{folder} holds seed {record['seed']}, not its own: it was copied or renamed; remove "
            "it, and train and evaluate that seed"
        )
    arm = folder.absolute().parent
    for name in (arm.name, arm.parent.name):
        if name != visible(name):
            raise UserError(f"{folder}: a folder's name holds control characters: rename it")
    places = {"experiment": arm.parent.name, "arm": arm.name}
    return Run(folder, arm.parent.name, arm.name, {**update_record(record), **places})


def check_record(record: Mapping[str, Any], file: Path, *, complete: bool = True) -> None:
    """Refuse a record with a field of the wrong type.

    Args:
        record: the content of ``run.json``.
        file: its path, for the message.
        complete: whether the fields that every run has must be there.

    Raises:
        UserError: naming the field, what it holds and what it should.
    """
    for name, (fits, kind) in {**REQUIRED, **OPTIONAL}.items():
        value = record.get(name)
        if value is None and name in OPTIONAL:
            continue
        if name not in record:
            if not complete:
                continue
            raise UserError(f"{file}: {name!r} is missing; it should be {kind}")
        if not fits(value):
            raise UserError(f"{file}: {name!r} is {_shown(value)}; it should be {kind}")


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def read_config(folder: Path) -> dict[str, Any]:
    """Read the settings of a run, ``config.yaml``, under the present names of settings and classes.

    Raises:
        UserError: if it cannot be read, or is not a mapping of names to values.
    """
    import yaml

    file = folder / CONFIG
    try:
        content = yaml.safe_load(require_regular(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{file} should hold the run's settings")
    return update_settings(content, "train")


def setting_node(config: Mapping[str, Any], name: str, folder: Path) -> dict[str, Any]:
    """Return one group of a run's settings.

    Args:
        config: what ``read_config`` returned.
        name: of the group, such as ``model``.
        folder: of the run, for the message.

    Raises:
        UserError: if the group is missing, or not a mapping.
    """
    node = config.get(name)
    if not isinstance(node, dict):
        raise UserError(f"{folder / CONFIG}: {name!r} is {_shown(node)}; it should be a group")
    return node


@dataclass(frozen=True)
class Collected:
    """The runs of one experiment that its table is made of.

    Attributes:
        runs: finished, each arm's of one identity.
        rows: their results.
        left_out: which runs were left out and why, a sentence each.
    """

    runs: Sequence[Run]
    rows: Sequence[Result]
    left_out: Sequence[str]

    @property
    def records(self) -> list[Mapping[str, Any]]:
        """The content of each ``run.json``."""
        return [run.record for run in self.runs]


def collect(folders: Iterable[Path]) -> Collected:
    """Read the runs and the results that a table may be made of.

    Left out are runs that are not finished or cannot be read, and those that differ from the other
    runs of their arm. Runs without results are passed over.

    Args:
        folders: of runs.

    Raises:
        UserError: naming two folders that both claim to be the same arm and seed: two experiments
            in one table would be averaged as one.
    """
    found: list[tuple[Run, list[Result]]] = []
    left_out: list[str] = []
    claimed: dict[tuple[str, int], Path] = {}
    for folder in folders:
        try:
            run = read_run(folder)
            rows = run.results()
        except UserError as error:
            left_out.append(f"left out, not readable: {error}")
            continue
        if not run.done:
            left_out.append(f"left out, not finished: {folder} (state: {run.record['state']})")
        elif rows:
            other = claimed.setdefault((run.arm, run.seed), folder)
            if other is not folder:
                raise UserError(
                    f"{other} and {folder} both hold arm {run.arm!r}, seed {run.seed}: compare "
                    "one experiment at a time"
                )
            found.append((run, rows))
    kept, others = same_identity([run for run, _ in found])
    chosen = {run.folder for run in kept}
    rows = [row for run, some in found if run.folder in chosen for row in some]
    return Collected(kept, rows, [*left_out, *others])


def same_identity(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """Keep of each arm the runs of its most frequent identity; at a tie, that of the lowest seed.

    Args:
        runs: of any arms of one experiment.

    Returns:
        The runs that are kept, in their order, and a sentence on each of the others.
    """
    arms: dict[str, list[Run]] = {}
    for run in runs:
        arms.setdefault(run.arm, []).append(run)
    dropped: set[Path] = set()
    left_out = []
    for arm, own in arms.items():
        what = _identities(own)
        usual = what[min(own, key=lambda run: (-_frequency(what, run), run.seed)).folder]
        for run in own:
            if differences(what[run.folder], usual):
                dropped.add(run.folder)
                differs = _told(what[run.folder], usual)
                left_out.append(
                    f"left out, unlike the other runs of {arm}: {run.folder} ({differs})"
                )
    return [run for run in runs if run.folder not in dropped], left_out


def _frequency(what: Mapping[Path, Mapping[str, Any]], run: Run) -> int:
    """Return how many runs have one identity with this one."""
    return sum(not differences(other, what[run.folder]) for other in what.values())


def _identities(runs: Sequence[Run]) -> dict[Path, dict[str, Any]]:
    """Return the arm's identity by each of its runs, all by one rule."""
    old = any("by_seed" not in run.record for run in runs)
    return {run.folder: arm_identity(run.record, guess=old) for run in runs}


def arm_identity(record: Mapping[str, Any], *, guess: bool = False) -> dict[str, Any]:
    """Return what the runs of one arm share: the identity, without what follows the seed.

    A run says in ``by_seed`` which of its settings follow the seed and how: the weights of
    ``model=tiny_clips``, or a world that has no seed of its own.

    Args:
        record: the content of ``run.json``.
        guess: leave out what may follow the seed, for runs made before they said so: the weights,
            and data of a world without a seed of its own.
    """
    identity = record.get("identity") or {}
    by_seed = record.get("by_seed") or {}
    if guess:
        by_seed = {"model.name_or_path": None}
        if "data.world.seed" in identity and identity["data.world.seed"] is None:
            by_seed |= dict.fromkeys(CONTENT)
    gone = {*VARY, *by_seed, *(CONTENT[name] for name in by_seed if name in CONTENT)}
    shared = {name: value for name, value in identity.items() if name not in gone}
    return {**shared, **{name: rule for name, rule in by_seed.items() if name not in VARY}}


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the keys by which two identities differ, as far as they can be compared.

    The hashes of one content by different rules differ, and say nothing of whether the content
    does: such a key is left out.
    """
    return [
        key
        for key in sorted({*one, *other})
        if one.get(key, ABSENT) != other.get(key, ABSENT)
        and not by_different_rules(key, one.get(key), other.get(key))
    ]


def by_different_rules(key: str, one: Any, other: Any) -> bool:
    """Say whether two values are hashes of an index's content, by two rules: ``2:`` or none."""
    if key not in INDEXED or not isinstance(one, str) or not isinstance(other, str):
        return False
    return one.rpartition(":")[0] != other.rpartition(":")[0]


def _told(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Name the settings in which a run differs from the others of its arm."""
    keys = differences(ours, theirs)
    named = [
        f"{key} is {_value(ours.get(key, ABSENT))}, not {_value(theirs.get(key, ABSENT))}"
        for key in keys[:NAMED]
    ]
    more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return "; ".join(named) + more


def _value(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 24 else f"{text[:12]}..."
