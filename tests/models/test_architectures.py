"""One tiny model of every family that open_clip has: its numbers, its loss, its saved folder."""

from __future__ import annotations

import math

import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.models.specs import OpenClip
from tests.models import tiny

TEXT = {"context_length": 12, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1}
TIMM = {
    "image_size": tiny.SIZE, "timm_model_name": "test_vit", "timm_pool": "map", "timm_proj": "none",
}  # fmt: skip
COCA = {
    "vision_cfg": {
        "image_size": tiny.SIZE, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8,
        "attentional_pool": True, "attn_pooler_heads": 2, "output_tokens": True,
    },
    "text_cfg": {**TEXT, "embed_cls": True, "output_tokens": True},
    "multimodal_cfg": {**TEXT, "dim_head": 8, "mlp_ratio": 2, "attn_pooler_heads": 2},
    "custom_text": True,
}  # fmt: skip
RESNET = {"image_size": tiny.SIZE, "layers": [1, 1, 1, 1], "width": 8, "patch_size": None}
FAMILIES = {
    "quick_gelu": {"quick_gelu": True},
    "resnet": {"vision_cfg": RESNET},
    "timm": {"embed_dim": 64, "vision_cfg": TIMM},
    "siglip": {
        "embed_dim": 64, "vision_cfg": TIMM, "custom_text": True, "init_logit_bias": -10,
        "text_cfg": {**TEXT, "no_causal_mask": True, "proj_bias": True, "pool_type": "last"},
    },
    "coca": COCA,
}  # fmt: skip
PICTURE = {"interpolation": "bilinear", "resize_mode": "squash"}


@pytest.fixture(scope="module", params=[*FAMILIES, "hf_text"])
def folder(request, tmp_path_factory):
    shelf, family = tmp_path_factory.mktemp("family"), request.param
    changes = FAMILIES[family] if family in FAMILIES else hf_text(shelf / family / "text")
    where = tiny.save_open_clip(shelf / family, picture=PICTURE, **changes)
    if family not in FAMILIES:
        tiny.tokenizer().save_pretrained(where)  # beside the weights, as open_clip pushes it
        (where / "text" / "model.safetensors").unlink()  # the weights hold both towers
    return where


def hf_text(folder):
    """A transformers model for the text, which open_clip builds from its configuration."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=4 + len(tiny.WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(config).save_pretrained(folder)
    text = {"hf_model_name": str(folder), "hf_tokenizer_name": str(folder), "context_length": 12}
    return {"text_cfg": {**text, "hf_proj_type": "mlp", "hf_pooler_type": "mean_pooler"}}


@pytest.fixture(scope="module")
def images():
    return [tiny.image(*size) for size in ((32, 32), (70, 48), (40, 90), (30, 20))]


def same_embeddings(encoder, folder, images):
    """Hold an encoder against the model as plain open_clip loads it."""
    import open_clip

    source = f"local-dir:{folder}"
    model, _, preprocess = open_clip.create_model_and_transforms(source)
    model.eval()
    with torch.no_grad():
        expected = model.encode_image(torch.stack([preprocess(image) for image in images]))
        torch.testing.assert_close(encoder.encode_image(tiny.stack(encoder, images)), expected)
        tokens = open_clip.get_tokenizer(source)(tiny.CAPTIONS)
        found = encoder.encode_text(encoder.tokenize(tiny.CAPTIONS))
        torch.testing.assert_close(found, model.encode_text(tokens))


@pytest.mark.slow
def test_it_is_plain_open_clips_model_before_and_after_training(folder, images, tmp_path):
    encoder = OpenClip(f"local-dir:{folder}").load()
    same_embeddings(encoder, folder, images)
    encoder.train()
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    losses = []
    for _ in range(3):
        loss = encoder.contrastive(encoder.features(tiny.stack(encoder, images), tiny.CAPTIONS))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert math.inf > losses[0] > losses[-1], losses
    encoder.eval().save(tmp_path / "saved")
    same_embeddings(encoder, tmp_path / "saved", images)


def test_weights_of_another_architecture_are_told_in_a_line(tmp_path, monkeypatch):
    """torch lists every name; what is wanted is the architecture's."""
    weights = {f"layer_{i}.weight": torch.zeros(2) for i in range(99)}
    torch.save(weights, tmp_path / "epoch_1.pt")
    monkeypatch.setattr(
        "cfaug.models.open_clip._build",
        lambda *_, **__: torch.nn.Linear(2, 2).load_state_dict(weights),
    )
    with pytest.raises(UserError, match=r"does not hold the weights of ViT-B-32: Missing") as told:
        OpenClip("ViT-B-32", str(tmp_path / "epoch_1.pt")).load()
    assert len(str(told.value).removeprefix(str(tmp_path))) < 350
    assert str(told.value).endswith("as in model.architecture=RN50")
