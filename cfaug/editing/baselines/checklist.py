"""CheckList's meaning-preserving edits (Ribeiro et al., 2020), as in TextAttack.

They alter numbers, replace places and names, and expand or make contractions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import groupby, pairwise

import numpy as np

from cfaug.core.types import Edited, Example
from cfaug.core.validation import Positive, Seed, Share, check_fields
from cfaug.editing.baselines.editor import Rewriting, Words, edit_examples, pick, rewrite
from cfaug.editing.word_lists import WordLists

UNALTERED = (0, 2, 4)
"""Numbers that TextAttack does not change, because they may stand for "to" and "for"."""
LARGEST = 10**12
"""Largest number to change: longer strings of digits are not counts."""
DIGITS = 100
"""Largest number of digits to parse: Python refuses thousands of digits."""
PLACES = ("countries", "cities")
"""The lists of places; a place is replaced by another from its list.

TextAttack has nationalities, too, but its model for places does not recognise them.
"""
BEFORE_PLACES = ("in", "from", "to")
"""Words after which a lower-case word can be a place."""
Variant = tuple[str, str, str, Words]
"""The operation, the words before and after it, and the new text."""


@dataclass(frozen=True)
class CheckListEdits:
    """Alters numbers, places, names and contractions of a caption, if it has any.

    TextAttack finds places and names with a model of flair. Here capital letters and word lists
    replace it, so that words outside the lists are not found, and lower-case ones rarely.

    Args:
        share: the share of the words to change, rounded down, at least one word; 0.1 in XMAI
            (section 4.3: the default). All texts that the rules give are equally likely.
        replacements: the number of replacements drawn for each number, place and name.
        keep_unchanged: whether an unchanged text still has a proposal; see ``propose_change``. 92 %
            of MS-COCO's captions stay unchanged.
    """

    share: Share = 0.1
    replacements: Positive = 3
    lists: WordLists = field(default_factory=WordLists)
    """the words that replace others"""
    keep_unchanged: bool = True
    seed: Seed = 0
    """the seed of what is drawn"""

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor")

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return one proposal for the first text of each example, in order."""

        def change(words: Words, rng: np.random.Generator) -> Rewriting:
            return rewrite(words, self.share, partial(self._step, rng=rng))

        return edit_examples(
            examples, "checklist", self.seed, change, keep_unchanged=self.keep_unchanged
        )

    def describe(self) -> dict[str, str]:
        return {"checklist": self.lists.describe()}

    def _step(self, done: Rewriting, rng: np.random.Generator) -> Rewriting | None:
        """Return the text after one more change; all different texts are equally likely."""
        variants: dict[str, Variant] = {}
        for variant in self._variants(done.words, rng):
            variants.setdefault(variant[-1].text, variant)
        if not variants:
            return None
        operation, before, after, words = list(variants.values())[pick(rng, len(variants))]
        return done.then(words, operation, before, after)

    def _variants(self, words: Words, rng: np.random.Generator) -> Iterator[Variant]:
        # Another number, up to twice the old one plus one.
        for run in _number_runs(words):
            spelling = [words.words[i] for i in run]
            digits = spelling[0].isdecimal()
            if digits and len(spelling[0]) > DIGITS:
                continue
            number = int(spelling[0]) if digits else read_number(spelling)
            if number is None or number in UNALTERED or number > LARGEST:
                continue
            for new in rng.integers(1, 2 * number + 1, self.replacements).tolist():
                before, after = " ".join(spelling), str(new) if digits else spell_number(new)
                if digits or after != before:  # the same number may be drawn
                    yield "number", before, after, _replace_run(words, run, after)

        # Another country or city.
        for i in words.unmodified:
            before = words.words[i]
            behind = i > 0 and words.words[i - 1] in BEFORE_PLACES
            place = before.capitalize() if behind else before
            # A capitalised neighbour makes it part of a name: "Paris Hilton", "West London".
            beside = [words.words[k] for k in (i - 1, i + 1) if 0 < k < len(words.words)]
            for name in PLACES:
                if place in self._known[name] and not any(map(_is_capitalised, beside)):
                    for after in self._draw(name, rng):
                        if after != before:
                            yield "location", before, after, words.replace(i, after)
                    break

        # Another first name, or another last name after a first name.
        for i in words.unmodified:
            before = words.words[i]
            behind = i > 0 and words.words[i - 1] in self._known["first_names"]
            if behind and (before in self._known["last_names"] or _is_capitalised(before)):
                name = "last_names"
            elif before in self._known["first_names"]:
                name = "first_names"
            else:
                continue
            for after in self._draw(name, rng):
                yield "name", before, after, words.replace(i, after)

        # A contraction expanded, or two words contracted.
        expansions, contractions = self._expansions
        for i in words.unmodified:
            before = words.words[i]
            if before in expansions:
                yield "extension", before, expansions[before], words.replace(i, expansions[before])
        for i, following in pairwise(words.unmodified):
            before = f"{words.words[i]} {words.words[following]}"
            if following == i + 1 and before in contractions:
                after = contractions[before]
                yield "contraction", before, after, _replace_run(words, [i, following], after)

    def _draw(self, name: str, rng: np.random.Generator) -> list[str]:
        lines = self._lines[name]
        return [lines[pick(rng, len(lines))] for _ in range(self.replacements)]

    @cached_property
    def _lines(self) -> dict[str, list[str]]:
        return {name: self.lists.lines(name) for name in (*PLACES, "first_names", "last_names")}

    @cached_property
    def _known(self) -> dict[str, frozenset[str]]:
        return {name: frozenset(lines) for name, lines in self._lines.items()}

    @cached_property
    def _expansions(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the whole words of each contraction, and the contraction of whole words."""
        halves = (line.partition(":") for line in self.lists.lines("contractions"))
        expansions = {short.strip(): whole.strip() for short, _, whole in halves}
        return expansions, {whole: short for short, whole in expansions.items()}


def _number_runs(words: Words) -> list[list[int]]:
    """Return the word indices of each number: a run of words, or one word of digits.

    A word that contains the letters of a number is part of an adjacent number, as in TextAttack:
    "three standing" is one number, and becomes "five".
    """
    spelt: list[int] = []
    digits: list[list[int]] = []
    for i in words.unmodified:
        word = words.words[i].lower()
        if word.isdecimal():
            digits.append([i])
        elif word in ("point", "and"):
            spelt += [i] if i - 1 in spelt else []
        elif any(number in word for number in (*NUMBER_WORDS, "point", "and")):
            spelt.append(i)
    runs = groupby(enumerate(spelt), key=lambda pair: pair[1] - pair[0])
    return digits + [[i for _, i in run] for _, run in runs]


def _replace_run(words: Words, run: Sequence[int], after: str) -> Words:
    for i in reversed(run[1:]):
        words = words.replace(i, "")
    return words.replace(run[0], after)


def _is_capitalised(word: str) -> bool:
    return word[0].isupper() and word[1:].islower()


# Numbers in words, read and spelt as by TextAttack's libraries.
#
# They are spelt as by num2words, and read as by word2number if they are well formed.

ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
POWERS = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_VALUES = {word: value for value, word in enumerate(ONES)} | {
    word: 10 * value for value, word in enumerate(TENS, 2)
}
NUMBER_WORDS = (*_VALUES, *POWERS)


def read_number(words: Iterable[str]) -> int | None:
    """Return the number that words spell, ignoring other words; ``None`` without a number.

    Everything after "point" is left out.

    >>> read_number(["three"]), read_number(["one", "Hundred", "and", "twenty-one"])
    (3, 121)
    """
    total = group = 0
    seen = False
    for word in (part for token in words for part in token.lower().split("-")):
        if word == "point":
            break
        if word in _VALUES:
            group += _VALUES[word]
        elif word == "hundred":
            group = max(group, 1) * 100
        elif word in POWERS:
            total, group = total + max(group, 1) * POWERS[word], 0
        else:
            continue
        seen = True
    return total + group if seen else None


def spell_number(number: int) -> str:
    """Return a whole number from 0 in words.

    >>> spell_number(21), spell_number(105), spell_number(2001)
    ('twenty-one', 'one hundred and five', 'two thousand and one')
    >>> spell_number(1205)
    'one thousand, two hundred and five'
    """
    if number < 20:
        return ONES[number]
    if number < 100:
        ten, unit = divmod(number, 10)
        return TENS[ten - 2] + (f"-{ONES[unit]}" if unit else "")
    name, power = max((p for p in POWERS.items() if p[1] <= number), key=lambda pair: pair[1])
    many, rest = divmod(number, power)
    text = f"{spell_number(many)} {name}"
    if not rest:
        return text
    return f"{text} and {spell_number(rest)}" if rest < 100 else f"{text}, {spell_number(rest)}"
