"""Which settings each command reads: the branches of ``evaluate.py``, and rules about others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from cfaug.core.binding import (
    LEARNT,
    MODEL,
    TRAINED,
    WORLD,
    describe_conditions,
    find_unread,
    holds,
)
from cfaug.core.errors import UserError
from cfaug.core.protocols import DualEncoder, NoModel
from cfaug.core.targets import locate
from cfaug.core.worlds import find_world, is_questions, is_world
from cfaug.generate.recipe import IMAGE_PARTS, TEXT_PARTS
from cfaug.run.arguments import MODEL_WEIGHTS, flatten, key_of

Config = Mapping[str, Any]


def declared_unread(config: Config, about: CheckpointFacts | None) -> Iterator[tuple[str, str]]:
    """Yield (setting, with what it is read) for all that their classes leave out."""
    for prefix, node in _nodes_of(config, ""):
        target = locate(node["_target_"])
        tested: dict[str, Any] = {}  # what is known of a model, as conditions name it
        if about is not None and prefix.startswith("benchmark."):
            also = getattr(target, "also_accepts", ())
            protocols = (getattr(target, "needs", None), *also, DualEncoder)
            loaded = next((name for name in protocols if name in about.provides), None)
            if loaded is not None:
                tested[MODEL] = loaded.__name__
            if about.world is not None:
                tested[WORLD] = about.world
            tested |= {TRAINED: about.trained, LEARNT: about.learnt}
        for name, conditions in find_unread(target, node, tested).items():
            yield prefix + name, f"with {describe_conditions(conditions, prefix)}"
        for name, reason in getattr(target, "find_left_out", lambda _: {})(node).items():
            yield prefix + name, f"with {prefix}{reason}"


def _nodes_of(value: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (place with its dot, node) of every node with a target."""
    if isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _nodes_of(item, f"{path[:-1]}[{number}].")
    elif isinstance(value, Mapping):
        if "_target_" in value and not value.get("_partial_"):
            yield path, value
        for key, item in value.items():
            yield from _nodes_of(item, f"{path}{key}.")


def place_of(word: str) -> str:
    """Return the setting of a word of the command line; for ``world@data.world`` its place.

    >>> place_of("+data.size=3"), place_of("world@data.world=x"), place_of("recipe@_global_.x=y")
    ('data.size', 'data.world', 'x')
    """
    key = key_of(word)
    setting = key.partition("@")[2] or key
    return setting.removeprefix("_global_").removeprefix(".")


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


def describe_learning(data: Any) -> tuple[bool, str]:
    """Return whether a run's data are in the embedded world, and what it learnt from.

    Args:
        data: the run's ``DataSettings``, or its settings of questions, hypotheses or labels.
    """
    from cfaug.data.mixture.settings import ClassificationData, EntailmentData, QuestionData

    if isinstance(data, QuestionData):
        return any(is_questions(name) for name in data.question_sets if name), "questions"
    kinds = {EntailmentData: "hypotheses", ClassificationData: "labels"}
    learnt = next((name for kind, name in kinds.items() if isinstance(data, kind)), "captions")
    names = (getattr(data, name, None) for name in ("real", "counterfactual"))
    return any(is_world(name) for name in names if name), learnt


class Branch(NamedTuple):
    """A way in which a command works; ``name`` is the words of the command line that choose it."""

    name: str
    chosen: Callable[[Config, Sequence[str]], Any]
    reads: tuple[str, ...]


class Rule(NamedTuple):
    """Settings that are read only beside others.

    Attributes:
        read_by: the place where they are read, for messages and ``--help``.
        reads: a function of a job's settings that says whether they are read.
        but: a function that returns settings of these nodes that are read all the same.
    """

    settings: tuple[str, ...]
    read_by: str
    reads: Callable[[Config], Any]
    but: Callable[[Config], Iterable[str]] = lambda _: ()


def _names_runs(config: Config) -> bool:
    return any(config.get(name) is not None for name in ("name", "arm", "runs"))


def _tests_checkpoint(config: Config, words: Sequence[str]) -> bool:
    typed = {place_of(word) for word in words}
    return MODEL_WEIGHTS in typed or ("model" in typed and not _names_runs(config))


