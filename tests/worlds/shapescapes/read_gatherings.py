"""A slow reader of questions about gatherings: it shares no code with what asks them.

Things are dictionaries; a condition is understood from its text alone, by its names.
"""

from __future__ import annotations

import re

ROLLING = ("ball", "ring")


def named(name, things):
    """Return the one thing that "the red thing", "the ball" or "the red ball" names."""
    words = [word for word in name.removeprefix("the ").split() if word != "thing"]
    (only,) = [thing for thing in things if set(words) <= {thing["shape"], thing["colour"]}]
    return only


def trade(first, second, *names):
    for name in names:
        first[name], second[name] = second[name], first[name]


def attributes(word):
    known = {"places": ("column", "row"), "colors": ("colour",), "color": ("colour",)}
    return known.get(word, (word.removesuffix("s"),))


def suppose(text, things, asked):
    """Do to the things what a condition says; return the things that are left.

    ``asked`` are the two that "the two" means.
    """
    if match := re.fullmatch(r"(.+) and (.+) traded places, and then (.+) and (.+) did", text):
        a, b, c, d = (named(words, things) for words in match.groups())
        trade(a, b, "column", "row")
        trade(c, d, "column", "row")
    elif match := re.fullmatch(r"(.+) and (.+) swapped (\w+), and then (.+) and (.+) did", text):
        a, b, word, c, d = match.groups()
        four = [named(words, things) for words in (a, b, c, d)]
        trade(*four[:2], *attributes(word))
        trade(*four[2:], *attributes(word))
    elif match := re.fullmatch(r"the two (?:swapped|traded) (\w+)", text):
        trade(*asked, *attributes(match[1]))
    elif match := re.fullmatch(r"(.+) and (.+) (?:swapped|traded) (\w+)", text):
        trade(named(match[1], things), named(match[2], things), *attributes(match[3]))
    elif match := re.fullmatch(r"(.+) were given the (\w+) of (.+)", text):
        for name in attributes(match[2]):
            named(match[1], things)[name] = named(match[3], things)[name]
    elif text == "all other things were removed":
        return list(asked)
    elif match := re.fullmatch(r"every (\w+) turned into a (\w+) and every \2 into a \1", text):
        for thing in things:
            thing["shape"] = {match[1]: match[2], match[2]: match[1]}.get(
                thing["shape"], thing["shape"]
            )
    elif match := re.fullmatch(r"(the .+) turned into a (\w+)", text):
        named(match[1], things)["shape"] = match[2]
    elif match := re.fullmatch(r"(the .+) were removed", text):
        gone = named(match[1], things)
        return [thing for thing in things if thing is not gone]
    elif match := re.fullmatch(r"another (\w+) were added", text):
        return [*things, {"shape": match[1], "colour": ""}]
    elif match := re.fullmatch(r"there were twice as many (\w+)s", text):
        return things + [dict(thing) for thing in things if thing["shape"] == match[1]]
    elif text == "the picture were seen in a mirror":
        for thing in things:
            thing["column"] = -thing["column"]
    elif text == "the picture were rotated by half a turn":
        for thing in things:
            thing["column"], thing["row"] = -thing["column"], -thing["row"]
    elif match := re.fullmatch(r"(.+) were moved to the other side of (.+)", text):
        moved, still = (named(words, things) for words in match.groups())
        for name in ("column", "row"):  # in both ways: only one of them is asked about
            moved[name] += 2 * (still[name] - moved[name])
    else:
        assert text in (
            "round things could not roll and all others could",
            "small things were heavier than large ones",
        ), text
    return things


def answer(text, scene):
    """Answer a question about a scene's record."""
    things = [dict(thing) for thing in scene["things"]]
    text = text.removesuffix("?")
    core, condition = text, ""
    if text.startswith("If "):
        condition, core = re.fullmatch(
            r"If (.+), ((?:how many|what|would the|which) .+)", text
        ).groups()
    if match := re.fullmatch(r"(?i)which (?:can|could|is|would).*, (the .+) or (the .+)", core):
        return answer_rule(core, condition, things, match.groups())
    if match := re.fullmatch(r"(?i)how many (\w+)s (?:are there|would there be)", core):
        left = suppose(condition, things, ()) if condition else things
        return str(len([thing for thing in left if thing["shape"] == match[1]]))
    if match := re.fullmatch(r"(?i)what (\w+) (?:is|would) (the .+?)(?: be)?", core):
        thing = named(match[2], things)
        if condition:
            suppose(condition, things, ())
        return thing[attributes(match[1])[0]]
    match = re.fullmatch(
        r"(?i)(?:is|would) (the \w+) (?:be )?(to the left|above) or .* (the \w+)", core
    )
    first, second = named(match[1], things), named(match[3], things)
    if condition:
        suppose(condition, things, ())
    if match[2] == "above":
        return "above" if first["row"] < second["row"] else "below"
    return "left" if first["column"] < second["column"] else "right"


def answer_rule(core, condition, things, names):
    """Answer which of two things rolls, or is heavier."""
    asked = [named(name, things) for name in names]
    if condition:
        suppose(condition, things, asked)
    wanted = "could not roll" not in condition and "were heavier" not in condition
    if "roll" in core:
        (only,) = [thing for thing in asked if (thing["shape"] in ROLLING) == wanted]
    else:
        (only,) = [thing for thing in asked if (thing["size"] == "large") == wanted]
    return f"the {only['colour']} thing"
