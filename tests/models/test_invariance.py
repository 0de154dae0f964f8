"""The term of the loss that asks for one logit of all images of a set."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.models.losses import set_invariance
from tests.properties import examples

ROWS = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=12)
"""A row's set, and whether the row has a neutral prompt; sets two by two share theirs."""


def slow_invariance(images, prompts, shown, sets, scale, kind):
    """One set after the other, in Python's floats."""
    found = []
    for one in sorted(set(sets)):
        logits = []
        for i, own in enumerate(sets):
            if own == one and shown[i] >= 0:
                a, b = images[i].tolist(), prompts[shown[i]].tolist()
                dot = sum(x * y for x, y in zip(a, b, strict=True))
                norms = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b))
                logits.append(scale * dot / norms)
        if len(logits) < 2:
            continue
        if kind == "variance":
            mean = sum(logits) / len(logits)
            found.append(sum((x - mean) ** 2 for x in logits) / len(logits))
        else:
            total = sum(math.exp(x) for x in logits)
            shares = [math.exp(x) / total for x in logits]
            found.append(sum(p * math.log(p * len(shares)) for p in shares))
    return sum(found) / len(found) if found else 0.0


@pytest.mark.parametrize("kind", ["variance", "kl"])
@settings(max_examples=examples(30), deadline=None)
@given(rows=ROWS)
def test_it_is_its_definition_set_by_set(kind, rows):
    draw = torch.Generator().manual_seed(len(rows))
    images = torch.randn(len(rows), 5, generator=draw, requires_grad=True)
    prompts = torch.randn(3, 5, generator=draw)
    sets = [one for one, _ in rows]
    shown = [one // 2 if asked else -1 for one, asked in rows]
    found = set_invariance(
        images, prompts, torch.tensor(shown), torch.tensor(sets), torch.tensor(3.0), kind
    )
    expected = slow_invariance(images.detach().double(), prompts.double(), shown, sets, 3.0, kind)
    assert found.item() == pytest.approx(expected, abs=1e-5)
    found.backward()
    assert torch.isfinite(images.grad).all()


@pytest.mark.parametrize("kind", ["variance", "kl"])
def test_it_is_zero_where_all_images_fit_alike_and_only_there(kind):
    """Images around their prompt like the sides of a cone, then one of them nearer to it."""
    angles = torch.linspace(0, 5, 6)
    around = torch.stack([angles.cos(), angles.sin(), torch.full((6,), 2.0)], dim=1)
    prompt, every = torch.tensor([[0.0, 0.0, 1.0]]), torch.zeros(6, dtype=torch.int64)
    asked = (prompt, every, every, torch.tensor(100.0), kind)
    assert set_invariance(around, *asked).item() == pytest.approx(0, abs=1e-6)
    around[2, :2] = 0
    assert set_invariance(around, *asked).item() > 1


def test_the_divergence_of_small_differences_is_half_their_variance():
    angles = torch.tensor([0.01, 0.02, 0.035, 0.05])
    images = torch.stack([angles.sin(), angles.cos()], dim=1)
    same = torch.zeros(4, dtype=torch.int64)
    kl, variance = (
        set_invariance(images, torch.tensor([[1.0, 0.0]]), same, same, torch.tensor(5.0), kind)
        for kind in ("kl", "variance")
    )
    assert kl.item() == pytest.approx(variance.item() / 2, rel=0.05)


def test_large_logits_do_not_overflow():
    images = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    same = torch.zeros(3, dtype=torch.int64)
    found = set_invariance(images, torch.tensor([[1.0, 0]]), same, same, torch.tensor(1e3), "kl")
    assert found.item() == pytest.approx(math.log(3))
    found.backward()
    assert torch.isfinite(images.grad).all()
