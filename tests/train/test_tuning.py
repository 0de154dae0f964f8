from __future__ import annotations

import re

import pytest
import torch
import yaml

from cfaug.core.errors import UserError
from cfaug.models.lora import merge
from cfaug.models.specs import HFClip
from cfaug.planning.build import build
from cfaug.train.settings import OptimSettings
from cfaug.train.tuning import Lora, Tuning, matching, recompute_activations, trainable
from tests.files_of_settings import settings_file
from tests.models import tiny
from tests.train import tiny_plan

TARGETS = r"\.(q_proj|v_proj|query|value|c_fc|c_proj)$"
LORA = Tuning(lora=Lora([TARGETS], r=2, alpha=8, dropout=0.1))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    shelf = tmp_path_factory.mktemp("weights")
    return tiny.save_all(shelf, "clip", "dual", "open_clip", "bridgetower", "flava")


def load(folders, kind):
    return tiny.name_encoder(folders, kind).load()


def preset(name):
    settings = yaml.safe_load(settings_file(f"tuning/{name}").read_text())
    return build({key: value for key, value in settings.items() if key != "defaults"})


def step(encoder, lr=0.1):
    """One step of plain gradient descent on one batch."""
    encoder.train()
    data = tiny_plan.batch(0, 8)
    images = encoder.encode_image(data["pixels"])
    texts = encoder.encode_text(encoder.tokenize(data["texts"]))
    scores = encoder.logit_scale() * images @ texts.T
    torch.nn.functional.cross_entropy(scores, torch.arange(8)).backward()
    with torch.no_grad():
        for parameter in encoder.parameters():
            if parameter.grad is not None:
                parameter -= lr * parameter.grad


def features(encoder):
    encoder.eval()
    data = tiny_plan.batch(5, 6)
    with torch.no_grad():
        return (
            encoder.encode_image(data["pixels"]),
            encoder.encode_text(encoder.tokenize(data["texts"])),
        )


@pytest.mark.parametrize("kind", ["clip", "dual", "open_clip", "bridgetower", "flava"])
@pytest.mark.parametrize(("name", "still"), [("freeze_vision", 0), ("freeze_text", 1), ("lit", 0)])
def test_a_frozen_tower_gives_the_features_it_gave(folders, kind, name, still):
    encoder = load(folders, kind)
    before = features(encoder)
    preset(name).apply(encoder, seed=0)
    step(encoder)
    after = features(encoder)
    assert torch.equal(before[still], after[still])
    assert not torch.allclose(before[1 - still], after[1 - still])


@pytest.mark.parametrize(
    ("kind", "heads"),
    [
        ("clip", {"visual_projection.weight", "text_projection.weight", "logit_scale"}),
        ("dual", {"visual_projection.weight", "text_projection.weight", "logit_scale"}),
        ("open_clip", {"visual.proj", "text_projection", "logit_scale"}),
    ],
)
def test_heads_only_trains_the_projections_and_the_scale(folders, kind, heads):
    encoder = load(folders, kind)
    before = {k: v.clone() for k, v in encoder.model.state_dict().items()}
    preset("heads_only").apply(encoder, seed=0)
    step(encoder)
    after = encoder.model.state_dict()
    assert {k for k in before if not torch.equal(before[k], after[k])} == heads
    assert trainable(encoder) == (
        sum(before[name].numel() for name in heads),
        sum(p.numel() for p in encoder.parameters()),
    )


@pytest.mark.parametrize("kind", ["clip", "dual", "open_clip", "bridgetower", "flava"])
def test_an_adapter_is_its_formula_and_merging_changes_no_feature(folders, kind):
    torch.manual_seed(0)  # of dropout
    encoder = load(folders, kind)
    plain = {k: v.clone() for k, v in encoder.model.state_dict().items()}
    initial = features(encoder)
    LORA.apply(encoder, seed=3)
    assert all(torch.equal(a, b) for a, b in zip(initial, features(encoder), strict=True))
    trained = [n for n, p in encoder.model.named_parameters() if p.requires_grad]
    assert trained
    assert all(".lora_A." in name or ".lora_B." in name for name in trained)
    step(encoder, lr=5)
    step(encoder, lr=5)
    adapters = {k: v.clone() for k, v in encoder.model.state_dict().items() if "lora" in k}
    adapted = features(encoder)
    merge(encoder.model)
    merged = encoder.model.state_dict()
    assert merged.keys() == plain.keys()
    for name, value in plain.items():
        stem = name.removesuffix(".weight")
        b = adapters.get(f"{stem}.lora_B.default.weight")
        if b is None:
            assert torch.equal(merged[name], value), name
        else:
            expected = value + 8 / 2 * b @ adapters[f"{stem}.lora_A.default.weight"]
            torch.testing.assert_close(merged[name], expected)
    for there, here in zip(adapted, features(encoder), strict=True):
        torch.testing.assert_close(here, there, atol=1e-5, rtol=1e-5)
    assert any(not torch.allclose(a, b) for a, b in zip(initial, adapted, strict=True))


