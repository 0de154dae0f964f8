"""Every script in benchmarks/ at its smallest size: it runs, and prints its comparison."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from benchmarks import browser
from tests import children, skips
from tools.gpu_steps import BENCHMARKS

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "benchmarks"
COMMAND = 'if __name__ == "__main__":'

SMALL = {
    "cluster_simulation": "--sets 200 --seconds-per-set 10 --workers 2 --sets-per-shard 5 10",
    "device_audit": "--quick",
    "few_clusters": "--trials 10 --clusters 3,8",
    "gallery": "--pairs 8 --repeats 1",
    "loader": "--images 8 --repeats 1 --workers 1",
    "near_duplicates": "--images 16 --timed 100",
    "page_picture": "page.html page.png --width 300 --height 200 --start p",
    "p_laws": "--sets 2 --candidates 20",
    "seeds_and_items": "--items 10 --trials 4 --resamples 20",
    "shards": "--shards 4",
    "skew": "--quick",
    "ten_million": "--sets 1000 --only plan report keys resume card again index middle",
    "vqa_picture": "out=vqa.png",
    **{name: f"{words} --device cpu" for name, (words, _) in BENCHMARKS.items()},
}
"""The arguments of a quick run. A new script needs an entry here or in ``tools/gpu_steps.py``."""

PRINTED = {
    "answering": r"\| llava \| \d+ \| [\d.]+ \| \d",
    "captions": r"\| one candidate \| [\d.]+ \|",
    "cluster_simulation": r"Simulated cluster[^$]*\b10 \*",
    "compositional": r"\| BiVLC \|( [\d.]+ \|){6}",
    "device_audit": r"\| train CLIP \| step \| \d+ \|( [^|]+ \|){2} 0 \| 1 \| transformers",
    "evaluation": r"\| ours, warm \| [\d.]+ \|",
    "few_clusters": r"a third \| right or wrong \|( [\d.]+ / [\d.]+ / [\d.]+ \|){2}[^$]*\| 1000 \|",
    "gallery": r"\| filter by a word \|( \d+ ms \|){3}",
    "generation": r"\| tree\(4\) \| [\d.]+ \|",
    "insertion": r"the same words\): .* faster by \d",
    "loader": r"\| 1 \| torchvision \| \d+ \|",
    "near_duplicates": r"\| photos \(120 pairs\) \| each other \|( 0\.0% \|){6}",
    "page_picture": r"wrote page\.png: 300 x 200 pixels",
    "p_laws": r"\| falling \| 7\.6% \|( [\d.]+ ± [\d.]+ \|){5}",
    "real_size": r"\| clip-vit-b-32 \|( [\d,.]+ \|){5} \d\.\de-0[6-9] \|\n$",
    "seeds": r"\| packed, 1 process \| [\d.]+ \|[^$]*weights are the solo runs' bytes",
    "seeds_and_items": r"interaction( +\d+\.\d %){4}",
    "sets": r"\| ours \| [\d.]+ \|",
    "sharing": r"\| shared attention, p = 0\.9 \|",
    "shards": r"\| 4 \|( [\d.]+ \|){5}",
    "skew": r"usual labellings: [\d,]+ rows .* s of the processor",
    "ten_million": r"\| first batch of rank 7, [^|]* \|( [\d.,]+ \|){4}",
    "training": r"\| open_clip \| the whole command \|( [\d.]+ \|){2} [\d.]+ \(",
}
"""What the output has."""

FURTHER = [
    (
        "generation",
        "--weights flux2_tiny --steps 2 --candidates 4 --reference-candidates 1 --repeats 1 "
        "--threads 1",
        r"differs by \d\.\de-0[67], relatively[^$]*\| tree\(4\) \| [\d.]+ \|",
    )
]
"""Further quick runs of scripts."""
ELSEWHERE = {
    "inversion": "tests/imaging/test_inversion_benchmark.py",
    "rivals": "benchmarks/training.py",
}
"""Scripts with a quick run in a file of their own, or in another script."""


def commands() -> set[str]:
    """Return the names of all scripts; the other files of the folder are their modules."""
    names = {file.stem for file in FOLDER.glob("*.py") if COMMAND in file.read_text("utf-8")}
    assert len(names) > 10
    return names


def test_every_script_has_a_quick_run():
    assert commands() == SMALL.keys() | ELSEWHERE.keys()
    assert SMALL.keys() - PRINTED.keys() == {"inversion", "vqa_picture"}
    for name, file in ELSEWHERE.items():
        assert f'"{name}.py"' in (ROOT / file).read_text("utf-8")


def run_script(file: Path, words: list[str], place: Path) -> None:
    """Run a script as ``python FILE WORDS`` does, in a child whose slow imports are done."""
    os.chdir(place)
    for stream, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(place / name, os.O_WRONLY | os.O_CREAT), stream)
    os.environ |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}  # of the script's own children
    sys.argv = [str(file), *words]
    sys.path[:0] = [str(file.parent), str(ROOT)]
    runpy.run_path(str(file), run_name="__main__")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words", "said"),
    [(name, SMALL[name], PRINTED.get(name, "")) for name in sorted(commands() - ELSEWHERE.keys())]
    + FURTHER,
)
def test_a_script_runs_and_prints_its_comparison(name, words, said, tmp_path):
    """training.py had failed since photos are held out by default."""
    if name in ("gallery", "page_picture") and browser.find() is None:
        skips.skip("browser")
    paragraph = "<p style='margin-top: 2000px; height: 900px; background: #f00'></p>"
    (tmp_path / "page.html").write_text(paragraph)  # for the picture of a page
    child = children.start(run_script, FOLDER / f"{name}.py", words.split(), tmp_path)
    child.join()
    assert child.exitcode == 0, (tmp_path / "stderr").read_text("utf-8")[-2000:]
    printed = (tmp_path / "stdout").read_text("utf-8")
    assert re.search(said, printed), printed[-2000:]
    if name == "vqa_picture":
        assert (tmp_path / "vqa.png").read_bytes().startswith(b"\x89PNG")
    if name == "page_picture":
        with Image.open(tmp_path / "page.png") as picture:
            assert picture.size == (300, 200)
            assert picture.getpixel((150, 100)) == (255, 0, 0)  # the paragraph, far down the page


def test_a_script_without_its_browser_says_so(tmp_path):
    """It was a traceback."""
    done = subprocess.run(
        [sys.executable, str(FOLDER / "gallery.py"), "--pairs", "1"],
        env={"PATH": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("a browser is missing: install one of chromium")
