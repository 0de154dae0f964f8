"""The settings of a world, with its vocabulary and its domains. No heavy imports."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Annotated

import numpy as np
from annotated_types import Ge, Interval, MinLen

from cfaug.core.annotations import OneOf
from cfaug.core.errors import UserError
from cfaug.core.validation import Seed, Share, check_fields
from cfaug.settings.read_if import GIVEN, ReadIf

PREFIX = "shapescapes:"
QUESTIONS_PREFIX = "shapescapes_vqa:"
COMPOSITIONAL_PREFIX = "shapescapes_compositional:"
COMPOSITIONAL = "compositional_"
"""Prefix of the parts that ``shapescapes_compositional:`` names."""


# The vocabulary of scenes and of their captions.
#
# A caption reads "a red ball on the beach"; the colour and the place may be left out, so that "a
# ball" is a natural prompt for zero-shot classification. Other media than photos are named: "a
# sketch of a red ball on the beach".

SUBJECTS = ("ball", "cube", "star", "cone", "tree", "cat", "house", "fish", "heart", "ring")
"""The subjects; also the class names of zero-shot classification, in label order."""
Rgb = tuple[int, int, int]
COLOURS: Mapping[str, Rgb] = {
    "red": (214, 40, 40),
    "orange": (245, 130, 25),
    "yellow": (248, 216, 40),
    "green": (45, 160, 60),
    "blue": (40, 90, 220),
    "purple": (135, 50, 175),
    "pink": (248, 140, 190),
    "black": (25, 25, 30),
}
PLACES: Mapping[str, str] = {
    "beach": "on the beach",
    "grass": "on the grass",
    "night": "at night",
    "snow": "in the snow",
    "brick": "in front of a brick wall",
    "water": "in the water",
    "road": "on the road",
    "curtain": "in front of a curtain",
}
"""The words for each background in a caption."""
FRAMES = ("{}", "a photo of {}", "a picture of {}", "there is {}", "this is {}")
"""The caption templates; ``{}`` takes the noun phrase."""
PROMPTS = tuple(frame.replace("{}", "a {c}") for frame in FRAMES)
"""Zero-shot templates; ``{c}`` takes the class name."""
KINDS = ("subject", "colour", "background")
"""The factors of a photo, which are also the kinds of edit."""
WEATHER = ("night", "snow")
"""The backgrounds that are a time of day or weather; the others are places."""
PHOTO = "photo"
DOMAINS = (PHOTO, "sketch", "painting", "cartoon", "mosaic")
"""The media of scenes, by their names in captions: "a sketch of a red ball"."""


@dataclass(frozen=True)
class Factors:
    """The factors of a scene: one subject of one colour on one background, in one domain."""

    subject: str
    colour: str
    background: str
    domain: str = PHOTO


@dataclass(frozen=True)
class CaptionWording:
    """The wording of a caption: its frame, and whether it names the colour and the background."""

    frame: int = 0
    colour: bool = True
    background: bool = True


def draw_wording(
    rng: np.random.Generator, *, drop_colour: float, drop_background: float
) -> CaptionWording:
    """Draw a frame, and leave out the colour and the background with the given probabilities."""
    frame = int(rng.integers(len(FRAMES)))
    colour, background = rng.random(2)
    return CaptionWording(frame, bool(colour >= drop_colour), bool(background >= drop_background))


def caption(factors: Factors, wording: CaptionWording) -> str:
    """Return a scene's caption; a domain other than the photo is named in place of the frame.

    >>> caption(Factors("cat", "orange", "beach"), CaptionWording())
    'an orange cat on the beach'
    >>> short = CaptionWording(1, colour=False, background=False)
    >>> caption(Factors("cat", "orange", "beach"), short)
    'a photo of a cat'
    >>> caption(Factors("cat", "orange", "beach", "sketch"), CaptionWording(background=False))
    'a sketch of an orange cat'
    """
    noun = f"{factors.colour} {factors.subject}" if wording.colour else factors.subject
    phrase = f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
    if wording.background:
        phrase += f" {PLACES[factors.background]}"
    frame = FRAMES[wording.frame] if factors.domain == PHOTO else f"a {factors.domain} of {{}}"
    return frame.format(phrase)


def words() -> tuple[str, ...]:
    """Return every word of captions of photos and of prompts, sorted."""
    texts = [*FRAMES, *SUBJECTS, *COLOURS, *PLACES.values(), "a an"]
    return tuple(sorted({word for text in texts for word in text.replace("{}", "").split()}))


def words_of_domains() -> tuple[str, ...]:
    """Return ``words()``, followed by the words that only captions of other domains have."""
    known = words()
    return known + tuple(sorted(set(DOMAINS) - set(known)))


@dataclass(frozen=True)
class Style:
    """The rendering between the factors of a scene and its pixels.

    Attributes:
        detail: the strength of texture, shadow, outline, lighting and colour cast; 0 draws none.
        tilt: the largest rotation of the subject, in degrees.
        clutter: the number of small objects scattered over the background.
        noise: the standard deviation of the sensor noise, on a scale from 0 to 1.
        negative: whether to show 1 - x, like a photographic negative.
        contrast: the factor that the distance from mid-grey is multiplied by, before the noise is
            added.
        tint: the values added to red, green and blue, on a scale from 0 to 1.
        turn: the number of quarter turns of the whole picture, counter-clockwise.
    """

    detail: float = 0.0
    tilt: float = 0.0
    clutter: int = 0
    noise: float = 0.02
    negative: bool = False
    contrast: float = 1.0
    tint: tuple[float, float, float] = (0.0, 0.0, 0.0)
    turn: int = 0


STYLES: Mapping[str, Style] = {
    "drawing": Style(),
    "photo": Style(detail=0.7, tilt=18, clutter=6, noise=0.04),
    "negative": Style(detail=0.7, tilt=18, clutter=6, noise=0.04, negative=True),
    "fog": Style(detail=0.35, tilt=9, clutter=3, noise=0.01, contrast=0.25, tint=(0.3, 0.3, 0.3)),
    # Fog without its weather: the zoo's Stable Diffusion draws it, and
    # cfaug.worlds.shapescapes.drawing adds the fog.
    "clear": Style(detail=0.35, tilt=9, clutter=3, noise=0.01),
}
"""The styles by their names in configs; the zoo's CLIP was pre-trained on "drawing"."""


