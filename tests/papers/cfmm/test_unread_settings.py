"""A setting of generate.py that recipe=cfmm does not read is refused."""

from __future__ import annotations

import pytest

from tests.run.conftest import compose, refuse_as_unread


@pytest.mark.parametrize(
    ("words", "would_read"),
    [
        (["recipe=cfmm", "export.verified=labels.jsonl"], "export.questions=..."),
    ],
)  # fmt: skip
def test_a_typed_setting_that_nothing_reads_is_refused_with_what_would_read_it(words, would_read):
    refuse_as_unread("generate", words, would_read)


@pytest.mark.parametrize(
    "words",
    [
        ["recipe=cfmm", "zoo=paper", "export.questions=x", "export.verified=y"],
    ],
)
def test_a_setting_is_accepted_where_it_is_read(words):
    compose("generate", *words)


def test_mappings_that_a_table_needs_can_be_given_on_the_command_line():
    """Hydra gives no names to an empty mapping: such a setting is null by default."""
    config = compose("table", "table=cfmm_figure_4", "table.questions={A name: a/file}")
    assert config["table"]["questions"] == {"A name": "a/file"}
