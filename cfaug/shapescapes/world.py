"""Which scenes a world holds: the home map, and how factors are drawn with and without bias."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from cfaug.rng import derive, generator
from cfaug.shapescapes.oracle import CHOICES, edit_factors
from cfaug.shapescapes.scene import Scene
from cfaug.shapescapes.settings import WorldSettings
from cfaug.shapescapes.vocabulary import COLOURS, PLACES, SUBJECTS, Factors


def _pick(rng: np.random.Generator, choices: Sequence[str]) -> str:
    return choices[int(rng.integers(len(choices)))]


@dataclass(frozen=True)
class World:
    """The scenes of a world. Each part draws from streams of its own name, so no two share one."""

    settings: WorldSettings

    @cached_property
    def home(self) -> dict[str, str]:
        """Each subject's home background: a fresh permutation for every world seed."""
        rng = generator(self.settings.known_seed(), "shapescapes", "home")
        subjects = rng.permutation(SUBJECTS).tolist()
        places = rng.permutation(list(PLACES)).tolist()
        return {subject: places[i % len(places)] for i, subject in enumerate(subjects)}

    def stream(self, part: str, index: int) -> np.random.Generator:
        """Return the generator of everything drawn for item ``index`` of ``part``."""
        return generator(self.settings.known_seed(), "shapescapes", part, index)

    def scene(self, factors: Factors, part: str, index: int, member: int = 0) -> Scene:
        """Return a scene of ``part`` with a seed no other part, item or member has."""
        seed = derive(self.settings.known_seed(), "shapescapes", part, index, "scene", member)
        return Scene(factors, seed)

    def draw_biased(self, rng: np.random.Generator) -> Factors:
        """Draw factors as training data has them: at home with probability ``bias``."""
        subject, colour = _pick(rng, SUBJECTS), _pick(rng, tuple(COLOURS))
        home = self.home[subject]
        others = [place for place in PLACES if place != home]
        at_home = rng.random() < self.settings.bias
        return Factors(subject, colour, home if at_home else _pick(rng, others))

    def draw_unbiased(self, rng: np.random.Generator) -> Factors:
        """Draw factors independently and uniformly."""
        places = tuple(PLACES)
        return Factors(_pick(rng, SUBJECTS), _pick(rng, tuple(COLOURS)), _pick(rng, places))

    def draw_edit(self, rng: np.random.Generator, factors: Factors) -> tuple[str, Factors]:
        """Draw a kind of edit and another value for that factor; return the kind and the result."""
        kind = _pick(rng, self.settings.edits)
        others = [value for value in CHOICES[kind] if value != getattr(factors, kind)]
        return kind, edit_factors(factors, kind, _pick(rng, others))

    def combinations(self, *, at_home: bool) -> list[Factors]:
        """List every combination of factors with the subject on its home background, or off it."""
        home = self.home
        every = (Factors(*values) for values in product(SUBJECTS, COLOURS, PLACES))
        return [f for f in every if (home[f.subject] == f.background) == at_home]

    def id_combinations(self) -> list[Factors]:
        """List distinct combinations whose share at home is ``bias`` as nearly as can be."""
        rng = self.stream("id_retrieval", -1)
        homely, strange = self.combinations(at_home=True), self.combinations(at_home=False)
        bias = self.settings.bias
        wanted = len(strange) if bias == 0 else round(len(homely) * (1 - bias) / bias)
        chosen = rng.permutation(len(strange))[:wanted]
        return [*(homely if bias > 0 else []), *(strange[i] for i in chosen)]

    def test_pairs(self) -> list[tuple[Factors, str]]:
        """Pair off all combinations: each of the first with the subject that makes the second.

        Within every colour and place the subjects are paired at random, so each combination is in
        one pair and no two captions of the test are alike.
        """
        found = []
        for index, (colour, place) in enumerate(product(COLOURS, PLACES)):
            subjects = self.stream("test-pairs", index).permutation(SUBJECTS).tolist()
            halves = zip(subjects[::2], subjects[1::2], strict=True)
            found += [(Factors(one, colour, place), other) for one, other in halves]
        return found

    def ood_swaps(self, count: int) -> Iterator[tuple[Factors, str]]:
        """Yield scenes never at home, and for each another subject that is not at home there."""
        home, strange = self.home, self.combinations(at_home=False)
        for index in range(count):
            rng = self.stream("ood_pairs", index)
            factors = strange[int(rng.integers(len(strange)))]
            others = [
                name
                for name in SUBJECTS
                if name != factors.subject and home[name] != factors.background
            ]
            yield factors, _pick(rng, others)
