"""Records of evaluation that several of its modules share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Classes:
    """The classes to choose from.

    Attributes:
        templates: prompts with ``{c}`` in place of the name.
    """

    labels: Sequence[str]
    names: Sequence[str]
    templates: Sequence[str]
