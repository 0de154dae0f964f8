"""Large batches in small pieces: the gradient is the whole batch's; accumulation is the mean."""

from __future__ import annotations

import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.rng import derive
from cfaug.models.specs import BridgeTower, HFClip
from cfaug.train.module import ChunkedFeatures, refuse_batch_norm
from cfaug.train.settings import LossSettings, OptimSettings
from tests.models import tiny
from tests.train import tiny_plan
from tests.train.test_distributed import torchrun
from tests.train.tiny_plan import rows

GENTLE = OptimSettings(lr=1e-2, eps=1e-2)
"""With a large eps a step is linear in the gradient, so that rounding is not blown up."""


def gradients(encoder):
    return {n: p.grad.clone() for n, p in encoder.named_parameters() if p.grad is not None}


def seeded(number):
    torch.manual_seed(derive(1, "chunk", number))


def chunked(encoder, batch, size):
    return ChunkedFeatures(encoder.features, batch["pixels"], batch["texts"], size, seeded)


@pytest.mark.parametrize(
    ("spec", "save", "size"),
    [
        (HFClip, tiny.save_dual_encoder, 1),
        (HFClip, tiny.save_dual_encoder, 99),
        (BridgeTower, tiny.save_bridgetower, 5),
    ],
)
def test_the_gradient_is_the_whole_batchs(tmp_path, spec, save, size):
    encoder = spec(str(save(tmp_path / "weights"))).load().train()
    batch = tiny_plan.batch(0, 16)
    loss = encoder.contrastive(encoder.features(batch["pixels"], batch["texts"]))
    loss.backward()
    wanted = gradients(encoder)
    encoder.zero_grad()
    pieces = chunked(encoder, batch, size)
    again = encoder.contrastive(pieces.leaves)
    again.backward()
    pieces.backward(nullcontext)
    found = gradients(encoder)
    assert again.item() == pytest.approx(loss.item(), abs=1e-6)
    assert found.keys() == wanted.keys()
    whole, apart = (torch.cat([g[n].flatten() for n in wanted]) for g in (wanted, found))
    assert (whole - apart).norm() / whole.norm() < 3e-6


def test_dropout_drops_the_same_in_both_passes(dropout_weights):
    encoder = HFClip(str(dropout_weights)).load().train()
    pieces = chunked(encoder, tiny_plan.batch(0, 16), 6)
    first = [leaf.detach() for leaf in pieces.leaves]
    again = [torch.cat(part) for part in zip(*(pieces._encode(i) for i in range(3)), strict=True)]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    seeded(7)
    other = encoder.features(*[tiny_plan.batch(0, 16)[key] for key in ("pixels", "texts")])
    assert not torch.equal(first[1], other[1])


def trained(tmp_path, name, weights, **settings):
    folder = tmp_path / name / "arm" / "seed=1"
    settings = {"steps": 6, "optim": GENTLE, "sizes": (16, 7, 1)} | settings
    encoder, _, best = tiny_plan.train(folder, weights, **settings)
    return encoder.state_dict(), best, rows(folder)


def difference(first, second):
    return max((first[k].double() - second[k].double()).abs().max().item() for k in first)


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss",
    [
        LossSettings("masked", 3.0, set_invariance=2.0),
        LossSettings(negative_captions="used"),
    ],
)
def test_small_pieces_train_what_whole_batches_train(tmp_path, weights, loss):
    """Also with images that have no text."""
    given = {"loss": loss, "wrong_images": loss.negative_captions is not None}
    whole, best, curve = trained(tmp_path, "whole", weights, **given)
    pieces, best_too, curve_too = trained(tmp_path, "pieces", weights, micro_batch_size=3, **given)
    assert difference(whole, pieces) < 1e-6
    assert best_too.val_loss == pytest.approx(best.val_loss, abs=1e-5)
    for one, other in zip(curve, curve_too, strict=True):
        assert float(one["train/loss"]) == pytest.approx(float(other["train/loss"]), abs=1e-5)


def test_accumulated_batches_are_averaged_each_with_its_own_negatives(tmp_path, weights):
    """One step of plain gradient descent, as AdamW's first step with a huge eps nearly is."""
    settings = {"steps": 1, "sizes": (8,), "optim": OptimSettings(lr=1e6, eps=1e6, weight_decay=0)}
    done, _, curve = trained(
        tmp_path, "two", weights, accumulate_grad_batches=2, gradient_clip=None, **settings
    )
    encoder = HFClip(str(weights)).load().train()
    before = {k: v.clone() for k, v in encoder.state_dict().items()}
    losses = []
    for number in (0, 1):
        batch = tiny_plan.batch(number, 8)
        losses.append(encoder.contrastive(encoder.features(batch["pixels"], batch["texts"])) / 2)
        losses[-1].backward()
    assert float(curve[0]["train/loss"]) == pytest.approx(sum(losses).item(), abs=1e-6)
    for name, parameter in encoder.named_parameters():
        if parameter.grad is not None:
            step = done[name] - before[name]
            assert torch.allclose(step, -parameter.grad, rtol=1e-3, atol=1e-5), name


def test_a_step_of_several_batches_counts_epochs_and_validates_by_them(tmp_path, weights):
    _, _, curve = trained(
        tmp_path, "three", weights, accumulate_grad_batches=3, steps=7, sizes=(8,),
        val_every_steps=None,
    )  # fmt: skip
    assert [float(row["epoch"]) for row in curve] == [3 * step / 7 for step in range(1, 8)]
    validated = [int(row["step"]) for row in curve if row["val/loss"]]
    assert validated == [math.ceil(7 / 3), math.ceil(14 / 3), 7]


def train_and_save(folder, weights, **settings):
    torch.set_num_threads(1)
    encoder, _, _ = tiny_plan.train(
        folder, weights, sizes=(16, 7, 1), steps=6, optim=GENTLE, micro_batch_size=3,
        accumulate_grad_batches=2, **settings,
    )  # fmt: skip
    torch.save(encoder.state_dict(), folder / "end.pt")


@pytest.mark.slow
def test_two_processes_train_what_one_trains(tmp_path):
    """FLAVA has parameters that no gradient reaches: they must not decay."""
    weights = tiny.save_flava(tmp_path / "weights")
    one, two = (tmp_path / name / "arm" / "seed=1" for name in ("one", "two"))
    train_and_save(one, weights)
    torchrun(train_and_save, two, weights)
    first, second = (torch.load(f / "end.pt", weights_only=True) for f in (one, two))
    assert difference(first, second) < 1e-5
    assert difference(first, HFClip(str(weights)).load().state_dict()) > 1e-3


def test_a_batch_norm_is_refused_unless_it_is_held(weights):
    norm = torch.nn.BatchNorm2d(3)
    with pytest.raises(UserError, match=r"model\.1 normalises by it: use .*accumulate"):
        refuse_batch_norm(SimpleNamespace(named_modules=lambda: [("model.1", norm)]))
    refuse_batch_norm(SimpleNamespace(named_modules=lambda: [("model.1", norm.eval())]))
    refuse_batch_norm(HFClip(str(weights)).load().train())
