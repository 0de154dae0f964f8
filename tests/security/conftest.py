"""Somebody answers "y" to every question, and nothing is kept of the code that is planted."""

from __future__ import annotations

import sys

import pytest

from tests.security.planting import Trap


@pytest.fixture
def trap(tmp_path, monkeypatch):
    from transformers import dynamic_module_utils

    monkeypatch.setattr("builtins.input", lambda *_: "y")
    monkeypatch.setattr(dynamic_module_utils, "TIME_OUT_REMOTE_CODE", 15)
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    known = set(sys.modules)
    yield Trap(tmp_path / "RAN")
    for name in set(sys.modules) - known:
        if name.startswith("transformers_modules"):
            del sys.modules[name]
