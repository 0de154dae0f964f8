"""Settings and records are checked strictly against annotations, and refused in one phrasing."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import torch
from annotated_types import Ge, Interval, MinLen
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.annotations import Means, OneOf
from cfaug.core.errors import UserError
from cfaug.core.json_records import from_json
from cfaug.core.validation import (
    Count,
    PartialShare,
    Positive,
    PositiveNumber,
    Share,
    accepts,
    check,
    check_fields,
    write_value,
)
from tests.properties import examples

NESTED: list[Any] = []
for _ in range(5000):
    NESTED = [NESTED]


def is_whole(value):
    """64 bits, as numpy, torch and islice (N19) take."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def is_number(value):
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # more than any float
        return False


def is_text(value):
    return isinstance(value, str)


def several(is_one, kinds=(list, tuple)):
    return lambda value: isinstance(value, kinds) and all(map(is_one, value))


ORACLES = [
    (
        Positive | Annotated[None, Means("all")],
        lambda value: value is None or (is_whole(value) and value > 0),
    ),
    (bool, lambda value: value is True or value is False),
    (int, is_whole),
    (float, is_number),
    (str, is_text),
    (None, lambda value: value is None),
    (Any, lambda value: True),
    (Count, lambda value: is_whole(value) and value >= 0),
    (Positive, lambda value: is_whole(value) and value >= 1),
    (Annotated[int, Interval(ge=1, le=7)], lambda value: is_whole(value) and 1 <= value <= 7),
    (PositiveNumber, lambda value: is_number(value) and value > 0),
    (Share, lambda value: is_number(value) and 0 <= value <= 1),
    (PartialShare, lambda value: is_number(value) and 0 <= value < 1),
    (Literal["a", "b"], lambda value: is_text(value) and value in ("a", "b")),
    (Annotated[str, OneOf({"a": 1, "c": 2})], lambda value: is_text(value) and value in ("a", "c")),
    (bool | str, lambda value: isinstance(value, bool | str)),
    (Sequence[float], several(is_number)),
    (tuple[str, ...], several(is_text)),
    (
        tuple[PartialShare, PartialShare],
        lambda value: (
            several(lambda share: is_number(share) and 0 <= share < 1)(value) and len(value) == 2
        ),
    ),
    (
        Annotated[tuple[int, ...], MinLen(2)],
        lambda value: several(is_whole)(value) and len(value) >= 2,
    ),
    (
        Mapping[str, float | None],
        lambda value: (
            isinstance(value, dict)
            and all(isinstance(key, str) for key in value)
            and all(number is None or is_number(number) for number in value.values())
        ),
    ),
]

leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-2, 9), st.floats(),
    st.sampled_from([0.0, 1.0, 0.5, -0.0, 10**400, -(10**400), math.nan, math.inf]),
    st.sampled_from(["", "a", "b", "c", "yes", "true", "1", "nan", b"", b"a", 1j, {1}, range(2)]),
    st.sampled_from([np.int64(1), np.float32(0.5), np.float64(0.5), np.bool_(True), np.str_("a")]),
    st.sampled_from([torch.float32, torch.tensor(1.0), int, object, np.zeros(2)]),
)  # fmt: skip
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=2), st.integers(0, 2)), inner, max_size=2),
    ),
    max_leaves=5,
)


@pytest.mark.parametrize(("annotation", "is_right"), ORACLES, ids=[str(a) for a, _ in ORACLES])
@settings(max_examples=examples(60), deadline=None)
@given(value=values)
def test_a_value_is_accepted_as_a_slow_check_by_hand_has_it(annotation, is_right, value):
    assert accepts(value, annotation) == is_right(value)
    if is_right(value):
        check(value, annotation, "node.key")
        return
    with pytest.raises(UserError) as refused:
        check(value, annotation, "node.key")
    assert str(refused.value).startswith("node.key")
    assert len(str(refused.value)) < 1000


@dataclass(frozen=True)
class _Base:
    steps: Positive = 3
    share: Share = 0

    def __post_init__(self):
        check_fields(self, "node")


@dataclass(frozen=True)
class _Settings(_Base):
    kind: Literal["linear", "cosine"] = "linear"
    names: tuple[str, ...] = ("a",)
    made: torch.nn.Module | None = None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"steps": True}, "node.steps=true should be a whole number of at least 1"),
        ({"steps": "3"}, 'node.steps="3" should be a whole number of at least 1'),
        ({"share": 1.5}, "node.share=1.5 should be a number from 0 to 1"),
        ({"share": math.nan}, "node.share=nan should be a number from 0 to 1"),
        ({"kind": "cosin"}, "node.kind=cosin: choose from linear, cosine (did you mean cosine?)"),
        ({"kind": 5}, "node.kind=5: choose from linear, cosine"),
        ({"names": ["a", 5]}, "node.names[1]=5 should be a text"),
        ({"names": "a"}, "node.names=a should be a list of texts"),
    ],
)
def test_a_refusal_names_the_setting_the_value_and_what_is_allowed(wrong, said):
    with pytest.raises(UserError) as refused:
        _Settings(**wrong)
    assert str(refused.value) == said


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (PartialShare | None, "should be a number in [0, 1) or null"),
        (PositiveNumber, "should be a number above 0"),
        (Annotated[int, Ge(8)], "should be a whole number of at least 8"),
        (Literal["a"] | None, "choose from a, null"),
        (Annotated[tuple[int, ...], MinLen(2)], "should be a list of 2 or more whole numbers"),
        (
            Annotated[tuple[Annotated[str, OneOf("xy")], ...], MinLen(2)],
            "should be a list of 2 or more of these: x, y",
        ),
        (tuple[float, float], "should be a list of 2 numbers"),
        (Sequence[Share] | None, "should be a list of numbers from 0 to 1 or null"),
        (Mapping[str, int], "should be settings of its own, one by one (key.name=value)"),
    ],
)
def test_what_is_allowed_is_said_in_words(annotation, said):
    with pytest.raises(UserError) as refused:
        check(b"", annotation, "key")
    assert str(refused.value).endswith(said)


def test_a_value_stays_what_it_was():
    settings = _Settings(share=1, names=["a", "b"])
    assert (settings.share, type(settings.share)) == (1, int)  # a hash is of what is written
    assert settings.names == ("a", "b")
    assert pickle.loads(pickle.dumps(settings)) == settings == replace(settings)
    assert repr(_Base()) == "_Base(steps=3, share=0)"
    assert [declared.name for declared in fields(settings)] == [
        "steps",
        "share",
        "kind",
        "names",
        "made",
    ]


@pytest.mark.parametrize("value", [10**5000, NESTED, "x" * 10_000, ["x" * 300] * 50], ids=range(4))
def test_no_value_is_too_much_for_a_message(value):
    assert len(write_value(value)) <= 203
    for annotation, _ in ORACLES:
        if not accepts(value, annotation):
            with pytest.raises(UserError, match=r"^key"):
                check(value, annotation, "key")


def test_pydantic_is_imported_by_the_first_check():
    code = """
import sys
from cfaug.train.settings import LoggerSettings
assert "pydantic" not in sys.modules
LoggerSettings()
assert "pydantic" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


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
    Outer, st.lists(inners).map(tuple), st.tuples(st.text(), st.integers()), st.none() | floats
)


@pytest.mark.slow
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
