"""Prompts of vision-language models for questions and for entailment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from PIL.Image import Image

from cfaug.core.answers import Question
from cfaug.core.errors import RejectedError, UserError
from cfaug.core.files import find_prompt_file, read_keys
from cfaug.core.safety.safe_loading import render_chat
from cfaug.core.types import ENTAILMENT
from cfaug.models.checkpoints import continuation

IMAGE, QUESTION = "{image}", "{question}"
"""Placeholders of the image and of the question in a prompt."""
MOST_TEMPLATE = 2**20
"""Limit of a chat template's length in characters; known ones have up to about 10,000."""
LONG = 2**20
"""Limit of the number of characters in a question's texts: no model reads longer ones."""


@dataclass(frozen=True)
class Option:
    """The tokens of an option after its prompt.

    Attributes:
        ids: the tokens of prompt and option together, in which an image is one token.
        start: the place of the option's first token. If the last token of the prompt and the first
            one of the option have merged, it is the place of the merged token.
    """

    ids: list[int]
    start: int


class Prompts:
    """Writes a question in a model's format, and tokenizes it like the model's processor.

    Args:
        prompt: the template, with ``{question}`` and ``{image}`` (BLIP-2's processor puts the image
            first by itself); ``None`` is the processor's chat template.
    """

    def __init__(self, processor: Any, prompt: str | None, folder: Path) -> None:
        self.processor = processor
        self.tokenizer = processor.tokenizer
        self.prompt = prompt
        self.folder = folder
        if prompt is None and not getattr(processor, "chat_template", None):
            raise UserError(
                f"{folder} has no chat template: give a template of prompts, as in "
                f"model.prompt='USER: {IMAGE}\\n{QUESTION} ASSISTANT:'"
            )
        if prompt is None and len(str(processor.chat_template)) > MOST_TEMPLATE:
            raise UserError(
                f"{folder} has a chat template of {len(str(processor.chat_template)):,} characters;"
                f" at most {MOST_TEMPLATE:,} are read: give a template with model.prompt=..."
            )
        token = getattr(processor, "image_token", None)
        if token is None:
            raise UserError(f"{folder}: its processor names no token for an image")
        self.image_token = str(getattr(token, "content", token))
        self.image_id = int(self.tokenizer.convert_tokens_to_ids(self.image_token))
        self.image_first = getattr(processor, "num_query_tokens", None) is not None
        self._special = {*self.tokenizer.all_special_tokens, self.image_token}

    def text(self, question: Question, image: bool) -> str:
        """Return the prompt of a question, up to the beginning of the answer.

        Raises:
            RejectedError: ``special_token`` if a text holds a special token of the model, such as
                the one of an image; ``context`` if the texts are longer than any model reads.
        """
        texts = [question.text, question.opening, *question.options]
        for example in question.demonstrations:
            texts += [example.question, example.answer]
        length = sum(map(len, texts))
        if length > LONG:
            raise RejectedError("context", f"{question.text[:80]!r} ... is longer than {LONG:,}")
        for text in texts:
            held = sorted(token for token in self._special if token in text)
            if held:
                raise RejectedError(
                    "special_token",
                    f"{text!r} holds {held[0]}, which is a special token of the model in "
                    f"{self.folder}",
                )
        if self.prompt is None:
            messages = []
            for example in question.demonstrations:
                messages.append(_message("user", example.question, example.image is not None))
                messages.append(_message("assistant", example.answer, False))
            messages.append(_message("user", question.text, image))
            try:
                written = render_chat(self.processor, messages)
            except Exception as error:  # one of Jinja's many errors, or any error of a template
                raise UserError(
                    f"{self.folder}: its chat template cannot write a question with image and text "
                    f"({type(error).__name__}: {error}): give a template with model.prompt=..."
                ) from error
            if len(written) > 2**20 + length:
                raise UserError(
                    f"{self.folder}: its chat template writes {len(written):,} characters around a "
                    "question: give a template with model.prompt=..."
                )
            return _go_on(written, question.opening)
        parts = [
            f"{self._fill(example.question, example.image is not None)} {example.answer}\n"
            for example in question.demonstrations
        ]
        return _go_on("".join(parts) + self._fill(question.text, image), question.opening)

    def images(self, question: Question, image: Image | None) -> list[Image]:
        """Return the images of a prompt in the order in which it shows them."""
        shown = [demonstration.image for demonstration in question.demonstrations]
        return [picture for picture in (*shown, image) if picture is not None]

    def last_place(self, ids: Sequence[int], images: bool) -> int:
        """Return the place of the last image's token, up to which the inputs depend on the images.

        Returns:
            The place; 0 without images, and -1 if the processor puts the image first.
        """
        if not images:
            return 0
        if self.image_first:
            return -1
        positions = [position for position, token in enumerate(ids) if token == self.image_id]
        if not positions:
            raise UserError(
                f"{self.folder}: the prompt has no place for an image ({self.image_token}): "
                + ("its chat template leaves it out" if self.prompt is None else
                   f"put {IMAGE} into model.prompt={self.prompt!r}")
            )  # fmt: skip
        return positions[-1]

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of a prompt as the processor writes them; an image is one token."""
        added = self.adds_special_tokens(text)
        ids = list(self.tokenizer(text, add_special_tokens=added)["input_ids"])
        return self.without_end(ids) if added else ids

    def adds_special_tokens(self, text: str) -> bool:
        """Return whether the tokenizer should add special tokens, which a template may contain."""
        begin = self.tokenizer.bos_token
        return not (begin and text.startswith(begin))

    def without_end(self, ids: list[int]) -> list[int]:
        """Remove the token with which some tokenizers end every text: the model continues it."""
        ends = {self.tokenizer.eos_token_id, self.tokenizer.sep_token_id} - {None}
        return ids[:-1] if ids and ids[-1] in ends else ids

    def option(self, prompt: str, prompt_ids: Sequence[int], option: str) -> Option:
        """Return the tokens of an option after its prompt.

        Raises:
            RejectedError: ``no_token`` if the option adds no token to the prompt.
        """
        ids = self.tokens(_go_on(prompt, option))
        start = continuation(prompt_ids, ids)
        if start >= len(ids):
            raise RejectedError(
                "no_token", f"{self.folder}: the option {option!r} has no token after its prompt"
            )
        return Option(ids, start)

    def _fill(self, question: str, image: bool) -> str:
        token = self.image_token if image and not self.image_first else ""
        return str(self.prompt).replace(IMAGE, token).replace(QUESTION, question)


def _go_on(prompt: str, text: str) -> str:
    """Append a text to a prompt, separated by a space unless the prompt ends with one."""
    space = " " if text and prompt and not prompt[-1].isspace() else ""
    return f"{prompt}{space}{text}"


def _message(role: str, text: str, image: bool) -> dict[str, Any]:
    parts: list[dict[str, str]] = [{"type": "image"}] if image else []
    return {"role": role, "content": [*parts, {"type": "text", "text": text}]}


HYPOTHESIS = "{hypothesis}"
SHIPPED = ("yes_maybe_no", "labels")
Reduction = Literal["sum", "token_mean"]


@dataclass(frozen=True)
class EntailmentPrompt:
    """A question, and the answer for each label.

    Attributes:
        question: the question, with the placeholder ``{hypothesis}`` once.
        options: {label: answer}, one for each of ``cfaug.core.types.ENTAILMENT``.
    """

    question: str
    options: Mapping[str, str]


def read_prompt(name: str) -> EntailmentPrompt:
    """Read a shipped prompt, or a YAML file with ``question`` and ``options``.

    >>> read_prompt("yes_maybe_no").options["neutral"]
    'maybe'
    """
    file = find_prompt_file(
        name, SHIPPED, "models/entailment_prompts", "model.wording", "question and options"
    )
    content = read_keys(file, ("question", "options"))
    question, options = content["question"], content["options"]
    if not isinstance(question, str) or question.count(HYPOTHESIS) != 1:
        raise UserError(f"{file}: the question should be a text with {HYPOTHESIS} exactly once")
    if not isinstance(options, dict) or set(options) != set(ENTAILMENT):
        raise UserError(
            f"{file}: options should give an answer for each of {', '.join(ENTAILMENT)}"
        )
    wrong = [label for label, text in options.items() if not isinstance(text, str) or not text]
    if wrong:
        raise UserError(
            f"{file}: the answer for {wrong[0]} should be a text, not {options[wrong[0]]!r}; YAML "
            "takes yes and no for booleans: put them in quotation marks"
        )
    if len(set(options.values())) < len(options):
        raise UserError(f"{file}: two labels have the same answer")
    return EntailmentPrompt(question, options)
