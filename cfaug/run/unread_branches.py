"""Which settings each branch of a command reads, for ``cfaug.run.unread``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cfaug.core.binding import (
    LEARNT,
    MODEL,
    TRAINED,
    WORLD,
    describe_conditions,
    find_unread,
    locate,
)
from cfaug.core.errors import UserError
from cfaug.core.protocols import DualEncoder, NoModel
from cfaug.core.weights import is_questions, is_world

# Which settings of ``annotate=...`` each of its steps reads, for ``cfaug.run.unread``.

Config = Mapping[str, Any]
STEPS = {
    "cfaug.run.annotate.Export": "export",
    "cfaug.run.annotate.Taxonomy": "taxonomy",
    "cfaug.run.annotate.ReadAnswers": "read",
    "cfaug.run.annotation_source.Simulate": "simulate",
}
"""{class of a step: its name in ``conf/annotate``}."""


def _step(config: Config) -> str:
    """Return the name of a job's step; "" for one of somebody's own."""
    return STEPS.get(str((config.get("annotate") or {}).get("_target_")), "")


def _in(*steps: str) -> tuple[str, Callable[[Config], bool]]:
    """Return where settings are read that only these steps read, and the test of that."""

    def reads(config: Config) -> bool:
        return _step(config) in ("", *steps)

    return "by " + ", or ".join(f"annotate={step}" for step in steps), reads


def _not_about(*kinds: str) -> Callable[[Config], bool]:
    """Return a test whether people are asked by none of some classes of ``cfaug.annotation``."""

    def reads(config: Config) -> bool:
        question = (config.get("annotate") or {}).get("question") or {}
        kind = locate(question["_target_"]) if "_target_" in question else object
        return not any(issubclass(kind, locate(f"cfaug.annotation.{one}")) for one in kinds)

    return reads


def _of_question(*names: str) -> tuple[str, ...]:
    return tuple(f"annotate.question.{name}" for name in names)


ANNOTATED = (
    (
        ("annotate.category_question", "annotate.categories", "annotate.screening",
         "annotate.screening_minimum", "annotate.analyses"),
        "with a question (annotate/question=which_caption, ...), not with a form",
        _not_about("forms.Form"),
    ),
    (
        ("annotate.category_question", "annotate.sorted_errors", "annotate.causes"),
        "with a question about images, not with one about captions",
        lambda config: _step(config) != "simulate"
        or _not_about("caption_form.CaptionForm", "caption_form.Preference")(config),
    ),
    (_of_question("text"), *_in("export", "read")),
    (_of_question("strata.each", "examples", "balanced"), *_in("export")),
    (_of_question("per_kind"), *_in("export", "simulate")),
    (
        _of_question("image_sets", "accepted_as", "groups", "reference", "illustrated"),
        *_in("read"),
    ),
    (_of_question("reported"), *_in("read", "taxonomy")),
    (_of_question("accepted"), *_in("read", "taxonomy", "simulate")),
)  # fmt: skip
"""(settings, where they are read, a test whether they are read), the arguments of a ``Rule``."""


# What the classes of a job's nodes say of their own settings, for ``cfaug.run.unread``.


def declared_unread(config: Config, about: CheckpointFacts | None) -> Iterator[tuple[str, str]]:
    """Yield (setting, with what it is read) for all that their classes leave out.

    Args:
        about: the model to evaluate, where it is known.
    """
    for place, node in nodes_of(config, ""):
        target = locate(node["_target_"])
        tested = knowing(about, target) if place.startswith("benchmark.") else {}
        for name, conditions in find_unread(target, node, tested).items():
            yield place + name, f"with {describe_conditions(conditions, place)}"
        for name, reason in getattr(target, "find_left_out", lambda _: {})(node).items():
            yield place + name, f"with {place}{reason}"


def nodes_of(value: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (place with its dot, node) of every node with a target."""
    if isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from nodes_of(one, f"{path[:-1]}[{number}].")
    elif isinstance(value, Mapping):
        if "_target_" in value and not value.get("_partial_"):
            yield path, value
        for key, one in value.items():
            yield from nodes_of(one, f"{path}{key}.")


def is_under(key: str, nodes: Iterable[str]) -> bool:
    """Say whether a setting is among some nodes."""
    return any(key == node or key.startswith(node + ".") for node in nodes)


def touches(key: str, nodes: Iterable[str]) -> bool:
    """Say whether a setting is among some nodes, or holds one of them."""
    return any(is_under(key, [node]) or node.startswith(key + ".") for node in nodes)


# What is known of a model before it is evaluated, on which the settings that are read depend.


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
    from cfaug.planning.build import build

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
    """Return what is known of a model as the conditions of ``cfaug.core.binding`` name it.

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


# Which settings of ``generate.py`` are read depending on others (:mod:`cfaug.run.unread`).


def is_read_with_source(name: str) -> Callable[[Config], bool]:
    """Return a rule: the source of the examples is read with a setting of ``data``."""
    return lambda config: name in read_with_source(config)


def read_with_source(config: Config) -> set[str]:
    """Return the settings of ``data`` that the examples are read with, beside their source."""
    from cfaug.planning.examples import READ_BY, ExampleSettings, settings_read

    data, recipe = config["data"], config["recipe"]
    asked = ExampleSettings(
        source=data["source"], grid=data["grid"], world=data["world"], extra=data["extra"],
        per=recipe.get("example_per", "text"), images=recipe.get("source_images", False),
        limit=None, seed=config["seed"], paths=config["paths"],
    )  # fmt: skip
    try:
        return set(settings_read(asked))
    except UserError:  # refused with its own message when it is read
        return {name for names in READ_BY.values() for name in names}


def draws_seed(config: Config) -> bool:
    """Say whether images, or the scenes of the source, are drawn with the run's seed."""
    world = config["data"]["world"]
    return (config["stage"] != "captions" and draws_images(config)) or (
        world is not None and world.get("seed") is None and "world" in read_with_source(config)
    )


def draws_images(config: Config) -> bool:
    """Say whether a recipe makes images; other recipes keep the files of their source."""
    target = (config["recipe"].get("image_editor") or {}).get("_target_")
    return target is None or not getattr(locate(target), "keeps_files", False)


def weighs_images(config: Config) -> bool:
    """Say whether an editor that weighs the distance from images gives it any weight."""
    weights = (config["recipe"].get("editor") or {}).get("weights")
    return weights is None or len(weights) != 3 or weights[2] != 0
