"""What some tests need that a machine may lack; and the skips that a run allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import pytest

ALLOWED = "CFAUG_ALLOWED_SKIPS"
"""Environment variable: the needs, parted by spaces, whose tests this run may skip; any other skip
then fails. Unset, every skip is allowed. ``.ci/run`` sets it."""

NEEDS = {
    "browser": "Chromium (as root on Debian: make test-system)",
    "latex": "pdflatex and booktabs (as root on Debian: make test-system)",
    "wordnet": "the whole WordNet 3.0 (Debian's wordnet-base)",
    "minilm": "the extra minilm",
    "fid": "the extra fid",
    "ray": "the extra ray",
    "registry": "a package registry, for an environment with lmms-eval and mlcroissant",
    "optuna": "the extra sweepers",
    "s3": "the extra s3, and a registry of packages for its server",
}


def skip(need: str) -> NoReturn:
    """Skip a test that needs what is not there."""
    pytest.skip(reason(need))


def reason(need: str) -> str:
    """Return what a skipped test says."""
    return f"needs {need}: {NEEDS[need]}"


def is_allowed(said: str, environment: Mapping[str, str]) -> bool:
    """Say whether a run may skip a test for this reason.

    >>> is_allowed("needs ray: ...", {}), is_allowed("needs ray: ...", {ALLOWED: "browser"})
    (True, False)
    """
    if ALLOWED not in environment:
        return True
    return any(said.startswith(f"needs {need}:") for need in environment[ALLOWED].split())
