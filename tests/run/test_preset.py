"""A model's preset brings its optimiser, schedule, batch and length; what is typed still counts."""

from __future__ import annotations

import json
from functools import partial

import pytest
import yaml

from cfaug.core.errors import UserError
from cfaug.planning.build import build
from cfaug.planning.training import TrainSettings, notes
from cfaug.settings.arguments import search_also
from cfaug.settings.compose import compose_jobs
from tests.contributed import contributed
from tests.files_of_settings import settings_files
from tests.run.conftest import compose, output_of, stdout_of

OWN = ("data=folder", "data.real=P", "data.counterfactual=C")
PAPER = {
    "optim.lr": 5e-7, "optim.weight_decay": 1e-3, "optim.warmup": 0,
    "trainer.max_steps": None, "trainer.max_epochs": 3, "trainer.val_every_steps": None,
    "data.batch_size": 128,
}  # fmt: skip
TINY = {
    "optim.lr": 6e-4, "optim.eps": 1e-6, "optim.warmup": 10, "trainer.max_steps": 150,
    "trainer.max_epochs": None, "trainer.val_every_steps": 50, "data.batch_size": 64,
}  # fmt: skip
ENTAILER = {  # METER's fine-tuning on SNLI-VE, at its cross-modal layers' rate
    "optim.lr": 1e-5, "optim.weight_decay": 0.01, "optim.warmup": 0.1,
    "trainer.max_steps": None, "trainer.max_epochs": 5, "data.batch_size": 64,
}  # fmt: skip
CLASSIFIER = {  # transformers' run_image_classification.py
    "optim.lr": 5e-5, "optim.weight_decay": 0.05, "trainer.max_steps": None,
    "trainer.max_epochs": 3, "data.batch_size": 64,
}  # fmt: skip
TINY_VQA = {**TINY, "optim.lr": 2e-3, "trainer.max_steps": 200}
TINY_ENTAILER = {**TINY, "trainer.max_steps": 1500, "trainer.val_every_steps": 250}
PRESETS = contributed("presets", "PRESETS") | {
    "paper": ("clip_vit_b32", PAPER), "tiny": ("tiny_clip", TINY),
    "tiny_vqa": ("tiny_vlm", TINY_VQA),
    "classification": ("classifier", CLASSIFIER), "entailment": ("vilt_entailer", ENTAILER),
    "tiny_entailment": ("tiny_vilt_entailer", TINY_ENTAILER),
}  # fmt: skip
"""{preset: (a model that names it, its numbers)}; papers have some of their own."""

KINDS = {
    **dict.fromkeys(("classifier", "timm", "torchvision"), "classification"),
    **{f"{name}_entailer": "entailment" for name in ("vilt", "bridgetower", "flava")},
    **{model: preset for preset, (model, _) in PRESETS.items()},
}


composed = partial(compose, "train")


def chosen(config, names):
    return {name: config[name.split(".")[0]][name.split(".")[1]] for name in names}


def test_every_shipped_model_names_the_preset_of_its_kind():
    files = settings_files("model")
    names = {file.name for file in files}
    for file in files:
        first, *_ = yaml.safe_load(file.read_text())["defaults"]
        usual = "tiny" if file.stem.startswith("tiny_") else "paper"
        wanted = {"/preset@_global_.preset": KINDS.get(file.stem, usual)}
        begins = isinstance(first, str) and f"{first}.yaml" in names
        assert begins or first == wanted, file.stem


@pytest.mark.parametrize("preset", PRESETS)
def test_the_preset_of_a_model_builds(preset):
    model, wanted = PRESETS[preset]
    config = composed(f"model={model}", *OWN)
    assert chosen(config, wanted) == wanted
    for group in ("data", "optim", "trainer"):
        assert build(config[group]) is not None


@pytest.mark.slow
def test_adapters_bring_their_rate_unless_an_optimiser_is_given():
    def rate(*words):
        return composed("model=clip_vit_b32", *OWN, *words)["optim"]["lr"]

    assert rate("tuning=lora") == 2e-4
    assert rate("tuning=lora", "optim=paper") == 5e-7
    assert rate("tuning=lora", "optim.lr=1e-5") == 1e-5
    assert rate("tuning=freeze_text") == 5e-7
    assert composed("tuning=lora")["optim"]["lr"] == 6e-4


