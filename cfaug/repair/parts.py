"""The parts of a repair are disjoint: what finds a failure, mends it, and judges the mending."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.errors import UserError, name_some

if TYPE_CHECKING:
    from cfaug.data.index import Index


def check_disjoint(parts: Mapping[str, Index]) -> None:
    """Refuse parts that share a photo: by its group, or by the bytes of an image.

    Args:
        parts: {name: source}, such as FIND, POOL, GATE and TEST.

    Raises:
        UserError: naming two parts and the photos that both have.
    """
    for (name, index), (other, other_index) in combinations(parts.items(), 2):
        shared = {
            "groups": np.isin(np.asarray(index.groups), np.asarray(other_index.groups)),
            "images": np.isin(index.contents, other_index.contents),
        }
        for what, rows in shared.items():
            if rows.any():
                keys = [index.key(int(row)) for row in np.flatnonzero(rows)]
                raise UserError(
                    f"{name} ({index.source}) and {other} ({other_index.source}) share {what}: "
                    f"{len(keys)} rows of {name}, such as {name_some(keys)}; a repair is judged on "
                    "photos that neither found nor mended the failure: name parts without them"
                )
