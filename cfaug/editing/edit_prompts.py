"""Prompts for edited captions: files for language models, and the format of tuned ones.

``background-weather.txt`` asks for edits of the kind ``background``: a kind may have several
prompts, distinguished by the part after the hyphen. ``<caption>`` is the placeholder of the
caption. Two sets are shipped, both from LANCE (Prabhu et al., 2023, Table 5): ``examples`` for
models that were not tuned, and ``plain`` without the worked examples, as instructions of a tuned
model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from cfaug.core.atomic_files import write_json
from cfaug.core.errors import UserError
from cfaug.core.files import find_prompt_file, read_keys, require_regular
from cfaug.core.outputs import write_output
from cfaug.core.rng import generator
from cfaug.core.safety.json_text import load_json

PROMPT_SETS = ("examples", "plain")
CAPTION = "<caption>"
PHOTO = re.compile(r"^\s*an?\s+(?:photo|photograph)\s+of\s+", re.IGNORECASE)
"""Beginnings of captions that are removed after the same words of a prompt."""


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
        if not re.fullmatch(r"[a-z][a-z0-9_]*(-[a-z0-9_-]+)?", self.name):
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
        return self._cut()[0].strip()

    def say(self, caption: str) -> str:
        """Return the whole prompt with a caption in its place.

        >>> EditPrompt("domain", "Change the domain. A photo of <caption>").say("A photo of a cat")
        'Change the domain. A photo of a cat'
        """
        instruction, before, after = self._cut()
        # Without the words that the prompt already has.
        if PHOTO.search(before.rpartition(". ")[2]):
            caption = PHOTO.sub("", caption)
        return f"{instruction}{before}{caption}{after}"

    def input(self, caption: str) -> str:
        """Return only the line of the caption, for models with a separate field for it."""
        return self.say(caption).removeprefix(self._cut()[0]).strip()

    def _cut(self) -> tuple[str, str, str]:
        """Return the lines before the caption's, and the text before and after the caption."""
        before, _, after = self.text.partition(CAPTION)
        line = before.rfind("\n") + 1
        return before[:line], before[line:], after


def read_prompts(where: str | Path, kinds: Sequence[str] | None = None) -> tuple[EditPrompt, ...]:
    """Return the prompts of a shipped set, or of a folder of ``.txt`` files, by name.

    Args:
        where: ``examples``, ``plain``, or the path of a folder.
        kinds: the requested kinds, in the order of the result; ``None`` for all.
    """
    folder = Path(where).expanduser()
    if str(where) in PROMPT_SETS:
        folder = Path(str(files("cfaug"))) / "editing" / "prompt_files" / str(where)
    if not folder.is_dir():
        raise UserError(
            f"prompts={where} is not a folder: choose {', '.join(PROMPT_SETS)}, or a folder"
        )
    prompts = []
    for file in sorted(folder.glob("*.txt")):
        try:
            text = require_regular(file).read_text(encoding="utf-8-sig").strip()
        except (OSError, ValueError) as error:
            raise UserError(f"{file} cannot be read: {error}") from error
        try:
            prompts.append(EditPrompt(file.stem, text))
        except UserError as error:
            raise UserError(f"{file}: {error}") from error
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


OPTIONS = "{options}"
SHIPPED_WORDINGS = ("plain", "short", "listed", "free")
_PLACES = re.compile(r"\{(\w*)\}")


@dataclass(frozen=True)
class Wording:
    """Templates with ``{question}`` once, and with ``{options}`` where the options are shown.

    Attributes:
        question: the template for ranked options.
        written: the template for an answer that the model writes; it has to show the options,
            unless the questions say in which form to answer.
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
    """
    given = {"question": question, "options": ", ".join(options)}
    return _PLACES.sub(lambda match: given[match[1]], template)


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
    permitted: dict[str, tuple[str, ...]] = {
        "question": ("question", "options"),
        "written": ("question", "options"),
        "rationale": ("question", "options"),
        "marker": (),
        "prior": ("options",),
    }
    templates = read_keys(file, list(permitted))
    for key, places in permitted.items():
        template = templates[key]
        if not isinstance(template, str) or not template.strip():
            raise UserError(f"{file}: {key} should be a text, not {template!r}")
        used = _PLACES.findall(template)
        if strange := [placeholder for placeholder in used if placeholder not in places]:
            raise UserError(f"{file}: {key} may not have the placeholder {{{strange[0]}}}")
        if "question" in places and used.count("question") != 1:
            raise UserError(f"{file}: {key} needs {{question}} exactly once")
    return Wording(**templates)


