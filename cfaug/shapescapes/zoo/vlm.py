"""Train a tiny vision-language model: ``python -m cfaug zoo vlm out=FOLDER questions=basic``.

It answers questions about ShapeScapes gatherings by ranking options by their likelihood
(``model=vlm benchmark=vqa``). ``questions=basic`` trains without questions that begin with "if";
``questions=both start=zoo:vlm-basic-0`` continues from that model with both kinds of questions,
about the same pictures. The two share their vision tower, which was trained without text. Neither
has seen a scene of ``shapescapes_vqa:train`` or ``shapescapes_vqa:test``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from cfaug.cfmm.question_checks import Accuracies, accuracies
from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.questions import BASIC, Answered, AskedImage, AskedQuestion, Question
from cfaug.core.rng import derive
from cfaug.core.validation import OneOf, Positive, Seed, check_fields
from cfaug.shapescapes.question_topics import CATEGORIES
from cfaug.shapescapes.zoo.command import FittingSettings, make_model, read, run
from cfaug.shapescapes.zoo.vlm_model import build_model, build_tokenizer, load, save
from cfaug.shapescapes.zoo.vlm_training import (
    Pictures,
    draw_images,
    draw_pictures,
    tokenize_questions,
)
from cfaug.stats.choices import choose, reduce_scores

if TYPE_CHECKING:
    from transformers import FastVlmForConditionalGeneration

    from cfaug.core.protocols import Answerer

BOTH = "both"
QUESTIONS = (BASIC, BOTH)

TRAINING, HELD_OUT = "vqa-training", "vqa-held-out"
"""The names of the streams of pairs, which differ from those of a world's own parts."""

ASKED_AT_ONCE = 50
"""The batch size of the evaluation, in pictures."""

SAID = ("acc_b", "acc_c", "acc_plus", "phi")
"""The metrics over all questions on the card."""


@dataclass(frozen=True, kw_only=True)
class VlmSettings(FittingSettings):
    """The settings of the command, given as ``name=value``.

    Attributes: those of ``FittingSettings``, of the language model, and
        out: the folder to write; must not exist yet.
        seed: the seed of the weights, the scenes and their order.
        questions: ``basic``, or ``both`` basic and counterfactual ones.
        basic_steps: the number of first steps with only basic questions, also for ``both``.
        pairs: the number of pairs of pictures; both pictures of a pair have the same five
            questions.
        alignment: the weight of a further loss, which names the content of each cell by the
            nearest word.
        start: the model to continue from, with its vision tower frozen; empty trains from scratch.
        tower_steps: the number of optimiser steps of the vision tower.
        tower_batch_size: the number of pictures in a step of the vision tower.
        tower_lr: the peak of the vision tower's learning rate.
        held_out: the number of pairs of the evaluation.
        processes: the number of processes that draw pictures; affects only the time.
    """

    out: str
    seed: Seed = 0
    questions: Annotated[str, OneOf(QUESTIONS)] = BASIC
    basic_steps: int = 500
    pairs: int = 12_000
    alignment: float = 0.5
    start: str = ""
    tower_steps: int = 2_500
    tower_batch_size: int = 64
    tower_lr: float = 4e-3
    steps: int = 3_000
    batch_size: Positive = 128
    held_out: int = 600
    processes: int = 1

    def __post_init__(self) -> None:
        check_fields(self)
        if self.batch_size % 4 or self.batch_size < 1:
            raise UserError(f"batch_size={self.batch_size}: should be a multiple of 4")
        for name in ("batch_size", "tower_batch_size"):
            if getattr(self, name) > 2 * self.pairs:
                raise UserError(
                    f"{name}={getattr(self, name)}: no more than the {2 * self.pairs} pictures of "
                    f"pairs={self.pairs}"
                )


