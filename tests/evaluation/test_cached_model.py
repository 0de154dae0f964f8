"""A cached model is still its model: a benchmark that somebody wrote may ask it anything."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cfaug.core.protocols import DualEncoder, Matcher
from cfaug.evaluation.cached_model import CachedEncoder, CachedMatcher
from cfaug.evaluation.inference import embed_texts
from cfaug.models.specs import HFClip


@pytest.mark.parametrize(
    ("kind", "protocol"), [(CachedEncoder, DualEncoder), (CachedMatcher, Matcher)]
)
def test_a_cached_model_keeps_the_protocol_of_its_model(tmp_path, kind, protocol):
    model = HFClip("zoo:clip-0").load(protocol)
    for _ in range(2):  # the second knows what it is without loading
        cached = kind(lambda: model, "weights", "settings", tmp_path, 10**9)
        assert isinstance(cached, protocol)
        assert cached.transform == model.transform
        assert cached.tokenize(["a"])["input_ids"].equal(model.tokenize(["a"])["input_ids"])
        with pytest.raises(AttributeError, match="nothing_like_it"):
            _ = cached.nothing_like_it


def test_looking_for_private_names_loads_nothing(tmp_path):
    model = HFClip("zoo:clip-0").load(Matcher)
    CachedMatcher(lambda: model, "weights", "settings", tmp_path, 10**9)

    def load():
        raise AssertionError("loaded")

    cached = CachedMatcher(load, "weights", "settings", tmp_path, 10**9)
    assert not hasattr(cached, "_nothing")
    assert not hasattr(cached, "__deepcopy__")
    assert cached.kind == model.kind


def test_features_of_texts_are_kept_apart_from_their_directions(tmp_path):
    model = HFClip("zoo:clip-0").load()
    texts = ["a photo of a ball", "a red cube", "a photo of a ball"]
    first = CachedEncoder(lambda: model, "weights", "settings", tmp_path, 10**9)
    raw, unit = embed_texts(first, texts, 2, normalise=False), embed_texts(first, texts, 2)
    with torch.inference_mode():
        expected = model.encode_text(model.tokenize(texts)).numpy()
    assert raw == pytest.approx(expected, abs=1e-5)
    assert np.linalg.norm(unit, axis=1) == pytest.approx(1)
    assert unit == pytest.approx(raw / np.linalg.norm(raw, axis=1, keepdims=True), abs=1e-6)
    assert embed_texts(model, texts, 2, normalise=False) == pytest.approx(raw, abs=1e-6)

    def load():
        raise AssertionError("loaded")

    again = CachedEncoder(load, "weights", "settings", tmp_path, 10**9)
    assert (embed_texts(again, texts, 2, normalise=False) == raw).all()
    assert (embed_texts(again, texts, 2) == unit).all()