WORLD_VERSION = 1
"""The version of scenes and captions; increase it when they change, to rename shard folders."""
SHORTCUTS = {
    "background": ("background",),
    "colour": ("colour",),
    "colour_and_background": ("colour", "background"),
    "style": ("domain",),
    "all": ("colour", "background", "domain"),
    "none": (),
}
"""The factors that a world's subjects are bound to, by the value of ``shortcut``."""
WITH_SHORTCUT = ReadIf({"shortcut": tuple(name for name, factors in SHORTCUTS.items() if factors)})
SKEWED = {
    "colour": ("colour",),
    "background": ("background",),
    "both": ("colour", "background"),
}
"""The factors of a planted label, by the value of ``skewed``."""
LATER = (
    "shortcut", "domains", "colours", "backgrounds", "skew", "skewed", "skewed_subjects",
    "ve_photos", "ve_test_photos", "vqa_pairs", "vqa_test_pairs", "compositional_pairs",
    "compositional_test_pairs",
)  # fmt: skip
"""Settings that are left out of the content hash at their defaults: the world is then the same as
before the setting existed."""
ALL_PARTS = ("image_size", "style", "seed", "colours", "backgrounds")
READ_BY = {
    "photos": (
        *ALL_PARTS, "bias", "shortcut", "domains", "drop_colour", "drop_background", "edits",
        "skew", "skewed", "skewed_subjects", "real_scenes", "counterfactual_pairs",
        "unbiased_scenes", "id_scenes", "ood_pairs",
    ),
    "entailment": (*ALL_PARTS, "domains", "ve_photos", "ve_test_photos"),
    "questions": (*ALL_PARTS, "vqa_pairs", "vqa_test_pairs"),
    "compositional": (
        *ALL_PARTS, "bias", "shortcut", "drop_colour", "drop_background",
        "compositional_pairs", "compositional_test_pairs",
    ),
}  # fmt: skip
"""The settings that draw the parts of each family."""


