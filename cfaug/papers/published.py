"""The numbers that papers print: ``<paper>/<name>.json``, a file a table, with where they stand.

A file has ``columns``, ``rows`` and ``note``. A row has ``values``, one a column: a number,
[mean, standard deviation], or ``null`` where the paper prints none; every other key names the row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from cfaug.errors import UserError

FOLDER = Path(__file__).parent


@cache
def published(name: str) -> Mapping[str, Any]:
    """Return a paper's numbers of one table.

    Raises:
        UserError: if no table has that name.
    """
    files = {file.stem: file for file in FOLDER.glob("*/*.json")}
    if name not in files:
        raise UserError(f"no numbers of {name}; there are {', '.join(sorted(files))}")
    content: Mapping[str, Any] = json.loads(files[name].read_text(encoding="utf-8"))
    return content
