"""Edits of named kinds: captions varied by a model that is told which part to change (LANCE, 3.1).

Every kind of edit has one or more prompts (``edit_prompts``). A model, a server or rules
write variations for them. Guards reject variations that change the label, or that do not change the
meaning. The proposals are drawn at random from the rest. Every rejected edit is kept with its
reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from cfaug.core.binding import ReadWith
from cfaug.core.errors import UserError
from cfaug.core.rng import derive, generator
from cfaug.core.safety.safe_loading import read_json, render_chat
from cfaug.core.types import Edit, Edited, Example, Proposal, Rejected
from cfaug.core.validation import Count, Positive, Seed, check_fields
from cfaug.core.weights import sha256_text
from cfaug.editing.edit_prompts import FILE, EditFormat, EditPrompt, parse_variations, read_prompts
from cfaug.editing.language_models import SampledLM
from cfaug.editing.protocols import (
    CaptionEdit,
    EditGuard,
    VariationModel,
    VariationRequest,
    Variations,
)
from cfaug.editing.sentence import normalise

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
        model: the model that writes the variations.
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
        if any(getattr(check, "reject", False) for check in _present(self.checks)):
            raise UserError(
                "a check with reject=true rejects nothing, as checks only measure: give it as a "
                "guard, under recipe.editor.editor.guards"
            )
        names = [guard.name for guard in self._guards]
        if len(set(names)) < len(names):
            raise UserError(f"two guards have one name: {', '.join(names)}")

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return the edits of the first text of each example, by kind, in order."""
        said = [normalise(example.text) for example in examples]
        captions = [text if len(text.split()) <= LONGEST else "" for text in said]
        asked = [
            (row, prompt) for row, text in enumerate(captions) if text for prompt in self._prompts
        ]
        sheets = [_Sheet() for _ in examples]
        edits = self._ask(examples, captions, asked, sheets)
        edits = _count("changed", _drop_repeated(edits, self.max_words, sheets), sheets)
        for check in _present(self.checks):
            edits = [edit for edit, _ in _judge(check, edits)]
        for guard in self._guards:
            edits = _count(guard.name, _pass(guard, edits, sheets), sheets)
        drawn = self._draw(examples, edits, sheets)
        return [
            sheets[row].edited(drawn[row])
            if captions[row]
            else Edited((), {TOO_MANY_WORDS if said[row] else NO_WORDS: 0})
            for row in range(len(examples))
        ]

    def describe(self) -> dict[str, str]:
        """Return the descriptions of model, guards and checks, and the hash of the prompts."""
        described = dict(self.model.describe())
        words = [[prompt.name, prompt.text] for prompt in self._prompts]
        described["prompts"] = f"{len(words)} prompts sha256:{sha256_text(str(words))[:16]}"
        for part in (*self._guards, *_present(self.checks)):
            described |= part.describe()
        return described

    @property
    def _guards(self) -> list[EditGuard]:
        return _present(self.guards)

    def _most(self, kind: str) -> int:
        return self.per_kind.get(kind, 0) if isinstance(self.per_kind, Mapping) else self.per_kind

    def _ask(
        self,
        examples: Sequence[Example],
        captions: Sequence[str],
        asked: Sequence[tuple[int, EditPrompt]],
        sheets: Sequence[_Sheet],
    ) -> list[CaptionEdit]:
        """Return every variation; problems of a request are noted on the caption's sheet."""
        requests = [
            VariationRequest(
                captions[row],
                prompt,
                self.ask_for,
                derive(self.seed, "variations", examples[row].key, prompt.name),
            )
            for row, prompt in asked
        ]
        found = []
        for (row, prompt), said in zip(asked, self.model.vary(requests), strict=True):
            if not said.texts:
                extra = {"prompt": prompt.name, **said.extra}
                reason = said.problem or NO_VARIATIONS
                sheets[row].reject("", Edit(prompt.kind, "", ""), reason, extra)
            found += [
                CaptionEdit(row, examples[row], captions[row], text, prompt.name, prompt.kind)
                for text in map(normalise, said.texts)
                if text
            ]
        return _count("variations", found, sheets)

    def _draw(
        self, examples: Sequence[Example], edits: Sequence[CaptionEdit], sheets: Sequence[_Sheet]
    ) -> list[list[CaptionEdit]]:
        """Return the proposed edits of each caption, by kind, drawn at random."""
        of: dict[tuple[int, str], list[CaptionEdit]] = {}
        for edit in edits:
            of.setdefault((edit.row, edit.kind), []).append(edit)
        drawn: list[list[CaptionEdit]] = [[] for _ in examples]
        for row, example in enumerate(examples):
            for kind in dict.fromkeys(prompt.kind for prompt in self._prompts):
                some = of.get((row, kind), [])
                order = generator(self.seed, "drawn", example.key, kind).permutation(len(some))
                chosen = order[: self._most(kind)].tolist()
                drawn[row] += [some[i] for i in chosen]
                for i in sorted(set(range(len(some))) - set(chosen)):
                    sheets[row].reject_edit(some[i], NOT_DRAWN)
        return drawn


