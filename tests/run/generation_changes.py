"""Other values of every setting of ``cfaug generate``, and what a folder records of them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from cfaug.core.annotations import without_result
from cfaug.core.errors import UserError
from cfaug.core.fitting import bind
from cfaug.core.targets import locate
from cfaug.run.generate import describe_settings
from cfaug.run.generate_settings import GenerateSettings
from cfaug.settings.arguments import flatten
from cfaug.settings.choices import options_in
from cfaug.settings.compose import _keep_taken
from cfaug.settings.merging import container, register_resolvers
from cfaug.settings.merging import merge as merge_settings
from cfaug.settings.read_if import CommandJob
from cfaug.settings.settings_files import register_search_path
from tests.files_of_settings import other_values
from tests.run.changed_settings import IN_OTHER_TESTS, OF_GENERATION
from tests.run.conftest import CONF, find_unread


def merge(*words: str) -> Any:
    """Return Hydra's tree of some words, with ``${...}``."""
    from hydra import initialize_config_dir

    register_resolvers()
    register_search_path()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF.resolve())):
        return merge_settings("generate", words, options_in("generate"), GenerateSettings)[0]


def settle(tree: Any) -> dict[str, Any]:
    return bind(_keep_taken(container(tree), GenerateSettings), GenerateSettings)


def as_written(tree: Any) -> dict[str, Any]:
    """Return {setting: value as written}, with ``${...}``."""
    return flatten(container(tree, resolve=False))


SIMPLE = (bool, int, float, str)


def leaves(tree: Any) -> dict[str, Any]:
    """Return every setting that can be typed, and those that a class has beside the files'."""
    return dict(_leaves(container(tree), container(tree, resolve=False), ""))


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


@dataclass(frozen=True)
class Change:
    """A tree of settings of which one is changed."""

    key: str
    tree: Any
    config: dict[str, Any]
    word: str

    def is_refused(self) -> bool:
        return bool(find_unread("generate", [self.word], self.config, as_written(self.tree)))


def changes(tree: Any, keys: dict[str, Any], untried: list[str]) -> Iterator[Change]:
    """Yield a change of each key to another value of the right type; the next one undoes it."""
    for key, value in keys.items():
        parent, _, name = key.rpartition(".")
        node = OmegaConf.select(tree, parent) if parent else tree
        written = OmegaConf.to_container(node, resolve=False)
        target = locate(node["_target_"]) if "_target_" in node else None
        for other in other_values(value, target, name):
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
        if not key.startswith(IN_OTHER_TESTS)
        and key not in OF_GENERATION
        and not runs_elsewhere(key, config)
        and in_part(key, config) not in tried
    }
    refused = find_unread("generate", list(typed), config, as_written(tree))
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


def runs_elsewhere(key: str, config: dict[str, Any]) -> bool:
    """Say whether the class of a setting says that it never changes a result."""
    place, _, name = key.rpartition(".")
    node = CommandJob(config).value(place) if place else None
    return bool(node) and "_target_" in node and name in without_result(locate(node["_target_"]))


def in_part(key: str, config: dict[str, Any]) -> str:
    """Return a setting with all that decides whether it is read: for a recipe's, its part."""
    top, _, name = key.partition(".")
    parts = {"recipe": config["recipe"].get(name.partition(".")[0]), "shards": config["shards"]}
    return json.dumps([key, config["stage"], parts.get(top, config)], default=str)
