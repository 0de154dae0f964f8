"""What the tests of composition need to know about this paper's experiments."""

from __future__ import annotations

ARMS_ELSEWHERE = dict.fromkeys(("negclip", "trohn", "trohn_img", "ce_clip"), "rivals")
"""The rivals' runs lie in one experiment, whose arms they are."""
