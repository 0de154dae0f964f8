"""Embeddings kept on disk: equal to computed ones, computed once, safe to delete."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.protocols import Classifier, DualEncoder, Matcher
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from cfaug.evaluation.cached_model import (
    CachedClassifier,
    CachedEncoder,
    CachedMatcher,
    Features,
    image_keys,
    model_key,
    prune,
    recall_or_compute,
    text_keys,
)
from cfaug.evaluation.inference import (
    Pixels,
    ZeroShotClassifier,
    classify_images,
    embed_images,
    embed_texts,
)
from cfaug.evaluation.records import Classes
from cfaug.evaluation.retrieval import Retrieval
from cfaug.models.specs import HFClip
from cfaug.models.task_specs import ImageClassification
from tests.evaluation.joined import joined_sets
from tests.models import tiny

LIMIT = 2**30


@pytest.fixture
def index(opened):
    return opened["ood_pairs"]


def refuse():
    raise AssertionError("loaded")


def remembering(encoder, root, kind=CachedEncoder):
    """A cached model; of ``None`` nothing may be loaded."""
    return kind(refuse if encoder is None else lambda: encoder, "w", "settings", root, LIMIT)


@pytest.mark.parametrize(
    ("kind", "protocol"), [(CachedEncoder, DualEncoder), (CachedMatcher, Matcher)]
)
def test_a_cached_model_keeps_the_protocol_of_its_model(tmp_path, kind, protocol):
    """A benchmark that somebody wrote may ask it anything."""
    model = HFClip("zoo:clip-0").load(protocol)
    for _ in range(2):  # the second knows what it is without loading
        cached = remembering(model, tmp_path, kind)
        assert isinstance(cached, protocol)
        assert cached.transform == model.transform
        assert cached.tokenize(["a"])["input_ids"].equal(model.tokenize(["a"])["input_ids"])
        with pytest.raises(AttributeError, match="nothing_like_it"):
            _ = cached.nothing_like_it
    unloaded = remembering(None, tmp_path, kind)
    assert not hasattr(unloaded, "_nothing")
    assert not hasattr(unloaded, "__deepcopy__")
    if protocol is Matcher:
        assert unloaded.kind == model.kind


def test_features_of_texts_are_kept_apart_from_their_directions(encoder, tmp_path):
    texts = ["a photo of a ball", "a red cube", "a photo of a ball"]
    first = remembering(encoder, tmp_path)
    raw, unit = embed_texts(first, texts, 2, normalise=False), embed_texts(first, texts, 2)
    with torch.inference_mode():
        expected = encoder.encode_text(encoder.tokenize(texts)).numpy()
    assert raw == pytest.approx(expected, abs=1e-5)
    assert unit == pytest.approx(raw / np.linalg.norm(raw, axis=1, keepdims=True), abs=1e-6)
    assert embed_texts(encoder, texts, 2, normalise=False) == pytest.approx(raw, abs=1e-6)
    again = remembering(None, tmp_path)
    assert (embed_texts(again, texts, 2, normalise=False) == raw).all()
    assert (embed_texts(again, texts, 2) == unit).all()


def test_kept_embeddings_equal_computed_ones_and_are_computed_once(encoder, index, tmp_path):
    texts = [index.text(row) for row in range(len(index))]
    pixels = Pixels(index, np.arange(len(index)))
    plain = embed_images(encoder, pixels, 5), embed_texts(encoder, texts, 5)
    first = remembering(encoder, tmp_path)
    assert (embed_images(first, pixels, 5) == plain[0]).all()
    assert (embed_texts(first, texts, 5) == plain[1]).all()
    again = remembering(None, tmp_path)
    assert (embed_images(again, pixels, 5) == plain[0]).all()
    some = Pixels(index, np.array([7, 2, 7]))
    assert (embed_images(again, some, 5) == plain[0][[7, 2, 7]]).all()
    assert (embed_texts(again, texts[3:5] * 2, 5) == plain[1][[3, 4, 3, 4]]).all()
    with pytest.raises(AssertionError, match="loaded"):
        embed_texts(again, ["something else"], 5)


def test_a_benchmark_says_the_same_with_and_without(encoder, index, tmp_path):
    benchmark = Retrieval(name="r", batch_size=5).use(index)
    plain = benchmark.run(encoder).outcomes
    for _ in range(2):
        assert benchmark.run(remembering(encoder, tmp_path)).outcomes == plain
    assert benchmark.run(remembering(None, tmp_path)).outcomes == plain
    for pointer in tmp_path.glob("*.json"):
        pointer.write_text("{")
    with pytest.raises(AssertionError, match="loaded"):
        remembering(None, tmp_path)


def test_equal_images_of_other_sources_are_the_same_image(index, tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    lines = []
    for row in (4, 1):
        (folder / f"{row}.png").write_bytes(index.read_image(row))
        lines.append(json.dumps({"image": f"{row}.png", "caption": "a"}))
    (folder / "captions.jsonl").write_text("\n".join(lines))
    copy = open_index(folder, tmp_path / "index")
    wanted = image_keys(index, np.array([4, 1]))
    assert image_keys(copy, np.arange(2)) == wanted
    assert wanted[0] == hashlib.blake2b(index.read_image(4), digest_size=16).digest()
    assert len(set(image_keys(index, np.arange(len(index))))) == len(index)


def test_another_model_is_another_folder(encoder):
    key = model_key(encoder, "w", "s")
    assert key == model_key(encoder, "w", "s")
    assert key != model_key(encoder, "v", "s")
    assert key != model_key(encoder, "w", "another activation")
    shorter = HFClip("zoo:clip-0", max_length=6).load()
    assert key != model_key(shorter, "w", "s")
    shorter.transform = replace(shorter.transform, resample="bilinear")
    assert model_key(shorter, "w", "s") != model_key(
        HFClip("zoo:clip-0", max_length=6).load(), "w", "s"
    )


def test_settings_are_known_without_loading(tmp_path):
    import shutil

    from cfaug.core.weights import resolve
    from cfaug.models.specs import OpenClip

    folder = tmp_path / "model"
    shutil.copytree(resolve("zoo:clip-0"), folder)
    same, spec = HFClip("zoo:clip-0"), HFClip(str(folder))
    assert spec.settings_hash() == same.settings_hash()
    assert spec.settings_hash() != replace(spec, max_length=5).settings_hash()
    tokenizer = folder / "tokenizer_config.json"
    tokenizer.write_text(tokenizer.read_text() + "\n")
    assert spec.settings_hash() != same.settings_hash()
    assert spec.weights_hash() == same.weights_hash()
    plain = OpenClip("openai", "ViT-B-32")
    local = OpenClip(str(folder))
    assert len({plain.settings_hash(), local.settings_hash(), spec.settings_hash()}) == 3


def test_what_is_deleted_or_damaged_is_computed_again(tmp_path):
    rng = np.random.default_rng(0)
    keys, vectors = text_keys(["a", "b", "c"]), rng.normal(size=(3, 4)).astype(np.float32)
    features = Features(tmp_path, "text")
    features.add(keys[:2], vectors[:2])
    features.add(keys[2:], vectors[2:])
    assert Features(tmp_path, "image").missing(keys) == [0, 1, 2]
    assert (Features(tmp_path, "text").get(keys[::-1]) == vectors[::-1]).all()
    first, second = sorted(tmp_path.glob("text-*.npy"))
    first.unlink()
    assert (features.get(keys) == vectors).all()  # another process may have pruned it
    assert len(Features(tmp_path, "text").missing([*keys, *keys])) in (1, 2)
    second.unlink()
    assert Features(tmp_path, "text").missing(keys) == [0, 1, 2]


@pytest.mark.parametrize("harm", ["cut", "empty", "pickle", *range(0, 192, 16)])
def test_what_is_damaged_is_said_once_and_computed_again(tmp_path, capsys, harm):
    rng = np.random.default_rng(0)
    keys, vectors = text_keys(["a", "b"]), rng.normal(size=(2, 4)).astype(np.float32)
    Features(tmp_path, "text").add(keys, vectors)
    [file] = tmp_path.glob("text-*.npy")
    content = file.read_bytes()
    if isinstance(harm, int):
        content = content[:harm] + bytes([content[harm] ^ 1]) + content[harm + 1 :]
    else:
        content = {"cut": content[:-3], "empty": b"", "pickle": b"\x80\x04."}[harm]
    file.write_bytes(content)

    def compute(missing):
        assert missing == [0, 1]
        yield vectors

    assert capsys.readouterr().err == ""
    assert np.array_equal(recall_or_compute(Features(tmp_path, "text"), keys, compute), vectors)
    said = capsys.readouterr().err
    assert said == f"1 of the files in {tmp_path} are damaged: the contents are recomputed\n"
    assert Features(tmp_path, "text").missing(keys) == []
    assert capsys.readouterr().err == ""


def test_the_least_recently_used_model_goes_first(tmp_path):
    import os

    new, middle, old = (f"{number:032x}" for number in range(3))
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/thesis.txt").write_text("years")
    for age, name in enumerate((new, middle, old)):
        Features(tmp_path / name, "text").add(text_keys(["a"]), np.ones((1, 250), np.float32))
        os.utime(tmp_path / name, (10**9 - age, 10**9 - age))
    prune(tmp_path, 2500, keep=tmp_path / old)
    assert {p.name for p in tmp_path.iterdir()} == {new, old, "theirs"}
    prune(tmp_path, 0, keep=tmp_path / old)
    assert {p.name for p in tmp_path.iterdir()} == {old, "theirs"}
    assert (tmp_path / "theirs/thesis.txt").read_text() == "years"
    prune(tmp_path / "nowhere", 0, keep=tmp_path)


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="feature_cache=0"):
        Features(tmp_path / "file" / "model", "text").add(text_keys(["a"]), np.ones((1, 2)))


# Logits of test sets: kept on disk, computed once, and prompted from a dual encoder.


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return ImageClassification(str(tiny.save_classifier(tmp_path_factory.mktemp("w") / "c"))).load()


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("sets")
    write_shards(joined_sets(), root / "sets")
    return open_index(root / "sets", root / "index")


def test_kept_logits_are_the_computed_ones_and_need_no_model(classifier, photos, tmp_path):
    pixels = Pixels(photos, np.arange(len(photos)))
    plain = classify_images(classifier, pixels, 4)
    keeping = remembering(classifier, tmp_path, CachedClassifier)
    np.testing.assert_allclose(classify_images(keeping, pixels, 4), plain, atol=1e-5)
    kept = classify_images(keeping, pixels, 4)
    again = remembering(None, tmp_path, CachedClassifier)
    assert again.classes == classifier.classes
    assert np.array_equal(classify_images(again, pixels, 7), kept)
    few = Pixels(photos, np.arange(3))
    assert np.array_equal(classify_images(again, few, 1), kept[:3])
    for changed in (("other", "settings"), ("w", "others")):
        with pytest.raises(AssertionError, match="loaded"):
            CachedClassifier(refuse, *changed, tmp_path, LIMIT)


def test_logits_that_are_no_numbers_are_refused_before_they_are_kept(classifier, photos, tmp_path):
    class Broken(torch.nn.Module):
        transform, classes = classifier.transform, classifier.classes

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([1.0]))

        def classify(self, pixels):
            return torch.full((len(pixels), 5), float("nan"))

    keeping = remembering(Broken(), tmp_path, CachedClassifier)
    with pytest.raises(UserError, match="not numbers"):
        classify_images(keeping, Pixels(photos, np.arange(3)), 2)
    assert not list(tmp_path.rglob("*.npy"))


def test_a_dual_encoder_is_prompted_with_class_names(encoder, photos, tmp_path):
    """Radford et al. (2021): cosines with the mean of each class's prompts, times the scale."""
    asked = Classes(["ball", "cube"], ["ball", "cube"], ["a photo of a {c}", "a red {c}"])
    model = ZeroShotClassifier(encoder, asked)
    assert isinstance(model, Classifier)
    assert model.classes == ("ball", "cube")
    rows = np.arange(4)
    expected = []
    with torch.inference_mode():
        for row in rows:
            pixels = encoder.transform(decode_image(photos.read_image(row), "it"))[None].copy()
            image = encoder.encode_image(torch.from_numpy(pixels))[0].double()
            logits = []
            for name in asked.names:
                prompts = [template.replace("{c}", name) for template in asked.templates]
                texts = encoder.encode_text(encoder.tokenize(prompts)).double()
                mean = (texts / texts.norm(dim=1, keepdim=True)).mean(dim=0)
                cosine = float(image @ mean / image.norm() / mean.norm())
                logits.append(cosine * float(encoder.logit_scale()))
            expected.append(logits)
            np.testing.assert_allclose(
                model.classify(torch.from_numpy(pixels)).numpy()[0], logits, atol=1e-3
            )
    pixels = Pixels(photos, rows)
    np.testing.assert_allclose(classify_images(model, pixels, 3), expected, atol=1e-3)
    cached = remembering(encoder, tmp_path)
    kept = classify_images(ZeroShotClassifier(cached, asked), pixels, 3)
    np.testing.assert_allclose(kept, expected, atol=1e-3)
    assert list(tmp_path.rglob("image-*.npy"))
