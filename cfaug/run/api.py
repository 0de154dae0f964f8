"""The Python API: the commands as functions, with the same settings and the same results.

Settings have the names of the command line: ``fine_tune({"data.cf_ratio": 0.6}, seed=107)`` is
``cfaug train data.cf_ratio=0.6 seed=107``, in the same folder. Invalid input raises
``cfaug.UserError``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.errors import UserError
from cfaug.report.records import Run
from cfaug.report.records import read_run as read_run_folder
from cfaug.report.results import RESULTS, Result, read_results
from cfaug.run.arguments import write_override
from cfaug.run.launch import Jobs

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.planning.records import Mixture
    from cfaug.run.run_plan import TrainJob

Settings = Mapping[str, Any]


def open_source(name: str | Path, settings: Settings | None = None, /, **more: Any) -> Index:
    """Open a source of images and captions: a folder of any form, or ``shapescapes:PART``.

    Args:
        name: the folder, or the part of the embedded world, such as ``shapescapes:real``.
        settings: settings of ``cfaug train``, of which ``data.world.*`` and ``paths.*`` matter
            here; ``None`` for the defaults.
        more: further settings, whose names hold no dot.

    Returns:
        An index, with its length and, by row, text, image, key and group.

    Raises:
        UserError: for a folder that no reader recognises, or invalid settings.
    """
    from cfaug.run.build import build
    from cfaug.run.sources import open_source as open_named
    from cfaug.run.sources import permitted_roots

    [(config, _)] = _compose("train", settings, more)
    paths = config["paths"]
    data = build(config["data"]).with_seed(config["seed"])
    return open_named(
        str(name), data.world, data.seed, Path(paths["shards"]), Path(paths["cache"]),
        permitted_roots(paths),
    )  # fmt: skip


def generate_sets(settings: Settings | None = None, /, **more: Any) -> Path:
    """Make counterfactual sets by a recipe, as ``cfaug generate`` does.

    Args:
        settings: settings of the command, such as ``{"paths.shards": "shards/try"}``; ``None`` for
            the defaults.
        more: further settings, whose names hold no dot: ``recipe="coco_cf", limit=6``.

    Returns:
        The folder of shards, a source of examples for ``open_source`` and for training.

    Raises:
        UserError: for invalid settings, examples or folders, or shards that were not published.
    """
    from cfaug.run.generate import GenerateSettings, generate
    from cfaug.run.launch import DONE

    [(config, words)] = _compose("generate", settings, more)
    given = GenerateSettings(**config, overrides=words)
    if generate(given) != DONE:
        raise UserError(f"{given.paths['shards']}: not every shard was published; generate again")
    return Path(given.paths["shards"])


def mix(settings: Settings | None = None, /, **more: Any) -> Mixture:
    """Draw the exact rows that a run is trained on and those held out, without training.

    Args:
        settings: settings of ``cfaug train``, such as ``{"data.cf_ratio": 0.6, "data.size":
            1000}``; ``None`` for the defaults.
        more: further settings, whose names hold no dot: ``seed=107``.

    Returns:
        The mixture: ``train`` and ``validation`` are pairs (source, row of its index), and
        ``counts`` is the number of rows of each kind.

    Raises:
        UserError: for invalid settings, or data from which the mixture cannot be drawn.
    """
    mixture: Mixture | None = getattr(_plan(settings, more).task, "mixture", None)
    if mixture is None:
        raise UserError("this task is not trained on a mixture of real and counterfactual examples")
    return mixture


def fine_tune(settings: Settings | None = None, /, **more: Any) -> Run:
    """Fine-tune a model as ``cfaug train`` does; a finished run is read, not trained again.

    Args:
        settings: settings of the command, such as ``{"data.cf_ratio": 0.6, "trainer.max_steps":
            100}``; ``None`` for the defaults.
        more: further settings, whose names hold no dot: ``seed=107, name="mine"``.

    Returns:
        The finished run, with ``folder``, ``record`` (run.json) and ``results()``.

    Raises:
        UserError: for invalid settings or data, or if the run failed.
    """
    from cfaug.run.launch import DONE
    from cfaug.run.train import run_one

    job = _plan(settings, more)
    if run_one(job) != DONE:
        raise UserError(f"{job.folder.path}: the run failed; its messages are above")
    return read_run_folder(job.folder.path)


def evaluate(
    model: Run | str | Path, settings: Settings | None = None, /, **more: Any
) -> list[Result]:
    """Evaluate a run or a checkpoint on benchmarks, as ``cfaug evaluate`` does.

    Args:
        model: a finished run, or a checkpoint: a folder, a Hub id or ``zoo:NAME``.
        settings: settings of the command, such as ``{"benchmark.data": "PHOTOS"}``; ``None`` for
            the defaults.
        more: further settings, whose names hold no dot: ``benchmark="retrieval"``.

    Returns:
        All results of the model, including those of earlier calls.

    Raises:
        UserError: for invalid settings, or a benchmark that cannot be asked.
    """
    from cfaug.run.evaluate import evaluate as ask
    from cfaug.run.evaluate import find_checkpoints
    from cfaug.run.evaluate_settings import EvaluateSettings
    from cfaug.run.launch import DONE

    asked = {"runs": [str(model.folder)]} if isinstance(model, Run) else {"weights": str(model)}
    [(config, words)] = _compose("evaluate", settings, {**more, **asked})
    given = EvaluateSettings(**config, overrides=words)
    if ask(given) != DONE:
        raise UserError("a benchmark could not be asked; its message is above")
    if isinstance(model, Run):
        return model.results()
    [tested] = find_checkpoints(given, (), without=False)
    return read_results(tested.folder / RESULTS)


def compare(experiment: str, settings: Settings | None = None, /, **more: Any) -> list[Result]:
    """Evaluate an experiment's runs and test whether its arms differ, as ``cfaug evaluate`` does.

    The table with its tests is written into the experiment's folder: ``table.csv``, ``.md``,
    ``.tex`` and ``report.html``.

    Args:
        experiment: the experiment's name, as in ``cfaug train name=...``.
        settings: settings of the command, such as ``{"paths.runs": "runs"}``; ``None`` for the
            defaults.
        more: further settings, whose names hold no dot: ``baseline="real"``.

    Returns:
        All results of the experiment's runs.

    Raises:
        UserError: if there is nothing to compare, or settings are invalid.
    """
    from cfaug.run.evaluate import evaluate as ask
    from cfaug.run.evaluate_settings import EvaluateSettings
    from cfaug.run.launch import DONE

    [(config, words)] = _compose("evaluate", settings, {**more, "name": experiment})
    given = EvaluateSettings(**config, overrides=words)
    if ask(given) != DONE:
        raise UserError(f"{experiment}: not every run could be compared; the message is above")
    folders = sorted((given.root / experiment).glob("*/seed=*"))
    return [row for folder in folders for row in read_run_folder(folder).results()]


def read_run(folder: str | Path) -> Run:
    """Read a run's folder.

    Args:
        folder: the folder of the run, ``RUNS/EXPERIMENT/ARM/seed=N``.

    Returns:
        The run, with ``folder``, ``record`` (run.json) and ``results()``.

    Raises:
        UserError: if the run's record is missing or damaged.
    """
    return read_run_folder(Path(folder))


def _plan(settings: Settings | None, more: Settings) -> TrainJob:
    from cfaug.run.run_plan import plan_run, prepare_data
    from cfaug.run.train_settings import TrainSettings

    jobs = _compose("train", settings, more)
    prepare_data(jobs)
    [(config, words)] = jobs
    return plan_run(TrainSettings(**config, overrides=words))


def _compose(name: str, settings: Settings | None, more: Settings) -> Jobs:
    """Compose the settings of one command.

    Raises:
        UserError: for a setting that is duplicated, is unknown, or has an invalid value.
    """
    from importlib import import_module

    given = dict(settings or {})
    twice = sorted(given.keys() & more.keys())
    if twice:
        raise UserError(f"duplicated setting: {', '.join(twice)} is given in both places")
    words = [write_override(key, value) for key, value in {**given, **more}.items()]
    script = import_module(f"cfaug.run.scripts.{name}").SCRIPT
    found: Jobs = script.compose(words, multirun=False)
    return found
