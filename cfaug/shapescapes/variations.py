"""Variations of the world's captions from its vocabulary, and exact checks of any variations.

They need no model and no download, and the world can draw every edit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from cfaug.core.rng import generator
from cfaug.editing.edit_checks import KIND_CORRECT, LABEL_KEPT
from cfaug.editing.rule_edits import NO_PLACE, NO_RULE
from cfaug.editing.variations import CaptionEdit, VariationRequest, Variations, Verdict
from cfaug.shapescapes.grammar import FACTOR_OF, Statement, parse
from cfaug.shapescapes.vocabulary import (
    COLOURS,
    DOMAINS,
    PHOTO,
    PLACES,
    SUBJECTS,
    WEATHER,
    CaptionWording,
    Factors,
    caption,
)

NOT_OF_THE_WORLD = "no caption of the world"

VALUES: Mapping[str, tuple[str, ...]] = {
    "subject": SUBJECTS,
    "adjective": tuple(COLOURS),
    "background": tuple(PLACES),
    "background-location": tuple(place for place in PLACES if place not in WEATHER),
    "background-weather": WEATHER,
    "domain": DOMAINS,
}
"""The possible values for each prompt; the world has no objects."""


JUDGED = (*FACTOR_OF, "object")
"""The kinds of edit whose expected change is known."""


class WorldVariations:
    """A perturber that changes the subject, colour, place or domain of the world's captions."""

    def vary(self, requests: Sequence[VariationRequest]) -> list[Variations]:
        """Return up to the requested number of variations of each caption, drawn by its seed."""
        return [self._vary(one) for one in requests]

    def _vary(self, request: VariationRequest) -> Variations:
        said = parse(request.caption)
        values = VALUES.get(request.prompt.name, VALUES.get(request.kind))
        if said is None:
            return Variations(problem=NOT_OF_THE_WORLD)
        if values is None or request.kind not in FACTOR_OF:
            return Variations(problem=NO_RULE)
        factor = FACTOR_OF[request.kind]
        others = [one for one in values if one != _value(said, factor)]
        order = generator(request.seed, "world").permutation(len(others))[: request.count].tolist()
        frame = _frame(request.caption, said)
        texts = tuple(_say(replace(said, **{factor: others[i]}), frame) for i in order)
        return Variations(texts, "" if texts else NO_PLACE)

    def describe(self) -> dict[str, str]:
        """Return a note that the vocabulary was used."""
        return {"perturber": "ShapeScapes vocabulary"}


def _value(said: Statement, factor: str) -> str | None:
    """Return a caption's value of a factor; no domain means a photo."""
    value: str | None = getattr(said, factor)
    return value or PHOTO if factor == "domain" else value


def _phrase(said: Statement) -> str:
    """Return the part of a caption after its frame."""
    shown = Factors(said.subject, said.colour or "red", said.background or "beach")
    wording = CaptionWording(
        0, colour=said.colour is not None, background=said.background is not None
    )
    return caption(shown, wording)


def _frame(text: str, said: Statement) -> str:
    """Return the text before the phrase of a photo, such as "there is "; may be empty."""
    if said.domain not in (None, PHOTO):
        return f"a {PHOTO} of "
    plain = " ".join(text.lower().split()).removesuffix(".")
    words = len(_phrase(said).split())
    return "".join(f"{word} " for word in plain.split()[:-words])


def _say(said: Statement, frame: str) -> str:
    named = said.domain is not None and said.domain != PHOTO
    return (f"a {said.domain} of " if named else frame) + _phrase(said)


def _changes(before: Statement, after: Statement, kind: str) -> bool:
    """Return whether only the value of a kind's factor differs between two captions."""
    names = ("subject", "colour", "background", "domain")
    changed = [name for name in names if _value(before, name) != _value(after, name)]
    return changed == [FACTOR_OF.get(kind)] and _value(after, changed[0]) is not None


class WorldCheck:
    """A check of whether edits of the world's captions are of their kind, and keep the label.

    The check is exact, by the world's grammar. An edit is of its kind if it changes only the value
    of the kind's factor; it keeps the label if it has the same subject. An edit that is not a
    caption of the world is of no kind, and keeps the label if it names it. Edits of other captions,
    and kinds that LANCE does not have, are not judged. The world has no objects, so no edit is of
    the kind object. The notes are ``kind_correct`` and ``label_kept``; no edit is rejected.
    """

    name = "world"

    def judge(self, edits: Sequence[CaptionEdit]) -> list[Verdict]:
        """Return the verdict of the grammar on each edit."""
        return [Verdict("", dict(self._notes(edit))) for edit in edits]

    def _notes(self, edit: CaptionEdit) -> Iterator[tuple[str, bool]]:
        before, after = parse(edit.caption), parse(edit.text)
        if before is None:
            return
        if edit.kind in JUDGED:
            yield KIND_CORRECT, after is not None and _changes(before, after, edit.kind)
        words = edit.text.lower().split()
        kept = before.subject in words if after is None else before.subject == after.subject
        yield LABEL_KEPT, kept

    def describe(self) -> dict[str, str]:
        """Return a note that the grammar was used."""
        return {"check": "ShapeScapes grammar"}
