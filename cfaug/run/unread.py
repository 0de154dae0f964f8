"""Which settings a job reads, and the refusal of a typed one that it does not.

A setting that was typed and is read by nobody makes an arm other than its name says. Three things
decide what a job reads: the branches of ``evaluate.py`` (``BRANCHES``), the rules about other
settings of the same command (``RULES``), and what a class declares of its own settings
(``read_with``). A setting that a read one takes by ``${...}`` is read as well. Only typed
words are refused: defaults in files may be anything. So may ``null``, and ``false`` for a setting
that is off by default, which ask for nothing. ``--help`` lists the same tables.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cfaug.core.binding import declared_by, describe_conditions, holds, locate
from cfaug.core.errors import UserError, say
from cfaug.core.weights import world_family
from cfaug.generate.recipe import IMAGE_PARTS, TEXT_PARTS
from cfaug.run.arguments import flatten, key_of
from cfaug.run.unread_branches import (
    ANNOTATED,
    CheckpointFacts,
    about_checkpoint,
    declared_unread,
    draws_images,
    draws_seed,
    is_read_with_source,
    is_under,
    nodes_of,
    touches,
    weighs_images,
)

Config = Mapping[str, Any]

NULL = frozenset({"null", "None"})
OFF = frozenset({"false", "False", "no", "off"})

REFERENCE = re.compile(r"\$\{(\.*)([\w.]+)\}")
"""A setting that another one takes, ``${paths.shards}`` or ``${.name}``."""


class Branch(NamedTuple):
    """A way in which a command works, and the settings that it reads.

    Attributes:
        name: the words of the command line that choose it.
        chosen: a function that says whether a job's settings and words choose it.
        reads: the settings, or nodes of settings, that it reads.
    """

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


def _names_model(words: Sequence[str]) -> bool:
    return any(place_of(word) == "model" for word in words)


def _names_runs(config: Config) -> bool:
    return any(config.get(name) is not None for name in ("name", "arm", "runs"))


def _tests_checkpoint(config: Config, words: Sequence[str]) -> bool:
    return config.get("weights") is not None or (_names_model(words) and not _names_runs(config))


def _tests_texts(config: Config, words: Sequence[str]) -> bool:
    from cfaug.core.protocols import NoModel

    target = (config.get("benchmark") or {}).get("_target_")
    return not _names_runs(config) and _needs(target) is NoModel


def _about(config: Config, words: Sequence[str]) -> CheckpointFacts | None:
    """Return what is known of the model to evaluate; ``None`` of finished runs and of training."""
    if "benchmark" not in config or _checks_data(config, words):
        return None
    texts = _tests_texts(config, words)
    if not texts and not _tests_checkpoint(config, words):
        return None
    return about_checkpoint(None if texts else config["model"], config["data"])


def _needs(target: str | None) -> type | None:
    return None if target is None else getattr(locate(target), "needs", None)


def _checks_data(config: Config, words: Sequence[str]) -> bool:
    return bool(config.get("dry_run")) and not (
        _names_runs(config) or _tests_checkpoint(config, words)
    )


ANY_EVALUATION = ("benchmark", "items", "paths", "threads", "dry_run")

EVALUATE = (
    Branch("table=...", lambda c, _: c.get("table") is not None, ("table", "paths", "threads")),
    Branch(
        "compare=...", lambda c, _: c.get("compare") is not None,
        ("compare", "compare_columns", "paths", "threads"),
    ),
    Branch(
        "annotate=...", lambda c, _: c.get("annotate") is not None,
        ("annotate", "data.counterfactual", "data.world", "data.seed", "seed", "paths", "threads"),
    ),
    Branch(
        "a check of questions (dry_run=true)", _checks_data,
        ("dry_run", "benchmark", "data", "seed", "paths", "threads"),
    ),
    Branch(
        "wise_ft=...", lambda c, _: c.get("wise_ft") is not None,
        (*ANY_EVALUATION, "name", "arm", "runs", "wise_ft", "device", "feature_cache",
         "max_indistinct"),
    ),
    Branch(
        "an evaluation of a checkpoint (weights=..., or model=... alone)", _tests_checkpoint,
        (*ANY_EVALUATION, "weights", "model", "seed", "baseline", "device", "feature_cache",
         "max_indistinct", "data"),
    ),
    Branch(
        "a benchmark of texts alone", _tests_texts,
        (*ANY_EVALUATION, "seed", "baseline", "data"),
    ),
    Branch(
        "an evaluation of finished runs (name=..., arm=..., runs=...)", lambda *_: True,
        (*ANY_EVALUATION, "name", "arm", "runs", "baseline", "comparison", "device",
         "feature_cache", "max_indistinct", "label_frequency", "evaluate_initial",
         "forgetting_threshold", "tabulate"),
    ),
)  # fmt: skip
"""The ways of ``evaluate.py``; the first that is chosen counts."""


def _read_of_data(config: Config) -> set[str]:
    """Return the settings of ``data`` that the classes of a benchmark say that they read.

    Their ``reads_data`` has the form of ``read_with``, with settings of ``data`` as keys. A class
    of somebody else's that declares nothing may read them all.
    """
    found = set()
    unread = _unread_of_benchmark(config)
    for place, node in nodes_of(config.get("benchmark"), "benchmark."):
        if is_under(place[:-1], unread):
            continue
        ours = node["_target_"].startswith("cfaug.")
        declared = getattr(locate(node["_target_"]), "reads_data", {} if ours else {"data": {}})
        found |= {name for name, condition in declared.items() if holds(condition, node)}
    return found


def _asks_models(config: Config) -> bool:
    return config.get("annotate") is None


def _tested_sources(config: Config) -> list[str]:
    """Return the texts in the settings of a benchmark, or of questions to people.

    Among them are the names of sources. Parts of a benchmark that are not read, such as the other
    members of a suite, do not count.
    """
    if config.get("annotate") is not None:
        asked = flatten({"data": config["data"].get("counterfactual"), "": config["annotate"]})
    else:
        unread = _unread_of_benchmark(config)
        asked = flatten({"benchmark": config.get("benchmark")})
        asked = {key: one for key, one in asked.items() if not is_under(key, unread)}
    texts = [one for name in asked.values() for one in (name if isinstance(name, list) else [name])]
    return [text for text in texts if isinstance(text, str)]


def _sources(config: Config) -> list[str]:
    """Return the names of the sources that a mixture reads."""
    data = _data_settings(config)
    if data is None:
        return []
    named = getattr(data, "question_sets", (data.real, data.counterfactual))
    read = [name for name, needed in zip(named, data.needed, strict=True) if needed]
    return [name for name in (*read, data.human_labels, data.control_source) if name]


def _drawing(sources: Iterable[str]) -> set[str]:
    """Return the settings of a world that draw the parts that sources name."""
    from cfaug.shapescapes.settings import READ_BY

    families = {world_family(name) for name in sources} - {None}
    return {f"data.world.{name}" for family in families for name in READ_BY[str(family)]}


def _data_settings(config: Config) -> Any:
    """Return the settings of a mixture; ``None`` for other data, or if they are invalid."""
    from cfaug.data.mixture.settings import DataSettings
    from cfaug.planning.build import build

    try:
        data = build(config["data"])
    except UserError:  # refused with its own message when the run is planned
        return None
    return data if isinstance(data, DataSettings) else None


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


TRAIN = (
    Rule(
        ("parallel", "on_error"), "in sweeps (--multirun)",
        lambda config: config.get("multirun"),
    ),
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
        lambda config: _drawing(_sources(config)),
    ),
    Rule(
        ("trainer.val_every_steps", "trainer.early_stopping"),
        "with validation (data.validation above 0)",
        lambda config: config["data"].get("validation", 1) != 0,
    ),
    Rule(
        ("optim", "tuning", "loss", "trainer.gradient_clip", "trainer.val_every_steps",
         "trainer.early_stopping", "trainer.ema_decay", "trainer.accumulate_grad_batches",
         "trainer.micro_batch_size", "trainer.precision"),
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
        ("tuning.lora.merge",), "with language models (data=edits)",
        lambda config: "edits" in config["data"],
    ),
    Rule(
        ("loss.hard_negative_weight",), "with counterfactual examples (data.cf_ratio above 0)",
        _on_mixture(lambda data: data.drawn[1]),
    ),
)  # fmt: skip

WITH_WORLD = "with a part of the embedded world (shapescapes:PART) that it draws"

EVALUATED = (
    Rule(
        ("data",), "by benchmarks that ask about a run's own data, such as benchmark=heldout",
        lambda _: False, lambda config: {"data.world", "data.seed", *_read_of_data(config)},
    ),
    Rule(
        ("data.world",), WITH_WORLD,
        lambda config: _asks_models(config) and _read_of_data(config),
        lambda config: _drawing(_tested_sources(config)),
    ),
    Rule(
        ("data.seed", "seed"), WITH_WORLD,
        lambda config: _drawing(_tested_sources(config))
        or (_asks_models(config) and _read_of_data(config)),
    ),
    Rule(("name", "arm"), "without runs=[...]", lambda config: config.get("runs") is None),
    Rule(
        ("comparison.baselines",), "with baseline=null",
        lambda config: config.get("baseline") is None,
    ),
    Rule(
        ("model.logit_scale_min", "model.logit_scale_max"), "in training, by train.py",
        lambda _: False,
    ),
    *(Rule(*one) for one in ANNOTATED),
)  # fmt: skip

_EDITS, _IMAGES = "with stage=captions or stage=all", "with stage=images or stage=all"

GENERATE = (
    Rule(("parallel",), "in sweeps of parts (--multirun part=0,1 parts=2)",
         lambda config: config.get("multirun")),
    Rule(("zoo",), "by parts of the recipe that are used and name it as ${zoo....}",
         lambda _: False, lambda _: ("zoo.name",)),
    Rule(("paths",), "by chosen files that name it as ${paths....}",
         lambda _: False,
         lambda _: ("paths.shards", "paths.worlds", "paths.cache", "paths.image_roots")),
    Rule((*(f"recipe.{part}" for part in IMAGE_PARTS), "shards.image_format", "shards.batch",
          "pipeline_scoring"),
         _IMAGES, lambda config: config["stage"] != "captions"),
    Rule(("shards.image_format",), "by recipes that make images of their own",
         draws_images),
    Rule((*(f"recipe.{part}" for part in TEXT_PARTS), "shards.sets_per_shard", "data.grid",
          "data.keep_duplicates", "data.leave_out", "data.extra"),
         _EDITS, lambda config: config["stage"] != "images"),
    Rule(("data", "limit", "recipe.example_per"),
         f"{_EDITS}, or by recipes with the source's images (recipe.source_images=true)",
         lambda config: config["stage"] != "images" or config["recipe"].get("source_images")),
    Rule(("seed",), f"{_IMAGES}, by editors that draw, or by a world without data.world.seed",
         draws_seed),
    Rule(("data.keep_duplicates",), "with data.grid=...", is_read_with_source("keep_duplicates")),
    Rule(("data.extra",), "with a list of captions (data.source=FILE)",
         is_read_with_source("extra")),
    Rule(("data.leave_out",), "with sources in the embedded world (shapescapes:PART)",
         is_read_with_source("leave_out")),
    Rule(("data.world",), "with sources in the embedded world (shapescapes:PART)",
         is_read_with_source("world"),
         # A grid is recorded as one of the world if there is any world.
         lambda config: ("data.world._target_",) if config["data"]["grid"] is not None else ()),
    Rule(("recipe.editor.image_text",), "with a lambda_3 other than 0 (recipe.editor.weights)",
         weighs_images),
    Rule(("export.layout", "export.about"), "with export.hub=FOLDER",
         lambda config: config["export"]["hub"] is not None),
    Rule(("export.verified",), "with export.questions=FOLDER",
         lambda config: config["export"]["questions"] is not None),
)  # fmt: skip

BRANCHES: Mapping[str, Sequence[Branch]] = {"evaluate": EVALUATE}
"""The branches of each command, of which the first that is chosen counts."""

RULES: Mapping[str, Sequence[Rule]] = {"train": TRAIN, "generate": GENERATE, "evaluate": EVALUATED}
"""The rules of each command."""

OPEN_SOURCE = ("data.world", "data.seed", "seed", "paths")
"""The settings that ``cfaug.open_source`` reads."""


def place_of(word: str) -> str:
    """Return the setting of a word of the command line; for ``world@data.world`` its place.

    >>> place_of("+data.size=3"), place_of("world@data.world=cfmm"), place_of("recipe@_global_.x=y")
    ('data.size', 'data.world', 'x')
    """
    key = key_of(word)
    place = key.partition("@")[2] or key
    return place.removeprefix("_global_").removeprefix(".")


def refuse_unread(
    command: str,
    jobs: Sequence[tuple[Config, Sequence[str]]],
    multirun: bool,
    written: Callable[[Sequence[str]], Mapping[str, Any]],
) -> None:
    """Refuse a typed setting that no job of a command line reads.

    In a sweep a setting counts as read if any job reads it; the others are reported.

    Args:
        command: the name of the command, such as ``train``.
        jobs: (settings, words of the command line) of each job.
        written: a function from words to {setting: value as written}, with ``${...}``.
    """
    reasons: dict[str, str] = {}
    typed, unread = Counter[str](), Counter[str]()
    alike: dict[tuple[str, ...], list[Config]] = {}  # jobs that differ in their seed alone
    for config, words in jobs:
        alike.setdefault(tuple(word for word in words if key_of(word) != "seed"), []).append(config)
    for words, configs in alike.items():
        seeds = [word for word in jobs[0][1] if key_of(word) == "seed"]
        config = {**configs[0], "multirun": multirun}
        typed.update(dict.fromkeys(map(place_of, [*words, *seeds]), len(configs)))
        for word, reason in find_unread_words(command, config, [*words, *seeds], written):
            reasons.setdefault(place_of(word), reason)
            unread[place_of(word)] += len(configs)
    for key, reason in reasons.items():
        if unread[key] == typed[key]:
            raise UserError(reason)
        say(f"note: in {unread[key]} of {len(jobs)} jobs {reason}")


def refuse_others(words: Sequence[str], reads: Sequence[str], reader: str) -> None:
    """Refuse words that a function does not read.

    Args:
        reads: the settings, or nodes of settings, that it reads.
        reader: the name of the function.
    """
    for word in words:
        if not touches(place_of(word), reads):
            raise UserError(
                f"{word} would have no effect: {reader} reads {', '.join(reads)}; leave it out"
            )


def find_unread_words(
    command: str,
    config: Config,
    words: Sequence[str],
    written: Callable[[Sequence[str]], Mapping[str, Any]],
) -> Iterator[tuple[str, str]]:
    """Yield (word, why nothing reads it) for each word of one job.

    Args:
        config: the composed settings, and ``multirun``.
        written: a function from words to {setting: value as written}, with ``${...}``.
    """
    asked = _asked(words, config)
    if not asked:
        return
    is_unread = _judge(command, {**config, "words": words}, words)
    for word, key in asked:
        reason = is_unread(key)
        if reason is not None:
            reason = _explain_references(key, reason, is_unread, written(words))
        if reason is not None:
            yield word, _explain_unread(word, key, reason)


def _asked(words: Sequence[str], config: Config) -> list[tuple[str, str]]:
    """Return (word, setting) of the words that ask for something of these settings."""
    return [
        (word, place_of(word))
        for word in words
        if place_of(word).partition(".")[0] in config and not _asks_for_nothing(config, word)
    ]


def _explain_unread(word: str, key: str, reason: str) -> str:
    return f"{word} would have no effect: {key} is read {reason}; leave it out"


def _asks_for_nothing(config: Config, word: str) -> bool:
    value = word.partition("=")[2]
    if value not in OFF:
        return value in NULL
    *nodes, name = place_of(word).split(".")
    node: Any = config
    for one in nodes:
        node = node.get(one) if isinstance(node, Mapping) else None
    if not isinstance(node, Mapping) or "_target_" not in node:
        return True
    taken = inspect.signature(locate(node["_target_"])).parameters.get(name)
    return taken is None or taken.default is not True


def _judge(command: str, config: Config, words: Sequence[str]) -> Callable[[str], str | None]:
    """Return a function that says why a setting is not read; ``None`` for one that is."""
    branches = BRANCHES.get(command, ())
    branch = next((one for one in branches if one.chosen(config, words)), None)
    broken = [rule for rule in RULES.get(command, ()) if not rule.reads(config)]
    declared = dict(declared_unread(config, _about(config, words)))

    def judge(key: str) -> str | None:
        if branch is not None and not touches(key, branch.reads):
            others = [one.name for one in branches if touches(key, one.reads)]
            return f"by {', or '.join(others)}, not by {branch.name}"
        for rule in broken:
            if is_under(key, rule.settings) and not touches(key, rule.but(config)):
                return rule.read_by
        return next((why for one, why in declared.items() if is_under(key, [one])), None)

    return judge


def _unread_of_benchmark(config: Config) -> dict[str, str]:
    """Return what no class of a job's benchmark reads, as ``declared_unread`` yields it."""
    about = _about(config, config.get("words", ()))
    return dict(declared_unread({"benchmark": config.get("benchmark")}, about))


