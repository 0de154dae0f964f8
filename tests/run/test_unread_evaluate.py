"""A typed setting of evaluate.py changes the test, its identity or its outcome, or is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import pytest

from cfaug.core.annotations import alternatives_of, annotation_of, base_of, choices_of
from cfaug.core.errors import USERS_MISTAKE, UserError
from cfaug.core.files import read_yaml
from cfaug.core.protocols import Answerer, DualEncoder, Matcher
from cfaug.core.targets import locate
from cfaug.evaluation.choices.pairs import PairMatching
from cfaug.evaluation.context import EvaluationContext
from cfaug.evaluation.retrieval import Retrieval
from cfaug.planning.build import build
from cfaug.run.arguments import flatten
from cfaug.run.compose import compose_jobs
from cfaug.run.evaluate import EvaluateSettings
from cfaug.run.evaluation_data import refuse_contradictions
from cfaug.run.reading_rules import CheckpointFacts
from cfaug.run.unread import find_unread_words, refuse_unread_by_runs
from tests.contributed import contributed
from tests.run import evaluated_sources
from tests.run.evaluated_sources import Case, Sources
from tests.settings import settings_file, settings_files

CASES = evaluated_sources.CASES | contributed("evaluated", "CASES")
SPEED_OR_PLACE = {
    "batch_size": "speed and memory: how much is computed at once",
    "page": "the length of a page that is drawn from the items, which is no result",
    "apply": "a command that the page shows",
    "images": "the place of photos; one that is missing is an error",
    "missing": "only for a folder that lacks photos, which is an error otherwise",
    "without_missing": "only for a folder that lacks photos, which is an error otherwise",
    "invalid": "only for sets that are not whole, which are an error otherwise",
    "without_leaks": "only for images that a run was trained on, which are reported otherwise",
}
"""Settings of benchmarks that change neither the identity nor the outcome of every test."""


def compose(*words: str) -> dict[str, Any]:
    """Return the settings of one job of evaluate.py."""
    ((config, _),) = compose_jobs("evaluate", words, multirun=False, command=EvaluateSettings)
    return config


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    return Sources(tmp_path_factory.mktemp("sources"))


def fill(value: Any, sources: Sources) -> Any:
    """Put the paths of sources in the place of their names."""
    if isinstance(value, Mapping):
        return {name: fill(part, sources) for name, part in value.items()}
    if isinstance(value, list):
        return [fill(part, sources) for part in value]
    if isinstance(value, str) and "@" in value:
        for name in sorted({source.strip("[]") for source in value.split("@")[1:]}):
            name = name.partition(",")[0]
            value = value.replace(f"@{name}", sources[name])
    return value


def changed(target: Any, name: str, value: Any) -> Any:
    """Return another value of a setting, by its annotation."""
    if isinstance(value, bool):
        return not value
    for kind in alternatives_of(annotation_of(target, name)):
        if base_of(kind) is Literal:
            return next(choice for choice in choices_of(kind) if choice != value)
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str) or (value is None and name == "name"):
        return f"{value or 'other'}2"
    return [*value, "more"] if isinstance(value, list | tuple) else pytest.fail(f"{name}={value!r}")


def identity(node: Mapping[str, Any], context: EvaluationContext) -> list[Any]:
    """Return by what the results of a benchmark are recognised."""
    return [(opened.name, opened.data_hash) for opened in build(node).open(context)]


def find_dead(node: Mapping[str, Any], case: Case, config: Any, sources: Sources) -> list[str]:
    """Return the settings of a benchmark that may be typed and change nothing.

    Raises:
        UserError: of a changed value that is refused, if the case does not say so.
    """
    target = locate(node["_target_"])
    before, dead = identity(node, sources.context), []
    for field in fields(target):
        if not field.init:
            continue
        value = node.get(field.name, getattr(target, field.name, None))
        if field.name in case.changes:
            other = case.changes[field.name]
        elif field.name in SPEED_OR_PLACE and value is None:
            continue
        else:
            other = changed(target, field.name, value)
        altered = {**node, field.name: fill(other, sources)}
        word = f"benchmark.{field.name}={'null' if other is None else 'x'}"
        job = {**config, "benchmark": altered}
        if is_unread(word, job, [*case.model, *case.words]):
            continue
        if field.name in case.checks:
            with pytest.raises(UserError, match=case.checks[field.name]):
                identity(altered, sources.context)
        elif field.name not in SPEED_OR_PLACE and identity(altered, sources.context) == before:
            dead.append(field.name)
    return dead


@pytest.mark.parametrize("name", CASES)
def test_every_setting_of_a_benchmark_changes_its_identity_or_is_refused(name, sources):
    case = CASES[name]
    config = compose(*case.model, *fill(list(case.words), sources))
    assert find_dead(config["benchmark"], case, config, sources) == []


@dataclass
class WithDead(Retrieval):
    """A benchmark with a setting that nothing reads, and one that is read in another form."""

    dead: int = 0
    spare: int = 0

    read_with: ClassVar = {"spare": {"captions_per_image": (2,)}}


def test_a_setting_that_nothing_reads_is_found(sources):
    case = CASES["retrieval"]
    config = compose(*case.model, *fill(list(case.words), sources))
    node = {**config["benchmark"], "_target_": f"{__name__}.WithDead"}
    assert find_dead(node, case, config, sources) == ["dead"]


def shipped(group: str) -> list[str]:
    return sorted(file.stem for file in settings_files(group))


def target_of(name: str) -> str:
    """Return the class of a shipped benchmark, which may be that of the file it begins with."""
    node = read_yaml(settings_file(f"benchmark/{name}"))
    return node["_target_"] if "_target_" in node else target_of(node["defaults"][0])


SUITES = [
    name for name in shipped("benchmark") if target_of(name).startswith("cfaug.evaluation.suites")
]


def test_every_shipped_benchmark_is_tried():
    tried = {target_of(case.words[0].partition("=")[2]) for case in CASES.values()}
    assert {target_of(name) for name in shipped("benchmark") if name not in SUITES} == tried


OTHERWISE_UNREAD = (
    "without_leaks",
    "question",
    "blind.world.skewed",
    "blind.world.skewed_subjects",
    ".test.restrict",
)
"""Settings that no checkpoint of a dual encoder reads, and those of a world without a skew."""

WHERE = {"world": (), "folders": ("data=folder", "data.real=/photos")}


@pytest.mark.slow
@pytest.mark.parametrize("place", WHERE)
@pytest.mark.parametrize("name", [suite for suite in SUITES if suite not in ("auto", "heldout")])
def test_every_setting_of_a_member_is_read_if_the_member_is_run(name, place):
    words = ["model.weights=zoo:clip-0", f"benchmark={name}"]
    if target_of(name).endswith("Suite") and "auto" in str(compose(*words)["benchmark"]["where"]):
        words += WHERE[place]
    config = compose(*words)
    node = config["benchmark"]
    last = [*build(node)._chosen(context_on(place))][-1]
    for only in (None, [last]):
        altered = {**node, "only": only}
        chosen = build(altered)._chosen(context_on(place))
        side = "world" if chosen.keys() <= node.get("world", {}).keys() else "folders"
        read = {f"benchmark.{side}.{member}" for member in chosen}
        typed = {
            f"{key}=x": ".".join(key.split(".")[:3])
            for key in flatten({"benchmark": altered})
            if key.startswith(("benchmark.world.", "benchmark.folders."))
        }
        unread = find_unread([*words, *typed], {**config, "benchmark": altered})
        for word, member in typed.items():
            passed = word.removesuffix("=x").endswith(OTHERWISE_UNREAD)
            assert (word not in unread) == (member in read) or passed, word


def context_on(place: str) -> EvaluationContext:
    nothing: Any = None
    return EvaluationContext(open=nothing, has_world=place == "world", held_out=lambda: None)


def find_unread(words: Sequence[str], config: Mapping[str, Any]) -> set[str]:
    """Return the words that are refused as ones that nothing reads."""
    return {word for word, _ in find_unread_words("evaluate", config, words, lambda _: {})}


def is_unread(word: str, config: Mapping[str, Any], words: Sequence[str]) -> bool:
    return word in find_unread([*words, word], config)


@pytest.mark.parametrize("place", WHERE)
def test_the_settings_of_auto_are_read_in_the_suite_that_is_run(place):
    words = ["model.weights=zoo:clip-0", *WHERE[place]]
    config = compose(*words)
    read = {key.split(".")[1] for key in flatten({"benchmark": config["benchmark"]})
            if not is_unread(f"{key}=x", config, words)}  # fmt: skip
    assert read == {"_target_", "world" if place == "world" else "own"}


# What was accepted without a word: the findings of the second round of hostile use.

FOUND = {
    "N9 the holdout": (
        "weights=zoo:clip-0 data.holdout=0.9 benchmark=retrieval benchmark.data=/x",
        "data.holdout is read by benchmarks that ask about a run's own data"),
    "N13 the question to a dual encoder": (
        "weights=zoo:clip-0 benchmark=pairs benchmark.data=/x benchmark.question=vqascore",
        "with a model that provides Answerer"),
    "N13 photos of a part of the world": (
        "weights=zoo:clip-0 benchmark=pairs benchmark.data=shapescapes:ood_pairs "
        "benchmark.images=/x", "with benchmark.data=FOLDER"),
    "N32 the seed of an order that is given": (
        "model=tiny_vlm benchmark=vqa benchmark.order_seed=99", "option_order=shuffled"),
    "N32 the reduction of an answer that is written": (
        "model=tiny_vlm benchmark=vqa benchmark.protocol=write benchmark.reduction=sum",
        "with benchmark.protocol=rank"),
    "N32 the seed of random pairs without photos": (
        "weights=zoo:clip-0 benchmark=matching benchmark.seed=3", "with benchmark.real=..."),
    "N32 leaks of unknown training": (
        "weights=zoo:clip-0 benchmark=retrieval benchmark.data=/x benchmark.without_leaks=true",
        "finished runs"),
    "N32 leaks to the world": (
        "name=x benchmark=retrieval benchmark.data=shapescapes:ood benchmark.without_leaks=true",
        "with benchmark.data=FOLDER"),
    "the seed of a world that is not used": (
        "weights=zoo:clip-0 seed=5 benchmark=retrieval benchmark.data=/x",
        "seed is read with a part of the embedded world"),
    "a folder of a suite that is run in the world": (
        "weights=zoo:clip-0 benchmark=ood benchmark.folders.cifar10_classification.data=/x",
        "with benchmark.where=folders"),
    "baselines that are named twice": (
        "name=x baseline=real comparison.baselines=[a]", "with baseline=null"),
    "a bound of training": ("weights=zoo:clip-0 model.logit_scale_max=3", "by train.py"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_what_was_accepted_without_a_word_is_refused(name):
    words, said = FOUND[name]
    with pytest.raises(UserError, match="would have no effect") as refused:
        compose(*words.split())
    assert said in str(refused.value)


READ = (
    "weights=zoo:clip-0 seed=5",
    "model=tiny_clips seed=5 benchmark=retrieval benchmark.data=/x",
    "model=tiny_vlm benchmark=pairs benchmark.question=vqascore",
    "name=x benchmark=retrieval benchmark.data=/x benchmark.without_leaks=true",
    "weights=zoo:clip-0 benchmark=ood benchmark.where=folders "
    "benchmark.folders.cifar10_classification.data=/x",
)


@pytest.mark.parametrize("words", READ)
def test_what_is_read_is_accepted(words):
    assert compose(*words.split())


def test_a_setting_that_none_of_the_finished_runs_reads_is_refused():
    """N13 and N32 for runs, whose models and data are known once they are found."""
    clip = CheckpointFacts((DualEncoder, Matcher), True, True, "captions")
    vlm = CheckpointFacts((Answerer,), True, True, "questions")
    words = ["name=x", "benchmark=pairs", "benchmark.question=vqascore"]
    node = compose(*words)["benchmark"]
    with pytest.raises(UserError, match=r"question is read with a model that provides Answerer"):
        refuse_unread_by_runs(node, words, [clip, clip])
    refuse_unread_by_runs(node, words, [clip, vlm])
    words = ["name=x", "benchmark=ood", "benchmark.folders.cifar10_classification.data=/x"]
    with pytest.raises(UserError, match=r"where=folders"):
        refuse_unread_by_runs(compose(*words)["benchmark"], words, [clip])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"images": "/nowhere"}, r"benchmark\.images=/nowhere would .*is no such list"),
        ({"missing": "skip"}, r"benchmark\.missing=skip would have no effect"),
        ({"form": "aro_relation"}, "does not hold ARO"),
    ],
)
def test_settings_of_released_lists_are_refused_for_other_pairs(sources, settings, said):
    """N13: they were ignored, or the same numbers were computed again."""
    folder = str(sources._place("shapescapes:ood_pairs"))
    with pytest.raises(UserError, match=said):
        PairMatching(data=folder, **settings).open(sources.context)


def test_a_share_of_counterfactual_sets_is_not_one_of_photos(sources):
    """N32: 9 of 30 photos replaced the result of all of them, under the same name."""
    with pytest.raises(UserError, match="only single images: leave it out"):
        Retrieval(sources["photos"], counterfactual_holdout=0.3).open(sources.context)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("model.weights=zoo:nonsense", "weights is the short name of model.weights"),
        ("model=tiny_flava", "type flava, and weights=zoo:clip-0 is of the type vision-text"),
        ("+model.revision=abc", "names a commit of the Hub, and zoo:clip-0 is a folder here"),
        ("model=open_clip model.architecture=RN50", "model.architecture=RN50 would have no effect"),
    ],
)
def test_weights_and_a_model_that_contradict_each_other(tmp_path, script, capsys, words, said):
    """N10: CLIP-0 was evaluated, and the second checkpoint or the other model not mentioned."""
    given = ["weights=zoo:clip-0", "benchmark=retrieval", f"benchmark.data={tmp_path}"]
    assert script("evaluate")([*given, *words.split(), f"paths.runs={tmp_path}"]) == USERS_MISTAKE
    assert said in capsys.readouterr().err


def test_weights_and_a_model_that_agree():
    words = ["model=tiny_clip", "weights=zoo:clip-1"]
    refuse_contradictions(compose(*words)["model"], words)
