"""The cards of the shipped models."""

from __future__ import annotations

import json
from typing import Any

from cfaug.core.weights import resolve


def card(name: str) -> dict[str, Any]:
    return json.loads((resolve(f"zoo:{name}") / "card.json").read_text())
