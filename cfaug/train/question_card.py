"""The parts of a model card about a vision-language model tuned on questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cfaug.data.exporters.text import code, number, table


def is_of_questions(record: Mapping[str, Any]) -> bool:
    """Say whether a run's record is of a model that learnt from questions about images."""
    return "questions" in record


def title(base: str, record: Mapping[str, Any]) -> Iterator[str]:
    """Yield one sentence: what was trained on what.

    Args:
        base: what the run started from.
        record: the run's.
    """
    if record.get("steps") == 0:
        yield f"The weights of {code(base)}, not fine-tuned: the row before."
        return
    counts = record["counts"]
    share = 100 * counts.get("counterfactual", 0) / max(1, counts["total"])
    yield (
        f"{code(base)} fine-tuned on {number(counts['total'])} questions about images, of which "
        f"{share:.1f} % are counterfactual, for {record.get('steps')} steps. Only the tokens of "
        "the right answers were learnt, not where an answer ends: ask it to rank options."
    )


def use(spec: str) -> Iterator[str]:
    """Yield how the checkpoint is asked.

    Args:
        spec: the class of its specification, as the run's settings name it.
    """
    module, _, kind = spec.rpartition(".")
    yield from ("", "## Use", "", "```python")
    yield "from PIL import Image"
    yield "from cfaug.questions import Question"
    yield f"from {module} import {kind}"
    yield ""
    yield f'model = {kind}("checkpoint").load()'
    yield 'question = Question("What colour is the ball?", ("red", "blue"))'
    yield '[[answer]] = model.answer([Image.open("photo.jpg").convert("RGB")], [[question]])'
    yield "print([one.nll for one in answer.scores])  # of each option, in nats"
    yield "```"


def results(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield how many questions of each kind there were, and how those held out are answered.

    Args:
        record: the run's.
    """
    found = record["questions"]
    kinds = sorted({*found["train"], *found["validation"]})
    yield from ("", "## Questions", "")
    rows = [
        [side, *(number(found[side].get(kind, 0)) for kind in kinds)]
        for side in ("train", "validation")
    ]
    yield from table(("split", *kinds), rows)
    if found.get("left_out"):
        reasons = (f"{number(count)} {reason}" for reason, count in found["left_out"].items())
        yield from ("", f"Left out of the sets: {', '.join(reasons)}.")
    measured = record.get("evaluation") or {}
    if measured:
        yield from ("", "## Validation split", "")
        rows = [
            [kind, number(one["questions"]), f"{100 * one['accuracy']:.2f}"]
            for kind, one in measured.items()
        ]
        yield from table(("questions", "n", "accuracy, %"), rows)
