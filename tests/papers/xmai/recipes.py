"""What tests of every recipe have to know of those of the paper."""

from __future__ import annotations

IMAGE_EDITORS: dict[str, list[str]] = {"xmai": []}
OF_PAPERS_ZOO = {"xmai": "zoo=paper"}
