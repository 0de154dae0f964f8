"""Kill annotators again and again: ``python -m tests.generate.annotating FOLDER KILLS SEED``.

As ``tests.generate.killing``: children are forked and die at a random event, counted in calls and
returns of functions, every other time only in the modules that write.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from shutil import rmtree

import numpy as np

from cfaug.core.types import Example
from cfaug.generate import annotation
from cfaug.generate.annotation import AnnotationStage
from cfaug.generate.annotators import CaptionImages, DetectObjects
from cfaug.models.task_specs import ImageCaptioning, ObjectDetection
from tests.generate.killing import count_events, in_child
from tests.generate.photos import photo
from tests.models import tiny

WRITERS = ("files.py", "annotation.py")
COUNT = 24


def examples() -> list[Example]:
    # Every third image occurs twice.
    return [Example(f"e{n}", f"g{n}", (), photo(n - n % 3 // 2)) for n in range(COUNT)]


def stage(root: Path, cache: Path) -> AnnotationStage:
    captioner = ImageCaptioning(str(root / "blip"), max_new_tokens=4)
    detector = ObjectDetection(str(root / "detector"), threshold=0.0)
    asked = [CaptionImages(captioner, device="cpu"), DetectObjects(detector, device="cpu")]
    return AnnotationStage(asked, cache, batch=3, texts_from="captions")


def run(root: Path, cache: Path, file: Path, fatal: int, writing: bool) -> None:
    annotation.SECONDS_AT_RISK = 0.0  # a file a batch
    found, events = count_events(
        lambda: stage(root, cache).annotate(examples()), fatal, WRITERS if writing else ()
    )
    content = [[place, one.texts, dict(one.extra)] for place, one in sorted(found.done.items())]
    file.write_text(json.dumps({"found": content, "failed": len(found.failed), "events": events}))


def main(root: Path, kills: int, seed: int) -> dict[str, object]:
    tiny.save_blip(root / "blip")
    tiny.save_detector(root / "detector")
    whole, cut = root / "whole.json", root / "cut.json"
    events = {}
    for writing in (False, True):
        cache = root / f"whole-{writing}"
        assert in_child(lambda: run(root, cache, whole, -1, writing)) == 0  # noqa: B023
        events[writing] = json.loads(whole.read_text())["events"]
    rng = np.random.default_rng(seed)
    killed, rounds, inside, lost = 0, 0, 0, 0
    files = 0
    while True:
        writing = killed % 2 == 1
        fatal = int(rng.integers(1, events[writing] // 2)) if killed < kills else -1
        code = in_child(lambda: run(root, root / "cut", cut, fatal, writing))  # noqa: B023
        assert code in (0, -signal.SIGKILL)
        now = len(list((root / "cut").rglob("*.jsonl")))
        lost += now < files
        if code == 0:
            rounds += 1
            assert _found(cut) == _found(whole)
            if killed >= kills:
                break
            rmtree(root / "cut")
            files = 0
            continue
        killed += 1
        inside += now > 0
        files = now
    return {"killed": killed, "rounds": rounds, "inside": inside, "lost": lost}


def _found(file: Path) -> object:
    content = json.loads(file.read_text())
    return content["found"], content["failed"]


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
