"""After evaluation: model cards with results, tables for W&B, an alarm where fine-tuning forgot."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cfaug.report.forgetting import changes, falls, initial_values
from cfaug.run.compose import build


def hand_over(experiment: Path, folders: Sequence[Path], threshold: float | None) -> None:
    """Write each run's model card and W&B table, and say on stderr which arms forgot something.

    Args:
        experiment: the folder of the runs' arms.
        folders: of the runs.
        threshold: a fall of accuracy or recall@1 beyond which it is said; None says nothing.
    """
    import yaml

    from cfaug.train.card import write_card
    from cfaug.train.tracking import log_results

    initial = initial_values(experiment)
    found = []
    for folder in folders:
        own = changes(folder, initial)
        write_card(folder, own, threshold)
        config = yaml.safe_load((folder / "config.yaml").read_text())
        log_results(build(config["logger"], trusted=False), folder)
        found += own
    if threshold is not None:
        for fall in falls(found, threshold):
            print(f"forgetting, more than {100 * threshold:g} points: {fall}", file=sys.stderr)