def _tests_texts(config: Config, words: Sequence[str]) -> bool:
    target = (config.get("benchmark") or {}).get("_target_")
    needs = None if target is None else getattr(locate(target), "needs", None)
    return not _names_runs(config) and needs is NoModel


def _tests_runs(config: Config) -> bool:
    words = config.get("words", ())
    return not (_tests_checkpoint(config, words) or _tests_texts(config, words))


def about_model(config: Config, words: Sequence[str]) -> CheckpointFacts | None:
    """Return what is known of the model to evaluate; ``None`` of finished runs and of training."""
    if "benchmark" not in config or _checks_data(config, words):
        return None
    provides: Sequence[type] = (NoModel,)
    if not _tests_texts(config, words):
        if not _tests_checkpoint(config, words):
            return None
        provides = getattr(locate(config["model"]["_target_"]), "provides", ())
    try:
        world, learnt = describe_learning(_build_data(config))
    except UserError:  # refused with its own message before the evaluation
        return CheckpointFacts(provides, False, None, "captions")
    return CheckpointFacts(provides, False, world, learnt)


def _checks_data(config: Config, words: Sequence[str]) -> bool:
    return bool(config.get("dry_run")) and not (
        _names_runs(config) or _tests_checkpoint(config, words)
    )


ANY_EVALUATION = (
    "benchmark", "items", "failures", "failure_rule", "failure_causes", "paths", "threads",
    "engine", "dry_run", "data.fields", "data.reader",
)  # fmt: skip
NEAR = ("data.near_duplicates", "data.near_distance")
"""What is done with near-duplicates of training images, which are known of runs alone."""

EVALUATE = (
    Branch(
        "a check of questions (dry_run=true)", _checks_data,
        ("dry_run", "benchmark", "data", "seed", "paths", "threads"),
    ),
    Branch(
        "wise_ft=...", lambda c, _: c.get("wise_ft") is not None,
        (*ANY_EVALUATION, *NEAR, "name", "arm", "runs", "seeds", "wise_ft", "device",
         "feature_cache", "max_indistinct"),
    ),
    Branch(
        "an evaluation of a checkpoint (weights=..., or model=... alone)", _tests_checkpoint,
        (*ANY_EVALUATION, "model", "seed", "baseline", "device", "feature_cache",
         "max_indistinct", "data"),
    ),
    Branch(
        "a benchmark of texts alone", _tests_texts,
        (*ANY_EVALUATION, "seed", "baseline", "data"),
    ),
    Branch(
        "an evaluation of finished runs (name=..., arm=..., runs=...)", lambda *_: True,
        (*ANY_EVALUATION, *NEAR, "name", "arm", "runs", "seeds", "baseline", "comparison",
         "device", "feature_cache", "max_indistinct", "label_frequency", "evaluate_initial",
         "forgetting_threshold", "tabulate"),
    ),
)  # fmt: skip
"""The ways of ``cfaug evaluate``; the first that is chosen counts."""


def _unread_of_benchmark(config: Config) -> dict[str, str]:
    """Return what no class of a job's benchmark reads, as ``declared_unread`` yields it."""
    about = about_model(config, config.get("words", ()))
    return dict(declared_unread({"benchmark": config.get("benchmark")}, about))


def _read_of_data(config: Config) -> set[str]:
    """Return the settings of ``data`` that the classes of a benchmark say that they read.

    Their ``reads_data`` has the form of ``read_with``, with settings of ``data`` as keys. A class
    of somebody else's that declares nothing may read them all.
    """
    settings = set()
    unread = _unread_of_benchmark(config)
    for prefix, node in _nodes_of(config.get("benchmark"), "benchmark."):
        if is_under(prefix[:-1], unread):
            continue
        ours = node["_target_"].startswith("cfaug.")
        declared = getattr(locate(node["_target_"]), "reads_data", {} if ours else {"data": {}})
        settings |= {name for name, condition in declared.items() if holds(condition, node)}
    return settings


