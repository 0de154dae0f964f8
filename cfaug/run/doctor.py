"""``cfaug doctor``: what can be done on this machine now, and what else each missing part gives."""

from __future__ import annotations

import configparser
import netrc
import os
import re
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from urllib.parse import urlsplit

from cfaug import __version__
from cfaug.core.errors import UserError, name_some, say
from cfaug.core.processes import find_folder, is_checkout
from cfaug.settings.settings_files import settings_folders

DATA = re.compile(r"\$\{paths\.data\}/([\w.-]+)")
"""The name of a folder of data in the settings."""
WEIGHTS = {
    "model": "model=...",
    "zoo/paper.yaml": "zoo=paper",
    "zoo/flux2_klein.yaml": "zoo=flux2_klein",
}
"""{place in the settings that names models of the Hub: the choice that uses them}."""
HUB_ID = re.compile(r"weights: *([A-Za-z0-9][\w.-]*/[\w.-]+)")
WIDEST = 120
"""Most characters of a line; a narrower terminal has fewer."""
NAMED = 2
"""Most models, folders or uses that one screen names; a section by itself names all."""
COMMANDS = {
    "generate": "python generate.py limit=6",
    "train": "python train.py data.cf_ratio=0.6 seed=107",
    "evaluate": "python evaluate.py weights=zoo:clip-0",
    "compare": "cfaug compare A B (folders of other evaluators' logs)",
}
"""{what the shipped models and the embedded world suffice for: its command}."""
PURPOSES = {
    "generate": "generate.py, images by diffusion models",
    "loggers": "logger=wandb, logger=tensorboard",
    "open_clip": "model=open_clip and others of its library",
    "minilm": "the sentence model of the captions' filter, without the Hub",
    "fid": "the original FID, benchmark=image_quality",
    "s3": "shards in a bucket, paths.shards=s3://...",
    "docs": "make docs",
    "trackio": "logger=trackio",
    "notebook": "tables as pandas' frames",
    "slurm": "hydra/launcher=submitit_slurm",
    "ray": "engine=ray",
    "xlsx": "VLMEvalKit's tables as .xlsx",
    "sweepers": "hydra/sweeper=optuna",
}
"""{extra: what it is for}."""


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
        kind: the name of its parts in the plural, where they are too many for a line each; empty
            for a section whose parts have lines of their own.
        bring: the command that brings its missing parts.
    """

    title: str
    find: Callable[[], Iterator[CheckedPart]]
    kind: str = ""
    bring: str = ""


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
    width = min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns)
    if not chosen:
        for line in describe_machine(sections, width):
            say(line, sys.stdout)
    for name in chosen:
        say(sections[name].title, sys.stdout)
        for part in sections[name].find():
            say(part.line(width), sys.stdout)
    return 0


def describe_machine(sections: Mapping[str, DoctorSection], width: int) -> Iterator[str]:
    """Yield the lines of one screen: what can be done now, then what is missing, and for what."""
    parts_by_section = {name: list(section.find()) for name, section in sections.items()}
    yield _cut(sections["devices"].title, width)
    yield "You can now"
    extras = {part.name: part.there for part in parts_by_section["extras"]}
    for name, command in COMMANDS.items():
        if extras.get(name, True):
            yield _line(name, command, width)
    devices = [f"{p.name} ({p.said})" for p in parts_by_section["devices"] if p.there]
    yield _line("on", ", ".join(devices), width)
    for name, parts in parts_by_section.items():
        there = [part.name for part in parts if part.there]
        if there and name != "devices":
            count = f"{len(there)} of {len(parts)}: " * (len(there) < len(parts))
            yield _line(name, f"{count}{name_some(there, NAMED)}", width)
    missing = list(_missing_lines(sections, parts_by_section, width))
    if missing:
        yield "Missing, and what for"
    yield from missing


def _missing_lines(
    sections: Mapping[str, DoctorSection],
    parts_by_section: Mapping[str, Sequence[CheckedPart]],
    width: int,
) -> Iterator[str]:
    for name, section in sections.items():
        absent = [part for part in parts_by_section[name] if not part.there]
        if not section.kind:
            for part in absent:
                trouble = f"{part.trouble}; " if part.trouble else ""
                yield _line(part.name, f"{trouble}{part.said} -> {part.bring}", width)
        elif absent:
            absent.sort(key=lambda part: not part.trouble)
            names = [f"{p.name} ({p.trouble})" if p.trouble else p.name for p in absent]
            uses = [use for part in absent for use in part.said.removeprefix("for ").split(", ")]
            common = [use.replace("/", "=", 1) for use, _ in Counter(uses).most_common(NAMED)]
            text = (
                f"{len(absent)} of {len(parts_by_section[name])} {section.kind}, for "
                f"{', '.join(common)} and others: {name_some(names, NAMED)} -> {section.bring}"
            )
            yield _line(name, text, width)


def _line(name: str, text: str, width: int) -> str:
    return _fill(f"  {name:10} {text}", width, 13)


def list_sections(data: Path) -> dict[str, DoctorSection]:
    """Return {word that asks for one section alone: the section}."""
    readable = not data.is_dir() or os.access(data, os.R_OK | os.X_OK)
    data_title = f"data: paths.data={data}" + ("" if readable else ", which cannot be read")
    origin = "a clone" if is_checkout() else "a wheel"
    return {
        "devices": DoctorSection(
            f"cfaug {__version__} from {origin}: {find_folder('conf')}", inspect_devices
        ),
        "extras": DoctorSection("extras", inspect_extras),
        "weights": DoctorSection(
            "weights from the Hub in this machine's cache",
            inspect_weights,
            "models of the Hub",
            "cfaug doctor weights",
        ),
        "data": DoctorSection(
            data_title,
            lambda: inspect_data(data),
            f"folders below {data}",
            "cfaug doctor data",
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
        details = PURPOSES.get(extra.replace("-", "_"), "")
        details += f" ({', '.join(names)})" if not missing else f" (lacks {', '.join(missing)})"
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
