"""An oracle detector that reads the scene instead of its pixels, with a given rate of errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import MinLen

from cfaug.core.annotations import OneOf
from cfaug.core.errors import UserError
from cfaug.core.rng import generator
from cfaug.core.types import ENTAILMENT, Example, Images, Proposal, Scores
from cfaug.core.validation import Seed, Share, check_fields
from cfaug.core.weights import sha256_text
from cfaug.data.captions import caption_changes
from cfaug.data.detections import DETECTIONS, Attribute, Box, Detection, detections_to_json
from cfaug.settings.read_if import GIVEN, ReadIf
from cfaug.worlds.shapescapes.drawing import render, scene_of
from cfaug.worlds.shapescapes.settings import (
    COLOURS,
    DOMAINS,
    FRAMES,
    PHOTO,
    PLACES,
    SUBJECTS,
    Factors,
    WorldSettings,
)

ERRORS = ("attribute", "missed", "label")
"""The kinds of errors: a wrong colour, a missed object, a wrong label."""
PLACE_LABELS = {
    "beach": "beach",
    "grass": "grass",
    "brick": "brick wall",
    "water": "water",
    "curtain": "curtain",
}
"""The labels of places, if they have one of the world's colours; snow and roads have none, and the
night is not an object."""


@dataclass(frozen=True)
class SceneDetector:
    """An annotator of photos of the world: the subject and the place, each with its colour.

    Errors are keyed by the example and the object, so that a detector with more errors makes all
    errors of one with fewer. Covered parts of a photo of ShapeScapes-VE are not seen: a covered
    subject has no attribute, a covered place is not found.

    Args:
        error_rate: the share of objects with an error, from 0 to 1.
        errors: the kinds of errors, equally probable: ``attribute``, ``missed``, ``label``.
        world: the world that drew the photos (``data.world``); ``None`` gives no boxes.
    """

    error_rate: Share = 0.0
    errors: Annotated[
        Sequence[Annotated[str, OneOf(ERRORS)]], MinLen(1), ReadIf({"error_rate": GIVEN})
    ] = ERRORS
    seed: Annotated[Seed, ReadIf({"error_rate": GIVEN})] = 0
    """the seed of what is drawn"""
    world: WorldSettings | None = None

    name = DETECTIONS
    reads = ("key", "extra")

    def __post_init__(self) -> None:
        check_fields(self, "zoo.detector")

    def annotate(self, examples: Sequence[Example]) -> list[Mapping[str, Any]]:
        """Return ``{"detections": [...]}`` for each example, the subject before the place."""
        annotations: list[Mapping[str, Any]] = []
        for example in examples:
            factors, hidden = read_scene(example.extra, f"example {example.key!r}")
            subject: Box | None = None
            whole: Box | None = None
            if self.world is not None:
                size = self.world.image_size
                touched = render(scene_of(example.extra), size, self.world.drawing_style()).touched
                down, across = np.nonzero(touched)
                left, right = float(across.min()), float(across.max())
                top, bottom = float(down.min()), float(down.max())
                subject = (left, top, right + 1, bottom + 1)
                whole = (0.0, 0.0, float(size), float(size))
            attributes = () if hidden == "colour" else (Attribute(factors.colour),)
            detections = [Detection(factors.subject, None, subject, attributes)]
            if factors.background in PLACE_LABELS and hidden != "background":
                known = sorted(PLACE_COLOURS[factors.background] & set(COLOURS))
                label = PLACE_LABELS[factors.background]
                detections.append(Detection(label, None, whole, tuple(map(Attribute, known))))
            # What the detector sees: with errors, or without an object.
            seen = (self._err(example.key, number, each) for number, each in enumerate(detections))
            kept = [detection for detection in seen if detection is not None]
            annotations.append({self.name: detections_to_json(kept)})
        return annotations

    def _err(self, key: str, number: int, right: Detection) -> Detection | None:
        """Return the detection of an object with an error; ``None`` if it is missed."""
        rng = generator(self.seed, "detector", key, number)
        if rng.random() >= self.error_rate:
            return right
        way = self.errors[int(rng.integers(len(self.errors)))]
        if way == "missed":
            return None
        labels = SUBJECTS if number == 0 else tuple(PLACE_LABELS.values())
        colours = {attribute.name for attribute in right.attributes}
        known, taken = (labels, {right.label}) if way == "label" else (COLOURS, colours)
        others = [value for value in known if value not in taken]
        wrong = others[int(rng.integers(len(others)))]
        if way == "label":
            return replace(right, label=wrong)
        return replace(right, attributes=(Attribute(wrong),))

    def identity(self) -> str:
        world = None if self.world is None else self.world.content_hash()
        parts = [type(self).__qualname__, self.error_rate, list(self.errors), self.seed, world]
        return sha256_text(repr(parts))

    def describe(self) -> dict[str, str]:
        return {self.name: f"ShapeScapes oracle, {self.error_rate:g} of its objects wrong"}


# Checks of whether a text is true for a scene, word by word, even if it is ungrammatical.
#
# ``cfaug.worlds.shapescapes.language.parse`` reads whole sentences of the world. After words were
# inserted, deleted or exchanged, a text may not be one ("a red the on beach"). So here every word
# that names something makes its own claim: a subject, a place or a domain claims to be shown, and
# a colour to be that of the following word. Unknown words are marked, as they cannot be judged.

HIDDEN = "hidden"
"""The key in ``extra`` of a photo's covered factor, ``colour`` or ``background``."""
PLACE_COLOURS: Mapping[str, frozenset[str]] = {
    "beach": frozenset({"yellow"}),
    "grass": frozenset({"green"}),
    "night": frozenset({"black", "blue"}),
    "snow": frozenset({"white"}),
    "brick": frozenset({"red"}),
    "water": frozenset({"blue"}),
    "road": frozenset({"grey"}),
    "curtain": frozenset({"red"}),
}
"""The colours of each painted place, by the names that people would use."""
PLACE_NAMES: Mapping[str, str] = {name: name for name in PLACES} | {"wall": "brick"}
"""The place that a word names."""
_COLOUR_WORDS = {*COLOURS, "white", "grey", "gray"}
_FUNCTION = {
    word for text in (*FRAMES, *PLACES.values()) for word in text.replace("{}", "").split()
} - {*PLACE_NAMES, PHOTO}
_SILENT = {*_FUNCTION, "a", "an", "the", "and", "s"}
_NEGATIONS = {"no", "not", "t", "nt", "never", "without", "nothing", "none", "neither", "nor"}
_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True)
class Claim:
    """The claim of one word of a text.

    Attributes:
        factor: the factor that the claim is about: ``subject``, ``colour`` (of the subject),
            ``background``, ``domain``, ``place colour``, ``some colour`` (of the subject or the
            place: no word that could have it follows), or "" for a word that cannot be judged.
        value: the value that the scene should show.
    """

    start: int
    end: int
    factor: str
    value: str