def _tested_sources(config: Config) -> list[str]:
    """Return the texts in the settings of a benchmark, and of the training of what is tested.

    Among them are the names of sources. Parts of a benchmark that are not read, such as the other
    members of a suite, do not count.
    """
    unread = _unread_of_benchmark(config)
    settings = flatten(
        {"benchmark": config.get("benchmark"), "failure_causes": config.get("failure_causes")}
    )
    return _texts(value for key, value in settings.items() if not is_under(key, unread))


def _texts(values: Iterable[Any]) -> list[str]:
    every = [text for value in values for text in (value if isinstance(value, list) else [value])]
    return [text for text in every if isinstance(text, str)]


def _drawn_for_people(config: Config) -> set[str]:
    """Return the settings of a world that draw the parts that people are asked about."""
    named = flatten({"pairs": config["pairs"], "": config["annotate"]})
    return _drawing(_texts(named.values()), "world")


def _drawing(sources: Iterable[str], node: str = "data.world") -> set[str]:
    """Return the settings of a world, at a node, that draw the parts that sources name."""
    drawn = set[str]()
    for name in sources:
        world = find_world(name)
        family = None if world is None else world.find_family(name)
        if world is not None and family is not None:
            drawn.update(f"{node}.{setting}" for setting in world.drawn_by[family])
    return drawn


def _drawn_for_mixture(config: Config) -> set[str]:
    data = _data_settings(config)
    if data is None:
        return set()
    named = getattr(data, "question_sets", (data.real, data.counterfactual))
    read = [name for name, needed in zip(named, data.needed, strict=True) if needed]
    return _drawing(name for name in (*read, data.human_labels, data.control_source) if name)


def _data_settings(config: Config) -> Any:
    """Return the settings of a mixture; ``None`` for other data, or if they are invalid."""
    from cfaug.data.mixture.settings import DataSettings

    try:
        data = _build_data(config)
    except UserError:  # refused with its own message when the run is planned
        return None
    return data if isinstance(data, DataSettings) else None


def _build_data(config: Config) -> Any:
    return _build_written(json.dumps(config["data"]))


@lru_cache(maxsize=8)
def _build_written(written: str) -> Any:
    """Build a node that is written as JSON: many rules ask about the same data."""
    from cfaug.planning.build import build

    return build(json.loads(written))


def _on_mixture(test: Callable[[Any], bool]) -> Callable[[Config], Any]:
    """Return a rule about the settings of a mixture, which holds for all other data."""

    def reads(config: Config) -> bool:
        data = _data_settings(config)
        return data is None or test(data)

    return reads


def _uses_negatives(config: Config) -> bool:
    negatives = config["data"].get("negatives")
    loss = config.get("loss") or {}
    return negatives in {"text", "image"} or loss.get("negative_captions") == "used"


def _uses_wrong_captions(config: Config) -> bool:
    loss = config.get("loss") or {}
    return config["data"].get("negatives") == "text" or loss.get("negative_captions") == "used"


def _is_divided(config: Config) -> bool:
    """Say whether a process encodes its share of a batch in several pieces."""
    trainer, batch = config["trainer"], config["data"].get("batch_size")
    pieces = trainer.get("micro_batch_size")
    if not isinstance(pieces, int) or not isinstance(batch, int):
        return True
    processes = int(os.environ.get("WORLD_SIZE", 0)) or (
        trainer.get("devices", 1) * trainer.get("num_nodes", 1)
    )
    return pieces * processes < batch


