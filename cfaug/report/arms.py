"""The arms of an experiment: their records, which runs belong to each, and their labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cfaug.report.records import Run

# The record of an experiment's arm: the training data of its runs, read from ``run.json``.
#
# An arm's name is for people, and is the name of its folder; it is never parsed.

RATIO, PAIRS_IN_BATCH = "data.cf_ratio", "data.pairs_in_batch"
SHUFFLED = "shuffled"
"""``data.counterfactual_captions`` of an arm whose captions do not say what was edited."""
SINGLES = "singles"
"""A control without pairs: ``data.counterfactual_members`` of single images, or one of each set."""
ORIGINALS = "originals"
"""A control trained on the originals of pairs, with ``data.negatives`` none, text or image."""


@dataclass(frozen=True)
class Arm:
    """The properties that the runs of an arm have in common.

    Attributes:
        cf_ratio: share of counterfactual examples in training; ``None`` if the record lacks it.
        source: source of the counterfactual examples, the value of ``data.counterfactual``; empty
            if there were none.
        control: kind of control: ``real`` or ``counterfactual``, the source that replaces a plan's
            examples (``data.control``); ``singles`` for single images in place of pairs;
            ``shuffled`` for captions permuted within their sets; ``originals`` for the originals of
            pairs in place of both members; ``None`` for no control.
        pairs_in_batch: whether the members of a set were kept in one batch.
        settings: settings that define the arm, by dotted name, without those that depend on the
            seed.
        train_sizes: numbers of training examples over the runs.
    """

    name: str
    trained: bool = True
    cf_ratio: float | None = None
    source: str = ""
    control: str | None = None
    pairs_in_batch: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    train_sizes: frozenset[int] = frozenset()

    def differs_only_in(self, setting: str, other: Arm) -> bool:
        """Return whether two arms share their source and every setting but one.

        An arm without counterfactual examples matches any source.
        """
        if self.source and other.source and self.source != other.source:
            return False
        ours, theirs = (
            {name: value for name, value in arm.settings.items() if name != setting}
            for arm in (self, other)
        )
        return ours == theirs


def names_an_arm(setting: str) -> bool:
    """Return whether a setting of an identity distinguishes arms: hashes and seeds do not."""
    return setting not in (*VARY, "data.world.seed") and not setting.startswith("content.")


def read_arms(runs: Iterable[Run]) -> dict[str, Arm]:
    """Return the arms of an experiment by name, in order of appearance.

    Args:
        runs: runs of any arms; all runs of an arm have one identity, see ``same_identity``.
    """
    by_arm: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        by_arm.setdefault(run.arm, []).append(run.record)
    arms = {}
    for name, records in by_arm.items():
        first = records[0]
        identity = first.get("identity") or {}
        counts = [(record.get("counts") or {}).get("train") for record in records]
        members = identity.get("data.counterfactual_members")
        ratio, source = first.get("cf_ratio"), first.get("sources")
        for key in ("counterfactual", "source"):
            source = source.get(key) if isinstance(source, Mapping) else None
        arms[name] = Arm(
            name=name,
            # Without steps in its record, the arm counts as trained and needs every seed.
            trained=any(record.get("steps") is None or record["steps"] > 0 for record in records),
            cf_ratio=None if ratio is None else float(ratio),
            source=str(source or "") if ratio else "",
            control=identity.get("data.control")
            or (SINGLES if members in (SINGLES, "one") else None)
            or (SHUFFLED if identity.get("data.counterfactual_captions") == SHUFFLED else None)
            or (ORIGINALS if identity.get("data.negatives") in ("none", "text", "image") else None),
            pairs_in_batch=bool(identity.get(PAIRS_IN_BATCH)),
            settings={key: value for key, value in identity.items() if names_an_arm(key)},
            train_sizes=frozenset(count for count in counts if count is not None),
        )
    return arms


# Group runs into arms: by identity, apart from the settings that depend on the seed.

NAMED = 3
"""Differing settings that one message names."""
VARY = ("seed", "data.seed")
"""Settings that always differ between the runs of one arm."""
CONTENT = {
    "data.real": "content.real", "data.counterfactual": "content.counterfactual",
    "data.control_source": "content.control", "data.human_labels": "content.labels",
    "model.weights": "content.weights",
}  # fmt: skip
"""The content hash that an identity contains in place of each setting that is a path."""
CUT = re.compile(r",\d+-more-[0-9a-f]{8}\Z")
"""The end of an arm's name without all its settings: how many there are more, and a hash of all."""
ABSENT = "(absent)"
"""Shown in messages for a setting that an identity lacks."""


