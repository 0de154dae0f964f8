"""The indefinite article, by the sound of the word that follows.

``inflect`` takes 1.6 s to import and 18 times as long a word. For 13 of 5,000 of WordNet's nouns,
rare ones in u- such as "ubiquity", it has the right article and this module does not; adopting
it would change captions that were generated before.
"""

from __future__ import annotations

import re

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