OF_NEAR = Rule(
    ("data.near_distance",), "with data.near_duplicates=refuse, leave_out or report",
    lambda config: config["data"].get("near_duplicates") is not None,
)  # fmt: skip
OF_SWEEPS = ("parallel", "on_error")
TRAIN = (
    Rule(OF_SWEEPS, "in sweeps (--multirun)", lambda config: config.get("multirun")),
    Rule(("parallel",), "without an engine, whose engine.workers run at once",
         lambda config: not config.get("engine")),
    Rule(("image_cache_mib",), "with share_image_cache=true", lambda c: c.get("share_image_cache")),
    Rule(("preset",), "by settings that are ${preset....} and are not typed or chosen themselves",
         lambda _: False),
    Rule(("by_seed",), "from settings that name ${seed}, such as model=tiny_clips",
         lambda _: False),
    Rule(("paths",), "by chosen files that name it as ${paths....}",
         lambda _: False,
         lambda _: ("paths.runs", "paths.shards", "paths.cache", "paths.image_roots")),
    Rule(
        ("data.pairs_in_batch", "data.counterfactual_members", "data.counterfactual_captions",
         "data.negatives", "data.human_labels"),
        "with counterfactual examples (data.cf_ratio above 0)",
        _on_mixture(lambda data: data.drawn[1]),
    ),
    Rule(
        ("data.real_captions",), "with real examples (data.cf_ratio below 1)",
        _on_mixture(lambda data: data.drawn[0]),
    ),
    Rule(
        ("data.stratify",), "in mixtures of both sources (data.cf_ratio between 0 and 1)",
        _on_mixture(lambda data: all(data.drawn)),
    ),
    Rule(
        ("data.world",), "with sources in the embedded world whose parts it draws",
        lambda config: _data_settings(config) is None,
        _drawn_for_mixture,
    ),
    Rule(
        ("trainer.micro_batch_size",),
        "in batches of more examples than that on each process (data.batch_size)",
        _is_divided,
    ),
    Rule(
        ("trainer.val_every_steps", "trainer.early_stopping", "trainer.val_metrics"),
        "with validation (data.validation above 0)",
        lambda config: config["data"].get("validation", 1) != 0,
    ),
    Rule(
        ("optim", "tuning", "loss", "trainer.gradient_clip", "trainer.val_every_steps",
         "trainer.early_stopping", "trainer.ema_decay", "trainer.accumulate_grad_batches",
         "trainer.micro_batch_size", "trainer.precision", "trainer.val_metrics",
          "trainer.callbacks", "trainer.strategy", "trainer.profiler",
          "trainer.limit_train_batches", "trainer.overfit_batches",
          "trainer.gradient_checkpointing", "trainer.deterministic"),
        "in training steps (trainer.max_steps above 0)",
        lambda config: config["trainer"].get("max_steps") != 0,
    ),
    Rule(
        ("loss.negative_weight",),
        "with wrong answers of an example (data.negatives=text or image, "
        "loss.negative_captions=used)",
        _uses_negatives,
    ),
    Rule(
        ("loss.intra_modal", "loss.ranking"),
        "with wrong captions (data.negatives=text, loss.negative_captions=used)",
        _uses_wrong_captions,
    ),
    Rule(
        ("tuning.lora.merge",), "with language models (data=edits)",
        lambda config: "edits" in config["data"],
    ),
    Rule(
        ("data.near_duplicates",),
        "with a test that is held out (data.holdout or data.counterfactual_holdout above 0)",
        _on_mixture(lambda data: data.holdout or data.counterfactual_holdout),
    ),
    OF_NEAR,
    Rule(
        ("loss.hard_negative_weight",), "with counterfactual examples (data.cf_ratio above 0)",
        _on_mixture(lambda data: data.drawn[1]),
    ),
)  # fmt: skip

WITH_WORLD = "with a part of the embedded world (shapescapes:PART) that it draws"

EVALUATED = (
    Rule(NEAR, "with finished runs (name=..., arm=..., runs=...), whose training is known",
         _tests_runs),
    Rule(
        ("data",), "by benchmarks that ask about a run's own data, such as benchmark=heldout",
        lambda _: False,
        lambda config: {
            "data.world", "data.seed", "data.fields", "data.reader", *_read_of_data(config),
            *(NEAR if _tests_runs(config) else ()),
        },
    ),
    OF_NEAR,
    Rule(
        ("data.world",), WITH_WORLD, _read_of_data,
        lambda config: _drawing(_tested_sources(config)),
    ),
    Rule(
        ("data.seed", "seed"), WITH_WORLD,
        lambda config: _drawing(_tested_sources(config)) or _read_of_data(config),
    ),
    Rule(("failure_rule", "failure_causes"), "with failures=FILE",
         lambda c: c.get("failures") is not None),
    Rule(("failure_causes.training",),
         "with a checkpoint (weights=... or model=...); what runs were trained on is known",
         lambda config: not _tests_runs(config)),
    Rule(("name", "arm"), "without runs=[...]", lambda config: config.get("runs") is None),
    Rule(
        ("comparison.baselines",), "with baseline=null",
        lambda config: config.get("baseline") is None,
    ),
    Rule(
        ("model.logit_scale_min", "model.logit_scale_max", "model.train_logit_scale"),
        "in training, by train.py",
        lambda _: False,
    ),
)  # fmt: skip

