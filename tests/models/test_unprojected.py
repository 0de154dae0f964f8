"""Image features before the projection, beside what each library gives of its own."""

from __future__ import annotations

import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.protocols import DualEncoder, Projects
from cfaug.models.specs import BridgeTower, HFClip, OpenClip
from tests.models import tiny
from tests.models.test_open_clip import COCA

TIMM = {"image_size": tiny.SIZE, "timm_pool": "avg", "timm_model_pretrained": False}
TOWERS = {
    "linear": {**TIMM, "timm_model_name": "test_convnext2", "timm_proj": "linear"},
    "mlp": {**TIMM, "timm_model_name": "test_convnext2", "timm_proj": "mlp"},
    "classifier": {**TIMM, "timm_model_name": "test_convnext2", "timm_proj": ""},
}
RESNET = {"layers": [1, 1, 1, 1], "width": 8, "image_size": tiny.SIZE, "patch_size": None}


def both(encoder):
    """Return pixels as the model reads them, the features, and the embeddings, without noise."""
    encoder.eval()
    pixels = tiny.pixels()
    with torch.inference_mode():
        return (encoder.normalize(pixels), encoder.encode_unprojected(pixels),
                encoder.encode_image(pixels))  # fmt: skip


@pytest.mark.parametrize("save", [tiny.save_clip, tiny.save_dual_encoder])
def test_of_transformers_they_are_the_tower_s_pooled_output(tmp_path, save):
    encoder = HFClip(str(save(tmp_path / "model"))).load(DualEncoder)
    assert isinstance(encoder, Projects)
    pixels, features, embeddings = both(encoder)
    with torch.inference_mode():
        pooled = encoder.model.vision_model(pixel_values=pixels).pooler_output
        projected = encoder.model.visual_projection(features)
    assert torch.equal(features, pooled)
    assert features.shape != embeddings.shape
    assert torch.allclose(projected, embeddings, atol=1e-6)


def test_of_flava_they_are_the_first_token(tmp_path):
    encoder = HFClip(str(tiny.save_flava(tmp_path / "model"))).load(DualEncoder)
    pixels, features, embeddings = both(encoder)
    with torch.inference_mode():
        tokens = encoder.model.image_model(pixel_values=pixels).last_hidden_state
        projected = encoder.model.image_projection(features)
    assert torch.allclose(features, tokens[:, 0], atol=1e-6)
    assert torch.allclose(projected, embeddings, atol=1e-6)


def test_of_open_clip_s_vit_they_are_what_its_matrix_projects(tmp_path):
    encoder = OpenClip(str(tiny.save_open_clip(tmp_path / "model"))).load(DualEncoder)
    weights = {name: value.clone() for name, value in encoder.state_dict().items()}
    _, features, embeddings = both(encoder)
    assert features.shape == (4, 16)
    with torch.inference_mode():
        assert torch.allclose(features @ encoder.model.visual.proj, embeddings, atol=1e-6)
    # The matrix is back in its place, also where the tower refuses its input.
    with pytest.raises(RuntimeError):
        encoder.encode_unprojected(torch.zeros(1, 5, 3, 3, dtype=torch.uint8))
    assert list(encoder.state_dict()) == list(weights)
    assert all(torch.equal(value, weights[name]) for name, value in encoder.state_dict().items())


@pytest.mark.parametrize("name", TOWERS)
def test_of_a_timm_tower_they_are_its_trunk_s(tmp_path, name):
    folder = tiny.save_open_clip(tmp_path / "model", vision_cfg=TOWERS[name])
    encoder = OpenClip(str(folder)).load(DualEncoder)
    pixels, features, embeddings = both(encoder)
    tower = encoder.model.visual
    with torch.inference_mode():
        if name == "classifier":
            hidden = tower.trunk.forward_features(pixels)
            trunk = tower.trunk.forward_head(hidden, pre_logits=True)
            projected = tower.trunk.get_classifier()(features)
        else:
            trunk, projected = tower.trunk(pixels), tower.head(features)
    assert torch.allclose(features, trunk, atol=1e-6)
    assert torch.allclose(projected, embeddings, atol=1e-6)


@pytest.mark.parametrize("name", ["siglip", "bridgetower", "resnet", "no projection"])
def test_a_model_without_a_projection_is_refused(tmp_path, name):
    folder = tmp_path / "model"
    if name == "siglip":
        spec = HFClip(str(tiny.save_siglip(folder)))
    elif name == "bridgetower":
        spec = BridgeTower(str(tiny.save_bridgetower(folder)))
    else:
        vision = RESNET if name == "resnet" else {**TOWERS["linear"], "timm_proj": "none"}
        changes = {} if name == "resnet" else {"embed_dim": 64}
        tiny.save_open_clip(folder, vision_cfg=vision, **changes)
        spec = OpenClip(str(folder))
    encoder = spec.load(DualEncoder)
    with pytest.raises(UserError, match=r"has no layer that projects .*features=encode_image"):
        encoder.encode_unprojected(tiny.pixels())


def test_of_coca_they_are_its_pooled_query(tmp_path):
    encoder = OpenClip(str(tiny.save_open_clip(tmp_path / "model", **COCA)))
    _, features, embeddings = both(encoder.load(DualEncoder))
    assert features.shape == (4, 8)  # the width of its pooling is that of the embedding
    assert not torch.allclose(features, embeddings)
