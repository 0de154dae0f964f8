"""Unicode's names of emoji: which are taken, which differ in one word, and who sees which.

An emoji is called by its code points, hexadecimal and joined by ``-``, without the variation
selector FE0F: ``1f468-200d-1f692`` is a man, a joiner and a fire engine.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Literal

from zoo.emoji.packages import GROUPS, NAMES, fetch, read_json

LANGUAGES = ("ar", "de", "es", "hi", "zh")
"""Languages, besides English, whose names the pack has."""
JOINER, SELECTOR = "200d", "fe0f"
TONES = {"1f3fb": "light", "1f3fc": "medium-light", "1f3fd": "medium", "1f3fe": "medium-dark",
         "1f3ff": "dark"}  # fmt: skip
"""{code point: Unicode's name of a skin tone}, by the scale of Fitzpatrick."""
PERSON = {"1f468": "man", "1f469": "woman"}
SIGNS = {"2642": "man", "2640": "woman"}
"""The signs that make of a person, such as a detective, a man or a woman."""
HAIR = ("1f9b0", "1f9b1", "1f9b2", "1f9b3")
OFFENSIVE = ("1f595",)
"""The middle finger: it is an insult, and no test item."""
Kind = Literal["tone", "gender", "other"]


@dataclass(frozen=True)
class Emoji:
    """A named emoji.

    Attributes:
        code: its code points.
        name: Unicode's English name, as it is.
        group: Unicode's group, such as ``animals-nature``.
        subgroup: Unicode's subgroup, such as ``animal-bird``.
        order: its place in Unicode's order.
        translations: {language: the name}.
    """

    code: str
    name: str
    group: str
    subgroup: str
    order: int
    translations: Mapping[str, str]

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the name in lower case, without colons and commas.

        >>> Emoji("1f44b-1f3fb", "waving hand: light skin tone", "", "", 0, {}).words
        ('waving', 'hand', 'light', 'skin', 'tone')
        """
        return tuple(re.findall(r"[^\s:,]+", self.name.lower()))


@dataclass(frozen=True)
class Pair:
    """Two emoji whose names differ in one word.

    Attributes:
        kind: whether the word is a skin tone, a gender, or another.
        before: the word of the first name.
        after: the word of the second one.
    """

    first: Emoji
    second: Emoji
    kind: Kind
    before: str
    after: str


@dataclass(frozen=True)
class Person:
    """A member of a set of people: the same occupation by gender and tone."""

    emoji: Emoji
    occupation: str
    gender: str
    tone: str


def read_names(downloads: Path) -> list[Emoji]:
    """Return every emoji that Unicode names in all languages of the pack, in its order."""
    names: dict[str, dict[str, str]] = defaultdict(dict)
    for language, package in product(("en", *LANGUAGES), NAMES):
        kind = "annotationsDerived" if "derived" in package.name else "annotations"
        file = f"{kind}/{language}/annotations.json"
        [content] = read_json(fetch(package, downloads), file).values()
        for text, about in content["annotations"].items():
            if "tts" in about:
                points = [f"{ord(letter):x}" for letter in text]
                names["-".join(p for p in points if p != SELECTOR)][language] = about["tts"][0]
    archive = fetch(GROUPS, downloads)
    titles = read_json(archive, "meta/groups.json")
    emoji = []
    for entry in read_json(archive, "en/data.json"):
        for order, variant in enumerate((entry, *entry.get("skins", ()))):
            points = variant["hexcode"].lower().split("-")
            code = "-".join(p for p in points if p != SELECTOR)
            called = names.get(code, {})
            if entry.get("order") is None or set(called) != {"en", *LANGUAGES}:
                continue
            emoji.append(
                Emoji(
                    code, called.pop("en"), titles["groups"][str(entry["group"])],
                    titles["subgroups"][str(entry["subgroup"])], 10 * entry["order"] + order,
                    called,
                )
            )  # fmt: skip
    return sorted(emoji, key=lambda entry: entry.order)


RULES: Mapping[str, Callable[[Emoji], bool]] = {
    "flags": lambda emoji: emoji.group == "flags",
    "clocks, of which two differ in the direction of a hand": lambda emoji: bool(
        re.search(r"o’clock|-thirty", emoji.name)
    ),
    "lengths and colours of hair": lambda emoji: bool(
        set(HAIR) & set(emoji.code.split("-")) or re.search(r"\b(hair|bald)\b", emoji.name)
    ),
    "insults": lambda emoji: emoji.code.split("-")[0] in OFFENSIVE,
    "two people with two tones": lambda emoji: (
        sum(point in TONES for point in emoji.code.split("-")) > 1
    ),
}
"""{what is left out: whether an emoji is such a one}."""


def leave_out(emoji: Iterable[Emoji]) -> tuple[list[Emoji], dict[str, int]]:
    """Return the emoji that no rule leaves out, and {rule: the number that it leaves out}."""
    kept, counts = [], dict.fromkeys(RULES, 0)
    for entry in emoji:
        reason = next((reason for reason, applies in RULES.items() if applies(entry)), None)
        if reason is None:
            kept.append(entry)
        else:
            counts[reason] += 1
    return kept, counts


def minimal_pairs(emoji: Sequence[Emoji]) -> list[Pair]:
    """Return every two emoji whose names have as many words, at least two, and differ in one.

    They are of one group, and people of one subgroup: "horse face" is no edit of "sleeping face",
    and "teacher: light skin tone" none of "nose: light skin tone".
    """
    alike = defaultdict(list)
    for entry in emoji:
        words = entry.words
        for place in range(len(words) if len(words) > 1 else 0):
            alike[len(words), place, words[:place], words[place + 1 :]].append(entry)
    pairs = []
    for (_, place, _, _), members in alike.items():
        for first, second in combinations(members, 2):
            if first.group != second.group or (
                first.group == "people-body" and first.subgroup != second.subgroup
            ):
                continue
            before, after = first.words[place], second.words[place]
            kind: Kind = "other"
            if {before, after} <= set(TONES.values()):
                kind = "tone"
            elif {before, after} <= {"man", "woman", "person", "boy", "girl", "men", "women"}:
                kind = "gender"
            pairs.append(Pair(first, second, kind, before, after))
    return pairs


def people(emoji: Iterable[Emoji]) -> list[Person]:
    """Return the members of every complete set: an occupation, two genders, five tones.

    Of an occupation, unlike of "man in tuxedo", Unicode also names a person of neither gender.
    """
    every = list(emoji)
    names = {entry.name for entry in every}
    sets: dict[str, list[Person]] = defaultdict(list)
    for entry in every:
        role = re.fullmatch(r"(man|woman) ([a-z ]+): ([a-z-]+) skin tone", entry.name)
        if role is not None and entry.subgroup == "person-role":
            gender, occupation, tone = role.groups()
            if f"{occupation}: {tone} skin tone" not in names:
                continue
            sets[occupation].append(Person(entry, occupation, gender, tone))
    return [
        person
        for _, members in sorted(sets.items())
        if len({(person.gender, person.tone) for person in members}) == 2 * len(TONES)
        for person in members
    ]
