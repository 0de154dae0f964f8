"""Conversion of the settings of folders made before a recipe was one object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cfaug.core.renames import update_flat

Settings = Mapping[str, Any]

TARGETS = {
    "recipe.draws": "cfaug.generate.sampling.Draws",
    "recipe.selection": "cfaug.imaging.cosines.clip_selection",
    "recipe.scorers.scorer": "cfaug.imaging.clip.LazyClipScorer",
    "recipe.report.report": "cfaug.imaging.clip.LazyClipScorer",
}
"""Classes that recipes name now; older records omit them, because each had only one choice."""


def update_settings(
    captions: Settings, images: Settings | None, hash_of: Callable[[Settings], str]
) -> tuple[Settings, Settings | None]:
    """Return the settings of both stages in a folder's record, by their present names.

    Args:
        captions: the settings that the edits depend on.
        images: the other settings that the images depend on; ``None`` before that stage.
        hash_of: a function that returns the hash by which ``images`` refers to ``captions``.
    """
    if "data.captions (content)" not in captions:
        return captions, images
    found = {
        key.replace("data.captions (", "data.source ("): value
        for key, value in update_flat(captions, "generate").items()
    }
    if images is None:
        return found, None
    updated = update_flat(images, "generate")
    if updated.get("edits") == hash_of(captions):
        updated["edits"] = hash_of(found)
    if updated.get("recipe.report.report.model", 0) is None:  # there was none
        del updated["recipe.report.report.model"]
        updated["recipe.report.report"] = None
    elif "recipe.scorers.scorer.preprocessing" in updated:
        shared = updated["recipe.scorers.scorer.preprocessing"]
        updated["recipe.report.report.preprocessing"] = shared
        updated["recipe.report.report.prefix"] = "report_"
    for part, target in TARGETS.items():
        if any(key.startswith(f"{part}.") for key in updated):
            updated[f"{part}._target_"] = target
    return found, updated
