"""The fixtures of whole commands, for the tests of papers."""

from __future__ import annotations

from tests.run.conftest import generate, pipeline, place, plan, shards  # noqa: F401
