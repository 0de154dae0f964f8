"""Compositional parts of a world: ``shapescapes_compositional:PART``.

Tests have two forms: a *pair* has two captions and a picture of each, a *choice* has one picture
and two captions, the first of which is true. Both forms of a test have the same items: "choice"
shows the first picture of each of "pairs". In "pairs", "choice" and "paraphrases" either of the two
comes first with probability one half, and colours are uniform: a text alone does not reveal which
one is true. In "biased_pairs" and "biased_choice" the first caption has only home colours, like
most of the world's training captions, unlike the second. In "claims", which is only a choice, the
second caption makes a false additional claim about the first picture; "claims_images" asks which
of the two pictures that caption is true of. "single_pairs" and
"single_choice" show a single thing. "paraphrases" adds a paraphrase of the first caption, which is
also true. "negation" is a choice between "and no star" and "and a star": one thing of two is named,
then another that is there ("present": the negation is false) or not ("absent": it is true), and in
"which" both captions have a negation ("a ball and no star", "a star and no ball").

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
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cfaug.core.rng import derive
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.captions import right_articles
from cfaug.worlds.shapescapes.compositional_edits import (
    CLAIMS,
    EDITS,
    SINGLE,
    DescriptionForm,
    Pair,
    Picture,
    PictureDescription,
    PictureDistribution,
    say,
    words_of_pictures,
)
from cfaug.worlds.shapescapes.settings import COMPOSITIONAL, FRAMES, WorldSettings
from cfaug.worlds.shapescapes.world import SHAPES, World, pick

CATEGORY, SET, NAME = "category", "set", "shapescapes"
TRUE, FALSE = "true", "false"
BIASED = ("replace_subject", "replace_colour", "swap_subject", "swap_colour", "add_subject")
"""The categories of edits that take a thing out of its home colour."""


@dataclass(frozen=True)
class Drawn:
    """A pair with its captions and further details for a part.

    Attributes:
        stream: the name of its distribution's random streams.
        edit: the edit from the first picture to the second.
    """

    stream: str
    category: str
    pictures: tuple[Picture, ...]
    descriptions: tuple[PictureDescription, ...]
    form: DescriptionForm
    edit: Edit
    seed: int

    @property
    def captions(self) -> tuple[str, str]:
        """The captions of both pictures."""
        first, second = (say(description, self.form) for description in self.descriptions)
        return first, second


@dataclass(frozen=True)
class PairDistribution:
    """The distribution of a part's pairs.

    Attributes:
        stream: the name of the random streams; parts with equal streams and laws have the same
            pairs.
        edits: the edits by category, taken in turn.
        bias: the probability of home colours; ``None`` draws colours uniformly, and ``world`` has
            the world's bias if its shortcut is the colour.
        keep_home: whether an edit may leave every thing in its home colour.
        turn: whether either of the two pictures may come first.
        drops: whether captions leave out as much as training captions do.
    """

    stream: str
    edits: Mapping[str, Callable[..., Pair]]
    bias: float | Literal["world"] | None = None
    keep_home: bool = True
    turn: bool = False
    drops: bool = False

    def draw(self, world: World, index: int) -> Drawn:
        """Draw pair ``index``."""
        rng, settings = world.stream(COMPOSITIONAL + self.stream, index), world.settings
        category = tuple(self.edits)[index % len(self.edits)]
        bias = self.bias
        if bias == "world":
            bias = settings.bias if "colour" in settings.bound else None
        pair = self.edits[category](rng, PictureDistribution(world, bias, self.keep_home))
        dropped = {
            "drop_colour": settings.drop_colour, "drop_background": settings.drop_background,
        } if self.drops else {}  # fmt: skip
        descriptions = pair.describe(rng, **dropped)
        form = DescriptionForm(int(rng.integers(len(FRAMES))))
        order = -1 if self.turn and rng.random() < 0.5 else 1
        pictures = tuple(side.picture for side in pair.sides)[::order]
        edit = Edit(category, *pair.words[::order])
        seed = _seed(world, self.stream, index)
        return Drawn(self.stream, category, pictures, descriptions[::order], form, edit, seed)


def _seed(world: World, stream: str, index: int, *more: int) -> int:
    return derive(world.settings.known_seed(), "shapescapes", COMPOSITIONAL + stream, index, *more)


@dataclass(frozen=True)
class _Shot:
    """A planned member: a picture and its seed, its caption, and details."""

    picture: Picture
    seed: int
    text: str
    edit: Edit | None = None
    label: str | None = None
    tags: Mapping[str, Any] = field(default_factory=dict)


def _tags(drawn: Drawn) -> dict[str, Any]:
    return {CATEGORY: drawn.category, "objects": len(drawn.pictures[0].things)}


def _first(world: World, drawn: Drawn, index: int) -> list[_Shot]:
    return _pair(world, drawn, index)[:1]


def _pair(world: World, drawn: Drawn, index: int) -> list[_Shot]:
    edits = (None, drawn.edit)
    return [
        _Shot(picture, drawn.seed, text, edit, tags=_tags(drawn))
        for picture, text, edit in zip(drawn.pictures, drawn.captions, edits, strict=True)
    ]


def _matched(world: World, drawn: Drawn, index: int) -> list[_Shot]:
    """Return the pair in two independent scenes, not connected by an edit."""
    return [
        replace(shot, seed=_seed(world, "matched", index, n), edit=None)
        for n, shot in enumerate(_pair(world, drawn, index))
    ]


def _choice(world: World, drawn: Drawn, index: int) -> list[_Shot]:
    return [
        _Shot(drawn.pictures[0], drawn.seed, text, label=label, tags=_tags(drawn))
        for text, label in zip(drawn.captions, (TRUE, FALSE), strict=True)
    ]


def _image_choice(world: World, drawn: Drawn, index: int) -> list[_Shot]:
    """Return the second caption with its own picture, and with that of which it is false."""
    first, second = _pair(world, drawn, index)
    return [
        replace(shot, text=second.text, edit=None, label=label)
        for shot, label in ((second, TRUE), (first, FALSE))
    ]


def _paraphrase(world: World, drawn: Drawn, index: int) -> tuple[str, str]:
    """Return a paraphrase of a pair's first caption: the kind of its difference, and its text."""
    rng = world.stream(f"{COMPOSITIONAL}{drawn.stream}-paraphrase", index)
    description, form = drawn.descriptions[0], drawn.form
    ways = {
        "frame": say(description, replace(form, frame=(form.frame + 1 + int(rng.integers(4))) % 5))
    }
    if any(colour is not None for _, colour in description.things):
        ways["colour_after"] = say(description, replace(form, colour_after=True))
    if description.background is not None:
        ways["place_first"] = say(description, replace(form, place_first=True))
    if len(description.things) == 2:
        ways["turned"] = say(description.turned(), form)
    way = pick(rng, tuple(ways))
    return way, ways[way]


