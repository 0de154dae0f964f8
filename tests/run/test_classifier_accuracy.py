"""Accuracy of classifiers by ``benchmark=classification``, against a plain loop of timm."""

from __future__ import annotations

import numpy as np
import pytest
import timm
import torch
from PIL import Image

from cfaug.data.sources.row import imagenet_names, make_distinct
from cfaug.report.items import read_items
from cfaug.report.results import read_results
from tests.data.making import noise_image
from tests.models import tiny
from tests.run.conftest import refusal

IDS = {"n01440764": 0, "n02102040": 217, "n04356056": 837, "n03888257": 701}
"""Tench, English springer, the first of two "sunglasses", and parachute: ImageNet's columns."""


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for number, wnid in enumerate(IDS):
        (folder / wnid).mkdir()
        for photo in range(5):
            seed = 10 * number + photo
            (folder / wnid / f"{photo}.png").write_bytes(noise_image(seed))
    return folder


@pytest.fixture(scope="module")
def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return timm.create_model("test_convnext2").eval()


def loop(model, photos):
    """Return {photo: logits}, from timm's own transform, one photo at a time."""
    transform = timm.data.create_transform(**timm.data.resolve_data_config(model=model))
    with torch.inference_mode():
        return {
            file: model(transform(Image.open(file).convert("RGB"))[None])[0].numpy()
            for file in sorted(photos.rglob("*.png"))
        }


@pytest.mark.parametrize("restrict", [False, True])
def test_accuracy_on_imagenets_ids_is_that_of_a_plain_loop(
    restrict, photos, model, place, tmp_path
):
    timm.models.save_for_hf(model, tmp_path / "timm", safe_serialization=True)
    words = ["benchmark=classification", f"benchmark.data={photos}", "model=timm", "device=cpu"]
    words += [f"model.weights={tmp_path / 'timm'}", "benchmark.name=own"]
    assert place.evaluate(*words, f"benchmark.restrict={restrict}") == 0
    [folder] = [file.parent for file in place.root.rglob("results.jsonl")]
    by_metric = {row.metric: row for row in read_results(folder / "results.jsonl")}
    items = read_items(folder, "own_classification").columns
    names = imagenet_names()
    ids = list(IDS) if restrict else list(names)
    called = make_distinct([names[wnid] for wnid in ids])
    expected = {}
    for file, logits in loop(model, photos).items():
        order = np.argsort(-(logits[list(IDS.values())] if restrict else logits))
        at = ids.index(file.parent.name)
        answer = (called[at], called[order[0]], float(at == order[0]), at in order[:5])
        expected[f"{file.parent.name}-{file.stem}"] = answer
    assert len({answer[1] for answer in expected.values()}) > 1
    said = zip(*(items[name] for name in ("item", "label", "predicted", "acc1")), strict=True)
    assert {item.rpartition("-")[0]: tuple(rest) for item, *rest in said} == {
        name: answer[:3] for name, answer in expected.items()
    }
    assert by_metric["acc1"].value == pytest.approx(
        np.mean([answer[2] for answer in expected.values()])
    )
    assert by_metric["acc1"].chance == 1 / len(ids)
    if not restrict:
        five = np.mean([answer[3] for answer in expected.values()])
        assert by_metric["acc5"].value == pytest.approx(five)


@pytest.mark.slow
def test_a_label_that_the_classifier_lacks_is_named(photos, place, tmp_path):
    weights = tiny.save_classifier(tmp_path / "vit")
    words = ["benchmark=classification", f"benchmark.data={photos}", "model=classifier"]
    said = refusal(place.evaluate, *words, f"model.weights={weights}", "device=cpu")
    assert "the model has 5 classes (ball, cube, star, beach, sand); of the labels" in said
    assert "model.classes=FILE" in said
    assert "is read with a model that provides DualEncoder; leave it out" in refusal(
        place.evaluate, *words, f"model.weights={weights}", "benchmark.templates=[a]"
    )
