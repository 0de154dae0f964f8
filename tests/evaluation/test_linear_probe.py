"""A linear probe: its regression, the search of its penalty, and its two sources."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.evaluation.cached_model import CachedEncoder
from cfaug.evaluation.context import EvaluationContext
from cfaug.evaluation.inference import embed_images
from cfaug.evaluation.linear_probe import LinearProbe
from cfaug.models.specs import HFClip
from cfaug.stats.linear_probe import choose_strength, fit_logistic, search_strength
from tests.data.making import noise_image
from tests.properties import examples

CLASSES = ("ball", "cube", "star")


def softmax_loss(flat: np.ndarray, features: np.ndarray, labels: np.ndarray, strength: float):
    """The loss and its gradient, a line each of the textbook's."""
    weights = flat.reshape(features.shape[1] + 1, -1)
    scores = features @ weights[:-1] + weights[-1]
    scores -= scores.max(1, keepdims=True)
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    loss = -np.log(shares[np.arange(len(labels)), labels]).sum()
    shares[np.arange(len(labels)), labels] -= 1
    gradient = np.vstack([features.T @ shares + strength * weights[:-1], shares.sum(0)])
    return loss + strength / 2 * (weights[:-1] ** 2).sum(), gradient.ravel()


@pytest.mark.parametrize("strength", [0.01, 1.0, 30.0])
def test_the_regression_minimises_the_textbook_s_loss(strength):
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3
    features = rng.normal(size=(90, 4)) + np.eye(3, 4)[labels]
    model = fit_logistic(features, labels, strength)
    start = np.zeros(5 * 3)
    fitted = minimize(softmax_loss, start, (features, labels, strength), jac=True, tol=1e-10)
    slow = fitted.x.reshape(5, 3)
    assert np.allclose(model.coef_.T - model.coef_.mean(0)[:, None],
                       slow[:-1] - slow[:-1].mean(1, keepdims=True), atol=2e-3)  # fmt: skip
    # The lines of CLIP's own example (github.com/openai/CLIP, README: linear-probe evaluation).
    released = LogisticRegression(random_state=0, C=1 / strength, max_iter=1000)
    released.fit(features, labels)
    assert (released.predict(features) == model.predict(features)).all()


@given(st.floats(-6, 6), st.floats(0.1, 5))
@settings(max_examples=examples(50))
def test_the_search_finds_the_peak_of_every_single_hill(peak, slope):
    tried = []

    def score(strength: float) -> float:
        tried.append(strength)
        return -slope * abs(math.log10(strength) - peak)

    best = math.log10(search_strength(score))
    grid = np.arange(-48, 49) / 8
    assert abs(best - peak) <= np.abs(grid - peak).min() + 1e-9
    assert len(tried) == len(set(tried)) <= 7 + 2 * 4


def test_of_equal_scores_the_stronger_penalty_counts():
    assert search_strength(lambda strength: 0.5) == 1e6
    assert search_strength(lambda strength: float(strength <= 10)) == pytest.approx(10)


def test_the_strength_is_the_best_of_those_tried_on_the_validation_split():
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, 200)
    features = rng.normal(size=(200, 20)) + 0.7 * np.eye(3, 20)[labels]
    held = np.arange(200) < 60
    strength = choose_strength(features, labels, held)
    usual = [10.0**power for power in (-6, -4, -2, 0, 2, 4, 6)]

    def accuracy(value: float) -> float:
        model = fit_logistic(features[~held], labels[~held], value)
        return float((model.predict(features[held]) == labels[held]).mean())

    assert accuracy(strength) >= max(map(accuracy, usual))


@pytest.fixture
def context(tmp_path):
    return EvaluationContext(
        open=lambda name: open_index(name, tmp_path / "index"), has_world=False, held_out=tuple
    )


def write_split(folder: Path, first: int, each: int) -> Path:
    """Images of one colour a class, with noise that differs for each number."""
    for number, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for at in range(each):
            data = noise_image(first + number * each + at)
            (folder / name / f"{first + at}.png").write_bytes(data)
    return folder


