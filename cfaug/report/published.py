"""The numbers that papers print: ``<paper>/published/<name>.json``, a file per table.

A file has ``columns``, ``rows`` and ``note``. A row has ``values``, one per column: a number,
[mean, standard deviation], or ``null`` if the paper prints no number; every other key names the
row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError

PACKAGE = Path(__file__).parents[1]


@cache
def published(name: str) -> Mapping[str, Any]:
    """Return a paper's numbers for one table.

    Raises:
        UserError: if no table has that name.
    """
    files = {file.stem: file for file in PACKAGE.glob("*/published/*.json")}
    if name not in files:
        raise UserError(f"no numbers of {name}; there are {', '.join(sorted(files))}")
    content: Mapping[str, Any] = json.loads(files[name].read_text(encoding="utf-8"))
    return content
