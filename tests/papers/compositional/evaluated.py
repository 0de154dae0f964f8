"""The benchmarks on tiny sources, for ``tests/run/test_unread_properties.py``."""

from __future__ import annotations

from tests.run.evaluated_sources import FORMS, PAIRED, VLM, Case

CASES = {
    "detailed pairs by a vlm": Case(
        ("benchmark=winoground", "benchmark.data=@winoground"),
        PAIRED,
        {**FORMS, "data": "tag"},
        VLM,
    ),
}
