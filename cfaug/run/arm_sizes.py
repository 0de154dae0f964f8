"""Compare the numbers of training examples of the arms of an experiment before they are trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.core.errors import UserError
from cfaug.report.records import read_run

if TYPE_CHECKING:
    from cfaug.run.run_plan import TrainJob


SHARES = (
    "data.cf_ratio", "data.size", "data.validation", "data.holdout", "data.counterfactual_holdout",
)  # fmt: skip
"""Settings that choose training examples by their numbers alone, which are rounded."""


def unequal_sizes(jobs: Sequence[TrainJob]) -> dict[int, str]:
    """Warn if arms of one experiment differ in their number of training examples.

    With ``data.size=null`` every arm takes as many examples as it can, which depends on its ratio.
    Arms with a given size, or a size from a plan, are as intended.

    Returns:
        A sentence for each such experiment, by the largest size that all of its arms can have.
    """
    experiments: dict[str, dict[str, TrainJob]] = {}
    for job in jobs:
        size = job.task.default_size
        if size is not None and job.task.trainer.max_steps != 0:
            arms = experiments.setdefault(job.settings.name, {})
            arms.setdefault(job.folder.path.parent.name, job)
    messages = {}
    for experiment, arms in experiments.items():
        trained = {arm: job.task.counts["train"] for arm, job in arms.items()}
        least, most = (find(trained, key=trained.__getitem__) for find in (min, max))
        if trained[least] == trained[most]:
            continue
        size = min(job.task.default_size or 0 for job in arms.values())
        messages[size] = (
            f"the arms of {experiment} differ in their number of training examples, from "
            f"{trained[least]:,} ({least}) to {trained[most]:,} ({most}): data.size={size} is the "
            "largest that all of them can have"
        )
    return messages


def equal_data(jobs: Sequence[TrainJob]) -> list[str]:
    """Warn if arms of one experiment train on the same data though their shares differ.

    Shares are rounded to whole examples, so that 0.6 and 0.601 of a small source are the same
    examples in the same order, and both arms become the same model. Arms that an earlier command
    trained count as well.

    Returns:
        A sentence for each arm that equals an earlier one.
    """
    messages: dict[str, None] = {}
    folders = {job.folder.path for job in jobs}
    recorded = cache(_recorded)  # every arm of a seed asks for the same
    for place, planned in enumerate(jobs):
        if planned.task.trainer.max_steps == 0:
            continue
        folder = planned.folder.path
        others = [
            (job.folder.path, job.folder.identity, job.task.counts)
            for job in jobs[:place]
            if job.folder.path.name == folder.name  # the seed
            and job.folder.path.parent.parent == folder.parent.parent
        ]
        before = recorded(folder.parent.parent, folder.name)
        ours, taken = planned.folder.identity, planned.task.counts
        for other, theirs, counts in (*others, *(run for run in before if run[0] not in folders)):
            differing = [
                key
                for key in dict.fromkeys((*theirs, *ours))
                if (key in theirs, theirs.get(key)) != (key in ours, ours.get(key))
            ]
            if not differing or not set(differing) <= set(SHARES) or dict(taken) != dict(counts):
                continue
            their_shares, our_shares = (
                " ".join(
                    f"{key}={'null' if values.get(key) is None else values[key]}"
                    for key in differing
                )
                for values in (theirs, ours)
            )
            kinds = [kind for kind in ("real", "counterfactual") if kind in taken]
            numbers = ", ".join(f"{taken[kind]:,} {kind}" for kind in kinds)
            message = (
                f"warning: {their_shares} ({other.parent.name}) and {our_shares} "
                f"({folder.parent.name}) train on exactly the same numbers of examples "
                f"({numbers}), as shares are rounded to whole examples: they are one arm twice and "
                "become the same model. Choose shares that are further apart, a larger data.size, "
                "or one of them"
            )
            messages[message] = None
            break
    return list(messages)


def _recorded(
    experiment: Path, seed: str
) -> list[tuple[Path, Mapping[str, Any], Mapping[str, int]]]:
    """Return (folder, identity, counts) of an experiment's trained runs of a seed."""
    runs = []
    for file in sorted(experiment.glob(f"*/{seed}/run.json")):
        with suppress(UserError):  # a damaged record is said where that run is read
            record = read_run(file.parent).record
            if record.get("steps"):
                runs.append((file.parent, record.get("identity") or {}, record.get("counts") or {}))
    return runs