def train(settings: VlmSettings) -> FastVlmForConditionalGeneration:
    """Train a model with progress on stderr; return it in evaluation mode."""
    import torch

    from cfaug.shapescapes.zoo.vlm_training import Lessons, encode, train_language

    torch.manual_seed(derive(settings.seed, "zoo", "vlm") % 2**63)
    model = load(settings.start) if settings.start else build_model()
    pictures = draw_pictures(settings.seed, TRAINING, settings.pairs, settings.processes)
    if not settings.start:
        _train_tower(model, pictures, settings)
    images = draw_images(settings.seed, TRAINING, 0, settings.pairs)
    basic_alone = settings.questions == BASIC
    questions = tokenize_questions(images, build_tokenizer(), basic_alone=basic_alone)
    features = encode(model.model.vision_tower.eval(), pictures.pixels)
    lessons = Lessons(features, pictures.things, questions, settings.seed, settings.basic_steps)
    train_language(model, lessons, settings, settings.alignment)
    return model.eval()


def _train_tower(
    model: FastVlmForConditionalGeneration, pictures: Pictures, settings: VlmSettings
) -> None:
    """Train the vision tower in place, and round its weights to float16, in which it is saved."""
    from cfaug.shapescapes.zoo.vlm_training import train_tower

    how = FittingSettings(
        steps=settings.tower_steps,
        batch_size=settings.tower_batch_size,
        lr=settings.tower_lr,
        warmup=settings.warmup,
        weight_decay=settings.weight_decay,
    )
    width = model.config.vision_config.hidden_size
    tower = model.model.vision_tower
    train_tower(tower, width, pictures, settings.seed, how)
    tower.half().float()


def evaluate(folder: Path, seed: int, pairs: int, part: str = HELD_OUT) -> dict[str, float]:
    """Return the accuracy of a saved model on questions about held-out scenes.

    ``acc_b`` is for basic questions, ``acc_c`` for counterfactual ones, ``acc_plus`` for both
    (``cfaug.cfmm.question_checks``); ``acc_b_CATEGORY`` and ``acc_c_CATEGORY`` are for one
    category.
    """
    from cfaug.models.task_specs import VisionLanguage

    model = VisionLanguage(str(folder)).load()
    images = draw_images(seed, part, 0, pairs)
    right: list[list[bool]] = []
    for start in range(0, len(images), ASKED_AT_ONCE):
        right += _ask(model, images[start : start + ASKED_AT_ONCE])
    categories = np.array([image.category for image in images])
    found = _accuracies(right)
    metrics = {"n": float(len(images)), **{name: getattr(found, name) for name in SAID}}
    for category in CATEGORIES:
        own = _accuracies([right[at] for at in np.flatnonzero(categories == category)])
        if own.images:
            metrics |= {f"acc_b_{category}": own.acc_b, f"acc_c_{category}": own.acc_c}
    return metrics


def _ask(model: Answerer, images: Sequence[AskedImage]) -> list[list[bool]]:
    shown = [
        decode_image(image.image.read(), image.key) for image in images if image.image is not None
    ]
    asked = [[Question(one.text, one.options) for one in own.questions] for own in images]
    return [
        [
            _choose(answered, question) == question.answer
            for answered, question in zip(answers, own.questions, strict=True)
        ]
        for answers, own in zip(model.answer(shown, asked), images, strict=True)
    ]


def _choose(answered: Answered, question: AskedQuestion) -> int | None:
    nll, tokens = zip(*((score.nll, score.tokens) for score in answered.scores), strict=True)
    return choose(reduce_scores(nll, tokens, question.options, "token_mean"))


def _accuracies(right: Sequence[Sequence[bool]]) -> Accuracies:
    return accuracies(
        np.array([one[0] for one in right], bool), [np.array(one[1:], bool) for one in right]
    )


def main(argv: list[str]) -> int:
    """Train, evaluate and write one model with its ``card.json``."""
    settings = read(VlmSettings, argv)
    return make_model(
        "vlm",
        settings,
        lambda: train(settings),
        save,
        lambda model, folder: evaluate(folder, settings.seed, settings.held_out),
        leave_out=("processes",),
    )


if __name__ == "__main__":
    run(main)
