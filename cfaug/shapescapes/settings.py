"""The settings of a world, with its vocabulary and its domains. No heavy imports."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Interval, MinLen
from numpy.typing import NDArray

from cfaug.core.binding import GIVEN, ReadWith
from cfaug.core.errors import UserError
from cfaug.core.validation import OneOf, Seed, Share, check_fields

# The vocabulary of scenes and of their captions.
#
# A caption reads "a red ball on the beach"; the colour and the place may be left out, so that "a
# ball" is a natural prompt for zero-shot classification. Other media than photos are named: "a
# sketch of a red ball on the beach".

SUBJECTS = ("ball", "cube", "star", "cone", "tree", "cat", "house", "fish", "heart", "ring")
"""The subjects; also the class names of zero-shot classification, in label order."""
Rgb = tuple[int, int, int]
COLOURS: Mapping[str, Rgb] = MappingProxyType(
    {
        "red": (214, 40, 40),
        "orange": (245, 130, 25),
        "yellow": (248, 216, 40),
        "green": (45, 160, 60),
        "blue": (40, 90, 220),
        "purple": (135, 50, 175),
        "pink": (248, 140, 190),
        "black": (25, 25, 30),
    }
)
PLACES: Mapping[str, str] = MappingProxyType(
    {
        "beach": "on the beach",
        "grass": "on the grass",
        "night": "at night",
        "snow": "in the snow",
        "brick": "in front of a brick wall",
        "water": "in the water",
        "road": "on the road",
        "curtain": "in front of a curtain",
    }
)
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


WORLD_VERSION = 1
"""The version of scenes and captions; increase it when they change, to rename shard folders."""
SHORTCUTS = {
    "background": ("background",),
    "colour": ("colour",),
    "style": ("domain",),
    "all": ("colour", "background", "domain"),
    "none": (),
}
"""The factors that a world's subjects are bound to, by the value of ``shortcut``."""
SKEWED = {
    "colour": ("colour",),
    "background": ("background",),
    "both": ("colour", "background"),
}
"""The factors of a planted label, by the value of ``skewed``."""
LATER = {
    "shortcut": "background",
    "domains": (PHOTO,),
    "colours": tuple(COLOURS),
    "backgrounds": tuple(PLACES),
    "skew": 0.0,
    "skewed": "both",
    "skewed_subjects": 5,
    "ve_photos": 3000,
    "ve_test_photos": 300,
    "vqa_pairs": 3000,
    "vqa_test_pairs": 150,
    "compositional_pairs": 1000,
    "compositional_test_pairs": 400,
}
"""Settings that are left out of the content hash at these values: the world is then the same as
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
"""The settings that draw the parts of each family of ``cfaug.core.weights.world_family``."""


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
        style: a name of ``cfaug.shapescapes.settings.STYLES``.
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
            ``bias``: ``background``, ``colour``, ``style`` (the domain), ``all`` three, each by
            itself, or ``none``. Factors that are not bound are drawn uniformly.
        domains: the domains of the scenes.
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
    bias: Share = 0.9
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
    colours: Annotated[tuple[Annotated[str, OneOf(COLOURS)], ...], MinLen(2)] = tuple(COLOURS)
    backgrounds: Annotated[tuple[Annotated[str, OneOf(PLACES)], ...], MinLen(2)] = tuple(PLACES)
    skew: Share = 0.0
    skewed: Annotated[str, OneOf(SKEWED)] = "both"
    skewed_subjects: Annotated[int, Interval(ge=1, le=len(SUBJECTS))] = 5
    ve_photos: int = 3000
    ve_test_photos: int = 300
    vqa_pairs: int = 3000
    vqa_test_pairs: int = 150
    compositional_pairs: int = 1000
    compositional_test_pairs: int = 400

    read_with: ClassVar[ReadWith] = {
        "bias": {"shortcut": tuple(name for name, factors in SHORTCUTS.items() if factors)},
        "skewed": {"skew": GIVEN},
        "skewed_subjects": {"skew": GIVEN},
    }

    def __post_init__(self) -> None:
        check_fields(self, "data.world")
        object.__setattr__(self, "skew", float(self.skew))  # 1 and 1.0 give the same world
        for name in ("domains", "colours", "backgrounds"):
            given = getattr(self, name)
            if len(set(given)) < len(given):
                raise UserError(f"data.world.{name}={list(given)}: choose each at most once")
        if "domain" in self.bound and len(self.domains) < 2:
            raise UserError(
                f"data.world.shortcut={self.shortcut} needs at least two domains: "
                f"'data.world.domains=[{','.join(DOMAINS)}]'"
            )

    @property
    def bound(self) -> tuple[str, ...]:
        """The factors that are bound to the subject."""
        return SHORTCUTS[self.shortcut]

    def look(self) -> Style:
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
    given = {k: v for k, v in asdict(settings).items() if k not in LATER or v != LATER[k]}
    content = {"version": WORLD_VERSION, "look": asdict(settings.look()), **given}
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


# The domains: a photo, or the same scene in another medium (LANCE's fifth kind of edit).
#
# A domain redraws the finished composition before the camera sees it, so a scene has the same pose,
# colours and background in every domain. Its effect at a pixel depends on the scene's seed and on
# pixels at most ``reach`` away, never on the factors: outside the mask of an edit, widened by
# ``reach``, not a bit changes.

Floats = NDArray[np.float32]
Maker = Callable[[Floats, np.random.Generator], Floats]
GREY = np.array([0.299, 0.587, 0.114], dtype=np.float32)


@dataclass(frozen=True)
class Domain:
    """The rendering of a domain.

    Attributes:
        make: a function that maps a picture (size, size, 3), with values in [0, 1], and a random
            generator to another such picture.
        reach: a function that maps a picture's side in pixels to the distance, in rows or columns,
            at which a pixel has influence.
    """

    make: Maker
    reach: Callable[[int], int] = lambda size: 0


def redraw(picture: Floats, domain: str, rng: np.random.Generator) -> Floats:
    """Return a picture (size, size, 3), with values in [0, 1], redrawn in a domain."""
    return np.asarray(_MAKERS[domain].make(np.clip(picture, 0, 1), rng), dtype=np.float32)


def reach(domain: str, size: int) -> int:
    """Return the distance in pixels over which a pixel of the scene influences the picture."""
    return _MAKERS[domain].reach(size)


def widen(mask: NDArray[np.bool_], pixels: int) -> NDArray[np.bool_]:
    """Return the pixels at most ``pixels`` rows and columns away from the mask."""
    for axis in (0, 1):
        padded = np.pad(mask, [(pixels, pixels) if a == axis else (0, 0) for a in (0, 1)])
        count = mask.shape[axis]
        shifted = [padded.take(range(s, s + count), axis) for s in range(2 * pixels + 1)]
        mask = np.logical_or.reduce(shifted)
    return mask


def _photo(picture: Floats, rng: np.random.Generator) -> Floats:
    return picture


def _edges(picture: Floats, step: int) -> Floats:
    """Return the difference of neighbours ``step`` pixels away, clipped to 1, (size, size)."""
    padded = np.pad(picture, ((step, step), (step, step), (0, 0)), mode="edge")
    size = len(picture)
    middle = slice(step, step + size)
    right, left = padded[middle, 2 * step :], padded[middle, :size]
    below, above = padded[2 * step :, middle], padded[:size, middle]
    both = np.abs(right - left) + np.abs(below - above)
    return np.asarray(np.clip(both.max(axis=2), 0, 1), dtype=np.float32)


def _grid(size: int) -> tuple[Floats, Floats]:
    y, x = np.mgrid[0:size, 0:size].astype(np.float32) / np.float32(size)
    return y, x


def _sketch(picture: Floats, rng: np.random.Generator) -> Floats:
    """Crayon on paper: pale colours in slanting strokes, dark outlines."""
    size = len(picture)
    y, x = _grid(size)
    phase = np.float32(rng.uniform(0, 2 * np.pi))
    strokes = 0.5 + 0.5 * np.sin(2 * np.pi * 9 * (x + y) + phase)
    strength = (0.3 + 0.35 * strokes)[..., None]
    coloured = 0.97 - strength * (1 - picture)
    lines = _edges(picture, _step(size))[..., None]
    return coloured * (1 - 0.8 * lines**1.5)


def _painting(picture: Floats, rng: np.random.Generator) -> Floats:
    """Oil on canvas: strong colours with ragged edges on a woven, yellowed ground."""
    size = len(picture)
    y, x = _grid(size)
    turn = 2 * np.pi * np.float32(1)
    a, b, c, d = (turn * rng.random(4)).astype(np.float32)
    wave = np.float32(size / 50)
    down = wave * np.sin(5 * turn * x + a) * np.cos(4 * turn * y + b)
    across = wave * np.sin(5 * turn * y + c) * np.cos(4 * turn * x + d)
    rows = np.clip(np.rint(np.arange(size)[:, None] + down), 0, size - 1).astype(int)
    columns = np.clip(np.rint(np.arange(size)[None, :] + across), 0, size - 1).astype(int)
    strong = _saturate(picture[rows, columns], 1.5)
    weave = np.sign(np.sin(8 * turn * x + 0.1) * np.sin(8 * turn * y + 0.1))
    yellowed = np.array([1.06, 0.97, 0.75], dtype=np.float32)
    return strong * yellowed * (1 + np.float32(0.14) * weave[..., None])


def _cartoon(picture: Floats, rng: np.random.Generator) -> Floats:
    """Flat bright colours between thick black lines."""
    flat = np.rint(_saturate(picture, 1.7) * 3) / np.float32(3)
    lines = np.clip(np.float32(2.2) * _edges(picture, _step(len(picture))) - 0.5, 0, 1)
    return flat * (1 - lines[..., None])


def _mosaic(picture: Floats, rng: np.random.Generator) -> Floats:
    """Square tiles, each of nearly one colour, with dark joints."""
    size = len(picture)
    side = _tile(size)
    rows = -(-size // side)
    spare = rows * side - size
    padded = np.pad(picture, ((0, spare), (0, spare), (0, 0)), mode="edge")
    tiles = padded.reshape(rows, side, rows, side, 3).mean(axis=(1, 3))
    place = np.arange(size) // side
    glaze = rng.uniform(0.8, 1.1, (rows, rows)).astype(np.float32)[place][:, place]
    shown = (tiles[place][:, place] + picture) / 2 * glaze[..., None]
    joint = np.arange(size) % side < max(1, size // 32)
    dark = np.where(joint[:, None] | joint[None, :], np.float32(0.45), np.float32(1))
    return shown * dark[..., None]


def _saturate(picture: Floats, factor: float) -> Floats:
    """Move every pixel's colours away from its grey, within [0, 1]."""
    grey = (picture @ GREY)[..., None]
    return np.clip(grey + np.float32(factor) * (picture - grey), 0, 1)


