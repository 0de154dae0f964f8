"""Hand-made items of one image and several captions, and of pairs with categories."""

from __future__ import annotations

from itertools import islice

from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from cfaug.worlds.shapescapes import WorldSettings
from cfaug.worlds.shapescapes.parts import make_part

WORLD = WorldSettings(seed=3, style="drawing", id_scenes=40, ood_pairs=14)
CATEGORIES = ("replace_obj", "swap_obj", "swap_att")


def world_pairs(count=14):
    return list(islice(make_part(WORLD, "ood_pairs"), count))


def open_sets(sets, folder):
    write_shards(sets, folder / "sets")
    return open_index(folder / "sets", folder / "index")


def choice(key, image, captions, group=None, **extra):
    """An item: ``captions`` are (text, label), ``extra`` is of the first member."""
    members = tuple(
        Member(text, "0", f"{key}-{i}", label=label, extra=extra if i == 0 else {})
        for i, (text, label) in enumerate(captions)
    )
    return CounterfactualSet(key, group or key, members, {"0": image})


def choices(true=1, pairs=None):
    """An item of each pair of the world: its first image with captions of its own and others."""
    pairs = pairs or world_pairs()
    items = []
    for number, pair in enumerate(pairs):
        original, edited = pair.members
        captions = [(original.text, "true"), (edited.text, "false")]
        for more in range(1, true):
            captions.insert(more, (f"{original.text} {more} indeed", "true"))
        if number % 4 == 3:
            captions.append((pairs[number - 1].members[0].text, "false"))
        items.append(
            choice(
                f"item-{number}", pair.images["0"], captions, group=f"photo-{number // 2}",
                category=CATEGORIES[number % 3], tag=["hard", "rare"] if number % 2 else "hard",
            )
        )  # fmt: skip
    return items
