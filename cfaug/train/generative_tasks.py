"""Fine-tuning generative models. No torch at import.

A vision-language model learns to answer questions about images; a causal language model learns to
edit captions (LANCE, section 3.1).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from annotated_types import Ge

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.protocols import LanguageModel
from cfaug.core.rng import generator
from cfaug.core.validation import PartialShare, Positive, Seed, check_fields
from cfaug.data.mixture.question_rows import QuestionRows
from cfaug.data.mixture.settings import QuestionData, data_seed
from cfaug.editing.edit_prompts import FILE, EditAnswer, EditFormat, read_prompts, read_wording
from cfaug.editing.protocols import round_digits
from cfaug.models.lora import BaseModel
from cfaug.stats.choices import choose, reduce_scores
from cfaug.train.mixture_task import MixtureTask
from cfaug.train.records import Plan
from cfaug.train.settings import AnswerLoss
from cfaug.train.task import Task

if TYPE_CHECKING:
    import numpy as np

    from cfaug.data.mixture.loader import KeptPixels
    from cfaug.editing.causal_lm import CausalLM
    from cfaug.models.task_specs import VisionLanguage
    from cfaug.train.generative_modules import (
        AnswerExamples,
        AnswerModule,
        LanguageModule,
        TunedAnswerer,
        TunedLanguageModel,
    )

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
        from cfaug.train.generative_modules import TunedAnswerer

        spec = cast("VisionLanguage", self.model)
        return TunedAnswerer.load(spec.folder(), **spec.settings)

    @property
    def kind(self) -> type[AnswerModule]:
        """The module of answers."""
        from cfaug.train.generative_modules import AnswerModule

        return AnswerModule

    def make_module(
        self, trained: TunedAnswerer, total_steps: int | None, kind: Any = None
    ) -> AnswerModule:
        steps = self.make_steps(total_steps)
        module: AnswerModule = (kind or self.kind)(trained, steps, self.loss.contrast)
        return module

    def make_plan(self, trained: TunedAnswerer, total_steps: int, kept: KeptPixels | None) -> Plan:
        """Return the batches of every step; every question is checked before the first."""
        from cfaug.train.generative_modules import check_questions

        check_questions(trained.reader, self.data.wording, self._drawn())
        return super().make_plan(trained, total_steps, kept)

    def make_examples(  # type: ignore[override]  # a loader takes any data set of shares
        self, trained: TunedAnswerer, rows: int, kept: KeptPixels | None
    ) -> AnswerExamples:
        """Return the dataset of questions with their options."""
        from cfaug.train.generative_modules import AnswerExamples

        return AnswerExamples(
            self.questions, trained, read_wording(self.data.wording),
            every_option=self.loss.contrast > 0,
        )  # fmt: skip

    def save(self, trained: TunedAnswerer, folder: Path) -> None:
        trained.save(folder)

    def record(self) -> dict[str, Any]:
        return {**super().record(), "questions": {**self.kinds, "left_out": self.left_out}}

    def describe(self) -> dict[str, Any]:
        """Return the description of the mixture, and the first question in the model's form."""
        from cfaug.train.generative_modules import describe_question

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
        from cfaug.train.generative_modules import put

        wording = read_wording(self.data.wording)
        by_image: dict[int, list[tuple[QuestionRows, int]]] = {}
        for source, row in rows.tolist():
            index = cast("QuestionRows", self.questions[source])
            by_image.setdefault(int(index.contents[row]), []).append((index, row))
        images, prompted = [], []
        for questions in by_image.values():
            index, row = questions[0]
            image = index.image(row)
            if image.image is None:
                raise UserError(f"the image {image.key!r} is missing")
            images.append(decode_image(image.image.read(), f"image {image.key}"))
            prompted.append([put(wording, index.question(row)) for index, row in questions])
        for questions, answers in zip(
            by_image.values(), trained.answer(images, prompted), strict=True
        ):
            for (index, row), answered in zip(questions, answers, strict=True):
                question = index.question(row)
                costs = [(score.nll, score.tokens) for score in answered.scores]
                chosen = None
                if costs:
                    nll, tokens = zip(*costs, strict=True)
                    chosen = choose(reduce_scores(nll, tokens, question.options, "token_mean"))
                yield question.kind, chosen == question.answer


