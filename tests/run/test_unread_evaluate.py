"""A typed setting of evaluate.py changes the test, its identity or its outcome, or is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, Literal, get_args

import pytest

from cfaug.bench.context import EvaluationContext
from cfaug.bench.retrieval import Retrieval
from cfaug.bench.suites import Auto, HeldOut, Suite
from cfaug.errors import UserError
from cfaug.run.binding import locate
from cfaug.run.build import build
from cfaug.run.compose import compose_jobs
from cfaug.run.evaluate_settings import EvaluateSettings
from cfaug.run.unread import find_unread_words
from cfaug.validation import alternatives_of, annotation_of, base_of, choices_of
from tests.run.evaluated_sources import CASES, Case, Sources
from tests.test_conf import CONF

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
    ((config, _),) = compose_jobs(
        CONF, "evaluate", words, multirun=False, command=EvaluateSettings
    )
    return config


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    return Sources(tmp_path_factory.mktemp("sources"))


def fill(value: Any, sources: Sources) -> Any:
    """Put the paths of sources in the place of their names."""
    if isinstance(value, Mapping):
        return {name: fill(one, sources) for name, one in value.items()}
    if isinstance(value, list):
        return [fill(one, sources) for one in value]
    if isinstance(value, str) and "@" in value:
        for name in sorted({one.strip("[]") for one in value.split("@")[1:]}):
            name = name.partition(",")[0]
            value = value.replace(f"@{name}", sources[name])
    return value


def changed(target: Any, name: str, value: Any) -> Any:
    """Return another value of a setting, by its annotation."""
    if isinstance(value, bool):
        return not value
    for kind in alternatives_of(annotation_of(target, name)):
        if base_of(kind) is Literal:
            return next(one for one in choices_of(kind) if one != value)
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str) or (value is None and name == "name"):
        return f"{value or 'other'}2"
    return [*value, "more"] if isinstance(value, list | tuple) else pytest.fail(f"{name}={value!r}")


def identity(node: Mapping[str, Any], context: EvaluationContext) -> list[Any]:
    """Return by what the results of a benchmark are recognised."""
    return [(one.name, one.data_hash) for one in build(node).open(context)]


def find_dead(node: Mapping[str, Any], case: Case, config: Any, sources: Sources) -> list[str]:
    """Return the settings of a benchmark that may be typed and change nothing.

    Raises:
        UserError: of a changed value that is refused, if the case does not say so.
    """
    target = locate(node["_target_"])
    before, dead = identity(node, sources.context), []
    for one in fields(target):
        if not one.init:
            continue
        value = node.get(one.name, getattr(target, one.name, None))
        other = case.changes.get(one.name) if one.name in case.changes else None
        if one.name not in case.changes:
            other = changed(target, one.name, value)
        own = {**node, one.name: fill(other, sources)}
        word = f"benchmark.{one.name}={'null' if other is None else 'x'}"
        job = {**config, "benchmark": own}
        words = [*case.model, *case.words, word]
        if word in [unread for unread, _ in find_unread_words("evaluate", job, words, lambda _: {})]:
            continue
        if one.name in case.checks:
            with pytest.raises(UserError, match=case.checks[one.name]):
                identity(own, sources.context)
        elif one.name not in SPEED_OR_PLACE and identity(own, sources.context) == before:
            dead.append(one.name)
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
    return sorted(file.stem for file in (CONF / group).glob("*.yaml"))


@pytest.fixture(scope="module")
def benchmarks() -> dict[str, Any]:
    return {name: compose("name=x", f"benchmark={name}")["benchmark"] for name in shipped("benchmark")}


def test_every_shipped_benchmark_is_tried(benchmarks):
    tried = {compose(*c.model, c.words[0])["benchmark"]["_target_"] for c in CASES.values()}
    suites = {f"cfaug.bench.suites.{one.__name__}" for one in (Suite, Auto, HeldOut)}
    assert {node["_target_"] for node in benchmarks.values()} == tried | suites
