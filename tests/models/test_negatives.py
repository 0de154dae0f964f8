from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfaug.models.losses import log_negative_weights, sigmoid_loss, symmetric_loss, three_way_loss

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), min_size=1, max_size=9)
"""A row's set, and which of the set's two images it has."""


def batch(rows):
    sets = torch.tensor([s for s, _ in rows])
    return 2 * sets + torch.tensor([i for _, i in rows]), sets


def features(n, count=2):
    draw = torch.Generator().manual_seed(n)
    return [torch.randn(n, 5, generator=draw, requires_grad=True) for _ in range(count)]


def weight(rows, i, j, masked, hard):
    """The definition, one pair at a time."""
    if i == j:
        return 1.0
    if rows[i] == rows[j]:
        return 0.0 if masked else 1.0
    return hard if rows[i][0] == rows[j][0] else 1.0


def one_direction(rows, queries, keys, scale, masked, hard):
    """The formula of the docstring in float64, a loop over rows and a loop over negatives."""
    queries, keys = (x.detach().double().numpy() for x in (queries, keys))
    queries, keys = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (queries, keys))
    total = 0.0
    for i in range(len(rows)):
        scores = [scale * float(queries[i] @ keys[j]) for j in range(len(rows))]
        below = math.exp(scores[i])
        for j in range(len(rows)):
            if j != i:
                below += weight(rows, i, j, masked, hard) * math.exp(scores[j])
        total -= math.log(math.exp(scores[i]) / below)
    return total / len(rows)


@given(rows=ROWS, masked=st.booleans(), hard=st.sampled_from([0.5, 1.0, 3.0]))
def test_the_weighted_loss_is_its_formula(rows, masked, hard):
    images, texts, crossed = features(len(rows), 3)
    logs = log_negative_weights(*batch(rows), mask_same_image=masked, hard_negative_weight=hard)
    assert torch.equal(logs, logs.T)
    scale = torch.tensor(2.5)

    def slow(queries, keys):
        return one_direction(rows, queries, keys, 2.5, masked, hard)

    found = symmetric_loss(images, texts, scale, logs)
    assert found.item() == pytest.approx((slow(images, texts) + slow(texts, images)) / 2, abs=1e-5)
    found.backward()
    assert torch.isfinite(images.grad).all()
    three = three_way_loss(images, texts, crossed, scale, log_weights=logs)
    expected = slow(texts, images) + slow(texts, crossed) + slow(images, crossed)
    assert three.item() == pytest.approx(expected / 3, abs=1e-5)


@given(rows=ROWS, masked=st.booleans(), hard=st.sampled_from([0.5, 1.0, 3.0]))
def test_pairs_of_their_own_are_weighted_too(rows, masked, hard):
    """SigLIP's loss has a term a pair; the weight is the term's."""
    images, texts = features(len(rows))
    logs = log_negative_weights(*batch(rows), mask_same_image=masked, hard_negative_weight=hard)
    found = sigmoid_loss(images, texts, torch.tensor(2.5), torch.tensor(-1.0), logs)
    unit = [x.detach().double() / x.detach().double().norm(dim=1, keepdim=True)
            for x in (images, texts)]  # fmt: skip
    total = 0.0
    for i in range(len(rows)):
        for j in range(len(rows)):
            logit = 2.5 * float(unit[0][i] @ unit[1][j]) - 1
            term = math.log(1 + math.exp(-logit if i == j else logit))
            total += weight(rows, i, j, masked, hard) * term
    assert found.item() == pytest.approx(total / len(rows), abs=1e-5)


def test_no_option_is_the_authors_loss():
    images, texts = features(6)
    rows = [(0, 0), (0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    logs = log_negative_weights(*batch(rows), mask_same_image=False, hard_negative_weight=1.0)
    scale = torch.tensor(14.0)
    assert torch.equal(
        symmetric_loss(images, texts, scale), symmetric_loss(images, texts, scale, logs)
    )


def test_weights_by_hand():
    """A photo with two captions, a pair, and one alone."""
    rows = [(0, 0), (0, 0), (1, 0), (1, 1), (2, 0)]
    logs = log_negative_weights(*batch(rows), mask_same_image=True, hard_negative_weight=3.0)
    assert logs.exp().round(decimals=5).tolist() == [
        [1, 0, 1, 1, 1],
        [0, 1, 1, 1, 1],
        [1, 1, 1, 3, 1],
        [1, 1, 3, 1, 1],
        [1, 1, 1, 1, 1],
    ]
