from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.models.losses import (
    PLACES,
    Negatives,
    group_rows,
    intra_modal_loss,
    log_negative_weights,
    log_owner_weights,
    number_places,
    ranking_loss,
    set_invariance,
    sigmoid_loss,
    symmetric_loss,
    three_way_loss,
)
from cfaug.models.specs import HFClip, OpenClip
from tests.models import tiny
from tests.properties import examples


def features(seed=0, rows=9, kinds=2):
    draw = torch.Generator().manual_seed(seed)
    embeddings = [torch.randn(rows, 8, generator=draw, requires_grad=True) for _ in range(kinds)]
    return *embeddings, torch.tensor(14.3, requires_grad=True)


def weights(rows=9, seed=1):
    draw = np.random.default_rng(seed).choice([0.0, 1.0, 3.0], (rows, rows))
    upper = np.triu(draw, 1)
    return upper + upper.T + np.eye(rows)


def log_weights():
    return torch.from_numpy(weights()).log().float()


@pytest.mark.parametrize(
    ("loss", "home", "bias"),
    [(symmetric_loss, "ClipLoss", ()), (sigmoid_loss, "SigLipLoss", (-3.0,))],
)
def test_loss_and_gradients_are_open_clips(loss, home, bias):
    import open_clip

    def given():
        return *features(), *(torch.tensor(value, requires_grad=True) for value in bias)

    ours, theirs = given(), given()
    result = loss(*ours)
    normal = [torch.nn.functional.normalize(x, dim=-1) for x in theirs[:2]]
    expected = getattr(open_clip.loss, home)()(*normal, *theirs[2:])
    result.backward()
    expected.backward()
    assert result.item() == pytest.approx(expected.item(), rel=1e-5)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=1e-6, rtol=1e-5)


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
    encoder = OpenClip(str(folder)).load()
    model, _, _ = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    loss = encoder.contrastive(encoder.features(tiny.pixels(), tiny.CAPTIONS))
    tokens = encoder.tokenize(tiny.CAPTIONS)["input_ids"]
    expected = open_clips_loss(model.eval(), encoder.normalize(tiny.pixels()), tokens)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    loss.backward()
    expected.backward()
    ours, theirs = encoder.model.named_parameters(), dict(model.named_parameters())
    for name, parameter in ours:
        bound = 1e-5 * theirs[name].grad.abs().max().item() + 1e-8
        assert (parameter.grad - theirs[name].grad).abs().max().item() <= bound, name
    assert ("logit_bias" in theirs) == bool(changes)


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
            total += sum(w * (1 + (logit + bias).exp()).log() for w, logit in of_images + of_texts)
            continue
        right = scale * images[i] @ texts[i]
        among_texts = sum(counts[i][j] * (scale * images[i] @ texts[j]).exp() for j in range(n))
        among_images = sum(counts[i][j] * (scale * images[j] @ texts[i]).exp() for j in range(n))
        total += (among_texts + sum(w * logit.exp() for w, logit in of_images)).log() - right
        total += (among_images + sum(w * logit.exp() for w, logit in of_texts)).log() - right
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
    owner_weights = log_owner_weights(torch.arange(9), 9, weight) if weight != 1 else None
    negatives = Negatives(fast[2], fast[3] if of_images else None, owner_weights, owner_weights)
    logs = log_weights() if weighted else None
    if bias is None:
        loss = symmetric_loss(*fast[:2], fast[4], logs, negatives)
    else:
        loss = sigmoid_loss(*fast[:2], fast[4], torch.tensor(bias), logs, negatives)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    loss.backward()
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
    loss = symmetric_loss(images, texts, scale, None, Negatives(wrong))
    assert loss.item() == pytest.approx(released_loop(images, texts, wrong, scale).item(), abs=1e-6)


SETS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), min_size=1, max_size=9)
"""A row's set, and which of the set's two images it has."""


def batch(rows):
    sets = torch.tensor([s for s, _ in rows])
    return 2 * sets + torch.tensor([i for _, i in rows]), sets


def drawn(n, count=2):
    draw = torch.Generator().manual_seed(n)
    return [torch.randn(n, 5, generator=draw, requires_grad=True) for _ in range(count)]


