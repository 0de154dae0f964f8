from __future__ import annotations

import errno
import hashlib
import os
import resource
from collections.abc import Callable
from dataclasses import fields, replace
from inspect import signature
from subprocess import Popen
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from cfaug.core import protocols
from cfaug.core.atomic_files import temporary_name
from cfaug.core.errors import UserError
from cfaug.core.outputs import RECORD
from cfaug.core.protocols import Classifier, DualEncoder, NoModel
from cfaug.core.weights import find_weights, names_folder, resolve
from cfaug.evaluation.adapting import loadable_as
from cfaug.models.checkpoints import replace_checkpoint
from cfaug.models.classifier_specs import TorchvisionClassification
from cfaug.models.specs import HFClip, NoModelSpec, OpenClip, ViltMatching, every
from cfaug.planning.build import SETTINGS_OF_A_RUN

MODELS = [
    protocols.DualEncoder, protocols.Matcher, protocols.Classifier, protocols.Answerer,
    protocols.Entailer, protocols.Captioner, protocols.Detector, protocols.LanguageModel,
    protocols.FeatureExtractor,
]  # fmt: skip


def test_the_hash_is_of_the_weights_wherever_they_lie(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(b"weights")
    first, second = (HFClip(str(tmp_path / name)).weights_hash() for name in ("a", "b"))
    assert first == second == hashlib.sha256(b"weights").hexdigest()
    (tmp_path / "b" / "model.safetensors").write_bytes(b"other weights")
    assert HFClip(str(tmp_path / "b")).weights_hash() != first
    (tmp_path / "a" / "open_clip_model.safetensors").write_bytes(b"weights")
    assert OpenClip(str(tmp_path / "a")).weights_hash() == first
    assert OpenClip(str(tmp_path / "a" / "model.safetensors"), "ViT-B-32").weights_hash() == first


def test_a_tag_is_hashed_by_name():
    hashes = {OpenClip(tag, "ViT-B-32").weights_hash() for tag in ("openai", "laion2b_e16")}
    assert len(hashes) == 2


def test_sharded_weights_are_all_found(tmp_path):
    listing = '{"weight_map": {"x": "model-2.safetensors", "y": "model-1.safetensors"}}'
    (tmp_path / "model.safetensors.index.json").write_text(listing)
    for number in (1, 2):
        (tmp_path / f"model-{number}.safetensors").touch()
    names = [path.name for path in find_weights(tmp_path)]
    assert names == ["model-1.safetensors", "model-2.safetensors"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("zoo:nothing-of-this-name", "not in the zoo"),
        ("/no/such/folder", "no such folder"),
        ("./no-such-folder", "no such folder"),
        ("runs/start/seed=1/checkpoint", "train that one first"),
        ("nobody/has-this-model", "hf download nobody/has-this-model"),
    ],
)
def test_what_is_not_there_is_said_with_what_to_do(name, words, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=words):
        resolve(name)


def test_the_same_settings_for_what_a_run_saved():
    before = HFClip("someone/model", revision="main", max_length=5)
    assert before.at("runs/checkpoint") == HFClip("runs/checkpoint", max_length=5)
    other = OpenClip("openai", "ViT-B-32", logit_scale_max=None)
    assert other.at("runs/x") == OpenClip("runs/x", logit_scale_max=None)
    assert other.at("laion2b_e16").architecture == "ViT-B-32"


def test_a_folder_says_its_architecture_and_a_tag_or_a_file_does_not(tmp_path):
    from tests.models import tiny

    folder = tiny.save_open_clip(tmp_path / "openai")
    named = OpenClip(str(folder), "ViT-B-32")  # as a file of settings has it for a tag
    assert (named.identity(), named.settings_hash()) == (
        OpenClip(str(folder)).identity(), OpenClip(str(folder)).settings_hash(),
    )  # fmt: skip
    assert names_folder("zoo:clip-0")
    assert names_folder("someone/model")
    assert not names_folder("laion2b_s34b_b79k")
    assert not names_folder(str(folder / "open_clip_model.safetensors"))
    for weights in ("openai", str(folder / "open_clip_model.safetensors")):
        with pytest.raises(UserError, match=r"add model\.architecture=NAME"):
            OpenClip(weights).identity()
    with pytest.raises(UserError, match=r"type weights=someone/model, and no architecture"):
        OpenClip("openai", "hf-hub:someone/model")


