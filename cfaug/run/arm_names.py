"""The name of an arm, which is the name of its folder.

In a sweep an arm is named by what differs there, such as ``cf_ratio=0.6``; in a single command by
every setting that was typed and changes the result. Whatever the command, an arm that exists is
found by the identity of its runs, so that equal settings have one folder; and a name whose folder
holds runs of other settings is not taken: the arm then gets its longer name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.report.arms import CUT, arm_identity, differences
from cfaug.report.records import check_record, read_config
from cfaug.report.results import read_record
from cfaug.run.folder_names import check_arm, clean_name
from cfaug.run.identity import (
    EXTENDED,
    LENGTH,
    REPLACED_BY_CONTENT,
    is_under,
    not_a_result,
    without_effect,
)
from cfaug.run.run_folder import RunFolder
from cfaug.settings.arguments import CHOOSES, flatten, key_of

OTHERWISE_NAMED = {"seed", "experiment", "scale", "task"}
"""Settings that have a folder of their own, or that an experiment's arm stands for."""
SHORT = {"data", "trainer", "optim"}
"""Groups left out of a name, as in ``cf_ratio=0.6``."""
DRAW = "data.seed"
"""The setting that a name never leaves out: a record does not tell if it was typed, or follows the
seed, and an arm has one or the other."""
LONGEST_NAME, LONGEST_VALUE = 60, 40
"""Most characters of a name made of settings, and of one value in it."""


def swept_keys(jobs: Sequence[Sequence[str]]) -> frozenset[str]:
    """Return the settings in which the jobs of a sweep differ, from the words of each.

    >>> sorted(swept_keys([["data.size=9", "seed=1"], ["data.size=9", "seed=2"]]))
    ['seed']
    """
    typed = [{key_of(word): word for word in words} for words in jobs]
    keys = {key for words in typed for key in words}
    return frozenset(key for key in keys if len({words.get(key) for words in typed}) > 1)


def arm_slug(
    overrides: Sequence[str],
    config: Mapping[str, Any],
    by_seed: Mapping[str, str] | None = None,
    swept: Collection[str] = (),
) -> str:
    """Name an arm after the settings that were typed, as far as they change the result.

    Args:
        by_seed: {setting that depends on the seed: its value as written}, which all seeds share.
        swept: settings in which the jobs of its sweep differ: the name has these alone, if any of
            them changes the result.

    >>> arm_slug(["data.cf_ratio=.6", "seed=107"], {"data": {"cf_ratio": 0.6}, "arm": None})
    'cf_ratio=0.6'
    >>> words, config = ["data.cf_ratio=0", "data.size=9"], {"data": {"cf_ratio": 0, "size": 9}}
    >>> arm_slug(words, config, swept={"data.cf_ratio", "seed"})
    'cf_ratio=0'
    >>> arm_slug(["seed=1", "data.workers=2"], {"data": {"workers": 2}, "arm": None})
    'default'
    """
    keys = [key_of(override) for override in overrides]
    arm = config.get("arm")
    if arm is not None:
        check_arm(arm)
        if "arm" in keys:
            return clean_name(arm)
    flat = flatten(config)
    unnamed = (*not_a_result(), "hydra", "declared", *without_effect(config))
    pieces = {}
    implied = {key_of(choice) for setting, choice in CHOOSES["train"].items() if setting in keys}
    for key, override in zip(keys, overrides, strict=True):
        if key in OTHERWISE_NAMED or key in implied or is_under(key, unnamed):
            continue
        value = flat.get(key, override.partition("=")[2])
        named = Path(str(value)).name if key in REPLACED_BY_CONTENT else value
        pieces[key] = str((by_seed or {}).get(key, named))
    differing = {key for key in pieces if key in swept}
    if differing or (arm is not None and "experiment" in swept):
        pieces = {key: pieces[key] for key in pieces if key in differing or key == DRAW}
    parts = [f"{_name_of(key)}={_shorten(pieces[key])}" for key in sorted(pieces, key=_place_of)]
    return _join([str(arm), *parts] if arm is not None else parts)


def _place_of(key: str) -> tuple[bool, bool, str]:
    """Return the place of a setting in a name: data and chosen files last, where it may be cut."""
    return key != DRAW, key in REPLACED_BY_CONTENT or "." not in key, _name_of(key)


