"""The speed of opening and filtering a gallery of 2,000 pairs, in headless Chromium.

Pairs are 512 px crops of photographs that scikit-image bundles, one side of each with changed
colours. Opening lasts from the command to open the file until the first screenful is decoded and
drawn; filtering, sorting and turning a page last from the event until the same.

    python benchmarks/gallery.py
    python benchmarks/gallery.py --pairs 10000 --keep gallery.html
"""

from __future__ import annotations

import argparse
import io
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from browser import NAMES, Browser, find

if TYPE_CHECKING:
    from cfaug.core.types import CounterfactualSet

SIZE = 512
PHOTOS = ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg")
NOUNS = ("cat", "dog", "horse", "bird", "boat", "train", "bench", "kite", "pizza", "surfboard")

DRAWN = """(async () => {
  await Promise.all([...document.images].map((image) => image.decode()));
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
})()"""

ACTIONS = {
    "filter by a word": "set('text', 'horse')",
    "filter by three letters": "set('text', 'boa')",
    "filter that nothing fits": "set('text', 'no such thing')",
    "filter by a range": "range('sim_direction', 0.2)",
    "clear every filter": "reset()",
    "sort by a score": "choose('sort', '0 -1')",
    "shuffle": "choose('sort', 'random')",
    "next page": "document.querySelector('#end button:nth-child(2)').click()",
}

HELPERS = """
const $ = (id) => document.getElementById(id);
const fire = (element, kind) => element.dispatchEvent(new Event(kind, { bubbles: true }));
const set = (id, value) => { $(id).value = value; fire($(id), 'input'); };
const choose = (id, value) => { $(id).value = value; fire($(id), 'change'); };
const range = (name, low) => {
  const input = document.querySelector(`input[data-field="${name}"][data-end=low]`);
  input.value = low; fire(input, 'input');
};
const reset = () => $('reset').click();
"""


def pairs(count: int) -> Iterator[CounterfactualSet]:
    import numpy as np
    import skimage.data
    from PIL import Image

    from cfaug.core.types import CounterfactualSet, Edit, Member

    rng = np.random.Generator(np.random.Philox(key=3))
    folder = Path(skimage.data.data_dir)
    photos = [Image.open(folder / name).convert("RGB") for name in PHOTOS]
    for number in range(count):
        photo = photos[int(rng.integers(len(photos)))]
        side = int(min(photo.size) * rng.uniform(0.4, 1))
        left, top = (int(rng.integers(0, extent - side + 1)) for extent in photo.size)
        first = photo.resize((SIZE, SIZE), box=(left, top, left + side, top + side))
        images = {}
        for i, image in enumerate((first, Image.merge("RGB", first.split()[::-1]))):
            file = io.BytesIO()
            image.save(file, "JPEG", quality=90)
            images[str(i)] = file.getvalue()
        before, after = rng.choice(NOUNS, 2, replace=False)
        draw = {"seed": str(int(rng.integers(2**63))), "p": rng.uniform(0.1, 0.9),
                "cfg": rng.uniform(7.5, 15)}  # fmt: skip
        text = "A photograph of a {} beside another one, taken on a quiet afternoon"
        yield CounterfactualSet(
            f"pair-{number:06d}",
            f"photo-{number}",
            (
                Member(text.format(before), "0", str(number), extra=draw),
                Member(text.format(after), "1", str(number), Edit("noun", str(before), str(after)),
                       extra=draw),
            ),
            images,
            scores={"sim_direction": rng.uniform(0.1, 0.4), "sim_image": rng.uniform(0.7, 1),
                    "sim_0": rng.uniform(0.2, 0.35), "sim_1": rng.uniform(0.2, 0.35)},
        )  # fmt: skip


def measure(file: Path, repeats: int) -> dict[str, list[float]]:
    """Return the seconds of opening and of each action, with a new browser for each repeat."""
    seconds: dict[str, list[float]] = {"open": []} | {name: [] for name in ACTIONS}
    for _ in range(repeats):
        # The browser's other processes may still write to the profile when it is removed.
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        with folder as profile, Browser(Path(profile)) as browser:
            started = time.perf_counter()
            browser.open(file)
            browser.run(DRAWN)
            seconds["open"].append(time.perf_counter() - started)
            for name, action in ACTIONS.items():
                script = f"""(async () => {{
                  {HELPERS}
                  const started = performance.now();
                  {action};
                  await {DRAWN};
                  return performance.now() - started;
                }})()"""
                seconds[name].append(browser.run(script) / 1000)
            if browser.errors:
                raise RuntimeError("\n".join(browser.errors))
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="write the page to this file and keep it")
    options = parser.parse_args()
    if find() is None:
        raise SystemExit(f"a browser is missing: install one of {', '.join(NAMES)}")

    from cfaug.report.gallery import write_gallery

    with tempfile.TemporaryDirectory() as folder:
        file = options.keep or Path(folder) / "gallery.html"
        started = time.perf_counter()
        write_gallery(pairs(options.pairs), file, title="Benchmark", limit=None)
        written = time.perf_counter() - started
        size = file.stat().st_size / 2**20
        print(f"{options.pairs:,} pairs, {size:.1f} MiB, drawn and written in {written:.0f} s")
        print("| | median | lowest | highest |\n|---|---|---|---|")
        for name, times in measure(file, options.repeats).items():
            values = (statistics.median(times), min(times), max(times))
            print(f"| {name} | " + " | ".join(f"{1000 * v:,.0f} ms" for v in values) + " |")


if __name__ == "__main__":
    main()
