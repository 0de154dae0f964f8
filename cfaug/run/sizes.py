"""Compare the numbers of training examples of the arms of a sweep."""

from __future__ import annotations

from collections.abc import Sequence

from cfaug.run.run_plan import TrainJob


def unequal_sizes(jobs: Sequence[TrainJob]) -> list[str]:
    """Warn if arms of one experiment differ in their number of training examples.

    With ``data.size=null`` every arm takes as many examples as it can, which depends on its ratio.
    Arms with a given size, or a size from a plan, are as intended.

    Args:
        jobs: the runs of a sweep.

    Returns:
        A sentence for each such experiment.
    """
    experiments: dict[str, dict[str, TrainJob]] = {}
    for job in jobs:
        size = job.task.unasked_size
        if size is not None and job.task.trainer.max_steps != 0:
            arms = experiments.setdefault(job.settings.name, {})
            arms.setdefault(job.folder.path.parent.name, job)
    said = []
    for experiment, arms in experiments.items():
        trained = {arm: job.task.counts["train"] for arm, job in arms.items()}
        least, most = (find(trained, key=trained.__getitem__) for find in (min, max))
        if trained[least] == trained[most]:
            continue
        size = min(job.task.unasked_size or 0 for job in arms.values())
        said.append(
            f"the arms of {experiment} differ in their number of training examples, from "
            f"{trained[least]:,} ({least}) to {trained[most]:,} ({most}): data.size={size} is the "
            "largest that all of them can have"
        )
    return said
