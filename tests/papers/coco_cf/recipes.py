"""What tests of every recipe have to know of those of the paper."""

from __future__ import annotations

WHOLE = {"coco_cf": ("shapescapes", "paper")}
ARMS_ELSEWHERE = {"coco_cf_3/human_validated": "coco_cf_11"}
