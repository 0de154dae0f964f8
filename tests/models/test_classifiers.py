"""Classifiers of timm and torchvision: each gives what its library gives of the same files."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file

from cfaug.core.errors import UserError, say_once
from cfaug.core.protocols import Classifier, FeatureExtractor
from cfaug.evaluation.class_mapping import match_classes
from cfaug.models.checkpoints import read_state
from cfaug.models.classifier_specs import (
    InceptionFeatures,
    TimmClassification,
    TorchvisionClassification,
)
from cfaug.models.classifiers import FROM_TENSORFLOW, _build, default_weights, timm_transform
from cfaug.models.task_specs import ImageClassification
from tests import skips
from tests.models import tiny

NAMES = ["ball", "cube", "star", "ring", "cone"]


@pytest.fixture(scope="module")
def timm_model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return timm.create_model("test_convnext2", num_classes=5).eval()


@pytest.fixture(scope="module")
def timm_folder(timm_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("timm")
    config = {"label_names": NAMES}
    timm.models.save_for_hf(timm_model, folder, model_config=config, safe_serialization=True)
    return folder


@pytest.fixture(scope="module")
def torchvision_model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torchvision.models.get_model("shufflenet_v2_x0_5", num_classes=5).eval()


@pytest.fixture(scope="module")
def files(timm_model, torchvision_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    save_file(timm_model.state_dict(), folder / "timm.safetensors")
    # As a training script leaves it: beside other things, of a model on several processes.
    state = {f"module.{name}": weight for name, weight in torchvision_model.state_dict().items()}
    torch.save({"model": state, "epoch": 3}, folder / "torchvision.pth")
    (folder / "names.txt").write_text("\n".join(NAMES) + "\n")
    return folder


def test_a_folder_of_timm_answers_as_timm_does(timm_folder, timm_model):
    model = TimmClassification(str(timm_folder)).load(Classifier)
    assert isinstance(model, Classifier)
    assert model.classes == tuple(NAMES)
    assert not model.training
    theirs = timm.data.create_transform(**timm.data.resolve_model_data_config(timm_model))
    image = tiny.image(190, 170)
    with torch.no_grad():
        expected = timm_model(theirs(image)[None])
        logits = model.classify(torch.from_numpy(model.transform(image)[None].copy()))
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-4)
    assert logits.std() > 0


PREPARED = {"input_size": (3, 48, 48), "interpolation": "bicubic", "mean": (0.4, 0.5, 0.6),
            "std": (0.2, 0.3, 0.4), "crop_pct": 0.9, "crop_mode": "center"}  # fmt: skip


@pytest.mark.parametrize("mode", ["center", "squash"])
@pytest.mark.parametrize("size", [(190, 170), (37, 80), (64, 64)])
def test_images_are_prepared_as_timm_prepares_them(mode, size):
    config = {**PREPARED, "crop_mode": mode}
    ours, image = timm_transform(config, "it"), tiny.image(*size)
    expected = timm.data.create_transform(**config)(image)
    prepared = ours.normalize(torch.from_numpy(ours(image)[None].copy()))[0]
    torch.testing.assert_close(prepared, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("change", [{"crop_mode": "border"}, {"interpolation": "lanczos"},
                                    {"input_size": (1, 48, 48)}])  # fmt: skip
def test_what_cannot_be_prepared_is_refused(change):
    with pytest.raises(UserError, match="it:"):
        timm_transform(PREPARED | change, "it")


def test_how_photos_are_prepared_is_said_of_weights_that_do_not_say_it(files, timm_folder, capsys):
    say_once.cache_clear()
    file, names = str(files / "timm.safetensors"), str(files / "names.txt")
    model = TimmClassification(file, architecture="test_convnext2", classes=names).load()
    said = capsys.readouterr().err
    assert said == (
        "note: timm.safetensors: photos are resized to 168 px and cropped to 160 px (timm's "
        "test_convnext2); for weights trained otherwise save a folder: timm.models.save_for_hf\n"
    )
    assert (model.transform.resized, model.transform.size) == (168, 160)
    TimmClassification(str(timm_folder)).load()
    assert "photos are" not in capsys.readouterr().err


def test_a_file_of_timms_weights_needs_its_architecture(files, timm_model, timm_folder):
    file = str(files / "timm.safetensors")
    with pytest.raises(UserError, match=r"model\.architecture=NAME"):
        TimmClassification(file).load()
    spec = TimmClassification(file, architecture="test_convnext2")
    with pytest.raises(UserError, match=r"has 5 classes without names: give model\.classes=FILE"):
        spec.load()
    named = replace(spec, classes=str(files / "names.txt"))
    pixels = torch.randint(0, 256, (3, 3, 160, 160), dtype=torch.uint8)
    ours, theirs = named.load(), TimmClassification(str(timm_folder)).load()
    with torch.no_grad():
        assert torch.equal(ours.classify(pixels), theirs.classify(pixels))
    assert ours.classes == theirs.classes
    assert named.parameters() == sum(weight.numel() for weight in timm_model.state_dict().values())
    with pytest.raises(UserError, match=r"no architecture 'resnte50'; near it are .*resnet50"):
        replace(named, architecture="resnte50").load()
    with pytest.raises(UserError, match=r"is missing.*more\. Is it another architecture"):
        replace(named, architecture="test_vit").load()


def test_timms_names_of_weights_are_hub_ids():
    assert TimmClassification("resnet50.a1_in1k")._place() == "timm/resnet50.a1_in1k"
    assert TimmClassification("someone/model")._place() == "someone/model"
    assert default_weights("resnet50").startswith("resnet50.")
    with pytest.raises(UserError, match="no architecture"):
        TimmClassification("no_such_model").folder()


def test_as_many_classes_as_imagenet_has_are_its_own(tmp_path):
    model = timm.create_model("test_convnext2")
    timm.models.save_for_hf(model, tmp_path / "it", safe_serialization=True)
    classes = TimmClassification(str(tmp_path / "it")).load().classes
    assert (len(classes), classes[0], classes[-1]) == (1000, "n01440764", "n15075141")


def test_torchvision_answers_as_torchvision_does(files, torchvision_model):
    spec = TorchvisionClassification(
        str(files / "torchvision.pth"), "shufflenet_v2_x0_5", classes=str(files / "names.txt")
    )
    model = spec.load(Classifier)
    assert isinstance(model, Classifier)
    assert model.classes == tuple(NAMES)
    weights = torchvision.models.get_model_weights("shufflenet_v2_x0_5").DEFAULT
    for image in (tiny.image(190, 170), tiny.image(300, 400, 1)):
        with torch.no_grad():
            expected = torchvision_model(weights.transforms()(image)[None])
            logits = model.classify(torch.from_numpy(model.transform(image)[None].copy()))
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-4)
    with pytest.raises(UserError, match=r"'IMAGENET21K' is neither .*: IMAGENET1K_V1, DEFAULT"):
        replace(spec, prepared_as="IMAGENET21K").load()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"architecture": "resnte50"}, "not known to torchvision"),
        ({"architecture": "raft_small"}, "not known to torchvision"),
        ({"classes": None}, r"fc\.weight is \(5, 1024\), not \(1000, 1024\)"),
        ({"weights": "IMAGENET1K_V9"}, "neither a file nor one of .*IMAGENET1K_V1"),
    ],
)
def test_what_torchvision_does_not_know_is_said(files, change, said):
    spec = TorchvisionClassification(
        str(files / "torchvision.pth"), "shufflenet_v2_x0_5", classes=str(files / "names.txt")
    )
    with pytest.raises(UserError, match=said):
        replace(spec, **change).load()


def test_weights_of_tensorflow_are_told_to_rescale_their_images():
    """Torchvision does so for its own tags only; a file of the same weights needs it too."""
    assert FROM_TENSORFLOW == ("googlenet", "inception_v3")
    with torch.device("meta"):
        assert _build("googlenet", 4).transform_input


def test_a_pickle_is_refused(tmp_path):
    file = tmp_path / "model.pth"
    torch.save({"model": print}, file)
    with pytest.raises(UserError, match="reading a pickle can run code"):
        TorchvisionClassification(str(file), "resnet18").load()
    with pytest.raises(UserError, match="reading a pickle can run code"):
        TimmClassification(str(file), architecture="resnet18").load()
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(UserError, match="no weights by name"):
        read_state(tmp_path / "list.pth")


def test_damaged_weights_and_absurd_folders_are_refused(timm_folder, tmp_path):
    state = read_state(timm_folder / "model.safetensors")
    config = json.loads((timm_folder / "config.json").read_text())
    for name, broken, said in (
        ("nan", {**config}, "weights are damaged"),
        ("wide", {**config, "model_args": {"dims": [10**9, 2]}}, "absurd"),
        ("none", {"label_names": NAMES}, "with the architecture's name"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(broken))
        values = {k: v * float("nan") if name == "nan" else v for k, v in state.items()}
        save_file(values, folder / "model.safetensors")
        with pytest.raises(UserError, match=said):
            TimmClassification(str(folder)).load()


def test_a_file_of_names_counts_by_what_it_says(tmp_path):
    folder = tiny.save_classifier(tmp_path / "vit")
    for name, lines in (("a", NAMES), ("b", NAMES), ("c", NAMES[::-1]), ("d", NAMES[:3])):
        (tmp_path / name).write_text("\n".join(lines))
    plain = ImageClassification(str(folder))
    a, b, c, d = (replace(plain, classes=str(tmp_path / name)) for name in "abcd")
    assert a.identity() == b.identity()
    assert len({plain.identity(), a.identity(), c.identity()}) == 3
    assert a.settings_hash() == b.settings_hash() != c.settings_hash()
    assert (a.load().classes, c.load().classes) == (tuple(NAMES), tuple(NAMES[::-1]))
    with pytest.raises(UserError, match=r"5 logits, and model\.classes has 3"):
        d.load()
    with pytest.raises(UserError, match="cannot be read"):
        replace(plain, classes=str(tmp_path / "none")).load()


def test_features_are_what_the_last_layer_reads(timm_folder, timm_model):
    model = TimmClassification(str(timm_folder)).load(FeatureExtractor)
    assert isinstance(model, FeatureExtractor)
    pixels = torch.randint(0, 256, (3, 3, 160, 160), dtype=torch.uint8)
    with torch.no_grad():
        features = model.extract(pixels)
        assert features.shape == (3, timm_model.head_hidden_size)
        torch.testing.assert_close(timm_model.head.fc(features), model.classify(pixels))


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((0, 2, 7, 8, 9), "names 5 classes, and the number 1 is missing"),
        ((0, 1, 2), r"classifier.bias \(\(5,\), not \(3,\) as config.json says\)"),
        (range(9), r"classifier.bias \(\(5,\), not \(9,\) as config.json says\)"),
    ],
)
def test_a_config_that_does_not_name_each_logit_is_refused(tmp_path, numbers, said):
    folder = tiny.save_classifier(tmp_path / "vit")
    config = json.loads((folder / "config.json").read_text())
    config |= {"id2label": {str(n): f"class {n}" for n in numbers}}
    config.pop("label2id", None)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=said):
        ImageClassification(str(folder)).load()


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


# The models that task=classification trains: a head that knows the labels is kept, and saved.


@pytest.fixture(scope="module")
def learners(timm_folder, files, tmp_path_factory):
    """A model of each library with the classes NAMES, and the name of its last layer's weight."""
    hf = tiny.save_classifier(tmp_path_factory.mktemp("hf") / "vit")
    names = str(files / "names.txt")
    return {
        "transformers": (ImageClassification(str(hf), classes=names), "classifier.weight"),
        "timm": (TimmClassification(str(timm_folder)), "head.fc.weight"),
        "torchvision": (
            TorchvisionClassification(
                str(files / "torchvision.pth"), "shufflenet_v2_x0_5", classes=names
            ),
            "fc.weight",
        ),
    }  # fmt: skip


