"""Hydra's own settings: those that a command reads, and what to use in place of all others.

Commands compose their settings by Hydra, and run by themselves. Of ``hydra.*`` only what a launcher
or sweeper plugin reads has an effect; anything else would do nothing, or move files, change
folders and log where nobody looks for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from cfaug.core.errors import UserError
from cfaug.core.targets import TARGET
from cfaug.settings.arguments import SEARCH_PATH, key_of

PLUGINS = ("hydra/launcher", "hydra/sweeper")
OF_PLUGINS = ("hydra/sweeper/", "hydra.launcher.", "hydra.sweeper.", "hydra.sweep.")
"""Beginnings of the settings that plugins read."""

_PLACE = (
    "results go where paths.runs, name and arm say (generate.py: paths.shards and name), and "
    "relative names are of the folder in which the command was started"
)
_MESSAGES = (
    "messages are written to stderr, which 2>FILE keeps; CFAUG_TRACEBACK=1 shows where an error "
    "arose"
)
INSTEAD = {
    "hydra.job.env_set": "set variables before the command, as in NAME=VALUE python train.py ...; "
    "with submitit, hydra.launcher.setup=['export NAME=VALUE'] sets them in its jobs",
    "hydra.job.env_copy": "a job has the variables of the command that starts it",
    "hydra.job.name": "name=... names an experiment, and hydra.launcher.name=... Slurm's jobs",
    "hydra.job.chdir": _PLACE,
    "hydra.run": _PLACE,
    "hydra.sweep": f"{_PLACE}; with hydra/launcher=... it is the folder of the launcher",
    "hydra.output_subdir": _PLACE,
    "hydra.runtime": _PLACE,
    "hydra.mode": "--multirun (-m) runs a sweep",
    "hydra.callbacks": "trainer.callbacks takes callbacks of Lightning's",
    "hydra.verbose": _MESSAGES,
    "hydra.job_logging": _MESSAGES,
    "hydra.hydra_logging": _MESSAGES,
    "hydra.launcher": "it is read beside hydra/launcher=submitit_slurm with --multirun",
    "hydra.sweeper": "it is read beside hydra/sweeper=optuna with --multirun",
    "hydra.help": "--help shows the settings",
    "hydra.hydra_help": "--hydra-help shows Hydra's own flags",
}
"""{setting of Hydra's: what to use in its place}."""
ANYTHING_ELSE = (
    "of Hydra's settings only hydra/launcher, hydra/sweeper with their own, and --config-dir are "
    "read"
)


def refuse_settings_of_hydra(words: Sequence[str]) -> None:
    """Refuse a setting of Hydra's that nothing reads or that names something to call.

    The number of a sweeper is refused without a sweeper.

    >>> refuse_settings_of_hydra(["hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "seed=1"])
    >>> refuse_settings_of_hydra(["hydra.mode=MULTIRUN"])
    Traceback (most recent call last):
    cfaug.core.errors.UserError: hydra.mode=MULTIRUN is not taken: --multirun (-m) runs a sweep
    """
    keys = [key_of(word).partition("@")[0] for word in words]
    has_plugin = any(key in PLUGINS for key in keys)
    if "optimized_metric" in keys and "hydra/sweeper" not in keys:
        raise UserError(
            f"{words[keys.index('optimized_metric')]} has no effect without a sweeper, which gets "
            "the number of each run: add hydra/sweeper=optuna and --multirun (-m), or leave it out"
        )
    for word, key in zip(words, keys, strict=True):
        if key.partition("/")[0].partition(".")[0] != "hydra" or key in (SEARCH_PATH, *PLUGINS):
            continue
        if TARGET in word:
            raise UserError(
                f"{word} names something for Hydra to call, as none of its settings may. Launchers "
                "are chosen by group (hydra/launcher=submitit_slurm), and callbacks of a training "
                "are trainer.callbacks"
            )
        if has_plugin and key.startswith(OF_PLUGINS):
            continue
        setting = key.replace("/", ".")
        reasons = (why for name, why in INSTEAD.items() if f"{setting}.".startswith(f"{name}."))
        raise UserError(f"{word} is not taken: {next(reasons, ANYTHING_ELSE)}")