def same_identity(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """Keep each arm's runs with its most frequent identity; on a tie, that of the lowest seed.

    Returns:
        The runs that are kept, in their order, and a sentence for each of the others.
    """
    arms: dict[str, list[Run]] = {}
    for run in runs:
        arms.setdefault(run.arm, []).append(run)
    dropped: set[Path] = set()
    left_out = []

    def short(value: Any) -> str:
        text = str(value)
        return text if len(text) <= 24 else f"{text[:12]}..."

    for arm, arm_runs in arms.items():
        identities = {run.folder: arm_identity(run.record) for run in arm_runs}
        alike = {
            run.folder: sum(
                not differences(other, identities[run.folder]) for other in identities.values()
            )
            for run in arm_runs
        }
        usual = identities[min(arm_runs, key=lambda run: (-alike[run.folder], run.seed)).folder]
        for run in arm_runs:
            identity = identities[run.folder]
            keys = differences(identity, usual)
            if not keys:
                continue
            dropped.add(run.folder)
            named = "; ".join(
                f"{key} is {short(identity.get(key, ABSENT))}, not {short(usual.get(key, ABSENT))}"
                for key in keys[:NAMED]
            )
            more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
            left_out.append(
                f"left out, unlike the other runs of {arm}: {run.folder} ({named}{more})"
            )
    return [run for run in runs if run.folder not in dropped], left_out


def arm_identity(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity that an arm's runs share, without settings that depend on the seed.

    A run records in ``by_seed`` which of its settings depend on the seed and how: the weights of
    ``model=tiny_clips``, or a world without a seed of its own.
    """
    identity = record.get("identity") or {}
    by_seed = record.get("by_seed") or {}
    gone = {*VARY, *by_seed, *(CONTENT[name] for name in by_seed if name in CONTENT)}
    shared = {name: value for name, value in identity.items() if name not in gone}
    return {**shared, **{name: rule for name, rule in by_seed.items() if name not in VARY}}


def differences(identity: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the keys in which two identities differ."""

    def alike(first: Any, second: Any) -> bool:
        return first == second or repr(first) == repr(second)  # NaN does not equal itself

    return [
        key
        for key in sorted({*identity, *other})
        if not alike(identity.get(key, ABSENT), other.get(key, ABSENT))
    ]


# Short labels of arms in tables: only what distinguishes an arm from the others.


def arm_labels(arms: Mapping[str, Arm], names: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a distinct label for every arm.

    An arm that was named by hand keeps its name, or gets the label given for it. A name made from
    settings loses those that all such names share; settings missing from a shortened name are taken
    from the arm's record.

    Args:
        names: labels of arms that have one of their own, by the arm's name or by the label that it
            would have without this.

    >>> arm_labels({name: Arm(name) for name in ("size=5,lr=0.1", "size=6,lr=0.1")})
    {'size=5,lr=0.1': 'size=5', 'size=6,lr=0.1': 'size=6'}
    """
    given = names or {}
    by_settings = {arm: details for arm, details in arms.items() if "=" in arm}
    pieces = {arm: _pieces(arm) for arm in by_settings}
    if any(map(_is_cut, by_settings)):
        # Settings that are known to be equal are dropped; those that differ but are missing from a
        # cut name are added.
        differing = differing_settings(by_settings)
        recorded = [{_shorten(key) for key in arm.settings} for arm in by_settings.values()]
        equal = set.intersection(*recorded) - {
            _shorten(key) for settings in differing.values() for key in settings
        }
        for arm, settings in pieces.items():
            pieces[arm] = {k: v for k, v in settings.items() if k not in equal}
        for arm, settings in differing.items():
            more = {_shorten(key): value for key, value in settings.items()}
            shown = {key.partition(".")[0] for key in pieces[arm]}
            pieces[arm] |= {k: v for k, v in more.items() if k.partition(".")[0] not in shown}
    shared: set[tuple[str, str]] = set()
    if len(pieces) > 1:
        shared = set.intersection(*(set(settings.items()) for settings in pieces.values()))
    labels = {arm: given.get(arm, arm) for arm in arms}
    for arm, settings in pieces.items():
        kept = [f"{k}={v}" for k, v in settings.items() if k and (k, v) not in shared]
        label = _with_text(settings.get("", ""), kept) or arm
        labels[arm] = given.get(arm, given.get(label, label))
    # Equal labels become full names, which may equal the label of another arm.
    while True:
        times = Counter(labels.values())
        alike = [arm for arm, label in labels.items() if times[label] > 1 and label != arm]
        if not alike:
            return labels
        labels |= {arm: arm for arm in alike}


def _with_text(text: str, settings: Sequence[str]) -> str:
    """Return the text before an arm's settings, joined with the settings that are shown.

    >>> _with_text("base", ["lr=1"]), _with_text("demo-", ["lr=1"]), _with_text("demo-", [])
    ('base,lr=1', 'demo-lr=1', 'demo')
    """
    if text.endswith("-") and settings:
        return text + ",".join(settings)
    return ",".join([*([text.rstrip("-")] if text else []), *settings])


def full_names(labels: Mapping[str, str], arms: Iterable[str]) -> str:
    """Return a sentence with the full names of arms that have another label, or nothing."""
    called = [f"{labels[arm]}: {arm}" for arm in arms if labels.get(arm, arm) != arm]
    return f"Arms by their full names: {'; '.join(called)}." if called else ""


def _is_cut(arm: str) -> bool:
    """Return whether a name ends with the number of the settings that it leaves out."""
    return CUT.search(arm) is not None


def _pieces(arm: str) -> dict[str, str]:
    """Return the settings in an arm's name, and under ``""`` the text before them.

    >>> _pieces("base,lr=1,size=5"), _pieces("demo-lr=1")
    ({'': 'base', 'lr': '1', 'size': '5'}, {'': 'demo-', 'lr': '1'})
    """
    parts = arm.split(",")
    if _is_cut(arm):
        parts.pop()  # the number of further settings, and the hash
    settings: dict[str, str] = {}
    last = ""
    for part in parts:
        key, equals, value = part.partition("=")
        if equals and not settings:  # an experiment's name stands before the arms of several
            experiment, dash, key = key.rpartition("-")
            settings |= {"": experiment + dash} if dash else {}
        if equals:
            last, settings[key] = key, value
        else:  # a comma within a value, or the given name
            settings[last] = f"{settings[last]},{part}" if last in settings else part
    return settings


def unnamed_settings(arms: Mapping[str, Arm]) -> dict[str, dict[str, str]]:
    """Return the settings, other than data's, in which arms differ but which no name shows.

    Returns:
        {setting: {arm: its value}}, of the arms whose record has it.
    """
    named = {key for arm in arms if "=" in arm for key in _pieces(arm)}
    unnamed: dict[str, dict[str, str]] = {}
    for arm, settings in differing_settings(arms).items():
        for key, value in settings.items():
            if not key.startswith("data.") and not {key, _shorten(key)} & named:
                unnamed.setdefault(key, {})[arm] = value
    return unnamed


def differing_settings(arms: Mapping[str, Arm]) -> dict[str, dict[str, str]]:
    """Return {arm: {setting: value}} of the settings in which arms with a record differ."""
    known = {
        name: {key: str(value) for key, value in arm.settings.items()}
        for name, arm in arms.items()
        if arm.settings
    }
    keys = sorted(set().union(*known.values()))
    differ = [key for key in keys if len({settings.get(key) for settings in known.values()}) > 1]
    return {
        arm: {key: settings[key] for key in differ if key in settings}
        for arm, settings in known.items()
    }


def _shorten(key: str) -> str:
    """Return a setting without its group, if names of arms omit it."""
    head, dot, name = key.partition(".")
    return name if dot and head in ("data", "trainer", "optim") else key
