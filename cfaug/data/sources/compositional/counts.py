"""Numbers of items in the released files and in the papers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Released:
    """The expected numbers of items of a test.

    Attributes:
        items: number of items in the released files.
        by_category: number of items of each part; empty if not counted.
        remark: differences of the paper or other copies, "" if there are none.
    """

    items: int
    by_category: Mapping[str, int] = field(default_factory=dict)
    remark: str = ""


SUGARCREPE = {
    "add_obj": 2062, "add_att": 692, "replace_obj": 1652, "replace_att": 788, "replace_rel": 1406,
    "swap_obj": 245, "swap_att": 666,
}  # fmt: skip

RELEASED: Mapping[str, Released] = {
    "winoground": Released(400),
    "bivlc": Released(
        2933,
        {"replace_obj": 1200, "replace_rel": 462, "replace_att": 437, "add_obj": 399, "add_att": 76,
         "swap_att": 278, "swap_obj": 81},
    ),
    "vismin": Released(2084),
    "mmvp_vlm": Released(135),
    "sugarcrepe": Released(
        7511,
        SUGARCREPE,
        "the paper, and copies made of an earlier release, have 7,512: there swap_obj has 246, of "
        "which the released file lacks number 108",
    ),
    "sugarcrepe_pp": Released(
        4757, {name: count for name, count in SUGARCREPE.items() if not name.startswith("add")}
    ),
    "aro_relation": Released(23_937),
    "aro_attribution": Released(28_748),
    "hard_positives": Released(
        56_191,
        {"swap": 28_748, "replace_att": 10_575, "replace_rel": 16_868},
        "16 items (15 of replace_rel, 1 of replace_att) have equal captions; they are left out "
        "here, and counted as wrong by the released code",
    ),
}  # fmt: skip
"""By the kind of source. BiVLC's parts are those of its released results, hard positives' sum is
half of the paper's 112,382 captions; the others were counted in the released files or are their
papers' numbers."""
