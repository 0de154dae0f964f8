"""Variations of captions by a server that speaks OpenAI's protocol: vLLM, llama.cpp, Ollama, ..."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from cfaug.core.weights import sha256_text
from cfaug.editing.edit_format import unique
from cfaug.editing.variations import VariationRequest, Variations
from cfaug.generate.chat_asking import (
    EMPTY,
    WRONG_FORM,
    ChatAnswer,
    ChatAsker,
    ChatTask,
    UnusableError,
    is_text,
)

ASK = (
    'Answer with JSON: {{"variations": [...]}}, a list of at most {count} whole sentences, and '
    "nothing else."
)

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"variations": {"type": "array", "items": {"type": "string"}}},
    "required": ["variations"],
    "additionalProperties": False,
}


class ChatServer(ChatAsker):
    """Requests variations of captions from a server; the arguments are those of ``ChatAsker``."""

    def vary(self, requests: Sequence[VariationRequest]) -> list[Variations]:
        """Return the answer to each request, in order; answered requests are not sent again.

        Raises:
            UnavailableError: if the server is unreachable, or refuses every question; the answers
                so far are kept.
        """
        return [_variations(one) for one in self.ask([_task(request) for request in requests])]

    def describe(self) -> dict[str, str]:
        """Return the model and the settings, without the server's address and key."""
        return {"perturber": f"chat server {self.identity()}"}


def _task(request: VariationRequest) -> ChatTask:
    parts = [request.prompt.text, request.caption, request.count, request.seed]
    return ChatTask(
        key=sha256_text(json.dumps(parts)),
        text=request.prompt.say(request.caption),
        form=ASK.format(count=request.count),
        schema=SCHEMA,
        seed=request.seed,
        read=partial(_read_variations, request.count),
    )


def _read_variations(count: int, found: Any) -> dict[str, Any]:
    texts = found.get("variations") if isinstance(found, dict) else None
    if not isinstance(texts, list) or not all(map(is_text, texts)):
        raise UnusableError(WRONG_FORM)
    good = unique(texts)[:count]
    if not good:
        raise UnusableError(EMPTY)
    return {"texts": list(good)}


def _variations(answer: ChatAnswer) -> Variations:
    if answer.found is None:
        return Variations(problem=answer.problem, extra=answer.extra)
    return Variations(tuple(answer.found["texts"]))
