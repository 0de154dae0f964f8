"""After evaluation: model cards with results, and an alarm where fine-tuning forgot."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cfaug.report.forgetting import changes, falls, initial_values


def hand_over(experiment: Path, folders: Sequence[Path], threshold: float | None) -> None:
    """Write each run's model card anew, and say on stderr which arms forgot something.

    Args:
        experiment: the folder of the runs' arms.
        folders: of the runs.
        threshold: a fall of accuracy or recall@1 beyond which it is said; None says nothing.
    """
    from cfaug.train.card import write_card

    initial = initial_values(experiment)
    found = []
    for folder in folders:
        own = changes(folder, initial)
        write_card(folder, own, threshold)
        found += own
    if threshold is not None:
        for fall in falls(found, threshold):
            print(f"forgetting, more than {100 * threshold:g} points: {fall}", file=sys.stderr)
