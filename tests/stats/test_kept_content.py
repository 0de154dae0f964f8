"""PSNR and SSIM outside a mask: one pixel at a time, torchmetrics, and what no mask may do."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.functional.image import structural_similarity_index_measure

from cfaug.stats.image_metrics import _similarity, psnr_outside, ssim_outside
from tests.properties import examples


def draw(height, width, seed, masked=0.3):
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
                    np.array([float(one[v, u, channel]) for v, u in near]) for one in (shown, photo)
                )
                mean_a, mean_b = (np.average(one, weights=weights) for one in (a, b))
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
    shown, photo, mask = draw(height, width, seed, masked)
    if mask.all():
        assert math.isnan(psnr_outside(shown, photo, mask))
        assert math.isnan(ssim_outside(shown, photo, mask))
        return
    kept = [(shown[at].astype(int), photo[at].astype(int)) for at in np.ndindex(mask.shape)
            if not mask[at]]  # fmt: skip
    errors = [int(d) ** 2 for one, other in kept for d in one - other]
    if sum(errors):
        expected = 10 * math.log10(255**2 / (sum(errors) / len(errors)))
        assert psnr_outside(shown, photo, mask) == pytest.approx(expected)
    assert ssim_outside(shown, photo, mask) == pytest.approx(slow_ssim(shown, photo, mask))


def test_ssim_is_that_of_torchmetrics_away_from_the_border():
    shown, photo, mask = draw(40, 30, 0, masked=0)
    one, other = (
        torch.from_numpy(np.moveaxis(a, -1, 0)[None].astype(np.float64)) for a in (shown, photo)
    )
    _, expected = structural_similarity_index_measure(
        one, other, data_range=255.0, return_full_image=True
    )
    # torchmetrics reflects pictures at their border: five pixels of it are not comparable.
    inside = _similarity(shown, photo, ~mask)[5:-5, 5:-5]
    assert inside == pytest.approx(np.moveaxis(expected[0].numpy(), 0, -1)[5:-5, 5:-5], abs=1e-5)


def test_nothing_in_the_mask_has_any_influence():
    shown, photo, mask = draw(20, 20, 1)
    other, wild = shown.copy(), np.random.default_rng(2)
    other[mask] = wild.integers(0, 256, (mask.sum(), 3))
    for measure in (psnr_outside, ssim_outside):
        assert measure(other, photo, mask) == measure(shown, photo, mask)
        assert measure(other, photo, mask) < measure(photo, photo, mask)
    assert psnr_outside(photo, photo, mask) == np.inf
    assert ssim_outside(photo, photo, mask) == pytest.approx(1)


def test_other_shapes_are_refused():
    shown, photo, mask = draw(4, 5, 0)
    for bad in ((shown[1:], photo, mask), (shown, photo, mask[1:]), (*(2 * [shown[..., 0]]), mask)):
        with pytest.raises(ValueError, match="should be"):
            ssim_outside(*bad)
