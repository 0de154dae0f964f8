"""Options ranked by likelihoods, and answers read from what a model wrote."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.stats.choices import NUMBERS, Reduction, choose, parse_answer, reduce_scores

NLL, TOKENS, OPTIONS, BLIND = [4.0, 3.0, 9.0], [1, 2, 9], ["a", "bcd", "ef"], [1.0, 2.5, 8.5]


def test_each_reduction_divides_or_subtracts_what_it_says():
    found = {
        name: reduce_scores(NLL, TOKENS, OPTIONS, name, BLIND).tolist()
        for name in get_args(Reduction)
    }
    assert found == {
        "token_mean": [4.0, 1.5, 1.0], "sum": NLL, "char_norm": [4.0, 1.0, 4.5],
        "pmi": [3.0, 0.5, 0.5],
    }  # fmt: skip
    for wrong in ("pmi", "mean"):
        with pytest.raises(ValueError, match=wrong):
            reduce_scores(NLL, TOKENS, OPTIONS, wrong)


def test_a_tie_is_no_choice():
    assert choose(np.array([0.5])) == 0
    assert choose(np.array([3.0, 0.5, 0.5])) is None


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=5), st.randoms())
def test_the_choice_does_not_depend_on_the_order_of_options(values, random):
    order = list(range(len(values)))
    random.shuffle(order)
    first, again = choose(np.array(values)), choose(np.array([values[at] for at in order]))
    assert first == (None if again is None else order[again])
    assert first is None or values[first] == min(values)
    assert first is not None or sorted(values)[0] == sorted(values)[1]


@pytest.mark.parametrize(
    ("text", "options", "place"),
    [
        ("yes", ["yes", "no"], 0),
        ("No.", ["yes", "no"], 1),
        ("**Yes**", ["yes", "no"], 0),
        ("The answer is: the red ball.", ["red ball", "blue ball"], 0),
        ("Answer: blue ball\nbecause the red one is gone", ["red ball", "blue ball"], 1),
        ("No, it would not", ["yes", "no"], 1),
        ("two", ["2", "12"], 0),
        ("twelve", ["2", "12"], None),
        ("2.5", ["2", "5"], None),
        ("2.", ["2", "5"], 0),
        ("10", ["1", "10"], 1),
        ("10 apples", ["1", "10"], None),
        ("", ["yes", "no"], None),
        (".", ["yes", "."], None),
        ("yes and no", ["yes", "no"], None),
        ("not yes", ["yes", "no"], None),
        ("None of these", ["no", "none"], None),
        ("yes", ["yes", "Yes"], None),
        ("A", ["a", "b"], 0),
    ],
)
def test_an_answer_is_read_or_it_is_not(text, options, place):
    assert parse_answer(text, options) == place


@given(st.text(max_size=30), st.lists(st.text("abc 12.", min_size=1, max_size=6), min_size=1))
def test_whatever_is_written_the_answer_is_an_option_in_it_or_none(text, options):
    found = parse_answer(text, options)
    if found is None:
        return
    letters = "".join(filter(str.isalnum, options[found].casefold()))
    words = "".join(filter(str.isalnum, text.casefold()))
    for at, number in enumerate(NUMBERS):
        words, letters = words.replace(number, str(at)), letters.replace(number, str(at))
    assert letters.removeprefix("a").removeprefix("an") in words or letters in words
