"""Tiny captioner, classifiers, entailer and fusion models: what they learn, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from cfaug.core.errors import UserError
from cfaug.core.protocols import Entailer, Matcher
from cfaug.core.types import ENTAILMENT
from cfaug.core.weights import resolve
from cfaug.models.task_specs import ViltEntailment
from cfaug.planning.build import build
from cfaug.worlds.shapescapes.drawing import render
from cfaug.worlds.shapescapes.judge import DOMAIN_WEIGHTS, WEIGHTS, load_judge
from cfaug.worlds.shapescapes.language import describe
from cfaug.worlds.shapescapes.settings import DOMAINS, FACTORS, words_of_domains
from tests.files_of_settings import settings_file
from tests.zoo.cards import card
from zoo.captioner import build_tokenizer, scenes, tokenize
from zoo.classifier import ClassifierSettings, draw_scenes, edits, show
from zoo.command import read
from zoo.entailment import HYPOTHESES, EntailmentSettings
from zoo.entailment import draw as draw_entailment
from zoo.entailment import evaluate as evaluate_entailer
from zoo.factor_classifier import JudgeSettings
from zoo.factor_classifier import evaluate as evaluate_judge
from zoo.factor_classifier import main as main_judge
from zoo.fusion import FusionSettings
from zoo.model import TRANSFORM
from zoo.scenes import draw as draw_scenes_of
from zoo.scenes import draw_unbiased


def test_what_is_learnt_is_the_caption_and_its_end() -> None:
    factors = scenes(5, "test-captioner", 3).factors
    tokens = tokenize(factors)
    tokenizer = build_tokenizer()
    for row, shown in enumerate(factors):
        ids, labels = tokens["input_ids"][row], tokens["labels"][row]
        assert (ids[:16] == tokenizer.convert_tokens_to_ids("<image>")).all()
        learnt = tokenizer.decode(labels[labels != -100])
        assert learnt == f"{describe(shown)} <|endoftext|>"
        assert (labels[:16] == -100).all()
    assert all(tokenizer(word).input_ids != [1] for word in words_of_domains())


PLANTED = {"background": "background", "colour": "colour", "style": "domain", "none": None}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shortcut", PLANTED)
def test_each_leans_on_its_planted_factor_alone(shortcut: str, seed: int) -> None:
    name = f"classifier-{shortcut}-{seed}"
    metrics = card(name)["metrics"]
    for kind in ("colour", "background", "domain"):
        if kind == PLANTED[shortcut]:
            assert metrics[f"drop_{kind}"] > 0.4
        else:
            assert abs(metrics[f"drop_{kind}"]) < 0.12
    assert metrics["iid_acc1"] > 0.6
    assert card(name)["settings"]["shortcut"] == shortcut
    assert (resolve(f"zoo:{name}") / "model.safetensors").stat().st_size <= 150_000


def test_training_and_evaluation_scenes_differ_and_edits_change_one_factor() -> None:
    world = ClassifierSettings(out="x", shortcut="colour").scenery
    parts = ("classifier-0", "classifier-1", "classifier-held-out")
    train, _, held_out = every = [draw_scenes(world, part, 40) for part in parts]
    assert len({scene.seed for scenes in every for scene in scenes}) == 120
    for kind in world.values:
        for before, after in zip(held_out, edits(held_out, world, kind), strict=True):
            assert before.seed == after.seed
            differing = [k for k, v in vars(before.factors).items() if v != vars(after.factors)[k]]
            assert differing == [kind]
    pixels = show(train[:3], world)
    assert pixels.shape == (3, 3, 32, 32)
    image = render(train[0], 64, world.settings.drawing_style()).image()
    assert np.array_equal(pixels[0], TRANSFORM(image))


def test_an_unknown_shortcut_is_refused() -> None:
    settings = read(ClassifierSettings, ["out=x", "shortcut=texture"])
    with pytest.raises(UserError, match="choose from background"):
        _ = settings.scenery


def test_the_shipped_judges_read_scenes_they_have_not_seen() -> None:
    measured = evaluate_judge(load_judge(), draw_scenes_of(1, "test-judge", 150))
    assert measured["subject_acc1"] >= 0.97
    assert min(measured["colour_acc1"], measured["background_acc1"]) >= 0.99
    shipped = card("judge-domains")["metrics"]
    measured = evaluate_judge(
        load_judge(DOMAIN_WEIGHTS), draw_scenes_of(1, "test-judge", 100, domains=DOMAINS)
    )
    for name in FACTORS:
        assert measured[f"{name}_acc1"] >= shipped[f"{name}_acc1"] - 0.05, name


def test_probabilities_and_factors_agree_row_by_row() -> None:
    pixels = draw_scenes_of(2, "test-judge", 5).pixels
    judge = load_judge()
    shares = judge.probabilities(pixels)
    assert {kind: p.shape for kind, p in shares.items()} == {
        "subject": (5, 10), "colour": (5, 8), "background": (5, 8),
    }  # fmt: skip
    for p in shares.values():
        assert np.allclose(p.sum(axis=1), 1, atol=1e-5)
    alone = [judge.factors(pixels[i : i + 1])[0] for i in range(5)]
    assert alone == judge.factors(pixels)


@pytest.mark.parametrize(
    "pixels", [np.zeros((1, 3, 32, 32), np.uint8), np.zeros((1, 3, 64, 64), np.float32)]
)
def test_other_pixels_are_refused(pixels: np.ndarray) -> None:
    with pytest.raises(UserError, match="uint8 pixels"):
        load_judge().factors(pixels)


def test_a_folder_without_a_judge_of_this_world_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"python -m zoo factor_classifier"):
        load_judge(tmp_path)
    shutil.copytree(WEIGHTS, tmp_path / "other")
    (tmp_path / "other" / "config.json").write_text('{"widths": [1], "factors": {}}')
    with pytest.raises(UserError, match="another world"):
        load_judge(tmp_path / "other")


@pytest.mark.slow
def test_a_judge_that_goes_on_from_another_begins_with_its_weights(tmp_path: Path) -> None:
    arguments = ["scenes=20", "steps=0", "batch_size=4", "held_out=40", "processes=1"]
    arguments += [f"domains={','.join(DOMAINS)}", "start=zoo:judge", f"out={tmp_path / 'a'}"]
    assert main_judge(arguments) == 0
    judge, scenes = load_judge(tmp_path / "a"), draw_scenes_of(3, "test-judge", 30)
    assert list(judge.choices) == list(FACTORS)
    first, second = judge.probabilities(scenes.pixels), load_judge().probabilities(scenes.pixels)
    for kind, shares in second.items():
        assert np.allclose(first[kind], shares, atol=1e-4)


def test_an_unknown_domain_is_refused() -> None:
    with pytest.raises(UserError, match="choose from photo, sketch"):
        read(JudgeSettings, ["out=x", "domains=photo,statue"])


def test_the_shipped_entailer_is_what_its_card_says() -> None:
    recorded = card("entailer-0")
    # The command's defaults are what was shipped.
    assert EntailmentSettings(out="x", **recorded["settings"]) == EntailmentSettings(out="x")
    shipped = ViltEntailment("zoo:entailer-0").load(Entailer)
    assert recorded["parameters"] == sum(parameter.numel() for parameter in shipped.parameters())
    measured = evaluate_entailer(
        resolve("zoo:entailer-0"), EntailmentSettings(out="x", seed=7, held_out=48)
    )
    assert measured["n"] == 48 * HYPOTHESES
    # Three standard errors below what the card says.
    assert measured["accuracy"] > recorded["metrics"]["accuracy"] - 3 * np.sqrt(
        0.09 / measured["n"]
    )


def test_drawings_are_balanced_the_same_again_and_others_in_another_part() -> None:
    first, again, other = (
        draw_entailment(1, "train", 12),
        draw_entailment(1, "train", 12),
        draw_entailment(1, "held-out", 12),
    )
    assert (first.pixels == again.pixels).all()
    assert first.texts == again.texts
    assert first.texts != other.texts
    assert np.bincount(first.labels).tolist() == [12] * len(ENTAILMENT)
    assert first.hidden.count("colour") == first.hidden.count("background") == 12


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UserError, match="choose from bridgetower, flava, vilt"):
        EntailmentSettings(out="x", kind="bert")


CONF = Path(__file__).parents[3] / "conf"


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("tiny_clip", "cosine x scale"),
        ("tiny_flava", "cosine x scale"),
        ("tiny_bridgetower", "cosine x scale"),
        ("tiny_bridgetower_itm", "probability"),
        ("tiny_vilt", "logit"),
    ],
)
def test_the_tiny_configurations_score_a_drawing_above_a_lie(file: str, kind: str) -> None:
    node = yaml.safe_load(settings_file(f"model/{file}").read_text())
    spec = build({key: value for key, value in node.items() if key != "defaults"})
    matcher = spec.load(Matcher)
    assert matcher.kind == kind
    drawings = draw_unbiased(9, "test", 40)
    pixels = torch.from_numpy(drawings.pixels)
    lies = drawings.texts[1:] + drawings.texts[:1]
    with torch.inference_mode():
        true, false = (matcher.match(pixels, texts) for texts in (drawings.texts, lies))
    assert (true > false).float().mean() > 0.75


def test_vilt_starts_from_flavas_image_tower() -> None:
    from cfaug.models.specs import HFClip
    from zoo.fusion import build_vilt

    flava = HFClip("zoo:flava-0").load().model
    vilt = build_vilt(flava).vilt
    theirs = dict(flava.image_model.encoder.named_parameters())
    ours = dict(vilt.encoder.named_parameters())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["kind=blip", "out=x"], "flava, bridgetower"),
        (["kind=vilt", "out=x"], "start=FOLDER"),
        (["kind=flava", "start=zoo:flava-0", "out=x"], "leave out start"),
        ([], "out=FOLDER"),
    ],
)
def test_settings_that_make_no_sense_are_refused(arguments: list[str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        read(FusionSettings, arguments)
