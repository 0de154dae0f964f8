"""The shared code of the baselines; EDA, random deletion, and NegCLIP's swaps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import combinations
from typing import Annotated, Any, Literal, Protocol, get_args

import numpy as np
from annotated_types import MinLen

from cfaug.core.rng import generator
from cfaug.core.types import Edited, Example, Proposal
from cfaug.core.validation import Seed, Share, check_fields
from cfaug.data.captions import right_articles
from cfaug.editing.protocols import Tagger, propose_change
from cfaug.editing.sentence import Sentence, Slot, normalise, split
from cfaug.editing.word_lists import NLTK_STOP_WORDS
from cfaug.editing.wordnet import Synonyms

NO_WORDS = "no_words"
"""Reason of an unchanged text that has only punctuation."""
NO_CANDIDATE = "no_candidate"
"""Reason of an unchanged text to which no rule applies."""
TOO_LONG = "max_words"
"""Reason of an unchanged text that is longer than a caption."""
MOST_WORDS = 300
"""Largest number of words of a text to rewrite: every change searches the whole text, so that the
work grows with the square of its length. TextAttack has no limit; captions have about ten words."""


@dataclass(frozen=True)
class Rewriting:
    """A text after some changes.

    Attributes:
        changes: the changes in order, as JSON: ``operation``, ``before`` and ``after``.
    """

    words: Words
    changes: tuple[dict[str, Any], ...] = field(default_factory=tuple)

    def then(self, words: Words, operation: str, before: str, after: str) -> Rewriting:
        """Return the text after one more change."""
        change = {"operation": operation, "before": before, "after": after}
        return Rewriting(words, (*self.changes, change))

    @property
    def reason(self) -> str:
        """The reason why the text is unchanged; meaningless if it is changed."""
        if len(self.words.spans) > MOST_WORDS:
            return TOO_LONG
        return NO_CANDIDATE if self.words.spans else NO_WORDS


Step = Callable[[Rewriting], Rewriting | None]
"""A function that makes one more change to a text; it returns ``None`` if no change applies."""


def rewrite(words: Words, share: float, step: Step) -> Rewriting:
    """Change a text until enough of its words are changed, like TextAttack's augmenters.

    Args:
        share: the share of its words to change; at least one word. Every step counts as one word,
            or as the number of words changed by then if that is larger: an inserted word counts
            together with the word after it, exchanged words count as two.

    Returns:
        The changed text; a text of more than ``MOST_WORDS`` words is returned unchanged.
    """
    done, count = Rewriting(words), 0
    if len(words.spans) > MOST_WORDS:
        return done
    wanted = count_changes(share, len(words.spans))
    while count < wanted:
        further = step(done)
        if further is None:
            break
        done, count = further, max(len(further.words.modified), count + 1)
    return done


def pick(rng: np.random.Generator, count: int) -> int:
    """Return a uniformly random number from 0 to ``count - 1``."""
    return int(rng.integers(count))


def edit_examples(
    examples: Sequence[Example],
    kind: str,
    seed: int,
    change: Callable[[Words, np.random.Generator], Rewriting],
    *,
    keep_unchanged: bool,
) -> list[Edited]:
    """Return one proposal for the first text of each example, in order.

    Args:
        kind: the kind of the edits, which also keys their draws.
        seed: the seed of the draws, together with the example's key.
        keep_unchanged: whether an unchanged text still has a proposal; see ``propose_change``.
    """
    edited = []
    for example in examples:
        rng = generator(seed, kind, example.key)
        done = change(Words.read(normalise(example.text)), rng)
        edited.append(
            propose_change(
                example, done.words.text, kind,
                changes=done.changes, reason=done.reason, keep_unchanged=keep_unchanged,
            )
        )  # fmt: skip
    return edited


class FindsEdits(Protocol):
    """Finds the edits of one kind that a text allows, all equally likely."""

    def __call__(
        self, kind: Any, sentence: Sentence, tags: Sequence[str], /
    ) -> Iterable[tuple[str, dict[str, str]]]:
        """Return the new texts, each with its change as JSON."""
        ...


class ProposesEdit(Protocol):
    """Proposes an edit of one kind for an example."""

    def __call__(
        self,
        kind: Any,
        example: Example,
        sentence: Sentence,
        tags: Sequence[str],
        rng: np.random.Generator,
        /,
    ) -> Proposal | None:
        """Return the proposal; ``None`` if the kind does not apply."""
        ...


def propose_by_kind(
    examples: Sequence[Example],
    tagger: Tagger,
    method: str,
    seed: int,
    kinds: Sequence[Any],
    propose: ProposesEdit,
    *,
    only_one: bool,
) -> list[Edited]:
    """Return the proposals for the first text of each example, in order: at most one of each kind.

    Args:
        method: the name of the method, which keys the draws together with the seed.
        only_one: whether only one of the kinds that apply, all equally likely, gives a proposal.
    """
    sentences = [split(normalise(example.text)) for example in examples]
    tags = tagger.tag([sentence.words for sentence in sentences])
    edited = []
    for example, sentence, tagged in zip(examples, sentences, tags, strict=True):
        if len(sentence.words) > MOST_WORDS:
            edited.append(Edited((), {TOO_LONG: 0}))
            continue
        rng = generator(seed, method, example.key)
        proposed = {
            kind: proposal
            for kind in kinds
            if (proposal := propose(kind, example, sentence, tagged, rng)) is not None
        }
        chosen = list(proposed.values())
        if chosen and only_one:
            chosen = [chosen[pick(rng, len(chosen))]]
        edited.append(Edited(tuple(chosen), {kind: int(kind in proposed) for kind in kinds}))
    return edited


def edit_by_kind(
    examples: Sequence[Example],
    tagger: Tagger,
    method: str,
    seed: int,
    kinds: Sequence[Any],
    find: FindsEdits,
    *,
    only_one: bool,
) -> list[Edited]:
    """Return proposals as ``propose_by_kind`` does, of edits that depend on the text alone."""

    def propose(
        kind: Any,
        example: Example,
        sentence: Sentence,
        tags: Sequence[str],
        rng: np.random.Generator,
    ) -> Proposal | None:
        choices = list(find(kind, sentence, tags))
        if not choices:
            return None
        text, change = choices[pick(rng, len(choices))]
        made = propose_change(example, text, kind, changes=[change], reason=NO_CANDIDATE)
        return next(iter(made.proposals), None)

    return propose_by_kind(examples, tagger, method, seed, kinds, propose, only_one=only_one)


_RUN = re.compile(r"[\w'*@`˗×-]+")
"""Letters, digits and the signs that TextAttack 0.3.8 allows within a word."""
_NOT_FIRST = "'-_*@"
"""Signs that no word begins with; in version 0.3.8 a word may end with them."""


def word_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Return the characters (start, end) of every word; punctuation is not a word.

    >>> word_spans("'tis a dog's -")
    ((1, 4), (5, 6), (7, 12))
    """
    spans = []
    for match in _RUN.finditer(text):
        start = match.end() - len(match.group().lstrip(_NOT_FIRST))
        if start < match.end():
            spans.append((start, match.end()))
    return tuple(spans)


