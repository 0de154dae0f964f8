"""Whether an index in the cache was made before rules that change what is read of its source.

Only such indexes are made again: that of a source to which no rule applies is kept.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from cfaug.core.safety.json_text import load_json
from cfaug.data.index.disk_format import ABOUT, RULES, text_array
from cfaug.data.index.extra_columns import Strings
from cfaug.data.index.reading import ScanReport
from cfaug.data.shards.codec import scan
from cfaug.data.sources.odd_texts import MISSING
from cfaug.data.sources.splits import folder_split, may_be_split, split_kind
from cfaug.data.sources.tars import OwnShards, TarReader, TarSample

SINCE = {
    "coco": 2, "caption_list": 2, "label_list": 2, "captioned_parquet": 2, "labelled_parquet": 2,
}  # fmt: skip
"""The newest rule that may change any source of a form. 2: captions marked ``is_rejected`` are left
out, lists of captions as NumPy prints them are several captions, and answers are no captions."""
CLASSES = "image_folder"
"""The form whose classes are folders. Since rule 2, cars_train and cars_test are splits."""


def is_outdated(folder: Path, reading: ScanReport | None) -> bool:
    """Return whether another reading of an index's source could differ, by rules since then."""
    about: dict[str, Any] = load_json((folder / ABOUT).read_text(encoding="utf-8"))
    rules = about.get("rules", 0)
    if rules == RULES or reading is None:
        return False
    if rules < SINCE.get(reading.kind, 0):
        return True
    if reading.kind == CLASSES and rules < 2:
        classes = {Path(file).parent.name for file in Strings.load(folder, "files")}
        if any(split_kind(word) for name in classes for word in re.split("[ _-]", name)):
            return True
    if rules:
        return False
    if Strings.load(folder, "texts").has_any(text_array([text.encode() for text in MISSING])):
        return True
    if reading.kind == OwnShards.kind:
        return False
    if any(may_be_split(name) for name in (*reading.used, *reading.unused, *reading.kept)):
        return True
    files = list(Strings.load(folder, "files"))
    if reading.kind == TarReader.kind:
        tar_file = Path(files[0])
        with tar_file.open("rb") as handle:
            first = next(scan(tar_file), None)
            if first is None:
                return False
            return any(map(may_be_split, TarSample(tar_file, handle.fileno(), *first).fields()))
    home = os.path.commonpath(files) if len(files) > 1 else os.path.dirname(files[0])
    folders = {os.path.dirname(file) for file in files}
    names = (folder_split(f"{os.path.relpath(inside, home)}/x") for inside in folders)
    return len({split_kind(name) for name in names if name is not None}) > 1
