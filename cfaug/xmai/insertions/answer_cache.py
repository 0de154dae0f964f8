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
from cfaug.core.files import read_kept, write_kept
from cfaug.core.weights import sha256_text

KEY, FOUND = '{"key": "', '", "found": '
"""The texts before the key and before the answer in a line of JSON."""

NOTHING = "null"
"""The answer for an unreadable image, which is not kept because it may differ next time."""


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
                value for each.
        """
        keys = [sha256_text(json.dumps(question)) for question in questions]
        known = self._known if self._folder is not None else {}
        first: dict[str, int] = {}
        for place, key in enumerate(keys):
            if key not in known:
                first.setdefault(key, place)
        self.asked += len(first)
        found = answer(list(first.values())) if first else []
        # Answers have the form that the next process will read: a tuple becomes a list.
        new = {key: json.dumps(one) for key, one in zip(first, found, strict=True)}
        if self._folder is not None:
            worth = {key: one for key, one in new.items() if one != NOTHING}
            known.update(worth)
            self._fresh.update(worth)
        return [json.loads(new[key] if key in new else known[key]) for key in keys]

    def write(self) -> None:
        """Write the new answers."""
        if self._folder is None or not self._fresh:
            return
        lines = [f"{KEY}{key}{FOUND}{one}}}\n" for key, one in self._fresh.items()]
        name = sha256_text(" ".join(self._fresh))[:32]
        try:
            write_kept(self._folder, name, ".jsonl", "".join(lines).encode())
        except OSError as error:
            raise UserError(
                f"answers of models cannot be kept in {self._folder} ({error}): free some space, "
                "or set recipe.editor.cache=null"
            ) from error
        self._fresh = {}

    @cached_property
    def _known(self) -> dict[str, str]:
        known: dict[str, str] = {}

        def read(file: Path) -> None:
            for line in file.read_bytes().split(b"\n"):
                if line:
                    # Parsed on demand: most settings need only a part.
                    head, found, answer = line.decode().partition(FOUND)
                    if not found or not head.startswith(KEY):
                        raise ValueError(f"{file} has a line that is not an answer")
                    known[head.removeprefix(KEY)] = answer[:-1]

        assert self._folder is not None
        damaged = read_kept(self._folder, "*.jsonl", read)
        if damaged:
            say(f"{damaged} files in {self._folder} were damaged; their questions are asked again")
        return known
