"""``cfaug zoo``: the tiny models that are shipped, ``zoo:NAME`` each; ``zoo/`` trains them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice

from cfaug.core.errors import USERS_MISTAKE, say
from cfaug.core.safety.json_text import load_json
from cfaug.core.weights import zoo_shelf

USAGE = (
    "cfaug zoo    list the models that are shipped; python -m zoo NAME in the repository of cfaug "
    "trains one anew"
)


def main(argv: Sequence[str]) -> int:
    """List the models; return the exit code."""
    if argv and argv[0] not in {"-h", "--help"}:
        say(f"error: {argv[0]!r} is invalid here\n{USAGE}")
        return USERS_MISTAKE
    say(USAGE if argv else list_models(), sys.stdout)
    return 0


def list_models() -> str:
    """Return a line for each shipped model: its name, its size and the metrics of its card."""
    lines = []
    for card in sorted(zoo_shelf().glob("*/card.json")):
        metrics = load_json(card.read_text(encoding="utf-8"))["metrics"]
        size = sum(file.stat().st_size for file in card.parent.rglob("*") if file.is_file())
        numbers = ", ".join(islice(_numbers(metrics), 3))
        lines.append(f"zoo:{card.parent.name:26} {size / 2**20:5.1f} MB  {numbers}")
    return "\n".join([*lines, f"in {zoo_shelf()}"])


def _numbers(node: object, name: str = "") -> Iterator[str]:
    """Yield the numbers of a card's metrics, which may be nested."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _numbers(value, str(key))
    elif isinstance(node, int | float) and not isinstance(node, bool):
        yield f"{name} {node:.4g}"
