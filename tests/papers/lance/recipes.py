"""What tests of every recipe have to know of those of the paper."""

from __future__ import annotations

WHOLE = dict.fromkeys(("lance", "lance_r"), ("shapescapes", "paper"))
OF_PHOTOS = WHOLE
"""Recipes of which every photo gives one set."""
