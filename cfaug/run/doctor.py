"""``cfaug doctor``: which optional parts are here, and the command that brings each other one."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from cfaug.errors import UserError
from cfaug.messages import say
from cfaug.run.installation import find_folder, is_checkout

DATA = re.compile(r"\$\{paths\.data\}/([\w.-]+)")
"""A folder of data as the settings name it."""

WEIGHTS = {
    "model": "models to train and to evaluate (model=...)",
    "zoo/paper.yaml": "the papers' models of generation (zoo=paper)",
}
"""Where the settings name models of the Hub, and what for."""

WIDTH = 120
"""Characters of a line."""

HUB_ID = re.compile(r"(?:name_or_path|weights): *([A-Za-z0-9][\w.-]*/[\w.-]+)")


@dataclass(frozen=True)
class Finding:
    """One part that was looked for.

    Attributes:
        name: of the part.
        there: whether it is there; ``None`` where that is no matter of yes or no.
        said: what was found, or what it is for.
        bring: the command that brings it; empty where it is there.
    """

    name: str
    there: bool | None
    said: str
    bring: str = ""

    def line(self) -> str:
        """Return the finding as a line of the terminal."""
        mark = {True: "yes", False: "no", None: ""}[self.there]
        ending = f"  -> {self.bring}" if self.bring and not self.there else ""
        whole = f"  {self.name:22} {mark:3}  {self.said}{ending}"
        return textwrap.fill(whole, WIDTH, subsequent_indent=" " * 31, break_on_hyphens=False)


def main(argv: Sequence[str]) -> int:
    """Print what is there, a section at a time; return the exit code."""
    try:
        data = _read_arguments(argv)
    except UserError as error:
        say(f"error: {error}")
        return 2
    sections: dict[str, Callable[[], Iterator[Finding]]] = {
        "installation": find_installation,
        "devices": find_devices,
        "extras": find_extras,
        "weights of the Hub, in the cache of this machine": find_weights,
        f"data under paths.data={data}": lambda: find_data(data),
        "services": find_services,
    }
    for title, find in sections.items():
        say(title, sys.stdout)
        for finding in find():
            say(finding.line(), sys.stdout)
    return 0


def _read_arguments(argv: Sequence[str]) -> Path:
    """Return the folder of data.

    Raises:
        UserError: for any other argument.
    """
    data = "data"
    for word in argv:
        name, equals, value = word.partition("=")
        if name != "paths.data" or not equals:
            raise UserError(f"{word!r} is invalid: cfaug doctor takes paths.data=FOLDER alone")
        data = value
    return Path(data).expanduser()


def find_installation() -> Iterator[Finding]:
    """Find the version, and from where it is used."""
    place = "a clone" if is_checkout() else "a wheel"
    yield Finding("cfaug", True, f"{version_of('cfaug') or 'not installed'}, used from {place}")
    yield Finding("settings", True, str(find_folder("conf")))


def find_devices() -> Iterator[Finding]:
    """Find accelerators, cores and memory."""
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding("processor", None, f"{cores} cores, torch {torch.__version__}")
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            known = torch.cuda.get_device_properties(number)
            said = f"{known.name}, {known.total_memory / 2**30:.0f} GiB"
            yield Finding(f"cuda:{number}", True, said)
    else:
        said = "none that torch can use; the tiny models need none, papers' weights do"
        yield Finding("GPU", False, said, "https://pytorch.org/get-started")
    if torch.backends.mps.is_available():
        yield Finding("mps", True, "Apple's GPU: device=mps, trainer.accelerator=mps")


def find_extras() -> Iterator[Finding]:
    """Find the packages of every extra of this project."""
    extras: dict[str, list[str]] = {}
    for line in requires("cfaug") or []:
        found = re.match(r"([\w.-]+)[^;]*;.*extra *== *['\"]([\w-]+)['\"]", line)
        if found and found[2] not in ("all", "dev"):
            extras.setdefault(found[2], []).append(found[1])
    for extra, names in extras.items():
        missing = [name for name in names if name != "cfaug" and version_of(name) is None]
        said = ", ".join(names) if not missing else f"missing: {', '.join(missing)}"
        yield Finding(extra, not missing, said, f"pip install 'cfaug[{extra}]'")
    from cfaug.text.wordnet import places

    wordnet = any((place / "index.noun").is_file() for place in places())
    use = "EDA, METEOR, class names by WordNet id"
    yield Finding("WordNet", wordnet, use, "apt install wordnet-base")


def find_weights() -> Iterator[Finding]:
    """Find which models of the Hub that the settings name were fetched before."""
    from cfaug.weights import resolve

    conf = find_folder("conf")
    for place, use in WEIGHTS.items():
        files = (
            sorted((conf / place).rglob("*.yaml")) if (conf / place).is_dir() else [conf / place]
        )
        names = sorted({one for file in files for one in HUB_ID.findall(file.read_text())})
        missing = []
        for name in names:
            try:
                resolve(name, fetch=False)
            except UserError:
                missing.append(name)
        said = f"{len(names) - len(missing)} of {len(names)}: {use}"
        bring = f"hf download NAME, of {', '.join(missing)}" if missing else ""
        yield Finding(place.removesuffix(".yaml"), not missing, said, bring)


def find_data(folder: Path) -> Iterator[Finding]:
    """Find the folders by which suites look for data.

    Args:
        folder: ``paths.data``.
    """
    users: dict[str, set[str]] = {}
    conf = find_folder("conf")
    for file in sorted(conf.rglob("*.yaml")):
        for name in DATA.findall(file.read_text()):
            users.setdefault(name, set()).add(str(file.relative_to(conf).with_suffix("")))
    missing = [name for name in sorted(users) if not (folder / name).exists()]
    for name in sorted(users.keys() - set(missing)):
        yield Finding(name, True, f"for {', '.join(sorted(users[name])[:3])}")
    if missing:
        how = "docs/data.md, docs/sets.md"
        yield Finding("missing", False, ", ".join(missing), f"lay them there: {how}")


def find_services() -> Iterator[Finding]:
    """Find accounts and schedulers."""
    token = _has_hub_token()
    yield Finding("Hugging Face login", token, "gated models and sets", "hf auth login")
    yield Finding("wandb login", _has_wandb_key(), "logger=wandb", "wandb login")
    slurm = shutil.which("sbatch") is not None
    said = "sweeps/*.sbatch, hydra/launcher=submitit_slurm"
    yield Finding("SLURM", slurm, said, "a login node of a cluster")


def _has_hub_token() -> bool:
    from huggingface_hub import get_token

    return get_token() is not None


def _has_wandb_key() -> bool:
    """Say whether W&B would find a key: the environment's, or the login's in ``.netrc``."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    import netrc

    try:
        known: Any = netrc.netrc()
    except (OSError, netrc.NetrcParseError):
        return False
    return any("wandb" in host for host in known.hosts)


def version_of(name: str) -> str | None:
    """Return the version of an installed distribution, or ``None``."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
