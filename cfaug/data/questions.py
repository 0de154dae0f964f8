"""Sets of questions about images: each with the questions about it, and answers.

A set in CFMM's form has one basic question for each image and counterfactual questions about the
same thing (section 3.1); other sets have kinds of their own. Readers are in
``cfaug.data.sources.question_sets``; the form in which models answer is ``cfaug.core.answers``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.types import KEY_PATTERN, Example, SourceImage

BASIC, COUNTERFACTUAL = "basic", "counterfactual"
"""Kinds of questions: about the image as it is, and about the image under a condition."""
PLAIN = "question"
"""The kind of all questions of a set without counterfactual ones."""
NO_OPTION = -1
"""The answer of a question whose right answer, ``extra["answer"]``, is not among its options."""
FEWEST_OPTIONS = 2
"""The smallest number of options among which a model can choose."""
PRESUPPOSITION, SOURCE, VERIFIED, CLOSED = "presupposition", "source", "verified", "closed"
"""Names in a question's ``extra``: the condition alone; the author of the question, ``human`` or
``llm``; whether a person verified it; and whether the set itself gives no options, so that the
options are all answers to questions of this type."""
GROUPS = "groups"
"""Name in a question's ``extra``: the groups that it belongs to, ``{metric: name}``. The metric is
the share of groups in which every answer is right: a group of ``q_acc`` is one question about
several images, a group of ``f_acc`` several questions about one figure."""
EXPECTED_BIAS = "expected_bias"
"""Name in a question's ``extra``: the option that is usually right, but not of this image, so that
a model which answers from memory chooses it."""
STATES_FORM = "states_form"
"""Name in a question's ``extra``: whether its text says in which form to answer, so that a model
may write its answer without seeing the options."""
DISPUTED = "disputed"
"""Name in a question's ``extra``: the reason why its answer is said to be wrong; it is kept."""
QUESTION, QUESTIONS, CATEGORY = "question", "questions", "category"
"""Names in the ``extra`` of a member and of an example: a question without its text, all questions
about an image, and the image's category."""


def _as_arguments(record: Any) -> tuple[type, tuple[Any, ...]]:
    """Return a record's class and the arguments that make it."""
    values = (getattr(record, entry.name) for entry in fields(record))
    plain = (dict(value) if isinstance(value, MappingProxyType) else value for value in values)
    return type(record), tuple(plain)


@dataclass(frozen=True)
class SourceQuestion:
    """A question as its source has it.

    Attributes:
        id: the question's name, unique among the image's questions, ``[a-z0-9_-]+``.
        kind: the kind of question: ``basic``, ``counterfactual``, or the set's own kind.
        text: the question's text, without the options.
        options: the options in the set's order.
        answer: the index of the right option; ``None`` if the set gives no answer. An index without
            an option is not refused here: ``cfaug.evaluation.questions.question_checks`` finds it.
        extra: the set's further fields about the question, JSON.
    """

    id: str
    kind: str
    text: str
    options: tuple[str, ...]
    answer: int | None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", tuple(self.options))
        object.__setattr__(self, "extra", MappingProxyType(dict(self.extra)))
        if not KEY_PATTERN.fullmatch(self.id):
            raise UserError(f"question id {self.id!r} is invalid: use a-z, 0-9, '_' and '-'")
        for part, text in (("text", self.text), *(("option", option) for option in self.options)):
            if not isinstance(text, str) or not text.strip():
                raise UserError(f"question {self.id!r}: {part} {text!r} should be a text")

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """Support pickling, which parallel jobs of a sweep need and mapping proxies lack."""
        return _as_arguments(self)

    @property
    def right(self) -> str | None:
        """The right option; ``None`` if the answer is unknown or is not an option."""
        if self.answer is None or not 0 <= self.answer < len(self.options):
            return None
        return self.options[self.answer]

    @property
    def unscorable(self) -> str:
        """The reason why the question cannot be scored; empty if it can."""
        if self.right is None:
            return "no_answer"
        if len(self.options) < FEWEST_OPTIONS:
            return "one_option"
        return "" if len(set(self.options)) == len(self.options) else "equal_options"


@dataclass(frozen=True)
class QuestionImage:
    """An image and the questions about it.

    Attributes:
        key: the image's name, unique in the set, ``[a-z0-9_-]+``.
        group: the name that images which belong together share: rows of one photo, a pair.
        image: the image; ``None`` for questions without one.
        category: the category that tables report by; may be empty.
        questions: the questions in order; the basic one precedes its counterfactual ones.
        extra: the set's further fields about the image, JSON.
    """

    key: str
    group: str
    image: SourceImage | None
    category: str
    questions: tuple[SourceQuestion, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "questions", tuple(self.questions))
        object.__setattr__(self, "extra", MappingProxyType(dict(self.extra)))
        if not KEY_PATTERN.fullmatch(self.key):
            raise UserError(f"image key {self.key!r} is invalid: use a-z, 0-9, '_' and '-'")
        ids = [question.id for question in self.questions]
        if not ids or len(set(ids)) < len(ids):
            problem = "duplicated question ids" if ids else "no question"
            raise UserError(f"image {self.key!r} has {problem}")

    def of_kind(self, kind: str) -> tuple[SourceQuestion, ...]:
        """Return the questions of one kind, in order."""
        return tuple(question for question in self.questions if question.kind == kind)

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """Support pickling, which parallel jobs of a sweep need and mapping proxies lack."""
        return _as_arguments(self)


def details_of(question: SourceQuestion) -> dict[str, Any]:
    """Return a question without its text, as JSON; ``question_of`` reverses this."""
    return {
        "id": question.id,
        "kind": question.kind,
        "options": list(question.options),
        "answer": question.answer,
        "extra": dict(question.extra),
    }


def question_of(text: str, details: object, where: str) -> SourceQuestion:
    """Return the question with a text and details.

    Args:
        details: the result of ``details_of``, as JSON.
    """
    try:
        return SourceQuestion(
            id=details["id"],  # type: ignore[index]  # an invalid value is refused below
            kind=details["kind"],  # type: ignore[index]
            text=text,
            options=tuple(details["options"]),  # type: ignore[index]
            answer=details["answer"],  # type: ignore[index]
            extra=details["extra"],  # type: ignore[index]
        )
    except (TypeError, KeyError, ValueError) as error:
        raise UserError(f"{where}: {text!r:.80} is not a question with its options") from error


def example_of(image: QuestionImage) -> Example:
    """Return the example that generation starts from; its text is the basic question."""
    basic, further = image.of_kind(BASIC), image.of_kind(COUNTERFACTUAL)
    if len(basic) != 1 or not further:
        raise UserError(
            f"{image.key!r} has {len(basic)} basic and {len(further)} counterfactual questions: "
            "one basic question and at least one counterfactual are needed"
        )
    questions = [{"text": question.text, **details_of(question)} for question in (*basic, *further)]
    extra = {**image.extra, CATEGORY: image.category, QUESTIONS: questions}
    return Example(image.key, image.group, (basic[0].text,), image.image, extra=extra)


def questions_of(example: Example) -> tuple[SourceQuestion, ...]:
    """Return the questions of an example that ``example_of`` made, the basic one first."""
    questions = example.extra.get(QUESTIONS)
    where = f"example {example.key!r}"
    if not isinstance(questions, list) or not questions:
        raise UserError(f"{where} has no questions: the source should be a question set")
    return tuple(question_of(str(question.get("text")), question, where) for question in questions)