class _Sheet:
    """The counts and the rejected edits of one caption."""

    def __init__(self) -> None:
        self.survivors: dict[str, int] = {}
        self._rejected: list[Rejected] = []

    def reject(self, text: str, edit: Edit, reason: str, extra: Mapping[str, Any]) -> None:
        self._rejected.append(Rejected(text, edit, reason, extra))

    def reject_edit(self, edit: CaptionEdit, reason: str) -> None:
        self.reject(edit.text, edit.edit, reason, {"prompt": edit.prompt, **edit.notes})

    def edited(self, drawn: Sequence[CaptionEdit]) -> Edited:
        survivors = {NO_WORDS: 1, **self.survivors}
        return Edited(tuple(map(propose, drawn)), survivors, tuple(self._rejected))


def propose(edit: CaptionEdit) -> Proposal:
    """Return the proposal of an edit: its caption, the edited one, and its details."""
    example = edit.example
    before, after = edit.places()
    known = {"prompt": edit.prompt, **edit.notes}
    extra: dict[str, Any] = {"edits": [{"span_0": before, "span_1": after, **known}]}
    if example.text != edit.caption:
        extra["raw"] = example.text
    return Proposal(
        example, (edit.caption, edit.text), (None, edit.edit), extra, details=({}, known)
    )


def _present(parts: Mapping[str, EditGuard | None]) -> list[EditGuard]:
    return [part for part in parts.values() if part is not None]


def _count(stage: str, edits: Iterable[CaptionEdit], sheets: Sequence[_Sheet]) -> list[CaptionEdit]:
    """Write the number of a caption's remaining edits on its sheet, and return the edits."""
    left = list(edits)
    for sheet in sheets:
        sheet.survivors[stage] = 0
    for edit in left:
        sheets[edit.row].survivors[stage] += 1
    return left


def _drop_repeated(
    edits: Sequence[CaptionEdit], max_words: int, sheets: Sequence[_Sheet]
) -> Iterator[CaptionEdit]:
    """Yield edits that change the caption, are not too long, and are not repeated."""
    seen: dict[tuple[int, str], None] = {}
    for edit in edits:
        key = (edit.row, edit.text.lower().rstrip("."))
        if edit.span == ("", ""):
            sheets[edit.row].reject_edit(edit, UNCHANGED)
        elif len(edit.text.split()) > max_words:
            sheets[edit.row].reject_edit(edit, TOO_LONG)
        elif key in seen:
            sheets[edit.row].reject_edit(edit, DUPLICATED)
        else:
            seen[key] = None
            yield edit


def _judge(guard: EditGuard, edits: Sequence[CaptionEdit]) -> list[tuple[CaptionEdit, str]]:
    """Return each edit with a guard's notes, and its reason."""
    verdicts = guard.judge(edits)
    return [
        (replace(edit, notes={**edit.notes, **verdict.notes}), verdict.reason)
        for edit, verdict in zip(edits, verdicts, strict=True)
    ]


def _pass(
    guard: EditGuard, edits: Sequence[CaptionEdit], sheets: Sequence[_Sheet]
) -> Iterator[CaptionEdit]:
    """Yield the edits that pass a guard."""
    for edit, reason in _judge(guard, edits):
        if reason:
            sheets[edit.row].reject_edit(edit, reason)
        else:
            yield edit


# Variations of captions by local language models: instruct models, and tuned ones.

NO_ROOM = "prompt too long"
EMPTY = "empty answer"
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
        found = self.sample(prompts, [request.seed for request in requests])
        return [_read(text, one) for text, one in zip(found, requests, strict=True)]

    def _say(self, request: VariationRequest) -> str:
        raise NotImplementedError


@dataclass(frozen=True)
class InstructModel(_LanguageEdits):
    """An instruct model of transformers, prompted with its own chat template.

    ``name_or_path`` is any folder or Hub id of AutoModelForCausalLM with a chat template, such as
    ``Qwen/Qwen3-4B-Instruct-2507``.
    """

    read_with: ClassVar[ReadWith] = {"add_start_token": []}

    def _say(self, request: VariationRequest) -> str:
        said = f"{request.prompt.say(self._plain(request.caption))}\n\n"
        said += ANSWER.format(count=request.count)
        messages = [{"role": "user", "content": said}]
        try:
            return render_chat(self.tokenizer, messages)
        except Exception as error:  # a template may raise anything
            raise UserError(
                f"{self.name_or_path} has no chat template that works ({error}): name an instruct "
                "model, or ask a model that was tuned by cfaug.editing.instructed_edit.TunedModel"
            ) from error

    def _plain(self, caption: str) -> str:
        """Return a caption without text that the model would read as the end of a message."""
        for token in self.tokenizer.all_special_tokens:
            caption = caption.replace(token, " ")
        return " ".join(caption.split())

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
        _ = self.format
        words = sha256_text(str(read_json(self._own_folder / FILE)))
        return {**super().describe(), "perturber format": f"sha256:{words[:16]}"}


def _read(text: str | None, request: VariationRequest) -> Variations:
    """Return the variations of an answer, or the reason why there are none."""
    if text is None:
        return Variations(problem=NO_ROOM)
    found = parse_variations(text)[: request.count]
    if not found:
        return Variations(problem=EMPTY, extra={"answer": text[:EXCERPT]})
    return Variations(found)
