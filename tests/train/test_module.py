from __future__ import annotations

import math
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.models.losses import Negatives
from cfaug.models.specs import HFClip
from cfaug.train.settings import LossSettings, OptimSettings
from tests.models import tiny
from tests.train import tiny_plan


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "runs" / "arm" / "seed=1"


def test_biases_norms_and_the_scale_do_not_decay(weights):
    from cfaug.train.module import parameter_groups

    model = HFClip(str(weights)).load()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decaying, rest = parameter_groups(model, 0.1)
    assert decaying["weight_decay"] == 0.1
    assert rest["weight_decay"] == 0.0
    assert len(decaying["params"]) + len(rest["params"]) == len(names)
    decayed = {names[id(parameter)] for parameter in decaying["params"]}
    assert "model.visual_projection.weight" in decayed
    assert not {name for name in decayed if "bias" in name or "norm" in name.lower()}
    assert "model.logit_scale" not in decayed


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
        optim = OptimSettings(lr=1e-9, weight_decay=1e5, warmup_steps=0, decay_rule=rule)
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
    factors = [OptimSettings(warmup_steps=5).factor(step, 12) for step in range(12)]
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
    expected = MeanMetric(nan_strategy="error").set_dtype(torch.float64)
    for batch in batches:
        expected.update(batch["loss"], float(batch["global_size"]))
    found = TrainingModule.validation_loss(module, batches)
    assert found == expected.compute().item()
    with pytest.raises(UserError, match="step 7: the validation loss is nan"):
        TrainingModule.validation_loss(module, [*batches, {"global_size": 1, "loss": math.nan}])


def test_validation_comes_after_every_epoch_by_default(folder, weights):
    tiny_plan.train(folder, weights, steps=15, val_every_steps=None, log_every_steps=100)
    assert [int(row["step"]) for row in tiny_plan.rows(folder)] == [7, 14, 15]


def test_nothing_is_kept_when_the_last_is_asked_for(folder, weights):
    assert tiny_plan.train(folder, weights, steps=5, checkpoint="last")[2] is None


@pytest.mark.parametrize("settings", [{}, {"gradient_clip": None}])
def test_a_loss_that_is_not_a_number_stops_the_run(folder, weights, settings):
    optim = OptimSettings(lr=1e30, schedule="constant")
    with pytest.raises(UserError, match=r"step \d+: the .* (nan|inf)") as caught:
        tiny_plan.train(folder, weights, optim=optim, save_every_steps=1, **settings)
    assert "optim.lr" in str(caught.value)


def test_the_gradient_is_bounded(folder, weights):
    optim = OptimSettings(lr=1.0, eps=1e6, weight_decay=0.0, schedule="constant")
    before = HFClip(str(weights)).load().state_dict()
    after = tiny_plan.train(folder, weights, steps=1, optim=optim, gradient_clip=1e-2)[0]
    # With this eps the first step of Adam is the gradient over eps.
    moved = [(after.state_dict()[k] - before[k]).flatten().double() for k in before]
    assert torch.cat(moved).norm().item() * 1e6 <= 1.1e-2


def test_bfloat16_trains_float32_weights(folder, weights):
    exact = tiny_plan.train(folder, weights, steps=3)[0].state_dict()
    mixed = tiny_plan.train(folder, weights, steps=3, precision="bf16")[0].state_dict()
    assert {value.dtype for value in mixed.values()} == {torch.float32}
    assert not tiny_plan.same_weights(exact, mixed)


def test_time_decides_when_to_save_too(folder, weights):
    tiny_plan.train(folder, weights, steps=4, save_every_minutes=1e-9)
    assert torch.load(folder / "last.ckpt", weights_only=True)["global_step"] == 3


def test_lightning_is_silent(folder, weights, capfd):
    tiny_plan.train(folder, weights, steps=3)
    out, err = capfd.readouterr()
    assert out == ""
    assert err == ""


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


def test_the_loss_that_is_asked_for_is_trained_and_validated(folder, weights):
    """The first step's loss and the first validation's are those of the weighted formula."""
    from cfaug.models.losses import log_negative_weights

    asked = LossSettings("masked", 4.0)
    rows = {}
    for name, loss in (("plain", None), ("neutral", LossSettings()), ("asked", asked)):
        run = folder.with_name(name)
        tiny_plan.train(run, weights, steps=1, val_every_steps=1, loss=loss)
        rows[name] = tiny_plan.rows(run)[0]
    assert rows["plain"]["train/loss"] == rows["neutral"]["train/loss"]
    encoder = HFClip(str(weights)).load()
    data = tiny_plan.batch(0, 16)
    logs = log_negative_weights(
        data["images"], data["sets"], mask_same_image=True, hard_negative_weight=4.0
    )
    expected = encoder.contrastive(encoder.features(data["pixels"], data["texts"]), logs).item()
    assert float(rows["asked"]["train/loss"]) == pytest.approx(expected, abs=1e-6)
    for column in ("train/loss", "val/loss"):
        assert abs(float(rows["asked"][column]) - float(rows["plain"][column])) > 1e-2