def opened(context, folder, **more):
    [benchmark] = LinearProbe(data=str(folder), **more).open(context)
    return benchmark


def test_a_probe_is_the_plain_one_of_the_embeddings(context, tmp_path):
    write_split(tmp_path / "set/train", 0, 12)
    write_split(tmp_path / "set/test", 1000, 5)
    model = HFClip("zoo:clip-0").load().eval()
    probe = opened(context, tmp_path / "set")
    evaluation = probe.run(model)
    items = evaluation.items
    assert len(items["item"]) == 15
    assert sorted(set(items["label"])) == sorted(CLASSES)
    value = {outcome.metric: outcome.value for outcome in evaluation.outcomes}
    assert value["acc1"] == np.mean(items["label"] == items["predicted"])
    assert evaluation.outcomes[0].chance == pytest.approx(1 / 3)
    # The same again is the same; another seed splits otherwise.
    again = opened(context, tmp_path / "set")
    assert again.data_hash == probe.data_hash
    assert list(again.run(model).items["predicted"]) == list(items["predicted"])
    assert opened(context, tmp_path / "set", seed=1).data_hash != probe.data_hash


@pytest.mark.parametrize("features", ["encode_image", "before_projection"])
def test_a_probe_of_other_features_is_the_plain_one_of_these(context, tmp_path, features):
    write_split(tmp_path / "set/train", 0, 12)
    write_split(tmp_path / "set/test", 1000, 5)
    model = HFClip("zoo:clip-0").load().eval()
    probe = opened(context, tmp_path / "set", features=features)
    assert probe.data_hash != opened(context, tmp_path / "set").data_hash

    def slow(pixels):
        rows = []
        for row in pixels.rows.tolist():
            image = torch.from_numpy(model.transform(pixels.index.image(row))[None].copy())
            vision = model.model.vision_model(pixel_values=model.normalize(image)).pooler_output
            before = features == "before_projection"
            rows.append((vision if before else model.model.visual_projection(vision))[0])
        return torch.stack(rows).numpy()

    both = (probe._train_pixels, probe._pixels)
    train, test = (embed_images(model, pixels, 256, features) for pixels in both)
    with torch.inference_mode():
        assert train == pytest.approx(slow(both[0]), abs=1e-5)
        assert test == pytest.approx(slow(both[1]), abs=1e-5)
    assert np.abs(np.linalg.norm(test, axis=1) - 1).max() > 0.01  # not of unit length
    strength = choose_strength(train, probe._train_labels, probe._validation)
    expected = fit_logistic(train, probe._train_labels, strength).predict(test)
    predicted = probe.run(model).items["predicted"]
    assert predicted.tolist() == [sorted(CLASSES)[number] for number in expected]


def test_features_are_cached_each_kind_by_itself(context, tmp_path):
    write_split(tmp_path / "set/train", 0, 12)
    write_split(tmp_path / "set/test", 1000, 5)
    model = HFClip("zoo:clip-0").load().eval()
    pixels = opened(context, tmp_path / "set")._pixels

    def load():
        return model

    def refuse():
        raise AssertionError("loaded")

    kinds = ("embedding", "encode_image", "before_projection")
    cached = CachedEncoder(load, "w", "s", tmp_path / "cache", 2**30)
    fresh = {kind: embed_images(cached, pixels, 4, kind) for kind in kinds}
    again = CachedEncoder(refuse, "w", "s", tmp_path / "cache", 2**30)
    for kind in kinds:
        assert np.array_equal(embed_images(again, pixels, 4, kind), fresh[kind])
        assert np.array_equal(embed_images(model, pixels, 4, kind), fresh[kind])
    unit = fresh["encode_image"] / np.linalg.norm(fresh["encode_image"], axis=1, keepdims=True)
    assert unit == pytest.approx(fresh["embedding"], abs=1e-6)
    assert fresh["before_projection"].shape != fresh["embedding"].shape or not np.allclose(
        fresh["before_projection"], fresh["encode_image"]
    )


