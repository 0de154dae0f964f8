"""Edits of named kinds: captions varied by a model that is told which part to change (LANCE, 3.1).

Every kind of edit has one or more prompts (``edit_prompts``). A model, a server or rules
write variations for them. Guards reject variations that change the label, or that do not change the
meaning. The proposals are drawn at random from the rest. Every rejected edit is kept with its
reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.rng import derive, generator
from cfaug.core.safety.safe_loading import read_json, render_chat
from cfaug.core.types import Edit, Edited, Example, Proposal, Rejected
from cfaug.core.validation import Count, Positive, Seed, check_fields
from cfaug.core.weights import sha256_text
from cfaug.editing.edit_prompts import (
    CAPTION,
    FILE,
    EditFormat,
    EditPrompt,
    parse_variations,
    read_prompts,
)
from cfaug.editing.language_models import SampledLM
from cfaug.editing.protocols import (
    Blank,
    CaptionEdit,
    EditGuard,
    MaskFiller,
    VariationModel,
    VariationRequest,
    Variations,
)
from cfaug.editing.sentence import Slot, copy_case, normalise, replace_slot, split
from cfaug.editing.word_lists import list_words

NO_WORDS = "words"
"""The stage at which a caption without words is rejected: its captioner returned nothing."""
LONGEST = 1500
"""Largest number of words of a caption to edit: longer texts do not describe a photo, and every
variation is a copy of the whole."""
TOO_MANY_WORDS = "max_words"
"""The stage at which a caption of more words is rejected."""
UNCHANGED, DUPLICATED, TOO_LONG = "same caption", "duplicated", "too long"
NOT_DRAWN = "not drawn"
"""The reason of a valid edit that was not needed."""
NO_VARIATIONS = "no variations"


@dataclass(frozen=True)
class InstructedEdit:
    """Varies captions by edits of named kinds.

    Args:
        prompts: the shipped ``examples`` or ``plain``, or your own folder, whose files name the
            kinds; or the prompts themselves.
        kinds: the kinds of edits, in the order of the proposals; ``None`` for every kind with a
            prompt.
        per_kind: the largest number of proposed edits of each kind for a caption: one number, or
            {kind: number}, where other kinds get no edits.
        ask_for: the number of variations requested with each prompt.
        guards: the guards by name, which reject edits one after the other; ``None`` in place of a
            guard leaves it out.
        checks: the checks by name, which judge every changed caption before the guards and reject
            none: their notes measure edits and guards (``cfaug.editing.edit_checks``).
        seed: the seed of everything random, together with the example's key and the prompt's name.
        max_words: the largest number of words in a variation; longer ones, as from a rambling
            model, are rejected.
    """

    model: VariationModel
    """the language model that follows the instruction"""
    prompts: str | Sequence[EditPrompt] = "examples"
    kinds: Sequence[str] | None = None
    per_kind: Count | Mapping[str, Count] = 1
    ask_for: Positive = 8
    guards: Mapping[str, EditGuard | None] = field(default_factory=dict)
    checks: Mapping[str, EditGuard | None] = field(default_factory=dict)
    seed: Seed = 0
    max_words: Positive = 60
    _prompts: tuple[EditPrompt, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor")
        given = self.prompts
        wanted = read_prompts(given, self.kinds) if isinstance(given, str) else tuple(given)
        object.__setattr__(self, "_prompts", tuple(p for p in wanted if self._most(p.kind)))
        named = self.per_kind if isinstance(self.per_kind, Mapping) else {}
        unknown = sorted(set(named) - {prompt.kind for prompt in wanted})
        if unknown:
            raise UserError(
                f"per_kind names {unknown[0]!r}, which is not a kind of prompts={self.prompts}: "
                f"choose from {', '.join(dict.fromkeys(p.kind for p in wanted))}"
            )
        if not self._prompts:
            raise UserError(f"per_kind={self.per_kind}: no edit of any kind is wanted")
        if any(getattr(check, "reject", False) for check in self._parts("checks")):
            raise UserError(
                "a check with reject=true rejects nothing, as checks only measure: give it as a "
                "guard, under recipe.editor.editor.guards"
            )
        names = [guard.name for guard in self._parts("guards")]
        if len(set(names)) < len(names):
            raise UserError(f"two guards have one name: {', '.join(names)}")

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return the edits of the first text of each example, by kind, in order."""
        given = [normalise(example.text) for example in examples]
        captions = [text if len(text.split()) <= LONGEST else "" for text in given]
        sheets = [_Sheet() for _ in examples]
        prompted = [
            (row, prompt) for row, text in enumerate(captions) if text for prompt in self._prompts
        ]
        requests = [
            VariationRequest(
                captions[row],
                prompt,
                self.ask_for,
                derive(self.seed, "variations", examples[row].key, prompt.name),
            )
            for row, prompt in prompted
        ]
        variations: list[CaptionEdit] = []
        for (row, prompt), answer in zip(prompted, self.model.vary(requests), strict=True):
            if not answer.texts:
                reason = answer.problem or NO_VARIATIONS
                extra = {"prompt": prompt.name, **answer.extra}
                nothing = Edit(prompt.kind, "", "")
                sheets[row].rejected.append(Rejected("", nothing, reason, extra))
            variations += [
                CaptionEdit(row, examples[row], captions[row], text, prompt.name, prompt.kind)
                for text in filter(None, map(normalise, answer.texts))
            ]
        edits = _keep("variations", [(edit, "") for edit in variations], sheets)
        judged = []
        seen = set()
        for edit in edits:
            key = (edit.row, edit.text.lower().rstrip("."))
            reason = ""
            if edit.span == ("", ""):
                reason = UNCHANGED
            elif len(edit.text.split()) > self.max_words:
                reason = TOO_LONG
            elif key in seen:
                reason = DUPLICATED
            else:
                seen.add(key)
            judged.append((edit, reason))
        edits = _keep("changed", judged, sheets)
        for check in self._parts("checks"):
            edits = [edit for edit, _ in _judge(check, edits)]
        for guard in self._parts("guards"):
            edits = _keep(guard.name, _judge(guard, edits), sheets)
        groups: dict[tuple[int, str], list[CaptionEdit]] = {}
        for edit in edits:
            groups.setdefault((edit.row, edit.kind), []).append(edit)
        results = []
        for row, (example, sheet) in enumerate(zip(examples, sheets, strict=True)):
            if not captions[row]:
                results.append(Edited((), {TOO_MANY_WORDS if given[row] else NO_WORDS: 0}))
                continue
            proposals = []
            for kind in dict.fromkeys(prompt.kind for prompt in self._prompts):
                some = groups.get((row, kind), [])
                order = generator(self.seed, "drawn", example.key, kind).permutation(len(some))
                drawn, left = np.split(order, [self._most(kind)])
                proposals += [_propose(some[i]) for i in drawn]
                for i in sorted(left):
                    sheet.reject(some[i], NOT_DRAWN)
            results.append(Edited(tuple(proposals), sheet.survivors, tuple(sheet.rejected)))
        return results

    def describe(self) -> dict[str, str]:
        """Return the descriptions of model, guards and checks, and the hash of the prompts."""
        described = dict(self.model.describe())
        words = [[prompt.name, prompt.text] for prompt in self._prompts]
        described["prompts"] = f"{len(words)} prompts sha256:{sha256_text(str(words))[:16]}"
        for part in (*self._parts("guards"), *self._parts("checks")):
            described |= part.describe()
        return described

    def _parts(self, name: Literal["guards", "checks"]) -> list[EditGuard]:
        return [part for part in getattr(self, name).values() if part is not None]

    def _most(self, kind: str) -> int:
        return self.per_kind.get(kind, 0) if isinstance(self.per_kind, Mapping) else self.per_kind


