"""The columns of a list, recognised by their usual names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from cfaug.core.errors import UserError

IMAGE = ("image", "file_name", "filename", "filepath", "image_path", "path", "img", "image_name")
CAPTION = (
    "caption", "text", "captions", "title", "sentence", "sentences", "raw", "comment",
)  # fmt: skip
GROUP = ("group", "image_id")
SETS = ("counterfactuals",)
"""A column of JSON lists of objects, each with an image and a caption."""

MARKS = {
    "original": ("original", "orig", "source", "real", "before"),
    "edited": ("cf", "counterfactual", "edited", "modified", "target", "after"),
    "negative": ("neg", "negative", "hard_negative", "hard_neg", "foil"),
}
"""Words before or after the name of a column that tell which member it belongs to."""

ONLY_MARKED = ("prompt",)
"""A caption only with a mark, such as InstructPix2Pix's ``edited_prompt``; otherwise unknown."""

TEXTS_ONLY = re.compile(r"(?:hard_)?(?:negatives|negs|foils)|hard_negative|foil|foil_captions")
"""Whole names of columns of negatives."""

SUSPICIOUS = re.compile(r"(?:cfs?|counterfactuals?|neg|negatives?|hard_neg\w*|foils?)(?:_.*|\d*)")
"""Names that look like columns of a counterfactual, which are read or refused, never ignored."""

Place = tuple[str, int]
"""The owner of a column: ("original", 0), ("member", N), ("edited", N) or ("negative", N)."""

ORDER = ("original", "member", "edited", "negative")


@dataclass(frozen=True)
class Columns:
    """The meaning of a list's columns.

    Attributes:
        members: (image, caption) of each member of a set, the original first; a list without
            counterfactuals has one.
        captions: further captions of the first image, such as ``caption_1`` to ``caption_5``.
        negatives: columns of texts that are wrong about the first image and have no image
            themselves.
        sets: the column of a list of further members, each with an image and a caption; ``None``
            without one.
        group: the column that names the photo of an example; ``None`` without one.
        id: the column that names the example; ``None`` without one.
        unused: every other column.
    """

    members: tuple[tuple[str, str], ...]
    captions: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    sets: str | None = None
    group: str | None = None
    id: str | None = None
    unused: tuple[str, ...] = ()

    @property
    def used(self) -> tuple[str, ...]:
        """Every column that is read."""
        more = (self.sets, self.group, self.id if self.is_set else None)
        pairs = (name for pair in self.members for name in pair)
        return (*pairs, *self.captions, *self.negatives, *(one for one in more if one is not None))

    @property
    def is_set(self) -> bool:
        """Whether a record is a set of counterfactuals."""
        return len(self.members) > 1 or self.sets is not None


def one_column(
    names: Iterable[str], wanted: Sequence[str], what: str, where: str = ""
) -> str | None:
    """Return the only one of ``names`` that is in ``wanted``, or ``None``.

    Args:
        names: the names of the existing columns.
        wanted: the usual names, in lower case.
        what: the content of the column, such as ``image``, for the error.
        where: the place of the columns, for the error.

    Raises:
        UserError: if there are several, because the choice is ambiguous.
    """
    found = [name for name in names if name.lower() in wanted]
    if len(found) > 1:
        raise several(found, what, where)
    return found[0] if found else None


def several(found: Sequence[str], what: str, where: str) -> UserError:
    """Return the error for ambiguous columns."""
    return UserError(
        f"{where}: {', '.join(found)} could each be the {what}; keep one under such a name, and "
        "rename or remove the others"
    )


def columns_of(record: Mapping[str, Any], where: str) -> Columns:
    """Return the meaning of a record's columns; null columns count as missing.

    A counterfactual's columns may also be empty, because a csv cannot represent null otherwise.

    Raises:
        UserError: if ``read_columns`` raises one.
    """
    names = tuple(name for name, value in record.items() if value is not None)
    if "" in record.values():
        names = tuple(name for name in names if record[name] != "" or not _is_further(name))
    try:
        return read_columns(names)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


