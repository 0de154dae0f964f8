"""Whether an index in the cache was made before rules that change what is read of its source.

Only such indexes are made again: that of a source to which no rule applies is kept.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from cfaug.data.index.disk_format import ABOUT, RULES, text_array
from cfaug.data.index.extra_columns import Strings
from cfaug.data.index.reading import ScanReport
from cfaug.data.shards.codec import scan
from cfaug.data.sources.missing import MISSING
from cfaug.data.sources.splits import folder_split, may_be_split, split_kind
from cfaug.data.sources.tars import OwnShards, TarReader, TarSample


def is_outdated(folder: Path, reading: ScanReport | None) -> bool:
    """Return whether another reading of an index's source could differ, by rules since then."""
    about: dict[str, Any] = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    if about.get("rules") == RULES or reading is None:
        return False
    if Strings.load(folder, "texts").has_any(text_array([text.encode() for text in MISSING])):
        return True
    if reading.kind == OwnShards.kind:
        return False
    if any(may_be_split(name) for name in (*reading.used, *reading.unused, *reading.kept)):
        return True
    files = list(Strings.load(folder, "files"))
    if reading.kind == TarReader.kind:
        return _first_sample_says(Path(files[0]))
    home = os.path.commonpath(files) if len(files) > 1 else os.path.dirname(files[0])
    folders = {os.path.dirname(file) for file in files}
    names = (folder_split(f"{os.path.relpath(inside, home)}/x") for inside in folders)
    return len({split_kind(name) for name in names if name is not None}) > 1


def _first_sample_says(tar_file: Path) -> bool:
    with tar_file.open("rb") as handle:
        first = next(scan(tar_file), None)
        if first is None:
            return False
        return any(map(may_be_split, TarSample(tar_file, handle.fileno(), *first).fields()))
