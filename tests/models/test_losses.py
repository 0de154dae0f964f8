from __future__ import annotations

import numpy as np
import pytest
import torch

from cfaug.models.losses import (
    Negatives,
    log_owner_weights,
    sigmoid_loss,
    symmetric_loss,
    three_way_loss,
)
from cfaug.models.specs import HFClip, OpenClip
from tests.models import tiny


def features(seed=0, rows=9, kinds=2):
    draw = torch.Generator().manual_seed(seed)
    found = [torch.randn(rows, 8, generator=draw, requires_grad=True) for _ in range(kinds)]
    return *found, torch.tensor(14.3, requires_grad=True)


def unit(features):
    array = features.detach().double().numpy()
    return array / np.linalg.norm(array, axis=1, keepdims=True)


def slow_cross_entropy(queries, keys, scale, weights):
    """One query at a time, in float64; ``weights[i, j]`` counts key j for query i."""
    terms = []
    for i, row in enumerate(scale * unit(queries) @ unit(keys).T):
        terms.append(np.log((weights[i] * np.exp(row)).sum()) - row[i] - np.log(weights[i, i]))
    return np.mean(terms)


def weights(rows=9, seed=1):
    draw = np.random.default_rng(seed).choice([0.0, 1.0, 3.0], (rows, rows))
    found = np.triu(draw, 1)
    return found + found.T + np.eye(rows)


def log_weights():
    return torch.from_numpy(weights()).log().float()


@pytest.mark.parametrize("weighted", [False, True])
def test_the_symmetric_loss_is_the_definition(weighted):
    images, texts, scale = features()
    counts = weights() if weighted else np.ones((9, 9))
    expected = np.mean(
        [
            slow_cross_entropy(*pair, scale.item(), counts)
            for pair in ((images, texts), (texts, images))
        ]
    )
    found = symmetric_loss(images, texts, scale, log_weights() if weighted else None)
    assert found.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_three_way_loss_is_the_definition(weighted):
    images, texts, crossed, scale = features(kinds=3)
    counts = weights() if weighted else np.ones((9, 9))
    pairs = ((texts, images), (texts, crossed), (images, crossed))
    expected = np.mean([slow_cross_entropy(*pair, scale.item(), counts) for pair in pairs])
    found = three_way_loss(images, texts, crossed, scale, log_weights() if weighted else None)
    assert found.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_sigmoid_loss_is_the_definition(weighted):
    images, texts, scale = features()
    counts = weights() if weighted else np.ones((9, 9))
    logits = scale.item() * unit(images) @ unit(texts).T - 2.5
    total = 0.0
    for i in range(9):
        for j in range(9):
            sign = 1 if i == j else -1
            total += counts[i, j] * np.log1p(np.exp(-sign * logits[i, j]))
    given = log_weights() if weighted else None
    found = sigmoid_loss(images, texts, scale, torch.tensor(-2.5), given)
    assert found.item() == pytest.approx(total / 9, rel=1e-5)


def same_gradients(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=1e-6, rtol=1e-5)


def test_loss_and_gradients_are_open_clips():
    from open_clip.loss import ClipLoss

    ours, theirs = features(), features()
    loss = symmetric_loss(*ours)
    normal = [torch.nn.functional.normalize(x, dim=-1) for x in theirs[:2]]
    expected = ClipLoss()(*normal, theirs[2])
    loss.backward()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    same_gradients(ours, theirs)


def test_sigmoid_loss_and_gradients_are_open_clips():
    from open_clip.loss import SigLipLoss

    ours = (*features(), torch.tensor(-3.0, requires_grad=True))
    theirs = (*features(), torch.tensor(-3.0, requires_grad=True))
    loss = sigmoid_loss(*ours)
    normal = [torch.nn.functional.normalize(x, dim=-1) for x in theirs[:2]]
    expected = SigLipLoss()(*normal, *theirs[2:])
    loss.backward()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    same_gradients(ours, theirs)


@pytest.mark.parametrize("save", [tiny.save_clip, tiny.save_dual_encoder, tiny.save_siglip])
def test_loss_is_that_of_the_transformers_model(save, tmp_path):
    encoder = HFClip(str(save(tmp_path / "weights"))).load()
    tokens = encoder.tokenize(tiny.CAPTIONS)
    pixels = tiny.pixels()
    with torch.no_grad():
        inputs = {**tokens, "pixel_values": encoder.normalize(pixels)}
        expected = encoder.model(**inputs, return_loss=True).loss
        loss = encoder.contrastive(encoder.features(pixels, tiny.CAPTIONS))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)


def open_clips_loss(model, inputs, tokens):
    """What open_clip's training loop computes: ``--siglip`` where the model has a bias."""
    from open_clip.loss import ClipLoss, SigLipLoss

    images, texts, scale, *bias = model(inputs, tokens)
    return (SigLipLoss() if bias else ClipLoss())(images, texts, scale, *bias)


