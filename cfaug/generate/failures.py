"""Items that fail are found one by one and named; progress counts those that are left."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from cfaug.core.errors import RejectedError, UnavailableError, UserError, say
from cfaug.core.progress import Progress, on_terminal

NAMED = 20
"""Number of failed items of a shard that are named; the rest are only counted."""
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Failure:
    """An item that failed: the key of its caption or set, and the error."""

    key: str
    error: str


@dataclass(frozen=True)
class Rejection(Failure):
    """An item that no retry can make usable, with the reason under which it is counted."""

    reason: str


@dataclass(frozen=True)
class Attempt(Generic[R]):
    """The result of a batch.

    Attributes:
        done: the results by place in the batch. If the batch failed as a whole, each item was
            processed alone, so that its result equals that of the batch only up to rounding.
        failed: the failed items, also by place; empty if the batch was processed as planned. An
            item that works alone but not together with the others is in both.
    """

    done: dict[int, R]
    failed: dict[int, Failure]

    def lost_by_place(self) -> dict[int, Failure]:
        """Return the items without any result, by place."""
        return {i: failure for i, failure in self.failed.items() if i not in self.done}

    def split_rejections(self) -> tuple[dict[int, Rejection], dict[int, Failure]]:
        """Return, by place, the rejected items, and the failed ones to retry.

        An item with a result is not rejected.
        """
        lost = self.lost_by_place()
        rejected = {i: failure for i, failure in lost.items() if isinstance(failure, Rejection)}
        return rejected, {i: failure for i, failure in self.failed.items() if i not in rejected}

    @property
    def lost(self) -> dict[str, Failure]:
        """Items without any result, by key."""
        return {failure.key: failure for failure in self.lost_by_place().values()}


def attempt(
    items: Sequence[T], work: Callable[[Sequence[T]], Sequence[R]], key: Callable[[T], str]
) -> Attempt[R]:
    """Process a batch at once; if that fails, its items one by one to find the faulty ones.

    An item that is rejected (``RejectedError``) becomes a ``Rejection``; the others are then
    processed one by one.
    """
    try:
        return Attempt(dict(enumerate(work(items))), {})
    except UnavailableError:
        raise
    except Exception as error:
        together = error
    done: dict[int, R] = {}
    errors: dict[int, Exception] = {}
    for i, item in enumerate(items):
        try:
            if len(items) == 1:
                raise together
            [done[i]] = work([item])
        except UnavailableError:
            raise
        except Exception as error:
            errors[i] = error
    # Such an error may concern more than its item: a setting, a missing file.
    general = [
        error
        for error in errors.values()
        if isinstance(error, UserError) and not isinstance(error, RejectedError)
    ]
    if len(general) == len(items) > 1:
        raise together
    if len(general) == len(errors) > 1 and len(set(map(str, general))) == 1:
        raise general[0]
    blamed = {
        i: Rejection(key(items[i]), str(error), error.reason)
        if isinstance(error, RejectedError)
        else Failure(key(items[i]), _message(error))
        for i, error in errors.items()
    }
    message = f"alone it works, but not in its batch: {_message(together)}"
    return Attempt(done, blamed or {i: Failure(key(item), message) for i, item in enumerate(items)})


def say_some(lines: Sequence[str]) -> None:
    """Name the first items of a shard on stderr, and count the rest."""
    for line in lines[:NAMED]:
        say(line)
    if len(lines) > NAMED:
        say(f"... and {len(lines) - NAMED} more")


def check_results(results: Any, items: Sequence[Any], part: str) -> list[Any]:
    """Return the output of a part of a recipe, if it is a list with one result for each item."""
    if not isinstance(results, list | tuple):
        raise UserError(f"{part} should return a list, not {type(results).__name__}")
    if len(results) != len(items):
        raise UserError(
            f"{part} should return one result for each of {len(items)} items; it returned "
            f"{len(results)}"
        )
    return list(results)


def check_json(value: Any, where: str) -> None:
    """Refuse a value that JSON cannot represent; JSON has neither ``nan`` nor infinity."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise UserError(f"{where} should be a mapping of names to JSON values, not {value!r:.200}")
    try:
        json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{where} is not JSON: {error}") from error


def _message(error: Exception) -> str:
    return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"


class ProgressReporter(Progress):
    """Counts the finished units of a stage, and the accepted ones among them.

    Args:
        unit: the plural noun of the units: captions or candidates.
        accepted: the word for the good units: edited or accepted.
    """

    def __init__(
        self, title: str, unit: str, accepted: str, total: int, *, shown: bool = True
    ) -> None:
        super().__init__(title, total, unit, shown=shown)
        self._accepted, self._good = accepted, 0

    def close(self) -> None:
        """Remove the bar; a log gets the final count, even after a quick stage."""
        super().close()
        if not on_terminal() and self.done > self.known:
            self.print_line()

    def count(self, units: int, good: int) -> None:
        """Count finished units, and the good ones among them."""
        self._good += good
        new = self.done + units - self.known
        self.advance(units, f"{self._good / new:.0%} {self._accepted}" if new else "")
