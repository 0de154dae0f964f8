"""Prompts that ask whether a statement follows from an image, read from files. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cfaug.core.errors import UserError
from cfaug.core.prompt_files import find_prompt_file, read_keys
from cfaug.core.types import ENTAILMENT

HYPOTHESIS = "{hypothesis}"
SHIPPED = ("yes_maybe_no", "labels")

Reduction = Literal["sum", "token_mean"]


@dataclass(frozen=True)
class EntailmentPrompt:
    """A question, and the answer for each label.

    Attributes:
        question: the question, with the placeholder ``{hypothesis}`` once.
        options: {label: answer}, one for each of ``cfaug.core.types.ENTAILMENT``.
    """

    question: str
    options: Mapping[str, str]


def read_prompt(name: str) -> EntailmentPrompt:
    """Read a shipped prompt, or a YAML file with ``question`` and ``options``.

    >>> read_prompt("yes_maybe_no").options["neutral"]
    'maybe'

    Args:
        name: ``yes_maybe_no``, ``labels``, or the path of a YAML file.

    Raises:
        UserError: if there is no such file, or its content is invalid.
    """
    file = find_prompt_file(
        name, SHIPPED, "models/entailment_prompts", "model.asked", "question and options"
    )
    return _check(read_keys(file, ("question", "options")), file)


def _check(found: Any, file: Path) -> EntailmentPrompt:
    question, options = found["question"], found["options"]
    if not isinstance(question, str) or question.count(HYPOTHESIS) != 1:
        raise UserError(f"{file}: the question should be a text with {HYPOTHESIS} exactly once")
    if not isinstance(options, dict) or set(options) != set(ENTAILMENT):
        raise UserError(
            f"{file}: options should give an answer for each of {', '.join(ENTAILMENT)}"
        )
    wrong = [label for label, text in options.items() if not isinstance(text, str) or not text]
    if wrong:
        raise UserError(
            f"{file}: the answer for {wrong[0]} should be a text, not {options[wrong[0]]!r}; YAML "
            "takes yes and no for booleans: put them in quotation marks"
        )
    if len(set(options.values())) < len(options):
        raise UserError(f"{file}: two labels have the same answer")
    return EntailmentPrompt(question, options)
