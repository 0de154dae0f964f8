"""Hand-laid sets of attribute grids with tiny images.

Such as ``lay_grid_sets(folder, [grid_set("doctor"), grid_set("nurse", prefix="")])``.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.captions import right_articles
from cfaug.data.grids import GridMember, attribute_combinations, grid_edit, grid_key
from cfaug.data.shards.shards import write_shards

RACE_GENDER = {"race": ("White", "Black", "Latino"), "gender": ("male", "female")}
SUBJECTS = ("doctor", "nurse", "engineer", "pilot")


@cache
def tiny_image(*seed: int) -> bytes:
    """Return a PNG of 8 x 8 pixels of noise, another for every seed."""
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def grid_set(
    subject: str,
    number: int = 0,
    *,
    attributes: Mapping[str, Sequence[str]] = RACE_GENDER,
    grid: str = "race_gender",
    prefix: str = "A photo of",
    subject_type: str = "occupation",
    leave_out: Sequence[int] = (),
    repeat: Sequence[int] = (),
) -> CounterfactualSet:
    """Return a set of a grid: a member for each combination, the base first.

    Args:
        subject: the subject of all members; in lower case it is the group.
        number: the number of the set among those of one subject and prefix.
        attributes: the values by attribute.
        grid: the name of the grid.
        prefix: the beginning of the captions.
        subject_type: the kind of subject.
        leave_out: places of combinations without a member.
        repeat: places of combinations that have a second member.
    """
    every = attribute_combinations(attributes)
    places = [at for at in range(len(every)) if at not in leave_out]
    places = sorted([*places, *repeat])
    neutral = right_articles(f"{prefix} a {subject}".strip())
    key = f"{grid_key(prefix, grid, subject)}-{number}"
    members = []
    for name, at in enumerate(places):
        values = every[at]
        text = right_articles(f"{prefix} a {' '.join(values.values())} {subject}".strip())
        about = GridMember(subject, subject_type, grid, prefix, neutral, values)
        edit = grid_edit(every[0], values)
        members.append(Member(text, str(name), key, edit, subject, about.extra))
    seed = [sum(key.encode()), number]
    images = {str(name): tiny_image(*seed, len(key), name) for name in range(len(places))}
    return CounterfactualSet(key, subject.lower(), tuple(members), images)


def every_grid_set(
    subjects: Sequence[str] = SUBJECTS, sets: int = 2, prefixes: Sequence[str] = ("", "A photo of")
) -> list[CounterfactualSet]:
    """Return sets of race x gender: ``sets`` of every subject and prefix."""
    return [
        grid_set(subject, number, prefix=prefix)
        for subject in subjects
        for prefix in prefixes
        for number in range(sets)
    ]


def lay_grid_sets(folder: Path, sets: Iterable[CounterfactualSet]) -> Path:
    """Write sets as shards and return their folder."""
    write_shards(sets, folder)
    return folder
