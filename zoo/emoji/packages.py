"""The published packages that the pack is made of, each pinned by its version and hash."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError


@dataclass(frozen=True)
class Package:
    """A package of the npm registry.

    Attributes:
        name: its name in the registry.
        sha256: the hash (hex) of its archive.
        licence: the SPDX identifier of what is taken from it.
        owner: who holds the rights, as a notice names them.
    """

    name: str
    version: str
    sha256: str
    licence: str
    owner: str


ARTISTS = {
    "noto": Package(
        "@iconify-json/noto", "1.2.9",
        "3e918d88fc945c0bb3d468dbace6f88caef67f01c9f0e7bcae0915a042e8f1ad",
        "Apache-2.0", "Google Inc.: Noto Emoji",
    ),
    "fluent": Package(
        "@iconify-json/fluent-emoji-flat", "1.2.6",
        "7d064769dee690815f823bc5bcc511d957198caf9f5edd8dd9c1aa48a6aeb175",
        "MIT", "Microsoft Corporation: Fluent Emoji",
    ),
    "twemoji": Package(
        "@iconify-json/twemoji", "1.2.5",
        "19046dff7d8707ce96212ec86468b36ac5f8e60409629dd13f809265c6d0ebb7",
        "CC-BY-4.0", "Twitter, Inc. and other contributors: Twemoji",
    ),
    "openmoji": Package(
        "@iconify-json/openmoji", "1.2.29",
        "03181e2c156cab35cf4a62f1f7886bd971d59212e75ac3f189d5a4cae3930fc5",
        "CC-BY-SA-4.0", "the OpenMoji project",
    ),
}  # fmt: skip
"""{artist: the package of their pictures}."""
SHIPPED = ("noto", "fluent", "twemoji")
"""The artists whose licences let the package ship their pictures."""
NAMES = (
    Package(
        "cldr-annotations-full", "48.2.0",
        "28576e51225deb51e3ddd734b0f824a0079682cb5d8c27faa9f68149317a14d1",
        "Unicode-3.0", "Unicode, Inc.: CLDR annotations",
    ),
    Package(
        "cldr-annotations-derived-full", "48.2.0",
        "4be946ff5815f806ec78b50363d577a769f2fbfb90c6380a44e161a92436996e",
        "Unicode-3.0", "Unicode, Inc.: CLDR annotations, derived",
    ),
)  # fmt: skip
"""Unicode's names, and those that it derives for sequences."""
GROUPS = Package(
    "emojibase-data", "17.0.0",
    "d01d0e2ca4e22cb402679532155342c71e2e871f25c32223c013b8b166ebdf5a",
    "MIT", "Miles Johnson: emojibase, of Unicode's emoji-test.txt",
)  # fmt: skip
"""Unicode's groups and subgroups as JSON."""


def fetch(package: Package, folder: Path) -> Path:
    """Return the archive of a package in a folder, from the registry unless it is there.

    Raises:
        UserError: if ``npm`` is missing or fails, or the archive is another one.
    """
    archive = folder / f"{package.name.rpartition('/')[2]}-{package.version}.tgz"
    if not archive.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "pack", "--silent", f"{package.name}@{package.version}"]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, encoding="utf-8"
            )
        except FileNotFoundError as error:
            raise UserError("npm is missing, which fetches the published packages") from error
        if done.returncode:
            raise UserError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        (folder / done.stdout.split()[-1]).rename(archive)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != package.sha256:
        raise UserError(
            f"{archive} is not {package.name} {package.version} as it was published: its sha256 "
            f"is {digest}, not {package.sha256}. Delete it, and run the command again"
        )
    return archive


def read_json(archive: Path, file: str) -> Any:
    """Return the content of a JSON file of an archive, of which nothing is unpacked."""
    with tarfile.open(archive) as tar:
        member = tar.extractfile(f"package/{file}")
        assert member is not None, file
        return json.load(member)
