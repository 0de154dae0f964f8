"""What every test may ask for."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests import scripts

# Two test processes share two cores: one thread each is faster than two fighting over both, and
# results on CPU do not depend on the machine's number of cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(scope="session")
def script() -> Callable[[str], Callable[[list[str]], int]]:
    """Return a loader of a script's ``main``."""
    return scripts.load
