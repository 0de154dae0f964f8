"""The truth about edits of photos of the world, for ``benchmark=edit_quality``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.weights import resolve
from cfaug.evaluation.edit_masks import EditTruth
from cfaug.worlds.shapescapes.drawing import Scene, render, scene_of
from cfaug.worlds.shapescapes.judge import Judge, load_judge
from cfaug.worlds.shapescapes.oracle import edit_scene, redraw_edited
from cfaug.worlds.shapescapes.settings import FACTORS, STYLES


@dataclass
class WorldEdits:
    """Masks by redrawing the scene, and a judge of factors; an ``EditOracle``.

    The style of a photo's world is the one that draws exactly this photo.

    Args:
        judge: the zoo's judge, which reads pictures of 64 pixels; on others it says nothing.
    """

    judge: str = "zoo:judge-domains"
    _style: str = "clear"

    def describe(self) -> str:
        return self.judge

    @cached_property
    def _judge(self) -> Judge:
        return load_judge(resolve(self.judge))

    def check(
        self, record: Mapping[str, Any], texts: tuple[str, str], photo: Any, shown: Any
    ) -> EditTruth | None:
        try:
            scene = scene_of(record)
        except (KeyError, ValueError) as error:
            raise UserError(
                "benchmark.masks=oracle is for edits of photos of the embedded world (generate.py "
                "data.source=shapescapes:PART), whose scenes are known: for others name a folder "
                "of masks, or PIE-Bench's data, benchmark.masks=FOLDER"
            ) from error
        style, after = self._find_style(scene, photo), edit_scene(scene, *texts)
        if after is None:
            return None
        _, mask = redraw_edited(scene, after, size=len(photo), style=STYLES[style])
        if photo.shape != (64, 64, 3):
            return EditTruth(mask, math.nan, math.nan)
        seen = self._judge.factors(shown.transpose(2, 0, 1)[None].copy())[0]
        right = {n: getattr(seen, n) == getattr(after.factors, n) for n in FACTORS}
        edited = [n for n in FACTORS if getattr(scene.factors, n) != getattr(after.factors, n)]
        success = float(all(right[name] for name in edited)) if edited else math.nan
        rest = float(all(right[name] for name in FACTORS if name not in edited))
        return EditTruth(mask, success, rest)

    def _find_style(self, scene: Scene, photo: np.ndarray) -> str:
        """Return the style of the photo's world; that of the photo before is tried first."""
        for style in (self._style, *STYLES):
            if np.array_equal(render(scene, len(photo), STYLES[style]).pixels, photo):
                self._style = style
                return style
        raise UserError(
            "benchmark.masks=oracle: a photo is not what the world draws of its scene, so it was "
            "changed afterwards (recipe.postprocess?): make the sets of photos as they are"
        )
