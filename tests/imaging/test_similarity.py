from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.imaging.select import cosine, direction, mean_direction
from tests.generate.tiny import Eye


def slow_cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    length = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b))
    return dot / length if length else 0.0


def unit(rows, dim=7, seed=0):
    torch.manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(rows, dim), dim=-1)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 5))
def test_cosines_are_those_of_school(seed, rows) -> None:
    a, b, c, d = unit(4 * rows, seed=seed).split(rows)
    found, undefined = cosine(a, b)
    assert found.dtype == torch.float32
    assert not undefined.any()
    expected = [slow_cosine(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert found.tolist() == pytest.approx(expected, abs=1e-6)
    found, undefined = direction(a, b, c, d)
    changes = zip((b - a).tolist(), (d - c).tolist(), strict=True)
    assert found.tolist() == pytest.approx([slow_cosine(x, y) for x, y in changes], abs=1e-5)
    assert not undefined.any()


def test_no_direction_is_nought_and_said() -> None:
    a, b = unit(2, seed=1), unit(2, seed=2)
    text = unit(2, seed=3)
    other = torch.stack([text[0], -text[1]])
    found, undefined = direction(a, b, text, other)
    assert undefined.tolist() == [True, False]
    assert found[0] == 0
    assert found[1] != 0
    assert direction(a, a, text, -text)[1].tolist() == [True, True]


def test_directions_of_half_precision_embeddings_are_taken_in_float32() -> None:
    a = unit(3, 64).half()
    b = (a.float() + 2e-3 * unit(3, 64, seed=5)).half()
    found, _ = direction(a, b, a, b)
    assert found.dtype == torch.float32
    assert found.tolist() == pytest.approx([1, 1, 1], abs=1e-5)


@pytest.mark.parametrize("count", [2, 3, 6])
def test_the_mean_direction_is_over_all_pairs(count) -> None:
    images, texts = unit(count, seed=1), unit(count, seed=2)
    every = [
        slow_cosine((images[j] - images[i]).tolist(), (texts[j] - texts[i]).tolist())
        for i in range(count)
        for j in range(i + 1, count)
    ]
    wanted = sum(every) / len(every)
    assert mean_direction(images, texts) == pytest.approx(wanted, abs=1e-5)
    eye = Eye()
    eye.all_pairs = True
    assert "sim_direction_pairs" in eye.names
    scores = eye.compare(list(texts), list(images))
    assert scores["sim_direction_pairs"] == pytest.approx(wanted, abs=1e-5)
    assert "sim_direction_pairs" not in eye.compare(list(texts), list(images[:1]))
    assert "sim_direction_pairs" not in Eye().compare(list(texts), list(images))