def read_claims(text: str) -> list[Claim]:
    """Return the claims of a text's words, in order; words such as "the" claim nothing.

    >>> for claim in read_claims("a red ball on the wooden beach"):
    ...     print(claim.factor or "?", claim.value)
    colour red
    subject ball
    ? wooden
    background beach
    """
    claims = []
    matches = list(_WORD.finditer(text.lower()))
    words = [match.group() for match in matches]
    for at, word in enumerate(words):
        factor, value = "", word
        if word in SUBJECTS:
            factor = "subject"
        elif word in PLACE_NAMES:
            factor, value = "background", PLACE_NAMES[word]
        elif word in DOMAINS:
            factor = "domain"
        elif word in _COLOUR_WORDS:
            value = "grey" if word == "gray" else word
            owner = next((later for later in words[at + 1 :] if later not in _COLOUR_WORDS), "")
            if owner in SUBJECTS:
                factor = "colour"
            elif owner in PLACE_NAMES:
                factor = "place colour"
            elif not owner or owner in _SILENT:
                factor = "some colour"
        if word not in _SILENT:
            claims.append(Claim(*matches[at].span(), factor, value))
    return claims


def judge(claim: Claim, factors: Factors, hidden: str | None = None) -> bool | None:
    """Return whether a word's claim is true for a scene.

    Args:
        hidden: the factor that is covered in the photo, ``colour`` or ``background``; ``None`` if
            all is shown.

    Returns:
        Whether it is true; ``None`` if the word cannot be judged, or its factor is covered.
    """
    place_colours = None if hidden == "background" else PLACE_COLOURS[factors.background]
    colour = None if hidden == "colour" else frozenset({factors.colour})
    if claim.factor == "some colour":
        seen = [claim.value in some for some in (place_colours, colour) if some is not None]
        return True if any(seen) else (False if len(seen) == 2 else None)
    if claim.factor == "place colour":
        return None if place_colours is None else claim.value in place_colours
    if not claim.factor or claim.factor == hidden:
        return None
    shown: str = getattr(factors, claim.factor)
    return shown == claim.value


def text_truth(text: str, factors: Factors) -> bool | None:
    """Return whether all claims of a text are true for a scene.

    A text without a domain describes a photo, as in ``Statement.agrees``.

    >>> scene = Factors("ball", "red", "beach")
    >>> [text_truth(t, scene) for t in ("red ball the beach", "a blue ball", "a wooden ball")]
    [True, False, None]

    Returns:
        Whether all are true; ``None`` if no claim is false and some word cannot be judged, if the
        text claims nothing, or if it denies something.
    """
    label = text_label(text, factors)
    return None if label is None else label == "entailment"