def describe_readers(command: str, targets: Mapping[str, str]) -> list[str]:
    """Return a line for each way in which a command reads only some settings, for ``--help``.

    Args:
        targets: {node: the class that its chosen file names}.
    """
    lines = [f"  {branch.name}: {', '.join(branch.reads)}" for branch in BRANCHES.get(command, ())]
    lines += [f"  {', '.join(rule.settings)}: {rule.read_by}" for rule in RULES.get(command, ())]
    for node, target in targets.items():
        for name, conditions in declared_by(locate(target)).items():
            lines.append(f"  {node}.{name}: with {describe_conditions(conditions, f'{node}.')}")
    return lines


def refuse_unread_by_runs(
    benchmark: Mapping[str, Any], words: Sequence[str], runs: Sequence[CheckpointFacts]
) -> None:
    """Refuse a typed setting of a benchmark that none of the finished runs reads."""
    every = [dict(declared_unread({"benchmark": benchmark}, run)) for run in runs]
    for word, key in _asked(words, {"benchmark": benchmark}):
        found = [next((w for one, w in d.items() if is_under(key, [one])), None) for d in every]
        if found and None not in found:
            raise UserError(_explain_unread(word, key, str(found[0])))


def _explain_references(
    key: str,
    reason: str,
    is_unread: Callable[[str], str | None],
    written: Mapping[str, Any],
) -> str | None:
    """Return why the settings that take this one by ``${...}`` are not read, if there are any."""
    users: dict[str, list[str]] = {}
    for name, value in written.items():
        for used in references(name, value):
            users.setdefault(used, []).append(name)
    reasons, waiting = {key: reason}, [key]
    while waiting:
        one = waiting.pop()
        for used, names in users.items():
            if not touches(used, [one]):
                continue
            # With ``model: ${zoo.clip}``, zoo.clip.max_length is read as model.max_length.
            inner = one[len(used) :] if one.startswith(used + ".") else ""
            for name in (outer + inner for outer in names):
                found = is_unread(name)
                if found is None:
                    return None
                if name not in reasons:
                    reasons[name] = found
                    waiting.append(name)
    # A node that is only there to be taken says less than the settings that take it.
    return next((one for one in reasons.values() if "${" not in one), reason)


def references(name: str, value: Any) -> list[str]:
    """Return the settings that a value takes by ``${...}``.

    >>> references("a.b", "${paths.runs}/${.c}"), references("a.b", 3)
    (['paths.runs', 'a.c'], [])
    """
    if isinstance(value, list | tuple):
        return [reference for part in value for reference in references(name, part)]
    found = []
    for dots, key in REFERENCE.findall(value) if isinstance(value, str) else ():
        parents = name.split(".")[: -len(dots)] if dots else []
        found.append(".".join([*parents, key]))
    return found
