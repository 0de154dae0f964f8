"""A bar for scans that take more than a moment; quick ones stay silent."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cfaug.data.sources import Row

if TYPE_CHECKING:
    from rich.progress import Progress

QUIET_SECONDS = 2.0


def watched(rows: Iterable[Row], files: list[Path], source: str) -> Iterator[Row]:
    """Pass rows on, with a bar of bytes read on stderr if it takes longer than a moment.

    Args:
        rows: as they are scanned.
        files: those that hold the images.
        source: named beside the bar.
    """
    started, last, done, bar = time.monotonic(), ("", 0), 0, None
    try:
        for row in rows:
            if last != (row.file, row.offset):
                last, done = (row.file, row.offset), done + row.length
                if bar is not None:
                    bar.update(bar.task_ids[0], completed=done)
                elif time.monotonic() - started > QUIET_SECONDS:
                    bar = _start(f"indexing {source}", sum(f.stat().st_size for f in files))
            yield row
    finally:
        if bar is not None:
            bar.stop()


def _start(what: str, total: int) -> Progress:
    from rich import progress
    from rich.console import Console

    bar = progress.Progress(
        progress.TextColumn("{task.description}"), progress.BarColumn(),
        progress.DownloadColumn(), progress.TransferSpeedColumn(), progress.TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    bar.add_task(what, total=total)
    bar.start()
    return bar
