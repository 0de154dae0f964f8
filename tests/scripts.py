"""The scripts at the top and other commands, called in-process: importing Lightning is slow."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

from cfaug.__main__ import COMMANDS

ROOT = Path(__file__).resolve().parent.parent


def load(name: str) -> Callable[[list[str]], int]:
    """Return a command's ``main``, for words of which the later ones replace a test's defaults."""
    if not (ROOT / f"{name}.py").exists():
        command = importlib.import_module(COMMANDS[name][0])
        return lambda words: command.main(replaced(words))
    spec = importlib.util.spec_from_file_location(f"script_{name}", ROOT / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return lambda words: module.main(replaced(words))


def replaced(words: list[str]) -> list[str]:
    """Return a command line in which the last of several words for one setting is in their place.

    A command refuses a setting that is typed twice.
    """
    kept: dict[str, str] = {}
    for number, word in enumerate(words):
        key, equals, _ = word.partition("=")
        kept[key.lstrip("-+") if equals else f"{number} {word}"] = word
    return list(kept.values())
