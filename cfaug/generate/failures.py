"""Items that fail: found one by one, named, and never in the way of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cfaug.errors import UserError

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Failure:
    """An item that could not be done, by the key of its caption or set, and why."""

    key: str
    error: str


@dataclass(frozen=True)
class Attempt(Generic[R]):
    """What became of a batch.

    Attributes:
        done: results by place in the batch. If the batch failed as a whole, each is of its item
            alone, and so equal to what the batch would have given only up to rounding.
        failed: who is to blame, by place too; empty if the batch was done as planned. An item is in
            both where it works alone but not together with the others.
    """

    done: dict[int, R]
    failed: dict[int, Failure]

    def lost_by_place(self) -> dict[int, Failure]:
        """Return the items without any result, by place."""
        return {place: one for place, one in self.failed.items() if place not in self.done}

    @property
    def lost(self) -> dict[str, Failure]:
        """Items without any result, by key."""
        return {one.key: one for one in self.lost_by_place().values()}


def attempt(
    items: Sequence[T], work: Callable[[Sequence[T]], Sequence[R]], key: Callable[[T], str]
) -> Attempt[R]:
    """Do a batch at once; where that fails, do its items one by one to learn which are to blame.

    Raises:
        UserError: if every one of several items fails with one: then it is not about the items.
    """
    try:
        return Attempt(dict(enumerate(work(items))), {})
    except Exception as error:
        together = error
    done: dict[int, R] = {}
    errors: dict[int, Exception] = {}
    for place, item in enumerate(items):
        try:
            if len(items) == 1:
                raise together
            [done[place]] = work([item])
        except Exception as error:
            errors[place] = error
    if len(errors) == len(items) > 1 and all(isinstance(e, UserError) for e in errors.values()):
        raise together
    blamed = {place: _message(error) for place, error in errors.items()} or dict.fromkeys(
        range(len(items)), f"alone it works, but not in its batch: {_message(together)}"
    )
    return Attempt(done, {i: Failure(key(items[i]), said) for i, said in blamed.items()})


def _message(error: Exception) -> str:
    return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
