"""Other values of every setting of ``cfaug generate``, and what a folder records of them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

from omegaconf import OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from cfaug.core.binding import bind
from cfaug.core.errors import UserError
from cfaug.core.targets import locate
from cfaug.run.command_line.arguments import flatten
from cfaug.run.command_line.compose import _container, _keep_taken, _merge, _register_resolvers
from cfaug.run.command_line.settings_files import register_search_path
from cfaug.run.command_line.usage import options_in
from cfaug.run.generate import WHERE_IT_RUNS, describe_settings
from cfaug.run.generate_settings import GenerateSettings
from tests.run.changed_settings import IN_OTHER_TESTS, OF_GENERATION
from tests.run.conftest import CONF, find_unread
from tests.settings import other_values


def merge(*words: str) -> Any:
    """Return Hydra's tree of some words, with ``${...}``."""
    from hydra import initialize_config_dir

    _register_resolvers()
    register_search_path()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF.resolve())):
        return _merge("generate", words, options_in("generate"))[0]


def as_written(tree: Any) -> dict[str, Any]:
    return flatten(_container(tree, resolve=False))


def settle(tree: Any) -> dict[str, Any]:
    return bind(_keep_taken(_container(tree), GenerateSettings), GenerateSettings)


def leaves(value: Any, written: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every setting that can be typed, and those that a class has beside the files'."""
    if not isinstance(value, dict):
        yield path, value
    elif isinstance(written, dict):  # otherwise ${...} of a node, whose settings stand there
        dot = f"{path}." if path else ""
        if "_target_" in value:
            for name, param in inspect.signature(locate(value["_target_"])).parameters.items():
                if param.default is not param.empty and name[0] != "_" and name not in value:
                    simple = isinstance(param.default, bool | int | float | str)
                    yield dot + name, param.default if simple else None
        for name in value.keys() - {"_target_", "by_seed"}:
            yield from leaves(value[name], written[name], dot + name)


def is_recorded(tree: Any, key: str, value: Any, before: Any) -> bool | None:
    """Say whether another value of a setting is recorded or refused; ``None`` if none was found.

    ``false`` asks for nothing, and is never refused.
    """
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(tree, parent) if parent else tree
    kept = OmegaConf.to_container(node, resolve=False)
    target = node.get("_target_")
    try:
        for other in other_values(value, None if target is None else locate(target), name):
            OmegaConf.update(tree, key, other, force_add=True, merge=False)
            try:
                config = settle(tree)
            except (UserError, OmegaConfBaseException):  # of another type
                continue
            word = f"{key}={json.dumps(other)}"
            asks = recorded(config) != before or word.endswith("=false")
            return asks or bool(find_unread("generate", [word], config, as_written(tree)))
    finally:
        if name in kept:
            OmegaConf.update(tree, key, kept[name], merge=False)
        else:
            with open_dict(node):
                del node[name]
    return None


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

    Args:
        tried: settings with all that decides whether they are read, that were examined: for those
            of a recipe their part. Those of this recipe are added.
    """
    config = settle(tree)
    before = recorded(config)

    def in_part(key: str) -> str:
        top, _, name = key.partition(".")
        part = config["recipe"].get(name.partition(".")[0])
        parts = {"recipe": part, "shards": config["shards"]}
        return json.dumps([key, config["stage"], parts.get(top, config)], default=str)

    typed = {
        f"{key}=other": (key, value)
        for key, value in sorted(leaves(_container(tree), _container(tree, resolve=False)))
        if not key.startswith(IN_OTHER_TESTS)
        and key not in OF_GENERATION
        and key.rpartition(".")[2] not in WHERE_IT_RUNS
        and in_part(key) not in tried
    }
    refused = find_unread("generate", list(typed), config, as_written(tree))
    accepted = dict(setting for word, setting in typed.items() if word not in refused)
    tried |= {in_part(key) for key in accepted}
    answers = {key: is_recorded(tree, key, value, before) for key, value in accepted.items()}
    assert [key for key, answer in answers.items() if answer is None and accepted[key]] == []
    return [key for key, answer in answers.items() if answer is False]
