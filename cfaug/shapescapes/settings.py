"""The settings of a world: the config node ``data.world``. No heavy imports."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache

from cfaug.errors import UserError
from cfaug.shapescapes.styles import STYLES, Style
from cfaug.shapescapes.vocabulary import COLOURS, DOMAINS, KINDS, PHOTO, PLACES, SUBJECTS

WORLD_VERSION = 1
"""Raise it when a scene or a caption would come out differently: folders of shards follow."""

SHORTCUTS = {
    "background": ("background",),
    "colour": ("colour",),
    "style": ("domain",),
    "all": ("colour", "background", "domain"),
    "none": (),
}
"""The factors that a world's subjects are bound to, by what ``shortcut`` calls it."""

SKEWED = {
    "colour": ("colour",),
    "background": ("background",),
    "both": ("colour", "background"),
}
"""The factors that make a planted label, by what ``skewed`` calls it."""

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
"""Settings left out of the content hash at these values, at which a world is what it was before
there was such a setting."""


@dataclass(frozen=True)
class WorldSettings:
    """One world: how its scenes look, which bias its training scenes have, how many there are.

    The defaults of ``bias`` and ``style`` were chosen because counterfactuals gained the most under
    them (``docs/shapescapes-search.md`` lists all that was tried). A gain measured here says that
    the method works and that the tool can measure it, not how much to expect of photographs.

    Attributes:
        image_size: side of a scene in pixels.
        bias: probability that a training scene shows its subject at home, on the background (or in
            whatever ``shortcut`` names) that is the subject's own; for a background 1/8 is not a
            bias.
        style: a name of ``cfaug.shapescapes.styles.STYLES``.
        seed: of the home map and of every scene; ``None`` until a run fills in ``data.seed``.
        real_scenes: size of the part "real".
        counterfactual_pairs: sets of two in the parts "counterfactual" and "matched".
        unbiased_scenes: size of the part "unbiased".
        id_scenes: size of the test "id".
        ood_pairs: sets of two in the test "ood_pairs".
        drop_colour: probability that a training caption leaves out the colour.
        drop_background: probability that a training caption leaves out the background.
        edits: kinds of edit of the counterfactual parts, drawn uniformly.
        shortcut: the planted shortcut, the factor that tells the subject with probability ``bias``:
            ``background``, ``colour``, ``style`` (the domain), ``all`` three, each by itself, or
            ``none``. Factors that are not bound are drawn uniformly.
        domains: those that scenes are shown in.
        colours: those that scenes are drawn with, two or more.
        backgrounds: likewise.
        skew: strength of the planted skew, from 0 (none) to 1: probability that a training scene
            ("real", "more_real") of a planted subject whose caption is neutral, naming neither
            colour nor background, shows the subject's planted label. The other scenes show what
            they would without it, so that worlds of one seed differ in nothing else.
        skewed: what a planted label is: a ``colour``, a ``background``, or ``both`` together.
        skewed_subjects: how many subjects have a planted label; which, and which label, follows
            from the seed and from ``skewed``.
        ve_photos: size of the part "ve" of ShapeScapes-VE, which is for training.
        ve_test_photos: size of the part "ve_test"; in multiples of six labels and forms of
            hypotheses are exactly balanced.
        vqa_pairs: pairs of pictures in the part "train" of ShapeScapes-VQA.
        vqa_test_pairs: likewise in its part "test"; of every six one is of each category.
        compositional_pairs: sets in each training part of ``shapescapes_compositional``.
        compositional_test_pairs: likewise in each of its tests.
    """

    image_size: int = 32
    bias: float = 0.9
    style: str = "fog"
    seed: int | None = None
    real_scenes: int = 1500
    counterfactual_pairs: int = 510
    unbiased_scenes: int = 1020
    id_scenes: int = 400
    ood_pairs: int = 300
    drop_colour: float = 0.3
    drop_background: float = 0.5
    edits: tuple[str, ...] = ("subject",)
    shortcut: str = "background"
    domains: tuple[str, ...] = (PHOTO,)
    colours: tuple[str, ...] = tuple(COLOURS)
    backgrounds: tuple[str, ...] = tuple(PLACES)
    skew: float = 0.0
    skewed: str = "both"
    skewed_subjects: int = 5
    ve_photos: int = 3000
    ve_test_photos: int = 300
    vqa_pairs: int = 3000
    vqa_test_pairs: int = 150
    compositional_pairs: int = 1000
    compositional_test_pairs: int = 400

    def __post_init__(self) -> None:
        for name in ("edits", "domains", "colours", "backgrounds"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "skew", float(self.skew))  # 1 and 1.0 are one world
        if self.style not in STYLES:
            raise UserError(f"no style is called {self.style!r}; choose from {', '.join(STYLES)}")
        for name in ("bias", "drop_colour", "drop_background", "skew"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"data.world.{name}={getattr(self, name)}: must lie in [0, 1]")
        unknown = [kind for kind in self.edits if kind not in KINDS]
        if unknown or not self.edits:
            raise UserError(f"data.world.edits={list(self.edits)}: choose from {', '.join(KINDS)}")
        if self.image_size < 8:
            raise UserError(f"data.world.image_size={self.image_size}: at least 8 pixels")
        self._check_domains()
        self._check_skew()

    def _check_domains(self) -> None:
        if self.shortcut not in SHORTCUTS:
            raise UserError(
                f"data.world.shortcut={self.shortcut}: choose from {', '.join(SHORTCUTS)}"
            )
        wrong = [one for one in self.domains if one not in DOMAINS]
        if wrong or not self.domains or len(set(self.domains)) < len(self.domains):
            raise UserError(
                f"data.world.domains={list(self.domains)}: choose from {', '.join(DOMAINS)}, each "
                "at most once"
            )
        if "domain" in self.bound and len(self.domains) < 2:
            raise UserError(
                f"data.world.shortcut={self.shortcut} needs at least two domains: "
                f"'data.world.domains=[{','.join(DOMAINS)}]'"
            )

    def _check_skew(self) -> None:
        for name, known in (("colours", COLOURS), ("backgrounds", PLACES)):
            given = getattr(self, name)
            unknown = [one for one in given if one not in known]
            if unknown or len(given) < 2 or len(set(given)) < len(given):
                raise UserError(
                    f"data.world.{name}={list(given)}: choose two or more from {', '.join(known)}, "
                    "each at most once"
                )
        if self.skewed not in SKEWED:
            raise UserError(f"data.world.skewed={self.skewed}: choose from {', '.join(SKEWED)}")
        count, most = self.skewed_subjects, len(SUBJECTS)
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= most:
            raise UserError(
                f"data.world.skewed_subjects={count!r}: a whole number from 1 to {most}"
            )

    @property
    def bound(self) -> tuple[str, ...]:
        """The factors that are bound to the subject."""
        return SHORTCUTS[self.shortcut]

    def look(self) -> Style:
        """Return the style itself."""
        return STYLES[self.style]

    def known_seed(self) -> int:
        """Return the seed.

        Raises:
            UserError: if it was never filled in.
        """
        if self.seed is None:
            raise UserError("data.world.seed is not set: give data.world.seed=N or data.seed=N")
        return self.seed

    def content_hash(self) -> str:
        """Return 12 hex digits that name everything the shards of this world depend on."""
        self.known_seed()
        return _content_hash(self)


@lru_cache
def _content_hash(settings: WorldSettings) -> str:
    given = {k: v for k, v in asdict(settings).items() if k not in LATER or v != LATER[k]}
    content = {"version": WORLD_VERSION, "look": asdict(settings.look()), **given}
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
