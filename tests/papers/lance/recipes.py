"""What tests of every recipe have to know of those of the paper."""

from __future__ import annotations

NOT_ASKED = {"lance_fixed": "one intervention for a whole class is typed"}
WHOLE = dict.fromkeys(("lance", "lance_r", "lance_fixed"), ("shapescapes", "paper"))
OF_PHOTOS = WHOLE
"""Recipes of which every photo gives one set."""
