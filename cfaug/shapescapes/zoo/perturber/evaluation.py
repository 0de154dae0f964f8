"""Quality of the perturber's edits of held-out captions, judged by the grammar."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cfaug.core.rng import generator
from cfaug.core.types import Example
from cfaug.editing.edit_checks import KIND_CORRECT, LABEL_KEPT
from cfaug.editing.language_edits import TunedModel
from cfaug.editing.variations import CaptionEdit, VariationRequest
from cfaug.shapescapes.grammar import parse
from cfaug.shapescapes.variations import WorldCheck
from cfaug.shapescapes.zoo.perturber.rows import PROMPTS, captions_of, split_scenes
from cfaug.shapescapes.zoo.perturber.settings import RowSettings

ASKED_FOR = 8
"""The number of variations of a caption by a prompt, the editor's default."""


def held_out_captions(settings: RowSettings, count: int) -> list[str]:
    """Return captions of held-out scenes, drawn by the settings' seed."""
    _, held = split_scenes(settings.held_out, settings.seed)
    texts = [text for scene in held for text in captions_of(scene)]
    order = generator(settings.seed, "zoo", "perturber", "tested").permutation(len(texts))
    return [texts[i] for i in order[:count]]


def evaluate(folder: Path, captions: Sequence[str], seed: int = 0) -> dict[str, Any]:
    """Return the quality of a tuned model's variations of captions by every prompt.

    Args:
        folder: the folder of the model.
        captions: captions of the world.
        seed: the seed of the sampling, like an editor's.

    Returns:
        By prompt and over ``all``: ``answered``, the share of requests with a variation;
        ``parse``, ``kind`` and ``label``, the shares of variations that are captions of the world,
        that are of the requested kind, and that keep the subject; ``edits``, the number of distinct
        variations per request.
    """
    model = TunedModel(str(folder))
    asked = [
        (prompt, VariationRequest(text, prompt, ASKED_FOR, 1000 * seed + number))
        for number, text in enumerate(captions)
        for prompt in PROMPTS
    ]
    answers = model.vary([request for _, request in asked])
    check, counted = WorldCheck(), []
    for (prompt, request), said in zip(asked, answers, strict=True):
        example = Example("tested", "tested", (request.caption,))
        edits = [
            CaptionEdit(0, example, request.caption, text, prompt.name, prompt.kind)
            for text in said.texts
        ]
        notes = [verdict.notes for verdict in check.judge(edits)]
        counted.append((prompt.name, said.texts, notes))
    names = [*(prompt.name for prompt in PROMPTS), "all"]
    return {name: _shares([one for one in counted if name in (one[0], "all")]) for name in names}


def _shares(counted: Sequence[tuple[str, Sequence[str], Sequence[Any]]]) -> dict[str, float]:
    texts = [text for _, some, _ in counted for text in some]
    notes = [note for _, _, some in counted for note in some]
    count = max(1, len(texts))
    return {
        "answered": round(sum(bool(some) for _, some, _ in counted) / len(counted), 4),
        "parse": round(sum(parse(text) is not None for text in texts) / count, 4),
        "kind": round(sum(bool(note[KIND_CORRECT]) for note in notes) / count, 4),
        "label": round(sum(bool(note[LABEL_KEPT]) for note in notes) / count, 4),
        "edits": round(len(texts) / len(counted), 2),
    }