@dataclass(frozen=True, kw_only=True)
class LanguageTask(Task):
    """Prompts and answers; only the tokens of answers enter the loss.

    Attributes: those of :class:`cfaug.train.task.Task`, and
        data: the settings of the data, such as batch size and length.
        edit_format: the format of the prompts.
        training: the answers of the training split.
        validation: the answers of the validation split, about other captions.
    """

    data: EditData
    edit_format: EditFormat
    training: tuple[EditAnswer, ...]
    validation: tuple[EditAnswer, ...]

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of answers on either side, and of captions and edits in the training split."""
        return {
            "train": len(self.training),
            "validation": len(self.validation),
            "total": len(self.training) + len(self.validation),
            "captions": len({answer.caption for answer in self.training}),
            "edits": sum(len(answer.edits) for answer in self.training),
        }

    @property
    def batch_size(self) -> int:
        return self.data.batch_size

    @property
    def batches_per_epoch(self) -> int:
        return -(-len(self.training) // self.data.batch_size)

    @property
    def lower_validation(self) -> str:
        return f"data.validation={self.data.validation}"

    @property
    def language_model(self) -> CausalLM:
        """The model's specification, which reads and writes texts."""
        spec: CausalLM = self.model.load(LanguageModel).to("cpu")
        return spec

    def load(self) -> TunedLanguageModel:
        """Return the language model with its tokenizer."""
        from cfaug.train.generative_modules import TunedLanguageModel

        spec = self.language_model
        return TunedLanguageModel(
            spec.model, spec.tokenizer, self.data.max_length,
            start=spec.add_start_token, owner=spec.owner,
        )  # fmt: skip

    def make_module(self, trained: TunedLanguageModel, total_steps: int | None) -> LanguageModule:
        from cfaug.train.generative_modules import LanguageModule

        return LanguageModule(trained, self.make_steps(total_steps))

    def make_plan(
        self, trained: TunedLanguageModel, total_steps: int, kept: KeptPixels | None
    ) -> Plan:
        """Return the batches of every step: answers in an order drawn for each epoch."""
        from cfaug.train.generative_modules import collate

        rows = trained.encode(self.edit_format, self.training)
        held = trained.encode(self.edit_format, self.validation)
        size, fill = self.batch_size, trained.fill

        def training(start: int, rank: int, world: int) -> Iterator[Any]:
            for number in range(start, total_steps * self.trainer.accumulate_grad_batches):
                epoch, position = divmod(number, self.batches_per_epoch)
                rng = generator(self.seed, "order", self.data_seed, epoch)
                order = rng.permutation(len(self.training))
                chosen = order[position * size : (position + 1) * size]
                yield collate([rows[i] for i in chosen], fill, rank, world)

        def validation(rank: int, world: int) -> list[Any]:
            # Grouped by length, so that there is little padding.
            order = sorted(range(len(held)), key=lambda i: (len(held[i].ids), i))
            parts = [order[i : i + size] for i in range(0, len(order), size)]
            return [collate([held[i] for i in part], fill, rank, world) for part in parts]

        return Plan(
            training,
            validation if held else None,
            steps_per_epoch=self.batches_per_epoch,
            total_steps=total_steps,
        )

    def save(self, trained: TunedLanguageModel, folder: Path) -> None:
        """Write the weights, adapters merged or by themselves, the tokenizer and the format."""
        spec = self.language_model
        base = BaseModel(spec.weights, spec.revision, spec.weights_hash())
        lora = None if self.tuning is None else self.tuning.lora
        trained.save(
            folder, self.edit_format, base if lora is not None and not lora.merge else None
        )

    def measure(self, trained: TunedLanguageModel) -> dict[str, Any]:
        """Return the loss and perplexity of the held-out answers, by prompt and over all."""
        import torch

        from cfaug.train.engine import device_of
        from cfaug.train.generative_modules import collate

        if not self.validation:
            return {}
        device = device_of(self.trainer)
        trained.eval().to(device)
        rows = trained.encode(self.edit_format, self.validation)
        sums: Counter[str] = Counter()
        tokens: Counter[str] = Counter()
        for start in range(0, len(rows), self.batch_size):
            part = slice(start, start + self.batch_size)
            with torch.inference_mode():
                costs = trained.costs(collate(rows[part], trained.fill)).tolist()
            for answer, row, cost in zip(self.validation[part], rows[part], costs, strict=True):
                sums[answer.prompt] += cost
                tokens[answer.prompt] += row.answered
        trained.cpu()
        return {"evaluation": tabulate(sums, tokens, Counter(a.prompt for a in self.validation))}


