"""``extend=true``: continue a finished run to more steps from the last state that it kept.

The result differs from a run that had this length from its first step, because its schedule was
shorter. So the step of the extension is part of its identity.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cfaug.core.errors import UserError
from cfaug.report.results import RESULTS
from cfaug.run.identity import EXTENDED, LENGTH
from cfaug.run.run_folder import RunFolder


def without_length(overrides: Sequence[str]) -> list[str]:
    """Return overrides without the length, so that they name the arm to extend.

    >>> without_length(["data.cf_ratio=0.6", "trainer.max_steps=300"])
    ['data.cf_ratio=0.6']
    """
    return [word for word in overrides if word.split("=", 1)[0] not in LENGTH]


def longer(folder: RunFolder, steps: int) -> RunFolder:
    """Return a run's folder with the identity of its extension to ``steps`` steps.

    Changes nothing on disk. A run that is being extended, or was extended to this length, keeps its
    identity.
    """
    if not (folder.path / "run.json").exists():
        raise UserError(
            f"extend=true: there is no run in {folder.path}; arm=NAME names the run to extend, and "
            "without extend=true it is trained"
        )
    record = folder.record()
    there = dict(record.get("identity") or {})
    history = there.pop(EXTENDED, [])
    differing = folder.differing(there)
    if not set(differing) <= set(LENGTH):
        raise UserError(folder.difference(there))
    if not differing:
        return (
            replace(folder, identity={**folder.identity, EXTENDED: history}) if history else folder
        )
    done = record.get("steps") or 0
    if record.get("state") != "done":
        raise UserError(
            f"extend=true: the run in {folder.path} is not finished; finish it first, by its own "
            "command"
        )
    if steps <= done:
        raise UserError(
            f"extend=true: {folder.path} has {done} steps already, and {steps} are requested"
        )
    if not (folder.path / "last.ckpt").exists():
        raise UserError(
            f"extend=true: {folder.path} did not keep its last state (trainer.keep_last=true keeps "
            f"it): overwrite=true trains all {steps} steps anew"
        )
    return replace(
        folder,
        identity={**folder.identity, EXTENDED: [*history, done]},
        replaces=record.get("config_hash"),
    )


def set_results_aside(folder: Path, steps: int) -> None:
    """Rename the results of the weights after ``steps`` steps, as the extended run has others."""
    results = folder / RESULTS
    if results.exists():
        os.replace(results, results.with_name(f"{results.stem}-{steps}-steps{results.suffix}"))