@dataclass(frozen=True)
class Words:
    """A text, the places of its words, and the changed ones among them.

    Attributes:
        spans: the characters (start, end) of every word.
        modified: the indices of the words that were changed or added: rules do not change them
            again, and are applied until there are enough.
    """

    text: str
    spans: tuple[tuple[int, int], ...]
    modified: frozenset[int] = frozenset()

    @classmethod
    def read(cls, text: str) -> Words:
        """Return a text with its words, all unchanged."""
        return cls(text, word_spans(text))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words."""
        return tuple(self.text[start:end] for start, end in self.spans)

    @property
    def unmodified(self) -> list[int]:
        """The numbers of the words that were not changed, in order."""
        return [i for i in range(len(self.spans)) if i not in self.modified]

    def replace(self, index: int, words: str) -> Words:
        """Replace one word by a text: another word, several words, or none.

        With a deleted word, the space before it is deleted, or after it for the first word. Later
        words that were changed stay marked as changed under their new indices.

        Args:
            words: the new text; empty deletes the word.

        >>> Words.read("a dog sits").replace(1, "big dog").modified
        frozenset({1, 2})
        """
        start, end = self.spans[index]
        before, after = self.text[:start], self.text[end:]
        new = len(word_spans(words))
        if new == 0 and after:
            if index == 0:
                after = after.removeprefix(" ")
            else:
                before = before.removesuffix(" ")
        shift = new - 1
        kept = {
            i if i < index else i + shift
            for i in self.modified
            if i != index or shift == 0
        }  # fmt: skip
        same = words == self.text[start:end]
        came = () if same else range(index, index + new)
        return Words(text := f"{before}{words}{after}", word_spans(text), frozenset((*kept, *came)))

    def insert(self, index: int, word: str) -> Words:
        """Insert a word before another; both then count as changed, as in TextAttack."""
        start, end = self.spans[index]
        return self.replace(index, f"{word} {self.text[start:end]}")


def count_changes(share: float, words: int) -> int:
    """Return the number of a text's words to change: a share of them, at least one.

    >>> count_changes(0.1, 9), count_changes(0.2, 15)
    (1, 3)
    """
    return max(int(share * words), 1)


# Easy data augmentation (Wei and Zou, 2019), as in TextAttack's ``EasyDataAugmenter``.

TRIES = 7
"""Largest number of words drawn for one place until one has synonyms (TextAttack)."""


@dataclass(frozen=True)
class EasyDataAugmentation:
    """Replaces words of a caption by synonyms, or deletes, swaps or inserts words.

    All four operations are tried, and all different resulting texts are equally likely.

    Args:
        share: the share of the words to change, rounded down, at least one word; 0.2 in XMAI
            (section 4.3), 0.1 in TextAttack. ``rewrite`` explains the count of changes.
        synonyms: the synonyms from WordNet. As in TextAttack, they have WordNet's form ("men":
            "man"), and stop words are protected only from replacement, "A" not at all.
        keep_unchanged: whether an unchanged text still has a proposal; see ``propose_change``.
    """

    share: Share = 0.2
    synonyms: Synonyms = field(default_factory=Synonyms)
    keep_unchanged: bool = True
    seed: Seed = 0
    """the seed of what is drawn"""

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor")

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return one proposal for the first text of each example, in order."""

        @cache
        def synonyms(word: str) -> list[str]:
            names = {name for sense in self.synonyms.senses(word) for name in sense} - {word}
            return sorted(n for n in names if "_" not in n and len(word_spans(n)) == 1)

        def change(words: Words, rng: np.random.Generator) -> Rewriting:
            if not words.spans:
                return Rewriting(words)
            done = (
                rewrite(words, self.share, lambda rewriting: _replace(rewriting, synonyms, rng)),
                delete_words(words, self.share, rng),
                rewrite(words, self.share, lambda rewriting: _swap(rewriting, rng)),
                rewrite(words, self.share, lambda rewriting: _insert(rewriting, synonyms, rng)),
            )
            texts = {rewriting.words.text: rewriting for rewriting in reversed(done)}
            return texts[sorted(texts)[pick(rng, len(texts))]]

        return edit_examples(examples, "eda", self.seed, change, keep_unchanged=self.keep_unchanged)

    def describe(self) -> dict[str, str]:
        return {"synonyms": "WordNet"}


