"""Tables for Weights & Biases: pairs of the training split, and results. Needs no Lightning.

A run's folder is one run of Weights & Biases: training writes curves and pairs to it, and
evaluation writes results.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cfaug.core.errors import UserError, say
from cfaug.core.files import write_file
from cfaug.data.mixture.records import COUNTERFACTUAL
from cfaug.report.results import RESULTS, Result, read_results

if TYPE_CHECKING:
    from cfaug.data.mixture.hard_negatives import SetCaptions
    from cfaug.data.mixture.records import Mixture
    from cfaug.train.settings import LoggerSettings

SETS = 16
"""The number of sets in a table of pairs."""

STAGING = "WANDB_DATA_DIR"
CONNECT_S = 30
"""The timeout for the server of Weights & Biases, in seconds."""

ACCOUNT_S = 10
"""The part of the timeout for the account's name; wandb requests it twice first, 5 s each."""

PAIR_COLUMNS = ("set", "example", "caption", "image")
RESULT_COLUMNS = ("benchmark", "metric", "value", "n")


def wandb_identity(settings: LoggerSettings, folder: Path) -> dict[str, Any]:
    """Return a run's id and names in Weights & Biases; ``folder`` is ``.../<arm>/seed=<seed>``."""
    experiment, arm, seed = folder.resolve().parts[-3:]
    return {
        "project": settings.project,
        "name": f"{arm} {seed}",
        "group": settings.group or arm,
        "job_type": experiment,
        # One run of Weights & Biases for all attempts at this folder.
        "id": hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16],
    }


def connection(settings: LoggerSettings, **others: Any) -> Any:
    """Return settings of ``wandb`` that keep the timeout, and announce the connection.

    Args:
        others: further fields of ``wandb.Settings``.
    """
    import wandb

    if settings.mode == "online":
        say(
            f"connecting to Weights & Biases, for at most {CONNECT_S} s "
            "(logger.mode=offline needs no network)"
        )
    return wandb.Settings(init_timeout=CONNECT_S - ACCOUNT_S, **others)


@contextmanager
def _reopen(settings: LoggerSettings, folder: Path) -> Iterator[Any]:
    import wandb

    with _staged_in(folder / "wandb"):
        try:
            run = wandb.init(
                **wandb_identity(settings, folder), dir=str(folder), mode=settings.mode,
                resume="allow", settings=connection(settings, silent=True),
            )  # fmt: skip
        except Exception as error:
            raise UserError(
                f"Weights & Biases cannot start ({error}): logger.mode=offline needs no network"
            ) from error
        try:
            yield run
        finally:
            run.finish()


@contextmanager
def _staged_in(folder: Path) -> Iterator[None]:
    """Store images of tables in ``folder`` until they are sent.

    By default they are stored in the user's home, and a run that is moved to a machine with a
    network would leave them behind.
    """
    before = os.environ.get(STAGING)
    os.environ[STAGING] = str(folder.resolve())
    try:
        yield
    finally:
        if before is None:
            del os.environ[STAGING]
        else:
            os.environ[STAGING] = before


def log_pairs(
    settings: LoggerSettings, folder: Path, mixture: Mixture, captions: SetCaptions | None
) -> None:
    """Write a table of counterfactual pairs of the training split, images beside their captions.

    It is written only if ``settings`` choose Weights & Biases and there is a pair.

    Args:
        mixture: the mixture with the training split.
        captions: the counterfactual source with the captions of its images; ``None`` without one.
    """
    rows = mixture.train[mixture.train[:, 0] == COUNTERFACTUAL, 1]
    if settings.kind != "wandb" or captions is None or not len(rows):
        return
    index = captions.index
    import wandb

    from cfaug.core.pixels import decode_image

    table = wandb.Table(columns=list(PAIR_COLUMNS))
    for row in _first_sets(rows, np.asarray(index.sets), SETS):
        image = decode_image(index.read_image(row), index.image_name(row))
        key = index.key(row)
        table.add_data(key.rpartition("_")[0], key, captions.text(row), wandb.Image(image))
    with _reopen(settings, folder) as run:
        run.log({"pairs": table})


def _first_sets(rows: np.ndarray, sets: np.ndarray, count: int) -> list[int]:
    """Return the rows of the first ``count`` sets, members of one set together.

    >>> _first_sets(np.array([5, 0, 4, 1]), np.array([0, 0, 1, 1, 2, 2]), 1)
    [0, 1]
    """
    ordered = np.sort(rows)
    shown = np.unique(sets[ordered])[:count]
    return ordered[np.isin(sets[ordered], shown)].tolist()


def log_results(settings: LoggerSettings, folder: Path) -> None:
    """Write a run's results as a table and as its summary, once for the same file.

    They are written only if ``settings`` choose Weights & Biases and there are results.
    """
    file = folder / RESULTS
    if settings.kind != "wandb" or not file.exists():
        return
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    written = folder / "wandb" / f"{RESULTS}.sha256"
    if written.exists() and written.read_text(encoding="utf-8") == digest:
        return
    import wandb

    rows = read_results(file)
    table = wandb.Table(
        columns=list(RESULT_COLUMNS), data=[[r.benchmark, r.metric, r.value, r.n] for r in rows]
    )
    with _reopen(settings, folder) as run:
        run.log({"results": table})
        run.summary.update(_summary(rows))
    written.parent.mkdir(exist_ok=True)
    write_file(written, digest.encode())


def _summary(rows: Sequence[Result]) -> Mapping[str, float]:
    return {f"{row.benchmark}/{row.metric}": row.value for row in rows}
