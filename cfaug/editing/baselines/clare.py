"""CLARE's edits (Li et al., 2021) in TextAttack's fast form: random edits that fit the text.

A masked language model replaces words, inserts words and merges two words into one. Every word with
a sufficient probability is a candidate, and all different texts are equally likely: no model is
attacked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cfaug.core.rng import derive
from cfaug.core.types import Edited, Example
from cfaug.core.validation import Positive, Seed, Share, check_fields
from cfaug.editing.baselines.clare_candidates import Likelihoods, find_candidates
from cfaug.editing.baselines.clare_draft import ClareDraft
from cfaug.editing.baselines.editor import TOO_LONG
from cfaug.editing.baselines.similarity import WindowSimilarity
from cfaug.editing.baselines.words import Words, count_changes
from cfaug.editing.changed_text import propose_change
from cfaug.editing.protocols import MaskFiller, Tagger
from cfaug.editing.sentence import normalise

KIND = "clare"


@dataclass(frozen=True)
class ClareEdits:
    """Replaces, inserts or merges words of a caption with a masked language model's guesses.

    TextAttack treats subword pieces ("ing") as words; here only whole words, according to the
    filler, are candidates.

    Args:
        filler: the model that guesses words for a blank (distilroberta-base in XMAI's notebook).
        tagger: the part-of-speech tagger that finds the words to merge.
        likelihoods: the least probability of candidates, and their number for each blank.
        similarity: the constraint that drops candidates too far from the text; ``None`` for no
            constraint. XMAI's setting ignores texts of fewer than 15 words, which are 95 % of
            MS-COCO's captions.
        share: the share of the words to change, rounded down, at least one word: a single one in
            captions of fewer than 20 words. An inserted word counts together with the one after it.
        keep_unchanged: whether an unchanged text still has a proposal; see ``propose_change``. The
            text itself is among the candidates, and is as likely as any of them.
        seed: the seed of the choice, together with the example's key.
        chunk: the number of captions that go through the models together; it bounds memory without
            changing results.
        max_words: the largest number of words of a text to change: the work grows with the square
            of its length.

    Raises:
        UserError: if a setting is invalid; it names the setting.
    """

    filler: MaskFiller
    tagger: Tagger
    likelihoods: Likelihoods = field(default_factory=Likelihoods)
    similarity: WindowSimilarity | None = None
    share: Share = 0.1
    keep_unchanged: bool = True
    seed: Seed = 0
    chunk: Positive = 500
    max_words: Positive = 300

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor")

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return one proposal for the first text of each example, in order."""
        starts = range(0, len(examples), self.chunk)
        return [one for i in starts for one in self._edit(examples[i : i + self.chunk])]

    def describe(self) -> dict[str, str]:
        """Return the models that guess, tag and compare."""
        described = {**self.tagger.describe(), **self.filler.describe()}
        return described | ({} if self.similarity is None else self.similarity.describe())

    def _edit(self, examples: Sequence[Example]) -> Iterator[Edited]:
        drafts = [self._draft(example) for example in examples]
        while open_drafts := [one for one in drafts if one.is_open]:
            texts = [one.current for one in open_drafts]
            found = find_candidates(texts, self.filler, self.tagger, self.likelihoods)
            if self.similarity is not None:
                found = self.similarity.keep([one.original for one in open_drafts], found)
            for draft, candidates in zip(open_drafts, found, strict=True):
                draft.take(candidates)
        for example, draft in zip(examples, drafts, strict=True):
            words, changes = draft.choose()
            fits = len(draft.original.spans) <= self.max_words
            yield propose_change(
                example, words.text, KIND,
                changes=changes,
                reason=draft.reason if fits else TOO_LONG,
                keep_unchanged=self.keep_unchanged,
            )  # fmt: skip

    def _draft(self, example: Example) -> ClareDraft:
        words = Words.read(normalise(example.text))
        count = len(words.spans)
        wanted = count_changes(self.share, count) if 0 < count <= self.max_words else 0
        return ClareDraft(words, wanted, derive(self.seed, KIND, example.key))
