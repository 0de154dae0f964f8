"""Names of classes: labels of released data sets as words.

CLIP's authors rewrote the class names of ImageNet and Caltech-101 for prompts; CLIP_benchmark and
open_clip use these names, and so do we. Other labels are converted to words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from cfaug.core.errors import UserError, name_some

IMAGENET = Path(__file__).with_name("imagenet_classes.tsv")
"""WordNet ids with the names of OpenAI's CLIP (MIT licence), which open_clip lists without ids."""

WNID = re.compile(r"n\d{8}")

CALTECH_101 = {
    "BACKGROUND_Google": "background", "Faces": "off-center face", "Faces_easy": "centered face",
    "Leopards": "leopard", "Motorbikes": "motorbike", "airplanes": "airplane",
    "car_side": "side of a car", "cougar_body": "body of a cougar cat",
    "cougar_face": "face of a cougar cat", "crocodile_head": "head of a crocodile",
    "flamingo_head": "head of a flamingo", "snoopy": "snoopy (cartoon beagle)",
    "yin_yang": "yin and yang symbol",
}  # fmt: skip
"""CLIP's names of folders with other names; the rest are converted to words."""

CALTECH_101_ONLY = {"BACKGROUND_Google", "Faces_easy"}
"""Folders that distinguish Caltech-101 from other data sets with a class called "Faces"."""


@lru_cache(maxsize=1)
def imagenet_names() -> dict[str, str]:
    """Return CLIP's name of each of ImageNet's 1,000 classes by WordNet id, in the ids' order."""
    lines = IMAGENET.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t") for line in lines)


NUMBER = re.compile(r"[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.IGNORECASE)


def require_names(names: Sequence[str], where: str, remedy: str) -> None:
    """Refuse classes that are all called by numbers, of which a text encoder knows nothing.

    Some numbers among names may be names, such as ``7`` for a drink.

    Args:
        names: the names of the classes in prompts or captions.
        where: the source of the classes, for the error.
        remedy: the way to name them, for the error.

    Raises:
        UserError: if all names are numbers.
    """
    if names and all(is_number(name) for name in names):
        raise UserError(
            f"{where}: the {len(names):,} classes are called by numbers ({name_some(names)}), not "
            f"by names to {remedy}"
        )


def is_number(name: str) -> bool:
    """Return whether a name of a class is just a number.

    >>> [is_number(name) for name in ("00000", "7", "0.0", "-1", "1e3", ".5")]
    [True, True, True, True, True, True]
    >>> [is_number(name) for name in ("7 up", "n01440764", "3D", "e3", "1-2", "")]
    [False, False, False, False, False, False]
    """
    return NUMBER.fullmatch(name.strip()) is not None


def equal_names(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return groups of class names that a tokenizer that lower-cases, as CLIP's, reads as one.

    >>> equal_names(["cat", "dog", "Cat", "polar  bear", "Polar bear", "dog"])
    [('cat', 'Cat'), ('dog', 'dog'), ('polar  bear', 'Polar bear')]
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(" ".join(name.casefold().split()), []).append(name)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def equal_names_warning(names: Sequence[str], where: str) -> str | None:
    """Return a warning of classes with equal prompts; ``None`` if all prompts differ.

    Args:
        names: the names of the classes in prompts or captions.
        where: the source of the classes, for the warning.
    """
    groups = equal_names(names)
    if not groups:
        return None
    some = name_some(" and ".join(map(repr, group)) for group in groups)
    return (
        f"warning: {where}: classes with one prompt for a tokenizer that lower-cases, as CLIP's "
        f"does: {some}. Nothing tells them apart: merge them, or give them different names"
    )


def class_words(label: str) -> str:
    """Return a label as words: ImageNet's ids by name, without numbers of a release.

    >>> class_words("n01440764"), class_words("polar_bear"), class_words("t-shirt")
    ('tench', 'polar bear', 't-shirt')
    >>> class_words("012.polar_bear"), class_words("251.airplanes-101")  # as Caltech-256 has them
    ('polar bear', 'airplanes')
    >>> class_words("046.computer-monitor")
    'computer monitor'
    """
    if WNID.fullmatch(label):
        return imagenet_names().get(label, label)
    numbered = re.fullmatch(r"\d{3}\.(.+?)(?:-101)?", label)
    return (numbered[1].replace("-", " ") if numbered else label).replace("_", " ")


def prompt_names(labels: Sequence[str]) -> list[str]:
    """Return the names of a data set's classes in prompts, in the order of its labels."""
    if CALTECH_101_ONLY & set(labels):
        return [CALTECH_101.get(label, class_words(label)) for label in labels]
    return [class_words(label) for label in labels]


def make_distinct(names: Sequence[str]) -> list[str]:
    """Return class names as distinct labels: ImageNet has two classes called "sunglasses".

    >>> make_distinct(["cat", "sunglasses", "sunglasses"])
    ['cat', 'sunglasses', 'sunglasses (2)']
    """
    seen = Counter[str]()
    labels = []
    for name in names:
        seen[name] += 1
        labels.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return labels
