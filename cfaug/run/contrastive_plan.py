"""Planning the training of a dual encoder: open the sources, draw the mixture."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.grids import NEUTRAL
from cfaug.data.mixture.hard_negatives import require_neutral
from cfaug.data.mixture.mixture import mix
from cfaug.data.mixture.records import COUNTERFACTUAL
from cfaug.data.mixture.settings import DataSettings
from cfaug.run.mixture_plan import (
    indexes_of,
    of_mixture,
    open_sources,
    planned_mixture,
    report_mixture,
)
from cfaug.run.planned import TrainPlan, TrainRequest
from cfaug.run.readings import check_sources
from cfaug.run.sources import Opened, check_negatives, say_once
from cfaug.train.contrastive_task import ContrastiveTask
from cfaug.train.settings import AnswerLoss, LossSettings

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.mixture.records import Mixture


def plan_contrastive(data: DataSettings, asked: TrainRequest) -> TrainPlan:
    """Open the sources and draw the mixture; print what was joined and what is held out.

    Raises:
        UserError: for a model, settings or data that cannot make a run.
    """
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
    """Refuse batches of one example, which has no negative: the loss would always be 0.

    Raises:
        UserError: naming the setting.
    """
    if data.batch_size == 1:
        raise UserError(
            "data.batch_size=1 leaves an example no other to be told apart from, and the loss is 0 "
            "at every step: give two or more; trainer.micro_batch_size=1 saves memory instead"
        )


def _refuse_unused_negatives(
    data: DataSettings, opened: Opened, loss: LossSettings | None, mixture: Mixture
) -> None:
    """Refuse a loss with captions without an image if the data have none.

    Raises:
        UserError: naming the setting and the sources.
    """
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
    """Return the loss that uses the captions of ``data.negatives``.

    Raises:
        UserError: if the settings of the loss contradict ``data.negatives``.
    """
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
    """Refuse settings that need counterfactual sets if the source lacks them.

    Raises:
        UserError: naming the setting and what is missing.
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
    """Return the hashes of the data, including neutral prompts if the loss uses them."""
    wanted = data.counterfactual_captions == NEUTRAL or (loss is not None and loss.set_invariance)
    if not wanted or opened.counterfactual is None:
        return opened.content
    return {**opened.content, "counterfactual": opened.counterfactual.hash_with([NEUTRAL])}
