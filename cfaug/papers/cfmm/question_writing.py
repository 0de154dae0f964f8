"""Counterfactual questions written and judged by models (CFMM, section 3.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, runtime_checkable

from cfaug.core.annotations import NO_RESULT
from cfaug.core.answers import Question
from cfaug.core.errors import RejectedError, UserError
from cfaug.core.files import require_regular
from cfaug.core.pixels import decode_image
from cfaug.core.processes import check_device, choose_device
from cfaug.core.protocols import Answerer
from cfaug.core.rng import derive, generator
from cfaug.core.types import Edit, Edited, Example, Proposal, Rejected, SourceImage
from cfaug.core.validation import Positive, Seed, check_fields
from cfaug.core.weights import sha256_text
from cfaug.data.questions import (
    CATEGORY,
    COUNTERFACTUAL,
    PRESUPPOSITION,
    QUESTION,
    QUESTIONS,
    SOURCE,
    VERIFIED,
    SourceQuestion,
    details_of,
    questions_of,
)
from cfaug.editing.protocols import Described
from cfaug.editing.sentence import normalise
from cfaug.evaluation.questions.question_checks import DUPLICATED, check_question
from cfaug.generate.annotators import BROKEN_PHOTO
from cfaug.generate.question_server import QuestionRequest, WrittenQuestions

if TYPE_CHECKING:
    from cfaug.models.checkpoints import Checkpoint


# Further counterfactual questions, written by a model from the first ones (CFMM, section 3.3).
#
# A person writes a basic question about an image and a first counterfactual one; a model proposes
# three more. A rejected proposal is kept with its reason; people verify the rest.

PLACES = ("<category>", "<basic>", "<given>", "<count>")
"""Placeholders of a prompt, each required once."""
PLACE = re.compile("|".join(PLACES))
SHIPPED = {"expand": "question_expansion", "printed": "question_expansion_printed"}
"""{set of prompts: its folder}. ``printed`` are those of Appendix B without the JSON in them: the
form of the answer is a schema, which also asks for the condition and a wrong answer. Two of them
name the category ``common``: the one with no other category is used; none names ``shape``."""
ANY = "any"
"""The name of the prompt for categories without their own prompt."""
FEW, NOT_NEEDED = "too few left", "not needed"
"""Reasons not to use valid questions: an example has too few of them, or enough others."""
NO_QUESTIONS = "no questions"
NEW = "new"
"""The id of a question before it is proposed."""


@runtime_checkable
class QuestionWriter(Described, Protocol):
    """Writes questions: a chat server, or a local model."""

    def write(self, requests: Sequence[QuestionRequest]) -> list[WrittenQuestions]:
        """Return the answer to each request, in order, independent of the other requests."""
        ...


@runtime_checkable
class QuestionJudge(Described, Protocol):
    """Checks by the image whether a question's answer is right: a second model."""

    def judge(self, image: SourceImage | None, questions: Sequence[SourceQuestion]) -> list[str]:
        """Return the reason to reject each question, which is counted; empty if it is kept.

        Args:
            image: the image of the questions; ``None`` without an image.
        """
        ...


