"""The number of torch's threads, and how they wait for each other."""

from __future__ import annotations

import os
import sys
from typing import Annotated

from cfaug.core.validation import Means, Positive, check

Threads = Positive | Annotated[None, Means("all cores")]
"""The number of torch's threads."""

SPINS = "2000"
"""Turns of a waiting thread before it sleeps. A step of the tiny CLIP on two cores, at 100,000,
2,000 and 0 turns: on an idle machine 45, 57 and 71 ms (one thread: 77); beside two busy processes
5.6 to 11, 1.2 to 1.4 and 0.7 to 1.6 times the step of a single thread."""


def wait_briefly() -> None:
    """Make waiting OpenMP threads sleep soon, unless the user chose otherwise.

    On a busy machine a spinning thread takes the core from the thread that it waits for. Must be
    called before torch is loaded. The number of threads, which changes the last digits of sums,
    stays the same, and so do all results.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
        os.environ.setdefault("KMP_BLOCKTIME", "0")  # of LLVM's and Intel's OpenMP


def use_threads(threads: Threads) -> None:
    """Set the number of torch's threads for this process and its children.

    Args:
        threads: the number, at least 1; ``None`` leaves it to OMP_NUM_THREADS or the number of
            cores.

    Raises:
        UserError: for a number below 1.
    """
    check(threads, Threads, "threads")
    if threads is None:
        return
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
