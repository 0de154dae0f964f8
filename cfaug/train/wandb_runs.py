"""A run's folder as one run of Weights & Biases: curves, pairs, results and the report.

Training logs curves and pairs while it is at work. What comes later is added: online the run is
resumed; offline, where wandb would begin a second folder of the same id, the run is written anew
with its curves, and the folders of earlier attempts are set aside. Needs no Lightning.
"""

from __future__ import annotations

import csv
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cfaug.core.atomic_files import write_file, write_json
from cfaug.core.cards import public_settings
from cfaug.core.errors import UserError, say
from cfaug.core.files import require_regular
from cfaug.core.safety.safe_loading import read_json
from cfaug.data.mixture.records import COUNTERFACTUAL
from cfaug.report.records import CONFIG, read_config
from cfaug.report.results import RESULTS, read_results

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
PUBLISHED, PAIRS, ASIDE = "published.json", "pairs", "attempts"
"""In a run's ``wandb/``: what was published, the pairs with their images, and earlier attempts."""
CURVES = "metrics.csv"
REPORT = ("table.csv", "report.html")
"""The files of an experiment that each of its runs gets, beside ``report-1.pdf`` and so on."""


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
def staged_in(folder: Path) -> Iterator[None]:
    """Keep images of tables in a run's folder until they are sent.

    By default they wait in the user's home, and a run that is moved to a machine with a network
    would leave them behind.
    """
    before = os.environ.get(STAGING)
    os.environ[STAGING] = str((folder / "wandb").resolve())
    try:
        yield
    finally:
        if before is None:
            del os.environ[STAGING]
        else:
            os.environ[STAGING] = before


def log_pairs(folder: Path, mixture: Mixture, captions: SetCaptions | None) -> None:
    """Log a table of counterfactual pairs of the training split, images beside their captions.

    It goes to the run of Weights & Biases that is at work in this process, and is kept in the run's
    folder. Nothing is logged twice, or if there is no pair.

    Args:
        mixture: the mixture with the training split.
        captions: the counterfactual source with the captions of its images; ``None`` without one.
    """
    import wandb

    rows = mixture.train[mixture.train[:, 0] == COUNTERFACTUAL, 1]
    listed = folder / "wandb" / PAIRS / "pairs.json"
    if captions is None or not len(rows) or wandb.run is None or listed.exists():
        return
    index = captions.index
    listed.parent.mkdir(parents=True, exist_ok=True)
    pairs = []
    for number, row in enumerate(_first_sets(rows, np.asarray(index.sets), SETS)):
        key, image = index.key(row), f"{number}.image"
        write_file(listed.parent / image, index.read_image(row))
        pairs.append([key.rpartition("_")[0], key, captions.text(row), image])
    write_json(listed, {"pairs": pairs})
    with staged_in(folder):
        wandb.run.log({"pairs": _pair_table(folder)})


def _first_sets(rows: np.ndarray, sets: np.ndarray, count: int) -> list[int]:
    """Return the rows of the first ``count`` sets, members of one set together.

    >>> _first_sets(np.array([5, 0, 4, 1]), np.array([0, 0, 1, 1, 2, 2]), 1)
    [0, 1]
    """
    ordered = np.sort(rows)
    shown = np.unique(sets[ordered])[:count]
    return ordered[np.isin(sets[ordered], shown)].tolist()


def _pair_table(folder: Path) -> Any:
    import wandb

    from cfaug.core.pixels import decode_image

    place = folder / "wandb" / PAIRS
    table = wandb.Table(columns=list(PAIR_COLUMNS))
    for name, example, caption, image in read_json(place / "pairs.json")["pairs"]:
        file = require_regular(place / Path(image).name)  # the folder may be somebody else's
        decoded = decode_image(file.read_bytes(), image)
        table.add_data(name, example, caption, wandb.Image(decoded))
    return table


