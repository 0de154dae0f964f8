"""FID, KID, PSNR and SSIM against torchmetrics, and against their definitions, term by term."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.stats.image_metrics import (
    _similarity,
    frechet_distance,
    kernel_distance,
    psnr_outside,
    ssim_outside,
)
from tests.properties import examples


def draw(n, m, dim, seed=0):
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(dim, dim))
    return rng.normal(size=(n, dim)) @ mix, rng.normal(size=(m, dim)) @ mix * 1.3 + 0.5


def slow_frechet(first, second):
    """By square roots of matrices, as Heusel et al. (2017) write it."""
    from scipy.linalg import sqrtm

    cov_first, cov_second = (
        np.cov(x, rowvar=False).reshape(x.shape[1], -1) for x in (first, second)
    )
    shift = first.mean(axis=0) - second.mean(axis=0)
    root = np.atleast_2d(sqrtm(cov_first))
    both = np.atleast_2d(sqrtm(root @ cov_second @ root)).real
    return shift @ shift + np.trace(cov_first) + np.trace(cov_second) - 2 * np.trace(both)


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


@pytest.mark.slow  # torchmetrics takes seconds to import, here and below
def test_both_are_those_of_torchmetrics():
    import torch
    from torchmetrics.image.fid import FrechetInceptionDistance
    from torchmetrics.image.kid import KernelInceptionDistance

    class Features(torch.nn.Module):
        num_features = 16

        def forward(self, features):
            return features

    first, second = (torch.from_numpy(rows) for rows in draw(60, 50, 16))
    fid = FrechetInceptionDistance(Features())
    kid = KernelInceptionDistance(Features(), subsets=1, subset_size=50)
    for metric, few in ((fid, 60), (kid, 50)):  # its KID is of equal sizes
        metric.update(first[:few], real=True)
        metric.update(second[:few], real=False)
    assert frechet_distance(first, second) == pytest.approx(float(fid.compute()), rel=1e-4)
    mean, _ = kid.compute()
    assert kernel_distance(first[:50], second[:50]) == pytest.approx(float(mean), rel=1e-4)


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


# PSNR and SSIM outside a mask: one pixel at a time, and what no mask may do.


def draw_photo(height, width, seed, masked=0.3):
    rng = np.random.default_rng(seed)
    photo = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    shown = np.clip(photo + rng.normal(0, 30, photo.shape), 0, 255).astype(np.uint8)
    return shown, photo, rng.random((height, width)) < masked


def slow_ssim(shown, photo, mask):
    """Wang et al. (2004), section III.B, one window at a time, with its kept pixels alone."""
    height, width, values = *mask.shape, []
    for y in range(height):
        for x in range(width):
            if mask[y, x]:
                continue
            near = [
                (v, u)
                for v in range(max(0, y - 5), min(height, y + 6))
                for u in range(max(0, x - 5), min(width, x + 6))
                if not mask[v, u]
            ]
            weights = [math.exp(-((v - y) ** 2 + (u - x) ** 2) / 4.5) for v, u in near]
            for channel in range(3):
                a, b = (
                    np.array([float(picture[v, u, channel]) for v, u in near])
                    for picture in (shown, photo)
                )
                mean_a, mean_b = (np.average(pixels, weights=weights) for pixels in (a, b))
                var_a = np.average((a - mean_a) ** 2, weights=weights)
                var_b = np.average((b - mean_b) ** 2, weights=weights)
                both = np.average((a - mean_a) * (b - mean_b), weights=weights)
                values.append(
                    (2 * mean_a * mean_b + 6.5025) * (2 * both + 58.5225)
                    / ((mean_a**2 + mean_b**2 + 6.5025) * (var_a + var_b + 58.5225))
                )  # fmt: skip
    return np.mean(values)


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(1, 9), st.integers(1, 14), st.integers(0, 99), st.sampled_from([0, 0.3, 0.8]))
def test_both_are_of_the_pixels_outside_the_mask(height, width, seed, masked):
    shown, photo, mask = draw_photo(height, width, seed, masked)
    if mask.all():
        assert math.isnan(psnr_outside(shown, photo, mask))
        assert math.isnan(ssim_outside(shown, photo, mask))
        return
    kept = [(shown[at].astype(int), photo[at].astype(int)) for at in np.ndindex(mask.shape)
            if not mask[at]]  # fmt: skip
    errors = [int(d) ** 2 for shown_pixel, photo_pixel in kept for d in shown_pixel - photo_pixel]
    if sum(errors):
        expected = 10 * math.log10(255**2 / (sum(errors) / len(errors)))
        assert psnr_outside(shown, photo, mask) == pytest.approx(expected)
    assert ssim_outside(shown, photo, mask) == pytest.approx(slow_ssim(shown, photo, mask))
    assert psnr_outside(photo, photo, mask) == np.inf


@pytest.mark.slow
def test_ssim_is_that_of_torchmetrics_away_from_the_border():
    import torch
    from torchmetrics.functional.image import structural_similarity_index_measure

    shown, photo, mask = draw_photo(40, 30, 0, masked=0)
    shown_tensor, photo_tensor = (
        torch.from_numpy(np.moveaxis(a, -1, 0)[None].astype(np.float64)) for a in (shown, photo)
    )
    _, expected = structural_similarity_index_measure(
        shown_tensor, photo_tensor, data_range=255.0, return_full_image=True
    )
    # torchmetrics reflects pictures at their border: five pixels of it are not comparable.
    inside = _similarity(shown, photo, ~mask)[5:-5, 5:-5]
    assert inside == pytest.approx(np.moveaxis(expected[0].numpy(), 0, -1)[5:-5, 5:-5], abs=1e-5)


def test_other_shapes_are_refused():
    shown, photo, mask = draw_photo(4, 5, 0)
    for bad in ((shown[1:], photo, mask), (shown, photo, mask[1:]), (*(2 * [shown[..., 0]]), mask)):
        with pytest.raises(ValueError, match="should be"):
            ssim_outside(*bad)
