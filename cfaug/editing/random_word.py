"""LANCE-R, the baseline: a masked language model's guess replaces one random word of a caption.

All words except function words are equally likely (Prabhu et al., 2023, section 4.1). There is no
prompt, no kind, and by default no guard of the label, because the paper mentions none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from cfaug.core.rng import generator
from cfaug.core.types import Edited, Example
from cfaug.core.validation import Positive, Seed, check_fields
from cfaug.editing.edit_prompts import CAPTION, EditPrompt
from cfaug.editing.instructed_edit import InstructedEdit
from cfaug.editing.protocols import Blank, EditGuard, Fill, MaskFiller, VariationRequest, Variations
from cfaug.editing.sentence import Sentence, Slot, copy_case, replace_slot, split
from cfaug.editing.word_lists import list_words

NO_WORD, NO_GUESS = "no word to replace", "no other word"
SPARE = 2
"""Number of spare words to replace, as the guesses for a word may contain no usable one."""
STOP_WORDS = list_words("function_words")
"""Function words, which carry no content."""


@dataclass(frozen=True)
class RandomWordEdit:
    """Replaces a random word of a caption; the edits are of the kind ``random``.

    Args:
        filler: the model that guesses words for a blank (DistilBERT in the paper).
        edits: the number of edits of a caption, each of a different word.
        top_k: the number of guesses; the best one that is another word is used.
        guards: the guards by name, which reject edits; the paper has none.
        checks: the checks by name, which judge edits before the guards; see ``InstructedEdit``.
        seed: the seed of the choice of words, together with the example's key.
    """

    filler: MaskFiller
    edits: Positive = 1
    top_k: Positive = 10
    guards: Mapping[str, EditGuard | None] = field(default_factory=dict)
    checks: Mapping[str, EditGuard | None] = field(default_factory=dict)
    seed: Seed = 0

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor")

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return the edits of the first text of each example, in order."""
        return self._editor.edit(examples)

    @cached_property
    def _editor(self) -> InstructedEdit:
        return InstructedEdit(
            RandomWords(self.filler, self.top_k),
            prompts=(EditPrompt("random", CAPTION),),
            per_kind=self.edits,
            # If a guard rejects an edit, another word of the caption is edited.
            ask_for=self.edits + (SPARE if any(self.guards.values()) else 0),
            guards=self.guards,
            checks=self.checks,
            seed=self.seed,
        )

    def describe(self) -> dict[str, str]:
        """Return the descriptions of the filler, the guards and the checks."""
        return {k: v for k, v in self._editor.describe().items() if k != "prompts"}


@dataclass(frozen=True)
class RandomWords:
    """Writes variations of captions by replacing a word: a ``VariationModel``."""

    filler: MaskFiller
    top_k: int = 10

    def vary(self, requests: Sequence[VariationRequest]) -> list[Variations]:
        """Return up to the requested variations of each caption, each with one new word."""
        drawn = []
        for request in requests:
            sentence = split(request.caption)
            fit = [
                i
                for i, word in enumerate(sentence.words)
                if word.replace("-", "").isalpha()
                and len(word) > 1
                and word.lower() not in STOP_WORDS
            ]
            order = generator(request.seed, "word").permutation(len(fit))
            drawn.append((sentence, [fit[i] for i in order[: request.count + SPARE]]))
        blanks = [Blank(s.text, *s.spans[place]) for s, places in drawn for place in places]
        fills = iter(self.filler.fill(blanks, self.top_k) if blanks else [])
        answers = []
        for request, (sentence, places) in zip(requests, drawn, strict=True):
            texts = [_replace(sentence, place, next(fills)) for place in places]
            good = tuple(text for text in texts if text is not None)[: request.count]
            answers.append(Variations(good, "" if good else NO_GUESS if places else NO_WORD))
        return answers

    def describe(self) -> dict[str, str]:
        """Return the description of the filler."""
        return {f"perturber {name}": said for name, said in self.filler.describe().items()}


def _replace(sentence: Sentence, place: int, fills: Sequence[Fill]) -> str | None:
    """Return the caption with the best guess that is another word and not a function word."""
    before = sentence.words[place]
    for fill in fills:
        if fill.word is not None and fill.word.lower() not in {before.lower(), *STOP_WORDS}:
            word = copy_case(fill.word, before)
            return replace_slot(sentence, Slot(place, place), word, article=True).text
    return None
