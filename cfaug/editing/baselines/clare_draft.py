"""A text during CLARE's rounds: the candidates so far, and the choice among them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from cfaug.editing.baselines.clare_candidates import ClareCandidate
from cfaug.editing.baselines.editor import NO_CANDIDATE, NO_WORDS
from cfaug.editing.baselines.words import Words

CHOSEN_UNCHANGED = "chosen_unchanged"
"""Reason of a text that is unchanged because it was itself drawn from its candidates."""

Changes = tuple[dict[str, Any], ...]


class ClareDraft:
    """The rounds of one text, as in TextAttack's ``Augmenter`` with ``fast_augment``.

    In every round, all texts with enough changed words join the pool; one of the others, if there
    are any, enters the next round. In the end one text of the pool is chosen. The pool also
    contains the text that entered the last round: for a short text, the text itself.

    Args:
        original: the text.
        wanted: the number of words to change; 0 leaves the text unchanged.
        salt: the salt of all draws. The text with the smallest hash is drawn, so that an additional
            or missing candidate, which may depend on the batch if probabilities are equal, hardly
            ever changes the choice.
    """

    def __init__(self, original: Words, wanted: int, salt: int) -> None:
        self.original = self.current = original
        self._wanted = wanted
        self._count = 0
        self._salt = salt
        self._changes: Changes = ()
        self._pool: dict[str, tuple[ClareCandidate, int]] = {}
        self._rounds: list[tuple[Words, Changes]] = []
        self.is_open = wanted > 0

    def take(self, candidates: Mapping[str, ClareCandidate]) -> None:
        """Add the candidates of the current text."""
        number = len(self._rounds)
        self._rounds.append((self.current, self._changes))
        going_on = {}
        for text, one in candidates.items():
            if text in self._pool:
                continue
            if one.modified >= self._wanted:
                self._pool[text] = one, number
            else:
                going_on[text] = one
        if not going_on:
            self.is_open = False
            return
        chosen = going_on[self._draw(going_on)]
        self.current, self._changes = self._finish(chosen, number)
        self._count = max(len(self.current.modified), self._count + 1)
        self.is_open = self._count < self._wanted

    def choose(self) -> tuple[Words, Changes]:
        """Return the chosen text, and the changes that led to it."""
        text = self._draw([self.current.text, *self._pool])
        if text == self.current.text:
            return self.current, self._changes
        return self._finish(*self._pool[text])

    def _finish(self, chosen: ClareCandidate, number: int) -> tuple[Words, Changes]:
        """Return the text of a candidate of a round, and all changes that led to it."""
        words, changes = self._rounds[number]
        return chosen.apply(words), (*changes, chosen.describe(words))

    @property
    def reason(self) -> str:
        """The reason why the text is unchanged; meaningless if it is changed."""
        if not self.original.spans:
            return NO_WORDS
        return CHOSEN_UNCHANGED if self._pool else NO_CANDIDATE

    def _draw(self, texts: Iterable[str]) -> str:
        """Return one of several equally likely texts."""
        key = f"{self._salt} {len(self._rounds)}".encode()
        return min(
            texts, key=lambda text: hashlib.blake2b(text.encode(), digest_size=8, key=key).digest()
        )