@lru_cache(maxsize=256)
def read_columns(names: tuple[str, ...]) -> Columns:
    """Return the meaning of a list's columns.

    An image is paired with its caption: ``image, caption``, ``filepath, title``; a counterfactual's
    columns have the same mark, ``cf_image, cf_caption`` or ``image_edited, caption_edited``; the
    members of larger sets are numbered, ``image_0, image_1, image_2``.

    Args:
        names: the names of the columns that are not null.

    Raises:
        UserError: if a column is missing or ambiguous, or looks like a counterfactual's but has no
            known meaning.
    """
    images, captions = _by_place(names, IMAGE), _by_place(names, CAPTION)
    further = _captions_of_one_image(images, captions)
    first_image = _original(images, IMAGE, names)
    first_caption = further[0] if further else _original(captions, CAPTION, names)
    negatives = [name for name in names if TEXTS_ONLY.fullmatch(_plain(name))]
    for place in sorted(captions, key=_order):
        if place not in images and (
            place[0] == "negative" or (place[0] == "edited" and not images)
        ):
            negatives.append(captions.pop(place))
    found = Columns(
        members=((first_image, first_caption), *_pairs(images, captions)),
        captions=further[1:],
        negatives=tuple(negatives),
        sets=one_column(names, SETS, "list of counterfactuals"),
        group=next((name for one in GROUP for name in names if name.lower() == one), None),
        id=next((name for name in names if name.lower() == "id"), None),
    )
    unused = tuple(name for name in names if name not in found.used)
    strange = [name for name in unused if SUSPICIOUS.fullmatch(_plain(name))]
    if strange:
        raise UserError(
            f"{', '.join(strange)} looks like part of a counterfactual and is not understood: call "
            "its image and caption cf_image and cf_caption (image_0, caption_0, image_1, ... of "
            "larger sets), captions without an image neg_caption, and anything else otherwise, or "
            "remove the column"
        )
    return replace(found, unused=unused)


def _plain(name: str) -> str:
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def _by_place(names: Sequence[str], bases: Sequence[str]) -> dict[Place, str]:
    found: dict[Place, str] = {}
    for name in names:
        place = _place(_plain(name), bases)
        if place is None:
            continue
        if place in found and bases is CAPTION:
            raise several([found[place], name], "caption", "two columns")
        # Of several names for a file the most usual one is used: others may not name an image.
        if place not in found or _rank(name, bases) < _rank(found[place], bases):
            found[place] = name
    return found


def _rank(name: str, bases: Sequence[str]) -> int:
    plain = _plain(name)
    return bases.index(plain) if plain in bases else len(bases)


@lru_cache(maxsize=1024)
def _place(name: str, bases: tuple[str, ...]) -> Place | None:
    """Return the owner of a column; ``None`` if it is not an image or a caption.

    >>> _place("caption", CAPTION), _place("cf_image", IMAGE), _place("text_edited_2", CAPTION)
    (('original', 0), ('edited', 0), ('edited', 2))
    >>> _place("image_1", IMAGE), _place("neg_caption", CAPTION), _place("image_url", IMAGE)
    (('member', 1), ('negative', 0), None)
    """
    if name in bases:
        return "original", 0
    base = "|".join(bases)
    numbered = re.fullmatch(rf"(?:{base})_?(\d+)", name)
    if numbered:
        return "member", int(numbered[1])
    marked = f"{base}|{'|'.join(ONLY_MARKED)}" if bases is CAPTION else base
    for whose, words in MARKS.items():
        mark = "|".join(words)
        forms = (
            rf"(?:{mark})_(?:{marked})_?(\d*)",
            rf"(?:{marked})_(?:{mark})_?(\d*)",
            rf"(?:{mark})_?(\d+)_(?:{marked})",
        )
        for form in forms:
            if found := re.fullmatch(form, name):
                return whose, int(found[1] or 0)
    return None


def _is_further(name: str) -> bool:
    if TEXTS_ONLY.fullmatch(_plain(name)):
        return True
    places = (_place(_plain(name), bases) for bases in (IMAGE, CAPTION))
    return any(place is not None and place[0] != "original" for place in places)


def _captions_of_one_image(
    images: Mapping[Place, str], captions: dict[Place, str]
) -> tuple[str, ...]:
    """Take numbered captions if the only image has no number: all are captions of it."""
    numbered = sorted(place for place in captions if place[0] == "member")
    if ("original", 0) in captions or any(place[0] == "member" for place in images):
        return ()
    return tuple(captions.pop(place) for place in numbered)


def _original(found: dict[Place, str], usual: Sequence[str], names: Sequence[str]) -> str:
    """Take the original's column out of the recognised ones."""
    for place in (("original", 0), ("member", 0), ("member", 1)):
        if place in found:
            return found.pop(place)
    raise UserError(f"none of the columns {', '.join(usual)}; there are {', '.join(names)}")


def _pairs(images: Mapping[Place, str], captions: Mapping[Place, str]) -> list[tuple[str, str]]:
    """Pair the image and the caption of each further member."""
    for place in sorted({*images} ^ {*captions}, key=_order):
        there, missing = ("image", "caption") if place in images else ("caption", "image")
        name = (images if place in images else captions)[place]
        raise UserError(f"{name!r} is the {there} of a set's member whose {missing} is missing")
    return [(images[place], captions[place]) for place in sorted(images, key=_order)]


def _order(place: Place) -> tuple[int, int]:
    return ORDER.index(place[0]), place[1]
