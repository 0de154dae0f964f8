"""Shared code of the baselines: a keyed generator and a proposal of two texts for each example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cfaug.core.rng import generator
from cfaug.core.types import Edited, Example
from cfaug.editing.baselines.words import Words, count_changes
from cfaug.editing.changed_text import propose_change
from cfaug.editing.sentence import normalise

NO_WORDS = "no_words"
"""Reason of an unchanged text that has only punctuation."""

NO_CANDIDATE = "no_candidate"
"""Reason of an unchanged text to which no rule applies."""

TOO_LONG = "max_words"
"""Reason of an unchanged text that is longer than a caption."""

MOST_WORDS = 300
"""Largest number of words of a text to rewrite: every change searches the whole text, so that the
work grows with the square of its length. TextAttack has no limit; captions have about ten words."""


@dataclass(frozen=True)
class Rewriting:
    """A text after some changes.

    Attributes:
        words: the text after the changes.
        changes: the changes in order, as JSON: ``operation``, ``before`` and ``after``.
    """

    words: Words
    changes: tuple[dict[str, Any], ...] = field(default_factory=tuple)

    def then(self, words: Words, operation: str, before: str, after: str) -> Rewriting:
        """Return the text after one more change."""
        change = {"operation": operation, "before": before, "after": after}
        return Rewriting(words, (*self.changes, change))

    @property
    def reason(self) -> str:
        """The reason why the text is unchanged; meaningless if it is changed."""
        if len(self.words.spans) > MOST_WORDS:
            return TOO_LONG
        return NO_CANDIDATE if self.words.spans else NO_WORDS


Step = Callable[[Rewriting], Rewriting | None]
"""A function that makes one more change to a text; it returns ``None`` if no change applies."""


def rewrite(words: Words, share: float, step: Step) -> Rewriting:
    """Change a text until enough of its words are changed, like TextAttack's augmenters.

    Args:
        words: the text.
        share: the share of its words to change; at least one word. Every step counts as one word,
            or as the number of words changed by then if that is larger: an inserted word counts
            together with the word after it, exchanged words count as two.
        step: the function that makes one change.

    Returns:
        The changed text; a text of more than ``MOST_WORDS`` words is returned unchanged.
    """
    done, count = Rewriting(words), 0
    if len(words.spans) > MOST_WORDS:
        return done
    wanted = count_changes(share, len(words.spans))
    while count < wanted:
        further = step(done)
        if further is None:
            break
        done, count = further, max(len(further.words.modified), count + 1)
    return done


def draw_for(seed: int, method: str, examples: Sequence[Example]) -> list[np.random.Generator]:
    """Return a random generator for each example, keyed by its key, the method and the seed."""
    return [generator(seed, method, example.key) for example in examples]


def pick(rng: np.random.Generator, count: int) -> int:
    """Return a uniformly random number from 0 to ``count - 1``."""
    return int(rng.integers(count))


def edit_examples(
    examples: Sequence[Example],
    kind: str,
    seed: int,
    change: Callable[[Words, np.random.Generator], Rewriting],
    *,
    keep_unchanged: bool,
) -> list[Edited]:
    """Return one proposal for the first text of each example, in order.

    Args:
        examples: the examples.
        kind: the kind of the edits, which also keys their draws.
        seed: the seed of the draws, together with the example's key.
        change: the function that changes the words of one text.
        keep_unchanged: whether an unchanged text still has a proposal; see ``propose_change``.
    """
    edited = []
    for example, rng in zip(examples, draw_for(seed, kind, examples), strict=True):
        done = change(Words.read(normalise(example.text)), rng)
        edited.append(
            propose_change(
                example, done.words.text, kind,
                changes=done.changes, reason=done.reason, keep_unchanged=keep_unchanged,
            )
        )  # fmt: skip
    return edited
