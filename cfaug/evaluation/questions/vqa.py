"""Does a model answer questions about images, and counterfactual ones too? ``benchmark=vqa``.

CFMM (section 3.4): options are ranked by their likelihood after image and question.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, cast

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.item_schema import ItemSchema
from cfaug.core.protocols import Answerer
from cfaug.core.types import CLUSTER, ITEM, Evaluation
from cfaug.core.validation import Count, Positive, Seed, check_fields
from cfaug.data.questions import BASIC, COUNTERFACTUAL, DISPUTED, STATES_FORM, QuestionImage
from cfaug.editing.edit_prompts import OPTIONS, read_wording
from cfaug.evaluation.benchmark import WritesModelPage, fingerprint
from cfaug.evaluation.failures import Cell, Cells
from cfaug.evaluation.questions.question_checks import QuestionProblem, validate
from cfaug.evaluation.questions.question_items import (
    ANSWER_ITEMS,
    BIAS,
    BLIND,
    PRIOR,
    QuestionRow,
    Reply,
    choice_columns,
    question_columns,
    question_outcomes,
    reply_columns,
)
from cfaug.evaluation.questions.vqa_prompting import (
    ChainOfThought,
    Demonstrations,
    Order,
    Protocol,
    QuestionProtocol,
    leave_out_too,
    read_demonstrations,
)
from cfaug.evaluation.vqa_inference import Asker
from cfaug.models.indistinct import check_answers
from cfaug.settings.read_if import LEARNT, TRAINED, ReadIf
from cfaug.stats.choices import Reduction

if TYPE_CHECKING:
    from cfaug.core.protocols import Benchmark
    from cfaug.data.mixture.leakage import Leaks
    from cfaug.evaluation.cached_model import CachedAnswerer
    from cfaug.evaluation.context import EvaluationContext
    from cfaug.evaluation.questions.question_page import ShownAnswers
    from cfaug.report.document import Part
    from cfaug.report.gallery import ImageSource, ModelPage
    from cfaug.report.items import Items

SAID = {
    "right": "all questions",
    "acc_b": "basic",
    "acc_c": "counter- factual",
    "acc_plus": "basic and counter- factual",
    "strict": "all of an image",
    "q_acc": "both images of a question",
    "i_acc": "both questions of an image",
    "f_acc": "figures",
    "g_acc": "all four of a group",
    "phi": "phi",
}
"""{metric of all questions in the terminal summary: its header}."""


@dataclass
class VisualQuestions(WritesModelPage):
    """Accuracy of a model's answers to questions about images, with and without the image.

    Args:
        data: a question set in any form that ``cfaug.data.sources.question_sets`` reads.
        name: the name in tables, to which "_vqa" is added; ``None`` takes the file's name. "_icl"
            follows for solved examples, "_cot" for thoughts, "_written" for written answers.
        protocol: ``rank`` ranks the options by likelihood; ``write`` reads a written answer.
        reduction: the reduction of an option's token likelihoods: ``token_mean``, ``sum``,
            ``char_norm``, or ``pmi`` against the blind model. With ``pmi``, blind and prior answers
            are ranked by ``token_mean``.
        wording: the prompts: ``plain``, ``short``, ``listed``, ``free`` (no options, for questions
            that say how to answer), or a YAML file with the same keys.
        option_order: order of the options in a prompt: ``given``, or ``shuffled``.
        demonstrations: a YAML file of solved examples by category. No questions are asked about
            their images, whatever ``shots`` is.
        shots: number of solved examples before each question.
        chain_of_thought: ``one_stage`` shows rationales in solved examples; ``two_stage`` also has
            the model write one before options are ranked; ``None`` shows no rationales.
        max_new_tokens: largest number of tokens of a written answer or rationale.
        blind: whether to ask the model without the image, too.
        prior: rank the options without a question, too.
        without_leaks: whether to leave out images, or COCO photos of images, about which the run
            learnt questions; otherwise they are only reported.
        page: number of images that ``<name>.html`` shows with their questions; ``None`` writes no
            page.
    """

    data: str | None = None
    name: str | None = None
    protocol: Protocol = "rank"
    reduction: Annotated[Reduction, ReadIf({"protocol": ("rank",)})] = "token_mean"
    wording: str = "plain"
    option_order: Order = "given"
    order_seed: Annotated[Seed, ReadIf({"option_order": ("shuffled",)})] = 0
    """the seed of shuffled options"""
    demonstrations: str | None = None
    shots: Count = 0
    chain_of_thought: ChainOfThought | None = None
    max_new_tokens: Annotated[
        Positive, ReadIf({"protocol": ("write",)}, {"chain_of_thought": ("two_stage",)})
    ] = 128
    blind: bool = True
    prior: Annotated[bool, ReadIf({"protocol": ("rank",)})] = True
    batch_size: Positive = 64
    """the number of items given to the model at once"""
    without_leaks: Annotated[bool, ReadIf({TRAINED: (True,), LEARNT: ("questions",)})] = False
    page: Positive | None = 200
    leaks: Leaks | None = field(default=None, init=False, repr=False)
    _images: Sequence[QuestionImage] = field(default=(), init=False, repr=False)

    kind: ClassVar[str] = "vqa"
    item_schema: ClassVar[ItemSchema] = ANSWER_ITEMS
    needs: ClassVar[type] = Answerer
    primary_metrics: ClassVar[tuple[str, ...]] = ("acc_b", "acc_c", "acc_plus")

    def __post_init__(self) -> None:
        check_fields(self, "benchmark")
        if self.reduction == "pmi" and not self.blind:
            raise UserError("benchmark.reduction=pmi needs benchmark.blind=true")
        if self.shots and self.demonstrations is None:
            raise UserError(f"benchmark.shots={self.shots} needs benchmark.demonstrations=FILE")
        if self.chain_of_thought == "one_stage" and not self.shots:
            raise UserError(
                "benchmark.chain_of_thought=one_stage needs benchmark.shots=1: without an example "
                "no rationale is shown"
            )
        if self.chain_of_thought == "two_stage" and self.protocol == "write":
            raise UserError(
                "benchmark.protocol=write writes rationale and answer together: choose "
                "benchmark.chain_of_thought=one_stage, or benchmark.protocol=rank"
            )

    def open(self, context: EvaluationContext) -> list[Benchmark]:
        opened = copy.copy(self)
        words = read_wording(self.wording)
        shown = [words.question, *([words.prior] if self.prior else [])]
        if self.protocol == "write":
            shown = [words.written]
        elif self.chain_of_thought == "two_stage":
            shown = [words.rationale, *shown[1:]]
        if self.option_order == "shuffled" and not any(OPTIONS in prompt for prompt in shown):
            raise UserError(
                "benchmark.option_order=shuffled would have no effect: no prompt of "
                f"benchmark.wording={self.wording} shows the options; choose wording=listed, or "
                "leave it out"
            )
        opened._images = self.read(context)
        if self.protocol == "write" and OPTIONS not in words.written:
            for question in chain.from_iterable(image.questions for image in opened._images):
                if not question.extra.get(STATES_FORM):
                    raise UserError(
                        f"benchmark.wording={self.wording} shows no {OPTIONS} for a written "
                        f"answer, and {question.text!r:.80} does not say in which form to answer: "
                        "the model has to see the options; choose wording=plain"
                    )
        # Images about which the run learnt questions.
        if trained := context.trained_questions():
            from cfaug.data.mixture.leakage import find_question_leaks

            opened.leaks, leaking = find_question_leaks(trained, opened._images)
            if self.without_leaks and leaking:
                kept = [image for image in opened._images if image.key not in leaking]
                if not kept:
                    raise UserError(
                        f"{self.data}: {opened.leaks}; without_leaks=true leaves nothing to ask"
                    )
                opened._images = kept
                opened.leaks, _ = find_question_leaks(trained, kept)
        stem = self.name or Path(str(self.data)).stem.replace(":", "_")
        opened.name = f"{stem.removesuffix(self._suffix).removesuffix('_vqa')}{self._suffix}"
        opened.__dict__.pop("_rows", None)
        if not any(not row.left_out for row in opened._rows):
            reasons = sorted({row.left_out for row in opened._rows})
            raise UserError(f"{self.data}: every question is left out ({', '.join(reasons)})")
        return cast("list[Benchmark]", [opened])

    def read(self, context: EvaluationContext) -> Sequence[QuestionImage]:
        """Return the question set."""
        if self.data is None:
            raise UserError("benchmark=vqa needs benchmark.data=FILE")
        if context.questions is None:
            raise UserError(f"benchmark.data={self.data}: no question set can be opened here")
        images = list(context.questions(self.data))
        if not images:
            raise UserError(f"{self.data} has no question")
        for image in images:
            basic = image.of_kind(BASIC)
            if image.of_kind(COUNTERFACTUAL) and len(basic) > 1:
                raise UserError(
                    f"{self.data}: the image {image.key!r} has {len(basic)} basic questions, so "
                    "its counterfactual ones cannot be assigned: give it one line for each"
                )
        return images

    def describe_data(self, context: EvaluationContext) -> list[str]:
        """Say how many images and questions the set has, by kind and category."""
        images = self.read(context)
        kinds = Counter(question.kind for image in images for question in image.questions)
        categories = Counter(image.category for image in images if image.category)
        listed = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
        return [
            f"{self.data}: {len(images):,} images, {kinds.total():,} questions ({listed})",
            *(f"  {category}: {count:,} images" for category, count in sorted(categories.items())),
        ]

    def find_problems(self, context: EvaluationContext) -> list[QuestionProblem]:
        return validate(self.read(context))

    @property
    def _suffix(self) -> str:
        thoughts = "_cot" if self.chain_of_thought else "_icl" if self.shots else ""
        return f"_vqa{thoughts}{'_written' if self.protocol == 'write' else ''}"

    @cached_property
    def data_hash(self) -> str:
        """A hash of the questions, and of the settings that change the answers."""
        columns = question_columns(self._rows)
        numbers = [str(row.question.answer) for row in self._rows]
        categories = sorted({row.image.category for row in self._rows if not row.left_out})
        examples = [
            [example.content for example in self._protocol.shown(name)] for name in categories
        ]
        settings = [
            self.protocol, self.reduction, repr(self._protocol.wording), self.option_order,
            self.order_seed if self.option_order == "shuffled" else 0, self.shots,
            str(self.chain_of_thought), self.max_new_tokens if self._protocol.writes else 0,
            int(self.blind), int(self.prior),
        ]  # fmt: skip
        return fingerprint(
            json.dumps(columns), numbers, [row.left_out for row in self._rows],
            json.dumps([examples, settings]),
        )  # fmt: skip

    def run(self, model: Answerer | CachedAnswerer) -> Evaluation:
        """Ask the model, and return accuracies with and without the image."""
        asker, protocol = Asker(model, self.batch_size), self._protocol
        if protocol.writes and not asker.writes:
            raise UserError(
                f"{self.name}: {type(model).__name__} ranks options and writes no text: choose "
                "benchmark.protocol=rank and no chain_of_thought=two_stage"
            )
        items = question_columns(self._rows)
        blind = protocol.ask(asker, self._rows, blind=True) if self.blind else None
        replies = protocol.ask(asker, self._rows, blind=False, beside=blind)
        items |= reply_columns(self._rows, replies)
        items["left_out"] = [reply.left_out for reply in replies]
        if self.protocol == "rank":
            items |= choice_columns(self._rows, replies)
        else:
            items["unparsed"] = np.array([
                float("nan") if reply.left_out else float(reply.chosen is None) for reply in replies
            ])  # fmt: skip
        if protocol.writes:
            named = "written" if self.protocol == "write" else "rationale"
            items[named] = [reply.text for reply in replies]
        self._check_answers(replies)
        if blind is not None:
            items |= reply_columns(self._rows, leave_out_too(blind, replies), BLIND)
        if self.prior and self.protocol == "rank":
            priors = protocol.ask_prior(asker, self._rows)
            items |= reply_columns(self._rows, leave_out_too(priors, replies), PRIOR)
        if not np.isfinite(items["right"]).any():
            reasons = sorted(set(items["left_out"]))
            raise UserError(f"{self.name}: every question was left out ({', '.join(reasons)})")
        return Evaluation(question_outcomes(str(self.name), self._rows, items), items)

    def _check_answers(self, replies: Sequence[Reply]) -> None:
        """Say if the model answers every question alike, by the words or by the option's place."""
        questions = [(row.image.key, row.question.text) for row in self._rows]
        if self.protocol == "write":
            check_answers(questions, [reply.text for reply in replies])
            return
        options = [row.question.options for row in self._rows]
        chosen = [reply.chosen for reply in replies]
        texts = [
            None if place is None else names[place]
            for names, place in zip(options, chosen, strict=True)
        ]
        check_answers(questions, texts)
        # A set may have every right answer in one place.
        if len(set(texts) - {None}) > 1 and len({row.question.answer for row in self._rows}) > 1:
            places = [None if place is None else f"option {place + 1}" for place in chosen]
            check_answers(questions, places)

    def failure_cells(self, items: Items) -> Cells:
        """Return the counterfactual questions: a wrong answer, with that to the basic question.

        The words are the right answers of the two; questions with the same one are left out.
        """
        wrong = 1 - items.metric("right")
        names, clusters = (np.asarray(items.columns[name]).tolist() for name in (ITEM, CLUSTER))
        basic = {
            row.image.key: (number, row.question.right)
            for number, row in enumerate(self._rows)
            if row.question.kind == BASIC
        }
        counterfactuals = [
            (number, *basic[row.image.key], row)
            for number, row in enumerate(self._rows)
            if row.question.kind == COUNTERFACTUAL and row.image.key in basic
        ]
        cells = [
            Cell((), row.image.category or COUNTERFACTUAL, before or "", row.question.right or "")
            for _, _, before, row in counterfactuals
        ]
        edited, plain = (np.array([row[place] for row in counterfactuals], int) for place in (0, 1))
        return Cells(
            [names[row] for row in edited], wrong[edited], wrong[plain],
            [clusters[row] for row in edited], cells,
        )  # fmt: skip

    def summarise(self, evaluation: Evaluation) -> list[Part | str]:
        """Report the accuracies of all questions, with and without images, and those left out."""
        from cfaug.report.document import Entry, Part
        from cfaug.report.page import DASH, Measure

        whole = {outcome.metric: outcome for outcome in evaluation.outcomes if not outcome.by}
        rows_by_prefix = {
            "": "asked with the image",
            BLIND: "without the image",
            PRIOR: "options alone",
        }
        metrics = [name for name in SAID if name in whole]

        def entry(name: str) -> Entry:
            outcome = whole.get(name)
            return Entry(DASH if outcome is None else Measure(outcome.unit).text(outcome.value))

        rows = tuple(
            ((label,), tuple(entry(prefix + name) for name in metrics))
            for prefix, label in rows_by_prefix.items()
            if f"{prefix}right" in whole
        )
        shares = sum(name != "phi" for name in metrics)
        groups = (("Right, %", shares), *((("", 1),) * (shares < len(metrics))))
        lines: list[Part | str] = [
            Part("", ("",), groups, tuple(SAID[name] for name in metrics), rows)
        ]
        if "flips" in whole:
            lines.append(f"the reduction decides {whole['flips'].value:.1%} of the answers")
        if "ties" in whole and whole["ties"].value:
            lines.append(
                f"{whole['ties'].value:.1%} of the questions have several equally likely options, "
                "which counts as wrong"
            )
        if BIAS in whole:
            repeated = [
                f"{whole[prefix + BIAS].value:.1%} {label}"
                for prefix, label in rows_by_prefix.items()
                if prefix + BIAS in whole
            ]
            lines.append(f"answers that repeat the memorised one: {', '.join(repeated)}")
        if disputed := [str(row.question.extra[DISPUTED]) for row in self._rows
                        if DISPUTED in row.question.extra]:  # fmt: skip
            lines.append(f"disputed answers, counted as the set has them: {'; '.join(disputed)}")
        reasons = Counter(item for item in evaluation.items["left_out"] if item)
        return lines + [
            f"left out: {count:,} of {len(evaluation.items['left_out']):,} questions ({reason})"
            for reason, count in sorted(reasons.items())
        ]

    def model_page(self) -> ModelPage[ShownAnswers]:
        from cfaug.evaluation.questions.question_page import question_page

        return question_page(self.page)

    def page_images(self) -> ImageSource:
        """Return the images by their digests in the items."""
        from cfaug.report.gallery import ImageSource

        shown = {
            image.image.digest: image.image for image in self._images if image.image is not None
        }
        find = self.reader(shown.get, self.data)
        return ImageSource(lambda digest: find(digest).read())

    @cached_property
    def _protocol(self) -> QuestionProtocol:
        solved = Demonstrations({}, "benchmark.demonstrations")
        if self.demonstrations is not None:
            solved = read_demonstrations(Path(self.demonstrations), self._images)
        return QuestionProtocol(
            protocol=self.protocol, reduction=self.reduction, wording=read_wording(self.wording),
            option_order=self.option_order, order_seed=self.order_seed, solved=solved,
            shots=self.shots, chain_of_thought=self.chain_of_thought,
            max_new_tokens=self.max_new_tokens,
        )  # fmt: skip

    @cached_property
    def _rows(self) -> list[QuestionRow]:
        shown = self._protocol.solved.digests
        rows = []
        for image in self._images:
            solved = bool(shown) and image.image is not None and image.image.digest in shown
            for question in image.questions:
                reason = "demonstration" if solved else question.unscorable
                rows.append(QuestionRow(image, question, reason))
        return rows
