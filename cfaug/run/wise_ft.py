"""``evaluate.py wise_ft=[...]``: runs with weights between their initial and final ones.

Rows go to ``<runs>/<experiment>/<arm>,wise_ft=<factor>/seed=<seed>/``. These are separate arms
beside those of the experiment, and only ``table=wise_ft`` tables them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cfaug.core.errors import UserError
from cfaug.core.messages import say
from cfaug.core.validation import check, write_value
from cfaug.models.interpolation import Ends, Factor, Interpolated
from cfaug.report.records import experiment_folder, read_config, read_run, setting_node
from cfaug.report.wise_ft_table import interpolated_arm
from cfaug.run.build import build
from cfaug.run.evaluate_checkpoint import EvaluationTarget

if TYPE_CHECKING:
    from cfaug.models.specs import ModelSpec


def check_factors(given: object) -> tuple[float, ...]:
    """Return the mixing factors of a setting: one number, or a list of different ones.

    >>> check_factors([0, 0.5, 1])
    (0.0, 0.5, 1.0)

    Raises:
        UserError: for a value that is not a number in [0, 1], or is duplicated.
    """
    found: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
    check(found, Sequence[Factor], "wise_ft")
    factors = tuple(map(float, found))
    if not factors or len(set(factors)) < len(factors):
        raise UserError(
            f"wise_ft={write_value(given)}: give one factor or more, each once, such as "
            "wise_ft=[0,0.25,0.5,0.75,1]"
        )
    return factors


def interpolate_runs(
    finished: Sequence[EvaluationTarget], factors: Sequence[float]
) -> list[EvaluationTarget]:
    """Return every run with the weights of every factor, the factors of a run one after the other.

    Runs without a step are left out, as their weights did not change.

    Args:
        finished: the finished runs.
        factors: shares of the fine-tuned weights in [0, 1], from ``check_factors``.

    Raises:
        UserError: if no run took a step, or the initial weights of one are missing.
    """
    found, trained = [], 0
    for one in finished:
        if read_run(one.folder).record.get("steps") == 0:
            say(f"left out, not fine-tuned: {one.folder}")
            continue
        trained += 1
        ends = Ends(_read_initial(one), one.model, str(one.folder))
        found += [_between(one, ends, factor) for factor in factors]
    if not trained:
        raise UserError("wise_ft interpolates fine-tuned runs, and none of these took a step")
    return found


def _between(one: EvaluationTarget, ends: Ends, factor: float) -> EvaluationTarget:
    arm = interpolated_arm(one.arm, factor)
    folder = experiment_folder(one.folder) / arm / one.folder.name
    return replace(one, folder=folder, arm=arm, model=Interpolated(ends, factor))


def _read_initial(one: EvaluationTarget) -> ModelSpec:
    """Return the specification of a run's initial weights on this machine.

    Raises:
        UserError: if they are missing.
    """
    node = setting_node(read_config(one.folder), "model", one.folder)
    try:
        # A run may be somebody else's: only local weights are used, nothing is downloaded.
        initial: ModelSpec = build(node, trusted=False).on_this_machine()
        initial.weights_hash()
    except UserError as error:
        raise UserError(
            f"{one.folder}: wise_ft needs the weights that the run started from, which are not "
            f"here: {error}"
        ) from error
    return initial