def test_an_adapter_of_a_fused_attention_learns_and_is_merged(folders, tmp_path):
    """open_clip's queries, keys and values are one weight, which no linear layer holds."""
    import open_clip

    encoder = load(folders, "open_clip")
    plain = {k: v.clone() for k, v in encoder.model.state_dict().items()}
    Tuning(lora=Lora([r"\.in_proj_weight$"], r=2, alpha=8)).apply(encoder, seed=3)
    initial, losses = features(encoder), []
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-2)
    data = tiny_plan.batch(0, 8)
    for _ in range(6):
        loss = encoder.train().contrastive(encoder.features(data["pixels"], data["texts"]))
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < losses[0], losses
    drawn = {k: v.clone() for k, v in encoder.named_parameters() if "lora" in k}
    adapted = features(encoder)
    merge(encoder.model)
    for name, value in plain.items():
        stem, _, last = f"model.{name}".rpartition(".")
        if last == "in_proj_weight":
            a, b = (drawn[f"{stem}.lora_{side}.default.weight"] for side in "AB")
            value = value + 8 / 2 * b @ a
        torch.testing.assert_close(encoder.model.state_dict()[name], value)
    for there, here, before in zip(adapted, features(encoder), initial, strict=True):
        torch.testing.assert_close(here, there, atol=1e-5, rtol=1e-5)
        assert not torch.allclose(here, before)
    encoder.save(tmp_path / "saved")
    model, *_ = open_clip.create_model_and_transforms(f"local-dir:{tmp_path / 'saved'}")
    data = tiny_plan.batch(5, 6)
    tokens = encoder.tokenize(data["texts"])["input_ids"]
    torch.testing.assert_close(model.eval().encode_text(tokens), features(encoder)[1])


def test_adapters_are_drawn_from_the_seed_alone(folders):
    drawn = []
    for seed, noise in ((3, 1), (3, 2), (4, 1)):
        encoder = load(folders, "clip")
        torch.manual_seed(noise)
        LORA.apply(encoder, seed=seed)
        assert torch.initial_seed() == noise
        drawn.append(next(p for n, p in encoder.named_parameters() if "lora_A" in n))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_statistics_of_frozen_norms_stay(folders):
    encoder = load(folders, "clip")
    norm = torch.nn.BatchNorm1d(4)
    encoder.model.vision_model.extra = norm
    Tuning(freeze=["^vision_model"]).apply(encoder, seed=0)
    encoder.train()
    assert not norm.training
    assert encoder.model.text_model.training
    norm(torch.randn(5, 4))
    assert norm.num_batches_tracked == 0


def test_a_tower_of_lit_is_in_evaluation_mode(tmp_path):
    """No dropout, no dropped patches: its features are those of evaluation."""
    tower = {"image_size": tiny.SIZE, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8}
    tiny.save_open_clip(tmp_path, vision_cfg={**tower, "patch_dropout": 0.5})
    shown = tiny_plan.batch(0, 8)["pixels"]
    for name, alike in (("freeze_vision", False), ("lit", True)):
        encoder = tiny.name_encoder({"open_clip": tmp_path}, "open_clip").load()
        with torch.no_grad():
            before = encoder.encode_image(shown)
            preset(name).apply(encoder, seed=0)
            assert torch.equal(encoder.train().encode_image(shown), before) == alike
        assert encoder.model.transformer.training


@pytest.mark.parametrize(
    ("tuning", "says"),
    [
        (Tuning(freeze=["^vison_model"]), "'^vison_model' matches none .* near: vision_model"),
        (Tuning(freeze=["x"], train=["^logit_scle$"]), "matches none"),
        (Tuning(freeze=[""]), "leaves nothing to train"),
        (Tuning(lora=Lora(["layer_norm1"])), "layer_norm1, a LayerNorm: only linear"),
        (Tuning(lora=Lora(["qproj"])), "'qproj' matches none"),
    ],
)
def test_a_pattern_that_does_not_fit_is_refused(folders, tuning, says):
    with pytest.raises(UserError, match=re.compile(says.replace("^", r"\^"))):
        tuning.apply(load(folders, "clip"), seed=0)


def test_a_fused_attention_is_not_adapted_in_vain(folders):
    with pytest.raises(UserError, match=r"MultiheadAttention .* name in_proj_weight"):
        Tuning(lora=Lora([r"attn\.out_proj$"])).apply(load(folders, "open_clip"), seed=0)
    with pytest.raises(UserError, match=r"dropout=0\.1 is not possible with .*in_proj_weight"):
        Tuning(lora=Lora(["in_proj_weight"], dropout=0.1)).apply(load(folders, "open_clip"), seed=0)