def weight(rows, i, j, masked, hard):
    """The definition, one pair at a time."""
    if i == j:
        return 1.0
    if rows[i] == rows[j]:
        return 0.0 if masked else 1.0
    return hard if rows[i][0] == rows[j][0] else 1.0


def one_direction(queries, keys, scale, counts):
    """The formula of the docstring in float64, a loop over rows and a loop over negatives."""
    unit = torch.nn.functional.normalize
    scores = scale * unit(queries.detach().double()) @ unit(keys.detach().double()).T
    total = 0.0
    for i, row in enumerate(scores.tolist()):
        below = sum(counts[i][j] * math.exp(score) for j, score in enumerate(row))
        total -= math.log(math.exp(row[i]) / below)
    return total / len(counts)


@given(rows=SETS, masked=st.booleans(), hard=st.sampled_from([0.5, 1.0, 3.0]))
def test_the_weighted_losses_are_their_formulas(rows, masked, hard):
    images, texts, crossed = drawn(len(rows), 3)
    logs = log_negative_weights(*batch(rows), mask_same_image=masked, hard_negative_weight=hard)
    assert torch.equal(logs, logs.T)
    every = range(len(rows))
    counts = [[weight(rows, i, j, masked, hard) for j in every] for i in every]
    scale, bias = torch.tensor(2.5), torch.tensor(-1.0)
    exact = [x.detach().double() for x in (images, texts)]
    nothing = [torch.zeros(0, 5, dtype=torch.float64)] * 2
    loss = symmetric_loss(images, texts, scale, logs)
    expected = slow_both_ways(*exact, *nothing, 2.5, counts, 1, None)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-5)
    loss.backward()
    assert torch.isfinite(images.grad).all()
    # SigLIP's loss has a term a pair; the weight is the term's.
    pairs = sigmoid_loss(images, texts, scale, bias, logs)
    expected = slow_both_ways(*exact, *nothing, 2.5, counts, 1, -1.0)
    assert pairs.item() == pytest.approx(expected.item(), abs=1e-5)
    three = three_way_loss(images, texts, crossed, scale, log_weights=logs)
    directions = ((texts, images), (texts, crossed), (images, crossed))
    expected = sum(one_direction(*both, 2.5, counts) for both in directions)
    assert three.item() == pytest.approx(expected / 3, abs=1e-5)


ROWS = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=12)
"""A row's set, and whether the row has a neutral prompt; sets two by two share theirs."""


def slow_invariance(images, prompts, shown, sets, scale, kind):
    """One set after the other, in Python's floats."""
    terms = []
    for current in sorted(set(sets)):
        logits = []
        for i, owner in enumerate(sets):
            if owner == current and shown[i] >= 0:
                a, b = images[i].tolist(), prompts[shown[i]].tolist()
                dot = sum(x * y for x, y in zip(a, b, strict=True))
                norms = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b))
                logits.append(scale * dot / norms)
        if len(logits) < 2:
            continue
        if kind == "variance":
            mean = sum(logits) / len(logits)
            terms.append(sum((x - mean) ** 2 for x in logits) / len(logits))
        else:
            total = sum(math.exp(x) for x in logits)
            shares = [math.exp(x) / total for x in logits]
            terms.append(sum(p * math.log(p * len(shares)) for p in shares))
    return sum(terms) / len(terms) if terms else 0.0


