"""A setting of generate.py that nothing reads is refused (N33); every other one has an effect."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from cfaug.core.annotations import alternatives_of, annotation_of, choices_of
from cfaug.core.binding import bind
from cfaug.core.errors import UserError
from cfaug.core.targets import item_annotation, locate
from cfaug.core.validation import accepts
from cfaug.run.arguments import flatten
from cfaug.run.compose import _container, _keep_taken, _merge, _register_resolvers
from cfaug.run.generate import WHERE_IT_RUNS, describe_settings
from cfaug.run.generate_settings import GenerateSettings
from cfaug.run.settings_files import register_search_path
from cfaug.run.unread import find_unread_words
from cfaug.run.usage import options_in
from tests.contributed import contributed
from tests.run.conftest import compose, jobs_of, refuse_as_unread
from tests.test_conf import CONF, RECIPES

SPEED_AND_PLACE = {
    "threads": "cores of this machine",
    "quiet": "what is printed",
    "verbose": "what is printed",
    "pipeline_scoring": "a second thread; the same bytes",
    "paths.shards": "the place of the result",
    "paths.worlds": "the place of the scenes of shapescapes:PART",
    "paths.cache": "the place of indexes and answers",
    "paths.image_roots": "places from which a list may name images",
    "publish_incomplete": "what happens to failed items, which are listed",
    "overwrite": "what happens to a folder made with other settings",
    "force": "whether photos are refused that a zoo of drawn scenes knows nothing of",
    "dry_run": "whether anything is made",
}
"""Settings at the top, each with the reason why a result does not depend on it. For those of a
recipe see ``cfaug.run.generate.WHERE_IT_RUNS``."""

ELSEWHERE = ("data.", "export.", "limit", "recipe.example_per", "recipe.source_images", "stage")
"""Settings that the tests of sources, exports and stages change, with real files."""


@pytest.mark.parametrize(
    ("words", "would_read"),
    [
        (["recipe=deletion", "limit=3", "export.layout=grid"], "export.hub=FOLDER"),
        (["recipe=deletion", "zoo.diffusion.device=cuda"], "parts of the recipe"),
        (["stage=captions", "recipe.draws.candidates=4"], "stage=images or stage=all"),
        (["stage=captions", "shards.image_format=webp"], "stage=images or stage=all"),
        (["stage=captions", "export.hub=x"], "stage=images or stage=all"),
        (["stage=images", "recipe.editor.top_k=3"], "stage=captions or stage=all"),
        (["stage=images", "data.source=a.txt", "limit=3"], "recipe.source_images=true"),
        (["recipe=clare", "stage=images", "data.leave_out.colour=0.5"], "stage=captions"),
        (["data.keep_duplicates=true"], "data.grid="),
        (["+recipe.editor.noun_runs=head", "recipe.editor.part_of_speech=verb"], "noun"),
        (["recipe=photo_edits", "recipe.editor.editor.guards.no_op.threshold=0.5"],
         "no_op.encoder=..."),
        (["recipe=photo_edits", "+zoo.perturber.top_p=0.5", "+zoo.perturber.temperature=0"],
         "temperature=..."),
        (["+zoo.clip.logit_scale_max=3"], "no setting of this part"),
    ],
)  # fmt: skip
def test_a_typed_setting_that_nothing_reads_is_refused_with_what_would_read_it(words, would_read):
    refuse_as_unread("generate", words, would_read)


@pytest.mark.parametrize(
    "words",
    [
        ["recipe=deletion", "limit=3", "export.hub=x", "export.about.license=mit"],
        ["stage=captions", "recipe.editor.top_k=3", "shards.sets_per_shard=3", "seed=3"],
        ["stage=images", "recipe.draws.candidates=4", "zoo.diffusion.device=cpu", "part=0"],
        ["recipe=deletion", "stage=images", "data.source=shapescapes:real", "limit=3"],
        # nothing is the same
        ["recipe=photo_edits", "recipe.editor.editor.guards.no_op.threshold=1"],
        ["recipe=paraphrase", "recipe.editor.kinds=[frame,synonym]",
         "recipe.editor.synonyms={_target_: cfaug.editing.wordnet.Synonyms}"],
    ],
)  # fmt: skip
def test_a_setting_is_accepted_where_it_is_read(words):
    compose("generate", *words)


def test_a_sweep_over_the_stages_takes_the_words_of_both(capfd):
    words = ["stage=captions,images", "recipe.draws.candidates=3", "recipe.editor.top_k=4"]
    assert len(jobs_of("generate", "-m", *words)) == 2
    said = capfd.readouterr().err
    assert "note: in 1 of 2 jobs recipe.draws.candidates=3 would have no effect" in said
    assert "note: in 1 of 2 jobs recipe.editor.top_k=4 would have no effect" in said


def merge(*words: str) -> Any:
    """Return Hydra's tree of some words, with ``${...}``."""
    from hydra import initialize_config_dir

    _register_resolvers()
    register_search_path()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF.resolve())):
        return _merge("generate", words, options_in("generate"))[0]