STEPS = {
    "cfaug.run.annotation_steps.Export": "export",
    "cfaug.run.annotation_steps.Taxonomy": "taxonomy",
    "cfaug.run.annotation_steps.ReadAnswers": "read",
    "cfaug.run.annotation_steps.Simulate": "simulate",
}
"""{class of a step: its name in ``conf/annotate``}."""


def _step(config: Config) -> str:
    """Return the name of a job's step; "" for one of somebody's own."""
    return STEPS.get(str((config.get("annotate") or {}).get("_target_")), "")


def _of_question(names: Sequence[str], steps: Sequence[str]) -> Rule:
    """Return the rule of settings of a question to people that only these steps read."""
    return Rule(
        tuple(f"annotate.question.{name}" for name in names),
        "by cfaug annotate " + " and ".join(steps),
        lambda config: _step(config) in ("", *steps),
    )


def _asks_none_of(config: Config, *kinds: str) -> bool:
    """Say whether people are asked by none of some classes of ``cfaug.annotation``."""
    question = (config.get("annotate") or {}).get("question") or {}
    kind = locate(question["_target_"]) if "_target_" in question else object
    return not any(issubclass(kind, locate(f"cfaug.annotation.{name}")) for name in kinds)


ANNOTATED = (
    Rule(("world",), WITH_WORLD, lambda _: False, _drawn_for_people),
    Rule(("seed",), WITH_WORLD, _drawn_for_people),
    Rule(
        ("annotate.category_question", "annotate.categories", "annotate.screening",
         "annotate.screening_minimum", "annotate.analyses"),
        "with a question (annotate/question=which_caption, ...), not with a form",
        lambda config: _asks_none_of(config, "forms.Form"),
    ),
    Rule(
        ("annotate.category_question", "annotate.sorted_errors", "annotate.causes"),
        "with a question about images, not with one about captions",
        lambda config: _step(config) != "simulate"
        or _asks_none_of(config, "forms.CaptionForm", "forms.Preference"),
    ),
    _of_question(["text"], ["export", "read"]),
    _of_question(["strata.each", "examples", "balanced"], ["export"]),
    _of_question(["per_kind"], ["export", "simulate"]),
    _of_question(
        ["image_sets", "accepted_as", "groups", "reference", "illustrated"], ["read"]
    ),
    _of_question(["reported"], ["read", "taxonomy"]),
    _of_question(["accepted"], ["read", "taxonomy", "simulate"]),
)  # fmt: skip


def _read_with_source(config: Config) -> set[str]:
    """Return the settings of ``data`` that the examples are read with, beside their source."""
    from cfaug.planning.examples import READ_BY, ExampleSettings, settings_read

    data, recipe = config["data"], config["recipe"]
    examples = ExampleSettings(
        source=data["source"], grid=data["grid"], world=data["world"], extra=data["extra"],
        per=recipe.get("example_per", "text"), images=recipe.get("source_images", False),
        limit=None, seed=config["seed"], paths=config["paths"], fields=data["fields"],
        reader=data["reader"],
    )  # fmt: skip
    try:
        return set(settings_read(examples))
    except UserError:  # refused with its own message when it is read
        return {name for names in READ_BY.values() for name in names}


def _draws_seed(config: Config) -> bool:
    """Say whether images, or the scenes of the source, are drawn with the run's seed."""
    world = config["data"]["world"]
    return (config["stage"] != "captions" and _draws_images(config)) or (
        world is not None and world.get("seed") is None and "world" in _read_with_source(config)
    )


def _draws_images(config: Config) -> bool:
    """Say whether a recipe makes images; other recipes keep the files of their source."""
    target = (config["recipe"].get("image_editor") or {}).get("_target_")
    return target is None or not getattr(locate(target), "keeps_files", False)


