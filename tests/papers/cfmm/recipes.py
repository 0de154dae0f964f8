"""What tests of every recipe have to know of those of the paper."""

from __future__ import annotations

NOT_ASKED = {"cfmm": "its questions come from a server"}
OF_PAPERS_ZOO = {"cfmm": "zoo=paper"}
