"""What is known of a model before it is evaluated, on which the settings that are read depend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cfaug.core.errors import UserError
from cfaug.core.protocols import DualEncoder, NoModel
from cfaug.core.read_with import LEARNT, MODEL, TRAINED, WORLD
from cfaug.core.world_source import is_questions, is_world
from cfaug.run.binding import locate


class CheckpointFacts(NamedTuple):
    """A checkpoint or a finished run.

    Attributes:
        provides: the protocols by which its model can be loaded; empty if they are not known.
        trained: whether it is a finished run, whose training data are known.
        world: whether its data are in the embedded world; ``None`` if that is not known.
        learnt: ``captions``, ``hypotheses`` or ``questions``, from which it learnt.
    """

    provides: Sequence[type]
    trained: bool
    world: bool | None
    learnt: str


def about_checkpoint(model: Mapping[str, Any] | None, data: Mapping[str, Any]) -> CheckpointFacts:
    """Return what is known of a checkpoint from its settings.

    Args:
        model: the node of the model; ``None`` for a benchmark that needs no model.
        data: the node ``data`` with the world to test on.
    """
    from cfaug.run.build import build

    provides = (NoModel,) if model is None else getattr(locate(model["_target_"]), "provides", ())
    try:
        world, learnt = describe_learning(build(data))
    except UserError:  # refused with its own message before the evaluation
        return CheckpointFacts(provides, False, None, "captions")
    return CheckpointFacts(provides, False, world, learnt)


def describe_learning(data: Any) -> tuple[bool, str]:
    """Return whether a run's data are in the embedded world, and what it learnt from.

    Args:
        data: the run's ``DataSettings``, or its settings of questions or hypotheses.
    """
    from cfaug.data.mixture.settings import EntailmentData, QuestionData

    if isinstance(data, QuestionData):
        return any(is_questions(name) for name in data.question_sets if name), "questions"
    learnt = "hypotheses" if isinstance(data, EntailmentData) else "captions"
    names = (getattr(data, name, None) for name in ("real", "counterfactual"))
    return any(is_world(name) for name in names if name), learnt


def knowing(about: CheckpointFacts | None, target: Any) -> dict[str, Any]:
    """Return what is known of a model as the conditions of ``cfaug.core.read_with`` name it.

    Args:
        about: the model; ``None`` if nothing is known.
        target: the class of a benchmark, or a function.
    """
    if about is None:
        return {}
    asked = (getattr(target, "needs", None), *getattr(target, "also_asks", ()), DualEncoder)
    loaded = next((one for one in asked if one in about.provides), None)
    known = {MODEL: None if loaded is None else loaded.__name__, WORLD: about.world}
    found = {name: value for name, value in known.items() if value is not None}
    return {**found, TRAINED: about.trained, LEARNT: about.learnt}
