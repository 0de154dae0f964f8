"""FID's Inception: what torch-fidelity's gives; its weights are checked before it reads them."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.protocols import FeatureExtractor
from cfaug.models.classifier_specs import InceptionFeatures
from tests import skips

HERE = find_spec("torch_fidelity") is not None


def test_without_torch_fidelity_it_is_said_what_to_do(monkeypatch):
    for name in ("torch_fidelity", "torch_fidelity.feature_extractor_inceptionv3"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=r"pip install 'cfaug\[fid\]', or .* model=clip_vit_b32"):
        InceptionFeatures("weights.pth").load()
    with pytest.raises(UserError, match="there is no such file"):
        InceptionFeatures("weights.pth").identity()
    with pytest.raises(UserError, match="cannot be fine-tuned"):
        InceptionFeatures("weights.pth").check_trainable()


@pytest.mark.slow
@pytest.mark.skipif(not HERE, reason=skips.reason("fid"))
def test_features_are_those_of_torch_fidelity(tmp_path, monkeypatch):
    from torch_fidelity import feature_extractor_inceptionv3 as theirs

    kind = theirs.FeatureExtractorInceptionV3
    with monkeypatch.context() as patch, torch.random.fork_rng():
        torch.manual_seed(0)
        patch.setattr(theirs, "load_state_dict_from_url", lambda *_, **__: {})
        patch.setattr(kind, "load_state_dict", lambda *_: None)
        network = kind("inception-v3-compat", ["2048"])
    torch.save(network.state_dict(), tmp_path / "weights.pth")
    model = InceptionFeatures(str(tmp_path / "weights.pth")).load()
    assert isinstance(model, FeatureExtractor)
    pixels = torch.randint(0, 256, (2, 3, 299, 299), dtype=torch.uint8)
    with torch.no_grad():
        (expected,) = network(pixels)
        torch.testing.assert_close(model.extract(pixels), expected)
    assert expected.shape == (2, 2048)
    torch.save({"fc": print}, tmp_path / "pickle.pth")
    with pytest.raises(UserError, match="reading a pickle can run code"):
        InceptionFeatures(str(tmp_path / "pickle.pth")).load()
    torch.save({"fc": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(UserError, match="not hold the weights of FID's Inception"):
        InceptionFeatures(str(tmp_path / "other.pth")).load()
