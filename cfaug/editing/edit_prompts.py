"""Prompts that ask a language model for edited captions, in files.

``background-weather.txt`` asks for edits of the kind ``background``: a kind may have several
prompts, distinguished by the part after the hyphen. ``<caption>`` is the placeholder of the
caption. Two sets are shipped, both from LANCE (Prabhu et al., 2023, Table 5): ``examples`` for
models that were not tuned, and ``plain`` without the worked examples, as instructions of a tuned
model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.prompt_files import find_prompt_file, read_keys

PROMPT_SETS = ("examples", "plain")
CAPTION = "<caption>"
PHOTO = re.compile(r"^\s*an?\s+(?:photo|photograph)\s+of\s+", re.IGNORECASE)
"""Beginnings of captions that are removed after the same words of a prompt."""
_NAME = re.compile(r"[a-z][a-z0-9_]*(-[a-z0-9_-]+)?")


@dataclass(frozen=True)
class EditPrompt:
    """A prompt that asks for edits of one kind.

    Attributes:
        name: the name of its file: the kind of the edits, and after a hyphen a name that
            distinguishes the prompts of one kind.
        text: the prompt, with the placeholder ``<caption>``.
    """

    name: str
    text: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UserError(
                f"the name of a prompt, {self.name!r}, is invalid: KIND or KIND-VARIANT in "
                "lower-case letters, digits and '_'"
            )
        if self.text.count(CAPTION) != 1:
            raise UserError(
                f"the prompt {self.name!r} should have {CAPTION} once, where the caption is put"
            )

    @property
    def kind(self) -> str:
        """The kind of the requested edits."""
        return self.name.partition("-")[0]

    @property
    def instruction(self) -> str:
        """The part before the line of the caption."""
        return self.text[: self._line].strip()

    def say(self, caption: str) -> str:
        """Return the whole prompt with a caption in its place.

        >>> EditPrompt("domain", "Change the domain. A photo of <caption>").say("A photo of a cat")
        'Change the domain. A photo of a cat'
        """
        before, _, after = self.text.partition(CAPTION)
        return f"{before}{self._fit(before, caption)}{after}"

    def input(self, caption: str) -> str:
        """Return only the line of the caption, for models with a separate field for it."""
        before, _, after = self.text[self._line :].partition(CAPTION)
        return f"{before}{self._fit(before, caption)}{after}".strip()

    @property
    def _line(self) -> int:
        """The place where the line of the caption begins."""
        return self.text.rfind("\n", 0, self.text.index(CAPTION)) + 1

    def _fit(self, before: str, caption: str) -> str:
        """Return the caption without the words that the prompt already has."""
        said = PHOTO.search(before[before.rfind("\n") + 1 :].rpartition(". ")[2])
        return PHOTO.sub("", caption) if said else caption


def read_prompts(where: str | Path, kinds: Sequence[str] | None = None) -> tuple[EditPrompt, ...]:
    """Return the prompts of a shipped set, or of a folder of ``.txt`` files, by name.

    Args:
        where: ``examples``, ``plain``, or the path of a folder.
        kinds: the requested kinds, in the order of the result; ``None`` for all.
    """
    prompts = [_read(file) for file in _list_files(where)]
    if not prompts:
        raise UserError(
            f"prompts={where} has no prompt: choose {', '.join(PROMPT_SETS)}, or a folder with a "
            f"file KIND.txt for each kind of edit, with {CAPTION} where the caption is put"
        )
    if kinds is None:
        return tuple(prompts)
    there = {prompt.kind for prompt in prompts}
    missing = [kind for kind in kinds if kind not in there]
    if missing:
        raise UserError(
            f"prompts={where} has no prompt of the kind {missing[0]!r}: choose kinds from "
            f"{', '.join(sorted(there))}, or add {missing[0]}.txt to your own folder"
        )
    return tuple(prompt for kind in kinds for prompt in prompts if prompt.kind == kind)


def _list_files(where: str | Path) -> list[Path]:
    if str(where) in PROMPT_SETS:
        folder = Path(str(files("cfaug"))) / "editing" / "prompt_files" / str(where)
    else:
        folder = Path(where).expanduser()
    if not folder.is_dir():
        raise UserError(
            f"prompts={where} is not a folder: choose {', '.join(PROMPT_SETS)}, or a folder"
        )
    return sorted(folder.glob("*.txt"))


def _read(file: Path) -> EditPrompt:
    try:
        text = require_regular(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    try:
        return EditPrompt(file.stem, text)
    except UserError as error:
        raise UserError(f"{file}: {error}") from error


# The wording of questions to a model: files of prompts.

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
    """
    file = find_prompt_file(
        name, SHIPPED_WORDINGS, "editing/question_wordings", "benchmark.wording", "the same keys"
    )
    wanted = [field.name for field in fields(Wording)]
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
    if strange := [place for place in places if place not in permitted]:
        raise UserError(f"{file}: {key} may not have the placeholder {{{strange[0]}}}")
    if asks and places.count("question") != 1:
        raise UserError(f"{file}: {key} needs {QUESTION} exactly once")
    if key == "written" and OPTIONS not in template:
        raise UserError(f"{file}: {key} needs {OPTIONS}: the model has to see the answers")
