"""Dataclasses of JSON: what is given back, and what is refused with its place."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.validation import from_json


@dataclass(frozen=True)
class Inner:
    name: str
    values: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Outer:
    inners: tuple[Inner, ...]
    span: tuple[str, int] = ("a", 1)
    low: float | None = None


floats = st.floats(allow_nan=False)
inners = st.builds(Inner, st.text(), st.dictionaries(st.integers(), floats))
outers = st.builds(
    Outer,
    st.lists(inners).map(tuple),
    st.tuples(st.text(), st.integers()),
    st.none() | floats,
)


@given(outers)
def test_what_asdict_and_json_made_comes_back(made):
    assert from_json(Outer, json.loads(json.dumps(asdict(made)))) == made


def test_files_of_older_and_newer_versions_are_read():
    assert from_json(Outer, {"inners": [{"name": "a"}], "later": 1}) == Outer((Inner("a"),))
    assert math.isnan(from_json(dict[str, float], {"x": math.nan})["x"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, r"^inners: Field required$"),
        ({"inners": [{"name": 3}]}, r"^inners\.0\.name: Input should be a valid string$"),
        ({"inners": [], "span": ["a"]}, r"^span\.1: "),
        ([], r"(?i)dictionary"),
    ],
)
def test_an_error_is_one_line_that_names_the_field(content, said):
    with pytest.raises(ValueError, match=said) as caught:
        from_json(Outer, content)
    assert "\n" not in str(caught.value)
    assert "pydantic.dev" not in str(caught.value)
