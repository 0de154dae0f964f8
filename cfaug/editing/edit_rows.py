"""Training rows of a language model that edits captions: a caption, a kind and one edit each.

    {"caption": "a red ball", "kind": "adjective", "edit": "a blue ball"}

Each line is a JSON object; ``kind`` is the name of a prompt (``background-weather``) or a kind
(``background``, its first prompt). Other keys are ignored. The edits of one caption by one prompt
form one answer, in their order, with a variation in each line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.files import write_file
from cfaug.core.rng import generator
from cfaug.editing.edit_format import EditFormat
from cfaug.editing.edit_prompts import PHOTO

COLUMNS = ("caption", "kind", "edit")


@dataclass(frozen=True)
class EditAnswer:
    """The target answer to one prompt about one caption.

    Attributes:
        caption: the caption with normalised white space.
        prompt: the name of the prompt.
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
        owner: the file, which errors name.

    Raises:
        UserError: if a row is invalid or duplicated (it names the line), or if there are no rows.
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
        dict(zip(COLUMNS, (one.caption, one.prompt, edit), strict=True))
        for one in answers
        for edit in one.edits
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
        seed: the seed of the draw of captions.

    Returns:
        The answers for training, and the held-out ones.

    Raises:
        UserError: if no caption is left to train on.
    """
    keys = sorted({caption_key(one.caption) for one in answers})
    aside = 0 if not share else max(1, round(share * len(keys)))
    order = generator(seed, "edits", "split").permutation(len(keys))
    held = {keys[i] for i in order[:aside]}
    training = [one for one in answers if caption_key(one.caption) not in held]
    if not training:
        raise UserError(
            f"data.validation={share} leaves none of {len(keys)} captions to train on: give more "
            "captions, or a smaller share"
        )
    return training, [one for one in answers if caption_key(one.caption) in held]


def caption_key(caption: str) -> str:
    """Return a key that all spellings of one caption share.

    >>> caption_key("A photo of a Cat.") == caption_key("a cat")
    True
    """
    return PHOTO.sub("", _key(caption))


def _key(text: str) -> str:
    return text.lower().rstrip(" .")


def _text(row: Mapping[str, Any], name: str, where: str) -> str:
    """Return the text of a column, with normalised white space.

    Raises:
        UserError: if it is missing, or is not a text.
    """
    if name not in row:
        raise UserError(f"{where}: {name!r} is missing: {_form()}")
    value = row[name]
    text = " ".join(value.split()) if isinstance(value, str) else ""
    if not text:
        raise UserError(f"{where}: {name!r} is {json.dumps(value)[:60]}, which is invalid: a text")
    return text


def _form() -> str:
    return 'a row is {"caption": "a red ball", "kind": "adjective", "edit": "a blue ball"}'
