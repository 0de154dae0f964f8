from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfaug.models.specs import HFClip
from cfaug.train.loss import contrastive_loss, global_contrastive_loss, share
from tests.models import tiny


def features(seed=0, rows=9):
    draw = torch.Generator().manual_seed(seed)
    pair = [torch.randn(rows, 8, generator=draw, requires_grad=True) for _ in range(2)]
    return *pair, torch.tensor(14.3, requires_grad=True)


def slow_loss(images, texts, scale):
    """The definition, one query at a time, in float64."""
    images, texts = (x.detach().double().numpy() for x in (images, texts))
    images, texts = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (images, texts))
    logits = scale.item() * images @ texts.T
    terms = [np.log(np.exp(row).sum()) - row[i] for i, row in enumerate(logits)]
    terms += [np.log(np.exp(row).sum()) - row[i] for i, row in enumerate(logits.T)]
    return np.mean(terms)


def test_loss_is_the_definition():
    assert contrastive_loss(*features()).item() == pytest.approx(slow_loss(*features()), abs=1e-6)


def test_loss_and_gradients_are_open_clips():
    from open_clip.loss import ClipLoss

    ours, theirs = features(), features()
    loss = contrastive_loss(*ours)
    unit = [torch.nn.functional.normalize(x, dim=-1) for x in theirs[:2]]
    expected = ClipLoss()(*unit, theirs[2])
    loss.backward()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("save", [tiny.save_clip, tiny.save_dual_encoder])
def test_loss_is_that_of_the_transformers_model(save, tmp_path):
    encoder = HFClip(str(save(tmp_path / "weights"))).load()
    tokens = encoder.tokenize(tiny.CAPTIONS)
    pixels = torch.arange(4 * 3 * 32 * 32, dtype=torch.uint8).view(4, 3, 32, 32)
    with torch.no_grad():
        inputs = {**tokens, "pixel_values": encoder.normalize(pixels)}
        expected = encoder.model(**inputs, return_loss=True).loss
        images, texts = encoder.encode_image(pixels), encoder.encode_text(tokens)
        loss = global_contrastive_loss(images, texts, encoder.logit_scale(), 4)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)


def test_loss_is_computed_in_single_precision():
    images, texts, scale = features()
    exact = contrastive_loss(images, texts, scale)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert contrastive_loss(images, texts, scale).item() == exact.item()


@given(size=st.integers(0, 300), world=st.integers(1, 9))
def test_shares_are_numpys(size, world):
    shares = [share(size, rank, world) for rank in range(world)]
    assert shares == [len(part) for part in np.array_split(np.arange(size), world)]