SingleSynonyms = Callable[[str], Sequence[str]]
"""A function from a word to the single words among the names of all its senses, sorted."""


def _replace(
    done: Rewriting, synonyms: SingleSynonyms, rng: np.random.Generator
) -> Rewriting | None:
    """Replace a word by a synonym; all pairs of word and synonym are equally likely."""
    words = done.words
    pairs = [
        (i, name)
        for i in words.unmodified
        if words.words[i] not in NLTK_STOP_WORDS
        for name in synonyms(words.words[i])
    ]
    if not pairs:
        return None
    index, name = pairs[pick(rng, len(pairs))]
    return done.then(words.replace(index, name), "synonym", words.words[index], name)


def _swap(done: Rewriting, rng: np.random.Generator) -> Rewriting | None:
    """Exchange an unchanged word with any other word."""
    words, free = done.words, done.words.unmodified
    if not free or len(words.spans) < 2:
        return None
    index = free[pick(rng, len(free))]
    other = pick(rng, len(words.spans) - 1)
    other += other >= index
    first, second = words.words[index], words.words[other]
    swapped = words.replace(index, second).replace(other, first)
    return done.then(swapped, "swap", first, second)


def _insert(
    done: Rewriting, synonyms: SingleSynonyms, rng: np.random.Generator
) -> Rewriting | None:
    """Insert a synonym of a random word at a random place, unless a place finds no synonym.

    Every place draws its synonym before one of them is chosen: if one place finds none in seven
    draws, no word is inserted.
    """
    words, free = done.words, done.words.unmodified
    if not free:
        return None
    drawn = []
    for _ in free:
        for _ in range(TRIES):
            word = words.words[pick(rng, len(words.spans))]
            if names := [name for name in synonyms(word) if name.isalpha()]:
                drawn.append(names[pick(rng, len(names))])
                break
        else:
            return done
    index = pick(rng, len(free))
    return done.then(words.insert(free[index], drawn[index]), "insertion", "", drawn[index])