LIBRARIES = ("transformers", "timm", "torchvision")
ANIMALS = ["cat", "dog", "eel"]


def pixels_of(model, count=2):
    size = model.transform.size
    made = torch.Generator().manual_seed(3)
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=made)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_head_that_knows_the_labels_is_kept_and_saved(library, learners, tmp_path):
    spec, _ = learners[library]
    plain, learner = spec.load(), spec.load_with_head(["star", "Ball"], 7, match_classes)
    assert learner.classes == plain.classes
    with torch.no_grad():
        for first, second in zip(learner.parameters(), plain.parameters(), strict=True):
            assert torch.equal(first, second)
            first += torch.arange(first.numel()).reshape(first.shape) % 3 / 10
        learner.eval().save(tmp_path / "checkpoint")
        again = spec.at(str(tmp_path / "checkpoint")).load()
        pixels = pixels_of(plain)
        torch.testing.assert_close(again.classify(pixels), learner.classify(pixels))
        assert not torch.allclose(again.classify(pixels), plain.classify(pixels))
    assert again.classes == plain.classes
    assert vars(again.transform) == vars(plain.transform)


@pytest.mark.parametrize("library", ["transformers", "timm"])
def test_labels_that_no_class_has_get_a_head_drawn_from_the_seed(library, learners, tmp_path):
    spec, name = learners[library]
    if library != "timm":  # whose folder has names of its own
        with pytest.raises(UserError, match=r"model\.classes names 5 classes, and no label"):
            spec.load_with_head(ANIMALS, 7, match_classes)
    if library == "transformers":
        spec = replace(spec, classes=None)
    first, again, other = (spec.load_with_head(ANIMALS, seed, match_classes) for seed in (7, 7, 8))
    plain = spec.load().model.state_dict()
    weights = [model.model.state_dict() for model in (first, again, other)]
    assert torch.equal(weights[0][name], weights[1][name])
    assert not torch.equal(weights[0][name], weights[2][name])
    assert len(weights[0][name]) == 3
    head = name.rpartition(".")[0]
    for key, value in weights[0].items():
        if not key.startswith(head):
            assert torch.equal(value, plain[key]), key
    first.save(tmp_path / "checkpoint")
    if library == "transformers":
        config = json.loads((tmp_path / "checkpoint" / "config.json").read_text())
        assert config["label2id"] == {name: int(n) for n, name in config["id2label"].items()}
    loaded = spec.at(str(tmp_path / "checkpoint")).load()
    assert loaded.classes == tuple(ANIMALS)
    with torch.no_grad():
        pixels = pixels_of(loaded)
        torch.testing.assert_close(loaded.classify(pixels), first.eval().classify(pixels))


