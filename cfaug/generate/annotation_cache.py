"""Annotations kept on disk, so that no model meets the same content twice.

``<cache>/annotations/<annotator>/`` holds what one annotator, with these weights and settings, said
of contents, each under the hash of what the annotator reads. A file holds some batches, is written
whole, has its checksum in its name and is never changed after that; so parts and processes share a
cache without talking. Any file may be deleted at any time; a damaged one is deleted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cfaug.data.storage.shards import disk_errors
from cfaug.kept_files import read_kept, write_kept
from cfaug.messages import say
from cfaug.weights import sha256_text

Annotation = Mapping[str, Any]


class AnnotationCache:
    """What one annotator said.

    Args:
        folder: of all annotators; made when something is added. ``None`` keeps nothing on disk.
        identity: of the annotator: a hash of its weights and settings.
    """

    def __init__(self, folder: Path | None, identity: str) -> None:
        self._folder = None if folder is None else folder / "annotations" / identity[:32]
        self._known: dict[str, Annotation] = {}
        if self._folder is not None:
            damaged = read_kept(self._folder, "*.jsonl", self._read_file)
            if damaged:
                say(
                    f"{damaged} files in {self._folder} were damaged; what they held is annotated "
                    "again"
                )

    def __contains__(self, key: str) -> bool:
        """Say whether something is known of a content."""
        return key in self._known

    def __len__(self) -> int:
        """Return how many contents something is known of."""
        return len(self._known)

    def __getitem__(self, key: str) -> Annotation:
        """Return what is known of a content."""
        return self._known[key]

    def add(self, found: Mapping[str, Annotation]) -> None:
        """Keep annotations by the key of their content.

        Raises:
            UserError: if the disk is full or refuses.
        """
        lines = [json.dumps({"key": key, "found": dict(one)}) for key, one in found.items()]
        # As the next process will read it: a tuple becomes a list.
        self._known.update({one["key"]: one["found"] for one in map(json.loads, lines)})
        if self._folder is None or not found:
            return
        content = "".join(f"{line}\n" for line in lines).encode()
        name = sha256_text(" ".join(found))[:32]
        with disk_errors(self._folder, f"annotations {name}", len(content)):
            write_kept(self._folder, name, ".jsonl", content)

    def _read_file(self, file: Path) -> None:
        # Not splitlines: U+2028 may stand within a caption.
        for line in file.read_bytes().split(b"\n"):
            if line:
                one = json.loads(line)
                self._known[one["key"]] = one["found"]
