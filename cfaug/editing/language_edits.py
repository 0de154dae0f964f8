"""Variations of captions by local language models: instruct models, and tuned ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from cfaug.core.errors import UserError
from cfaug.core.read_with import ReadWith
from cfaug.core.safety.safe_loading import read_json, render_chat
from cfaug.core.weights import sha256_text
from cfaug.editing.edit_format import FILE, EditFormat, parse_variations
from cfaug.editing.sampled_lm import SampledLM
from cfaug.editing.variations import VariationRequest, Variations

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
        prompts = [self._say(one) for one in requests]
        found = self.sample(prompts, [one.seed for one in requests])
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
                "model, or ask a model that was tuned by cfaug.editing.language_edits.TunedModel"
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
        """Return the name, the hash of the weights, and the wording of the prompts.

        Raises:
            UserError: if the folder has no file of the wording, or an invalid one.
        """
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
