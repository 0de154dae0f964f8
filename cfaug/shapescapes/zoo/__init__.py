"""The tiny models that are shipped: their training code, their weights, and ``cfaug zoo``.

``cfaug zoo`` lists them; ``cfaug zoo clip out=FOLDER seed=0`` trains one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import islice

from cfaug.core.errors import USERS_MISTAKE, UserError, say
from cfaug.core.safety.json_text import load_json
from cfaug.core.weights import zoo_shelf

COMMANDS = {
    "captioner": "captioner.main",
    "classifier": "classifier.main",
    "clip": "clip.main",
    "clip_domains": "clip.main_domains",
    "clip_things": "clip.main_things",
    "diffusion": "diffusion.main",
    "diffusion_domains": "diffusion.main_domains",
    "entailment": "entailment.main",
    "factor_classifier": "factor_classifier.main",
    "fusion": "fusion.main",
    "language": "language.main",
    "perturber": "perturber.main",
    "perturber_rows": "perturber.main_rows",
    "questions": "vlm.main_questions",
    "vlm": "vlm.main",
}
"""The commands: the module here and its function ``(argv) -> int``; the module's docstring is the
command's help."""

USAGE = (
    "cfaug zoo                          list the models that are shipped\n"
    "cfaug zoo NAME out=FOLDER [k=v]    train one anew; --help says what it takes\n"
    f"NAME: {', '.join(COMMANDS)}"
)


def main(argv: Sequence[str]) -> int:
    """List the models, or run one of the commands; return the exit code."""
    if not argv or argv[0] in {"-h", "--help"}:
        print(USAGE if argv else list_models())
        return 0
    name, *rest = argv
    try:
        if name not in COMMANDS:
            raise UserError(f"the zoo has no command {name!r}\n{USAGE}")
        file, _, function = COMMANDS[name].partition(".")
        module = import_module(f"cfaug.shapescapes.zoo.{file}")
        if {"-h", "--help"} & set(rest):
            print(module.__doc__)
            return 0
        code: int = getattr(module, function)(rest)
    except UserError as error:
        say(f"error: {error}")
        return USERS_MISTAKE
    return code


def list_models() -> str:
    """Return a line for each shipped model: its name, its size and the metrics of its card."""
    lines = []
    for card in sorted(zoo_shelf().glob("*/card.json")):
        metrics = load_json(card.read_text(encoding="utf-8"))["metrics"]
        size = sum(file.stat().st_size for file in card.parent.rglob("*") if file.is_file())
        numbers = ", ".join(islice(_numbers(metrics), 3))
        lines.append(f"zoo:{card.parent.name:26} {size / 2**20:5.1f} MB  {numbers}")
    return "\n".join([*lines, f"in {zoo_shelf()}; cfaug zoo --help says how each is trained"])


def _numbers(node: object, name: str = "") -> Iterator[str]:
    """Yield the numbers of a card's metrics, which may be nested."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _numbers(value, str(key))
    elif isinstance(node, int | float) and not isinstance(node, bool):
        yield f"{name} {node:.4g}"