def _paraphrased_choice(world: World, drawn: Drawn, index: int) -> list[_Shot]:
    way, text = _paraphrase(world, drawn, index)
    true, false = drawn.captions
    tags = {**_tags(drawn), CATEGORY: way, "edit": drawn.category}
    return [
        _Shot(drawn.pictures[0], drawn.seed, caption, label=label, tags=tags)
        for caption, label in ((true, TRUE), (text, TRUE), (false, FALSE))
    ]


def _paraphrased(world: World, drawn: Drawn, index: int) -> list[_Shot]:
    way, text = _paraphrase(world, drawn, index)
    true = drawn.captions[0]
    first = _Shot(drawn.pictures[0], drawn.seed, true, tags=_tags(drawn))
    return [first, replace(first, text=text, edit=Edit(way, true, text))]


NEGATIONS = ("absent", "present", "which")
"""The categories of "negation", in turn."""


def _negation(world: World, drawn: Drawn, index: int) -> list[_Shot]:
    """Return a picture of two things with a true and a false caption; one of them is not named."""
    rng = world.stream(f"{COMPOSITIONAL}{drawn.stream}-negation", index)
    picture, description, form = drawn.pictures[0], drawn.descriptions[0], drawn.form
    things = list(description.things)
    (named, colour), (other, _) = things if rng.random() < 0.5 else things[::-1]
    absent = pick(rng, [shape for shape in SHAPES if shape not in (named, other)])
    category = NEGATIONS[index % len(NEGATIONS)]

    def caption(shape: str, colour: str | None, end: str) -> str:
        single = replace(description, things=((shape, colour),), relation=None)
        return right_articles(f"{say(single, form)} and {end}")

    if category == "which":
        true, false = caption(named, None, f"no {absent}"), caption(absent, None, f"no {named}")
    elif category == "absent":
        true, false = (caption(named, colour, f"{word} {absent}") for word in ("no", "a"))
    else:
        true, false = (caption(named, colour, f"{word} {other}") for word in ("a", "no"))
    tags = {**_tags(drawn), CATEGORY: category}
    return [
        _Shot(picture, drawn.seed, text, label=label, tags=tags)
        for text, label in ((true, TRUE), (false, FALSE))
    ]


@dataclass(frozen=True)
class CompositionalPart:
    """A part of the compositional data.

    Attributes:
        shots: a function that returns the members of a set from its pair and its index.
        size: the setting of a world that holds the part's number of sets.
    """

    items: PairDistribution
    shots: Callable[[World, Drawn, int], list[_Shot]]
    size: str


