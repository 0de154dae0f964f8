"""Which settings of ``generate.py`` are read depending on others (:mod:`cfaug.run.unread`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cfaug.core.errors import UserError
from cfaug.run.binding import locate

Config = Mapping[str, Any]


def is_read_with_source(name: str) -> Callable[[Config], bool]:
    """Return a rule: the source of the examples is read with a setting of ``data``."""
    return lambda config: name in read_with_source(config)


def read_with_source(config: Config) -> set[str]:
    """Return the settings of ``data`` that the examples are read with, beside their source."""
    from cfaug.run.examples import READ_BY, ExampleSettings, settings_read

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
