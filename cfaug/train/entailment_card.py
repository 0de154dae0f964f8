"""The parts of a model card that tell of an entailer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cfaug.data.exporters.text import code, number, table
from cfaug.types import ENTAILMENT


def is_of_entailment(record: Mapping[str, Any]) -> bool:
    """Say whether a run's record is of a model that learnt to entail."""
    return "classes" in record


def title(base: str, record: Mapping[str, Any]) -> Iterator[str]:
    """Yield one sentence: what was trained on what.

    Args:
        base: what the run started from.
        record: the run's.
    """
    counts = record["counts"]
    if record.get("steps") == 0:
        yield f"{code(base)} with a head of three logits, not fine-tuned: the row before."
        return
    share = 100 * counts.get("counterfactual", 0) / max(1, counts["total"])
    yield (
        f"{code(base)} fine-tuned to say whether a text follows from an image, on "
        f"{number(counts['total'])} hypotheses, of which {share:.1f} % are counterfactual, for "
        f"{record.get('steps')} steps."
    )


def use(spec: str, checkpoint: Path) -> Iterator[str]:
    """Yield how the checkpoint is asked.

    Args:
        spec: the class of its specification, as the run's settings name it.
        checkpoint: the folder.
    """
    kind = spec.rpartition(".")[2]
    yield from ("", "## Use", "", "```python")
    yield "import torch"
    yield "from PIL import Image"
    yield f"from {spec.rpartition('.')[0]} import {kind}"
    yield ""
    yield f'entailer = {kind}("{checkpoint.name}").load()'
    yield 'pixels = torch.from_numpy(entailer.transform(Image.open("photo.jpg").convert("RGB")))'
    yield 'print(entailer.entail([""], ["a dog is asleep"], pixels[None]))  # ' + ", ".join(
        ENTAILMENT
    )
    yield "```"


def results(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the labels' counts, and how the validation split is answered.

    Args:
        record: the run's.
    """
    classes = record["classes"]
    yield from ("", "## Labels", "")
    rows = [
        [side, *(number(found[label]) for label in ENTAILMENT)] for side, found in classes.items()
    ]
    yield from table(("split", *ENTAILMENT), rows)
    found = record.get("evaluation") or {}
    if not found:
        return
    yield from ("", "## Validation split", "")
    yield (
        f"By these rows the weights were chosen: accuracy {100 * found['accuracy']:.2f} %, macro "
        f"precision {100 * found['precision']:.2f} %, recall {100 * found['recall']:.2f} %, F1 "
        f"{100 * found['f1']:.2f} %."
    )
    yield ""
    named = zip(ENTAILMENT, found["confusion"], strict=True)
    yield from table(
        ("label \\ answer", *ENTAILMENT), [[name, *map(number, row)] for name, row in named]
    )
