"""The benchmarks on tiny sources, for ``tests/run/test_unread_properties.py``."""

from __future__ import annotations

from tests.run.evaluated_sources import EDITED, Case

CASES = {
    "image_quality": Case(("benchmark=image_quality", "benchmark.data=@edits"), EDITED),
    "caption_perplexity": Case(
        ("benchmark=caption_perplexity", "benchmark.data=@edits"),
        EDITED,
        model=("model=language_model",),
    ),
}