@dataclass(frozen=True)
class WorldSettings:
    """One world: the look of its scenes, the bias of its training scenes, and their numbers.

    The defaults of ``bias`` and ``style`` were chosen because counterfactuals gained the most with
    them (``docs/shapescapes-search.md`` lists all attempts). A gain measured here shows that
    the method works and that the tool can measure it, not how large it is on photos.

    Attributes:
        image_size: the side of a scene in pixels.
        bias: the probability that a training scene shows its subject at home, with its own
            background (or other factors in ``shortcut``); for backgrounds 1/8 is no bias.
        style: a name of ``cfaug.worlds.shapescapes.settings.STYLES``.
        seed: the seed of the home map and of every scene; ``None`` until a run fills in
            ``data.seed``.
        real_scenes: the size of the part "real".
        counterfactual_pairs: the number of pairs in the parts "counterfactual" and "matched".
        unbiased_scenes: the size of the part "unbiased".
        id_scenes: the size of the test "id".
        ood_pairs: the number of pairs in the test "ood_pairs".
        drop_colour: the probability that a training caption leaves out the colour.
        drop_background: the probability that a training caption leaves out the background.
        edits: the kinds of edit of the counterfactual parts, drawn uniformly.
        shortcut: the planted shortcut, the factor that predicts the subject with probability
            ``bias``: ``background``, ``colour``, ``style`` (the domain), several of them, each by
            itself (``colour_and_background``, ``all`` three), or ``none``. Factors that are not
            bound are drawn uniformly.
        colours: the colours of the subjects, two or more.
        backgrounds: the backgrounds of the scenes, two or more.
        skew: the strength of the planted skew, from 0 (none) to 1: the probability that a training
            scene ("real", "more_real") of a planted subject whose caption is neutral, naming
            neither colour nor background, shows the subject's planted label. All other scenes are
            the same with and without it.
        skewed: the kind of planted label: a ``colour``, a ``background``, or ``both`` together.
        skewed_subjects: the number of subjects with a planted label; the seed and ``skewed``
            determine the subjects and their labels.
        ve_photos: the size of the part "ve" of ShapeScapes-VE, which is for training.
        ve_test_photos: the size of the part "ve_test"; in multiples of six, the labels and forms of
            hypotheses are exactly balanced.
        vqa_pairs: the number of pairs of pictures in the part "train" of ShapeScapes-VQA.
        vqa_test_pairs: the number of pairs in its part "test"; of every six one belongs to each
            category.
        compositional_pairs: the number of sets in each training part of
            ``shapescapes_compositional``.
        compositional_test_pairs: the number of sets in each of its tests.
    """

    image_size: Annotated[int, Ge(8)] = 32
    bias: Annotated[Share, WITH_SHORTCUT] = 0.9
    style: Annotated[str, OneOf(STYLES)] = "fog"
    seed: Seed | None = None
    real_scenes: int = 1500
    counterfactual_pairs: int = 510
    unbiased_scenes: int = 1020
    id_scenes: int = 400
    ood_pairs: int = 300
    drop_colour: Share = 0.3
    drop_background: Share = 0.5
    edits: Annotated[tuple[Annotated[str, OneOf(KINDS)], ...], MinLen(1)] = ("subject",)
    shortcut: Annotated[str, OneOf(SHORTCUTS)] = "background"
    domains: Annotated[tuple[Annotated[str, OneOf(DOMAINS)], ...], MinLen(1)] = (PHOTO,)
    """the domains in which training scenes are drawn"""
    colours: Annotated[tuple[Annotated[str, OneOf(COLOURS)], ...], MinLen(2)] = tuple(COLOURS)
    backgrounds: Annotated[tuple[Annotated[str, OneOf(PLACES)], ...], MinLen(2)] = tuple(PLACES)
    skew: Share = 0.0
    skewed: Annotated[str, OneOf(SKEWED), ReadIf({"skew": GIVEN})] = "both"
    skewed_subjects: Annotated[int, Interval(ge=1, le=len(SUBJECTS)), ReadIf({"skew": GIVEN})] = 5
    ve_photos: int = 3000
    ve_test_photos: int = 300
    vqa_pairs: int = 3000
    vqa_test_pairs: int = 150
    compositional_pairs: int = 1000
    compositional_test_pairs: int = 400

    def __post_init__(self) -> None:
        check_fields(self, "data.world")
        object.__setattr__(self, "skew", float(self.skew))  # 1 and 1.0 give the same world
        if "domain" in self.bound and len(self.domains) < 2:
            raise UserError(
                f"data.world.shortcut={self.shortcut} needs at least two domains: "
                f"'data.world.domains=[{','.join(DOMAINS)}]'"
            )

    @property
    def bound(self) -> tuple[str, ...]:
        """The factors that are bound to the subject."""
        return SHORTCUTS[self.shortcut]

    def drawing_style(self) -> Style:
        """Return the style itself."""
        return STYLES[self.style]

    def known_seed(self) -> int:
        """Return the seed."""
        if self.seed is None:
            raise UserError("data.world.seed is not set: give data.world.seed=N or data.seed=N")
        return self.seed

    def content_hash(self) -> str:
        """Return 12 hex digits that identify everything that the shards of this world depend on."""
        self.known_seed()
        return _content_hash(self)


@lru_cache
def _content_hash(settings: WorldSettings) -> str:
    left_out = {field.name: field.default for field in fields(settings) if field.name in LATER}
    given = {k: v for k, v in asdict(settings).items() if k not in left_out or v != left_out[k]}
    content = {"version": WORLD_VERSION, "look": asdict(settings.drawing_style()), **given}
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


CHOICES = {"subject": SUBJECTS, "colour": tuple(COLOURS), "background": tuple(PLACES)}
"""The values of the factors of a photo."""


FACTORS = {**CHOICES, "domain": DOMAINS}
"""The values of all factors of a scene."""


def edit_factors(factors: Factors, kind: str, to: str) -> Factors:
    """Return the factors with one of them changed."""
    if kind not in FACTORS:
        raise UserError(f"no kind of edit is called {kind!r}; choose one of {', '.join(FACTORS)}")
    if to not in FACTORS[kind]:
        raise UserError(f"no {kind} is called {to!r}; choose one of {', '.join(FACTORS[kind])}")
    return replace(factors, **{kind: to})
