"""The prompt format of a tuned language model for edited captions, and the parser of its answers.

The wrapper is Alpaca's (Taori et al., 2023) with ``### Variations:`` as the header of the answer,
as in LANCE's released code: an instruction, the caption, and one variation in each line. Training
and inference share this module, so that a model is prompted in the words it was trained with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular, write_file, write_json
from cfaug.core.rng import generator
from cfaug.editing.edit_prompts import PHOTO, EditPrompt, read_prompts

FILE = "edit_format.json"
"""The file of the format beside the weights of a tuned model."""
INSTRUCTION, INPUT = "{instruction}", "{input}"
ALPACA = (
    "Below is an instruction that describes a task, paired with an input that provides further "
    "context. Write a response that appropriately completes the request.\n\n"
    f"### Instruction:\n{INSTRUCTION}\n\n### Input:\n{INPUT}\n\n### Variations:\n"
)
"""Template for models with a context of 1,000 tokens and more."""
SHORT = f"{INSTRUCTION}: {INPUT}\n### Variations:\n"
"""Template for tiny models, whose instructions are the names of the prompts."""
_NUMBER = re.compile(r"^\s*(?:\(?\d{1,3}[.):]\s*|[-*•–]\s+)")
_QUOTES = "\"'“”‘’"


@dataclass(frozen=True)
class EditFormat:
    """The wording in which a tuned model is prompted.

    Attributes:
        template: the text around instruction and caption, with ``{instruction}`` and ``{input}``;
            the answer follows directly.
        prompts: the prompts by name; an instruction is the prompt without the line of its caption.
        named: whether a prompt's name is its instruction, which is easier for tiny models.
    """

    template: str = ALPACA
    prompts: Mapping[str, EditPrompt] = field(
        default_factory=lambda: {prompt.name: prompt for prompt in read_prompts("plain")}
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
        r"""Return the text before the answer.

        >>> EditFormat.short().prompt("adjective", "a red ball")
        'adjective: a red ball\n### Variations:\n'

        Args:
            name: the name of a prompt, or a kind, which selects the first prompt of that kind.
        """
        prompt = self.find(name)
        said = prompt.name if self.named else prompt.instruction
        # Not format(): a caption may contain braces.
        before, _, rest = self.template.partition(INSTRUCTION)
        between, _, after = rest.partition(INPUT)
        return f"{before}{said}{between}{prompt.input(caption)}{after}"

    def find(self, name: str) -> EditPrompt:
        """Return the prompt of a name, or the first of a kind."""
        kinds = [prompt for prompt in self.prompts.values() if prompt.kind == name]
        found = self.prompts.get(name) or next(iter(kinds), None)
        if found is None:
            raise UserError(
                f"a model was not tuned for edits of the kind {name!r}: choose from "
                f"{', '.join(self.prompts)}"
            )
        return found

    def response(self, variations: Sequence[str]) -> str:
        r"""Return the target answer: a numbered variation in each line.

        >>> EditFormat.short().response(["a blue ball", "a small red ball"])
        '1. a blue ball\n2. a small red ball'
        """
        lines = [" ".join(text.split()) for text in variations]
        return "\n".join(f"{number}. {text}" for number, text in enumerate(lines, 1))

    def write(self, folder: Path) -> None:
        """Write the format beside a model's weights."""
        write_json(folder / FILE, self.content(), sort_keys=False)

    def content(self) -> dict[str, Any]:
        """Return the content of the file that ``write`` writes."""
        prompts = {name: one.text for name, one in self.prompts.items()}
        return {"template": self.template, "prompts": prompts, "named": self.named}

    @classmethod
    def read(cls, folder: Path) -> EditFormat:
        """Return the format of a tuned model."""
        file = folder / FILE
        try:
            about = json.loads(require_regular(file).read_text(encoding="utf-8"))
            prompts = {str(k): EditPrompt(str(k), str(v)) for k, v in about["prompts"].items()}
            return cls(str(about["template"]), prompts, bool(about["named"]))
        except FileNotFoundError as error:
            raise UserError(
                f"{folder} has no {FILE}: it was not tuned by `python train.py "
                "experiment=lance_perturber`; ask it by cfaug.editing.instructed_edit.InstructModel"
            ) from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(f"{file} is invalid: {error!r}") from error


def parse_variations(answer: str) -> tuple[str, ...]:
    r"""Return the variations of an answer: its distinct lines without numbers and quotes.

    >>> parse_variations('1. A red cat.\n2) "a blue cat"\n\n- a red cat.\n')
    ('A red cat.', 'a blue cat')

    Args:
        answer: the raw answer of a model; a line that looks like another header ends it.
    """
    body = answer.split("\n###")[0]
    return unique(_strip(line) for line in body.splitlines())