def text_label(text: str, factors: Factors, hidden: str | None = None) -> str | None:
    """Return the relation of a photo to a text: entailment, contradiction or neutral.

    Args:
        hidden: the factor that is covered in the photo; ``None`` if all is shown.

    Returns:
        One of ``cfaug.core.types.ENTAILMENT``; ``None`` if ``text_truth`` cannot judge the text.
    """
    claims = read_claims(text)
    if not claims or any(not claim.factor and claim.value in _NEGATIONS for claim in claims):
        return None
    verdicts = [judge(claim, factors, hidden) for claim in claims]
    named = any(claim.factor == "domain" for claim in claims)
    if False in verdicts or (not named and factors.domain != PHOTO):
        return "contradiction"
    if any(not claim.factor for claim in claims):
        return None
    return "neutral" if None in verdicts else "entailment"


def inserted_claims(before: str, after: str) -> list[Claim]:
    """Return the claims of the words that a changed text has inserted."""
    spans = [change.after for change in caption_changes(before, after)]
    return [
        claim
        for claim in read_claims(after)
        if any(start <= claim.start and claim.end <= end for start, end in spans)
    ]


def share_true(before: str, after: str, factors: Factors, hidden: str | None) -> float | None:
    """Return the share of true words among the inserted words that can be judged.

    >>> share_true("a ball on the grass", "a red ball on the pink grass",
    ...            Factors("ball", "red", "grass"), None)
    0.5

    Args:
        hidden: the factor that is covered in the photo.

    Returns:
        The share from 0 to 1; ``None`` if no inserted word can be judged.
    """
    verdicts = [judge(claim, factors, hidden) for claim in inserted_claims(before, after)]
    known = [verdict for verdict in verdicts if verdict is not None]
    return sum(known) / len(known) if known else None


@dataclass(frozen=True)
class CaptionTruth:
    """A scorer of the truth of texts, from the scene, for sets of one photo and two texts.

    The scores, if defined, are ``truth_0`` and ``truth_1``, 1 if all claims of the text are visible
    in the photo and 0 if one is false; ``inserted_true``, the share of inserted words that
    are true; and if the example's label is one of entailment, ``entailment_0`` and
    ``entailment_1``, the index in ``ENTAILMENT`` of the right label of each text. The
    scores are for reports: a recipe that selects by them would not be XMAI.
    """

    names = ("truth_0", "truth_1", "inserted_true", "entailment_0", "entailment_1")
    uses_models: ClassVar[bool] = False

    def score(self, proposals: Sequence[Proposal], images: Sequence[Images]) -> list[Scores]:
        """Return the scores of each candidate; see ``cfaug.core.protocols.Scorer``."""
        every: list[Scores] = []
        for proposal in proposals:
            if len(proposal.texts) != 2:
                raise UserError(
                    f"proposal {proposal.key!r} has {len(proposal.texts)} texts: CaptionTruth "
                    "judges an original and a changed one"
                )
            example = proposal.example
            factors, hidden = read_scene(example.extra, f"example {example.key!r}")
            scores: dict[str, float | tuple[float, ...]] = {}
            for i, text in enumerate(proposal.texts):
                label = text_label(text, factors, hidden)
                if label in ("entailment", "contradiction"):
                    scores[f"truth_{i}"] = float(label == "entailment")
                if label is not None and example.label in ENTAILMENT:
                    scores[f"entailment_{i}"] = float(ENTAILMENT.index(label))
            inserted = share_true(*proposal.texts, factors, hidden)
            if inserted is not None:
                scores["inserted_true"] = inserted
            every.append(scores)
        return every

    def describe(self) -> dict[str, str]:
        return {"truth": "ShapeScapes oracle"}


def read_scene(extra: Mapping[str, Any], where: str) -> tuple[Factors, str | None]:
    """Return the scene of a photo of the world, and its covered factor.

    Args:
        extra: the ``extra`` of an example or a member.
    """
    try:
        scene = scene_of(extra)
    except (KeyError, ValueError) as error:
        raise UserError(
            f"{where} is not a scene of the embedded world: its detector (zoo.detector) and oracle "
            "(recipe.scorers.truth) know the photos of data.source=shapescapes:PART only; for your "
            "own give recipe.scorers.truth=null and another detector"
        ) from error
    hidden = extra.get(HIDDEN) or None
    return scene.factors, None if hidden is None else str(hidden)
