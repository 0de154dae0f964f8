"""Tiny FLAVA, BridgeTower, ViLT: shipped weights know the drawings."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml

from cfaug.core.errors import UserError
from cfaug.core.protocols import Matcher
from cfaug.planning.build import build
from cfaug.shapescapes.zoo.command import read
from cfaug.shapescapes.zoo.fusion import FusionSettings
from cfaug.shapescapes.zoo.scenes import draw_unbiased

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
    node = yaml.safe_load((CONF / "model" / f"{file}.yaml").read_text())
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
    from cfaug.shapescapes.zoo.fusion import build_vilt

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
