"""Figure 4's measures on hand-laid sets, against one image and one caption at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.protocols import Benchmark, DualEncoder, FeatureExtractor
from cfaug.data.index import open_index
from cfaug.data.shards.shards import read_sets, write_shards
from cfaug.editing.causal_lm import CausalLM
from cfaug.evaluation.context import EvaluationContext, adapt, loadable_as
from cfaug.lance.quality import CaptionPerplexity, ImageQuality
from cfaug.lance.stress import Stress
from cfaug.models.specs import HFClip, ViltMatching
from cfaug.stats.image_metrics import frechet_distance, kernel_distance
from tests.evaluation.joined import joined_set, joined_sets, random_sets


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("quality")
    write_shards(joined_sets(), root / "lance")
    write_shards(random_sets(), root / "lance_r")
    return root


def opened(kind, root, **settings):
    context = EvaluationContext(
        open=lambda name: open_index(name, root / "index"), has_world=False, held_out=lambda: None
    )
    (found,) = kind(str(root / "lance"), **settings).open(context)
    assert isinstance(found, Benchmark)
    return found


def parts(root):
    """Return the images and captions of every set of photos that were edited, one by one."""
    found = {"original": [], "reconstruction": [], "edited": [], "random": []}
    for folder, named in (("lance", "edited"), ("lance_r", "random")):
        for one in read_sets(root / folder):
            for n, member in enumerate(one.members):
                name = ("original", "reconstruction")[n] if n < 2 else named
                if len(one.members) > 2 and (folder == "lance" or n >= 2):
                    found[name].append((one.images[member.image_name], member.text))
    return found


def test_fid_and_kid_are_of_the_features_of_one_image_at_a_time(folders, encoder, capsys):
    benchmark = opened(ImageQuality, folders, random=str(folders / "lance_r"), batch_size=5)
    tower = adapt(encoder, benchmark, DualEncoder)
    assert isinstance(tower, FeatureExtractor)
    found = benchmark.run(tower)
    features = {}
    for name, some in parts(folders).items():
        rows = [encoder.transform(decode_image(image, "it"))[None].copy() for image, _ in some]
        with torch.inference_mode():
            features[name] = [encoder.encode_image(torch.from_numpy(one))[0] for one in rows]
        features[name] = torch.stack(features[name]).double().numpy()
    said = {(one.metric, one.by["set"]): one for one in found.outcomes}
    assert {name for metric, name in said if metric == "fid"} == {
        "reconstruction", "edited", "random",
    }  # fmt: skip
    for (metric, name), one in said.items():
        assert one.better == "lower"
        if metric == "fid_halves":
            assert (name, one.n) == ("original", 4)
            assert one.value > 0
            continue
        measure = frechet_distance if metric == "fid" else kernel_distance
        expected = measure(features[name], features["original"])
        assert one.value == pytest.approx(expected, rel=1e-3, abs=1e-5)
        assert one.n == len(features[name])
    assert said["fid", "edited"].value > said["fid", "reconstruction"].value / 10
    assert "fewer images than the" in capsys.readouterr().err
    assert benchmark.run(tower).outcomes == found.outcomes
    assert len(found.items["item"]) == 9 + 9 + 16 + 7


def test_a_set_of_one_image_has_no_distance_and_the_rest_goes_on(tmp_path, encoder, capsys):
    edits = [("adjective", "red", "blue")]
    sets = [joined_set(n, edits, control=n == 0) for n in range(4)]
    write_shards(sets, tmp_path / "lance")
    benchmark = opened(ImageQuality, tmp_path)
    found = benchmark.run(adapt(encoder, benchmark, DualEncoder))
    assert {one.by["set"] for one in found.outcomes} == {"original", "edited"}
    assert "fid of reconstruction is left out: there are 1 images" in capsys.readouterr().err


def test_one_photo_with_one_edit_can_be_compared_with_nothing(tmp_path, encoder):
    write_shards([joined_set(0, [("adjective", "red", "blue")])], tmp_path / "lance")
    benchmark = opened(ImageQuality, tmp_path)
    with pytest.raises(UserError, match="there is 1 photo with an edit: name shards of more"):
        benchmark.run(adapt(encoder, benchmark, DualEncoder))


def test_perplexity_is_that_of_each_caption(folders):
    model = CausalLM("zoo:language/causal", device="cpu")
    benchmark = opened(CaptionPerplexity, folders, random=str(folders / "lance_r"))
    found = benchmark.run(model)
    items = {name: np.asarray(values) for name, values in found.items.items()}
    for text, value in zip(items["text"].tolist(), items["perplexity"], strict=True):
        assert value == pytest.approx(float(model.perplexity([text])[0]), rel=1e-4)
    for one in found.outcomes:
        chosen = np.ones(len(items["item"]), bool)
        for column, wanted in one.by.items():
            chosen &= items[column] == wanted
        assert (one.value, one.n) == (
            pytest.approx(items["perplexity"][chosen].mean()), chosen.sum(),
        )  # fmt: skip
        assert one.better == "lower"
    parts_asked = [dict(one.by) for one in found.outcomes]
    assert {"set": "edited", "kind": "background"} in parts_asked
    assert {"set": "original", "photos": "edited"} in parts_asked


def test_what_a_model_can_be_asked_as_is_found_by_what_it_provides(folders):
    clip, vilt = HFClip("zoo:clip-0"), ViltMatching("zoo:vilt-0")
    quality, stress = opened(ImageQuality, folders), opened(Stress, folders)
    words = opened(CaptionPerplexity, folders)
    for benchmark in (quality, stress):
        assert loadable_as(benchmark, clip.provides) is DualEncoder
        assert loadable_as(benchmark, vilt.provides) is None
    assert loadable_as(words, clip.provides) is None
