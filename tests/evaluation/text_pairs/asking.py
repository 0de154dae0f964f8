"""How the benchmarks of text pairs are asked, and how their items are read."""

from __future__ import annotations

from cfaug.data.index import open_index
from cfaug.evaluation.context import EvaluationContext


def context(root):
    return EvaluationContext(
        open=lambda name: open_index(name, root / "index"), has_world=False, held_out=lambda: None
    )


def rows(evaluation):
    """Return the items by their names."""
    names = list(evaluation.items)
    values = zip(*(evaluation.items[name] for name in names), strict=True)
    return {row[0]: dict(zip(names, row, strict=True)) for row in values}
