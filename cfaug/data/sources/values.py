"""Checks and normalisation of keys, captions and other values for all readers."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.types import ENTAILMENT, KEY_PATTERN
from cfaug.data.sources.class_names import class_words
from cfaug.data.sources.lists import require_unicode

LIST_IN_A_CELL = re.compile(r"\s*\[\s*(['\"]).*\1\s*,?\s*\]\s*", re.DOTALL)
"""A list of captions in a field of a csv: NegCLIP's negatives, or a list written by pandas."""


def keep_json(record: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the values of a record that JSON can represent, times and the like as texts.

    >>> keep_json({"width": 3, "image": b"PNG", "boxes": [[0, 1]]}, ["width", "image", "boxes"])
    {'width': 3, 'boxes': [[0, 1]]}
    """
    found = {}
    for name in names:
        try:
            found[name] = json.loads(json.dumps(record[name], default=_as_text))
        except (TypeError, ValueError):
            continue
    return found


def _as_text(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError
    return str(value)


def clean_key(name: str) -> str:
    """Return a key that is valid in WebDataset, tar and file systems.

    A name that has to be changed gets a suffix derived from it, so that different names stay
    different.

    >>> clean_key("000123"), clean_key("Cats/IMG 001.v2")
    ('000123', 'cats-img-001-v2-10ff5d71')
    """
    if KEY_PATTERN.fullmatch(name):
        return name
    readable = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")
    digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{readable}-{digest}" if readable else digest


def caption(text: object, where: str) -> str:
    """Return a caption as one line.

    Raises:
        UserError: if the caption is not text or is empty, naming ``where``.
    """
    if not isinstance(text, str):
        raise UserError(f"{where}: the caption should be a text, not {text!r}")
    line = " ".join(text.split())
    if not line:
        raise UserError(f"{where}: the caption is empty; write one or remove the example")
    return require_unicode(line, where)


def captions(found: object, where: str) -> list[str]:
    """Return the captions in a field: one, or a list of them, possibly printed in a csv.

    Raises:
        UserError: if ``caption`` raises one; an empty list counts as an empty caption.
    """
    if isinstance(found, str) and LIST_IN_A_CELL.fullmatch(found):
        found = _list_in_a_cell(found, where)
    texts = found if isinstance(found, list) else [found]
    return [caption(text, where) for text in texts or [""]]


def _list_in_a_cell(text: str, where: str) -> object:
    """Return the list in a field of a csv, printed as by JSON or Python."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text.strip())  # literals only: nothing is executed
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise UserError(
            f"{where}: {text[:80]!r} begins and ends like a list of captions but is invalid"
        ) from error


def class_caption(label: str) -> str:
    """Return the caption of an example that has only a class.

    >>> class_caption("polar_bear")
    'a photo of a polar bear'
    """
    return f"a photo of a {class_words(label)}"


def entailment_label(label: object, where: str) -> str:
    """Return a label of ``cfaug.core.types.ENTAILMENT``.

    Raises:
        UserError: if the label is not one of them, naming ``where``.

    >>> entailment_label(" Neutral", "line 1")
    'neutral'
    """
    found = label.strip().lower() if isinstance(label, str) else label
    if found not in ENTAILMENT:
        raise UserError(
            f"{where}: the label {label!r:.80} is invalid: choose from {', '.join(ENTAILMENT)}"
        )
    return str(found)


def one_class_error(source: str, form: str, images: int, label: str) -> UserError:
    """Return the error for images without captions that are all of one class."""
    return UserError(
        f"{source}: {images:,} images read as {form}, all of one class, {label!r}: each caption "
        f"would be {class_caption(label)!r}, from which nothing can be learned or tested. If "
        f"{label!r} is not a class, the images need captions: captions.csv or captions.jsonl "
        "(image, caption) beside them, or a .txt beside each image. If it is, name the "
        "folder that holds the folders of all classes"
    )
