"""Cautions for sets with labels that may be about people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cfaug.core.cards import code, number

HEAD = "## What the labels are, and what they are not"

GENERAL = (
    "The labels say what a caption asked an image generator for. They are not what a person is, "
    "thinks of themselves, or is seen as: nobody in these images exists, and nobody was asked.",
    "An image may not show what its caption asked for, and what it shows is the generator's idea "
    "of a word, its stereotypes included. Other things may change with a label.",
    "Use: to measure, or to lower, the differences that a model makes between images that differ "
    "by a label. A difference found here is one of images of this generator; that none is found "
    "says nothing of a model's fairness elsewhere.",
    "Not for decisions about people, for guessing anybody's attributes, or for training whatever "
    "does either; not as pictures of what people of an occupation or a group look like.",
)

BY_ATTRIBUTE = {
    "gender": "The list of genders is that of its caption lists, {values}: people of other genders "
    "are left out, so nothing is measured of them.",
    "race": "The list of races, {values}, mixes colours of skin, regions and languages: it does "
    "not classify people, and leaves most of them out.",
    "religion": "A religion cannot be seen: images of {values} show the clothes and places that "
    "the generator associates with the word, stereotypes that must not be taken for people.",
    "physical": "Words for bodies, {values}, were taken from studies of stereotypes; some of them "
    "hurt. They are here because models meet them.",
}
"""Further cautions by the name of an attribute."""


def cautions(attributes: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the cautions for grids of some attributes, a paragraph each.

    Args:
        attributes: {attribute: values that occur}.
    """
    found = list(GENERAL)
    for name, values in attributes.items():
        said = next((text for key, text in BY_ATTRIBUTE.items() if name.startswith(key)), None)
        if said is not None:
            found.append(said.format(values=", ".join(map(code, values))))
    return found


def caution_lines(
    attributes: Mapping[str, Sequence[str]], grids: Mapping[str, int]
) -> Iterable[str]:
    """Yield the lines of a card's section on the grids, their labels, and the cautions for them.

    Args:
        attributes: {attribute: values that occur}.
        grids: {grid: number of sets}.
    """
    yield HEAD
    yield ""
    named = ", ".join(f"{code(name)} ({number(count)} sets)" for name, count in grids.items())
    yield f"Grids: {named}."
    yield ""
    for name, values in attributes.items():
        yield f"- {code(name)}: {', '.join(map(code, values))}"
    yield ""
    for one in cautions(attributes):
        yield f"- {one}"
    yield ""