def test_a_file_is_not_a_folder(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match="give the folder"):
        resolve(str(tmp_path / "model.safetensors"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: HFClip("x", logit_scale_min=2.0, logit_scale_max=1.0),
        lambda: HFClip("x", max_length=0),
        lambda: OpenClip("openai").weights_hash(),
        lambda: OpenClip("local-dir:x"),
        lambda: OpenClip("openai", "hf-hub:someone/model"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make):
    with pytest.raises(UserError, match="model"):
        make()


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path):
    target = tmp_path / "checkpoint"
    dead = Popen(["true"])
    dead.wait()
    name = temporary_name(target).name.replace(f"-{os.getpid()}.", f"-{dead.pid}.")
    (tmp_path / name).mkdir()  # as a killed process leaves it
    (tmp_path / name / "half").write_text("")
    with replace_checkpoint(target) as fresh:
        (fresh / "file").write_text("first")
    assert {path.name for path in target.iterdir()} == {"file", RECORD}

    def fail():
        with replace_checkpoint(target) as fresh:
            (fresh / "file").write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert (target / "file").read_text() == "first"
    with replace_checkpoint(target) as fresh:
        (fresh / "other").write_text("second")
    assert {path.name for path in target.iterdir()} == {"other", RECORD}
    assert list(tmp_path.iterdir()) == [target]


def test_every_setting_that_changes_an_answer_is_in_the_identity(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    plain = HFClip(str(tmp_path))
    assert plain.identity() == plain.weights_hash()
    assert HFClip(str(tmp_path), logit_scale_max=1.0).identity() == plain.identity()
    others = [{"max_length": 4}, {"max_length": 5}, {"geometry": "squash"}, {"geometry": "crop"}]
    identities = {HFClip(str(tmp_path), **settings).identity() for settings in others}
    assert len(identities | {plain.identity()}) == 5
    file = str(tmp_path / "model.safetensors")
    names = ("ViT-B-32", "ViT-B-32-quickgelu")  # the same tensors, read by another activation
    assert len({OpenClip(file, name).identity() for name in names}) == 2


def test_a_file_of_open_clip_train_is_evaluated_by_its_architecture(tmp_path, monkeypatch):
    import json

    import torch
    from open_clip import factory
    from safetensors.torch import load_file

    from tests.models import tiny

    folder = tiny.save_open_clip(tmp_path / "folder")
    config = json.loads((folder / "open_clip_config.json").read_text())["model_cfg"]
    monkeypatch.setitem(factory._MODEL_CONFIGS, "tiny", config)
    weights = load_file(folder / "open_clip_model.safetensors")
    file = tmp_path / "epoch_1.pt"
    torch.save({"epoch": 1, "name": "x", "state_dict": weights, "optimizer": {"lr": 1e-3}}, file)
    spec = OpenClip("some_tag", "tiny").at(str(file))
    tokens = spec.load().tokenize(tiny.CAPTIONS)
    with torch.no_grad():
        embeddings = spec.load().encode_text(tokens)
        torch.testing.assert_close(embeddings, OpenClip(str(folder)).load().encode_text(tokens))
    with pytest.raises(UserError, match=r"model\.architecture=NAME"):
        OpenClip(str(folder)).at(str(file)).weights_hash()
    with pytest.raises(UserError, match=r"model=open_clip model\.architecture=NAME"):
        HFClip(str(file)).weights_hash()


def test_every_kind_of_model_says_what_it_provides_and_refuses_the_rest():
    for kind in every():
        named = {OpenClip: ("openai", "ViT-B-32"), TorchvisionClassification: ("A_TAG", "resnet18")}
        spec = kind(*named.get(kind, ("someone/model",)))
        assert spec.provides
        assert next(iter(signature(kind).parameters)) == "weights"
        for protocol in set(MODELS) - set(spec.provides):
            with pytest.raises(UserError, match=f"not as {protocol.__name__}"):
                spec.load(protocol)
        if DualEncoder in spec.provides:
            spec.check_trainable()
        else:
            with pytest.raises(UserError, match="cannot be fine-tuned"):
                spec.check_trainable()


def test_a_run_may_name_every_kind_of_model_and_no_other():
    assert {f"{kind.__module__}.{kind.__name__}" for kind in every()} <= SETTINGS_OF_A_RUN
    assert "cfaug.models.specs.every" not in SETTINGS_OF_A_RUN
    assert "cfaug.models.specs.Folder" not in SETTINGS_OF_A_RUN
    assert {"HFClip", "ViltMatching", "ObjectDetection"} <= {kind.__name__ for kind in every()}


def test_hashes_are_those_of_results_made_before():
    """Results, cached features and runs are found by them."""
    plain, changed = HFClip("zoo:clip-0"), HFClip("zoo:clip-0", max_length=6, geometry="squash")
    assert plain.identity() == plain.weights_hash()
    assert replace(plain, logit_scale_max=4.6052).identity() == plain.identity()
    assert changed.identity().startswith("e39748016f91")
    assert plain.settings_hash().startswith("d0af5e0af08c")
    assert changed.settings_hash().startswith("f49ab7dc348c")
    assert ViltMatching("zoo:vilt-0", max_length=9).identity().startswith("4110e04f2caf")
    assert ViltMatching("zoo:vilt-0", max_length=9).settings_hash().startswith("14b60a4a60a2")


def test_a_specification_is_written_as_it_is_typed():
    """Cards of generated shards hold it."""
    written = "HFClip(weights='a/b', revision=None, max_length=5, geometry=None, "
    assert (
        str(HFClip("a/b", max_length=5)) == f"{written}logit_scale_min=None, logit_scale_max=None)"
    )


@pytest.fixture
def small_files():
    """Files beyond 1,000 bytes are refused by the system, as all are by a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def by_safetensors(folder) -> None:
    save_file({"weight": torch.zeros(4000)}, folder / "model.safetensors")


def by_python(folder) -> None:
    (folder / "config.json").write_text("x" * 4000)


@pytest.mark.parametrize("write", [by_safetensors, by_python])
def test_what_the_disk_refuses_is_an_error_of_the_disk(tmp_path, small_files, write):
    folder = tmp_path / "checkpoint"
    with replace_checkpoint(folder) as fresh:
        (fresh / "old").touch()
    with (
        pytest.raises(OSError, match="File too large") as raised,
        replace_checkpoint(folder) as fresh,
    ):
        write(fresh)
    assert raised.value.errno == errno.EFBIG
    assert raised.value.filename == str(folder)
    assert {file.name for file in folder.iterdir()} == {"old", RECORD}
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint"]


def test_a_model_card_outlives_the_weights_that_it_was_written_for(tmp_path):
    folder = tmp_path / "checkpoint"
    for name in ("README.md", "other"):
        with replace_checkpoint(folder) as fresh:
            assert list(fresh.iterdir()) == []
            (fresh / name).write_text(name)
    assert {file.name for file in folder.iterdir()} == {"README.md", "other", RECORD}
    assert (folder / "README.md").read_text() == "README.md"


def test_other_errors_of_safetensors_are_themselves(tmp_path):
    from safetensors import SafetensorError

    with pytest.raises(SafetensorError, match="odd"), replace_checkpoint(tmp_path / "checkpoint"):
        raise SafetensorError("odd")


def test_a_benchmark_that_asks_no_model_can_be_asked_of_any():
    question = SimpleNamespace(needs=NoModel)
    for provides in (NoModelSpec.provides, (DualEncoder,), (Classifier,)):
        assert loadable_as(question, provides) is NoModel
    assert loadable_as(SimpleNamespace(needs=DualEncoder), NoModelSpec.provides) is None


def test_it_is_always_the_same_and_cannot_be_trained():
    spec = NoModelSpec()
    assert spec.at("checkpoint").on_this_machine().identity() == spec.identity()
    assert isinstance(spec.load(), NoModel)
    assert spec.parameters() is None
    with pytest.raises(UserError, match="there is no model to train"):
        spec.check_trainable()


WHERE = ("weights", "revision")
"""Settings that name the weights, by whose hash results are recognised."""
SPEED_OR_TRAINING = {
    "sharing": "speed: an image is processed once, or once for each question",
    "tokens_at_once": "memory",
    "logit_scale_min": "training, refused by evaluate.py",
    "logit_scale_max": "training, refused by evaluate.py",
    "train_logit_scale": "training, refused by evaluate.py",
}
OTHERS: dict[str, Any] = {
    "max_length": 9, "geometry": "squash", "classes": "names.txt", "labels": ("a", "b", "c"),
    "prompt": "{image}{question}", "wording": "labels", "reduction": "token_mean",
    "dtype": "float16", "prefix": "a", "num_beams": 2, "max_new_tokens": 2, "min_new_tokens": 2,
    "repetition_penalty": 2.0, "threshold": 0.9, "vocabulary": "names.txt", "template": "a {label}",
    "overlap": 0.9, "most": 2, "architecture": "other", "prepared_as": "DEFAULT",
    "max_tokens": 248,
}  # fmt: skip
"""Another value of every other setting of a model."""
NEEDED: dict[str, Callable[..., Any]] = {
    "OpenClip": lambda kind: kind("openai", "RN50"),
    "TorchvisionClassification": lambda kind: kind("file", "resnet50"),
    "InceptionFeatures": lambda kind: kind("file"),
}


@pytest.mark.parametrize("kind", [spec for spec in every() if hasattr(spec, "provides")])
def test_every_setting_of_a_model_changes_its_identity(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "names.txt").write_text("a\nb\n")
    usual = NEEDED.get(kind.__name__, lambda kind: kind("somewhere"))(kind)
    for field in fields(kind):
        if field.name in (*WHERE, *SPEED_OR_TRAINING):
            continue
        other = replace(usual, **{field.name: OTHERS[field.name]})
        assert other.answering() != usual.answering(), field.name
