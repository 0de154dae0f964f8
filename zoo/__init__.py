"""How the tiny models that cfaug ships are trained: ``python -m zoo clip out=FOLDER seed=0``.

The weights are in ``cfaug/weights``; ``cfaug zoo`` lists them.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from cfaug.core.errors import USERS_MISTAKE, UserError, say
from cfaug.core.safety.json_text import load_json as load_json
from cfaug.core.weights import zoo_shelf as zoo_shelf

COMMANDS = {
    "captioner": "captioner.main",
    "classifier": "classifier.main",
    "clip": "clip.main",
    "clip_domains": "clip.main_domains",
    "clip_things": "clip.main_things",
    "diffusion": "diffusion.main",
    "diffusion_domains": "diffusion.main_domains",
    "emoji": "emoji.pack.main",
    "emoji_clip": "emoji.clip.main",
    "emoji_picture": "emoji.picture.main",
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
    "python -m zoo NAME out=FOLDER [k=v]    train a model anew; NAME --help says what it takes\n"
    f"NAME: {', '.join(COMMANDS)}"
)


def main(argv: Sequence[str]) -> int:
    """Run one of the commands; return the exit code."""
    if not argv or argv[0] in {"-h", "--help"}:
        print(USAGE)
        return 0
    name, *rest = argv
    try:
        if name not in COMMANDS:
            raise UserError(f"the zoo has no command {name!r}\n{USAGE}")
        file, _, function = COMMANDS[name].rpartition(".")
        module = import_module(f"zoo.{file}")
        if {"-h", "--help"} & set(rest):
            print(module.__doc__)
            return 0
        code: int = getattr(module, function)(rest)
    except UserError as error:
        say(f"error: {error}")
        return USERS_MISTAKE
    return code
