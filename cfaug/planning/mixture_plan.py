"""Planning trainings on a mixture: dual encoders and entailers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.grids import NEUTRAL
from cfaug.core.protocols import Entailer
from cfaug.core.types import ENTAILMENT
from cfaug.data.mixture.hard_negatives import require_neutral
from cfaug.data.mixture.mixture import mix
from cfaug.data.mixture.records import COUNTERFACTUAL, Mixture
from cfaug.data.mixture.settings import DataSettings, EntailmentData
from cfaug.models.checkpoints import choose_protocol
from cfaug.models.specs import EntailmentLearner
from cfaug.planning.source_report import check_sources, describe_sources
from cfaug.planning.sources import (
    Opened,
    check_negatives,
    needed_sources,
    open_data,
    open_source,
    permitted_roots,
    report_held_out,
    report_join,
    say_once,
)
from cfaug.planning.training import TrainPlan, TrainRequest
from cfaug.train.entailment_task import EntailmentTask
from cfaug.train.mixture_task import ContrastiveTask
from cfaug.train.settings import AnswerLoss, LossSettings

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.train.mixture_task import MixtureTask


# Planning shared by all trainings on a mixture: open the sources, report the drawn rows.


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
    """Return a task with the part of its data that identifies its run."""
    data = task.data
    return TrainPlan(
        task=task,
        data={"seed": data.seed, "cf_ratio": data.cf_ratio, "holdout": data.holdout},
        # A plan is identified by its name, as it was before it became an object.
        hashed={"plan": None if data.plan is None else data.plan.name},
        content=content,
        sources=describe_sources(data, opened),
    )


def indexes_of(mixture: Mixture) -> tuple[Index | None, Index | None]:
    """Return the indexes of the mixture's rows; a control's differ from the plan's."""
    real, counterfactual = mixture.sources
    return cast("Index | None", real), cast("Index | None", counterfactual)


def prepare_sources(runs: Sequence[tuple[DataSettings, Mapping[str, Any]]]) -> None:
    """Draw and scan the sources of a sweep on all cores, so that planning finds them on disk."""
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


# Planning the training of a dual encoder: open the sources, draw the mixture.


def plan_contrastive(data: DataSettings, asked: TrainRequest) -> TrainPlan:
    """Open the sources and draw the mixture; print what was joined and what is held out."""
    asked.model.check_trainable()
    given = _contrastive(asked.loss)
    _refuse_single_examples(data)
    opened = open_sources(data, asked.paths)
    check_sources(data, opened)
    loss = use_negatives(data, opened, given)
    check_negatives(opened, loss)
    check_sets(data, opened, loss)
    mixture = count_negatives(mix(data, opened), given)
    _refuse_unused_negatives(data, opened, given, mixture)
    _warn_of_plain_loss(mixture, loss)
    report_mixture(mixture, data, opened, asked)
    task = ContrastiveTask(**of_mixture(mixture, data, asked), loss=loss)
    return planned_mixture(task, opened, content_trained_with(data, opened, loss))


def _contrastive(loss: LossSettings | AnswerLoss | None) -> LossSettings | None:
    if isinstance(loss, AnswerLoss):
        raise UserError(
            "loss=answers is for questions and their options: leave it out, or choose task=vqa"
        )
    return loss


def _refuse_single_examples(data: DataSettings) -> None:
    """Refuse batches of one example, which has no negative: the loss would always be 0."""
    if data.batch_size == 1:
        raise UserError(
            "data.batch_size=1 leaves an example no other to be told apart from, and the loss is 0 "
            "at every step: give two or more; trainer.micro_batch_size=1 saves memory instead"
        )


def _refuse_unused_negatives(
    data: DataSettings, opened: Opened, loss: LossSettings | None, mixture: Mixture
) -> None:
    """Refuse a loss with captions without an image if the data have none."""
    asked = None if loss is None else loss.negative_captions
    if asked is None or data.negatives in ("text", "none") or mixture.counts.get("negatives"):
        return
    read = (opened.real, opened.counterfactual, opened.control)
    indexes = [index for index in read if index is not None]
    if asked == "ignored" and any(index.has_negatives for index in indexes):
        return
    names = " and ".join(str(index.source) for index in indexes)
    raise UserError(
        f"loss.negative_captions={asked} has no effect: no training example of {names} has a "
        "caption without an image (a column neg_caption beside image and caption); "
        "data.negatives=text takes counterfactual captions as negatives, and loss=null is the "
        "model's own loss"
    )