@dataclass(frozen=True)
class _Sheet:
    """The counts and the rejected edits of one caption."""

    survivors: dict[str, int] = field(default_factory=lambda: {NO_WORDS: 1})
    rejected: list[Rejected] = field(default_factory=list)

    def reject(self, edit: CaptionEdit, reason: str) -> None:
        extra = {"prompt": edit.prompt, **edit.notes}
        self.rejected.append(Rejected(edit.text, edit.edit, reason, extra))


def _keep(
    stage: str, judged: Iterable[tuple[CaptionEdit, str]], sheets: Sequence[_Sheet]
) -> list[CaptionEdit]:
    """Return the edits without a reason against them; sheets get their number, and the others."""
    for sheet in sheets:
        sheet.survivors[stage] = 0
    kept = []
    for edit, reason in judged:
        if reason:
            sheets[edit.row].reject(edit, reason)
        else:
            sheets[edit.row].survivors[stage] += 1
            kept.append(edit)
    return kept


def _judge(guard: EditGuard, edits: Sequence[CaptionEdit]) -> list[tuple[CaptionEdit, str]]:
    return [
        (replace(edit, notes={**edit.notes, **verdict.notes}), verdict.reason)
        for edit, verdict in zip(edits, guard.judge(edits), strict=True)
    ]


def _propose(edit: CaptionEdit) -> Proposal:
    before, after = edit.places()
    known = {"prompt": edit.prompt, **edit.notes}
    extra: dict[str, Any] = {"edits": [{"span_0": before, "span_1": after, **known}]}
    if edit.example.text != edit.caption:
        extra["raw"] = edit.example.text
    texts = (edit.caption, edit.text)
    return Proposal(edit.example, texts, (None, edit.edit), extra, details=({}, known))


# Variations of captions by local language models: instruct models, and tuned ones.