def test_a_model_of_torchvision_gets_a_new_head_too(tmp_path):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        imagenet = torchvision.models.get_model("shufflenet_v2_x0_5")
    save_file(imagenet.state_dict(), tmp_path / "model.safetensors")
    spec = TorchvisionClassification(str(tmp_path / "model.safetensors"), "shufflenet_v2_x0_5")
    kept = spec.load_with_head(["n01440764", "goldfish"], 7, match_classes)
    assert len(kept.classes) == 1000
    fresh = spec.load_with_head(["zyzzyva", "quokka"], 7, match_classes)
    assert fresh.classes == ("zyzzyva", "quokka")
    known, state = imagenet.state_dict(), fresh.model.state_dict()
    assert [n for n in state if not torch.equal(state[n].float(), known[n].float())] == [
        "fc.weight", "fc.bias",
    ]  # fmt: skip
    fresh.save(tmp_path / "checkpoint")
    loaded = spec.at(str(tmp_path / "checkpoint"))
    assert loaded.load().classes == fresh.classes
    assert loaded.weights_hash() != spec.weights_hash()
    named = TorchvisionClassification(str(tmp_path / "checkpoint"), "shufflenet_v2_x0_5")
    assert named.load().classes == fresh.classes
    assert named.identity() == loaded.identity()
    with pytest.raises(UserError, match="further heads"):
        TorchvisionClassification("IMAGENET1K_V1", "googlenet").load_with_head(
            ["zyzzyva"], 7, match_classes
        )


def test_a_label_that_is_misspelt_is_named(learners):
    spec, _ = learners["timm"]
    with pytest.raises(UserError, match="cubbe"):
        spec.load_with_head(["ball", "cubbe"], 7, match_classes)


def test_a_folder_of_timm_in_several_files_is_refused(timm_folder, tmp_path):
    folder = shutil.copytree(timm_folder, tmp_path / "sharded")
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    (folder / "b.safetensors").touch()
    listing = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(listing))
    with pytest.raises(UserError, match="its weights are in 2 files, and timm reads one"):
        TimmClassification(str(folder)).load()
