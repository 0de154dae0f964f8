"""Hand-laid joined sets: a photo, its reconstruction and its edits, as random pictures."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from cfaug.core.types import CounterfactualSet, Edit, Member

CLASSES = ("ball", "cube", "star")


def picture(*seed):
    draw = np.random.default_rng(seed)
    pixels = draw.integers(0, 256, (1, 1, 3)) * 0.6 + draw.integers(0, 100, (32, 32, 3))
    out = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(out, "PNG")
    return out.getvalue()


def joined_set(number, edits, label=None, seed=0, control=True):
    """A set of the photo ``number`` with edits (kind, before, after).

    An edit to "same" shows the photo's own bytes.
    """
    caption = f"a photo of a red {number} on the beach"
    label = CLASSES[number % len(CLASSES)] if label is None else label
    images = {"0": picture(0, number)}
    members = [Member(caption, "0", str(number), None, label)]
    if control:
        images["1"] = picture(0, number, 1)
        members.append(Member(caption, "1", str(number), Edit("reconstruction", "", ""), label))
    for n, (kind, before, after) in enumerate(edits, 2):
        name = "0" if after == "same" else str(n)
        images.setdefault(name, picture(seed, number, n))
        text = caption.replace(before, after) if before else f"{caption} {after}"
        extra = {"p": 0.4 + 0.1 * (n % 3), **({"prompt": "weather"} if n % 2 else {})}
        members.append(Member(text, name, str(number), Edit(kind, before, after), label, extra))
    return CounterfactualSet(f"photo-{number}", f"group-{number}", tuple(members), images)


def joined_sets(photos=9, seed=0):
    """Photos with 0 to 4 edits, so that sets differ in size and one photo has none."""
    kinds = [("background", "beach", "snow"), ("adjective", "red", "blue"),
             ("domain", "photo", "sketch"), ("background", "", "in the rain")]  # fmt: skip
    return [joined_set(n, kinds[: n % 5], seed=seed) for n in range(photos)]


def random_sets(photos=9):
    """Edits of random words of the same photos, the last two without one."""
    edits = [("random", "beach", "table")]
    return [joined_set(n, edits if n < photos - 2 else [], seed=7) for n in range(photos)]
