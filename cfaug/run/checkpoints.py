"""Checkpoints that are not runs, from ``weights=``, ``model=`` and ``evaluate_initial=true``.

Rows go to ``<runs>/weights/<checkpoint>/seed=<seed>/``. Settings of the embedded world other than
the defaults are part of the name, ``zoo-clip-0,world.style=drawing``, so results of two worlds
never share a folder. Different folders of real data under the name of one benchmark are
distinguished by the hash of the data in every row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.core.errors import UserError
from cfaug.core.safety.safe_loading import read_json
from cfaug.core.validation import write_value
from cfaug.core.weights import resolve
from cfaug.data.mixture.settings import data_seed
from cfaug.models.no_model import NoModelSpec
from cfaug.models.specs import HFClip
from cfaug.report.forgetting import WEIGHTS
from cfaug.report.records import read_config, setting_node
from cfaug.run.build import build
from cfaug.run.evaluate_checkpoint import EvaluationTarget
from cfaug.run.names import clean_name
from cfaug.run.unread import key_of

if TYPE_CHECKING:
    from cfaug.data.mixture.settings import DataSettings


def checkpoint(
    weights: str | None, model: Mapping[str, Any], data: Mapping[str, Any], seed: int, root: Path
) -> EvaluationTarget:
    """Return a checkpoint to be tested on the data of a node.

    Args:
        weights: a folder, a Hub name or ``zoo:NAME``; ``None`` takes the model's own weights.
        model: the node of the model, which determines how the weights are loaded.
        data: the node ``data`` with the world to test on.
        seed: the seed of the world, if ``data`` has none.
        root: the folder of all runs.
    """
    settings: DataSettings = build(data).with_seed(seed)
    spec = build(model)
    if weights is None:
        return _build_untrained(_own_name(spec), spec, settings, seed, root)
    return _build_untrained(weights, spec.at(weights), settings, seed, root)


def refuse_contradictions(weights: str, model: Mapping[str, Any], words: Sequence[str]) -> None:
    """Refuse words about the model that ``weights`` contradicts.

    Args:
        weights: the checkpoint to evaluate.
        model: the node of the model, which determines how the weights are loaded.
        words: the words of the command line.

    Raises:
        UserError: for a typed setting of the model that ``weights`` replaces by another value, or a
            typed model whose own weights are of another kind.
    """
    spec = build(model)
    own = spec.at(weights)
    for word in words:
        name = key_of(word).removeprefix("model.")
        typed = getattr(spec, name, None)
        if key_of(word) == f"model.{name}" and typed != getattr(own, name, None):
            raise UserError(
                f"{word} contradicts weights={weights}, which is evaluated with model.{name}="
                f"{write_value(getattr(own, name, None))}: leave one of them out"
            )
    named = next((word for word in words if key_of(word) == "model"), None)
    # The other classes have to be named to load weights of any kind that they read; this one loads
    # every dual encoder of transformers, and is the usual one.
    if named is not None and type(spec) is HFClip:
        typed, there = _kind_of(spec), _kind_of(own)
        if None not in (typed, there) and typed != there:
            raise UserError(
                f"{named} names a model of the type {typed}, and weights={weights} is of the type "
                f"{there}: leave one of them out"
            )


def _kind_of(spec: HFClip) -> str | None:
    """Return the type of a checkpoint by its ``config.json``; ``None`` if it is not known here."""
    try:
        file = resolve(spec.name_or_path, spec.revision, fetch=False) / "config.json"
        said = read_json(file) if file.is_file() else None
    except UserError:
        return None
    kind = said.get("model_type") if isinstance(said, dict) else None
    return kind if isinstance(kind, str) else None


def no_model(data: Mapping[str, Any], seed: int, root: Path) -> EvaluationTarget:
    """Return the placeholder for a checkpoint in benchmarks that need no model.

    Args:
        data: the node ``data`` with the world to test on.
        seed: the seed of the world, if ``data`` has none.
        root: the folder of all runs.
    """
    spec = NoModelSpec()
    return _build_untrained(spec.weights, spec, build(data).with_seed(seed), seed, root)


def initial_checkpoints(finished: Sequence[EvaluationTarget], root: Path) -> list[EvaluationTarget]:
    """Return the initial weights of runs, once for each checkpoint, seed and data.

    Args:
        finished: the finished runs.
        root: the folder of all runs.

    Raises:
        UserError: if a checkpoint is not on this machine.
    """
    found: dict[tuple[Path, str], EvaluationTarget] = {}
    for one in finished:
        node = setting_node(read_config(one.folder), "model", one.folder)
        model = build(node, trusted=False)
        name = _own_name(model)
        # A run may be somebody else's: only local weights are used, nothing is downloaded.
        tested = _build_untrained(name, model.on_this_machine(), one.data, one.seed, root)
        # Arms share a world but not the rows that they held out of their training data.
        found.setdefault((tested.folder, repr(one.data)), tested)
    return list(found.values())


def _own_name(model: Any) -> str:
    """Return the name of a model's own weights."""
    names = ("library", "name_or_path", "architecture", "pretrained", "weights")
    words = [getattr(model, name, None) for name in names]
    return "-".join(str(word) for word in words if word)


def _build_untrained(
    name: str, model: Any, data: DataSettings, seed: int, root: Path
) -> EvaluationTarget:
    arm = clean_name(",".join([clean_name(name, extra=""), *world_words(data, seed)]))
    folder = root / WEIGHTS / arm / f"seed={seed}"
    return EvaluationTarget(folder, arm, seed, model, data, WEIGHTS, trained=False)


def world_words(data: DataSettings, seed: int) -> list[str]:
    """Return the settings of the world other than the defaults, as on the command line.

    The default seed of a world is the run's seed plus one.

    >>> from cfaug.data.mixture.settings import DataSettings
    >>> from cfaug.shapescapes import WorldSettings
    >>> world_words(DataSettings(None, None, seed=5, world=WorldSettings(style="drawing")), 4)
    ['world.style=drawing']
    >>> world_words(DataSettings(None, None, seed=5, world=WorldSettings(seed=108)), 4)
    ['world.seed=108']
    """
    if data.world is None:
        return []
    usual = asdict(type(data.world)())
    words = [
        f"world.{name}={'+'.join(value) if isinstance(value, tuple) else value}"
        for name, value in sorted(asdict(data.world).items())
        if value != usual[name]
    ]
    if data.world.seed is None and data.seed != data_seed(seed):
        words.append(f"world.seed={data.seed}")
    return words
