"""Annotations kept on disk, so that no model is asked about the same content twice.

``<cache>/annotations/<annotator>/`` holds what one annotator, with these weights and settings, said
of contents, each under the hash of what the annotator reads.
"""

from __future__ import annotations

from pathlib import Path

from cfaug.data.storage.shards import disk_errors
from cfaug.kept_records import KeptRecords, Record
from cfaug.messages import say

Annotation = Record


class AnnotationCache(KeptRecords):
    """What one annotator said.

    Args:
        folder: of all annotators; made when something is added. ``None`` keeps nothing on disk.
        identity: of the annotator: a hash of its weights and settings.
    """

    def __init__(self, folder: Path | None, identity: str) -> None:
        super().__init__(None if folder is None else folder / "annotations" / identity[:32])
        if self.damaged:
            say(f"{self.damaged} files in {self.folder} were damaged; what they held is annotated "
                "again")  # fmt: skip

    def _write(self, name: str, content: bytes) -> None:
        """Write a file.

        Raises:
            UserError: if the disk is full or refuses.
        """
        assert self.folder is not None
        with disk_errors(self.folder, f"annotations {name}", len(content)):
            super()._write(name, content)
