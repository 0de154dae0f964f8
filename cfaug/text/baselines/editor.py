"""What the baselines have in common: one keyed draw an example, one proposal of two texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cfaug.errors import UserError
from cfaug.rng import generator
from cfaug.text.baselines.words import Words, count_changes
from cfaug.types import Example

NO_WORDS = "no_words"
"""Why a text of punctuation is unchanged."""

NO_CANDIDATE = "no_candidate"
"""Why a text is unchanged that no rule applies to."""

TOO_LONG = "max_words"
"""Why a text is unchanged that is longer than a caption."""

MOST_WORDS = 300
"""Of a text that is rewritten: every change is looked for in all of it, so work grows with the
square of its length. TextAttack has no limit; captions have some ten words."""


@dataclass(frozen=True)
class Rewriting:
    """What a rule made of a text.

    Attributes:
        words: the text as it is now.
        changes: what was done, in order, as JSON: ``operation``, ``before`` and ``after``.
    """

    words: Words
    changes: tuple[dict[str, Any], ...] = field(default_factory=tuple)

    def then(self, words: Words, operation: str, before: str, after: str) -> Rewriting:
        """Return the text after one change more."""
        change = {"operation": operation, "before": before, "after": after}
        return Rewriting(words, (*self.changes, change))

    @property
    def reason(self) -> str:
        """Why the text is unchanged, where it is."""
        if len(self.words.spans) > MOST_WORDS:
            return TOO_LONG
        return NO_CANDIDATE if self.words.spans else NO_WORDS


Step = Callable[[Rewriting], Rewriting | None]
"""Changes a text once more; ``None`` if there is nothing to change."""


def rewrite(words: Words, share: float, step: Step) -> Rewriting:
    """Change a text until enough of its words are changed, as TextAttack's augmenters do.

    Args:
        words: the text.
        share: of its words; at least one. Every step counts as one word, or as many as are changed
            by then: an inserted word counts with the word behind it, exchanged words count as two.
        step: changes it once.

    Returns:
        What became of the text; a text of more than ``MOST_WORDS`` words is as it was.
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


def check_share(share: float, node: str = "share") -> None:
    """Refuse an invalid share of words.

    Raises:
        UserError: naming the setting.
    """
    if not 0 <= share <= 1:
        raise UserError(f"recipe.editor.{node}={share} is invalid: choose from 0 to 1")


def draw_for(seed: int, method: str, examples: Sequence[Example]) -> list[np.random.Generator]:
    """Return a generator for each example, which depends on its key, the method and the seed."""
    return [generator(seed, method, example.key) for example in examples]


def pick(rng: np.random.Generator, count: int) -> int:
    """Return a number from 0 to ``count - 1``, each as likely."""
    return int(rng.integers(count))