def _tile(size: int) -> int:
    """Return the side of a tile of the mosaic in pixels."""
    return max(2, size // 8)


def _step(size: int) -> int:
    """Return the distance in pixels between neighbours that are compared for edges."""
    return max(1, size // 48)


_MAKERS: Mapping[str, Domain] = MappingProxyType(
    {
        "photo": Domain(_photo),
        "sketch": Domain(_sketch, _step),
        "painting": Domain(_painting, lambda size: size // 50 + 1),
        "cartoon": Domain(_cartoon, _step),
        "mosaic": Domain(_mosaic, lambda size: _tile(size) - 1),
    }
)


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


STYLES: Mapping[str, Style] = MappingProxyType(
    {
        "drawing": Style(),
        "photo": Style(detail=0.7, tilt=18, clutter=6, noise=0.04),
        "negative": Style(detail=0.7, tilt=18, clutter=6, noise=0.04, negative=True),
        "fog": Style(
            detail=0.35, tilt=9, clutter=3, noise=0.01, contrast=0.25, tint=(0.3, 0.3, 0.3)
        ),
        # Fog without its weather: the zoo's Stable Diffusion draws it, and
        # cfaug.shapescapes.drawing adds the fog.
        "clear": Style(detail=0.35, tilt=9, clutter=3, noise=0.01),
    }
)
"""The styles by their names in configs; the zoo's CLIP was pre-trained on "drawing"."""
