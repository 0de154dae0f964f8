"""After evaluation: model cards with results, tables for W&B, warnings about forgetting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cfaug.core.errors import UserError, name_some, say
from cfaug.core.installation import check_logger
from cfaug.planning.build import build
from cfaug.report.arms import same_identity
from cfaug.report.checkpoint_tables import alarms, changes, initial_values
from cfaug.report.records import read_config, read_run, setting_node

LOGS_RESULTS = "wandb"
"""The logger to which results are written as well; the others get only curves."""


def check_result_loggers(folders: Sequence[Path]) -> None:
    """Refuse runs whose results go to a logger that is not installed, before they are measured.

    Args:
        folders: the folders of the runs; ``hand_over`` reports one with unreadable settings.
    """
    for folder in folders:
        try:
            kind = setting_node(read_config(folder), "logger", folder).get("kind")
        except UserError:
            continue
        if kind == LOGS_RESULTS:
            try:
                check_logger(kind)
            except UserError as error:
                raise UserError(f"{folder} was trained with logger={kind}: {error}") from error


def hand_over(experiment: Path, folders: Sequence[Path], threshold: float | None) -> list[str]:
    """Write each run's model card and W&B table, and warn on stderr of arms that forgot something.

    Args:
        experiment: the folder of the runs' arms.
        threshold: decrease of accuracy or recall@1 beyond which a warning is printed; ``None``
            prints none.

    Returns:
        The warnings.
    """
    from cfaug.train.card import write_card
    from cfaug.train.tracking import log_results

    initial = initial_values(experiment)
    kept = {run.folder for run in same_identity([read_run(folder) for folder in folders])[0]}
    found, edited = [], []
    for folder in folders:
        try:
            own = changes(folder, initial)
        except UserError:
            continue  # its damaged results were reported when it was evaluated
        edited.append(write_card(folder, own, threshold))
        logger = setting_node(read_config(folder), "logger", folder)
        log_results(build(logger, trusted=False), folder)
        if folder in kept:
            found += own
    say_edited([card for card in edited if card is not None])
    said = [] if threshold is None else alarms(found, threshold)
    for line in said:
        say(line)
    return said


def say_edited(cards: Sequence[Path]) -> None:
    """Say on stderr which model cards were kept because somebody edited them.

    Args:
        cards: the files of the kept cards.
    """
    if cards:
        say(
            f"kept as edited, or as an earlier version wrote it, without these results: "
            f"{name_some(cards)}; remove the file and evaluate again for a new card"
        )
