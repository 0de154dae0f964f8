"""A slow reader of questions about gatherings: it shares no code with what asks them.

Things are dictionaries; a condition is understood from its text alone, by its names.
"""

from __future__ import annotations

import re

ROLLING = ("ball", "ring")


def named(name, things):
    """Return the one thing that "the red thing", "the ball" or "the red ball" names."""
    words = [word for word in name.removeprefix("the ").split() if word != "thing"]
    (found,) = [one for one in things if set(words) <= {one["shape"], one["colour"]}]
    return found


def trade(one, other, *names):
    for name in names:
        one[name], other[name] = other[name], one[name]


def attributes(word):
    known = {"places": ("column", "row"), "colors": ("colour",), "color": ("colour",)}
    return known.get(word, (word.removesuffix("s"),))


def suppose(text, things, asked):
    """Do to the things what a condition says; return the things that are left.

    ``asked`` are the two that "the two" means.
    """
    if found := re.fullmatch(r"(.+) and (.+) traded places, and then (.+) and (.+) did", text):
        a, b, c, d = (named(one, things) for one in found.groups())
        trade(a, b, "column", "row")
        trade(c, d, "column", "row")
    elif found := re.fullmatch(r"(.+) and (.+) swapped (\w+), and then (.+) and (.+) did", text):
        a, b, word, c, d = found.groups()
        four = [named(one, things) for one in (a, b, c, d)]
        trade(*four[:2], *attributes(word))
        trade(*four[2:], *attributes(word))
    elif found := re.fullmatch(r"the two (?:swapped|traded) (\w+)", text):
        trade(*asked, *attributes(found[1]))
    elif found := re.fullmatch(r"(.+) and (.+) (?:swapped|traded) (\w+)", text):
        trade(named(found[1], things), named(found[2], things), *attributes(found[3]))
    elif found := re.fullmatch(r"(.+) were given the (\w+) of (.+)", text):
        for name in attributes(found[2]):
            named(found[1], things)[name] = named(found[3], things)[name]
    elif text == "all other things were removed":
        return list(asked)
    elif found := re.fullmatch(r"every (\w+) turned into a (\w+) and every \2 into a \1", text):
        for one in things:
            one["shape"] = {found[1]: found[2], found[2]: found[1]}.get(one["shape"], one["shape"])
    elif found := re.fullmatch(r"(the .+) turned into a (\w+)", text):
        named(found[1], things)["shape"] = found[2]
    elif found := re.fullmatch(r"(the .+) were removed", text):
        gone = named(found[1], things)
        return [one for one in things if one is not gone]
    elif found := re.fullmatch(r"another (\w+) were added", text):
        return [*things, {"shape": found[1], "colour": ""}]
    elif found := re.fullmatch(r"there were twice as many (\w+)s", text):
        return things + [dict(one) for one in things if one["shape"] == found[1]]
    elif text == "the picture were seen in a mirror":
        for one in things:
            one["column"] = -one["column"]
    elif text == "the picture were rotated by half a turn":
        for one in things:
            one["column"], one["row"] = -one["column"], -one["row"]
    elif found := re.fullmatch(r"(.+) were moved to the other side of (.+)", text):
        moved, still = (named(one, things) for one in found.groups())
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
    things = [dict(one) for one in scene["things"]]
    text = text.removesuffix("?")
    core, condition = text, ""
    if text.startswith("If "):
        condition, core = re.fullmatch(
            r"If (.+), ((?:how many|what|would the|which) .+)", text
        ).groups()
    if found := re.fullmatch(r"(?i)which (?:can|could|is|would).*, (the .+) or (the .+)", core):
        return answer_rule(core, condition, things, found.groups())
    if found := re.fullmatch(r"(?i)how many (\w+)s (?:are there|would there be)", core):
        left = suppose(condition, things, ()) if condition else things
        return str(len([one for one in left if one["shape"] == found[1]]))
    if found := re.fullmatch(r"(?i)what (\w+) (?:is|would) (the .+?)(?: be)?", core):
        one = named(found[2], things)
        if condition:
            suppose(condition, things, ())
        return one[attributes(found[1])[0]]
    found = re.fullmatch(
        r"(?i)(?:is|would) (the \w+) (?:be )?(to the left|above) or .* (the \w+)", core
    )
    one, other = named(found[1], things), named(found[3], things)
    if condition:
        suppose(condition, things, ())
    if found[2] == "above":
        return "above" if one["row"] < other["row"] else "below"
    return "left" if one["column"] < other["column"] else "right"


def answer_rule(core, condition, things, names):
    """Answer which of two things rolls, or is heavier."""
    asked = [named(name, things) for name in names]
    if condition:
        suppose(condition, things, asked)
    wanted = "could not roll" not in condition and "were heavier" not in condition
    if "roll" in core:
        (found,) = [one for one in asked if (one["shape"] in ROLLING) == wanted]
    else:
        (found,) = [one for one in asked if (one["size"] == "large") == wanted]
    return f"the {found['colour']} thing"
