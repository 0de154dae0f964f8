"""A cache of annotations on disk, so that a model runs only once on the same content.

``<cache>/annotations/<annotator>/`` holds the results of one annotator with certain weights and
settings, each under the hash of the content that the annotator reads.
"""

from __future__ import annotations

from pathlib import Path

from cfaug.core.messages import say
from cfaug.core.record_cache import KeptRecords, Record
from cfaug.data.shards.shards import disk_errors

Annotation = Record


class AnnotationCache(KeptRecords):
    """The cached results of one annotator.

    Args:
        folder: the folder of all annotators' results, made when a result is added; ``None`` keeps
            results only in memory.
        identity: a hash of the annotator's weights and settings.
    """

    def __init__(self, folder: Path | None, identity: str) -> None:
        super().__init__(None if folder is None else folder / "annotations" / identity[:32])
        if self.damaged:
            say(f"{self.damaged} files in {self.folder} were damaged; their contents are "
                "annotated again")  # fmt: skip

    def _write(self, name: str, content: bytes) -> None:
        """Write a file.

        Raises:
            UserError: if the disk is full or cannot be written.
        """
        assert self.folder is not None
        with disk_errors(self.folder, f"annotations {name}", len(content)):
            super()._write(name, content)
