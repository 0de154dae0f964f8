"""What every test may ask for."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# Two test processes share two cores: one thread each is faster than two fighting over both, and
# results on CPU do not depend on the machine's number of cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def script() -> Callable[[str], Callable[[list[str]], int]]:
    """Return a loader of a script's ``main``, called in-process: importing Lightning is slow."""

    def load(name: str) -> Callable[[list[str]], int]:
        spec = importlib.util.spec_from_file_location(f"script_{name}", ROOT / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module.main

    return load
