"""``cfaug doctor``: which optional parts are here, and the command that brings each missing one."""

from __future__ import annotations

import configparser
import netrc
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from urllib.parse import urlsplit

from cfaug import __version__
from cfaug.core.errors import UserError, say
from cfaug.core.processes import find_folder, is_checkout
from cfaug.run.settings_files import settings_folders

DATA = re.compile(r"\$\{paths\.data\}/([\w.-]+)")
"""The name of a folder of data in the settings."""
WEIGHTS = {
    "model": "model=...",
    "zoo/paper.yaml": "zoo=paper",
    "zoo/flux2_klein.yaml": "zoo=flux2_klein",
}
"""{place in the settings that names models of the Hub: the choice that uses them}."""
HUB_ID = re.compile(r"(?:name_or_path|weights): *([A-Za-z0-9][\w.-]*/[\w.-]+)")
WIDEST = 120
"""Most characters of a line; a narrower terminal has fewer."""
LINES = {24: 2, 40: 9}
"""{rows of the screen: most lines of a list of names}; a section by itself names all."""


@dataclass(frozen=True)
class CheckedPart:
    """One part that was looked for.

    Attributes:
        there: whether the part is here; ``None`` for a part without a yes or no.
        bring: the command that brings the part; empty if there is none.
        trouble: the reason why a part that is here cannot be used; empty without one.
    """

    name: str
    there: bool | None
    said: str
    bring: str = ""
    trouble: str = ""

    def line(self, width: int) -> str:
        """Return the finding as one or more lines of the terminal."""
        mark = {True: "yes", False: "no", None: ""}[self.there]
        ending = f" -> {self.bring}" if self.bring and not self.there else ""
        trouble = f"{self.trouble}; " if self.trouble else ""
        return _fill(f"  {self.name:18} {mark:3}  {trouble}{self.said}{ending}", width, 25)


@dataclass(frozen=True)
class DoctorSection:
    """Parts of one kind.

    Attributes:
        find: looks for the parts, and yields its findings.
        bring: a function that returns the command that brings missing parts, given their names;
            ``None`` shows each part in a line of its own.
    """

    title: str
    find: Callable[[], Iterator[CheckedPart]]
    bring: Callable[[Sequence[str]], str] | None = None

    def screen(self, width: int, lines: int) -> Iterator[str]:
        """Yield the section's lines on one screen with the other sections."""
        parts = list(self.find())
        if self.bring is None:
            yield from (part.line(width) for part in parts)
            return
        there = [part.name for part in parts if part.there]
        absent = sorted(
            (part for part in parts if not part.there), key=lambda part: not part.trouble
        )
        missing = [
            f"{part.name} ({part.trouble})" if part.trouble else part.name for part in absent
        ]
        if there:
            yield _fill_list("yes", there, "", width, lines)
        if missing:
            yield _fill_list("no", missing, self.bring(missing), width, lines)


def main(argv: Sequence[str]) -> int:
    """Print the findings section by section, and return the exit code."""
    data = next((word.partition("=")[2] for word in argv if word.startswith("paths.data=")), "data")
    sections = list_sections(Path(data).expanduser())
    if {"-h", "--help"} & set(argv):
        say(_usage(sections), sys.stdout)
        return 0
    chosen = [word for word in argv if not word.startswith("paths.data=")]
    unknown = next((word for word in chosen if word not in sections), None)
    if unknown is not None:
        say(f"error: {unknown!r} is invalid\n{_usage(sections)}")
        return 2
    terminal = shutil.get_terminal_size((WIDEST, max(LINES)))
    width = min(WIDEST, terminal.columns)
    lines = LINES[max(LINES) if terminal.lines >= max(LINES) else min(LINES)]
    for name, section in sections.items():
        if name in chosen or not chosen:
            say(section.title if chosen else _cut(section.title, width), sys.stdout)
            shown = section.screen(width, lines)
            for line in (part.line(width) for part in section.find()) if chosen else shown:
                say(line, sys.stdout)
    return 0


