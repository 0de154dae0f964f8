"""A question that people answer about images: its wording, its answers and how they are counted."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from cfaug.errors import UserError

if TYPE_CHECKING:
    from cfaug.annotation.strata import Strata

CORRECT, INCORRECT = "correct", "incorrect"
"""How an answer counts that chose one of the offered captions: the image's own one, or another."""

Pictures = Literal["image", "set"]
NAME = re.compile(r"[a-z][a-z0-9_]*")
TAKEN = ("key", "member", "annotator", "texts", "seconds")
"""What else an answer holds."""


def check_field(name: str) -> bool:
    """Say whether an answer may be called this in the files that annotators download."""
    return bool(NAME.fullmatch(name)) and name not in TAKEN


@dataclass(frozen=True)
class Item:
    """One image to ask about.

    Attributes:
        key: of its set.
        member: its number in the set, from 0.
        texts: the captions of the set's members.
        text: the image's own caption.
        row: where a source has it; its index in ``read_image``.
        stratum: (name, value) of what the source says it should show, in order; empty where the
            question does not ask for that.
        expected: the answer that a check of attention asks for; empty of everything else.
    """

    key: str
    member: int
    texts: tuple[str, ...]
    row: int
    text: str = ""
    stratum: tuple[tuple[str, str], ...] = ()
    expected: str = ""

    @property
    def name(self) -> str:
        """``<set>_<member>``, as indexes and label files call it."""
        return f"{self.key}_{self.member}"

    @property
    def texts_hash(self) -> str:
        """What an answer carries, so that it is not read as one about other captions."""
        return hashlib.blake2b(json.dumps(self.texts).encode(), digest_size=6).hexdigest()


@dataclass(frozen=True)
class Question:
    """What is asked about every image.

    An answer that chose an offered caption counts as ``correct`` if the caption is the image's own,
    else as ``incorrect``; every other answer counts as itself. These are the outcomes.

    Args:
        title: heading of the page.
        text: the question as people read it.
        options: {label: wording} of the answers that every image has.
        captions: labels of the captions of a set's members; if given, all captions of the set are
            offered as answers above ``options``, in an order drawn for everyone and every image.
        accepted: outcomes that accept an image; one that most of its annotators accept is valid.
        reported: all outcomes in the order of tables and figures; by default ``correct`` and
            ``incorrect`` (where captions are offered), then ``options``.
        image_sets: names of the images of the first, second, ... member in tables, which then
            have a row for each beside the one for all; none is one row for all.
        pictures: ``image`` shows the image alone, ``set`` all images of its set with their
            captions, the one in question marked.
        show_caption: show the image's own caption below it; not where captions are offered.
        accepted_as: how sentences say that an image was accepted, after "were".
        field: what an answer is called in the files that annotators download.
        groups: {end of a sentence: outcomes}: sums of outcomes that the report states.
        reference: {statement: text}: what is known from elsewhere, such as a paper, appended to a
            statement of the report when people answered. Statements are ``accepted``,
            ``agreement``, ``disputed`` and the names of ``groups``.
        strata: by what the source says its images should show they are sampled and counted, and
            which answers fit which of them; ``None`` does none of it.
        illustrated: outcomes of which examples are kept for tables.

    Raises:
        UserError: naming the key that is invalid and the choices.
    """

    title: str
    text: str
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    captions: Sequence[str] = ()
    accepted: Sequence[str] = (CORRECT,)
    reported: Sequence[str] = ()
    image_sets: Sequence[str] = ()
    pictures: Pictures = "image"
    show_caption: bool = False
    accepted_as: str = "accepted"
    field: str = "label"
    groups: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    reference: Mapping[str, str] = dataclasses.field(default_factory=dict)
    strata: Strata | None = None
    illustrated: Sequence[str] = ()

    balanced: bool = dataclasses.field(default=False, init=False, repr=False)
    """Whether both orders of the offered captions are shown equally often."""

    def __post_init__(self) -> None:
        chosen = self.chosen()
        if not self.reported:
            object.__setattr__(self, "reported", tuple(chosen))
        duplicated = len(set(self.labels)) < len(self.labels)
        if duplicated or len(self.labels) < 2 or not all(map(NAME.fullmatch, self.labels)):
            raise self._invalid(
                "labels", list(self.labels), "two or more different words of a-z, 0-9 and _"
            )
        if sorted(self.reported) != sorted(chosen):
            raise self._invalid("reported", list(self.reported), f"each once: {', '.join(chosen)}")
        offered = () if self.strata is None else tuple(self.strata.offered)
        for name, found in (
            ("accepted", self.accepted), ("illustrated", self.illustrated),
            ("strata.offered", offered), *self.groups.items(),
        ):  # fmt: skip
            if not set(found) <= set(chosen):
                raise self._invalid(name, list(found), f"choose from {', '.join(chosen)}")
        if self.pictures not in get_args(Pictures):
            raise self._invalid("pictures", self.pictures, "choose from image, set")
        if self.show_caption and (self.captions or self.pictures == "set"):
            raise self._invalid(
                "show_caption", True, "leave it out where the captions are offered or shown anyway"
            )
        if not check_field(self.field):
            raise self._invalid("field", self.field, "a word such as label")

    def _invalid(self, name: str, value: object, choices: str) -> UserError:
        return UserError(f"the question {self.title!r}: {name}={value} is invalid: {choices}")

    def chosen(self) -> list[str]:
        """Return every outcome, in the order of tables where no other is given."""
        return [CORRECT, INCORRECT] * bool(self.captions) + list(self.options)

    @property
    def labels(self) -> tuple[str, ...]:
        """Everything that may be answered."""
        return (*self.captions, *self.options)

    def outcome(self, item: Item, label: str) -> str:
        """Return what an answer to an image counts as."""
        if label not in self.captions:
            return label
        return CORRECT if label == self.captions[item.member] else INCORRECT

    def offers(self, item: Item, label: str) -> bool:
        """Say whether an answer fits an image: some are about some strata only."""
        return self.strata is None or self.strata.offers(item, label)

    def draw(self, items: Sequence[Item], seed: int) -> list[Item]:
        """Return the images that are asked about: evenly of the strata, where there are any."""
        return list(items) if self.strata is None else self.strata.draw(items, seed)

    def accepts(self, item: Item, label: str) -> bool:
        """Say whether an answer accepts an image."""
        return self.outcome(item, label) in self.accepted

    def rows_shown(self, item: Item) -> dict[int, str]:
        """Return the rows of a source whose pictures are shown, and what they are called."""
        if self.pictures == "image":
            return {item.row: item.name}
        first = item.row - item.member
        return {first + member: f"{item.key}_{member}" for member in range(len(item.texts))}

    def asked(self) -> dict[str, Any]:
        """Return the question as the page's script reads it."""
        file = "answers" if self.field == "label" else "categories"
        return {"field": self.field, "options": tuple(self.options.items()), "file": file}

    def identity(self) -> list[Any]:
        """Return what answers in a browser belong to, as JSON."""
        return [self.field, tuple(self.options.items())]

    def shown(self, item: Item) -> dict[str, Any]:
        """Return the captions below the pictures, which of them it is about, and unfit answers."""
        unfit = [label for label in self.options if not self.offers(item, label)]
        found: dict[str, Any] = {"x": unfit} if unfit else {}
        if self.pictures == "set":
            return {"c": list(item.texts), "s": item.member, **found}
        return {"c": [item.text], "s": -1, **found} if self.show_caption else found

    def wording(self, outcome: str) -> str:
        """Return how tables and figures name an outcome."""
        return self.options.get(outcome, outcome.capitalize())
