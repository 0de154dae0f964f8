"""Planning the training of a dual encoder: open the sources, draw the mixture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cfaug.data.feeding.set_captions import require_neutral
from cfaug.data.planning.mixture import mix
from cfaug.data.planning.records import COUNTERFACTUAL
from cfaug.data.planning.settings import DataSettings
from cfaug.errors import UserError
from cfaug.grids import NEUTRAL
from cfaug.run.planned import Asked, Planned
from cfaug.run.readings import check_sources, describe_sources
from cfaug.run.sources import (
    Opened,
    check_negatives,
    needed_sources,
    open_data,
    open_source,
    permitted_roots,
    report_held_out,
    report_join,
)
from cfaug.train.contrastive_task import ContrastiveTask

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.planning.records import Mixture
    from cfaug.train.settings import LossSettings


def plan_contrastive(data: DataSettings, asked: Asked) -> Planned:
    """Open the sources and draw the mixture; say what was joined and what is held out.

    Raises:
        UserError: for a model, settings or data that cannot make a run.
    """
    asked.model.check_trainable()
    opened = _open(data, asked.paths)
    check_sources(data, opened)
    check_negatives(opened, asked.loss)
    check_sets(data, opened, asked.loss)
    mixture = count_negatives(mix(data, opened), asked.loss)
    if mixture.join is not None:
        report_join(mixture.join, opened, asked.cache)
    if mixture.held_out is not None:
        report_held_out(mixture.held_out, data)
    assert data.seed is not None
    task = ContrastiveTask(
        **asked.of_task(), data_seed=data.seed, data=data, mixture=mixture,
        indexes=_indexes(mixture), loss=asked.loss,
    )  # fmt: skip
    return Planned(
        task=task,
        data={"seed": data.seed, "cf_ratio": data.cf_ratio, "holdout": data.holdout},
        # A plan counts by its name, as it did before it was an object.
        hashed={"plan": None if data.plan is None else data.plan.name},
        content=content_trained_with(data, opened, asked.loss),
        older=opened.earlier,
        sources=describe_sources(data, opened),
    )


def count_negatives(mixture: Mixture, loss: LossSettings | None) -> Mixture:
    """Count the captions without an image that are trained against, where there are any."""
    if loss is None or loss.negative_captions != "used":
        return mixture
    indexes = _indexes(mixture)
    found = sum(len(cast("Index", indexes[s]).negatives(row)) for s, row in mixture.train.tolist())
    return replace(mixture, counts={**mixture.counts, "negatives": found})


def check_sets(data: DataSettings, opened: Opened, loss: LossSettings | None) -> None:
    """Refuse settings that need more of counterfactual sets than the source has.

    Raises:
        UserError: naming the setting, and what is missing.
    """
    index, captions = opened.counterfactual, data.counterfactual_captions
    weight = 0.0 if loss is None else loss.set_invariance
    drawn = data.drawn[COUNTERFACTUAL]
    if weight:
        asked = f"loss.set_invariance={weight:g}"
        if not drawn or not data.pairs_in_batch:
            raise UserError(
                f"{asked} compares the images of a counterfactual set within a batch: it needs "
                "data.pairs_in_batch=true and data.cf_ratio above 0, or loss=null"
            )
        require_neutral(cast("Index", index), asked)
    if captions == NEUTRAL and drawn:
        require_neutral(cast("Index", index), f"data.counterfactual_captions={captions}")
    if captions == "shuffled" and drawn and not _has_sets(cast("Index", index)):
        raise UserError(
            "data.counterfactual_captions=shuffled permutes captions within a counterfactual set, "
            f"and data.counterfactual={data.counterfactual} has no set of two: leave it out, or "
            "name a source of sets"
        )


def _has_sets(index: Index) -> bool:
    return len(index.sets) > int(index.sets[-1]) + 1


def content_trained_with(
    data: DataSettings, opened: Opened, loss: LossSettings | None
) -> dict[str, str]:
    """Return the hashes of what is read, with the neutral prompts where they are trained with."""
    wanted = data.counterfactual_captions == NEUTRAL or (loss is not None and loss.set_invariance)
    if not wanted or opened.counterfactual is None:
        return opened.content
    return {**opened.content, "counterfactual": opened.counterfactual.hash_with([NEUTRAL])}


def _indexes(mixture: Mixture) -> tuple[Index | None, Index | None]:
    """Return the indexes that the mixture's rows are of: a control's are not the plan's."""
    real, counterfactual = mixture.sources
    return cast("Index | None", real), cast("Index | None", counterfactual)


def prepare_sources(runs: Sequence[tuple[DataSettings, Mapping[str, Any]]]) -> None:
    """Draw and scan what a sweep reads on every core; planning then finds it on the disk.

    Args:
        runs: settings of each run's data, with its paths.

    Raises:
        UserError: what drawing or scanning a source raises.
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
    _open(settings, paths)


def _open(data: DataSettings, paths: Mapping[str, Any]) -> Opened:
    shards, cache, roots = Path(paths["shards"]), Path(paths["cache"]), permitted_roots(paths)
    return open_data(
        data, lambda name: open_source(name, data.world, data.seed, shards, cache, roots), shards
    )
