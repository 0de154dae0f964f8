"""Hand-made question sets, and a model whose answers are drawn by content."""

from __future__ import annotations

import json
from dataclasses import dataclass

import torch

from cfaug.core.answers import Answered
from cfaug.core.pixels import content_digest
from cfaug.core.rng import generator
from cfaug.core.types import OptionScore
from cfaug.data.questions import BASIC, COUNTERFACTUAL, QuestionImage, SourceQuestion
from cfaug.evaluation.context import EvaluationContext
from cfaug.evaluation.questions.vqa import VisualQuestions
from tests.evaluation.joined import picture

CATEGORIES = ("color", "count")


@dataclass(frozen=True)
class Picture:
    """A source image in memory."""

    content: bytes

    @property
    def digest(self):
        return content_digest(self.content).hex()

    def read(self):
        return self.content


def image(number, **changes):
    """An image with a basic and four counterfactual questions."""
    options = ("a red one", "blue") if number % 2 else ("2", "3", "12")
    kinds = [BASIC, *[COUNTERFACTUAL] * 4]
    questions = [
        SourceQuestion(
            BASIC if n == 0 else f"c{n}", kind, f"If {n} of {number} were gone, how many?",
            options, (number + n) % 2,
        )
        for n, kind in enumerate(kinds)
    ]  # fmt: skip
    given = {
        "group": f"photo-{number // 2}", "image": Picture(picture(number)),
        "category": CATEGORIES[number % 2], "questions": questions, **changes,
    }  # fmt: skip
    return QuestionImage(f"i{number}", **given)


def context(images):
    return EvaluationContext(
        open=lambda name: None, has_world=False, held_out=lambda: None,
        questions=lambda name: images,
    )  # fmt: skip


def opened(images, **settings):
    (benchmark,) = VisualQuestions(**{"data": "asked.jsonl", **settings}).open(context(images))
    return benchmark


def rows(evaluation):
    """Return the items as a dictionary each, by name."""
    names = list(evaluation.items)
    values = zip(*(evaluation.items[name] for name in names), strict=True)
    return {row[0]: dict(zip(names, row, strict=True)) for row in values}


class Drawn(torch.nn.Module):
    """Answers drawn by image, question and option; what is in a batch changes the last digits.

    Attributes:
        batches: the pairs (image, question) that the model was asked in each call.
    """

    def __init__(self, seed=0, longest=10_000):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seed, self.longest = seed, longest
        self.batches, self.questions = [], []

    def content(self, picture, question):
        shown = [
            (
                example.question,
                example.answer,
                None if example.image is None else example.image.tobytes().hex(),
            )
            for example in question.demonstrations
        ]
        pixels = None if picture is None else picture.convert("RGB").tobytes().hex()
        return json.dumps([pixels, question.text, shown, question.opening])

    def answer(self, images, questions):
        self.batches.append([len(asked) for asked in questions])
        self.questions += [question for asked in questions for question in asked]
        size = sum(map(len, questions))
        return [
            [self._one(picture, question, size) for question in asked]
            for picture, asked in zip(images, questions, strict=True)
        ]

    def _one(self, picture, question, size):
        if len(question.text) + len(question.opening) > self.longest:
            return Answered(left_out="context")
        content = self.content(picture, question)
        return Answered(tuple(
            OptionScore(
                float(generator(self.seed, content, option).uniform(1, 9)) + 1e-9 * size,
                1 + len(option) // 3,
            )
            for option in question.options
        ))  # fmt: skip


class Writer(Drawn):
    """Writes what it is told to, by the question."""

    said = staticmethod(lambda question: "It is one. Answer: 2")

    def write(self, images, questions, max_new_tokens):
        self.batches.append([len(images)])
        self.questions += questions
        return [
            Answered(left_out="context")
            if len(question.text) > self.longest
            else Answered(text=self.said(question)[:max_new_tokens])
            for question in questions
        ]