def _weighs_images(config: Config) -> bool:
    """Say whether an editor that weighs the distance from images gives it any weight."""
    weights = (config["recipe"].get("editor") or {}).get("weights")
    return weights is None or len(weights) != 3 or weights[2] != 0


_EDITS, _IMAGES = "with stage=captions or stage=all", "with stage=images or stage=all"

GENERATE = (
    Rule(("cluster",), "with dry_run=true", lambda config: config["dry_run"]),
    Rule(("parallel",), "in sweeps of parts (--multirun part=0,1 parts=2)",
         lambda config: config.get("multirun")),
    Rule(("zoo",), "by parts of the recipe that are used and name it as ${zoo....}",
         lambda _: False, lambda _: ("zoo.name",)),
    Rule(("paths",), "by chosen files that name it as ${paths....}",
         lambda _: False,
         lambda _: ("paths.shards", "paths.worlds", "paths.cache", "paths.image_roots")),
    Rule((*(f"recipe.{part}" for part in IMAGE_PARTS), "shards.image_format", "shards.batch",
          "pipeline_scoring", "export"),
         _IMAGES, lambda config: config["stage"] != "captions"),
    Rule(("shards.image_format",), "by recipes that make images of their own",
         _draws_images),
    Rule((*(f"recipe.{part}" for part in TEXT_PARTS), "shards.sets_per_shard", "data.grid",
          "data.keep_duplicates", "data.leave_out", "data.extra", "data.fields", "data.reader"),
         _EDITS, lambda config: config["stage"] != "images"),
    Rule(("data", "limit", "recipe.example_per"),
         f"{_EDITS}, or by recipes with the source's images (recipe.source_images=true)",
         lambda config: config["stage"] != "images" or config["recipe"].get("source_images")),
    Rule(("seed",), f"{_IMAGES}, by editors that draw, or by a world without data.world.seed",
         _draws_seed),
    Rule(("data.failures", "data.budget", "data.weights"), "by recipe=repair", lambda _: False),
    Rule(("data.keep_duplicates",), "with data.grid=...",
         lambda config: "keep_duplicates" in _read_with_source(config)),
    Rule(("data.extra",), "with a list of captions (data.source=FILE)",
         lambda config: "extra" in _read_with_source(config)),
    Rule(("data.fields",), "with a list, parquet or tars (data.source=FILE or FOLDER)",
         lambda config: "fields" in _read_with_source(config)),
    Rule(("data.reader",), "with a source of rows (data.source=FILE or FOLDER)",
         lambda config: "reader" in _read_with_source(config)),
    Rule(("data.leave_out",), "with sources in the embedded world (shapescapes:PART)",
         lambda config: "leave_out" in _read_with_source(config)),
    Rule(("data.world",), "with sources in the embedded world (shapescapes:PART)",
         lambda config: "world" in _read_with_source(config),
         # A grid is recorded as one of the world if there is any world.
         lambda config: ("data.world._target_",) if config["data"]["grid"] is not None else ()),
    Rule(("recipe.editor.image_text",), "with a lambda_3 other than 0 (recipe.editor.weights)",
         _weighs_images),
    Rule(("export.layout", "export.about", "export.croissant"), "with export.hub=FOLDER",
         lambda config: config["export"]["hub"] is not None),
    Rule(("export.about.url", "export.about.published"), "with export.croissant=FILE",
         lambda config: config["export"]["croissant"] is not None),
    Rule(("export.verified",),
         "with export.questions=FOLDER, export.lmms_eval=FOLDER or export.vlmevalkit=FILE.tsv",
         lambda config: any(config["export"][name] is not None
                            for name in ("questions", "lmms_eval", "vlmevalkit"))),
)  # fmt: skip

BRANCHES: Mapping[str, Sequence[Branch]] = {"evaluate": EVALUATE}
"""The branches of each command, of which the first that is chosen counts."""

RULES: Mapping[str, Sequence[Rule]] = {
    "train": TRAIN, "generate": GENERATE, "evaluate": EVALUATED, "annotate": ANNOTATED,
}  # fmt: skip
"""The rules of each command."""
