"""Words of captions: their differences, and the indefinite article."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher

# The word-by-word difference of two captions, shared by readers, editors and tables.
#
# A word keeps its hyphens, apostrophes and decimal points ("T-shirt", "man's", "2.5"); every other
# punctuation mark is a word of its own. Case and white space never make a difference. (A
# part-of-speech tagger splits words as it was trained to: ``cfaug.editing.sentence``.)

Span = tuple[int, int]
WORD = re.compile(r"\d+(?:[.,:]\d+)+|\w+(?:['’-]\w+)*|[^\w\s]")
ARTICLES = ("a", "an", "the")
POSSESSIVE = re.compile(r"(?<=\w)['’]s$")


@dataclass(frozen=True, slots=True)
class Change:
    """One run of words that is replaced by another run.

    Attributes:
        before: the characters (start, end) of the replaced words; empty for an insertion, at the
            start of the word that follows.
        after: the characters of the new words in the other caption; empty for a deletion.
    """

    before: Span
    after: Span


def word_spans(text: str) -> list[Span]:
    """Return the characters (start, end) of every word and punctuation mark.

    >>> word_spans("a dog's T-shirt.")
    [(0, 1), (2, 7), (8, 15), (15, 16)]
    """
    return [match.span() for match in WORD.finditer(text)]


def caption_changes(before: str, after: str) -> list[Change]:
    """Return the replacements that turn one caption into the other, each run by itself.

    The words that both captions begin and end with are equal; between them ``difflib`` looks for
    the longest runs of words that both have. Exchanging the captions exchanges the sides of every
    change.

    >>> for change in caption_changes("a red cat on a mat", "a blue cat on a small mat"):
    ...     print(change)
    Change(before=(2, 5), after=(2, 6))
    Change(before=(15, 15), after=(16, 21))
    """
    old, new = _words(before), _words(after)
    a, b = [word for word, _ in old], [word for word, _ in new]
    head, tail = _common_ends(a, b)
    a, b = a[head : len(a) - tail], b[head : len(b) - tail]
    # difflib's result depends on the order of its arguments, so it is fixed here.
    exchanged = a > b
    first, second = (b, a) if exchanged else (a, b)
    changes = []
    for kind, *places in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        i, j, k, m = (head + offset for offset in places)
        if exchanged:
            i, j, k, m = k, m, i, j
        changes.append(Change(_characters(before, old, i, j), _characters(after, new, k, m)))
    return changes


def replaced_run(before: str, after: str) -> tuple[str, str]:
    """Return the single run of words by which two captions differ, and its replacement.

    If there are several changes, the run reaches from the first to the last.

    >>> replaced_run("A cat on the mat.", "A dog on the mat.")
    ('cat', 'dog')
    >>> replaced_run("a fire hydrant", "a hydrant")
    ('fire', '')
    """
    old, new = _words(before), _words(after)
    head, tail = _common_ends([word for word, _ in old], [word for word, _ in new])
    (i, j), (k, m) = (
        _characters(text, words, head, len(words) - tail)
        for text, words in ((before, old), (after, new))
    )
    return before[i:j], after[k:m]


def longest_change(before: str, after: str) -> tuple[str, str]:
    """Return the longest run of removed words and the longest run of added words.

    They are in lower case without final full stops, as in LANCE's released code, and empty for a
    pure insertion or deletion. An article ("a", "an") at the start of both runs is left out. If
    runs have equal length, the first is returned.

    >>> longest_change("A man walking a dog.", "A man walking an old dog in the snow")
    ('', 'in the snow')
    >>> longest_change("a ball on the beach", "an orange ball on the beach")
    ('', 'orange')
    >>> longest_change("A ball", "A sketch of a ball")
    ('', 'a sketch of')
    """
    went, came = list[str](), list[str]()
    for change in caption_changes(before, after):
        removed = _begin_with_article(before, change.before)
        added = _begin_with_article(after, change.after)
        if removed and added and {removed[0], added[0]} <= {"a", "an"}:
            removed, added = removed[1:], added[1:]
        went, came = max(went, removed, key=len), max(came, added, key=len)
    return " ".join(went), " ".join(came)


def _begin_with_article(text: str, span: Span) -> list[str]:
    """Return a run's words, "a sketch of" rather than "sketch of a" for the same change."""
    words = _run(text, span)
    standing = _run(text, (0, span[0]))
    if len(words) > 1 and standing and words[-1] == standing[-1] and words[-1] in ARTICLES:
        return [words[-1], *words[:-1]]
    return words


