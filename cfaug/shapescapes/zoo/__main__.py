"""``cfaug zoo``: list the tiny models that are shipped, or train one anew.

``cfaug zoo`` lists them; ``cfaug zoo clip out=FOLDER seed=0`` trains one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib import import_module

from cfaug.core.errors import USERS_MISTAKE, UserError, say
from cfaug.core.weights import zoo_shelf

COMMANDS = {
    "captioner": "cfaug.shapescapes.zoo.captioner",
    "classifier": "cfaug.shapescapes.zoo.classifier",
    "clip": "cfaug.shapescapes.zoo.clip",
    "clip_domains": "cfaug.shapescapes.zoo.clip_domains",
    "clip_things": "cfaug.shapescapes.zoo.clip_things",
    "diffusion": "cfaug.shapescapes.zoo.diffusion.__main__",
    "diffusion_domains": "cfaug.shapescapes.zoo.diffusion.domains",
    "entailment": "cfaug.shapescapes.zoo.entailment",
    "factor_classifier": "cfaug.shapescapes.zoo.factor_classifier",
    "fusion": "cfaug.shapescapes.zoo.fusion",
    "language": "cfaug.shapescapes.zoo.language.__main__",
    "perturber": "cfaug.shapescapes.zoo.perturber.__main__",
    "perturber_rows": "cfaug.shapescapes.zoo.perturber.rows",
    "questions": "cfaug.shapescapes.zoo.vlm_training",
    "vlm": "cfaug.shapescapes.zoo.vlm",
}
"""The module of each command, which has ``main(argv) -> int``."""


def main(argv: Sequence[str]) -> int:
    """List the models, or run one of the commands; return the exit code."""
    words = list(argv)
    if not words:
        print(list_models())
        return 0
    if words[0] in {"-h", "--help"}:
        print(usage())
        return 0
    name, *rest = words
    try:
        if name not in COMMANDS:
            raise UserError(f"the zoo has no command {name!r}\n{usage()}")
        module = import_module(COMMANDS[name])
        if {"-h", "--help"} & set(rest):
            print(module.__doc__)
            return 0
        found: int = module.main(rest)
    except UserError as error:
        say(f"error: {error}")
        return USERS_MISTAKE
    return found


def usage() -> str:
    """Return the list of commands."""
    return (
        "cfaug zoo                          list the models that are shipped\n"
        "cfaug zoo NAME out=FOLDER [k=v]    train one anew; --help says what it takes\n"
        f"NAME: {', '.join(COMMANDS)}"
    )


def list_models() -> str:
    """Return a line for each shipped model: its name, its size and the metrics of its card."""
    lines = []
    for card in sorted(zoo_shelf().glob("*/card.json")):
        metrics = json.loads(card.read_text(encoding="utf-8"))["metrics"]
        size = sum(file.stat().st_size for file in card.parent.rglob("*") if file.is_file())
        lines.append(f"zoo:{card.parent.name:26} {size / 2**20:5.1f} MB  {_summarise(metrics)}")
    return "\n".join([*lines, f"in {zoo_shelf()}; cfaug zoo --help says how each is trained"])


def _summarise(metrics: object, most: int = 3) -> str:
    """Return the first numbers of a card's metrics, which may be nested."""
    found: list[str] = []

    def visit(node: object, name: str) -> None:
        if isinstance(node, dict):
            for key, value in node.items():
                visit(value, str(key))
        elif isinstance(node, int | float) and not isinstance(node, bool) and len(found) < most:
            found.append(f"{name} {node:.4g}")

    visit(metrics, "")
    return ", ".join(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
