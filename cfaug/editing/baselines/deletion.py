"""Random deletion of words: TextAttack's ``DeletionAugmenter`` with its default settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cfaug.core.types import Edited, Example
from cfaug.core.validation import Seed, Share, check_fields
from cfaug.editing.baselines.editor import (
    Rewriting,
    edit_examples,
    pick,
    rewrite,
)
from cfaug.editing.baselines.words import Words

DELETION = "deletion"


@dataclass(frozen=True)
class RandomDeletion:
    """Deletes random words of a caption, all equally likely, stop words included.

    Args:
        share: the share of the words to delete, rounded down, at least one word; 0.1 in XMAI
            (section 4.3 and its notebook). A caption of one word stays unchanged.
        keep_unchanged: whether an unchanged text still has a proposal; see ``propose_change``.
        seed: the seed of the draws, together with the example's key.

    Raises:
        UserError: if a setting is invalid; it names the setting.
    """

    share: Share = 0.1
    keep_unchanged: bool = True
    seed: Seed = 0

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor")

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return one proposal for the first text of each example, in order."""

        def change(words: Words, rng: np.random.Generator) -> Rewriting:
            return delete_words(words, self.share, rng)

        return edit_examples(
            examples, DELETION, self.seed, change, keep_unchanged=self.keep_unchanged
        )

    def describe(self) -> dict[str, str]:
        """Return an empty mapping: a plain rule."""
        return {}


def delete_words(words: Words, share: float, rng: np.random.Generator) -> Rewriting:
    """Delete a share of the words, one after another; the last remaining word stays."""

    def step(done: Rewriting) -> Rewriting | None:
        if len(done.words.spans) <= 1:
            return None
        index = pick(rng, len(done.words.spans))
        return done.then(done.words.replace(index, ""), DELETION, done.words.words[index], "")

    return rewrite(words, share, step)
