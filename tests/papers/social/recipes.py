"""What tests of every recipe have to know of those of the paper."""

from __future__ import annotations

OF_GRIDS = {"social": "race_gender", "social_oracle": "race_gender"}
"""Recipes whose examples are a grid of captions, not a part of the world."""
IMAGE_EDITORS = {"social": ["recipe.image_editor.steps=2"], "social_oracle": []}
ARMS_ELSEWHERE = {
    "social/nothing": "social_nothing",
    "social_debias/start": "social_debias_start",
}
