"""The documentation site is built without a warning and needs no network to be read."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

import cfaug
from tests.scripts import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    source = folder / "docs"
    source.mkdir()
    for file in (ROOT / "docs").iterdir():
        if file.is_file():
            shutil.copy(file, source)
    shutil.copy(ROOT / "README.md", folder)  # docs/index.md includes its first commands
    (folder / "cfaug").symlink_to(ROOT / "cfaug")  # docs/map.md links its files
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "docs", "site"],
        cwd=folder, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.mark.slow
def test_every_public_name_has_a_page_with_its_arguments(site):
    for name in cfaug.PUBLIC:
        text = (site / "reference" / f"cfaug.{name}.html").read_text()
        assert f"cfaug.{name}" in text
    page = (site / "reference" / "cfaug.fine_tune.html").read_text()
    for argument in ("settings", "more"):
        assert f"<strong>{argument}</strong>" in page


@pytest.mark.slow
def test_no_page_loads_anything_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 10
    for page in pages:
        loaded = re.findall(
            r"<(?:script|img|iframe)[^>]*src=\"([^\"]+)|<link[^>]*stylesheet[^>]*href=\"([^\"]+)",
            page.read_text(),
        )
        assert not [one for pair in loaded for one in pair if "//" in one]
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*['\"]?(?:https?:)?//", sheet.read_text())
