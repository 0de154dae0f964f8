"""The record of an experiment's arm: the training data of its runs, read from ``run.json``.

An arm's name is for people, and is the name of its folder; it is never parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cfaug.core.errors import UserError
from cfaug.report.identities import VARY
from cfaug.report.records import CONFIG, Run, read_config

RATIO, PAIRS_IN_BATCH = "data.cf_ratio", "data.pairs_in_batch"
CAPTIONS = "data.counterfactual_captions"
SHUFFLED = "shuffled"
"""``CAPTIONS`` of an arm whose captions do not say what was edited."""
SINGLES = "singles"
"""``data.counterfactual_members`` of a source that holds no pairs."""
NEGATIVES = "data.negatives"
ORIGINALS = "originals"
"""A control trained on the originals of pairs, with ``NEGATIVES`` none, text or image."""


@dataclass(frozen=True)
class Arm:
    """The properties that the runs of an arm have in common.

    Attributes:
        name: name of the arm's folder.
        trained: whether any of its runs took a step.
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

        Args:
            setting: dotted name of the setting that may differ.
            other: the arm to compare with.
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
        runs: runs of any arms; all runs of an arm have one identity, see
            ``identities.same_identity``.
    """
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.arm, []).append(run)
    return {name: _read_arm(name, own) for name, own in found.items()}


def _read_arm(name: str, runs: Sequence[Run]) -> Arm:
    first = runs[0].record
    identity = first.get("identity") or {}
    counts = [(run.record.get("counts") or {}).get("train") for run in runs]
    members = identity.get("data.counterfactual_members")
    ratio = first.get("cf_ratio")
    return Arm(
        name=name,
        # Without steps in its record, the arm counts as trained and needs every seed.
        trained=any(run.record.get("steps") is None or run.record["steps"] > 0 for run in runs),
        cf_ratio=None if ratio is None else float(ratio),
        source=_source(runs[0]) if ratio else "",
        control=identity.get("data.control")
        or (SINGLES if members == SINGLES else None)
        or (SHUFFLED if identity.get(CAPTIONS) == SHUFFLED else None)
        or (ORIGINALS if identity.get(NEGATIVES) in ("none", "text", "image") else None),
        pairs_in_batch=bool(identity.get(PAIRS_IN_BATCH)),
        settings={key: value for key, value in identity.items() if names_an_arm(key)},
        train_sizes=frozenset(count for count in counts if count is not None),
    )


def _source(run: Run) -> str:
    """Return the counterfactual source of a run; in old records from the settings."""
    sources = run.record.get("sources")
    node = sources.get("counterfactual") if isinstance(sources, Mapping) else None
    if isinstance(node, Mapping) and node.get("source"):
        return str(node["source"])
    if not (run.folder / CONFIG).exists():
        return ""
    try:
        data = read_config(run.folder).get("data")
    except UserError:
        return ""
    return str(data.get("counterfactual") or "") if isinstance(data, Mapping) else ""
