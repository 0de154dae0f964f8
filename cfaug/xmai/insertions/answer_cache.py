"""A cache of models' answers by question, so that ablations repeat no question.

``<cache>/insertion/<model>/`` holds the answers of one model with its weights and settings. A file
is written atomically, has its checksum in its name and is never changed, so that processes share a
cache without coordination, and any file may be deleted at any time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError, say
from cfaug.core.files import KeptRecords
from cfaug.core.weights import sha256_text


class AnswerCache:
    """The answers of one model.

    Args:
        folder: the folder of all models' answers; ``None`` keeps no answers, neither on disk nor in
            memory.
        identity: the model's weights and every setting that changes an answer, as a text.
    """

    def __init__(self, folder: Path | None, identity: str) -> None:
        name = sha256_text(identity)[:32]
        self._folder = None if folder is None else folder / "insertion" / name
        self._fresh: dict[str, str] = {}
        self.asked = 0

    @property
    def keeps(self) -> bool:
        """Whether answers are kept."""
        return self._folder is not None

    def ask(
        self, questions: Sequence[Any], answer: Callable[[list[int]], Sequence[Any]]
    ) -> list[Any]:
        """Return the answer to each question; the model answers equal questions once.

        Args:
            questions: the questions as JSON values.
            answer: a function that asks the model the questions at some places, and returns a JSON
                value for each; ``None`` stands for an unreadable image, and is not kept because it
                may differ next time.
        """
        keys = [sha256_text(json.dumps(question)) for question in questions]
        kept = self._kept if self.keeps else KeptRecords(None)
        first: dict[str, int] = {}
        for position, key in enumerate(keys):
            if key not in kept and key not in self._fresh:
                first.setdefault(key, position)
        self.asked += len(first)
        answers = answer(list(first.values())) if first else []
        # In the form that the next process will read: a tuple becomes a list.
        new = {key: json.dumps(value) for key, value in zip(first, answers, strict=True)}
        texts = self._fresh | new
        if self.keeps:
            self._fresh = {key: text for key, text in texts.items() if text != "null"}
        return [json.loads(texts[key]) if key in texts else kept[key] for key in keys]

    def write(self) -> None:
        """Write the new answers."""
        if not self._fresh:
            return
        try:
            self._kept.add({key: json.loads(text) for key, text in self._fresh.items()})
        except OSError as error:
            raise UserError(
                f"answers of models cannot be kept in {self._folder} ({error}): free some space, "
                "or set recipe.editor.cache=null"
            ) from error
        self._fresh = {}

    @cached_property
    def _kept(self) -> KeptRecords:
        kept = KeptRecords(self._folder)
        if kept.damaged:
            say(
                f"{kept.damaged} files in {self._folder} were damaged; "
                "their questions are asked again"
            )
        return kept