def _name_of(key: str) -> str:
    head, _, tail = key.replace("/", ".").partition(".")
    return tail if head in SHORT and tail and key != DRAW else key


def _shorten(value: str) -> str:
    if len(clean_name(value)) <= LONGEST_VALUE:
        return value
    digest = hashlib.sha256(value.encode()).hexdigest()[:8]
    return f"{value[: LONGEST_VALUE - len(digest) - 1]}-{digest}"


def _join(parts: Sequence[str]) -> str:
    """Return the parts of a name as one, whose last ones give way to their number and a hash."""
    whole = clean_name(",".join(parts) or "default")
    if len(whole) <= LONGEST_NAME or len(parts) < 2:
        return whole
    digest = hashlib.sha256(",".join(parts).encode()).hexdigest()[:8]
    for count in range(len(parts) - 1, 0, -1):
        ending = f"{len(parts) - count}-more-{digest}"
        name = ",".join([clean_name(",".join(parts[:count])), ending])
        if len(name) <= LONGEST_NAME or count == 1:
            assert CUT.search(name)
            return name
    raise AssertionError("unreachable")


def find_arm(
    experiment: Path,
    names: Sequence[str],
    wanted: Mapping[str, Any],
    *,
    draw_typed: bool = False,
    extend: bool = False,
) -> str:
    """Return the name of an arm's folder: of the one that has its runs, or the first that is free.

    Arms that were named by hand are somebody's choice, and are found by their name alone.

    Args:
        names: names that the arm may have, the preferred one first.
        wanted: ``identity`` and ``by_seed`` of the run that is planned, as a record has them, and
            the setting ``arm``.
        draw_typed: whether ``data.seed`` was typed: such an arm is found by its name alone.
        extend: whether a run of another length is the same.
    """
    length = (*LENGTH, EXTENDED) if extend else ()
    known = [name for name in names if _has_runs_of(experiment / name, wanted, length)]
    if known:
        return known[0]
    others = sorted(experiment.iterdir()) if experiment.is_dir() and not draw_typed else ()
    for folder in others:
        if f"{DRAW}=" in folder.name:
            continue
        if _has_runs_of(folder, wanted, length) and not _is_named_by_hand(folder, wanted):
            return folder.name
    for name in names:
        if other_settings(experiment / name, wanted) is None:
            return name
    return names[-1]


def other_settings(
    arm: Path, wanted: Mapping[str, Any], without: Collection[str] = ()
) -> tuple[Path, str] | None:
    """Return a run of an arm's folder with other settings, and one that differs; ``None`` if none.

    Other content of the same data does not count: the run's own folder is compared with that.

    Args:
        wanted: ``identity`` and ``by_seed`` of a run.
        without: settings that may differ.
    """
    identity = arm_identity(wanted)
    for folder, there in _runs_of(arm):
        for key in differences(there, identity) if there != identity else ():
            if not key.startswith("content.") and key not in without:
                return folder, key
    return None


def _has_runs_of(arm: Path, wanted: Mapping[str, Any], without: Collection[str]) -> bool:
    identity = arm_identity(wanted)
    return any(
        there == identity or (without and set(differences(there, identity)) <= set(without))
        for _, there in _runs_of(arm)
    )


def _is_named_by_hand(arm: Path, wanted: Mapping[str, Any]) -> bool:
    """Say whether ``arm=NAME`` was typed, or an experiment's arm is another than the wanted one."""
    for file in sorted(arm.glob("seed=*/config.yaml"))[:1]:
        try:
            there = read_config(file.parent).get("arm")
        except UserError:
            return True
        return there is not None and there != wanted.get("arm") and "=" not in str(there)
    return True


def _runs_of(arm: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the runs of an arm, and what all seeds share of their identities.

    Runs that ended before their first step are left out: another run may take their place.
    """
    for file in sorted(arm.glob("seed=*/run.json")):
        try:
            state = file.stat()
            record, identity = _read(file, state.st_mtime_ns, state.st_size)
        except (OSError, UserError):
            continue
        if not RunFolder(file.parent, {}).took_no_step(record):
            yield file.parent, identity


@lru_cache(maxsize=4096)
def _read(file: Path, changed_ns: int, size: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return a run's state, and what all seeds share of its identity.

    The time and size of the file tell one content from the next: each job of a sweep asks again.
    """
    record = read_record(file)
    check_record(record, file, complete=False)
    return {"state": record.get("state")}, arm_identity(record)
