"""Logits of test sets: kept on disk, computed once, and prompted from a dual encoder."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.protocols import Classifier
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from cfaug.evaluation.cached_model import CachedClassifier, CachedEncoder
from cfaug.evaluation.classification import Classes
from cfaug.evaluation.inference import Pixels, ZeroShotClassifier, classify_images
from cfaug.models.task_specs import ImageClassification
from tests.evaluation.joined import joined_sets
from tests.models import tiny


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return ImageClassification(str(tiny.save_classifier(tmp_path_factory.mktemp("w") / "c"))).load()


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    root = tmp_path_factory.mktemp("sets")
    write_shards(joined_sets(), root / "sets")
    return open_index(root / "sets", root / "index")


def refuse():
    raise AssertionError("loaded")


def test_kept_logits_are_the_computed_ones_and_need_no_model(classifier, index, tmp_path):
    pixels = Pixels(index, np.arange(len(index)))
    plain = classify_images(classifier, pixels, 4)
    keeping = CachedClassifier(lambda: classifier, "w", "settings", tmp_path, 2**30)
    np.testing.assert_allclose(classify_images(keeping, pixels, 4), plain, atol=1e-5)
    kept = classify_images(keeping, pixels, 4)
    again = CachedClassifier(refuse, "w", "settings", tmp_path, 2**30)
    assert again.classes == classifier.classes
    assert np.array_equal(classify_images(again, pixels, 7), kept)
    few = Pixels(index, np.arange(3))
    assert np.array_equal(classify_images(again, few, 1), kept[:3])
    for changed in (("other", "settings"), ("w", "others")):
        with pytest.raises(AssertionError, match="loaded"):
            CachedClassifier(refuse, *changed, tmp_path, 2**30)


def test_logits_that_are_no_numbers_are_refused_before_they_are_kept(classifier, index, tmp_path):
    class Broken(torch.nn.Module):
        transform, classes = classifier.transform, classifier.classes

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([1.0]))

        def classify(self, pixels):
            return torch.full((len(pixels), 5), float("nan"))

    keeping = CachedClassifier(Broken, "w", "settings", tmp_path, 2**30)
    with pytest.raises(UserError, match="not numbers"):
        classify_images(keeping, Pixels(index, np.arange(3)), 2)
    assert not list(tmp_path.rglob("*.npy"))


def test_a_dual_encoder_is_prompted_with_class_names(encoder, index, tmp_path):
    """Radford et al. (2021): cosines with the mean of each class's prompts, times the scale."""
    asked = Classes(["ball", "cube"], ["ball", "cube"], ["a photo of a {c}", "a red {c}"])
    model = ZeroShotClassifier(encoder, asked)
    assert isinstance(model, Classifier)
    assert model.classes == ("ball", "cube")
    rows = np.arange(4)
    expected = []
    with torch.inference_mode():
        for row in rows:
            pixels = encoder.transform(decode_image(index.read_image(row), "it"))[None].copy()
            image = encoder.encode_image(torch.from_numpy(pixels))[0].double()
            logits = []
            for name in asked.names:
                prompts = [one.replace("{c}", name) for one in asked.templates]
                texts = encoder.encode_text(encoder.tokenize(prompts)).double()
                mean = (texts / texts.norm(dim=1, keepdim=True)).mean(dim=0)
                cosine = float(image @ mean / image.norm() / mean.norm())
                logits.append(cosine * float(encoder.logit_scale()))
            expected.append(logits)
            np.testing.assert_allclose(
                model.classify(torch.from_numpy(pixels)).numpy()[0], logits, atol=1e-3
            )
    pixels = Pixels(index, rows)
    np.testing.assert_allclose(classify_images(model, pixels, 3), expected, atol=1e-3)
    cached = CachedEncoder(lambda: encoder, "w", "settings", tmp_path, 2**30)
    kept = classify_images(ZeroShotClassifier(cached, asked), pixels, 3)
    np.testing.assert_allclose(kept, expected, atol=1e-3)
    assert list(tmp_path.rglob("image-*.npy"))
