"""FID and KID against torchmetrics, and against what their definitions say, term by term."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.stats.image_metrics import frechet_distance, kernel_distance


def draw(n, m, dim, seed=0):
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(dim, dim))
    return rng.normal(size=(n, dim)) @ mix, rng.normal(size=(m, dim)) @ mix * 1.3 + 0.5


def slow_frechet(first, second):
    """By square roots of matrices, as Heusel et al. (2017) write it."""
    from scipy.linalg import sqrtm

    one, other = (np.cov(x, rowvar=False).reshape(x.shape[1], -1) for x in (first, second))
    shift = first.mean(axis=0) - second.mean(axis=0)
    root = np.atleast_2d(sqrtm(one))
    both = np.atleast_2d(sqrtm(root @ other @ root)).real
    return shift @ shift + np.trace(one) + np.trace(other) - 2 * np.trace(both)


def slow_kernel(first, second):
    def k(x, y):
        return (sum(a * b for a, b in zip(x, y, strict=True)) / len(x) + 1) ** 3

    def within(rows):
        pairs = [k(x, y) for i, x in enumerate(rows) for j, y in enumerate(rows) if i != j]
        return math.fsum(pairs) / len(pairs)

    across = [k(x, y) for x in first for y in second]
    return within(first) + within(second) - 2 * math.fsum(across) / len(across)


@pytest.mark.filterwarnings("ignore:Matrix is singular")
@settings(max_examples=25, deadline=None)
@given(st.integers(2, 12), st.integers(2, 12), st.integers(1, 6), st.integers(0, 10**6))
def test_both_are_their_definitions_whatever_the_sizes(n, m, dim, seed):
    first, second = draw(n, m, dim, seed)
    expected = slow_frechet(first, second)
    # The slow one takes roots of what should be zero: it has half the digits with few images.
    assert frechet_distance(first, second) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert frechet_distance(second, first) == pytest.approx(frechet_distance(first, second))
    assert frechet_distance(first, first) < 1e-9 * (1 + np.square(first).sum())
    expected = slow_kernel(first.tolist(), second.tolist())
    assert kernel_distance(first, second) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.slow  # torchmetrics takes seconds to import
@pytest.mark.parametrize(("n", "m"), [(60, 50), (7, 9)])
def test_both_are_those_of_torchmetrics(n, m):
    import torch
    from torchmetrics.image.fid import FrechetInceptionDistance
    from torchmetrics.image.kid import KernelInceptionDistance

    class Features(torch.nn.Module):
        num_features = 16

        def forward(self, features):
            return features

    first, second = (torch.from_numpy(one) for one in draw(n, m, 16))
    fid = FrechetInceptionDistance(Features())
    kid = KernelInceptionDistance(Features(), subsets=1, subset_size=min(n, m))
    for metric, few in ((fid, max(n, m)), (kid, min(n, m))):  # its KID is of equal sizes
        metric.update(first[:few], real=True)
        metric.update(second[:few], real=False)
    assert frechet_distance(first, second) == pytest.approx(float(fid.compute()), rel=1e-4)
    few = min(n, m)
    mean, _ = kid.compute()
    assert kernel_distance(first[:few], second[:few]) == pytest.approx(float(mean), rel=1e-4)


def test_few_images_lose_no_digits():
    """Two images in 512 features: the distance of two points' Gaussians is known exactly."""
    first = np.zeros((2, 512))
    second = np.zeros((2, 512))
    first[:, 0], second[:, 1] = [-1.0, 1.0], [-3.0, 3.0]  # variances 2 and 18, at right angles
    assert frechet_distance(first, second) == pytest.approx(20.0, abs=1e-12)
    assert frechet_distance(first, first * 3) == pytest.approx(8.0, abs=1e-12)


@pytest.mark.parametrize("measure", [frechet_distance, kernel_distance])
def test_what_has_no_distance_is_refused(measure):
    with pytest.raises(ValueError, match="each needs at least two"):
        measure([[1.0]], [[1.0], [2.0]])
    with pytest.raises(ValueError, match=r"should be \(images, dim\) each"):
        measure([[1.0], [2.0]], [[1.0, 2.0], [2.0, 3.0]])
    with pytest.raises(ValueError, match="features hold NaN"):
        measure([[1.0], [math.nan]], [[1.0], [2.0]])