@dataclass(frozen=True)
class QuestionExpansion:
    """Proposes counterfactual questions for examples of a question set.

    A proposal's texts are the example's questions and then the new ones, all about its image; the
    details of each are ``cfaug.data.questions.details_of``.

    Args:
        count: the number of questions to add to an example; an example with fewer valid questions
            is rejected.
        prompt: ``printed``, the prompts of the paper, or ``expand``, which also forbids answers in
            the condition; or your own file with ``<category>``, ``<basic>``, ``<given>`` and
            ``<count>``, or a folder of ``any.txt`` and files named after categories.
        seed: the seed of answer and order of options, together with the example's key.
        max_words: the largest number of words in a question; longer ones, as from a rambling model,
            are rejected.
        judge: a second model that rejects questions with other answers; ``None`` for no judge.
    """

    writer: QuestionWriter
    """the model that writes questions"""
    count: Positive = 3
    ask_for: Positive = 5
    """the number of questions that it is asked for, at least ``count``"""
    prompt: str = "printed"
    seed: Seed = 0
    max_words: Positive = 60
    judge: QuestionJudge | None = None
    _prompts: Mapping[str, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor")
        if self.ask_for < self.count:
            raise UserError(f"ask_for={self.ask_for} is less than count={self.count}")
        home = Path(self.prompt).expanduser()
        if self.prompt in SHIPPED:
            home = Path(str(files("cfaug"))) / "editing" / "prompt_files" / SHIPPED[self.prompt]
        if home.is_dir():
            texts = sorted(home.glob("*.txt"))
            prompts = {file.stem: _read_prompt(file, self.prompt) for file in texts}
        else:
            prompts = {ANY: _read_prompt(home, self.prompt)}
        if ANY not in prompts:
            raise UserError(
                f"prompt={self.prompt} lacks {ANY}.txt, for categories without their own prompt"
            )
        object.__setattr__(self, "_prompts", prompts)

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return the questions of each example with the new ones, in order."""
        given = [questions_of(example) for example in examples]
        requests = [
            QuestionRequest(
                self._fill(str(example.extra.get(CATEGORY, "")), questions),
                example.image,
                self.ask_for,
                derive(self.seed, "questions", example.key),
            )
            for example, questions in zip(examples, given, strict=True)
        ]
        answers = self.writer.write(requests)
        return [
            self._judge(example, questions, answer)
            for example, questions, answer in zip(examples, given, answers, strict=True)
        ]

    def describe(self) -> dict[str, str]:
        """Return the writer of the questions, the judge, and the hash of the prompts."""
        words = sha256_text(str(sorted(self._prompts.items())))[:16]
        judged = {} if self.judge is None else self.judge.describe()
        return {**self.writer.describe(), **judged, "prompts": f"{self.prompt} sha256:{words}"}

    def _fill(self, category: str, questions: Sequence[SourceQuestion]) -> str:
        values = {
            "<category>": category or "any",
            "<basic>": _said(questions[0]),
            "<given>": "\n".join(map(_said, questions[1:])),
            "<count>": str(self.ask_for),
        }
        prompt = self._prompts.get(category.lower(), self._prompts[ANY])
        # One pass: a question may contain text that looks like another placeholder.
        return PLACE.sub(lambda match: values[match.group()], prompt)

    def _judge(
        self, example: Example, given: Sequence[SourceQuestion], answer: WrittenQuestions
    ) -> Edited:
        """Return the proposal of the valid questions, and the rejected ones with their reasons."""
        rejected = []
        if not answer.questions:
            reason = answer.problem or NO_QUESTIONS
            rejected.append(Rejected("", Edit(COUNTERFACTUAL, "", ""), reason, answer.extra))
        valid: list[SourceQuestion] = []
        for written in answer.questions:
            text = normalise(written.text)
            options = (normalise(written.right), normalise(written.wrong))
            # Keyed by the question, so that the order is independent of the other questions.
            first = int(generator(self.seed, "option order", example.key, text).integers(2))
            ordered = options if first == 0 else options[::-1]
            presupposed = normalise(written.presupposition)
            extra = {PRESUPPOSITION: presupposed, SOURCE: "llm", VERIFIED: False}
            question = SourceQuestion(NEW, COUNTERFACTUAL, text, ordered, first, extra)
            if reason := _wrong(question, [*given, *valid], self.max_words):
                rejected.append(_reject(question, reason))
            else:
                valid.append(question)
        survivors = {"written": len(answer.questions), "valid": len(valid)}
        good = valid
        if self.judge is not None:
            reasons = self.judge.judge(example.image, valid)
            judged = list(zip(valid, reasons, strict=True))
            good = [question for question, reason in judged if not reason]
            rejected += [_reject(question, reason) for question, reason in judged if reason]
            survivors["judged"] = len(good)
        enough = len(good) >= self.count
        chosen = good[: self.count] if enough else []
        left = good[len(chosen) :]
        rejected += [_reject(question, NOT_NEEDED if enough else FEW) for question in left]
        survivors["enough"] = int(enough)
        if not enough:
            return Edited((), survivors, tuple(rejected))
        new = [replace(question, id=f"c{len(given) + i}") for i, question in enumerate(chosen)]
        questions = (*given, *new)
        edits = [
            Edit(COUNTERFACTUAL, "", str(question.extra.get(PRESUPPOSITION) or question.text))
            for question in questions[1:]
        ]
        # Every member has its own question, without repeating those of its example.
        details = ({QUESTION: details_of(question), QUESTIONS: None} for question in questions)
        texts = tuple(question.text for question in questions)
        proposal = Proposal(example, texts, (None, *edits), details=tuple(details))
        return Edited((proposal,), survivors, tuple(rejected))


def _wrong(question: SourceQuestion, others: Sequence[SourceQuestion], max_words: int) -> str:
    """Return the first problem of a question; empty if there is none."""
    if len(question.text.split()) > max_words:
        return "too long"
    # Neither the condition that the writer states nor the one in the text may contain the answer.
    for variant in (question, replace(question, extra={})):
        for problem, _ in check_question(variant):
            return problem
    same = {other.text.casefold() for other in others}
    return DUPLICATED if question.text.casefold() in same else ""


def _reject(question: SourceQuestion, reason: str) -> Rejected:
    edit = Edit(COUNTERFACTUAL, "", str(question.extra[PRESUPPOSITION]))
    return Rejected(question.text, edit, reason, {QUESTION: details_of(question)})


def _said(question: SourceQuestion) -> str:
    right = question.right
    return f"- {question.text}" + ("" if right is None else f" (right answer: {right})")


def _read_prompt(file: Path, where: str) -> str:
    try:
        text = require_regular(file).read_text(encoding="utf-8-sig").strip()
    except (OSError, ValueError) as error:
        raise UserError(
            f"prompt={where} cannot be read ({error}): give {' or '.join(SHIPPED)}, a file or a "
            "folder"
        ) from error
    for placeholder in PLACES:
        if text.count(placeholder) != 1:
            raise UserError(f"{file}: the prompt should have {placeholder} once")
    return text


# A second model that answers proposed questions, to find answers that the image contradicts.

OTHERWISE, NO_ANSWER = "second model answers otherwise", "second model has no answer"
DEVICE = "device of the question judge"


@dataclass(frozen=True)
class AnswererJudge:
    """Rejects questions that a vision-language model answers differently (answer ranking).

    The model should be neither the one that wrote the questions nor one that is tested later,
    because a selection of questions that a model answers correctly favours that model.

    Args:
        model: the specification of a model that provides an Answerer, such as
            ``conf/model/vlm.yaml``.
        device: a name for ``choose_device``; ``auto`` is CUDA where there is one.
    """

    model: Checkpoint
    device: Annotated[str, NO_RESULT] = "auto"

    def __post_init__(self) -> None:
        check_device(self.device, DEVICE)

    @cached_property
    def _answerer(self) -> Any:
        device = choose_device(self.device, DEVICE)
        loaded: Any = self.model.load(Answerer)
        return loaded.to(device)

    def judge(self, image: SourceImage | None, questions: Sequence[SourceQuestion]) -> list[str]:
        """Return the reason to reject each question; empty if the model gives the same answer.

        Args:
            image: the image of the questions; ``None`` asks without an image.

        Raises:
            RejectedError: if the image cannot be decoded.
        """
        if not questions:
            return []
        try:
            shown = None if image is None else decode_image(image.read(), "the image of a question")
        except UserError as error:
            raise RejectedError(BROKEN_PHOTO, str(error)) from error
        prompted = [Question(question.text, question.options) for question in questions]
        (answers,) = self._answerer.answer([shown], [prompted])
        reasons = []
        for question, answer in zip(questions, answers, strict=True):
            means = [score.mean_nll for score in answer.scores]
            chosen = means.index(min(means)) if means else None
            reasons.append(NO_ANSWER if chosen is None else OTHERWISE * (chosen != question.answer))
        return reasons

    def describe(self) -> dict[str, str]:
        return {"question_judge": f"{self.model} sha256:{self.model.weights_hash()}"}