def _run(text: str, span: Span) -> list[str]:
    """Return the words of a run in lower case, without punctuation at its ends."""
    words = [match.group().lower() for match in WORD.finditer(text[slice(*span)])]
    while words and not re.match(r"\w", words[-1]):
        words.pop()
    while words and not re.match(r"\w", words[0]):
        words.pop(0)
    return words


def altered_subjects(before: str, after: str) -> tuple[str, str]:
    """Return the words that were altered on either side, in lower case: an edit's subjects.

    Punctuation is not part of a subject, nor is a possessive ending that both sides have.
    Words of several changes are joined by spaces.

    >>> altered_subjects("A man's room", "A young kid's room.")
    ('man', 'young kid')
    """
    old: list[str] = []
    new: list[str] = []
    for change in caption_changes(before, after):
        left, right = before[slice(*change.before)], after[slice(*change.after)]
        if POSSESSIVE.search(left) and POSSESSIVE.search(right):
            left, right = POSSESSIVE.sub("", left), POSSESSIVE.sub("", right)
        for text, words in ((left, old), (right, new)):
            lowered = (match.group().lower() for match in WORD.finditer(text))
            words += [word for word in lowered if re.match(r"\w", word)]
    return " ".join(old), " ".join(new)


def _words(text: str) -> list[tuple[str, Span]]:
    """Return every word in the form that is compared, with its place."""
    return [(text[start:end].lower(), (start, end)) for start, end in word_spans(text)]


def _common_ends(a: list[str], b: list[str]) -> tuple[int, int]:
    """Return how many words two captions have in common at their beginnings and ends."""
    shortest = min(len(a), len(b))
    head = next((i for i in range(shortest) if a[i] != b[i]), shortest)
    left = shortest - head
    return head, next((i for i in range(left) if a[-1 - i] != b[-1 - i]), left)


def _characters(text: str, words: list[tuple[str, Span]], start: int, end: int) -> Span:
    if start < end:
        return words[start][1][0], words[end - 1][1][1]
    position = words[start][1][0] if start < len(words) else len(text)
    return position, position


# The indefinite article, by the sound of the word that follows.
#
# ``inflect`` takes 1.6 s to import and 18 times as long a word. For 13 of 5,000 of WordNet's nouns,
# rare ones in u- such as "ubiquity", it has the right article and this module does not; adopting
# it would change captions that were generated before.


# Words whose first letter misleads about their first sound.
_AN = re.compile(r"(?:hour|honest|honou?r|heir|herb\b|x-ray|[fhlmnrsx]$)", re.IGNORECASE)
_A = re.compile(
    r"(?:uni(?!n|m)|use|usu|uti|uke|ukulele|ut[ae]|euro|eu|ewe|one\b|once\b|one-)", re.IGNORECASE
)
_ARTICLE = re.compile(r"\b(an?) (\w)", re.IGNORECASE)


def indefinite_article(word: str) -> str:
    """Return "a" or "an" by the sound a word begins with, as far as its letters tell.

    >>> [indefinite_article(w) for w in ("cat", "orange", "hour", "unicorn", "umbrella", "uniform")]
    ['a', 'an', 'an', 'a', 'an', 'a']
    """
    if _AN.match(word):
        return "an"
    if _A.match(word):
        return "a"
    return "an" if word[:1].lower() in "aeiou" else "a"


def copy_article_case(article: str, like: str) -> str:
    """Write an article in the case of another: "An" for "A", "AN" for "AN".

    >>> copy_article_case("an", "A"), copy_article_case("a", "AN"), copy_article_case("a", "An")
    ('An', 'A', 'A')
    """
    return article.capitalize() if like[0].isupper() else article


def right_articles(text: str) -> str:
    """Return a text with the article "a" or "an" that fits each following word.

    >>> right_articles("A photo of a Indian male an barber")
    'A photo of an Indian male a barber'
    """

    def right(match: re.Match[str]) -> str:
        word = re.match(r"[\w-]+", text[match.start(2) :])
        article = indefinite_article(word.group() if word else match[2])
        if article == match[1].lower():
            return match[0]
        return f"{copy_article_case(article, match[1])} {match[2]}"

    return _ARTICLE.sub(right, text)


def same_words(text: str, other: str) -> bool:
    """Say whether two texts have the same words, apart from case and punctuation.

    >>> same_words("A cat, on the mat's edge", "the mat's edge on a cat")
    True
    >>> same_words("a cat on a mat", "a cat on the mat")
    False
    """
    both = (re.findall(r"[\w']+", words.casefold().replace("’", "'")) for words in (text, other))
    before, after = map(sorted, both)
    return before == after
