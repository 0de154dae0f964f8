"""Captions that leave out what they know."""

from __future__ import annotations

import pytest
from hypothesis import given

from cfaug.core.errors import UserError
from cfaug.core.types import Example
from cfaug.shapescapes.parts import LeaveOut, read_leave_out, shorten_caption
from cfaug.shapescapes.settings import CaptionWording, caption
from tests.shapescapes.drawn import PHOTOS, WORDINGS


def example(text, key="k", label=None):
    return Example(key, "g", (text,), label=label)


@given(PHOTOS, WORDINGS)
def test_what_is_left_is_what_the_world_says_with_fewer_words(factors, wording):
    full = caption(factors, CaptionWording(wording.frame))
    shares = LeaveOut(float(not wording.colour), float(not wording.background))
    assert shorten_caption(example(full), shares, 0).text == caption(factors, wording)


def test_shares_are_kept_by_key_and_greater_ones_include_smaller_ones():
    text = "an orange ball on the beach"

    def shortened(share):
        every = (shorten_caption(example(text, f"k{i}"), LeaveOut(share), 5) for i in range(400))
        return {one.key for one in every if one.text == "a ball on the beach"}

    few, many = shortened(0.25), shortened(0.5)
    assert few < many
    assert 160 <= len(many) <= 240
    assert shortened(0) == set()


def test_captions_of_others_hypotheses_and_shares_that_are_none_are_refused():
    with pytest.raises(UserError, match=r"'k'.*no caption of the embedded world"):
        shorten_caption(example("a dog on a mat"), LeaveOut(1), 0)
    with pytest.raises(UserError, match="a hypothesis with a label"):
        shorten_caption(example("a ball", label="neutral"), LeaveOut(1), 0)
    with pytest.raises(UserError, match="choose from colour, background"):
        read_leave_out({"size": 1})
    with pytest.raises(UserError, match=r"colour=2 should be a number from 0 to 1"):
        read_leave_out({"colour": 2})
