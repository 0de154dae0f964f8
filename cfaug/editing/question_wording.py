"""The wording of questions to a model: files of prompts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.prompt_files import find_prompt_file, read_keys

QUESTION, OPTIONS = "{question}", "{options}"
SHIPPED_WORDINGS = ("plain", "short", "listed")

_PLACES = re.compile(r"\{(\w*)\}")


@dataclass(frozen=True)
class Wording:
    """Templates with ``{question}`` once, and with ``{options}`` where the options are shown.

    Attributes:
        question: the template for ranked options.
        written: the template for an answer that the model writes; it has to show the options.
        rationale: the template for a chain of thought.
        marker: the text between a rationale and the answer.
        prior: the text before options that are ranked without a question; without ``{question}``.
    """

    question: str
    written: str
    rationale: str
    marker: str
    prior: str


def fill(template: str, question: str, options: Sequence[str]) -> str:
    """Return a template with its placeholders filled.

    >>> fill("{question} ({options})", "Is {options} red?", ["yes", "no"])
    'Is {options} red? (yes, no)'

    Args:
        template: a template of a ``Wording``.
        question: the text of the question.
        options: the texts of the options, in the order in which they are shown.
    """
    given = {"question": question, "options": ", ".join(options)}
    return _PLACES.sub(lambda place: given[place[1]], template)


def read_wording(name: str) -> Wording:
    """Read shipped templates, or a user's YAML file.

    >>> read_wording("plain").question
    '{question}'

    Args:
        name: one of ``SHIPPED``, or the path of a file.

    Raises:
        UserError: if there is no such file, or a template is missing or invalid.
    """
    file = find_prompt_file(
        name, SHIPPED_WORDINGS, "editing/question_wordings", "benchmark.wording", "the same keys"
    )
    wanted = [one.name for one in fields(Wording)]
    found = read_keys(file, wanted)
    for key in wanted:
        _check(found[key], key, file)
    return Wording(**found)


def _check(template: Any, key: str, file: Path) -> None:
    if not isinstance(template, str) or not template.strip():
        raise UserError(f"{file}: {key} should be a text, not {template!r}")
    places = _PLACES.findall(template)
    asks = key in ("question", "written", "rationale")
    permitted = {"question", "options"} if asks else {"options"} if key == "prior" else set()
    if strange := [one for one in places if one not in permitted]:
        raise UserError(f"{file}: {key} may not have the placeholder {{{strange[0]}}}")
    if asks and places.count("question") != 1:
        raise UserError(f"{file}: {key} needs {QUESTION} exactly once")
    if key == "written" and OPTIONS not in template:
        raise UserError(f"{file}: {key} needs {OPTIONS}: the model has to see the answers")
