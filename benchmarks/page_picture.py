r"""Take the picture of a page for the documentation, in headless Chromium.

docs/report.png and docs/gallery.png, after `make demo`, with G=shards/substitution-shapescapes:

    python benchmarks/page_picture.py runs/demo/report.html docs/report.png --height 1310 \
        --colours 128
    python benchmarks/page_picture.py $G/gallery.html docs/gallery.png --width 880 --height 620 \
        --start '#sets' --script "choose('sort', 'sim_direction, highest first')"
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from browser import NAMES, Browser, find
from PIL import Image

MARGIN = 14
"""Pixels above the element with which the picture begins."""
CHOOSE = """
const choose = (id, words) => {
  const box = document.getElementById(id);
  box.value = [...box.options].find((option) => option.textContent === words).value;
  box.dispatchEvent(new Event('change', { bubbles: true }));
};
"""


def take_picture(page: Path, file: Path, options: argparse.Namespace) -> None:
    """Open a page, run a script in it and write what the window then shows as a PNG."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        Browser(Path(profile)) as browser,
    ):
        browser.view(options.width, options.height)
        browser.open(page)
        browser.run(f"{CHOOSE} {options.script}; 0")
        top = 0
        if options.start:
            place = f"document.querySelector({options.start!r}).getBoundingClientRect().top"
            top = max(0, round(browser.run(f"{place} + scrollY")) - MARGIN)
        browser.view(options.width, top + options.height)  # a page may end before a window does
        browser.screenshot(file, top)
        if options.colours:  # letters and lines need few, and the file is a third
            with Image.open(file) as picture:
                few = picture.convert("RGB").quantize(options.colours)
            few.save(file, optimize=True)
        print(f"wrote {file}: {options.width} x {options.height} pixels of {page.name}")
        if browser.errors:
            raise RuntimeError(f"{page}: {browser.errors}")


def main(argv: Sequence[str] | None = None) -> None:
    """Take the picture that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("page", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--width", type=int, default=1200, help="CSS pixels")
    parser.add_argument("--height", type=int, default=900, help="CSS pixels")
    parser.add_argument("--start", help="selector of the element at the top of the picture")
    parser.add_argument("--colours", type=int, help="most colours; without it, all there are")
    parser.add_argument("--script", default="", help="JavaScript that is run before")
    options = parser.parse_args(argv)
    if find() is None:
        sys.exit(f"a browser is missing: install one of {', '.join(NAMES)}")
    take_picture(options.page, options.file, options)


if __name__ == "__main__":
    main()
