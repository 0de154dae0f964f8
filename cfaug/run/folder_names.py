"""The names that folders of experiments, arms and checkpoints may have, and which are made of them.

Different names get different folders.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from pathlib import Path

from cfaug.core.errors import UserError
from cfaug.core.files import check_place, read_yaml
from cfaug.report.results import WEIGHTS

DIGITS = 8
"""Hexadecimal digits that tell two comparisons of one name apart."""
LONGEST = 100
"""Most characters of a folder's name; a longer one ends in a hash."""
MOST_BYTES = 255
"""Most bytes of a name in file systems; a letter may have four bytes."""
ALPHANUMERIC = "LMN"
"""Unicode's letters, marks (the vowels of many alphabets) and numbers."""
DEBUG = ".debug"
"""The folder of debug runs among the others."""
TAKEN = {
    WEIGHTS: "checkpoints that are not runs (weights=..., evaluate_initial=true)",
    "tables": "tables of papers (cfaug table)",
    "annotation": "pages and answers of annotators (cfaug annotate)",
    DEBUG: "runs of debug=...",
}
"""Folders beside the experiments, with their content."""


def clean_name(name: str, extra: str = "=,+") -> str:
    """Return a name that a folder may have, of at most 100 characters.

    Letters and digits of every alphabet are kept, in Unicode's form NFC; everything else becomes a
    hyphen.

    Args:
        extra: characters kept beside letters, digits, ``_``, ``.`` and ``-``.

    >>> clean_name("日本 (ünï)"), clean_name("../a b")
    ('日本-ünï', 'a-b')
    """
    kept = f"_.-{extra}"
    signs = (
        sign if sign in kept or unicodedata.category(sign)[0] in ALPHANUMERIC else "\0"
        for sign in unicodedata.normalize("NFC", name)
    )
    name = re.sub("\0+", "-", "".join(signs)).strip("-.") or "default"
    if len(name) <= LONGEST and len(name.encode()) <= MOST_BYTES:
        return name
    ending = f"-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    start = name[: LONGEST - len(ending)].encode()[: MOST_BYTES - len(ending)]
    return start.decode(errors="ignore") + ending


def digest(content: object) -> str:
    """Return a short hash of settings, which tells two comparisons of one name apart."""
    text = json.dumps(content, sort_keys=True, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def check_arm(arm: str) -> None:
    """Refuse an arm's name from which no folder name can be made."""
    if clean_name(arm) == clean_name("") != arm:
        raise UserError(
            f"arm={arm!r} is invalid: a name has letters or digits; arm=null names the arm after "
            "its settings"
        )


def check_owner(folder: Path, arm: str | None) -> None:
    """Refuse an arm's folder that has runs of an arm with another name, such as "a b" for "a-b".

    A renamed folder belongs to the arm with its new name.

    Args:
        arm: the arm's name, if given by hand; ``None`` for an arm named after its settings.
    """
    for file in sorted(folder.glob("seed=*/config.yaml"))[:1]:
        try:
            content = read_yaml(file)
        except UserError:
            continue
        there = content.get("arm") if isinstance(content, dict) else None
        if arm is None or not isinstance(there, str) or clean_name(there) != folder.name:
            continue
        if unicodedata.normalize("NFC", there) != unicodedata.normalize("NFC", arm):
            raise UserError(
                f"arm={arm!r} would share {folder} with arm={there!r}: choose another name"
            )


def runs_folder(name: str) -> Path:
    """Return the folder of all runs, ``paths.runs``, which need not exist yet."""
    check_place(name, "paths.runs")
    return Path(name)


def experiment_name(name: str) -> str:
    """Return the name of an experiment's folder: its name, normalised as Unicode NFC."""
    name = unicodedata.normalize("NFC", name)
    if name in TAKEN:
        raise UserError(f"name={name} is taken: it holds {TAKEN[name]}. Choose another")
    if "/" in name:
        folder, _, last = name.rpartition("/")
        raise UserError(
            f"name={name} is invalid: a name is one folder. name={last} and paths.runs={folder} "
            "(or a folder in it) put the runs elsewhere"
        )
    if not name.strip() or name in {".", ".."} or not name.isprintable():
        raise UserError(f"name={name!r} is invalid: a folder cannot have this name")
    size = len(name.encode())
    if size > MOST_BYTES:
        raise UserError(f"name={name[:20]}... has {size} bytes: choose one of {MOST_BYTES} at most")
    return name