DELETION = "deletion"


@dataclass(frozen=True)
class RandomDeletion:
    """Deletes random words of a caption, all equally likely, stop words included.

    Args:
        share: the share of the words to delete, rounded down, at least one word; 0.1 in XMAI
            (section 4.3 and its notebook). A caption of one word stays unchanged.
        keep_unchanged: whether an unchanged text still has a proposal; see ``propose_change``.
    """

    share: Share = 0.1
    keep_unchanged: bool = True
    seed: Seed = 0
    """the seed of what is drawn"""

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor")

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return one proposal for the first text of each example, in order."""

        def change(words: Words, rng: np.random.Generator) -> Rewriting:
            return delete_words(words, self.share, rng)

        return edit_examples(
            examples, DELETION, self.seed, change, keep_unchanged=self.keep_unchanged
        )

    def describe(self) -> dict[str, str]:
        return {}


def delete_words(words: Words, share: float, rng: np.random.Generator) -> Rewriting:
    """Delete a share of the words, one after another; the last remaining word stays."""

    def step(done: Rewriting) -> Rewriting | None:
        if len(done.words.spans) <= 1:
            return None
        index = pick(rng, len(done.words.spans))
        return done.then(done.words.replace(index, ""), DELETION, done.words.words[index], "")

    return rewrite(words, share, step)


# NegCLIP's negative captions: two elements of one kind exchange places.
#
# The method is that of Yuksekgonul et al., 2023, section 4.1, and of the authors' script (linked
# from issue 13 of ``mertyg/vision-language-models-are-bows``). The elements are noun phrases of
# more than two words, verb phrases, nouns, plural nouns, adverbs and adjectives. The script finds
# them with spaCy, this module by the words' tags.

Kind = Literal["noun_phrase", "verb_phrase", "noun", "plural_noun", "adverb", "adjective"]
"""The kinds of elements that exchange places, in the order of the authors' script."""

LONG_PHRASE = 3
"""Number of words of the shortest noun phrase that is exchanged (the script's ``> 2``)."""


