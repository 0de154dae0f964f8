"""Planning shared by all trainings on a mixture: open the sources, report the drawn rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cfaug.data.mixture.settings import DataSettings
from cfaug.run.planned import TrainPlan, TrainRequest
from cfaug.run.readings import describe_sources
from cfaug.run.sources import (
    Opened,
    needed_sources,
    open_data,
    open_source,
    permitted_roots,
    report_held_out,
    report_join,
)

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.mixture.records import Mixture
    from cfaug.train.mixture_task import MixtureTask


def report_mixture(
    mixture: Mixture, data: DataSettings, opened: Opened, asked: TrainRequest
) -> None:
    """Print what was joined and what is held out."""
    if mixture.join is not None:
        report_join(mixture.join, opened, asked.cache)
    if mixture.held_out is not None:
        report_held_out(mixture.held_out, data)


def of_mixture(mixture: Mixture, data: DataSettings, asked: TrainRequest) -> dict[str, Any]:
    """Return the arguments of every :class:`cfaug.train.mixture_task.MixtureTask`."""
    assert data.seed is not None
    indexes = indexes_of(mixture)
    return {
        **asked.of_task(), "data_seed": data.seed, "data": data, "mixture": mixture,
        "indexes": indexes,
    }  # fmt: skip


def planned_mixture(task: MixtureTask, opened: Opened, content: Mapping[str, str]) -> TrainPlan:
    """Return a task with the part of its data that identifies its run.

    Args:
        task: the task to train.
        opened: the open sources of its data.
        content: {setting: hash of its data}.
    """
    data = task.data
    return TrainPlan(
        task=task,
        data={"seed": data.seed, "cf_ratio": data.cf_ratio, "holdout": data.holdout},
        # A plan is identified by its name, as it was before it became an object.
        hashed={"plan": None if data.plan is None else data.plan.name},
        content=content,
        older=opened.earlier,
        sources=describe_sources(data, opened),
    )


def indexes_of(mixture: Mixture) -> tuple[Index | None, Index | None]:
    """Return the indexes of the mixture's rows; a control's differ from the plan's."""
    real, counterfactual = mixture.sources
    return cast("Index | None", real), cast("Index | None", counterfactual)


def prepare_sources(runs: Sequence[tuple[DataSettings, Mapping[str, Any]]]) -> None:
    """Draw and scan the sources of a sweep on all cores, so that planning finds them on the disk.

    Args:
        runs: (data settings, paths) of each run.

    Raises:
        UserError: if a source cannot be drawn or scanned.
    """
    wanted = {}
    for settings, paths in runs:
        names = (*needed_sources(settings), settings.control_source, settings.human_labels)
        wanted[settings.seed, settings.world, names] = (settings, paths)
    if len(wanted) < 2:
        return
    # Forked before torch is imported, so a process costs next to nothing.
    with ProcessPoolExecutor(mp_context=get_context("fork")) as pool:
        for _ in pool.map(_prepare, *zip(*wanted.values(), strict=True)):
            pass


def _prepare(settings: DataSettings, paths: Mapping[str, Any]) -> None:
    open_sources(settings, paths)


def open_sources(data: DataSettings, paths: Mapping[str, Any]) -> Opened:
    """Open the sources of data settings; a part of the world is drawn on first use."""
    shards, cache, roots = Path(paths["shards"]), Path(paths["cache"]), permitted_roots(paths)

    def open_one(name: str) -> Index:
        return open_source(name, data.world, data.seed, shards, cache, roots, fetch=True)

    return open_data(data, open_one, shards)
