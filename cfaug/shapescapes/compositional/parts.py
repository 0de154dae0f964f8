"""Compositional parts of a world: ``shapescapes_compositional:PART``.

Tests have two forms: a *pair* has two captions and a picture of each, a *choice* has one picture
and two captions, the first of which is true. Both forms of a test have the same items: "choice"
shows the first picture of each of "pairs". In "pairs", "choice" and "paraphrases" either of the two
comes first with probability one half, and colours are uniform: a text alone does not reveal which
one is true. In "biased_pairs" and "biased_choice" the first caption has only home colours, like
most of the world's training captions, unlike the second. In "claims", which is only a choice, the
second caption makes a false additional claim about the first picture. "single_pairs" and
"single_choice" show a single thing. "paraphrases" adds a paraphrase of the first caption, which is
also true.

Training: "train" (the first picture and caption of every pair, drawn with the world's bias),
"counterfactual" (the pairs), "matched" (the content and captions of "counterfactual", in otherwise
independent scenes), "unbiased" (pictures drawn uniformly), "paraphrased" (the pictures of "train",
each with its caption and a paraphrase) and "single_counterfactual" (pairs of a single thing with
another subject, like those of the zoo's generator).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfaug.core.rng import derive
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.core.weights import COMPOSITIONAL
from cfaug.shapescapes.compositional.edits import (
    CLAIMS,
    EDITS,
    SINGLE,
    DescriptionForm,
    Pair,
    Picture,
    PictureDescription,
    PictureDistribution,
    choose,
    say,
    words_of_pictures,
)
from cfaug.shapescapes.settings import FRAMES, WorldSettings
from cfaug.shapescapes.world import World

CATEGORY, SET, NAME = "category", "set", "shapescapes"
TRUE, FALSE = "true", "false"
BIASED = ("replace_subject", "replace_colour", "swap_subject", "swap_colour", "add_subject")
"""The categories of edits that take a thing out of its home colour."""


@dataclass(frozen=True)
class Drawn:
    """A pair with its captions and further details for a part.

    Attributes:
        form: the wording of both captions.
        turned: whether the second picture takes the place of the first.
    """

    category: str
    pair: Pair
    said: tuple[PictureDescription, PictureDescription]
    form: DescriptionForm
    turned: bool
    seed: int

    @property
    def pictures(self) -> tuple[Picture, Picture]:
        """Both pictures, in the order of the item."""
        first, second = (side.picture for side in self.pair.sides)
        return (second, first) if self.turned else (first, second)

    @property
    def descriptions(self) -> tuple[PictureDescription, PictureDescription]:
        """The descriptions of both pictures, in that order."""
        first, second = self.said
        return (second, first) if self.turned else (first, second)

    @property
    def captions(self) -> tuple[str, str]:
        """The captions of both pictures, in that order."""
        first, second = (say(said, self.form) for said in self.descriptions)
        return first, second

    @property
    def edit(self) -> Edit:
        """The edit from the first picture to the second."""
        before, after = self.pair.words[:: -1 if self.turned else 1]
        return Edit(self.category, before, after)


@dataclass(frozen=True)
class PairDistribution:
    """The distribution of a part's pairs.

    Attributes:
        stream: the name of the random streams; parts with equal streams and laws have the same
            pairs.
        edits: the edits by category, taken in turn.
        bias: the probability of home colours; ``None`` draws colours uniformly.
        keep_home: whether an edit may leave every thing in its home colour.
        turn: whether either of the two pictures may come first.
        drops: whether captions leave out as much as training captions do.
    """

    stream: str
    edits: Mapping[str, Callable[..., Pair]]
    bias: float | None = None
    keep_home: bool = True
    turn: bool = False
    drops: bool = False

    def draw(self, world: World, index: int) -> Drawn:
        """Draw pair ``index``."""
        rng = world.stream(COMPOSITIONAL + self.stream, index)
        category = tuple(self.edits)[index % len(self.edits)]
        pair = self.edits[category](rng, PictureDistribution(world, self.bias, self.keep_home))
        settings = world.settings
        dropped = {
            "drop_colour": settings.drop_colour, "drop_background": settings.drop_background,
        } if self.drops else {}  # fmt: skip
        said = pair.describe(rng, **dropped)
        form = DescriptionForm(int(rng.integers(len(FRAMES))))
        turned = self.turn and bool(rng.random() < 0.5)
        return Drawn(category, pair, said, form, turned, _seed(world, self.stream, index))


def _seed(world: World, stream: str, index: int, *more: int) -> int:
    return derive(world.settings.known_seed(), "shapescapes", COMPOSITIONAL + stream, index, *more)


TRAINING_EDITS = MappingProxyType(
    {**EDITS, **{f"single_{name}": edit for name, edit in SINGLE.items()}}
)
"""The edits of training pairs, in equal shares."""


def _training(world: World) -> PairDistribution:
    # The bias of colours if the world's shortcut is the colour, otherwise none.
    bias = world.settings.bias if "colour" in world.settings.bound else None
    return PairDistribution("train", TRAINING_EDITS, bias, drops=True)


def _plain(world: World) -> PairDistribution:
    return PairDistribution("test", EDITS, turn=True)


def _biased(world: World) -> PairDistribution:
    return PairDistribution("biased", {name: EDITS[name] for name in BIASED}, 1.0, keep_home=False)


def _claims(world: World) -> PairDistribution:
    return PairDistribution("claims", CLAIMS, 1.0, keep_home=False)


def _single(world: World) -> PairDistribution:
    return PairDistribution("single", SINGLE, turn=True)


def _single_training(world: World) -> PairDistribution:
    edits = {"replace_subject": SINGLE["replace_subject"]}
    return replace(_training(world), stream="single_train", edits=edits)


def _unbiased_items(world: World) -> PairDistribution:
    return replace(_training(world), stream="unbiased", bias=None)


@dataclass(frozen=True)
class _PlannedPicture:
    """A planned member: a picture and its seed, its caption, and details."""

    picture: Picture
    seed: int
    text: str
    edit: Edit | None = None
    label: str | None = None
    tags: Mapping[str, Any] = field(default_factory=dict)


def _assemble(
    world: World, part: str, index: int, shots: list[_PlannedPicture]
) -> CounterfactualSet:
    """Return shots as a set; equal pictures with equal seeds share the image."""
    key = f"{COMPOSITIONAL.replace('_', '-')}{part.replace('_', '-')}-{index:06d}"
    seen = list(dict.fromkeys((shot.picture, shot.seed) for shot in shots))
    members = tuple(
        Member(
            text=shot.text,
            image_name=str(seen.index((shot.picture, shot.seed))),
            source_id=f"{key}-{i}",
            edit=shot.edit,
            label=shot.label,
            extra={**shot.tags, SET: NAME, **shot.picture.record(shot.seed)},
        )
        for i, shot in enumerate(shots)
    )
    return CounterfactualSet(
        key=key,
        group=key,
        members=members,
        images={
            str(i): picture.draw(seed, world.settings) for i, (picture, seed) in enumerate(seen)
        },
        provenance={"world": world.settings.content_hash(), "part": COMPOSITIONAL + part},
    )


def _tags(drawn: Drawn) -> dict[str, Any]:
    return {CATEGORY: drawn.category, "objects": len(drawn.pictures[0].things)}


Shots = Callable[[World, PairDistribution, int], list[_PlannedPicture]]


def _first(world: World, items: PairDistribution, index: int) -> list[_PlannedPicture]:
    drawn = items.draw(world, index)
    return [_PlannedPicture(drawn.pictures[0], drawn.seed, drawn.captions[0], tags=_tags(drawn))]


def _pair(world: World, items: PairDistribution, index: int) -> list[_PlannedPicture]:
    drawn = items.draw(world, index)
    edits = (None, drawn.edit)
    return [
        _PlannedPicture(picture, drawn.seed, text, edit, tags=_tags(drawn))
        for picture, text, edit in zip(drawn.pictures, drawn.captions, edits, strict=True)
    ]


def _matched(world: World, items: PairDistribution, index: int) -> list[_PlannedPicture]:
    """Return the pair in two independent scenes, not connected by an edit."""
    return [
        replace(shot, seed=_seed(world, "matched", index, n), edit=None)
        for n, shot in enumerate(_pair(world, items, index))
    ]


def _choice(world: World, items: PairDistribution, index: int) -> list[_PlannedPicture]:
    drawn = items.draw(world, index)
    return [
        _PlannedPicture(drawn.pictures[0], drawn.seed, text, label=label, tags=_tags(drawn))
        for text, label in zip(drawn.captions, (TRUE, FALSE), strict=True)
    ]


def _paraphrase(drawn: Drawn, rng: np.random.Generator) -> tuple[str, str]:
    """Draw a paraphrase of the first caption; return the kind of difference, and the text."""
    said, form = drawn.descriptions[0], drawn.form
    ways = {"frame": say(said, replace(form, frame=(form.frame + 1 + int(rng.integers(4))) % 5))}
    if any(colour is not None for _, colour in said.things):
        ways["colour_after"] = say(said, replace(form, colour_after=True))
    if said.background is not None:
        ways["place_first"] = say(said, replace(form, place_first=True))
    if len(said.things) == 2:
        ways["turned"] = say(said.turned(), form)
    way = choose(rng, tuple(ways))
    return way, ways[way]


def _paraphrased_choice(world: World, items: PairDistribution, index: int) -> list[_PlannedPicture]:
    drawn = items.draw(world, index)
    way, text = _paraphrase(drawn, world.stream(f"{COMPOSITIONAL}{items.stream}-paraphrase", index))
    true, false = drawn.captions
    tags = {**_tags(drawn), CATEGORY: way, "edit": drawn.category}
    return [
        _PlannedPicture(drawn.pictures[0], drawn.seed, said, label=label, tags=tags)
        for said, label in ((true, TRUE), (text, TRUE), (false, FALSE))
    ]


def _paraphrased(world: World, items: PairDistribution, index: int) -> list[_PlannedPicture]:
    drawn = items.draw(world, index)
    way, text = _paraphrase(drawn, world.stream(f"{COMPOSITIONAL}{items.stream}-paraphrase", index))
    true = drawn.captions[0]
    first = _PlannedPicture(drawn.pictures[0], drawn.seed, true, tags=_tags(drawn))
    return [first, replace(first, text=text, edit=Edit(way, true, text))]


@dataclass(frozen=True)
class CompositionalPart:
    """A part of the compositional data.

    Attributes:
        items: a function that returns the distribution of the part's pairs in a world.
        shots: a function that returns the members of the set with a given index.
        size: the setting of a world that holds the part's number of sets.
    """

    items: Callable[[World], PairDistribution]
    shots: Shots
    size: str

    def count(self, settings: WorldSettings) -> int:
        """Return the number of sets."""
        return int(getattr(settings, self.size))


PAIRS, TESTS = "compositional_pairs", "compositional_test_pairs"
TRAINING: Mapping[str, CompositionalPart] = MappingProxyType(
    {
        "train": CompositionalPart(_training, _first, PAIRS),
        "counterfactual": CompositionalPart(_training, _pair, PAIRS),
        "matched": CompositionalPart(_training, _matched, PAIRS),
        "unbiased": CompositionalPart(_unbiased_items, _first, PAIRS),
        "paraphrased": CompositionalPart(_training, _paraphrased, PAIRS),
        "single_counterfactual": CompositionalPart(_single_training, _pair, PAIRS),
    }
)
TEST: Mapping[str, CompositionalPart] = MappingProxyType(
    {
        "pairs": CompositionalPart(_plain, _pair, TESTS),
        "choice": CompositionalPart(_plain, _choice, TESTS),
        "paraphrases": CompositionalPart(_plain, _paraphrased_choice, TESTS),
        "biased_pairs": CompositionalPart(_biased, _pair, TESTS),
        "biased_choice": CompositionalPart(_biased, _choice, TESTS),
        "claims": CompositionalPart(_claims, _choice, TESTS),
        "single_pairs": CompositionalPart(_single, _pair, TESTS),
        "single_choice": CompositionalPart(_single, _choice, TESTS),
    }
)
PARTS: Mapping[str, CompositionalPart] = MappingProxyType({**TRAINING, **TEST})
NAMED = MappingProxyType({COMPOSITIONAL + part: one for part, one in PARTS.items()})
"""The parts by their names in the world."""


def make(part: str, world: World) -> Iterator[CounterfactualSet]:
    """Yield the sets of one of these parts, drawn on demand."""
    one = PARTS[part]
    items = one.items(world)
    for index in range(one.count(world.settings)):
        yield _assemble(world, part, index, one.shots(world, items, index))


MAKERS: Mapping[str, Callable[[World], Iterator[CounterfactualSet]]] = MappingProxyType(
    {COMPOSITIONAL + part: partial(make, part) for part in PARTS}
)
"""The functions that draw the parts, by the same names."""


# A text-only baseline: a bigram model of the training captions that compares two captions.
#
# It counts pairs of adjacent words (bigrams) in the captions of
# ``shapescapes_compositional:train``, so that it knows which shapes have which colours there. Its
# accuracy on a test shows how much training captions alone reveal. It has no weights and is
# independent of any training.

END = "."
"""The mark of the beginning and the end of a text."""


@dataclass(frozen=True)
class CaptionReader:
    """A bigram language model of a world's training captions (additive smoothing).

    Args:
        world: the world, with a seed, that the training captions are drawn from.
        added: the number above 0 that is added to each count.
    """

    world: WorldSettings
    added: float = 0.1

    @cached_property
    def _counts(self) -> tuple[Counter[tuple[str, str]], Counter[str]]:
        """Counts of pairs of words, and of first words of pairs."""
        part, world = PARTS["train"], World(self.world)
        items = part.items(world)
        followed: Counter[tuple[str, str]] = Counter()
        for index in range(part.count(self.world)):
            followed.update(_pairs(items.draw(world, index).captions[0]))
        words: Counter[str] = Counter()
        for (word, _), count in followed.items():
            words[word] += count
        return followed, words

    def log_likelihood(
        self, texts: Sequence[str], contexts: Sequence[str] | None = None
    ) -> NDArray[np.float64]:
        """Return the natural log of the probability of each text, its end included: float64 (n,).

        Args:
            contexts: ``None``; captions have no context.
        """
        assert contexts is None
        return np.array([self._score(text) for text in texts], np.float64)

    def _score(self, text: str) -> float:
        followed, words = self._counts
        choices = len(words_of_pictures()) + 1
        return sum(
            float(np.log((followed[pair] + self.added) / (words[pair[0]] + self.added * choices)))
            for pair in _pairs(text)
        )

    def perplexity(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return exp of the mean negative log-likelihood per word, the end included: (n,)."""
        lengths = np.array([len(text.split()) + 1 for text in texts])
        return np.asarray(np.exp(-self.log_likelihood(texts) / lengths), np.float64)

    def identity(self) -> str:
        """Return the identity of the captions and of the smoothing."""
        return f"bigrams of {self.world.content_hash()}, {self.added}"


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    return pairwise([END, *text.split(), END])
