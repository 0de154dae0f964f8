"""A setting of generate.py that recipe=social does not read is refused."""

from __future__ import annotations

import pytest

from cfaug.settings.compose import compose_jobs
from tests.run.conftest import COMMANDS, compose, jobs_of, refuse_as_unread


@pytest.mark.parametrize(
    ("words", "would_read"),
    [
        (["recipe=social", "data.extra=[a]"], "a list of captions"),
        (["recipe=social", "data.world.bias=0.5"], "shapescapes:PART"),
    ],
)  # fmt: skip
def test_a_typed_setting_that_nothing_reads_is_refused_with_what_would_read_it(words, would_read):
    refuse_as_unread("generate", words, would_read)


@pytest.mark.parametrize(
    "words",
    [
        ["recipe=social", "world@data.world=lance"],  # a grid is recorded as the world's
    ],
)
def test_a_setting_is_accepted_where_it_is_read(words):
    compose("generate", *words)


def test_a_part_of_the_recipe_needs_no_plus():
    typed = ["recipe=social", "zoo=paper", "recipe_part@recipe=found_labels"]
    [(config, words)] = jobs_of("generate", *typed)
    assert words == typed
    [(_, words)] = compose_jobs(
        "generate", typed, multirun=False, command=COMMANDS["generate"], for_hydra=True
    )
    assert sum(word.startswith("+") for word in words) == 1
    assert jobs_of("generate", *words) == [(config, words)]