def _warn_of_plain_loss(mixture: Mixture, loss: LossSettings | None) -> None:
    """Warn of a loss that treats images or sets with several examples, of which there are none."""
    if loss is None or loss.plain or loss.set_invariance or loss.negative_captions is not None:
        return
    several = []
    for source, index in enumerate(indexes_of(mixture)):
        if index is not None:
            rows = mixture.train[mixture.train[:, 0] == source, 1]
            several.append(np.asarray(index.groups)[rows])
    groups = np.concatenate(several)
    if len(np.unique(groups)) == len(groups):
        say_once(
            "warning: the loss has no effect on these data: no two training examples are of one "
            "photo or counterfactual set, so it equals loss=null, the model's own"
        )


def use_negatives(
    data: DataSettings, opened: Opened, loss: LossSettings | None
) -> LossSettings | None:
    """Return the loss that uses the captions of ``data.negatives``."""
    index = opened.counterfactual
    if data.negatives not in ("text", "none") or index is None or not data.drawn[COUNTERFACTUAL]:
        return loss
    if data.negatives == "none" and not index.has_negatives:
        return loss
    wanted: Literal["used", "ignored"] = "used" if data.negatives == "text" else "ignored"
    found = LossSettings() if loss is None else loss
    if found.negative_captions not in (None, wanted):
        raise UserError(
            f"data.negatives={data.negatives} and loss.negative_captions={found.negative_captions} "
            "contradict each other: leave out the latter"
        )
    return replace(found, negative_captions=wanted)


def count_negatives(mixture: Mixture, loss: LossSettings | None) -> Mixture:
    """Return the mixture with its count of captions without an image that serve as negatives."""
    if loss is None or loss.negative_captions != "used":
        return mixture
    indexes = indexes_of(mixture)
    found = sum(len(cast("Index", indexes[s]).negatives(row)) for s, row in mixture.train.tolist())
    return replace(mixture, counts={**mixture.counts, "negatives": found})


def check_sets(data: DataSettings, opened: Opened, loss: LossSettings | None) -> None:
    """Refuse settings that need counterfactual sets if the source lacks them."""
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
    """Return the hashes of the data, including neutral prompts if the loss uses them."""
    wanted = data.counterfactual_captions == NEUTRAL or (loss is not None and loss.set_invariance)
    if not wanted or opened.counterfactual is None:
        return opened.content
    return {**opened.content, "counterfactual": opened.counterfactual.hash_with([NEUTRAL])}


# Planning the training of an entailer: open the sources, draw the mixture, check its labels.


def plan_entailment(data: EntailmentData, asked: TrainRequest) -> TrainPlan:
    """Open the sources and draw the mixture; count its labels."""
    model: Any = asked.model
    owner = getattr(model, "owner", type(model).__name__)
    choose_protocol(model.provides, Entailer, owner)
    if not isinstance(model, EntailmentLearner):
        raise UserError(
            f"{owner} cannot be trained: choose a model that task=entailment trains, such as "
            "model=vilt_entailer, bridgetower_entailer or flava_entailer"
        )
    asked.refuse_contrastive("task=entailment")
    opened = open_sources(data, asked.paths)
    check_sources(data, opened)
    mixture = mix(data, opened)
    _check_labels(mixture)
    report_mixture(mixture, data, opened, asked)
    task = EntailmentTask(**of_mixture(mixture, data, asked))
    for side, found in task.classes.items():
        counted = ", ".join(f"{count:,} {label}" for label, count in found.items())
        say_once(f"{side}: {counted}")
    return planned_mixture(task, opened, opened.content)


def _check_labels(mixture: Mixture) -> None:
    """Refuse examples whose label is not one of the three."""
    for source, index in enumerate(indexes_of(mixture)):
        rows = [side[side[:, 0] == source, 1] for side in (mixture.train, mixture.validation)]
        drawn = [row for part in rows for row in part.tolist()]
        wrong = [row for row in drawn if cast("Any", index).label(row) not in ENTAILMENT]
        if wrong:
            assert index is not None
            said = index.label(wrong[0])
            what = "no label" if said is None else f"the label {said[:40]!r}"
            raise UserError(
                f"{index.source}: {len(wrong):,} of {len(drawn):,} examples have no label of "
                f"{', '.join(ENTAILMENT)}, such as {index.key(wrong[0])}, which has {what}: "
                "task=entailment learns from labelled hypotheses, such as SNLI-VE's or "
                "shapescapes:ve"
            )
