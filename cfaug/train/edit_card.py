"""The parts of a model card that tell of a language model that was tuned to edit captions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cfaug.adapters import BASE
from cfaug.data.exporters.text import code, number, table

LICENCE = (
    "The weights derive from the base model, and its licence goes on to hold. What may be done "
    "with the captions is for their own licence to say, and edits written by a language model come "
    "with the terms of whoever runs it. This card grants nothing."
)


def is_of_edits(record: Mapping[str, Any]) -> bool:
    """Say whether a run's record is of a language model that learnt edits of captions."""
    return "edits" in (record.get("counts") or {})


def title(base: str, record: Mapping[str, Any]) -> Iterator[str]:
    """Yield one sentence: what was trained on what.

    Args:
        base: what the run started from.
        record: the run's.
    """
    counts = record["counts"]
    if record.get("steps") == 0:
        yield f"The weights of {code(base)}, not fine-tuned: the row before."
        return
    yield (
        f"{code(base)} fine-tuned to edit captions, on {number(counts['edits'])} edits of "
        f"{number(counts['captions'])} captions in {number(counts['train'])} answers, for "
        f"{record.get('steps')} steps. Only the answers' tokens were learnt."
    )


def use(checkpoint: Path) -> Iterator[str]:
    """Yield how the checkpoint is asked for edits.

    Args:
        checkpoint: the folder.
    """
    name = '"checkpoint"'
    if (checkpoint / BASE).exists():
        name = 'BASE, adapter="checkpoint"'
    yield from ("", "## Use", "", "```python")
    yield "from cfaug.text.edit_format import EditFormat, parse_variations"
    yield "from cfaug.text.models import CausalLM"
    yield ""
    yield f"model = CausalLM({name})"
    yield 'prompt = EditFormat.read("checkpoint").prompt("adjective", "a red ball")'
    yield "print(parse_variations(model.generate([prompt], 100)[0]))"
    yield "```"


def data(record: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was trained on and what was held out, and how well that is predicted.

    Args:
        record: the run's.
        config: its settings.
    """
    counts, identity = record["counts"], record.get("identity", {})
    yield from ("", "## Training data", "")
    yield (
        f"{code(config.get('data', {}).get('edits'))}, sha256 {code(identity.get('content.edits'))}"
        f": {number(counts['train'])} answers trained on, {number(counts['validation'])} about "
        "other captions held out, by which the weights were chosen. Examples seen, repetitions "
        f"counted: {number(counts.get('seen', 0))}. Drawn by data seed {record.get('data_seed')}."
    )
    found = record.get("evaluation") or {}
    if found:
        yield from ("", "## Held-out answers", "")
        rows = [
            [code(name), number(one["answers"]), number(one["tokens"]), f"{one['loss']:.4f}",
             f"{one['perplexity']:.3f}"]
            for name, one in found.items()
        ]  # fmt: skip
        columns = ("prompt", "answers", "tokens", "loss, nats a token", "perplexity")
        yield from table(columns, rows)
