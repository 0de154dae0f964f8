"""Every shipped model is small and as good as its card says; a command makes it again."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.weights import resolve
from cfaug.worlds.shapescapes.question_parts import CATEGORIES
from cfaug.worlds.shapescapes.settings import DOMAINS
from tests.zoo.cards import card
from zoo import COMMANDS
from zoo.captioner import CaptionerSettings
from zoo.classifier import ClassifierSettings
from zoo.clip import DomainSettings, PretrainSettings, ThingsSettings
from zoo.emoji.clip import EmojiSettings
from zoo.entailment import EntailmentSettings
from zoo.fusion import FusionSettings
from zoo.vlm import VlmSettings

BYTES = {
    "bridgetower-0": 2e6, "bridgetower-itm-0": 2e6, "captioner": 2.5e6, "clip-0": 1.2e6,
    "clip-1": 1.2e6, "clip-domains": 1.2e6, "clip-things": 1.2e6, "diffusion": 7.7e6,
    "emoji-0": 1e6, "emoji-1": 1e6, "entailer-0": 1.5e6, "flava-0": 2e6, "judge": 6e5,
    "language": 5.2e6, "perturber": 1.5 * 2**20, "vilt-0": 2e6, "vlm-basic-0": 1.6e6,
    "vlm-both-0": 1.6e6,
}  # fmt: skip

TOWERS = {"subject_acc1": 0.6, "colour_acc1": 0.8, "background_acc1": 0.8}
MATCHERS = {"auc": 0.85, "subject_auc": 0.6, "colour_auc": 0.6, "background_auc": 0.6}
EMOJI = {
    "noto_names_r1": 0.35, "noto_pairs_group": 0.45, "fluent_names_r1": 0.1,
    "twemoji_names_r1": 0.1, "fluent_pairs_group": 0.25, "twemoji_pairs_group": 0.25,
}  # fmt: skip
KNOWN = {
    "bridgetower-0": TOWERS, "flava-0": TOWERS, "bridgetower-itm-0": MATCHERS, "vilt-0": MATCHERS,
    "clip-0": {"subject_acc1": 0.7}, "clip-1": {"subject_acc1": 0.7},
    "emoji-0": EMOJI, "emoji-1": EMOJI,
    "entailer-0": {"accuracy": 0.9}, "judge": {"all_acc1": 0.99},
    "judge-domains": {"domain_acc1": 0.99}, "language": {"masked_acc10": 0.75},
    "vlm-basic-0": {"acc_b": 0.95}, "vlm-both-0": {"acc_b": 0.95, "acc_c": 0.9},
}  # fmt: skip
"""The least values of some metrics."""

CLASSIFIERS = [f"classifier-{shortcut}-0" for shortcut in ("background", "colour", "style", "none")]
RECOMPUTED = {
    "captioner": (CaptionerSettings, "captioner", 0.02),
    **dict.fromkeys(CLASSIFIERS, (ClassifierSettings, "classifier", 0.011)),
    # float16 on disk: a scene or two may tip over.
    **dict.fromkeys(("clip-0", "clip-1"), (PretrainSettings, "clip", 0.005)),
    "clip-domains": (DomainSettings, "clip_domains", 0.005),
    "clip-things": (ThingsSettings, "clip_things", 0.025),
    # float16 on disk: of 200 names or pairs, one or two may tip over.
    **dict.fromkeys(("emoji-0", "emoji-1"), (EmojiSettings, "emoji_clip", 0.011)),
    "entailer-0": (EntailmentSettings, "entailment", 0.005),
    **dict.fromkeys(
        ("flava-0", "bridgetower-0", "vilt-0", "bridgetower-itm-0"),
        (FusionSettings, "fusion", 0.005),
    ),
    "vlm-both-0": (VlmSettings, "vlm", 0.02),
}
"""The settings of a model, the command that trains it, and how far a metric may be off."""

FUSION = "fusion seed=5 scenes=40 steps=2 batch_size=8 held_out=12 kind="
ENTAILMENT = "entailment seed=5 scenes=24 steps=2 batch_size=4 held_out=6 kind="
REBUILT = {
    "clip-0": "clip seed=5 scenes=40 steps=3 batch_size=8 held_out=10",
    "judge": "factor_classifier seed=5 scenes=20 steps=2 batch_size=4 held_out=4 processes=1",
    "captioner": "captioner scenes=20 steps=2 batch_size=4 held_out=5 seed=4",
    "classifier-style-0": "classifier shortcut=style scenes=40 steps=3 batch_size=8 held_out=10",
    "clip-domains": "clip_domains scenes=70 steps=2 held_out=8",
    "clip-things": "clip_things scenes=256 steps=4 held_out=16",
    "diffusion": "diffusion scenes=8 processes=1 drawings=2 vae_steps=1 decoder_steps=1 "
    "decoder_rounds=2 vae_batch=2 steps=2 focus_from=1 batch_size=2 save_every=2 held_out=2",
    "diffusion-domains": "diffusion_domains scenes=8 processes=1 decoder_steps=1 vae_batch=2 "
    "steps=2 focus_from=1 batch_size=2 save_every=2 held_out=2",
    "emoji-0": "emoji_clip seed=5 steps=2",
    "entailer-0": f"{ENTAILMENT}vilt start=zoo:vilt-0",
    "entailer-0 of another kind": f"{ENTAILMENT}bridgetower start=zoo:bridgetower-itm-0",
    "flava-0": f"{FUSION}flava",
    "bridgetower-0": f"{FUSION}bridgetower",
    "vilt-0": f"{FUSION}vilt start=zoo:flava-0",
    "bridgetower-itm-0": f"{FUSION}bridgetower-itm start=zoo:bridgetower-0",
    "perturber": "perturber captions=30 base_steps=2 tune_steps=2 tested=1 warmup=1",
    "vlm-basic-0": "vlm pairs=12 steps=3 tower_steps=2 tower_batch_size=4 batch_size=8 held_out=6 "
    "basic_steps=1 seed=4",
}
QUICK = ("clip-0", "judge")
WEIGHTS = {"diffusion": 3, "diffusion_domains": 3, "perturber": 2}


@pytest.mark.parametrize("name", BYTES)
def test_it_is_small(name: str) -> None:
    assert sum(file.stat().st_size for file in resolve(f"zoo:{name}").rglob("*")) < BYTES[name]


@pytest.mark.parametrize("name", KNOWN)
def test_it_knows_the_world(name: str) -> None:
    metrics = card(name)["metrics"]
    assert all(metrics[metric] >= least for metric, least in KNOWN[name].items())


@pytest.mark.slow
@pytest.mark.parametrize("name", RECOMPUTED)
def test_its_card_is_recomputed_from_the_weights(name: str) -> None:
    kind, command, far = RECOMPUTED[name]
    shipped = card(name)
    assert shipped["command"].startswith(f"python -m zoo {command} out=FOLDER")
    file, _, main = COMMANDS[command].rpartition(".")
    evaluate = getattr(import_module(f"zoo.{file}"), f"evaluate{main.removeprefix('main')}")
    measured = evaluate(resolve(f"zoo:{name}"), kind(out="x", **shipped["settings"]))
    for metric, value in shipped["metrics"].items():
        assert measured[metric] == pytest.approx(value, abs=far), metric


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in REBUILT],
)
def test_its_command_rebuilds_the_same_bytes(name: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    command, *words = REBUILT[name].split()
    file, _, function = COMMANDS[command].rpartition(".")
    main = getattr(import_module(f"zoo.{file}"), function)
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        assert main([*words, f"out={folder}"]) == 0
    files = sorted(first.rglob("*.safetensors"))
    assert len(files) == WEIGHTS.get(command, 1)
    for file in files:
        assert file.read_bytes() == (second / file.relative_to(first)).read_bytes()
        assert {tensor.dtype for tensor in load_file(file).values()} == {torch.float16}
    made, shipped = json.loads((first / "card.json").read_text()), card(name.split()[0])
    assert f" {words[0]} " in made["command"]
    # So few scenes need not be of every domain and category.
    missing = set(shipped["metrics"]) - set(made["metrics"])
    assert {metric.split("_")[-1] for metric in missing} <= {*DOMAINS, *CATEGORIES}
    with pytest.raises(UserError, match="already"):
        main([*words, f"out={first}"])