def settle(tree: Any) -> dict[str, Any]:
    return bind(_keep_taken(_container(tree), GenerateSettings), GenerateSettings)


SIMPLE = (bool, int, float, str)


def leaves(tree: Any) -> dict[str, Any]:
    """Return every setting that can be typed, and those that a class has beside the files'."""
    return dict(_leaves(_container(tree), _container(tree, resolve=False), ""))


def _leaves(value: Any, written: Any, path: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        yield path, value
    elif isinstance(written, dict):  # otherwise ${...} of a node, whose settings stand there
        dot = f"{path}." if path else ""
        if "_target_" in value:
            for name, param in inspect.signature(locate(value["_target_"])).parameters.items():
                if param.default is not param.empty and name[0] != "_" and name not in value:
                    yield dot + name, param.default if isinstance(param.default, SIMPLE) else None
        for name in value.keys() - {"_target_", "by_seed"}:
            yield from _leaves(value[name], written[name], dot + name)


def others(value: Any, owner: str | None, name: str) -> list[Any]:
    """Return other values of a setting, first those of its type."""
    values: list[Any] = []
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [0.9] * (isinstance(value, float) and value != 0.9) + [value + 1, value / 2 + 0.01]
    if isinstance(value, list):
        values += [value[:1]] if len(value) > 1 else []
        values += [[*value[:-1], value[-1] + 1]] if value and isinstance(value[-1], int) else []
        values += [[0.3, 0.3], ["other"]]
    values += ["other", 2, 0.25, True, ["other"], {"other": 1}, {"other": [0, 1]}]
    if owner is None or name not in inspect.signature(locate(owner)).parameters:
        return values
    annotation = annotation_of(locate(owner), name)
    listed: list[Any] = [choice for choice in choices(annotation) if choice != value]
    if isinstance(value, list):
        each = choices(item_annotation(annotation, value, 0))
        listed += [[choice] for choice in each if [choice] != value]
    return sorted([*listed, *values], key=lambda other: not accepts(other, annotation))


def choices(annotation: Any) -> list[Any]:
    """Return the texts that an annotation lists."""
    return [choice for kind in alternatives_of(annotation) for choice in choices_of(kind)]


@dataclass(frozen=True)
class Change:
    """A tree of settings of which one is changed."""

    key: str
    tree: Any
    config: dict[str, Any]
    word: str

    def is_refused(self) -> bool:
        return bool(find_refused([self.word], self.tree, self.config))


def find_refused(words: list[str], tree: Any, config: dict[str, Any]) -> set[str]:
    def written(_: Any) -> dict[str, Any]:
        return flatten(_container(tree, resolve=False))

    config = {**config, "multirun": False}
    return {word for word, _ in find_unread_words("generate", config, words, written)}


def changes(tree: Any, keys: dict[str, Any], untried: list[str]) -> Iterator[Change]:
    """Yield a change of each key to another value of the right type; the next one undoes it."""
    for key, value in keys.items():
        parent, _, name = key.rpartition(".")
        node = OmegaConf.select(tree, parent) if parent else tree
        written = OmegaConf.to_container(node, resolve=False)
        for other in others(value, node.get("_target_"), name):
            OmegaConf.update(tree, key, other, force_add=True, merge=False)
            try:
                config = settle(tree)
            except (UserError, OmegaConfBaseException):  # of another type
                continue
            yield Change(key, tree, config, f"{key}={json.dumps(other)}")
            break
        else:
            if value is not None:
                untried.append(key)
        if name in written:
            OmegaConf.update(tree, key, written[name], merge=False)
        else:
            with open_dict(node):
                del node[name]


def recorded(config: dict[str, Any]) -> dict[str, Any]:
    """Return what a folder records of settings (``cfaug.generate.job.Job``), and the plan.

    ``recipe.choice`` is asked anew by every command, and what it chose is in ``chosen.json``.
    """
    about = describe_settings(GenerateSettings(**config))
    shards, stage = config["shards"], config["stage"]
    known: dict[str, Any] = {"provenance": about.provenance, "part": config["part"]}
    known |= {"parts": config["parts"], "stage": stage, "choice": config["recipe"].get("choice")}
    if stage != "images":
        known |= {"texts": about.text_settings, "size": shards["sets_per_shard"]}
    if stage != "captions":
        known |= {"images": about.image_settings, "seed": config["seed"]}
        known |= {"format": shards["image_format"], "batch": shards["batch"]}
    return known


def find_dead(tree: Any, tried: set[str]) -> list[str]:
    """Return the settings that are accepted and change nothing that is recorded.

    ``false`` asks for nothing, and is never refused.

    Args:
        tried: settings in parts of recipes that were examined; those of this recipe are added.
    """
    config = settle(tree)
    before = recorded(config)
    typed = {
        f"{key}=other": (key, value)
        for key, value in sorted(leaves(tree).items())
        if not key.startswith(ELSEWHERE)
        and key not in SPEED_AND_PLACE
        and key.rpartition(".")[2] not in WHERE_IT_RUNS
        and in_part(key, config) not in tried
    }
    refused = find_refused(list(typed), tree, config)
    accepted = dict(setting for word, setting in typed.items() if word not in refused)
    tried |= {in_part(key, config) for key in accepted}
    untried: list[str] = []
    dead = [
        change.key
        for change in changes(tree, accepted, untried)
        if recorded(change.config) == before
        and not change.word.endswith("=false")
        and not change.is_refused()
    ]
    assert untried == []
    return dead


def in_part(key: str, config: dict[str, Any]) -> str:
    """Return a setting with all that decides whether it is read: for a recipe's, its part."""
    top, _, name = key.partition(".")
    parts = {"recipe": config["recipe"].get(name.partition(".")[0]), "shards": config["shards"]}
    return json.dumps([key, config["stage"], parts.get(top, config)], default=str)


OTHERWISE = (
    ["recipe=xmai", "zoo=paper", "detections@recipe=mentioned"],
    ["recipe=social", "+recipe_part@recipe=found_labels"],
)
"""Other settings of recipes, of those that are installed."""


@pytest.fixture(scope="module")
def tried() -> set[str]:
    return set()


OF_PAPERS_ZOO = ["substitution", "photo_edits", *contributed("recipes", "OF_PAPERS_ZOO")]


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
    """N33, as a property: a typed setting changes what is recorded, or is refused."""
    assert find_dead(merge(*words, "parts=2"), tried) == []


@pytest.mark.slow
def test_that_property_finds_a_setting_without_effect(monkeypatch):
    """An identity that ignores the number of steps."""
    monkeypatch.setattr("cfaug.run.generate.WHERE_IT_RUNS", {**WHERE_IT_RUNS, "steps": "planted"})
    assert find_dead(merge("parts=2"), set()) == ["recipe.image_editor.steps"]
