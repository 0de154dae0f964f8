"""Numbers in words, read and spelt as by TextAttack's libraries.

They are spelt as by num2words, and read as by word2number if they are well formed.
"""

from __future__ import annotations

from collections.abc import Iterable

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
    found = False
    for word in (part for one in words for part in one.lower().split("-")):
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
        found = True
    return total + group if found else None


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
        ten, one = divmod(number, 10)
        return TENS[ten - 2] + (f"-{ONES[one]}" if one else "")
    name, power = max((p for p in POWERS.items() if p[1] <= number), key=lambda pair: pair[1])
    many, rest = divmod(number, power)
    said = f"{spell_number(many)} {name}"
    if not rest:
        return said
    return f"{said} and {spell_number(rest)}" if rest < 100 else f"{said}, {spell_number(rest)}"
