"""Files that name images and are of no form that is known, for the errors that point to them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from cfaug.data.sources.folders import list_folders
from cfaug.data.sources.lists import LISTS

ENDINGS = (*LISTS, ".jsonlines", ".ndjson", ".token", ".txt")
LOOKED_AT = 100
"""Number of files that are searched."""
LONGEST = 64 * 2**20
"""Number of bytes of a file that are searched."""
SAMPLE = 20
"""Number of images whose names are searched."""
SHORTEST = 4
"""Number of characters of a name without its ending that is not met by accident."""


def naming_lists(path: Path, images: Sequence[Path]) -> list[str]:
    """Return the names of the files below a folder that name its images, with or without ending."""
    sample = images[:: max(1, len(images) // SAMPLE)]
    stems = {image.stem for image in sample if len(image.stem) >= SHORTEST}
    names = sorted({image.name for image in sample} | stems)
    if not names:
        return []
    wanted = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, names))})(?![\w-])".encode())
    lists = (
        folder / name
        for folder, files in list_folders(path)
        for name in sorted(files)
        if Path(name).suffix.lower() in ENDINGS and (folder / name).is_file()
    )
    there = []
    for file in islice(lists, LOOKED_AT):
        with file.open("rb") as handle:
            if wanted.search(handle.read(LONGEST)):
                there.append(str(file.relative_to(path)))
    return there