@pytest.mark.parametrize("changes", [{}, {"init_logit_bias": -10.0}], ids=["clip", "siglip"])
def test_an_open_clip_model_trains_on_its_authors_loss(changes, tmp_path):
    import open_clip

    folder = tiny.save_open_clip(tmp_path / "weights", **changes)
    encoder = OpenClip(f"local-dir:{folder}").load()
    model, _, _ = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    found = encoder.contrastive(encoder.features(tiny.pixels(), tiny.CAPTIONS))
    tokens = encoder.tokenize(tiny.CAPTIONS)["input_ids"]
    expected = open_clips_loss(model.eval(), encoder.normalize(tiny.pixels()), tokens)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    found.backward()
    expected.backward()
    ours, theirs = encoder.model.named_parameters(), dict(model.named_parameters())
    for name, parameter in ours:
        bound = 1e-5 * theirs[name].grad.abs().max().item() + 1e-8
        assert (parameter.grad - theirs[name].grad).abs().max().item() <= bound, name
    assert ("logit_bias" in theirs) == bool(changes)
    with torch.no_grad():
        for parameter in encoder.model.parameters():
            parameter.sub_(parameter.grad)
    encoder.save(tmp_path / "tuned")
    again, _, _ = open_clip.create_model_and_transforms(f"local-dir:{tmp_path / 'tuned'}")
    for name, value in again.state_dict().items():
        assert torch.equal(value, encoder.model.state_dict()[name]), name


@pytest.mark.parametrize("loss", [symmetric_loss, three_way_loss])
def test_a_loss_is_computed_in_single_precision(loss):
    given = features(kinds=3 if loss is three_way_loss else 2)
    exact = loss(*given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert loss(*given).item() == exact.item()


def slow_both_ways(images, texts, wrong_texts, wrong_images, scale, counts, weight, bias):
    """Each example's own wrong answers, number i of them, count ``weight`` times for example i."""
    unit = [x / x.norm(dim=1, keepdim=True) for x in (images, texts, wrong_texts, wrong_images)]
    images, texts, wrong_texts, wrong_images = unit
    total, n = 0, len(images)
    for i in range(n):
        of_images = [
            (weight if j == i else 1, scale * images[i] @ t) for j, t in enumerate(wrong_texts)
        ]
        of_texts = [
            (weight if j == i else 1, scale * texts[i] @ v) for j, v in enumerate(wrong_images)
        ]
        if bias is not None:
            for j in range(n):
                sign = 1 if i == j else -1
                total += (
                    counts[i][j] * (1 + (-sign * (scale * images[i] @ texts[j] + bias)).exp()).log()
                )
            total += sum(w * (1 + (one + bias).exp()).log() for w, one in of_images + of_texts)
            continue
        right = scale * images[i] @ texts[i]
        among = sum(counts[i][j] * (scale * images[i] @ texts[j]).exp() for j in range(n))
        found = sum(counts[i][j] * (scale * images[j] @ texts[i]).exp() for j in range(n))
        total += (among + sum(w * one.exp() for w, one in of_images)).log() - right
        total += (found + sum(w * one.exp() for w, one in of_texts)).log() - right
    return total / n / (2 if bias is None else 1)


@pytest.mark.parametrize(
    ("weight", "of_texts", "of_images"), [(1.0, 9, 9), (3.5, 9, 9), (1.0, 1, 0), (1.0, 13, 0)]
)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bias", [None, -2.5])
def test_negatives_and_their_gradients_are_the_definition(
    weight, of_texts, of_images, weighted, bias
):
    """NegCLIP's columns for images, the same for texts, an example's own weighed apart."""
    wrong = features(seed=5, rows=of_texts)[0], features(seed=6, rows=of_images)[1]
    slow = [x.detach().double().requires_grad_() for x in (*features()[:2], *wrong, features()[2])]
    fast = [x.detach().float().requires_grad_() for x in slow]
    counts = weights() if weighted else np.ones((9, 9))
    expected = slow_both_ways(*slow, counts, weight, bias)
    own = log_owner_weights(torch.arange(9), 9, weight) if weight != 1 else None
    negatives = Negatives(fast[2], fast[3] if of_images else None, own, own)
    logs = log_weights() if weighted else None
    if bias is None:
        found = symmetric_loss(*fast[:2], fast[4], logs, negatives)
    else:
        found = sigmoid_loss(*fast[:2], fast[4], torch.tensor(bias), logs, negatives)
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    found.backward()
    expected.backward()
    for ours, theirs in zip(fast, slow, strict=True):
        if theirs.numel():
            torch.testing.assert_close(ours.grad.double(), theirs.grad, atol=1e-5, rtol=1e-4)
    assert fast[2].grad.abs().max() > 1e-4


def released_loop(images, texts, wrong, scale):
    """``CLIP_fine_tuning.py`` of TROHN-Text: captions and then negative captions in one matrix."""
    images, every = (x / x.norm(dim=1, keepdim=True) for x in (images, torch.cat([texts, wrong])))
    logits_im, truth = scale * images @ every.T, torch.arange(len(images))
    cross = torch.nn.functional.cross_entropy
    return (cross(logits_im, truth) + cross(logits_im.T[: len(images)], truth)) / 2


def test_wrong_texts_are_those_of_the_released_loop():
    images, texts, scale = features()
    wrong = features(seed=5, rows=9)[0]
    found = symmetric_loss(images, texts, scale, None, Negatives(wrong))
    assert found.item() == pytest.approx(
        released_loop(images, texts, wrong, scale).item(), abs=1e-6
    )