# The edits of training pairs are in equal shares.
_TRAIN = PairDistribution(
    "train",
    {**EDITS, **{f"single_{name}": edit for name, edit in SINGLE.items()}},
    "world",
    drops=True,
)
_PLAIN = PairDistribution("test", EDITS, turn=True)
_BIASED = PairDistribution("biased", {name: EDITS[name] for name in BIASED}, 1.0, keep_home=False)
_SINGLE = PairDistribution("single", SINGLE, turn=True)
_SUBJECTS = {"replace_subject": SINGLE["replace_subject"]}
_CLAIMS = PairDistribution("claims", CLAIMS, 1.0, keep_home=False)
_NEGATION = PairDistribution("negation", {"replace_subject": EDITS["replace_subject"]}, turn=True)
PAIRS, TESTS = "compositional_pairs", "compositional_test_pairs"
TRAINING: Mapping[str, CompositionalPart] = {
    "train": CompositionalPart(_TRAIN, _first, PAIRS),
    "counterfactual": CompositionalPart(_TRAIN, _pair, PAIRS),
    "matched": CompositionalPart(_TRAIN, _matched, PAIRS),
    "unbiased": CompositionalPart(replace(_TRAIN, stream="unbiased", bias=None), _first, PAIRS),
    "paraphrased": CompositionalPart(_TRAIN, _paraphrased, PAIRS),
    "single_counterfactual": CompositionalPart(
        replace(_TRAIN, stream="single_train", edits=_SUBJECTS), _pair, PAIRS
    ),
}
TEST: Mapping[str, CompositionalPart] = {
    "pairs": CompositionalPart(_PLAIN, _pair, TESTS),
    "choice": CompositionalPart(_PLAIN, _choice, TESTS),
    "paraphrases": CompositionalPart(_PLAIN, _paraphrased_choice, TESTS),
    "biased_pairs": CompositionalPart(_BIASED, _pair, TESTS),
    "biased_choice": CompositionalPart(_BIASED, _choice, TESTS),
    "claims": CompositionalPart(_CLAIMS, _choice, TESTS),
    "claims_images": CompositionalPart(_CLAIMS, _image_choice, TESTS),
    "single_pairs": CompositionalPart(_SINGLE, _pair, TESTS),
    "single_choice": CompositionalPart(_SINGLE, _choice, TESTS),
    "negation": CompositionalPart(_NEGATION, _negation, TESTS),
}
PARTS: Mapping[str, CompositionalPart] = {**TRAINING, **TEST}


def count(part: str, world: World) -> int:
    """Return the number of sets of one of these parts."""
    return int(getattr(world.settings, PARTS[part].size))


def make(part: str, world: World, count: int) -> Iterator[CounterfactualSet]:
    """Yield the first sets of one of these parts, drawn on demand.

    Equal pictures with equal seeds share the image.
    """
    name = COMPOSITIONAL + part
    provenance = {"world": world.settings.content_hash(), "part": name}
    for index in range(count):
        key = f"{name.replace('_', '-')}-{index:06d}"
        shots = PARTS[part].shots(world, PARTS[part].items.draw(world, index), index)
        seen = list(dict.fromkeys((shot.picture, shot.seed) for shot in shots))
        members = tuple(
            Member(
                text=shot.text,
                image_name=str(seen.index((shot.picture, shot.seed))),
                source_id=f"{key}-{i}",
                edit=shot.edit,
                label=shot.label,
                extra={**shot.tags, SET: NAME, **shot.picture.shown(shot.seed).record()},
            )
            for i, shot in enumerate(shots)
        )
        images = {
            str(i): picture.draw(seed, world.settings) for i, (picture, seed) in enumerate(seen)
        }
        yield CounterfactualSet(key, key, members, images, provenance=provenance)


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
        world, followed = World(self.world), Counter[tuple[str, str]]()
        for index in range(count("train", world)):
            followed.update(_word_pairs(_TRAIN.draw(world, index).captions[0]))
        words: Counter[str] = Counter()
        for (word, _), times in followed.items():
            words[word] += times
        return followed, words

    def log_likelihood(
        self, texts: Sequence[str], contexts: Sequence[str] | None = None
    ) -> NDArray[np.float64]:
        """Return the natural log of each text's probability, its end included: float64 (n,)."""
        assert contexts is None
        followed, words = self._counts
        unseen = self.added * (len(words_of_pictures()) + 1)

        def score(pair: tuple[str, str]) -> float:
            return float(np.log((followed[pair] + self.added) / (words[pair[0]] + unseen)))

        return np.array([sum(map(score, _word_pairs(text))) for text in texts], np.float64)

    def perplexity(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return exp of the mean negative log-likelihood per word, the end included: (n,)."""
        lengths = np.array([len(text.split()) + 1 for text in texts])
        return np.asarray(np.exp(-self.log_likelihood(texts) / lengths), np.float64)

    def identity(self) -> str:
        return f"bigrams of {self.world.content_hash()}, {self.added}"


def _word_pairs(text: str) -> Iterator[tuple[str, str]]:
    return pairwise([END, *text.split(), END])
