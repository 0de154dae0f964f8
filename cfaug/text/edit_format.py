"""How a tuned language model is asked for edited captions, and how its answer is read.

The wrapper is Alpaca's (Taori et al., 2023) with ``### Variations:`` for the answer's header, as in
LANCE's released code: an instruction, the caption, and one variation a line. Training and asking
share this module, so that a model is asked in the words it was trained with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cfaug.errors import UserError
from cfaug.files import require_regular, write_json
from cfaug.text.edit_prompts import EditPrompt, read_prompts

FILE = "edit_format.json"
"""Beside the weights of a model that was tuned."""

INSTRUCTION, INPUT = "{instruction}", "{input}"

ALPACA = (
    "Below is an instruction that describes a task, paired with an input that provides further "
    "context. Write a response that appropriately completes the request.\n\n"
    f"### Instruction:\n{INSTRUCTION}\n\n### Input:\n{INPUT}\n\n### Variations:\n"
)
"""For models of 1,000 tokens and more."""

SHORT = f"{INSTRUCTION}: {INPUT}\n### Variations:\n"
"""For tiny models, whose instructions are the names of the prompts."""

_NUMBER = re.compile(r"^\s*(?:\(?\d{1,3}[.):]\s*|[-*•–]\s+)")
_QUOTES = "\"'“”‘’"


@dataclass(frozen=True)
class EditFormat:
    """The words a tuned model is asked in.

    Attributes:
        template: with ``{instruction}`` and ``{input}``; the answer follows directly.
        prompts: by name; the instruction is all of a prompt but the line of its caption.
        named: take a prompt's name for its instruction, which tiny models learn as well.
    """

    template: str = ALPACA
    prompts: Mapping[str, EditPrompt] = field(
        default_factory=lambda: {one.name: one for one in read_prompts("plain")}
    )
    named: bool = False

    def __post_init__(self) -> None:
        for place in (INSTRUCTION, INPUT):
            if self.template.count(place) != 1:
                raise UserError(f"the template of an edit format should have {place} once")

    @classmethod
    def short(cls) -> EditFormat:
        """Return the format of tiny models: the prompt's name, the caption, the header."""
        return cls(SHORT, named=True)

    def prompt(self, name: str, caption: str) -> str:
        r"""Return what is put before the answer.

        >>> EditFormat.short().prompt("adjective", "a red ball")
        'adjective: a red ball\n### Variations:\n'

        Args:
            name: of a prompt, or a kind, which stands for the first prompt of its kind.
            caption: that is to be edited.

        Raises:
            UserError: if there is no such prompt.
        """
        prompt = self.find(name)
        said = prompt.name if self.named else prompt.instruction
        # Not format(): a caption may hold braces.
        before, _, rest = self.template.partition(INSTRUCTION)
        between, _, after = rest.partition(INPUT)
        return f"{before}{said}{between}{prompt.input(caption)}{after}"

    def find(self, name: str) -> EditPrompt:
        """Return the prompt of a name, or the first of a kind.

        Raises:
            UserError: if there is none, naming those there are.
        """
        kinds = [one for one in self.prompts.values() if one.kind == name]
        found = self.prompts.get(name) or next(iter(kinds), None)
        if found is None:
            raise UserError(
                f"a model was not tuned for edits of the kind {name!r}: choose from "
                f"{', '.join(self.prompts)}"
            )
        return found

    def response(self, variations: Sequence[str]) -> str:
        r"""Return what a model is to answer: one variation a line, numbered.

        >>> EditFormat.short().response(["a blue ball", "a small red ball"])
        '1. a blue ball\n2. a small red ball'
        """
        lines = [" ".join(text.split()) for text in variations]
        return "\n".join(f"{number}. {text}" for number, text in enumerate(lines, 1))

    def write(self, folder: Path) -> None:
        """Write the format beside a model's weights."""
        write_json(folder / FILE, self.content(), sort_keys=False)

    def content(self) -> dict[str, Any]:
        """Return what ``write`` writes."""
        prompts = {name: one.text for name, one in self.prompts.items()}
        return {"template": self.template, "prompts": prompts, "named": self.named}

    @classmethod
    def read(cls, folder: Path) -> EditFormat:
        """Return the format of a tuned model.

        Raises:
            UserError: if the folder has none, or it is invalid.
        """
        file = folder / FILE
        try:
            about = json.loads(require_regular(file).read_text(encoding="utf-8"))
            prompts = {str(k): EditPrompt(str(k), str(v)) for k, v in about["prompts"].items()}
            return cls(str(about["template"]), prompts, bool(about["named"]))
        except FileNotFoundError as error:
            raise UserError(
                f"{folder} has no {FILE}: it was not tuned by `python train.py "
                "experiment=lance_perturber`; ask it by cfaug.text.language_edits.InstructModel"
            ) from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(f"{file} is invalid: {error!r}") from error


def parse_variations(answer: str) -> tuple[str, ...]:
    r"""Return the variations of an answer: its lines, numbers and quotes stripped, each once.

    >>> parse_variations('1. A red cat.\n2) "a blue cat"\n\n- a red cat.\n')
    ('A red cat.', 'a blue cat')

    Args:
        answer: as a model gave it. What looks like another header ends it.
    """
    body = answer.split("\n###")[0]
    return unique(_strip(line) for line in body.splitlines())


def unique(texts: Iterable[str]) -> tuple[str, ...]:
    """Return texts, white space normalised, without empty ones and repetitions (case aside).

    >>> unique(["a  cat", "A cat", "", "a dog"])
    ('a cat', 'a dog')
    """
    found: dict[str, str] = {}
    for text in texts:
        one = " ".join(text.split())
        if one:
            found.setdefault(one.lower(), one)
    return tuple(found.values())


def _strip(line: str) -> str:
    """Take the number before a line and the quotes around it away."""
    text = _NUMBER.sub("", line).strip()
    if len(text) > 1 and text[0] in _QUOTES and text[-1] in _QUOTES:
        return text[1:-1].strip()
    return text
