"""Planning the training of an entailer: open the sources, draw the mixture, check its labels."""

from __future__ import annotations

from typing import Any, cast

from cfaug.core.errors import UserError
from cfaug.core.protocols import Entailer
from cfaug.core.types import ENTAILMENT
from cfaug.data.mixture.mixture import mix
from cfaug.data.mixture.records import Mixture
from cfaug.data.mixture.settings import EntailmentData
from cfaug.models.checkpoints import choose_protocol
from cfaug.models.specs import EntailmentLearner
from cfaug.run.mixture_plan import (
    indexes_of,
    of_mixture,
    open_sources,
    planned_mixture,
    report_mixture,
)
from cfaug.run.planned import TrainPlan, TrainRequest
from cfaug.run.readings import check_sources
from cfaug.run.sources import say_once
from cfaug.train.entailment_task import EntailmentTask


def plan_entailment(data: EntailmentData, asked: TrainRequest) -> TrainPlan:
    """Open the sources and draw the mixture; count its labels.

    Raises:
        UserError: for a model, settings or data that cannot make a run, or an example whose label
            is not one of the three.
    """
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
    """Refuse examples whose label is not one of the three.

    Raises:
        UserError: naming the source, how many, and one of them.
    """
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
