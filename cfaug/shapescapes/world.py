"""The scenes of a world: the home map, and the distributions of factors with and without bias."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TypeVar

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.rng import derive, generator
from cfaug.shapescapes.drawing import Scene
from cfaug.shapescapes.settings import (
    SKEWED,
    SUBJECTS,
    CaptionWording,
    Factors,
    WorldSettings,
    edit_factors,
)

Choice = TypeVar("Choice")


def pick(rng: np.random.Generator, choices: Sequence[Choice]) -> Choice:
    """Draw one of some choices uniformly."""
    return choices[int(rng.integers(len(choices)))]


@dataclass(frozen=True)
class World:
    """The scenes of a world. Each part draws from its own random streams."""

    settings: WorldSettings

    @cached_property
    def homes(self) -> dict[str, dict[str, str]]:
        """Each subject's own value of every factor, whether the subject is bound to it or not.

        They are fresh permutations for every world seed.
        """
        homes = {}
        for kind, values in self.values.items():
            names = () if kind == "background" else (kind,)
            rng = generator(self.settings.known_seed(), "shapescapes", "home", *names)
            subjects = rng.permutation(SUBJECTS).tolist()
            shuffled = rng.permutation(list(values)).tolist()
            homes[kind] = {name: shuffled[i % len(shuffled)] for i, name in enumerate(subjects)}
        return homes

    @property
    def values(self) -> dict[str, tuple[str, ...]]:
        """The values of every factor except the subject, in the order in which they are drawn."""
        settings = self.settings
        return {
            "colour": settings.colours,
            "background": settings.backgrounds,
            "domain": settings.domains,
        }

    @cached_property
    def planted(self) -> dict[str, dict[str, str]]:
        """The planted label of each planted subject, by factor, whatever the skew's strength.

        Subjects and labels are drawn independently, so that their assignment carries no
        information; labels repeat only after all have been used.
        """
        settings, kinds = self.settings, SKEWED[self.settings.skewed]
        rng = generator(settings.known_seed(), "shapescapes", "planted", settings.skewed)
        chosen = rng.permutation(SUBJECTS)[: settings.skewed_subjects].tolist()
        labels = rng.permutation(list(product(*(self.values[kind] for kind in kinds)))).tolist()
        return {
            subject: dict(zip(kinds, labels[i % len(labels)], strict=True))
            for i, subject in enumerate(chosen)
        }

    def plant(self, factors: Factors, wording: CaptionWording, part: str, index: int) -> Factors:
        """Return a training scene's factors, possibly with its subject's planted label.

        Args:
            factors: the factors of item ``index`` of ``part`` without a skew.
            wording: the wording of the scene's caption.
            part: the part that the scene belongs to.
            index: the scene's number in the part.
        """
        strength = self.settings.skew
        if strength == 0 or wording.colour or wording.background:
            return factors
        planted = self.planted.get(factors.subject)
        if planted is None or self.stream(f"{part}-skew", index).random() >= strength:
            return factors
        return replace(factors, **planted)

    def is_home(self, factors: Factors) -> bool:
        """Return whether every factor bound to the subject has the subject's own value."""
        return all(getattr(factors, k) == self.homes[k][factors.subject] for k in self._bound())

    def is_strange(self, factors: Factors) -> bool:
        """Return whether no factor bound to the subject has the subject's own value."""
        return all(getattr(factors, k) != self.homes[k][factors.subject] for k in self._bound())

    def _bound(self) -> tuple[str, ...]:
        if not self.settings.bound:
            raise UserError(
                f"data.world.shortcut={self.settings.shortcut} has no subject at home: its parts "
                "are real, more_real, counterfactual, matched, unbiased, id, counterfactual_test, "
                "real_test, ve and ve_test"
            )
        return self.settings.bound

    def stream(self, part: str, index: int) -> np.random.Generator:
        """Return the random generator of item ``index`` of ``part``."""
        return generator(self.settings.known_seed(), "shapescapes", part, index)

    def scene(self, factors: Factors, part: str, index: int, member: int = 0) -> Scene:
        """Return a scene of ``part`` with a seed that is unique to part, item and member."""
        seed = derive(self.settings.known_seed(), "shapescapes", part, index, "scene", member)
        return Scene(factors, seed)

    def draw_biased(self, rng: np.random.Generator) -> Factors:
        """Draw factors as in training data: bound ones at home with probability ``bias``."""
        subject, drawn = pick(rng, SUBJECTS), {}
        for kind, values in self.values.items():
            if kind in self.settings.bound:
                home = self.homes[kind][subject]
                at_home = rng.random() < self.settings.bias
                others = [value for value in values if value != home]
                drawn[kind] = home if at_home else pick(rng, others)
            else:
                drawn[kind] = pick(rng, values)
        return Factors(subject, **drawn)

    def draw_unbiased(self, rng: np.random.Generator) -> Factors:
        """Draw factors independently and uniformly."""
        subject = pick(rng, SUBJECTS)
        return Factors(subject, **{kind: pick(rng, some) for kind, some in self.values.items()})

    def draw_edit(self, rng: np.random.Generator, factors: Factors) -> tuple[str, Factors]:
        """Draw a kind of edit and another value for that factor; return the kind and the result."""
        kind = pick(rng, self.settings.edits)
        values = SUBJECTS if kind == "subject" else self.values[kind]
        others = [value for value in values if value != getattr(factors, kind)]
        return kind, edit_factors(factors, kind, pick(rng, others))

    def combinations(self, *, at_home: bool) -> list[Factors]:
        """List every combination with all bound factors at home, or none of them."""
        every = (Factors(*some) for some in product(SUBJECTS, *self.values.values()))
        wanted = self.is_home if at_home else self.is_strange
        return [factors for factors in every if wanted(factors)]

    def id_combinations(self) -> list[Factors]:
        """List distinct combinations with a share at home as close to ``bias`` as possible."""
        rng = self.stream("id_retrieval", -1)
        homely, strange = self.combinations(at_home=True), self.combinations(at_home=False)
        bias = self.settings.bias
        wanted = len(strange) if bias == 0 else round(len(homely) * (1 - bias) / bias)
        chosen = rng.permutation(len(strange))[:wanted]
        return [*(homely if bias > 0 else []), *(strange[i] for i in chosen)]

    def test_pairs(self) -> list[tuple[Factors, str]]:
        """Return pairs of combinations, as the first combination and the subject of the second.

        Within every colour, place and domain the subjects are paired at random, so that each
        combination is in one pair and all captions of the test are different.
        """
        pairs = []
        for index, others in enumerate(product(*self.values.values())):
            subjects = self.stream("test-pairs", index).permutation(SUBJECTS).tolist()
            halves = zip(subjects[::2], subjects[1::2], strict=True)
            pairs += [(Factors(subject, *others), other) for subject, other in halves]
        return pairs

    def ood_swaps(self, count: int) -> Iterator[tuple[Factors, str]]:
        """Yield scenes with no factor at home, each with another subject also not at home."""
        strange = self.combinations(at_home=False)
        for index in range(count):
            rng = self.stream("ood_pairs", index)
            factors = strange[int(rng.integers(len(strange)))]
            others = [
                name
                for name in SUBJECTS
                if name != factors.subject and self.is_strange(replace(factors, subject=name))
            ]
            yield factors, pick(rng, others)