@dataclass(frozen=True)
class NegclipSwaps:
    """Exchanges two elements of a caption, so that the same words have another meaning.

    All pairs of a kind that change the text are equally likely. The script draws a pair first and
    abandons the kind if that pair changes nothing; it exchanges every occurrence, and writes
    phrases in lower case.

    Args:
        kinds: the kinds to exchange; a caption without two elements of any kind gives no set.
        per: ``caption`` makes one set of a caption, by an equally likely kind, as NegCLIP's
            training draws one of its negatives; ``kind`` makes one set for every applicable kind.
        repair_article: whether "a" becomes "an" where the new word needs it. It does not in the
            script, which reveals the edit to models that see only texts.
    """

    tagger: Tagger
    """the tagger of parts of speech"""
    kinds: Annotated[Sequence[Kind], MinLen(1)] = get_args(Kind)
    per: Literal["caption", "kind"] = "caption"
    repair_article: bool = False
    seed: Seed = 0
    """the seed of what is drawn"""

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor")

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        return edit_by_kind(
            examples, self.tagger, "negclip_swaps", self.seed, self.kinds, self._swap,
            only_one=self.per == "caption",
        )  # fmt: skip

    def describe(self) -> dict[str, str]:
        return self.tagger.describe()

    def _swap(
        self, kind: Kind, sentence: Sentence, tags: Sequence[str]
    ) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield the texts with two elements of a kind exchanged, and the elements."""
        for slots in combinations(FINDERS[kind](sentence, tags), 2):
            text = exchange(sentence, *slots)
            text = right_articles(text) if self.repair_article else text
            if _letters(text) != _letters(sentence.text):
                spans = [slice(*slot.span(sentence)) for slot in slots]
                before, after = (sentence.text[span] for span in spans)
                yield text, {"operation": f"swap {kind}", "before": before, "after": after}


def exchange(sentence: Sentence, first: Slot, second: Slot) -> str:
    """Return a text in which two slots have exchanged their words.

    The new first word gets the capital of the old one, if that was the only capital of its word.

    Args:
        second: the slot after ``first``, without common words.

    >>> exchange(split("A dog near the cat."), Slot(0, 1), Slot(3, 4))
    'The cat near a dog.'
    """
    (a, b), (c, d) = first.span(sentence), second.span(sentence)
    text = sentence.text
    came, went = text[c:d], text[a:b]
    if a == 0 and went[:1].isupper() and not came[:1].isupper():
        # A word in capitals, such as TV, keeps them; the article "A" does not.
        word = went.split()[0]
        proper = len(word) > 1 and not word[1:].islower()
        came, went = came[:1].upper() + came[1:], went if proper else went[:1].lower() + went[1:]
    return f"{text[:a]}{came}{text[b:c]}{went}{text[d:]}"


def _letters(text: str) -> str:
    """Return a text without case, full stops and commas: an exchange has to change the rest."""
    return " ".join(re.sub(r"[.,]", "", text).lower().split())


def _tagged(prefixes: tuple[str, ...]) -> Callable[[Sentence, Sequence[str]], Iterator[Slot]]:

    def find(sentence: Sentence, tags: Sequence[str]) -> Iterator[Slot]:
        for i, (word, tag) in enumerate(zip(sentence.words, tags, strict=True)):
            if word[0].isalpha() and tag in prefixes:
                yield Slot(i, i)

    return find


def _noun_phrases(sentence: Sentence, tags: Sequence[str]) -> Iterator[Slot]:
    """Find noun phrases of more than two words: determiner, adjectives and numbers, nouns."""
    inside = ("JJ", "CD", "NN", "POS", "VBN")
    first, last = None, None
    for i, tag in enumerate([*tags, ""]):
        begins = tag in ("DT", "PRP$", "PDT")
        if first is not None and not begins and tag.startswith(inside):
            last = i if tag.startswith("NN") else last
            continue
        if first is not None and last is not None and last - first + 1 >= LONG_PHRASE:
            yield Slot(first, last)
        first, last = (i if begins or tag.startswith(inside) else None), None
        if tag.startswith("NN"):
            last = i


def _verb_phrases(sentence: Sentence, tags: Sequence[str]) -> Iterator[Slot]:
    """Find verb phrases: one or more verbs with the adverbs between them."""
    first, last = None, None
    for i, tag in enumerate([*tags, ""]):
        if tag.startswith("VB") and sentence.words[i][0].isalpha():
            first, last = (i if first is None else first), i
        elif not (tag.startswith(("RB", "MD")) and first is not None):
            if first is not None and last is not None:
                yield Slot(first, last)
            first, last = None, None


FINDERS: Mapping[str, Callable[[Sentence, Sequence[str]], Iterator[Slot]]] = {
    "noun_phrase": _noun_phrases,
    "verb_phrase": _verb_phrases,
    "noun": _tagged(("NN",)),
    "plural_noun": _tagged(("NNS",)),
    "adverb": _tagged(("RB", "RBR", "RBS")),
    "adjective": _tagged(("JJ", "JJR", "JJS")),
}
"""Finders of each kind's elements, which do not overlap and are in order."""
