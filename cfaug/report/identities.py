"""Group runs into arms: by identity, apart from the settings that depend on the seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cfaug.report.records import Run

NAMED = 3
"""Differing settings that one message names."""

VARY = ("seed", "data.seed")
"""Settings that always differ between the runs of one arm."""

CONTENT = {
    "data.real": "content.real", "data.counterfactual": "content.counterfactual",
    "data.control_source": "content.control", "data.human_labels": "content.labels",
    "model.name_or_path": "content.weights", "model.pretrained": "content.weights",
}  # fmt: skip
"""The content hash that an identity contains in place of each setting that is a path."""


INDEXED = ("content.real", "content.counterfactual", "content.control")
"""Hashes of an index's content, prefixed by the rule that made them."""

ABSENT = "(absent)"
"""Shown in messages for a setting that an identity lacks."""


def same_identity(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """Keep each arm's runs with its most frequent identity; on a tie, that of the lowest seed.

    Args:
        runs: runs of any arms of one experiment.

    Returns:
        The runs that are kept, in their order, and a sentence for each of the others.
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
                differs = _describe_differences(what[run.folder], usual)
                left_out.append(
                    f"left out, unlike the other runs of {arm}: {run.folder} ({differs})"
                )
    return [run for run in runs if run.folder not in dropped], left_out


def _frequency(what: Mapping[Path, Mapping[str, Any]], run: Run) -> int:
    """Return how many runs have the same identity as this one."""
    return sum(not differences(other, what[run.folder]) for other in what.values())


def _identities(runs: Sequence[Run]) -> dict[Path, dict[str, Any]]:
    """Return the arm's identity by each of its runs, all by one rule."""
    old = any("by_seed" not in run.record for run in runs)
    return {run.folder: arm_identity(run.record, guess=old) for run in runs}


def arm_identity(record: Mapping[str, Any], *, guess: bool = False) -> dict[str, Any]:
    """Return the identity that an arm's runs share, without settings that depend on the seed.

    A run records in ``by_seed`` which of its settings depend on the seed and how: the weights of
    ``model=tiny_clips``, or a world without a seed of its own.

    Args:
        record: the content of ``run.json``.
        guess: whether to leave out everything that may depend on the seed, for older runs that did
            not record it: the weights, and data of a world without a seed of its own.
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
    """Return the keys in which two identities differ, as far as they are comparable.

    Hashes of the same content by different rules differ, so they do not show whether the content
    does: such a key is left out.
    """
    return [
        key
        for key in sorted({*one, *other})
        if one.get(key, ABSENT) != other.get(key, ABSENT)
        and not by_different_rules(key, one.get(key), other.get(key))
    ]


def by_different_rules(key: str, one: Any, other: Any) -> bool:
    """Return whether two values are an index's content hashes by two rules (``2:`` or none).

    Args:
        key: key of an identity.
        one: value of the first identity.
        other: value of the second identity.
    """
    if key not in INDEXED or not isinstance(one, str) or not isinstance(other, str):
        return False
    return one.rpartition(":")[0] != other.rpartition(":")[0]


def _describe_differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Name the settings in which a run differs from the rest of its arm."""
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
