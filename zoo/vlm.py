"""Train a tiny vision-language model: ``python -m zoo vlm out=FOLDER questions=basic``.

It answers questions about ShapeScapes gatherings by ranking options by their likelihood
(``model=vlm benchmark=vqa``). ``questions=basic`` trains without questions that begin with "if";
``questions=both start=zoo:vlm-basic-0`` continues from that model with both kinds of questions,
about the same pictures. The two share their vision tower, which was trained without text. Neither
has seen a scene of ``shapescapes_vqa:train`` or ``shapescapes_vqa:test``.

``python -m zoo questions out=FOLDER part=test`` writes ShapeScapes-VQA as a question set:
``FOLDER/questions.jsonl`` has the form that ``benchmark.data`` reads, and ``FOLDER/images`` has
the pictures. The same settings give the same bytes, and a larger set begins with the smaller one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from cfaug.core.annotations import OneOf
from cfaug.core.answers import Question
from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.rng import derive, generator
from cfaug.core.validation import Positive, Seed, check_fields
from cfaug.data.export import write_questions
from cfaug.data.questions import BASIC
from cfaug.stats.choices import Accuracies, accuracies, choose, reduce_scores
from cfaug.worlds.shapescapes.question_parts import CATEGORIES, PARTS, make_questions
from cfaug.worlds.shapescapes.settings import WorldSettings
from zoo.command import Rates, make_model, read
from zoo.vlm_training import build_model, build_tokenizer, load, save

if TYPE_CHECKING:
    from transformers import FastVlmForConditionalGeneration


IMAGES_AT_ONCE = 50
"""The batch size of the evaluation, in pictures."""


@dataclass(frozen=True, kw_only=True)
class VlmSettings(Rates):
    """The settings of the command, given as ``name=value``.

    Attributes: those of ``Rates``, of the language model, and
        steps: the number of its optimiser steps.
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

    steps: int = 3_000
    out: str
    seed: Seed = 0
    questions: Annotated[str, OneOf((BASIC, "both"))] = BASIC
    basic_steps: int = 500
    pairs: int = 12_000
    alignment: float = 0.5
    start: str = ""
    tower_steps: int = 2_500
    tower_batch_size: int = 64
    tower_lr: float = 4e-3
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

    from zoo.vlm_training import (
        Lessons,
        draw_images,
        draw_pictures,
        encode,
        tokenize_questions,
        train_language,
        train_tower,
    )

    seed, part = settings.seed, "vqa-training"  # not a part of a world
    torch.manual_seed(derive(seed, "zoo", "vlm") % 2**63)
    model = load(settings.start) if settings.start else build_model()
    tower = model.model.vision_tower
    pictures = draw_pictures(seed, part, settings.pairs, settings.processes)
    if not settings.start:
        rates = replace(settings, batch_size=settings.tower_batch_size, lr=settings.tower_lr)
        width = model.config.vision_config.hidden_size
        train_tower(tower, width, pictures, seed, rates, settings.tower_steps)
        # Rounded to float16, in which it is saved.
        tower.half().float()
    questions = tokenize_questions(
        draw_images(seed, part, 0, settings.pairs),
        build_tokenizer(),
        basic_alone=settings.questions == BASIC,
    )
    features, rng = encode(tower.eval(), pictures.pixels), generator(seed, "zoo", "vlm", "order")
    lessons = Lessons(features, pictures.things, questions, rng, settings.basic_steps)
    train_language(model, lessons, settings, settings.steps, settings.alignment)
    return model.eval()


def evaluate(folder: Path, settings: VlmSettings, part: str = "vqa-held-out") -> dict[str, float]:
    """Return the accuracy of a saved model on questions about held-out scenes.

    ``acc_b`` is for basic questions, ``acc_c`` for counterfactual ones, ``acc_plus`` for both
    (``cfaug.evaluation.questions.question_checks``); ``acc_b_CATEGORY`` and ``acc_c_CATEGORY`` are
    for one category.
    """
    from cfaug.models.task_specs import VisionLanguage
    from zoo.vlm_training import draw_images

    model = VisionLanguage(str(folder)).load()
    images = draw_images(settings.seed, part, 0, settings.held_out)
    right: list[list[bool]] = []
    for start in range(0, len(images), IMAGES_AT_ONCE):
        some = images[start : start + IMAGES_AT_ONCE]
        shown = [
            decode_image(image.image.read(), image.key) for image in some if image.image is not None
        ]
        questions = [
            [Question(question.text, question.options) for question in image.questions]
            for image in some
        ]
        for image, answers in zip(some, model.answer(shown, questions), strict=True):
            right.append([])
            for question, answered in zip(image.questions, answers, strict=True):
                nll = [score.nll for score in answered.scores]
                tokens = [score.tokens for score in answered.scores]
                scores = reduce_scores(nll, tokens, question.options, "token_mean")
                right[-1].append(choose(scores) == question.answer)
    every = _accuracies(right)
    names = ("acc_b", "acc_c", "acc_plus", "phi")
    metrics = {"n": float(len(images)), **{name: getattr(every, name) for name in names}}
    for category in CATEGORIES:
        rows = [row for row, image in enumerate(images) if image.category == category]
        subset = _accuracies([right[row] for row in rows])
        if subset.images:
            metrics |= {f"acc_b_{category}": subset.acc_b, f"acc_c_{category}": subset.acc_c}
    return metrics


def _accuracies(right: Sequence[Sequence[bool]]) -> Accuracies:
    return accuracies(
        np.array([hits[0] for hits in right], bool), [np.array(hits[1:], bool) for hits in right]
    )


main = partial(make_model, "vlm", VlmSettings, train, save, evaluate, leave_out=("processes",))


@dataclass(frozen=True, kw_only=True)
class QuestionSettings:
    """The settings of the command, given as ``name=value``.

    Attributes:
        out: the folder to write, empty or missing.
        part: ``train`` or ``test``, which have no scene in common.
        pairs: the number of pairs of pictures, each with five questions; of every six pairs one is
            of each category.
        image_size: the side of the pictures in pixels; small shapes are distinguishable from about
            64.
        style: a name of ``cfaug.worlds.shapescapes.settings.STYLES``.
    """

    out: str
    part: Annotated[str, OneOf(PARTS)] = "test"
    pairs: Positive = 150
    seed: Seed = 0
    image_size: int = 64
    style: str = "drawing"

    def __post_init__(self) -> None:
        check_fields(self)


def main_questions(argv: list[str]) -> int:
    """Write the questions and the pictures, and print their numbers."""
    given = read(QuestionSettings, argv)
    world = WorldSettings(seed=given.seed, image_size=given.image_size, style=given.style)
    size: dict[str, Any] = {PARTS[given.part]: given.pairs}
    images = make_questions(replace(world, **size), given.part)
    count = write_questions(images, Path(given.out))
    print(f"{count:,} pictures with five questions each in {given.out}")
    return 0