EXCERPT = 200
"""Length in characters of the excerpt that is kept of an answer without variations."""
ANSWER = "Answer with at most {count} variations, one a line, and nothing else."
"""The sentence after a prompt of Table 5, which does not specify the form of the answer."""


@dataclass(frozen=True)
class _LanguageEdits(SampledLM):
    """Variations by a language model; the settings are those of ``SampledLM``."""

    def vary(self, requests: Sequence[VariationRequest]) -> list[Variations]:
        """Return the model's answer to each request, drawn by its seed."""
        prompts = [self._say(request) for request in requests]
        texts = self.sample(prompts, [request.seed for request in requests])
        answers = []
        for text, request in zip(texts, requests, strict=True):
            if text is None:
                answers.append(Variations(problem="prompt too long"))
            elif variations := parse_variations(text)[: request.count]:
                answers.append(Variations(variations))
            else:
                extra = {"answer": text[:EXCERPT]}
                answers.append(Variations(problem="empty answer", extra=extra))
        return answers

    def _say(self, request: VariationRequest) -> str:
        raise NotImplementedError


@dataclass(frozen=True)
class InstructModel(_LanguageEdits):
    """An instruct model of transformers, prompted with its own chat template.

    ``weights`` is any folder or Hub id of AutoModelForCausalLM with a chat template, such as
    ``Qwen/Qwen3-4B-Instruct-2507``.
    """

    add_start_token: bool = field(default=True, init=False)  # its chat template has its own

    def _say(self, request: VariationRequest) -> str:
        caption = request.caption
        for token in self.tokenizer.all_special_tokens:  # one might end the message
            caption = caption.replace(token, " ")
        instruction = request.prompt.say(normalise(caption))
        content = f"{instruction}\n\n{ANSWER.format(count=request.count)}"
        try:
            return render_chat(self.tokenizer, [{"role": "user", "content": content}])
        except Exception as error:  # a template may raise anything
            raise UserError(
                f"{self.weights} has no chat template that works ({error}): name an instruct "
                "model, or ask a model that was tuned by cfaug.editing.instructed_edit.TunedModel"
            ) from error

    def _prompt_ids(self, prompts: Sequence[str]) -> list[list[int]]:
        """Return each prompt's tokens; the template has already added the special ones."""
        return self._ids(prompts, max_length=self._longest + 1, add_special_tokens=False)


@dataclass(frozen=True)
class TunedModel(_LanguageEdits):
    """A model that was tuned to edit captions, prompted in the words it was trained with.

    It is the output of ``python train.py experiment=lance_perturber``: a folder of a whole model,
    or the base model with ``adapter=FOLDER``.
    """

    def _say(self, request: VariationRequest) -> str:
        return self.format.prompt(request.prompt.name, request.caption)

    @cached_property
    def format(self) -> EditFormat:
        """The wording of the model's prompts, from the file beside its weights."""
        return EditFormat.read(self._own_folder)

    @property
    def _own_folder(self) -> Path:
        return self._folder if self.adapter is None else Path(self.adapter).expanduser()

    def describe(self) -> dict[str, str]:
        """Return the name, the hash of the weights, and the wording of the prompts."""
        _ = self.format  # refuses a broken file
        words = sha256_text(str(read_json(self._own_folder / FILE)))
        return {**super().describe(), "perturber format": f"sha256:{words[:16]}"}


# LANCE-R, the baseline: a masked language model's guess replaces one random word of a caption.
#
# All words except function words are equally likely (Prabhu et al., 2023, section 4.1). There is no
# prompt, no kind, and by default no guard of the label, because the paper mentions none.

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
    """

    filler: MaskFiller
    edits: Positive = 1
    top_k: Positive = 10
    guards: Mapping[str, EditGuard | None] = field(default_factory=dict)
    checks: Mapping[str, EditGuard | None] = field(default_factory=dict)
    seed: Seed = 0
    """the seed of what is drawn"""

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor")

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
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
        blanks = [Blank(s.text, *s.spans[index]) for s, indices in drawn for index in indices]
        fills = iter(self.filler.fill(blanks, self.top_k) if blanks else [])
        answers = []
        for request, (sentence, indices) in zip(requests, drawn, strict=True):
            texts = []
            for index in indices:
                before = sentence.words[index]
                unfit = {before.lower(), *STOP_WORDS}
                guesses = (fill.word for fill in next(fills) if fill.word is not None)
                best = next((guess for guess in guesses if guess.lower() not in unfit), None)
                if best is not None:
                    word, slot = copy_case(best, before), Slot(index, index)
                    texts.append(replace_slot(sentence, slot, word, article=True).text)
            good = tuple(texts[: request.count])
            answers.append(Variations(good, "" if good else NO_GUESS if indices else NO_WORD))
        return answers

    def describe(self) -> dict[str, str]:
        return {f"perturber {name}": value for name, value in self.filler.describe().items()}