@pytest.mark.slow
def test_what_is_typed_goes_before_the_preset():
    words = ("optim.lr=1e-5", "trainer.max_steps=7", "data.batch_size=32")
    config = composed("model=clip_vit_b32", *OWN, *words)
    assert (config["optim"]["lr"], config["data"]["batch_size"]) == (1e-5, 32)
    assert config["trainer"]["max_steps"] == 7
    config = composed("model=tiny_clip", "optim=paper", "trainer=paper")
    assert (config["optim"]["lr"], config["trainer"]["max_epochs"]) == (5e-7, 3)
    config = composed("model=clip_vit_b32", "preset=tiny")
    assert chosen(config, TINY) == TINY


def test_a_folder_of_ones_own_has_the_preset_of_its_group():
    config = composed("model=clip_vit_b32", "model.weights=/my/clip", *OWN)
    assert chosen(config, PAPER) == PAPER


def test_evaluation_takes_the_model_without_the_preset():
    config = compose("evaluate", "model=clip_vit_b32")
    assert "preset" not in config
    assert config["model"] == {
        "_target_": "cfaug.models.specs.HFClip", "weights": "openai/clip-vit-base-patch32",
        "revision": None, "max_length": None, "max_tokens": None, "geometry": None,
        "logit_scale_min": None, "logit_scale_max": None, "train_logit_scale": True,
    }  # fmt: skip


@pytest.mark.slow
def test_a_model_without_a_preset_is_told_how_to_name_one(tmp_path):
    (tmp_path / "conf/model").mkdir(parents=True)
    mine = {"_target_": "cfaug.models.specs.HFClip", "weights": "/my/clip"}
    (tmp_path / "conf/model/mine.yaml").write_text(yaml.safe_dump(mine))
    words = [search_also(str(tmp_path), "--config-dir"), "model=mine"]
    with pytest.raises(UserError, match=r"names no preset .* type preset=paper"):
        compose_jobs("train", words, multirun=False, command=TrainSettings)
    [(config, _)] = compose_jobs(
        "train", [*words, "preset=paper"], multirun=False, command=TrainSettings
    )
    assert chosen(config, PAPER) == PAPER


def test_settings_are_printed_with_their_numbers(script):
    words = ["--cfg", "job", *OWN, "model=clip_vit_b32", "tuning=lora"]
    config = yaml.safe_load(stdout_of(script("train"), words))
    assert chosen(config, PAPER) == {**PAPER, "optim.lr": 2e-4}
    assert "preset" not in config
    assert "optim.lr=0.0006 " in stdout_of(script("train"), ["optim", "--help"])
    assert "optim.lr=5e-07\n" in stdout_of(script("train"), ["model=clip_vit_b32", "--help"])


@pytest.mark.parametrize(
    ("lr", "tuning", "said"),
    [
        (5e-7, None, None),
        (4.9e-5, None, None),
        (6e-4, None, "1,200 times the rate of this model's preset, 5e-07"),
        (1e-9, None, "1/500 of the rate"),
        (6e-4, {"lora": {"r": 8}}, None),
        (5e-7, {"lora": {"r": 8}}, "1/400 of the rate of this model's preset, 0.0002"),
        (6e-4, {"lora": None}, "1,200 times"),
    ],
)
def test_a_rate_far_from_the_presets_is_said(lr, tuning, said):
    preset = {"optim": {"lr": 5e-7}, "lora": {"lr": 2e-4}}
    noted = notes(preset, {"lr": lr}, tuning)
    assert len(noted) == (said is not None)
    assert said is None or said in noted[0]


@pytest.mark.slow
def test_it_is_said_before_anything_starts_and_recorded(place):
    words = ["data.cf_ratio=0", "seed=1", "optim.lr=6e-7"]
    out, err = output_of(place.train, *words, "dry_run=json")
    said = "optim.lr=6e-07 is 1/1,000 of the rate"
    assert said in err
    assert said in json.loads(out.splitlines()[-1])["notes"][0]
    assert place.train(*words) == 0
    assert said in place.record(seed=1)["notes"][0]
    assert not any("preset" in key for key in place.record(seed=1)["identity"])
    assert "preset" not in (place.root / "main/run/seed=1/config.yaml").read_text()


@pytest.mark.slow
def test_epochs_that_would_be_ignored_are_refused(place, capsys):
    words = ["data.cf_ratio=0", "trainer.max_epochs=2", "dry_run=json"]
    words += ["data.world.real_scenes=80", "data.world.counterfactual_pairs=40", *place.paths]
    assert place.script("train")(words) == 2
    said = "trainer.max_epochs=2 has no effect beside trainer.max_steps=150"
    assert said in capsys.readouterr().err
    assert place.script("train")([*words, "trainer.max_steps=null"]) == 0
