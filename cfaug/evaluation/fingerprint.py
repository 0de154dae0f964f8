"""A hash of a benchmark's data and settings, by which its results are recognised."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np

Part = str | int | Sequence[str] | np.ndarray


def fingerprint(*parts: Part) -> str:
    """Return 16 hex digits that identify source hashes, rows, class names and other choices.

    >>> fingerprint("a", np.arange(2)) == fingerprint("a", np.array([0, 1]))
    True
    >>> fingerprint("a", ["b", "c"]) == fingerprint("a", ["bc"])
    False
    """
    plain = [part.tolist() if isinstance(part, np.ndarray) else part for part in parts]
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:16]