def test_shots_are_of_every_class(context, tmp_path):
    write_split(tmp_path / "set/train", 0, 12)
    write_split(tmp_path / "set/test", 1000, 5)
    probe = opened(context, tmp_path / "set", shots=4)
    assert sorted(probe._train_labels.tolist()) == [0] * 4 + [1] * 4 + [2] * 4
    with pytest.raises(UserError, match=r"benchmark\.shots=13 .* 12 images of 'ball'"):
        opened(context, tmp_path / "set", shots=13)


def test_what_is_trained_on_is_not_tested(context, tmp_path):
    train, test = write_split(tmp_path / "train", 0, 6), write_split(tmp_path / "test", 500, 6)
    copied = (train / "ball/0.png").read_bytes()
    (test / "ball/500.png").write_bytes(copied)
    with pytest.raises(UserError, match=r"1 images of .*train are also in .*test"):
        opened(context, test, train=str(train))


def test_an_unknown_class_is_named(context, tmp_path):
    train, test = write_split(tmp_path / "train", 0, 6), write_split(tmp_path / "test", 500, 6)
    (test / "ball").rename(test / "kite")
    with pytest.raises(UserError, match=r"classes that .*train lacks, such as 'kite'"):
        opened(context, test, train=str(train))


def test_a_list_without_classes_asks_for_the_column(context, tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    lines = ["image,caption,thing"]
    for number in range(6):
        (folder / f"{number}.png").write_bytes(noise_image(number))
        lines.append(f"{number}.png,a photo,{CLASSES[number % 3]}")
    (folder / "captions.csv").write_text("\n".join(lines))
    train = write_split(tmp_path / "train", 100, 6)
    with pytest.raises(UserError, match=r"has no class; benchmark\.label=COLUMN"):
        opened(context, folder, train=str(train))


def test_without_a_training_split_its_setting_is_named(context, tmp_path):
    test = write_split(tmp_path / "test", 0, 6)
    with pytest.raises(UserError, match=r"benchmark\.train=FOLDER is missing"):
        opened(context, test)


def test_a_single_class_is_named(context, tmp_path):
    train, test = write_split(tmp_path / "train", 0, 6), write_split(tmp_path / "test", 500, 6)
    folder = tmp_path / "one"
    folder.mkdir()
    lines = ["image,caption,thing"]
    for number in range(4):
        shutil.copy(train / f"ball/{number}.png", folder / f"{number}.png")
        lines.append(f"{number}.png,a photo {number},ball")
    (folder / "captions.csv").write_text("\n".join(lines))
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    for number in range(4):
        shutil.copy(test / f"ball/{500 + number}.png", other / f"{number}.png")
    with pytest.raises(UserError, match="is of the class 'ball'; a probe needs two"):
        opened(context, other, train=str(folder), label="thing")


def test_every_class_is_validated_on_and_trained_on(context, tmp_path):
    write_split(tmp_path / "set/train", 0, 6)
    write_split(tmp_path / "set/test", 1000, 5)
    for seed, share in ((0, 0.2), (1, 0.01), (2, 0.99)):
        probe = opened(context, tmp_path / "set", seed=seed, validation=share)
        held = probe._train_labels[probe._validation]
        assert sorted(set(held.tolist())) == [0, 1, 2]
        assert sorted(set(probe._train_labels[~probe._validation].tolist())) == [0, 1, 2]
        each = min(max(int(share * 6), 1), 5)
        assert len(held) == 3 * each


def test_an_image_of_two_classes_is_refused(context, tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "a.png").write_bytes(noise_image(1))
    (folder / "b.png").write_bytes(noise_image(2))
    lines = ["image,caption,thing", "a.png,a photo,ball", "b.png,it,cube", "a.png,another,cube"]
    (folder / "captions.csv").write_text("\n".join(lines))
    train = write_split(tmp_path / "train", 100, 6)
    with pytest.raises(UserError, match=r"a\.png .* has two classes, 'ball' and 'cube'"):
        opened(context, folder, train=str(train), label="thing")