def test_a_scale_that_the_model_keeps_is_not_trained_by_any_tuning(folders):
    encoder = tiny.name_encoder(folders, "clip", train_logit_scale=False).load()
    preset("heads_only").apply(encoder, seed=0)
    assert not encoder.model.logit_scale.requires_grad
    assert encoder.model.text_projection.weight.requires_grad


@pytest.mark.parametrize(
    "make",
    [
        lambda: Tuning(freeze=["("]),
        lambda: Lora([]),
        lambda: Lora(["q"], r=0),
        lambda: Lora(["q"], r=1.5),
        lambda: Lora(["q"], dropout=1.0),
    ],
)
def test_settings_that_cannot_be_are_refused(make):
    with pytest.raises(UserError, match=r"tuning\."):
        make()


RATES = {
    "clip": {
        "text_model.embeddings": 2, "text_model.encoder.layers.0": 1, "text_model.final": 0,
        "vision_model.embeddings": 2, "vision_model.pre_layrnorm": 2,
        "vision_model.encoder.layers.0": 1, "vision_model.post_layernorm": 0,
        "visual_projection": 0, "text_projection": 0, "logit_scale": 0,
    },
    "dual": {
        "vision_model.embeddings": 3, "vision_model.encoder.stages.0": 2,
        "vision_model.encoder.stages.1": 1, "vision_model.layernorm": 0,
        "text_model.embeddings": 2, "text_model.encoder.layer.0": 1, "text_model.pooler": 0,
        "visual_projection": 0, "text_projection": 0, "logit_scale": 0,
    },
    "open_clip": {
        "positional_embedding": 2, "token_embedding": 2, "transformer.resblocks.0": 1,
        "ln_final": 0, "text_projection": 0, "logit_scale": 0, "visual.class_embedding": 2,
        "visual.positional_embedding": 2, "visual.conv1": 2, "visual.ln_pre": 2,
        "visual.transformer.resblocks.0": 1, "visual.ln_post": 0, "visual.proj": 0,
    },
}  # fmt: skip
"""Layers above a parameter, written down by hand."""


@pytest.mark.parametrize("kind", RATES)
def test_layers_learn_at_the_rate_of_their_depth(folders, kind):
    from cfaug.train.module import parameter_groups

    encoder = load(folders, kind)
    groups = parameter_groups(encoder.model, 0.1, lr=2.0, layer_decay=0.5)
    group_of = {id(p): group for group in groups for p in group["params"]}
    assert sum(len(group["params"]) for group in groups) == len(group_of)
    for name, parameter in encoder.model.named_parameters():
        [above] = [n for stem, n in RATES[kind].items() if name.startswith(stem)]
        assert group_of[id(parameter)]["lr"] == 2.0 * 0.5**above, name
        assert group_of[id(parameter)]["weight_decay"] == (0.1 if parameter.ndim > 1 else 0.0)


def test_the_schedule_is_multiplied_with_every_rate(tmp_path, folders):
    """At a decay that leaves embeddings almost nothing, they almost stay, and the head moves."""
    before = HFClip(str(folders["clip"])).load().model.state_dict()
    optim = OptimSettings(lr=1e-2, weight_decay=0.0, layer_decay=1e-3)
    encoder = tiny_plan.train(tmp_path / "a" / "b" / "c", folders["clip"], steps=3, optim=optim)[0]
    after = encoder.model.state_dict()

    def moved(name):
        return (after[name] - before[name]).abs().max().item()

    assert 1e-2 < moved("text_projection.weight") < 3e-2
    assert 0 < moved("text_model.encoder.layers.0.mlp.fc1.weight") < 3e-5
    assert 0 < moved("text_model.embeddings.position_embedding.weight") < 1e-7


def test_siglip_and_blip_have_heads_and_a_fused_layer(tmp_path):
    siglip = HFClip(str(tiny.save_siglip(tmp_path / "siglip"))).load()
    preset("heads_only").apply(siglip, seed=0)
    trained = {n.rpartition("head.")[0] for n, p in siglip.model.named_parameters()
               if p.requires_grad}  # fmt: skip
    assert trained == {"text_model.", "vision_model.", ""}  # the last: scale and bias
    assert siglip.model.logit_bias.requires_grad

    blip = HFClip(str(tiny.save_blip(tmp_path / "blip", kind="BlipModel"))).load()
    preset("lora").apply(blip, seed=0)
    recompute_activations(blip)
    step(blip)
    learning = {n.split(".")[0] for n, p in blip.model.named_parameters() if p.grad is not None}
    assert learning == {"text_model", "vision_model"}


@pytest.mark.parametrize("names", [["classifier.weight"], ["fc.bias"], ["heads.head.bias"],
                                   ["visual.attnpool.c_proj.bias"]])  # fmt: skip
def test_heads_only_trains_heads_by_their_names(names):
    pattern = preset("heads_only").train
    assert matching("tuning.train", pattern, [*names, "layer1.0.weight"]) == set(names)
