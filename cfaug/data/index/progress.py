"""Progress of the scan of a source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from cfaug.core.progress import Progress
from cfaug.data.sources import Row


def show_progress(rows: Iterable[Row], files: list[Path], source: str) -> Iterator[Row]:
    """Yield rows, showing the bytes read so far if the scan takes longer than a moment.

    Args:
        rows: the rows, as they are scanned.
        files: the files that hold the images.
        source: the name of the source, shown beside the bar.
    """
    last = ("", 0)
    with Progress(f"indexing {source}", sum(f.stat().st_size for f in files), "bytes") as progress:
        for row in rows:
            if last != (row.file, row.offset):
                last = (row.file, row.offset)
                progress.advance(row.length)
            yield row