def unique(texts: Iterable[str]) -> tuple[str, ...]:
    """Return texts with normalised white space, without empty and (ignoring case) repeated ones.

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
    """Remove the number before a line and the quotes around it."""
    text = _NUMBER.sub("", line).strip()
    if len(text) > 1 and text[0] in _QUOTES and text[-1] in _QUOTES:
        return text[1:-1].strip()
    return text


# Training rows of a language model that edits captions: a caption, a kind and one edit each.
#
#     {"caption": "a red ball", "kind": "adjective", "edit": "a blue ball"}
#
# Each line is a JSON object; ``kind`` is the name of a prompt (``background-weather``) or a kind
# (``background``, its first prompt). Other keys are ignored. The edits of one caption by one prompt
# form one answer, in their order, with a variation in each line.

COLUMNS = ("caption", "kind", "edit")


@dataclass(frozen=True)
class EditAnswer:
    """The target answer to one prompt about one caption.

    Attributes:
        caption: the caption with normalised white space.
        edits: the edited captions, in order.
    """

    caption: str
    prompt: str
    edits: tuple[str, ...]


def group_rows(
    rows: Iterable[tuple[str, Mapping[str, Any]]], asked: EditFormat, owner: object
) -> list[EditAnswer]:
    """Check rows and group them by caption and prompt, in the order of their first rows.

    Args:
        rows: pairs (``FILE, line N``, row) from ``cfaug.data.sources.lists.json_lines``.
        asked: the format with the prompts that ``kind`` names.
    """
    lines: dict[tuple[str, str, str], str] = {}
    found: dict[tuple[str, str], list[str]] = {}
    captions: dict[tuple[str, str], str] = {}
    for where, row in rows:
        caption, kind, edit = (_text(row, name, where) for name in COLUMNS)
        try:
            prompt = asked.find(kind).name
        except UserError as error:
            raise UserError(f"{where}: kind {kind!r} is invalid: {error}") from error
        key = _key(caption)
        if _key(edit) == key:
            raise UserError(f"{where}: the edit is the caption itself, {caption!r}: remove the row")
        earlier = lines.setdefault((key, prompt, _key(edit)), where)
        if earlier != where:
            raise UserError(f"{where} is duplicated: {earlier} has the same caption, kind and edit")
        captions.setdefault((key, prompt), caption)
        found.setdefault((key, prompt), []).append(edit)
    if not found:
        raise UserError(f"{owner} has no row: {_form()}")
    return [
        EditAnswer(captions[key, prompt], prompt, tuple(edits))
        for (key, prompt), edits in found.items()
    ]


def write_rows(file: Path, answers: Iterable[EditAnswer]) -> None:
    """Write answers in the form that ``group_rows`` reads, one edit in each line."""
    rows = (
        dict(zip(COLUMNS, (answer.caption, answer.prompt, edit), strict=True))
        for answer in answers
        for edit in answer.edits
    )
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_file(file, text.encode())


def split_by_caption(
    answers: Sequence[EditAnswer], share: float, seed: int
) -> tuple[list[EditAnswer], list[EditAnswer]]:
    """Split answers into a part for training and a held-out part, by caption.

    No caption is in both parts, whatever its spelling: "A photo of a cat" and "a cat" are the same.

    Args:
        answers: the answers that ``group_rows`` returns.
        share: the share of captions to hold out, in [0, 1); at least one caption unless it is 0.

    Returns:
        The answers for training, and the held-out ones.
    """
    keys = sorted({caption_key(answer.caption) for answer in answers})
    aside = 0 if not share else max(1, round(share * len(keys)))
    order = generator(seed, "edits", "split").permutation(len(keys))
    held = {keys[i] for i in order[:aside]}
    training = [answer for answer in answers if caption_key(answer.caption) not in held]
    if not training:
        raise UserError(
            f"data.validation={share} leaves none of {len(keys)} captions to train on: give more "
            "captions, or a smaller share"
        )
    return training, [answer for answer in answers if caption_key(answer.caption) in held]


def caption_key(caption: str) -> str:
    """Return a key that all spellings of one caption share.

    >>> caption_key("A photo of a Cat.") == caption_key("a cat")
    True
    """
    return PHOTO.sub("", _key(caption))


def _key(text: str) -> str:
    return text.lower().rstrip(" .")


def _text(row: Mapping[str, Any], name: str, where: str) -> str:
    """Return the text of a column, with normalised white space."""
    if name not in row:
        raise UserError(f"{where}: {name!r} is missing: {_form()}")
    value = row[name]
    text = " ".join(value.split()) if isinstance(value, str) else ""
    if not text:
        raise UserError(f"{where}: {name!r} is {json.dumps(value)[:60]}, which is invalid: a text")
    return text


def _form() -> str:
    return 'a row is {"caption": "a red ball", "kind": "adjective", "edit": "a blue ball"}'