def list_sections(data: Path) -> dict[str, DoctorSection]:
    """Return {word that asks for one section alone: the section}."""
    readable = not data.is_dir() or os.access(data, os.R_OK | os.X_OK)
    data_title = f"data: paths.data={data}" + ("" if readable else ", which cannot be read")
    origin = "a clone" if is_checkout() else "a wheel"
    return {
        "devices": DoctorSection(
            f"cfaug {__version__} from {origin}: {find_folder('conf')}", inspect_devices
        ),
        "extras": DoctorSection(
            "extras", inspect_extras, lambda missing: f"pip install 'cfaug[{','.join(missing)}]'"
        ),
        "weights": DoctorSection(
            "weights from the Hub in this machine's cache",
            inspect_weights,
            lambda _: "hf download NAME; cfaug doctor weights",
        ),
        "data": DoctorSection(
            data_title, lambda: inspect_data(data), lambda _: "docs/sets.md; cfaug doctor data"
        ),
        "services": DoctorSection("services", inspect_services),
    }


def _usage(sections: dict[str, DoctorSection]) -> str:
    names = " | ".join(sections)
    return (
        "cfaug doctor [paths.data=FOLDER]          one screen\n"
        f"cfaug doctor {names}\n"
        "                                          each part of a section, with its command"
    )


def inspect_devices() -> Iterator[CheckedPart]:
    """Find accelerators, cores and memory."""
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield CheckedPart("processor", True, f"{cores} cores, torch {torch.__version__}")
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            known = torch.cuda.get_device_properties(number)
            details = f"{known.name}, {known.total_memory / 2**30:.0f} GiB"
            details += "; make gpu checks it" if is_checkout() else ""
            yield CheckedPart(f"cuda:{number}", True, details)
    elif not torch.backends.mps.is_available():
        details = "papers' weights need one"
        if shutil.which("nvidia-smi"):
            details = "this torch cannot use the one here"
        yield CheckedPart("GPU", False, details, "pytorch.org/get-started")
    if torch.backends.mps.is_available():
        yield CheckedPart("mps", True, "Apple's GPU: device=mps, trainer.device=mps")


def inspect_extras() -> Iterator[CheckedPart]:
    """Find the packages of every extra of this project."""
    extras: dict[str, list[str]] = {}
    known = requires("cfaug") if version_of("cfaug") is not None else None
    for line in known or ():
        match = re.match(r"([\w.-]+)[^;]*;.*extra *== *['\"]([\w-]+)['\"]", line)
        if match and match[2] not in ("all", "dev"):
            extras.setdefault(match[2], []).append(match[1])
    for extra, names in extras.items():
        missing = [name for name in names if name != "cfaug" and version_of(name) is None]
        details = ", ".join(names) if not missing else f"missing: {', '.join(missing)}"
        yield CheckedPart(extra, not missing, details, f"pip install 'cfaug[{extra}]'")


def inspect_weights() -> Iterator[CheckedPart]:
    """Find the models of the Hub that the settings name, in the cache."""
    users: dict[str, list[str]] = {}
    for name, use in WEIGHTS.items():
        paths = [conf / name for conf in settings_folders() if (conf / name).exists()]
        files = [file for path in paths for file in sorted(path.rglob("*.yaml")) or [path]]
        names = {name for file in files for name in HUB_ID.findall(_read(file))}
        for name in sorted(names):
            users.setdefault(name, []).append(use)
    for name, uses in users.items():
        trouble = find_trouble(name)
        use = f"for {', '.join(uses)}"
        yield CheckedPart(name, trouble is None, use, f"hf download {name}", trouble or "")


def find_trouble(name: str) -> str | None:
    """Return the reason why a model of the Hub cannot be used from the cache.

    Returns:
        "" if it is missing; a sentence if it is incomplete; ``None`` if it can be used.
    """
    from cfaug.core.weights import resolve

    try:
        folder = resolve(name, fetch=False)
    except UserError:
        return ""
    blobs = folder.parent.parent / "blobs"
    # The file of an interrupted download may have been fetched later.
    begun = any(
        not file.with_name(file.name.partition(".")[0]).exists()
        for file in blobs.glob("*.incomplete")
    )
    files = (file for kind in ("safetensors", "bin") for file in folder.rglob(f"*.{kind}"))
    return None if any(file.is_file() for file in files) and not begun else "half downloaded"


