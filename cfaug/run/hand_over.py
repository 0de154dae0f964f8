"""After evaluation: model cards with results, tables for W&B, an alarm where fine-tuning forgot."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cfaug.report.forgetting import alarms, changes, initial_values
from cfaug.run.compose import build


def hand_over(experiment: Path, folders: Sequence[Path], threshold: float | None) -> list[str]:
    """Write each run's model card and W&B table, and say on stderr which arms forgot something.

    Args:
        experiment: the folder of the runs' arms.
        folders: of the runs.
        threshold: a fall of accuracy or recall@1 beyond which it is said; None says nothing.

    Returns:
        What was said.
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
    said = [] if threshold is None else alarms(found, threshold)
    for line in said:
        print(line, file=sys.stderr)
    return said