# The prompt format of a tuned language model for edited captions, and the parser of its answers.
#
# The wrapper is Alpaca's (Taori et al., 2023) with ``### Variations:`` as the header of the answer,
# as in LANCE's released code: an instruction, the caption, and one variation in each line. Training
# and inference share this module, so that a model is prompted in the words it was trained with.

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
        for placeholder in (INSTRUCTION, INPUT):
            if self.template.count(placeholder) != 1:
                raise UserError(f"the template of an edit format should have {placeholder} once")

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
        instruction = prompt.name if self.named else prompt.instruction
        # Not format(): a caption may contain braces.
        before, _, rest = self.template.partition(INSTRUCTION)
        between, _, after = rest.partition(INPUT)
        return f"{before}{instruction}{between}{prompt.input(caption)}{after}"

    def find(self, name: str) -> EditPrompt:
        """Return the prompt of a name, or the first of a kind."""
        if name in self.prompts:
            return self.prompts[name]
        for prompt in self.prompts.values():
            if prompt.kind == name:
                return prompt
        raise UserError(
            f"a model was not tuned for edits of the kind {name!r}: choose from "
            f"{', '.join(self.prompts)}"
        )

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
        prompts = {name: prompt.text for name, prompt in self.prompts.items()}
        return {"template": self.template, "prompts": prompts, "named": self.named}

    @classmethod
    def read(cls, folder: Path) -> EditFormat:
        """Return the format of a tuned model."""
        file = folder / FILE
        try:
            about = load_json(require_regular(file).read_text(encoding="utf-8"))
            prompts = {str(k): EditPrompt(str(k), str(v)) for k, v in about["prompts"].items()}
            return cls(str(about["template"]), prompts, bool(about["named"]))
        except FileNotFoundError as error:
            raise UserError(
                f"{folder} has no {FILE}: it was not tuned by `python train.py "
                "experiment=lance_perturber`; ask it by cfaug.editing.instructed_edit.InstructModel"
            ) from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{file} is invalid: {error!r}") from error


def parse_variations(answer: str) -> tuple[str, ...]:
    r"""Return the variations of an answer: its distinct lines without numbers and quotes.

    >>> parse_variations('1. A red cat.\n2) "a blue cat"\n\n- a red cat.\n')
    ('A red cat.', 'a blue cat')

    Args:
        answer: the raw answer of a model; a line that looks like another header ends it.
    """
    quotes = "\"'“”‘’"
    lines = []
    for line in answer.split("\n###")[0].splitlines():
        text = re.sub(r"^\s*(?:\(?\d{1,3}[.):]\s*|[-*•–]\s+)", "", line).strip()
        if len(text) > 1 and text[0] in quotes and text[-1] in quotes:
            text = text[1:-1]
        lines.append(text)
    return unique(lines)


def unique(texts: Iterable[str]) -> tuple[str, ...]:
    """Return texts with normalised white space, without empty and (ignoring case) repeated ones.

    >>> unique(["a  cat", "A cat", "", "a dog"])
    ('a cat', 'a dog')
    """
    distinct: dict[str, str] = {}
    for text in (" ".join(text.split()) for text in texts):
        if text:
            distinct.setdefault(text.lower(), text)
    return tuple(distinct.values())


COLUMNS = ("caption", "kind", "edit")
_ROW = 'a row is {"caption": "a red ball", "kind": "adjective", "edit": "a blue ball"}'


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
    rows: Iterable[tuple[str, Mapping[str, Any]]], edit_format: EditFormat, owner: object
) -> list[EditAnswer]:
    """Check rows and group them by caption and prompt, in the order of their first rows.

    Args:
        rows: pairs (``FILE, line N``, row) from ``cfaug.data.sources.lists.json_lines``.
        edit_format: the format with the prompts that ``kind`` names.
    """
    lines: dict[tuple[str, str, str], str] = {}
    groups: dict[tuple[str, str], tuple[str, list[str]]] = {}
    for where, row in rows:
        texts = []
        for name in COLUMNS:
            if name not in row:
                raise UserError(f"{where}: {name!r} is missing: {_ROW}")
            value = row[name]
            texts.append(" ".join(value.split()) if isinstance(value, str) else "")
            if not texts[-1]:
                raise UserError(
                    f"{where}: {name!r} is {json.dumps(value)[:60]}, which is invalid: a text"
                )
        caption, kind, edit = texts
        try:
            prompt = edit_format.find(kind).name
        except UserError as error:
            raise UserError(f"{where}: kind {kind!r} is invalid: {error}") from error
        key = _key(caption)
        if _key(edit) == key:
            raise UserError(f"{where}: the edit is the caption itself, {caption!r}: remove the row")
        earlier = lines.setdefault((key, prompt, _key(edit)), where)
        if earlier != where:
            raise UserError(f"{where} is duplicated: {earlier} has the same caption, kind and edit")
        groups.setdefault((key, prompt), (caption, []))[1].append(edit)
    if not groups:
        raise UserError(f"{owner} has no row: {_ROW}")
    return [
        EditAnswer(caption, prompt, tuple(edits))
        for (_, prompt), (caption, edits) in groups.items()
    ]


ROWS = "rows of edits"
"""What the record of outputs calls the file."""


def write_rows(file: Path, answers: Iterable[EditAnswer]) -> None:
    """Write answers in the form that ``group_rows`` reads, one edit in each line.

    Raises:
        UserError: if another file than such rows of ours is there.
    """
    rows = [
        dict(zip(COLUMNS, (answer.caption, answer.prompt, edit), strict=True))
        for answer in answers
        for edit in answer.edits
    ]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_output(file, text.encode(), ROWS, "out")


def split_by_caption(
    answers: Sequence[EditAnswer], share: float, seed: int
) -> tuple[list[EditAnswer], list[EditAnswer]]:
    """Split answers into a part for training and a held-out part, by caption.

    No caption is in both parts, whatever its spelling: "A photo of a cat" and "a cat" are the same.

    Args:
        share: the share of captions to hold out, in [0, 1); at least one caption unless it is 0.
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