def inspect_data(folder: Path) -> Iterator[CheckedPart]:
    """Find the folders in which suites look for data."""
    users: dict[str, set[str]] = {}
    for conf in settings_folders():
        for file in sorted(conf.rglob("*.yaml")):
            for name in DATA.findall(_read(file)):
                users.setdefault(name, set()).add(str(file.relative_to(conf).with_suffix("")))
    for name in sorted(users):
        details = f"for {', '.join(sorted(users[name])[:3])}"
        yield CheckedPart(
            name, os.path.exists(folder / name), details, "docs/sets.md, docs/data.md"
        )


def inspect_services() -> Iterator[CheckedPart]:
    """Find accounts and schedulers."""
    yield CheckedPart(
        "Hugging Face login", has_hub_token(), "gated models and sets", "hf auth login"
    )
    yield CheckedPart("wandb login", has_wandb_key(), "logger=wandb", "wandb login")
    slurm = shutil.which("sbatch") is not None
    yield CheckedPart("SLURM", slurm, "sweeps/*.sbatch", "a login node of a cluster")


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def _fill(text: str, width: int, indent: int) -> str:
    return textwrap.fill(text, width, subsequent_indent=" " * indent, break_on_hyphens=False)


def _cut(title: str, width: int) -> str:
    """Return a title on one line: of a folder, its end says more than its beginning.

    >>> _cut("data: paths.data=/home/somebody/projects/data", 30)
    'data: pat...body/projects/data'
    """
    if len(title) <= width:
        return title
    head = (width - 3) // 3
    return f"{title[:head]}...{title[-(width - 3 - head) :]}"


def _fill_list(mark: str, names: Sequence[str], bring: str, width: int, lines: int) -> str:
    """Return as many names as fit into the lines, with the command that brings them."""
    ending = f" -> {bring}" if bring else ""
    for count in range(len(names), 0, -1):
        more = f" and {len(names) - count} more" if count < len(names) else ""
        filled = _fill(f"  {mark:3} {', '.join(names[:count])}{more}{ending}", width, 6)
        if filled.count("\n") < lines:
            break
    return filled


def version_of(name: str) -> str | None:
    """Return the version of an installed distribution, or ``None``."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


# Look for logins to the Hub and W&B where their own tools look, without network access.

WANDB = ("api.wandb.ai", "api.forge.coreweave.com", "forge.coreweave.com")
"""Names of W&B's own server; a key for one of them is valid for all."""


def has_hub_token() -> bool:
    """Say whether huggingface_hub would find a token."""
    from huggingface_hub import get_token

    with suppress(OSError, ValueError):
        return get_token() is not None
    return False


def has_wandb_key() -> bool:
    """Say whether W&B would find a key: in the environment, its settings files, or ``.netrc``.

    ``wandb.sdk.lib.wbauth`` looks in the same places, but importing it starts by importing W&B,
    an extra, and warns of files that it cannot read.
    """
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    # Settings in the working directory take precedence over the user's.
    folder = os.environ.get("WANDB_CONFIG_DIR") or "~/.config/wandb"
    settings = dict[str, str]()
    for file in (Path(os.path.expanduser(folder)) / "settings", Path("wandb") / "settings"):
        parser = configparser.ConfigParser(interpolation=None)
        with suppress(OSError, KeyError, ValueError, configparser.Error):
            parser.read(file, encoding="utf-8")
            settings |= dict(parser["default"])
    if settings.get("api_key"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL") or settings.get("base_url") or "").netloc
    hosts = WANDB if not host or host in WANDB else (host,)
    places = [os.environ["NETRC"]] if os.environ.get("NETRC") else ["~/.netrc", "~/_netrc"]
    logins = next((f for f in map(os.path.expanduser, places) if os.path.isfile(f)), None)
    if logins is None:
        return False
    try:
        known = netrc.netrc(logins).hosts
    except (OSError, ValueError, netrc.NetrcParseError):
        return False
    return any(known[host][2] for host in hosts if host in known)
