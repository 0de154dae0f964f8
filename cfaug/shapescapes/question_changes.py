"""Changes of a gathering of things under a supposition: "if the ball were removed".

Things have numbers, which changes preserve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from cfaug.shapescapes.gathering import SIDE, Thing

PLACE = ("column", "row")
"""The attributes of a thing's place."""


@dataclass(frozen=True)
class State:
    """An actual or supposed state of a scene: its things by number, and the reversed rules."""

    things: Mapping[int, Thing]
    turned: frozenset[str] = frozenset()


Change = Callable[[State], State]


def swap(one: int, other: int, *names: str) -> Change:
    """Return the change that exchanges attributes of two things."""

    def change(state: State) -> State:
        a, b = state.things[one], state.things[other]
        new = {
            one: replace(a, **{name: getattr(b, name) for name in names}),
            other: replace(b, **{name: getattr(a, name) for name in names}),
        }
        return replace(state, things={**state.things, **new})

    return change


def give(one: int, other: int, name: str) -> Change:
    """Return the change that copies an attribute of another thing to a thing."""

    def change(state: State) -> State:
        new = replace(state.things[one], **{name: getattr(state.things[other], name)})
        return replace(state, things={**state.things, one: new})

    return change


def remove(*numbers: int) -> Change:
    """Return the change that removes things."""
    return lambda state: replace(
        state, things={n: one for n, one in state.things.items() if n not in numbers}
    )


def each(new: Callable[[Thing], Thing]) -> Change:
    """Return the change that applies a function to every thing."""
    return lambda state: replace(state, things={n: new(one) for n, one in state.things.items()})


def turn(rule: str) -> Change:
    """Return the change that reverses a rule of the world."""
    return lambda state: replace(state, turned=state.turned | {rule})


def chain(*changes: Change) -> Change:
    """Return the change that applies several changes in order."""

    def change(state: State) -> State:
        for one in changes:
            state = one(state)
        return state

    return change


def mirror(thing: Thing) -> Thing:
    """Return a thing mirrored."""
    return replace(thing, column=SIDE - 1 - thing.column)


def rotate(thing: Thing) -> Thing:
    """Return a thing after half a turn of the picture."""
    return replace(thing, column=SIDE - 1 - thing.column, row=SIDE - 1 - thing.row)


def add(shape: str) -> Change:
    """Return the change that adds a thing of a shape; its other attributes do not matter."""
    return lambda state: replace(
        state, things={**state.things, max(state.things) + 1: Thing(shape, "", "", 0, 0)}
    )


def double(shape: str) -> Change:
    """Return the change that doubles the number of things of a shape."""

    def change(state: State) -> State:
        for _ in [one for one in state.things.values() if one.shape == shape]:
            state = add(shape)(state)
        return state

    return change