@pytest.mark.parametrize("kind", ["variance", "kl"])
@settings(max_examples=examples(30), deadline=None)
@given(rows=ROWS)
def test_it_is_its_definition_set_by_set(kind, rows):
    draw = torch.Generator().manual_seed(len(rows))
    images = torch.randn(len(rows), 5, generator=draw, requires_grad=True)
    prompts = torch.randn(3, 5, generator=draw)
    sets = [number for number, _ in rows]
    shown = [number // 2 if asked else -1 for number, asked in rows]
    asked = torch.tensor(shown)
    groups = group_rows(asked, torch.tensor(sets))
    loss = set_invariance(images, prompts, asked, groups, torch.tensor(3.0), kind)
    expected = slow_invariance(images.detach().double(), prompts.double(), shown, sets, 3.0, kind)
    assert loss.item() == pytest.approx(expected, abs=1e-5)
    loss.backward()
    assert torch.isfinite(images.grad).all()


def test_large_logits_do_not_overflow():
    images = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    same = torch.zeros(3, dtype=torch.int64)
    prompt, groups = torch.tensor([[1.0, 0]]), group_rows(same, same)
    loss = set_invariance(images, prompt, same, groups, torch.tensor(1e3), "kl")
    assert loss.item() == pytest.approx(math.log(3))
    loss.backward()
    assert torch.isfinite(images.grad).all()


# CE-CLIP's terms of wrong captions.


def cosine(a, b):
    return float(np.dot(a, b) / math.sqrt(np.dot(a, a) * np.dot(b, b)))


def slow_terms(images, texts, wrong, thresholds, scale):
    """The two terms and the next thresholds by loops, of wrong[i][k], the k-th of example i.

    Written after the released loop (Enhance-FineGrained, src/open_clip/loss.py), whose tensors are
    full: an example without a wrong caption of a kind has a mask of 0 there.
    """
    rows, kinds = len(images), max(map(len, wrong))
    right = [scale * cosine(i, t) for i, t in zip(images, texts, strict=True)]
    contrast, rank = 0.0, 0.0
    every = [caption for captions in wrong for caption in captions]
    for row in range(rows):
        others = [scale * cosine(texts[row], caption) for caption in every]
        contrast += math.log(sum(map(math.exp, [right[row], *others]))) - right[row]
        for kind, caption in enumerate(wrong[row]):
            false = scale * cosine(images[row], caption)
            rank += max(0.0, thresholds[min(kind, PLACES - 1)] + false - right[row])
    following = list(thresholds)
    for kind in range(PLACES):
        of_kind = [
            scale * cosine(images[row], caption)
            for row in range(rows)
            for k, caption in enumerate(wrong[row])
            if min(k, PLACES - 1) == kind
        ]
        if of_kind:
            following[kind] = sum(right) / rows - sum(of_kind) / len(of_kind)
    return contrast / rows, rank / (rows * kinds), following


@given(st.lists(st.integers(0, PLACES + 2), min_size=1, max_size=5).filter(any), st.integers(0, 9))
@settings(max_examples=examples(50), deadline=None)
def test_terms_of_wrong_captions_are_those_of_the_slow_loops(counts, seed):
    draw = np.random.default_rng(seed)
    images, texts = draw.normal(size=(2, len(counts), 6))
    wrong = [draw.normal(size=(count, 6)) for count in counts]
    thresholds, scale = draw.uniform(0, 3, PLACES), 7.5
    tensors = [torch.tensor(np.asarray(x), dtype=torch.float32) for x in (images, texts)]
    flat = torch.tensor(np.concatenate(wrong), dtype=torch.float32)
    owners = torch.tensor([row for row, count in enumerate(counts) for _ in range(count)])
    factor = torch.tensor(scale)
    contrast = intra_modal_loss(*tensors, flat, factor)
    rank, following = ranking_loss(
        *tensors, flat, owners, torch.tensor(thresholds, dtype=torch.float32), factor
    )
    expected = slow_terms(images, texts, wrong, thresholds, scale)
    assert contrast.item() == pytest.approx(expected[0], rel=1e-6, abs=1e-6)
    assert rank.item() == pytest.approx(expected[1], rel=1e-6, abs=1e-6)
    assert following.tolist() == pytest.approx(expected[2], rel=1e-5, abs=1e-5)


@given(st.lists(st.integers(0, 4), max_size=12))
def test_the_place_of_a_wrong_caption_counts_those_of_its_example_before_it(owners):
    expected = [owners[:n].count(owner) for n, owner in enumerate(owners)]
    assert number_places(torch.tensor(owners, dtype=torch.int64)).tolist() == expected


def test_thresholds_are_constants_for_the_gradient():
    images, texts, scale = features()
    wrong, owners = torch.randn(9, 8), torch.arange(9)
    loss, following = ranking_loss(images, texts, wrong, owners, torch.ones(PLACES), scale)
    assert not following.requires_grad
    loss.backward()
    assert images.grad.abs().sum() > 0
    assert texts.grad.abs().sum() > 0
