"""Sets of two texts on one photo, as the recipes for texts make them."""

from __future__ import annotations

from pathlib import Path

from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.index import Index, open_index
from cfaug.data.shards.shards import write_shards
from tests.annotation.making import HOSTILE
from tests.report.example import picture


def text_set(number: int, method: str, unchanged: bool = False, truth: float | None = 1.0):
    """Return a photo's text and what a method made of it; the first one is hostile."""
    text = HOSTILE if number == 0 else f"a ball number {number}"
    edit = None if unchanged else Edit(method, "", f"{method}-word")
    after = text if unchanged else f"{text} {method}-word"
    members = (Member(text, "0", "s"), Member(after, "0", "s", edit))
    images = {"0": picture(("ball", "cube", "star")[number % 3], "red")}
    scores = {"truth_0": 1.0} | ({} if truth is None else {"truth_1": truth})
    return CounterfactualSet(f"c{number:03d}", f"g{number}", members, images, scores)


def write_text_sets(
    folder: Path, method: str, count: int = 12, unchanged=(), false=(), unknown=()
) -> Index:
    """Write sets and open them; some changed texts are as before, false, or unknown."""
    sets = [
        text_set(n, method, n in unchanged, None if n in unknown else float(n not in false))
        for n in range(count)
    ]
    write_shards(sets, folder)
    return open_index(folder, folder.parent / "cache")
