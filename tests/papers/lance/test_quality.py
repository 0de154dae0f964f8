"""Figure 4's measures on hand-laid sets, against one image and one caption at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.protocols import Benchmark, DualEncoder, FeatureExtractor
from cfaug.data.shards.shards import read_sets, write_shards
from cfaug.editing.causal_lm import CausalLM
from cfaug.evaluation.adapting import adapt, loadable_as
from cfaug.evaluation.stress.stress import Stress
from cfaug.models.specs import HFClip, ViltMatching
from cfaug.papers.lance.quality import CaptionPerplexity, ImageQuality
from cfaug.stats.image_metrics import frechet_distance, kernel_distance
from tests.evaluation.joined import joined_set, joined_sets, random_sets
from tests.evaluation.stress.test_stress import opener


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("stress")
    write_shards(joined_sets(), root / "lance")
    write_shards(random_sets(), root / "lance_r")
    return root


def ask_of(kind, root, **settings):
    (benchmark,) = kind(str(root / "lance"), **settings).open(opener(root))
    assert isinstance(benchmark, Benchmark)
    return benchmark


def parts(root):
    """Return the images and captions of every set of photos that were edited, one by one."""
    by_set = {"original": [], "reconstruction": [], "edited": [], "random": []}
    for folder, named in (("lance", "edited"), ("lance_r", "random")):
        for photo_set in read_sets(root / folder):
            for n, member in enumerate(photo_set.members):
                name = ("original", "reconstruction")[n] if n < 2 else named
                if len(photo_set.members) > 2 and (folder == "lance" or n >= 2):
                    by_set[name].append((photo_set.images[member.image_name], member.text))
    return by_set


def test_fid_and_kid_are_of_the_features_of_one_image_at_a_time(folders, encoder, capsys):
    benchmark = ask_of(ImageQuality, folders, random=str(folders / "lance_r"), batch_size=5)
    tower = adapt(encoder, benchmark, DualEncoder)
    assert isinstance(tower, FeatureExtractor)
    evaluation = benchmark.run(tower)
    features = {}
    for name, some in parts(folders).items():
        rows = [encoder.transform(decode_image(image, "it"))[None].copy() for image, _ in some]
        with torch.inference_mode():
            features[name] = [encoder.encode_image(torch.from_numpy(pixels))[0] for pixels in rows]
        features[name] = torch.stack(features[name]).double().numpy()
    said = {(outcome.metric, outcome.by["set"]): outcome for outcome in evaluation.outcomes}
    assert {name for metric, name in said if metric == "fid"} == {
        "reconstruction", "edited", "random",
    }  # fmt: skip
    for (metric, name), outcome in said.items():
        assert outcome.better == "lower"
        if metric == "fid_halves":
            assert (name, outcome.n) == ("original", 4)
            assert outcome.value > 0
            continue
        measure = frechet_distance if metric == "fid" else kernel_distance
        expected = measure(features[name], features["original"])
        assert outcome.value == pytest.approx(expected, rel=1e-3, abs=1e-5)
        assert outcome.n == len(features[name])
    assert said["fid", "edited"].value > said["fid", "reconstruction"].value / 10
    assert "fewer images than the" in capsys.readouterr().err
    assert benchmark.run(tower).outcomes == evaluation.outcomes
    assert len(evaluation.items["item"]) == 9 + 9 + 16 + 7


def test_a_set_of_one_image_has_no_distance_and_the_rest_goes_on(tmp_path, encoder, capsys):
    edits = [("adjective", "red", "blue")]
    sets = [joined_set(n, edits, control=n == 0) for n in range(4)]
    write_shards(sets, tmp_path / "lance")
    benchmark = ask_of(ImageQuality, tmp_path)
    evaluation = benchmark.run(adapt(encoder, benchmark, DualEncoder))
    assert {outcome.by["set"] for outcome in evaluation.outcomes} == {"original", "edited"}
    assert "fid of reconstruction is left out: there are 1 images" in capsys.readouterr().err


def test_one_photo_with_one_edit_can_be_compared_with_nothing(tmp_path, encoder):
    write_shards([joined_set(0, [("adjective", "red", "blue")])], tmp_path / "lance")
    benchmark = ask_of(ImageQuality, tmp_path)
    with pytest.raises(UserError, match="there is 1 photo with an edit: name shards of more"):
        benchmark.run(adapt(encoder, benchmark, DualEncoder))


def test_perplexity_is_that_of_each_caption(folders):
    model = CausalLM("zoo:language/causal", device="cpu")
    benchmark = ask_of(CaptionPerplexity, folders, random=str(folders / "lance_r"))
    evaluation = benchmark.run(model)
    items = {name: np.asarray(values) for name, values in evaluation.items.items()}
    for text, value in zip(items["text"].tolist(), items["perplexity"], strict=True):
        assert value == pytest.approx(float(model.perplexity([text])[0]), rel=1e-4)
    for outcome in evaluation.outcomes:
        chosen = np.ones(len(items["item"]), bool)
        for column, wanted in outcome.by.items():
            chosen &= items[column] == wanted
        assert (outcome.value, outcome.n) == (
            pytest.approx(items["perplexity"][chosen].mean()), chosen.sum(),
        )  # fmt: skip
        assert outcome.better == "lower"
    parts_asked = [dict(outcome.by) for outcome in evaluation.outcomes]
    assert {"set": "edited", "kind": "background"} in parts_asked
    assert {"set": "original", "photos": "edited"} in parts_asked


def test_what_a_model_can_be_asked_as_is_found_by_what_it_provides(folders):
    clip, vilt = HFClip("zoo:clip-0"), ViltMatching("zoo:vilt-0")
    quality, stress = ask_of(ImageQuality, folders), ask_of(Stress, folders)
    words = ask_of(CaptionPerplexity, folders)
    for benchmark in (quality, stress):
        assert loadable_as(benchmark, clip.provides) is DualEncoder
        assert loadable_as(benchmark, vilt.provides) is None
    assert loadable_as(words, clip.provides) is None