def test_negative_captions_are_trained_against_where_that_is_asked_for(folder, weights):
    losses = {}
    for asked in (None, "ignored", "used"):
        run = folder.with_name(str(asked))
        tiny_plan.train(
            run, weights, steps=1, val_every_steps=1, loss=LossSettings(negative_captions=asked)
        )
        losses[asked] = tiny_plan.rows(run)[0]
    for column in ("train/loss", "val/loss"):
        assert losses["ignored"][column] == losses[None][column]
    encoder = HFClip(str(weights)).load()
    data = tiny_plan.batch(0, 16)
    wrong = encoder.encode_text(encoder.tokenize(data["negatives"]))
    features = encoder.features(data["pixels"], data["texts"])
    expected = encoder.contrastive(features, negatives=Negatives(wrong)).item()
    assert float(losses["used"]["train/loss"]) == pytest.approx(expected, abs=1e-6)
    for column in ("train/loss", "val/loss"):
        assert float(losses["used"][column]) > float(losses["ignored"][column]) + 1e-2


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_wrong_texts_and_images_are_weighted_for_their_own_example(folder, weights, weight):
    from cfaug.models.losses import log_owner_weights

    asked = LossSettings(negative_captions="used", negative_weight=weight)
    tiny_plan.train(folder, weights, steps=1, loss=asked, wrong_images=True)
    encoder = HFClip(str(weights)).load()
    data = tiny_plan.batch(0, 16, wrong_images=True)
    wrong = Negatives(
        encoder.encode_text(encoder.tokenize(data["negatives"])),
        encoder.encode_image(data["negative_pixels"]),
        log_owner_weights(data["negative_owners"], 16, weight),
        log_owner_weights(data["negative_image_owners"], 16, weight),
    )
    features = encoder.features(data["pixels"], data["texts"])
    expected = encoder.contrastive(features, negatives=wrong).item()
    assert float(tiny_plan.rows(folder)[0]["train/loss"]) == pytest.approx(expected, abs=1e-6)


def test_images_encoded_in_pieces_train_as_the_whole(folder, weights):
    """GradCache, with images without a text: the same losses and weights, up to rounding."""
    encoders, losses = [], []
    for pieces in (None, 5):
        run = folder.with_name(f"pieces={pieces}")
        encoder, _, _ = tiny_plan.train(
            run, weights, steps=4, micro_batch_size=pieces, wrong_images=True,
            loss=LossSettings(negative_captions="used"), optim=OptimSettings(lr=1e-2, eps=1e-2),
        )  # fmt: skip
        encoders.append(encoder.state_dict())
        losses.append([float(row["train/loss"]) for row in tiny_plan.rows(run)])
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    for name, tensor in encoders[0].items():
        torch.testing.assert_close(tensor, encoders[1][name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["variance", "kl"])
def test_the_term_of_set_invariance_is_added_where_that_is_asked_for(
    folder, weights, kind, monkeypatch
):
    from cfaug.models.losses import set_invariance
    from cfaug.train.pair_modules import ContrastiveModule

    curves, curves_of = [], ContrastiveModule.curves
    monkeypatch.setattr(
        ContrastiveModule, "curves", lambda self: curves.append(curves_of(self)) or curves[-1]
    )

    asked = LossSettings(set_invariance=2.5, invariance=kind)
    rows = {}
    for name, loss in (("plain", None), ("off", LossSettings(invariance=kind)), ("on", asked)):
        run = folder.with_name(name)
        tiny_plan.train(run, weights, steps=1, val_every_steps=1, loss=loss)
        rows[name] = tiny_plan.rows(run)[0]
    assert rows["plain"]["train/loss"] == rows["off"]["train/loss"]
    encoder = HFClip(str(weights)).load()
    data = tiny_plan.batch(0, 16)
    images, texts = encoder.features(data["pixels"], data["texts"])
    prompts = encoder.encode_text(encoder.tokenize(data["neutral_texts"]))
    shown, sets, scale = data["neutrals"], data["sets"], encoder.logit_scale().detach()
    term = set_invariance(images, prompts, shown, sets, scale, kind)
    expected = encoder.contrastive((images, texts)) + 2.5 * term
    assert term.item() > 1e-3
    assert float(rows["on"]["train/loss"]) == pytest.approx(expected.item(), abs=1e-5)
    assert curves[-1]["set_invariance"] == pytest.approx(term.item(), abs=1e-5)
    assert set(curves[0]) == set(curves[1]) == {"logit_scale"}
    assert float(rows["on"]["val/loss"]) > float(rows["off"]["val/loss"])


def test_training_on_the_term_lowers_it(folder, weights):
    found = {}
    for weight in (0.0, 30.0):
        run = folder.with_name(str(weight))
        encoder, _, _ = tiny_plan.train(
            run, weights, steps=20, loss=LossSettings(set_invariance=weight)
        )
        found[weight] = _invariance(encoder)
    assert found[30.0] < found[0.0] / 2


def _invariance(encoder):
    from cfaug.models.losses import set_invariance

    data = tiny_plan.batch(0, 16)
    with torch.no_grad():
        prompts = encoder.encode_text(encoder.tokenize(data["neutral_texts"]))
        images = encoder.encode_image(data["pixels"])
        shown, sets = data["neutrals"], data["sets"]
        return set_invariance(images, prompts, shown, sets, torch.tensor(10.0), "variance").item()


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


@pytest.mark.parametrize(
    "given",
    [
        {"same_image": "mask"},
        {"hard_negative_weight": 0},
        {"negative_weight": 0},
        {"negative_captions": "no"},
        {"set_invariance": -1},
        {"invariance": "mean"},
    ],
)
def test_a_loss_that_cannot_be_is_refused(given):
    with pytest.raises(UserError, match=r"loss\."):
        LossSettings(**given)
