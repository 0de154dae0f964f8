"""The settings of a world: the config node ``data.world``. No heavy imports."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache

from cfaug.errors import UserError
from cfaug.shapescapes.styles import STYLES, Style
from cfaug.shapescapes.vocabulary import KINDS

WORLD_VERSION = 1
"""Raise it when a scene or a caption would come out differently: folders of shards follow."""


@dataclass(frozen=True)
class WorldSettings:
    """One world: how its scenes look, which bias its training scenes have, how many there are.

    The defaults of ``bias`` and ``style`` were chosen because counterfactuals gained the most under
    them (``docs/shapescapes-search.md`` lists all that was tried). A gain measured here says that
    the method works and that the tool can measure it, not how much to expect of photographs.

    Attributes:
        image_size: side of a scene in pixels.
        bias: probability that a training scene shows its subject on the subject's home background;
            1/8 is no bias.
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "edits", tuple(self.edits))
        if self.style not in STYLES:
            raise UserError(f"no style is called {self.style!r}; choose from {', '.join(STYLES)}")
        for name in ("bias", "drop_colour", "drop_background"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"data.world.{name}={getattr(self, name)}: must lie in [0, 1]")
        unknown = [kind for kind in self.edits if kind not in KINDS]
        if unknown or not self.edits:
            raise UserError(f"data.world.edits={list(self.edits)}: choose from {', '.join(KINDS)}")
        if self.image_size < 8:
            raise UserError(f"data.world.image_size={self.image_size}: at least 8 pixels")

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
    content = {"version": WORLD_VERSION, "look": asdict(settings.look()), **asdict(settings)}
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
