from __future__ import annotations

import math
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from cfaug.core.errors import UserError
from cfaug.core.rng import derive
from cfaug.models.losses import (
    PLACES,
    Negatives,
    group_rows,
    intra_modal_loss,
    log_negative_weights,
    log_owner_weights,
    ranking_loss,
    set_invariance,
)
from cfaug.models.specs import BridgeTower, HFClip
from cfaug.train.contrastive_module import ContrastiveModule
from cfaug.train.module import ChunkedFeatures, refuse_batch_norm
from cfaug.train.settings import LossSettings, OptimSettings
from cfaug.train.tuning import Tuning
from tests.models import tiny
from tests.train import tiny_plan
from tests.train.test_distributed import torchrun
from tests.train.tiny_plan import rows

KINDS = {
    "clip": tiny.save_clip, "dual": tiny.save_dual_encoder, "siglip": tiny.save_siglip,
    "bridgetower": tiny.save_bridgetower, "flava": tiny.save_flava,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_the_papers_rule_decays_what_the_trainer_of_run_clip_decays(kind, tmp_path):
    from transformers import AutoModel, Trainer

    from cfaug.train.module import decayed_names, parameter_groups

    model = AutoModel.from_pretrained(KINDS[kind](tmp_path / kind))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    theirs = set(Trainer.get_decay_parameter_names(None, model)) & set(names.values())
    assert decayed_names(model, "huggingface") == theirs
    [scale] = [n for n, _ in model.named_parameters() if n.endswith("logit_scale")] or [None]
    assert scale in (theirs | {None})
    assert scale not in decayed_names(model, "matrices")
    decaying, rest = parameter_groups(model, 0.1, decay_rule="huggingface")
    assert {names[id(p)] for p in decaying["params"]} == theirs
    assert {names[id(p)] for p in rest["params"]} == set(names.values()) - theirs


def test_a_run_decays_by_its_rule(tmp_path, weights):
    """The logit scale has no gradient's worth of movement at this rate: it only decays."""
    moved = {}
    for rule in ("matrices", "huggingface"):
        optim = OptimSettings(lr=1e-9, weight_decay=1e5, warmup=0, decay_rule=rule)
        folder = tmp_path / rule / "arm" / "seed=1"
        encoder = tiny_plan.train(folder, weights, steps=1, optim=optim)[0]
        before = HFClip(str(weights)).load().model.logit_scale
        moved[rule] = abs((encoder.model.logit_scale - before).item())
    assert moved["matrices"] < 1e-6 < 1e-5 < moved["huggingface"]


def test_a_run_logs_and_keeps_the_lowest_validation_loss(folder, weights):
    _, start, best = tiny_plan.train(folder, weights, steps=12)
    rows = tiny_plan.rows(folder)
    assert start == 0
    assert [int(row["step"]) for row in rows] == list(range(1, 13))
    validated = {int(row["step"]): float(row["val/loss"]) for row in rows if row["val/loss"]}
    assert list(validated) == [5, 10, 12]
    assert best.val_loss == min(validated.values())
    assert best.step == min(validated, key=validated.get)
    factors = [OptimSettings(warmup=5).factor(step, 12) for step in range(12)]
    assert [float(row["lr"]) for row in rows] == pytest.approx([3e-3 * f for f in factors])
    assert not (folder / "last.ckpt").exists()


@pytest.mark.parametrize("seed", range(3))
def test_the_validation_loss_is_the_weighted_mean_of_torchmetrics_to_the_bit(seed):
    from torchmetrics import MeanMetric

    from cfaug.train.module import TrainingModule

    rng = np.random.default_rng(seed)
    batches = [{"global_size": int(size), "loss": loss} for size, loss in
               zip(rng.integers(1, 65, 40), rng.normal(1, 0.3, 40), strict=True)]  # fmt: skip
    module = MagicMock(loss=lambda batch: torch.tensor(batch["loss"]), global_step=7)
    module.weight = lambda batch: TrainingModule.weight(module, batch)
    module.trainer.strategy.batch_to_device = lambda batch: batch
    expected = MeanMetric(nan_strategy="error").set_dtype(torch.float64)
    for batch in batches:
        expected.update(batch["loss"], float(batch["global_size"]))
    actual = TrainingModule.validation_loss(module, batches)
    assert actual == expected.compute().item()
    with pytest.raises(UserError, match="step 7: the validation loss is nan"):
        TrainingModule.validation_loss(module, [*batches, {"global_size": 1, "loss": math.nan}])


def test_validation_comes_after_every_epoch_by_default(folder, weights):
    _, _, best = tiny_plan.train(
        folder, weights, steps=15, val_every_steps=None, log_every_steps=100, checkpoint="last"
    )
    assert [int(row["step"]) for row in tiny_plan.rows(folder)] == [7, 14, 15]
    assert best is None


@pytest.mark.parametrize("settings", [{}, {"gradient_clip": None}])
def test_a_loss_that_is_not_a_number_stops_the_run(folder, weights, settings):
    optim = OptimSettings(lr=1e30, schedule="constant")
    with pytest.raises(UserError, match=r"step \d+: the .* (nan|inf)") as caught:
        tiny_plan.train(folder, weights, optim=optim, save_every_steps=1, **settings)
    assert "optim.lr" in str(caught.value)


def test_a_gpu_that_notices_a_loss_by_itself_trains_the_same(tmp_path, weights, monkeypatch):
    """On a processor here, whose fused AdamW takes the same ``found_inf``."""
    ends = {}
    for late in (False, True):
        monkeypatch.setattr(ContrastiveModule, "_checks_late", late)
        folder = tmp_path / str(late) / "arm" / "seed=1"
        encoder = tiny_plan.train(folder, weights, steps=6, checkpoint="last")[0]
        ends[late] = encoder.state_dict(), [row["train/loss"] for row in rows(folder)]
    assert ends[False][1] == ends[True][1]
    assert tiny_plan.same_weights(ends[False][0], ends[True][0])


@pytest.mark.parametrize("fault", ["loss", "gradient's norm"])
@pytest.mark.parametrize("read_by", [{"log_every_steps": 4}, {"val_every_steps": 4},
                                     {"save_every_steps": 4}, {}])  # fmt: skip
def test_after_a_late_fault_nothing_is_updated(tmp_path, weights, monkeypatch, fault, read_by):
    """The third step fails; the host hears of it at the fourth, or at the end."""
    optim = OptimSettings(lr=3e-3, schedule="constant")
    seldom = {"log_every_steps": 100, "val_every_steps": 100, "save_every_minutes": None,
              "checkpoint": "last"}  # fmt: skip
    encoders, taken = [], []
    real_loss, clip = ContrastiveModule.loss, torch.nn.utils.clip_grad_norm_

    def loss(self, batch):
        encoders.append(self.encoder)
        taken.append(self.global_step)
        broken = fault == "loss" and self.global_step == 2 and torch.is_grad_enabled()
        return real_loss(self, batch) * (math.nan if broken else 1)

    def norm_of(parameters, limit):
        norm = clip(parameters, limit)
        return norm * math.inf if fault != "loss" and taken[-1] == 2 else norm

    monkeypatch.setattr(ContrastiveModule, "loss", loss)
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", norm_of)
    monkeypatch.setattr(ContrastiveModule, "_checks_late", True)
    with pytest.raises(UserError, match=f"step 3: the {fault} is (nan|inf); nothing was updated"):
        tiny_plan.train(
            tmp_path / "run" / "arm" / "seed=1", weights, steps=6, optim=optim,
            **{**seldom, **read_by},
        )  # fmt: skip
    assert taken[-1] == (3 if read_by else 5)
    broken = encoders[-1].state_dict()
    whole = tiny_plan.train(
        tmp_path / "two" / "arm" / "seed=1", weights, steps=2, optim=optim, **seldom
    )[0]
    assert tiny_plan.same_weights(broken, whole.state_dict())


def test_the_gradient_is_bounded(folder, weights):
    optim = OptimSettings(lr=1.0, eps=1e6, weight_decay=0.0, schedule="constant")
    before = HFClip(str(weights)).load().state_dict()
    after = tiny_plan.train(folder, weights, steps=1, optim=optim, gradient_clip=1e-2)[0]
    # With this eps the first step of Adam is the gradient over eps.
    moved = [(after.state_dict()[k] - before[k]).flatten().double() for k in before]
    assert torch.cat(moved).norm().item() * 1e6 <= 1.1e-2


def test_time_decides_when_to_save_too_and_lightning_is_silent(folder, weights, capfd):
    tiny_plan.train(folder, weights, steps=4, save_every_minutes=1e-9)
    assert torch.load(folder / "last.ckpt", weights_only=True)["global_step"] == 3
    assert capfd.readouterr() == ("", "")


def test_the_bar_is_on_stderr(folder, weights, capfd, monkeypatch):
    monkeypatch.setattr("cfaug.core.progress.QUIET_SECONDS", -1)
    monkeypatch.setattr("cfaug.core.progress.on_terminal", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    tiny_plan.train(folder, weights, steps=3, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "3/3" in err
    assert "examples/s" in err


ASKED = {
    "masked": LossSettings("masked", 4.0),
    "wrong texts": LossSettings(negative_captions="used"),
    "wrong images": LossSettings(negative_captions="used", negative_weight=3.0),
    "variance": LossSettings(set_invariance=2.5),
    "kl": LossSettings(set_invariance=2.5, invariance="kl"),
}


def first_loss(encoder, loss, *, wrong_images):
    """The loss of the first batch by the formula, and its term of set invariance."""
    data = tiny_plan.batch(0, 16, wrong_images=wrong_images)
    features = encoder.features(data["pixels"], data["texts"])
    logs = negatives = None
    term = torch.zeros(())
    if not loss.plain:
        logs = log_negative_weights(
            data["images"], data["sets"], mask_same_image=True, hard_negative_weight=4.0
        )
    if loss.negative_captions == "used":
        wrong = [encoder.encode_text(encoder.tokenize(data["negatives"])), None, None, None]
        if wrong_images:
            owners = (data["negative_owners"], data["negative_image_owners"])
            wrong[1] = encoder.encode_image(data["negative_pixels"])
            wrong[2:] = [log_owner_weights(rows, 16, loss.negative_weight) for rows in owners]
        negatives = Negatives(*wrong)
    if loss.set_invariance:
        prompts = encoder.encode_text(encoder.tokenize(data["neutral_texts"]))
        scale = encoder.logit_scale().detach()
        term = set_invariance(
            features[0], prompts, data["neutrals"], group_rows(data["neutrals"], data["sets"]),
            scale, loss.invariance,
        )  # fmt: skip
    return encoder.contrastive(features, logs, negatives) + loss.set_invariance * term, term


@pytest.fixture(scope="module")
def plain_row(tmp_path_factory, weights):
    """What a run of a step without a loss of its own logs."""
    folder = tmp_path_factory.mktemp("runs") / "plain"
    tiny_plan.train(folder, weights, steps=1, val_every_steps=1)
    return tiny_plan.rows(folder)[0]


@pytest.mark.parametrize("name", ASKED)
def test_the_loss_that_is_asked_for_is_trained_and_validated(
    folder, weights, plain_row, name, monkeypatch
):
    curves, curves_of = [], ContrastiveModule.curves
    monkeypatch.setattr(
        ContrastiveModule, "curves", lambda self: curves.append(curves_of(self)) or curves[-1]
    )
    loss, wrong_images = ASKED[name], name == "wrong images"
    tiny_plan.train(
        folder, weights, steps=1, val_every_steps=1, loss=loss, wrong_images=wrong_images
    )
    row = tiny_plan.rows(folder)[0]
    expected, term = first_loss(HFClip(str(weights)).load(), loss, wrong_images=wrong_images)
    assert float(row["train/loss"]) == pytest.approx(expected.item(), abs=1e-5)
    for column in ("train/loss", "val/loss"):
        assert abs(float(row[column]) - float(plain_row[column])) > 1e-4
    assert set(curves[0]) - {"logit_scale"} == ({"set_invariance"} if term else set())
    assert curves[0].get("set_invariance", 0) == pytest.approx(term.item(), abs=1e-5)


def test_terms_of_wrong_captions_are_trained_and_their_thresholds_follow(
    folder, weights, monkeypatch
):
    curves, curves_of = [], ContrastiveModule.curves
    monkeypatch.setattr(
        ContrastiveModule, "curves", lambda self: curves.append(curves_of(self)) or curves[-1]
    )
    loss = LossSettings(negative_captions="used", intra_modal=0.5, ranking=2.0, ranking_limit=0.4)
    tiny_plan.train(folder, weights, steps=2, val_every_steps=1, loss=loss)
    rows = tiny_plan.rows(folder)
    encoder = HFClip(str(weights)).load()
    data = tiny_plan.batch(0, 16)
    features = encoder.features(data["pixels"], data["texts"])
    wrong = encoder.encode_text(encoder.tokenize(data["negatives"]))
    of, scale = (*features, wrong), encoder.logit_scale()
    rank, gaps = ranking_loss(*of, data["negative_owners"], torch.zeros(PLACES), scale)
    expected = encoder.contrastive(features, None, Negatives(wrong)) + 2.0 * rank
    expected = expected + 0.5 * intra_modal_loss(*of, scale)
    assert float(rows[0]["train/loss"]) == pytest.approx(expected.item(), abs=1e-5)
    bounded = gaps.clamp(0, 0.4).max().item()
    # Validation after the step leaves it alone.
    assert curves[0]["ranking_threshold"] == pytest.approx(bounded, abs=1e-5)


@pytest.mark.parametrize(
    "loss",
    [LossSettings(), LossSettings(negative_captions="ignored"), LossSettings(invariance="kl")],
)
def test_a_loss_of_no_weight_is_the_plain_one(folder, weights, plain_row, loss):
    tiny_plan.train(folder, weights, steps=1, val_every_steps=1, loss=loss)
    row = tiny_plan.rows(folder)[0]
    for column in ("train/loss", "val/loss"):
        assert row[column] == plain_row[column]


def test_a_model_without_a_place_for_negatives_is_refused(tmp_path):
    from cfaug.models.specs import BridgeTower

    weights = tiny.save_bridgetower(tmp_path / "weights")
    with pytest.raises(
        UserError, match=r"loss\.negative_captions=used: .* does not support captions"
    ):
        tiny_plan.train(
            tmp_path / "run" / "arm" / "seed=1", weights, steps=1, spec=BridgeTower,
            loss=LossSettings(negative_captions="used"),
        )  # fmt: skip


# Large batches in small pieces: the gradient is the whole batch's; accumulation is the mean.


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
    actual = gradients(encoder)
    assert again.item() == pytest.approx(loss.item(), abs=1e-6)
    assert actual.keys() == wanted.keys()
    whole, apart = (torch.cat([g[n].flatten() for n in wanted]) for g in (wanted, actual))
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


class LooksForGradients(Callback):
    kept = None

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        LooksForGradients.kept = [n for n, p in module.named_parameters() if p.grad is not None]


@pytest.mark.parametrize("changes", [{}, {"accumulate_grad_batches": 2}, {"micro_batch_size": 3}])
def test_no_gradient_takes_memory_in_the_next_forward_pass(tmp_path, weights, changes):
    trained(tmp_path, "one", weights, callbacks={"looks": LooksForGradients}, **changes)
    assert LooksForGradients.kept == []


def difference(first, second):
    return max((first[k].double() - second[k].double()).abs().max().item() for k in first)


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss",
    [LossSettings("masked", 3.0, set_invariance=2.0), LossSettings(negative_captions="used")],
)
def test_small_pieces_train_what_whole_batches_train(tmp_path, weights, loss):
    """Also with images that have no text."""
    given = {"loss": loss, "wrong_images": loss.negative_captions is not None}
    whole, best, curve = trained(tmp_path, "whole", weights, **given)
    pieces, best_too, curve_too = trained(tmp_path, "pieces", weights, micro_batch_size=3, **given)
    assert difference(whole, pieces) < 1e-6
    assert best_too.val_loss == pytest.approx(best.val_loss, abs=1e-5)
    for first, second in zip(curve, curve_too, strict=True):
        assert float(first["train/loss"]) == pytest.approx(float(second["train/loss"]), abs=1e-5)


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
    encoder, _, _ = tiny_plan.train(
        folder, weights, sizes=(16, 7, 1), steps=6, optim=GENTLE, micro_batch_size=3,
        accumulate_grad_batches=2, **settings,
    )  # fmt: skip
    torch.save(encoder.state_dict(), folder / "end.pt")


@pytest.mark.slow
def test_two_processes_train_what_one_trains(tmp_path):
    """FLAVA has parameters that no gradient reaches: they must not decay."""
    weights = tiny.save_flava(tmp_path / "weights")
    alone, both = (tmp_path / name / "arm" / "seed=1" for name in ("one", "two"))
    train_and_save(alone, weights)
    torchrun(train_and_save, both, weights)
    first, second = (torch.load(f / "end.pt", weights_only=True) for f in (alone, both))
    assert difference(first, second) < 1e-5
    assert difference(first, HFClip(str(weights)).load().state_dict()) > 1e-3


def test_a_batch_norm_is_refused_unless_it_is_held(weights):
    norm = torch.nn.BatchNorm2d(3)
    with pytest.raises(UserError, match=r"model\.1 normalises by it: use .*accumulate"):
        refuse_batch_norm(SimpleNamespace(named_modules=lambda: [("model.1", norm)]))
    refuse_batch_norm(SimpleNamespace(named_modules=lambda: [("model.1", norm.eval())]))
    refuse_batch_norm(HFClip(str(weights)).load().train())


def test_a_loss_that_no_trained_weight_changes_is_refused(tmp_path):
    encoder = HFClip(str(tiny.save_flava(tmp_path / "flava"))).load()
    Tuning(freeze=[".*"], train=["multimodal_model"]).apply(encoder, seed=0)
    features = encoder.features(tiny.pixels(), tiny.CAPTIONS)
    module = SimpleNamespace(global_step=0, fault=None)
    with pytest.raises(UserError, match="depends on none of the weights that are trained"):
        ContrastiveModule._finite(module, encoder.contrastive(features))