def publish(settings: LoggerSettings, folder: Path, experiment: Path | None = None) -> None:
    """Add a run's results, and the report of its experiment, to its run of Weights & Biases.

    Only what changed since is added; it does nothing for another logger than Weights & Biases.

    Args:
        experiment: the folder with the table and the report; ``None`` adds none.
    """
    if settings.kind != "wandb":
        return
    place = folder / "wandb"
    content: dict[str, list[Path]] = {
        CURVES: [folder / CURVES],
        PAIRS: sorted((place / PAIRS).glob("*")),
        RESULTS: [folder / RESULTS],
        "report": [] if experiment is None else [experiment / name for name in REPORT],
    }
    digests = {
        part: hashlib.sha256(b"".join(map(Path.read_bytes, files))).hexdigest()
        for part, files in content.items()
        if files and all(file.is_file() for file in files)
    }
    record = place / PUBLISHED
    before = read_json(record) if record.is_file() else None
    before = before if isinstance(before, dict) else {}
    known: Mapping[str, str] = dict(before.get("digests") or {})
    identity = wandb_identity(settings, folder)
    attempts = _offline_folders(place, identity["id"])
    # Training logged curves and pairs itself, unless it was interrupted in between.
    live = {} if len(attempts) > 1 else {part: digests.get(part) for part in (CURVES, PAIRS)}
    changed = [part for part, digest in digests.items() if {**live, **known}.get(part) != digest]
    if not changed:
        return
    offline = settings.mode == "offline"
    shown = list(digests) if offline else changed
    import wandb

    with staged_in(folder):
        try:
            run = wandb.init(
                **identity, config=public_config(folder), dir=str(folder), mode=settings.mode,
                resume="allow", settings=connection(settings, silent=True),
            )  # fmt: skip
        except Exception as error:
            raise UserError(
                f"Weights & Biases cannot start ({error}): logger.mode=offline needs no network"
            ) from error
        try:
            if offline:
                for row in _curves(folder / CURVES):
                    run.log(row)
            if PAIRS in shown:
                run.log({"pairs": _pair_table(folder)})
            if RESULTS in shown:
                rows = read_results(folder / RESULTS)
                data = [[r.benchmark, r.metric, r.value, r.n] for r in rows]
                run.log({"results": wandb.Table(columns=list(RESULT_COLUMNS), data=data)})
                run.summary.update({f"{row.benchmark}/{row.metric}": row.value for row in rows})
            if "report" in shown:
                table, page = content["report"]
                header, *cells = csv.reader(table.read_text(encoding="utf-8").splitlines())
                run.log({
                    "comparison": wandb.Table(columns=header, data=cells),
                    "report": wandb.Html(page.read_text(encoding="utf-8"), inject=False),
                })  # fmt: skip
        finally:
            run.finish()
    if offline:  # the new folder has what these had, but for the machine's load and output
        written = before.get("offline")
        for attempt in attempts:
            if attempt.name == written:
                shutil.rmtree(attempt)
            else:
                (place / ASIDE).mkdir(exist_ok=True)
                attempt.rename(place / ASIDE / attempt.name)
    newest = [path.name for path in _offline_folders(place, identity["id"])][-1:]
    write_json(record, {"digests": digests, "offline": newest[0] if newest else None})


def _offline_folders(place: Path, run: str) -> list[Path]:
    """Return the folders that wandb wrote offline for a run of this id, the oldest first.

    wandb numbers those that began in one second: ``offline-run-TIME-ID-1``.
    """
    name = re.compile(rf"offline-run-[\d_]+-{re.escape(run)}(?:-\d+)?")
    folders = (path for path in place.glob("offline-run-*") if name.fullmatch(path.name))
    return sorted(path for path in folders if path.is_dir() and not path.is_symlink())


def public_config(folder: Path) -> dict[str, Any] | None:
    """Return a run's settings without places of this machine; ``None`` before it has any."""
    if not (folder / CONFIG).is_file():
        return None
    config: dict[str, Any] = public_settings(read_config(folder))
    return config


def _curves(file: Path) -> list[dict[str, float]]:
    """Return the curves of a run, a row for each step; steps that were repeated, as repeated."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    steps: dict[int, dict[str, float]] = {}
    for line in csv.DictReader(lines):
        step = int(line["step"])
        values = {k: float(v) for k, v in line.items() if v and k not in ("attempt", "step")}
        steps.setdefault(step, {"trainer/global_step": step}).update(values)
    return [steps[step] for step in sorted(steps)]
