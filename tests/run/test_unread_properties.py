"""Every setting of every shipped command changes what is made, or is refused as unread."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, cast

import pytest

import cfaug
from cfaug.core.annotations import without_result
from cfaug.core.errors import UserError
from cfaug.core.files import read_yaml
from cfaug.core.targets import locate
from cfaug.evaluation.context import EvaluationContext
from cfaug.evaluation.retrieval import Retrieval
from cfaug.planning.build import build
from cfaug.run import generate
from cfaug.run.annotation_steps import AnnotationSource
from cfaug.settings.arguments import flatten
from cfaug.settings.read_if import CommandJob, ReadIf
from tests.contributed import contributed
from tests.files_of_settings import other_values, settings_file, settings_files
from tests.run import annotated_steps, evaluated_sources
from tests.run.annotated_steps import PAIRS, lay_answers
from tests.run.changed_settings import (
    OF_BENCHMARKS,
    OF_MEMBERS,
    OF_STEPS,
    OTHERWISE_TRAINED,
    START,
    TRAINED,
)
from tests.run.conftest import compose, find_unread
from tests.run.evaluated_sources import Case, Sources
from tests.run.generation_changes import find_dead, merge
from tests.test_conf import RECIPES


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    return Sources(tmp_path_factory.mktemp("sources"))


# Training: the weights, byte by byte.


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worlds")


@pytest.mark.slow
@pytest.mark.parametrize("ratio", TRAINED)
def test_every_setting_of_a_run_changes_its_weights_or_is_refused(ratio, worlds, tmp_path):
    def weights(**more) -> str | None:
        settings = {**START, "data.cf_ratio": ratio, "paths.runs": str(tmp_path)}
        settings |= {"paths.shards": str(worlds), "paths.cache": str(worlds), **more}
        arm = hashlib.sha256(repr(more).encode()).hexdigest()
        try:
            run = cfaug.fine_tune(settings, arm=arm)
        except UserError:
            return None
        file = run.folder / "checkpoint/model.safetensors"
        return hashlib.sha256(file.read_bytes()).hexdigest()

    plain = weights()  # were it refused, everything that is refused would be like it
    unread = [key for key, value in TRAINED[ratio].items() if weights(**{key: value}) == plain]
    assert [key for key in unread if key not in OTHERWISE_TRAINED] == []
    assert weights(**{key: value for key, (value, _) in OTHERWISE_TRAINED.items()}) is not None


# Annotation: the files that a step writes.

STEPS = annotated_steps.STEPS | contributed("annotated", "STEPS")


def written(node: Mapping[str, Any], source: AnnotationSource, folder: Path) -> Any:
    """Return what a step writes, or the message that refuses it."""
    folder.mkdir()
    try:
        build({**node, "out": str(folder / f"out{Path(node['out']).suffix}")}).run(source)
    except UserError as error:
        return str(error)
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def put(node: Any, path: list[str], value: Any) -> Any:
    """Return nested settings with another value at a place."""
    return {**node, path[0]: put(node[path[0]], path[1:], value)} if path else value


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_every_setting_of_a_step_changes_what_is_written_or_is_refused(
    name, sources, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    step = STEPS[name]
    words = [f"annotate={step.words[0]}", *step.words[1:]]
    config = compose("annotate", *words, f"pairs={PAIRS}")
    place = step.source if step.source == PAIRS else sources[step.source]
    index = sources.context.open(place)
    source = AnnotationSource("asked", index, lambda: Path("oracle.jsonl"), sources.context.open)
    lay_answers(source)
    before, dead = written(config["annotate"], source, tmp_path / "before"), []
    assert isinstance(before, dict)
    for number, (key, value) in enumerate(flatten({"annotate": config["annotate"]}).items()):
        short = key.removeprefix("annotate.")
        if "_target_" in key or any(key.startswith(prefix) for prefix in OF_STEPS):
            continue
        parent = CommandJob(config).value(key.rpartition(".")[0])
        target = locate(parent["_target_"]) if "_target_" in parent else None
        typed = other_values(value, target, key.rpartition(".")[2])[0]
        other = step.others.get(short, typed)
        node = put(config["annotate"], short.split("."), other)
        refused = find_unread("annotate", [*words, f"{key}=x"], {**config, "annotate": node})
        if not refused and written(node, source, tmp_path / str(number)) == before:
            dead.append(key)
    assert dead == []


# Evaluation: the identity of a benchmark.

CASES = evaluated_sources.CASES | contributed("evaluated", "CASES")


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


def find_dead_of(node: Mapping[str, Any], case: Case, config: Any, sources: Sources) -> list[str]:
    """Return the settings of a benchmark that may be typed and change nothing.

    Raises:
        UserError: of a changed value that is refused, if the case does not say so.
    """

    def identity(node: Mapping[str, Any]) -> list[Any]:
        return [(opened.name, opened.data_hash) for opened in build(node).open(sources.context)]

    target = locate(node["_target_"])
    before, dead = identity(node), []
    for name in (field.name for field in fields(target) if field.init):
        value = node.get(name, getattr(target, name, None))
        if name not in case.changes and name in OF_BENCHMARKS and value is None:
            continue
        other = case.changes.get(name, next(iter(other_values(value, target, name))))
        altered = {**node, name: fill(other, sources)}
        words = [*case.model, *case.words, f"benchmark.{name}={'null' if other is None else 'x'}"]
        if words[-1] in find_unread("evaluate", words, {**config, "benchmark": altered}):
            continue
        if name in case.checks:
            with pytest.raises(UserError, match=case.checks[name]):
                identity(altered)
        elif name not in OF_BENCHMARKS and identity(altered) == before:
            dead.append(name)
    return dead


@dataclass
class WithDead(Retrieval):
    """A benchmark with a setting that nothing reads, and one that is read in another form."""

    dead: int = 0
    spare: Annotated[int, ReadIf({"captions_per_image": (2,)})] = 0


@pytest.mark.parametrize("name", CASES)
def test_every_setting_of_a_benchmark_changes_its_identity_or_is_refused(name, sources):
    case = CASES[name]
    config = compose("evaluate", *case.model, *fill(list(case.words), sources))
    assert find_dead_of(config["benchmark"], case, config, sources) == []
    if name == "retrieval":  # the property finds a setting without effect
        node = {**config["benchmark"], "_target_": f"{__name__}.WithDead"}
        assert find_dead_of(node, case, config, sources) == ["dead"]


def target_of(name: str) -> str:
    """Return the class of a shipped benchmark, which may be that of the file it begins with."""
    node = read_yaml(settings_file(f"benchmark/{name}"))
    return node["_target_"] if "_target_" in node else target_of(node["defaults"][0])


SHIPPED = sorted(file.stem for file in settings_files("benchmark"))
SUITES = [name for name in SHIPPED if target_of(name).startswith("cfaug.evaluation.suites")]
WHERE = {"world": (), "folders": ("data=folder", "data.real=/photos")}


def test_every_shipped_benchmark_is_tried():
    tried = {target_of(case.words[0].partition("=")[2]) for case in CASES.values()}
    assert {target_of(name) for name in SHIPPED if name not in SUITES} == tried


@pytest.mark.slow
@pytest.mark.parametrize("place", WHERE)
@pytest.mark.parametrize("name", [suite for suite in SUITES if suite != "heldout"])
def test_every_setting_of_a_member_is_read_if_the_member_is_run(name, place):
    words = ["model.weights=zoo:clip-0", f"benchmark={name}"]
    config = compose("evaluate", *words)
    if "auto" in (name, config["benchmark"].get("where")):
        words += WHERE[place]
        config = compose("evaluate", *words)
    node = config["benchmark"]
    if name == "auto":  # a suite for each kind of run
        typed = [f"{key}=x" for key in flatten({"benchmark": node})]
        unread = find_unread("evaluate", [*words, *typed], config)
        read = {word.split(".")[1].partition("=")[0] for word in typed if word not in unread}
        assert read == {"_target_", "world" if place == "world" else "own"}
        return
    there = EvaluationContext(cast(Any, None), has_world=place == "world", held_out=lambda: None)
    for only in (None, [[*build(node)._chosen(there)][-1]]):
        altered = {**node, "only": only}
        chosen = build(altered)._chosen(there)
        side = "world" if chosen.keys() <= node.get("world", {}).keys() else "folders"
        typed = {
            f"{key}=x": ".".join(key.split(".")[1:3])
            for key in flatten({"benchmark": altered})
            if key.startswith(("benchmark.world.", "benchmark.folders."))
        }
        unread = find_unread("evaluate", [*words, *typed], {**config, "benchmark": altered})
        for word, member in typed.items():
            read = member in {f"{side}.{name}" for name in chosen}
            assert (word not in unread) == read or word[:-2].endswith(OF_MEMBERS), word


# Generation: what a folder records of its settings.

OTHERWISE = (
    ["recipe=xmai", "zoo=paper", "detections@recipe=mentioned"],
    ["recipe=social", "+recipe_part@recipe=found_labels"],
)
"""Other settings of recipes, of those that are installed."""
OF_PAPERS_ZOO = ["substitution", "photo_edits", *contributed("recipes", "OF_PAPERS_ZOO")]


@pytest.fixture(scope="module")
def tried() -> set[str]:
    return set()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        *([f"recipe={recipe}"] for recipe in RECIPES),
        *(["recipe=photo_edits", f"stage={stage}"] for stage in ("captions", "images")),
        ["zoo=captions", "stage=captions"],
        *([f"recipe={name}", "zoo=paper"] for name in OF_PAPERS_ZOO),
        *(words for words in OTHERWISE if words[0].removeprefix("recipe=") in RECIPES),
    ],
    ids=" ".join,
)  # fmt: skip
def test_every_setting_of_every_recipe_is_recorded_or_refused(words, tried):
    assert find_dead(merge(*words, "parts=2"), tried) == []


@pytest.mark.slow
def test_that_property_finds_a_setting_without_effect(monkeypatch):
    """An identity that ignores the number of steps."""
    monkeypatch.setattr(generate, "without_result", lambda k: {*without_result(k), "steps"})
    assert find_dead(merge("parts=2"), set()) == ["recipe.image_editor.steps"]
