"""Pre-train the tiny FLAVA, BridgeTower and ViLT on clean drawings.

``python -m cfaug zoo fusion kind=flava out=DIR`` or ``kind=bridgetower``; then the matchers, which
continue from trained towers as their authors do: ``kind=vilt start=zoo:flava-0``,
``kind=bridgetower-itm start=zoo:bridgetower-0``.

Towers learn by their own contrastive loss and by a cross-entropy of every image over the names of
the subjects, for which colour and background do not help. Matchers distinguish an image's caption
from one of the batch that is false for it. Drawings are mirrored and shifted by up to two pixels.
Rebuilding with the seed, threads and versions in ``card.json`` gives the same metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch

from cfaug.core.errors import UserError
from cfaug.core.protocols import DualEncoder, Matcher
from cfaug.core.rng import derive
from cfaug.core.validation import OneOf, check_fields
from cfaug.models.bridgetower import BridgeTowerEncoder, BridgeTowerMatcher
from cfaug.models.hf_clip import HFEncoder
from cfaug.models.specs import BridgeTower, BridgeTowerMatching, HFClip, ViltMatching
from cfaug.models.vilt import ViltMatcher
from cfaug.shapescapes.zoo import fusion_models as tiny
from cfaug.shapescapes.zoo.command import make_model, read, run, save_half
from cfaug.shapescapes.zoo.drawings import Drawings, draw_unbiased
from cfaug.shapescapes.zoo.fitting import DrawingSettings
from cfaug.shapescapes.zoo.fusion_training import separation, train_matcher, train_towers, zero_shot

LOG_SCALE_BOUNDS = (0.0, 4.6052)


@dataclass(frozen=True)
class Kind:
    """The functions that build, save and load one of the models.

    Attributes:
        build: a function that returns the model of transformers, from trained towers if ``start``
            loads them.
        processor: a function that returns the model's processor.
        wrap: a function that wraps the model in our protocol.
        spec: a function that loads the saved model.
        start: a function that loads the initial towers; ``None`` for a model trained from scratch.
    """

    build: Callable[..., Any]
    processor: Callable[[], Any]
    wrap: Callable[..., Any]
    spec: Callable[[str], Any]
    start: Callable[[str], Any] | None = None


KINDS = {
    "flava": Kind(tiny.build_flava, tiny.flava_processor, HFEncoder, HFClip),
    "bridgetower": Kind(
        tiny.build_bridgetower, tiny.bridgetower_processor, BridgeTowerEncoder, BridgeTower
    ),
    "vilt": Kind(tiny.build_vilt, tiny.vilt_processor, ViltMatcher, ViltMatching, HFClip),
    "bridgetower-itm": Kind(
        tiny.build_bridgetower_itm,
        tiny.bridgetower_processor,
        BridgeTowerMatcher,
        BridgeTowerMatching,
        BridgeTower,
    ),
}


@dataclass(frozen=True, kw_only=True)
class FusionSettings(DrawingSettings):
    """The settings of the command, given as ``name=value``.

    Attributes: those of :class:`cfaug.shapescapes.zoo.fitting.DrawingSettings`, and
        kind: the architecture: flava, bridgetower, bridgetower-itm or vilt.
        start: the initial towers of a matcher: a bridgetower for bridgetower-itm, a flava for vilt;
            a folder or ``zoo:NAME``.
    """

    kind: Annotated[str, OneOf(KINDS)] = "flava"
    start: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        needs = KINDS[self.kind].start is not None
        if needs and not self.start:
            raise UserError(
                f"kind={self.kind} continues from towers: give start=FOLDER or zoo:NAME"
            )
        if self.start and not needs:
            raise UserError(f"kind={self.kind} trains from scratch: leave out start={self.start}")


def train(settings: FusionSettings, processor: Any, drawings: Drawings) -> Any:
    """Train a model; progress on stderr.

    Args:
        settings: the settings of the command.
        processor: the processor of the kind of model; training sets its padding, which is saved
            with it.
        drawings: the training data.

    Returns:
        The model of transformers, in evaluation mode.
    """
    kind = KINDS[settings.kind]
    torch.manual_seed(derive(settings.seed, "zoo", "weights") % 2**63)
    folder = Path(settings.out)
    if kind.start is None:
        model = kind.build()
        encoder = kind.wrap(
            model, processor, folder, max_length=None, log_scale_bounds=LOG_SCALE_BOUNDS
        )
        train_towers(encoder, drawings, settings)
    else:
        model = kind.build(kind.start(settings.start).load(DualEncoder).model)
        train_matcher(kind.wrap(model, processor, folder, max_length=None), drawings, settings)
    return model


def evaluate(kind: str, folder: Path, seed: int, count: int) -> dict[str, float]:
    """Return metrics of a saved model on held-out drawings: accuracies, or a matcher's AUCs."""
    drawings, found = draw_unbiased(seed, "held-out", count), KINDS[kind]
    if found.start is None:
        return zero_shot(found.spec(str(folder)).load(DualEncoder), drawings)
    return separation(found.spec(str(folder)).load(Matcher), drawings, seed)


def main(argv: list[str]) -> int:
    """Pre-train, write float16 weights, evaluate them, and write ``card.json``."""
    settings = read(FusionSettings, argv)
    processor = KINDS[settings.kind].processor()
    return make_model(
        "fusion",
        settings,
        lambda: train(settings, processor, draw_unbiased(settings.seed, "train", settings.scenes)),
        lambda model, folder: save_half(model, processor, folder),
        lambda model, folder: evaluate(settings.kind, folder, settings.seed, settings.held_out),
    )


if __name__ == "__main__":
    run(main)
