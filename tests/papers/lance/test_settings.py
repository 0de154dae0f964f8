"""The recipe with random edits differs in these alone."""

from __future__ import annotations

import pytest

from tests.run.conftest import compose


@pytest.mark.slow
def test_random_edits_have_everything_else_in_common():
    random, usual = (
        compose("generate", f"recipe={name}", "zoo=paper")["recipe"]
        for name in ("lance_r", "lance")
    )
    assert random["scorers"]["clip"]["consistency"] == "phrase"
    for part in ("image_editor", "draws", "selection", "annotators"):
        assert random[part] == usual[part]
