"""A slow reader of captions about one or two things: it shares no code with what writes them.

It knows the words by heart and looks every claim up in the record of a picture.
"""

from __future__ import annotations

import re

PLACES = {
    "on the beach": "beach",
    "on the grass": "grass",
    "at night": "night",
    "in the snow": "snow",
    "in front of a brick wall": "brick",
    "in the water": "water",
    "on the road": "road",
    "in front of a curtain": "curtain",
}

BEGINNINGS = ("a photo of ", "a picture of ", "there is ", "this is ")

SIDES = {
    "left of": lambda a, b: a["column"] < b["column"],
    "right of": lambda a, b: a["column"] > b["column"],
    "above": lambda a, b: a["row"] < b["row"],
    "below": lambda a, b: a["row"] > b["row"],
}


def shown(record):
    """Return the things of a record, and its background."""
    if "things" in record:
        return [dict(thing) for thing in record["things"]], record["background"]
    thing = {"shape": record["subject"], "colour": record["colour"]}
    return [thing], record["background"]


def name(words):
    """Return the shape and the colour (or none) that "a red ball" or "a ball that is red" names."""
    if match := re.fullmatch(r"an? (\w+) that is (\w+)", words):
        return match[1], match[2]
    match = re.fullmatch(r"an? (?:(\w+) )?(\w+)", words)
    return match[2], match[1]


def is_true(text, record):
    """Say whether a caption is true of a picture whose things it names, every one."""
    things, background = shown(record)
    for words, place in PLACES.items():
        if text.startswith(words + " ") or text.endswith(" " + words):
            text = text.removeprefix(words + " ").removesuffix(" " + words)
            if place != background:
                return False
    for words in BEGINNINGS:
        text = text.removeprefix(words)
    parts = re.split(r" (and|left of|right of|above|below) ", text)
    if len(parts) // 2 + 1 != len(things):
        return False
    named = []
    for words in parts[::2]:
        shape, colour = name(words)
        there = [thing for thing in things if thing["shape"] == shape]
        if not there or colour not in (None, there[0]["colour"]):
            return False
        named.append(there[0])
    return len(parts) == 1 or parts[1] == "and" or SIDES[parts[1]](*named)


def is_true_with_negation(text, record):
    """Say whether a caption of one thing is true that ends in "and a star" or "and no star"."""
    things, _ = shown(record)
    said, word, shape = re.fullmatch(r"(.*) and (an?|no) (\w+)", text).groups()
    there = any(thing["shape"] == shape for thing in things)
    # Of the rest one thing is named, whichever it is.
    named = any(is_true(said, {**record, "things": [thing]}) for thing in things)
    return named and there == (word != "no")
