"""A setting of generate.py that recipe=xmai does not read is refused."""

from __future__ import annotations

import pytest

from tests.run.conftest import compose, refuse_as_unread


@pytest.mark.parametrize(
    ("words", "would_read"),
    [
        (["recipe=xmai", "stage=images", "data.leave_out.colour=0.5"], "stage=captions"),
        (["recipe=xmai", "stage=captions", "seed=3"], "editors that draw"),
        (["recipe=xmai", "recipe.editor.weights=[1,5,0]", "recipe.editor.image_text.prefix=x"],
         "lambda_3"),
        (["recipe=xmai", "zoo.detector.errors=[label]"], "error_rate=..."),
    ],
)  # fmt: skip
def test_a_typed_setting_that_nothing_reads_is_refused_with_what_would_read_it(words, would_read):
    refuse_as_unread("generate", words, would_read)


@pytest.mark.parametrize(
    "words",
    [
        ["recipe=xmai", "zoo.detector.errors=[label]", "zoo.detector.error_rate=0.5"],
    ],
)
def test_a_setting_is_accepted_where_it_is_read(words):
    compose("generate", *words)