def tabulate(
    sums: Mapping[str, float], tokens: Mapping[str, int], answers: Mapping[str, int]
) -> dict[str, dict[str, float]]:
    """Return the loss and perplexity by prompt, and over all prompts as ``all``.

    >>> tabulate({"domain": 2.0}, {"domain": 4}, {"domain": 1})["all"]
    {'loss': 0.5, 'perplexity': 1.6487, 'tokens': 4, 'answers': 1}

    Args:
        sums: the negative log-likelihood of each prompt's answers, in nats.
        tokens: the number of tokens of each prompt's answers.
        answers: the number of each prompt's answers.
    """
    table = {}
    for name, part in [(name, [name]) for name in sorted(sums)] + [("all", sorted(sums))]:
        count = sum(tokens[key] for key in part)
        loss = sum(sums[key] for key in part) / count
        table[name] = {
            "loss": round_digits(loss), "perplexity": round_digits(math.exp(loss)),
            "tokens": count, "answers": sum(answers[key] for key in part),
        }  # fmt: skip
    return table


# The training data of a perturber: the configuration node ``data=edits``. No torch at import.


@dataclass(frozen=True)
class EditData:
    """Edited captions, and the prompts that ask a language model for them.

    Args:
        edits: the JSON Lines file, with ``caption``, ``kind`` and ``edit``, one edited caption, on
            each line; see ``cfaug.editing.edit_prompts``.
        format: ``alpaca``, an instruction with a preamble; ``short``, the prompt's name, for tiny
            models; ``None`` is the model's own if it was trained for edits before, else ``alpaca``.
        prompts: the instructions: ``plain``, LANCE's without examples (Table 5), ``examples``, or
            the user's own folder.
        batch_size: the number of answers in a forward pass, over all processes together.
        validation: the share of captions that are held out, in [0, 1).
        max_length: the largest number of tokens of a prompt and its answer, or the model's limit if
            that is smaller; longer ones are truncated (LANCE, Table 6: 1,024).
        seed: the seed that draws the held-out captions; ``None`` is the run's seed + 1.
    """

    edits: str | None
    format: Literal["alpaca", "short"] | None = None
    prompts: str = "plain"
    batch_size: Positive = 4
    validation: PartialShare = 0.1
    max_length: Annotated[int, Ge(2)] = 1024
    seed: Seed | None = None

    def __post_init__(self) -> None:
        check_fields(self, "data")

    def with_seed(self, seed: int) -> EditData:
        """Return these settings with a seed: their own, or one derived from the run's seed."""
        return self if self.seed is not None else replace(self, seed=data_seed(seed))

    def file(self) -> Path:
        """Return the file of rows."""
        if self.edits is None:
            raise UserError(
                "data.edits=FILE.jsonl is missing: edited captions, one JSON object a line with "
                "caption, kind and edit; `python -m zoo perturber_rows out=FILE.jsonl` "
                "writes some of the embedded world"
            )
        file = Path(self.edits).expanduser()
        if not file.is_file():
            raise UserError(f"data.edits={self.edits}: there is no such file")
        return file

    def edit_format(self, model: Path) -> EditFormat:
        """Return the format of the prompts for the model."""
        if self.format is None and (model / FILE).is_file():
            if self.prompts != "plain":
                raise UserError(
                    f"data.prompts={self.prompts} would have no effect: {model} was trained with "
                    f"prompts of its own, {FILE}; data.format=alpaca takes yours in their place"
                )
            return EditFormat.read(model)
        prompts = {prompt.name: prompt for prompt in read_prompts(self.prompts)}
        if self.format == "short":
            return replace(EditFormat.short(), prompts=prompts)
        return EditFormat(prompts=prompts)
