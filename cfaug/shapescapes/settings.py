"""The settings of a world: the config node ``data.world``. No heavy imports."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Annotated, ClassVar

from annotated_types import Ge, Interval, MinLen

from cfaug.core.errors import UserError
from cfaug.core.read_with import GIVEN, ReadWith
from cfaug.core.validation import OneOf, Seed, Share, check_fields
from cfaug.shapescapes.domains import STYLES, Style
from cfaug.shapescapes.vocabulary import COLOURS, DOMAINS, KINDS, PHOTO, PLACES, SUBJECTS

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
"""The settings that draw the parts of each family of ``cfaug.core.world_source.world_family``."""


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
        style: a name of ``cfaug.shapescapes.domains.STYLES``.
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
