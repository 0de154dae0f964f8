"""Fine-tuning a vision-language model to answer questions about images. No torch at import."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.data.mixture.question_rows import QuestionRows
from cfaug.data.mixture.settings import QuestionData
from cfaug.editing.edit_prompts import read_wording
from cfaug.editing.protocols import round_digits
from cfaug.stats.choices import choose, reduce_scores
from cfaug.train.mixture_task import MixtureTask
from cfaug.train.settings import AnswerLoss

if TYPE_CHECKING:
    import numpy as np

    from cfaug.data.mixture.loader import KeptPixels
    from cfaug.models.task_specs import VisionLanguage
    from cfaug.train.answer_module import AnswerExamples, AnswerModule, TunedAnswerer
    from cfaug.train.engine import Plan

MEASURED_AT_ONCE = 64
"""Batch size for answering the validation split."""


@dataclass(frozen=True, kw_only=True)
class QuestionTask(MixtureTask):
    """Basic and counterfactual questions, each with its right option.

    Attributes: those of :class:`cfaug.train.mixture_task.MixtureTask`, with ``indexes`` of
        :class:`cfaug.data.mixture.question_rows.QuestionRows`, and
        loss: the settings of the loss over the options.
    """

    data: QuestionData
    loss: AnswerLoss
    measurable: ClassVar[Mapping[str, str]] = {"accuracy": "accuracy"}

    def check(self) -> None:
        """Refuse what every task refuses, and an accuracy without the wrong options."""
        super().check()
        if self.trainer.val_metrics and not self.loss.contrast:
            raise UserError(
                "trainer.val_metrics=accuracy compares all options of a question, and this loss "
                "reads the right one alone: add loss=answers with loss.contrast above 0"
            )

    @property
    def questions(self) -> tuple[QuestionRows | None, ...]:
        """The basic and the counterfactual questions."""
        return tuple(cast("QuestionRows | None", index) for index in self.indexes)

    @property
    def kinds(self) -> dict[str, dict[str, int]]:
        """The number of questions of each kind on either side of the split."""
        sides = {"train": self.mixture.train, "validation": self.mixture.validation}
        by_side = {}
        for side, rows in sides.items():
            counts: Counter[str] = Counter()
            for source, index in enumerate(self.questions):
                if index is not None:
                    counts.update(index.kinds(rows[rows[:, 0] == source, 1].tolist()))
            by_side[side] = dict(sorted(counts.items()))
        return by_side

    @property
    def left_out(self) -> dict[str, int]:
        """The number of questions of the sets that cannot be learnt from, by reason."""
        counts: Counter[str] = Counter()
        for index in self.questions:
            if index is not None:
                counts.update(index.left_out)
        return dict(sorted(counts.items()))

    def load(self) -> TunedAnswerer:
        """Return the model with its processor."""
        from cfaug.train.answer_module import TunedAnswerer

        spec = cast("VisionLanguage", self.model)
        return TunedAnswerer.load(spec.folder(), **spec.settings)

    @property
    def kind(self) -> type[AnswerModule]:
        """The module of answers."""
        from cfaug.train.answer_module import AnswerModule

        return AnswerModule

    def make_module(
        self, trained: TunedAnswerer, total_steps: int | None, kind: Any = None
    ) -> AnswerModule:
        """Return the model with the loss of its answers and its optimizer."""
        steps = self.make_steps(total_steps)
        module: AnswerModule = (kind or self.kind)(trained, steps, self.loss.contrast)
        return module

    def make_plan(self, trained: TunedAnswerer, total_steps: int, kept: KeptPixels | None) -> Plan:
        """Return the batches of every step; every question is checked before the first."""
        from cfaug.train.answer_module import check_questions

        check_questions(trained.reader, self.data.wording, self._drawn())
        return super().make_plan(trained, total_steps, kept)

    def make_examples(  # type: ignore[override]  # a loader takes any data set of shares
        self, trained: TunedAnswerer, rows: int, kept: KeptPixels | None
    ) -> AnswerExamples:
        """Return the dataset of questions with their options."""
        from cfaug.train.answer_module import AnswerExamples

        return AnswerExamples(
            self.questions, trained, read_wording(self.data.wording),
            every_option=self.loss.contrast > 0,
        )  # fmt: skip

    def save(self, trained: TunedAnswerer, folder: Path) -> None:
        """Write the model, adapters merged, with its processor and chat template."""
        trained.save(folder)

    def record(self) -> dict[str, Any]:
        """Return the mixing ratio and the number of questions of each kind."""
        return {**super().record(), "questions": {**self.kinds, "left_out": self.left_out}}

    def describe(self) -> dict[str, Any]:
        """Return the description of the mixture, and the first question in the model's form."""
        from cfaug.train.answer_module import describe_question

        described = {**super().describe(), "questions": self.kinds}
        if self.left_out:
            described["left_out"] = self.left_out
        index, row = next(self._drawn())
        prompts = cast("VisionLanguage", self.model).load_prompts()
        first = describe_question(prompts, self.data.wording, index, row)
        return {**described, "first": first}

    def _drawn(self) -> Iterator[tuple[QuestionRows, int]]:
        """Yield every question of the training and the validation split."""
        for rows in (self.mixture.train, self.mixture.validation):
            for source, row in rows.tolist():
                yield cast("QuestionRows", self.questions[source]), row

    def measure(self, trained: TunedAnswerer) -> dict[str, Any]:
        """Return the accuracy on the validation split, by kind and over all questions."""
        from cfaug.train.engine import device_of

        rows = self.mixture.validation
        if not len(rows):
            return {}
        trained.eval().to(device_of(self.trainer))
        right: dict[str, list[bool]] = {"all": []}
        for start in range(0, len(rows), MEASURED_AT_ONCE):
            for kind, hit in self._answer(trained, rows[start : start + MEASURED_AT_ONCE]):
                right["all"].append(hit)
                right.setdefault(kind, []).append(hit)
        trained.cpu()
        return {
            "evaluation": {
                kind: {"accuracy": round_digits(sum(hits) / len(hits)), "questions": len(hits)}
                for kind, hits in right.items()
            }
        }

    def _answer(self, trained: TunedAnswerer, rows: np.ndarray) -> Iterator[tuple[str, bool]]:
        """Yield each question's kind, and whether its right option is the most likely."""
        from cfaug.train.answer_module import put

        wording = read_wording(self.data.wording)
        by_image: dict[int, list[tuple[QuestionRows, int]]] = {}
        for source, row in rows.tolist():
            index = cast("QuestionRows", self.questions[source])
            by_image.setdefault(int(index.contents[row]), []).append((index, row))
        images = [_decode(questions) for questions in by_image.values()]
        asked = [[put(wording, index.question(row)) for index, row in questions]
                 for questions in by_image.values()]  # fmt: skip
        for questions, answers in zip(
            by_image.values(), trained.answer(images, asked), strict=True
        ):
            for (index, row), answered in zip(questions, answers, strict=True):
                question = index.question(row)
                costs = [(score.nll, score.tokens) for score in answered.scores]
                chosen = None
                if costs:
                    nll, tokens = zip(*costs, strict=True)
                    chosen = choose(reduce_scores(nll, tokens, question.options, "token_mean"))
                yield question.kind, chosen == question.answer


def _decode(questions: Sequence[tuple[QuestionRows, int]]) -> Any:
    image = questions[0][0].image(questions[0][1])
    if image.image is None:
        raise UserError(f"the image {image.key!r} is missing")
    return decode_image(image.image.read(), f"image {image.key}")
