"""Rows to tune a perturber on: ``python -m cfaug zoo perturber_rows out=FILE.jsonl``.

The rows are captions of the embedded world and their edits, from its own vocabulary, one edit a
line. A share of the scenes is held out: no row has or edits a caption into one of theirs.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

from cfaug.core.errors import UserError
from cfaug.core.rng import derive, generator
from cfaug.core.validation import Seed
from cfaug.editing.edit_prompts import EditAnswer, read_prompts, write_rows
from cfaug.editing.protocols import VariationRequest
from cfaug.shapescapes.language import VALUES, WorldVariations, parse
from cfaug.shapescapes.settings import (
    COLOURS,
    DOMAINS,
    FRAMES,
    PHOTO,
    PLACES,
    SUBJECTS,
    CaptionWording,
    Factors,
    caption,
)
from cfaug.shapescapes.zoo.command import read

Scene = tuple[str, str | None, str | None]
"""Subject, colour and place; a caption may leave out the latter two."""
PROMPTS = tuple(prompt for prompt in read_prompts("plain") if prompt.name in VALUES)
"""All prompts except that of objects, since the world has none."""


def split_scenes(share: float, seed: int) -> tuple[list[Scene], list[Scene]]:
    """Return the training scenes and the held-out scenes."""
    colours, places = (None, *COLOURS), (None, *PLACES)
    every: list[Scene] = list(itertools.product(SUBJECTS, colours, places))
    order = generator(seed, "zoo", "perturber", "split").permutation(len(every)).tolist()
    aside = round(share * len(every))
    chosen = set(order[:aside])
    sides = ([s for i, s in enumerate(every) if (i in chosen) == held] for held in (False, True))
    training, held = sides
    return training, held


def captions_of(scene: Scene) -> list[str]:
    """Return every caption of a scene: one in each frame as a photo, one in each other domain."""
    subject, colour, background = scene
    shown = Factors(subject, colour or "red", background or "beach")
    wording = {"colour": colour is not None, "background": background is not None}
    phrase = caption(shown, CaptionWording(0, **wording))
    photos = [caption(shown, CaptionWording(frame, **wording)) for frame in range(len(FRAMES))]
    return [*photos, *(f"a {domain} of {phrase}" for domain in DOMAINS if domain != PHOTO)]


def scene_of(text: str) -> Scene | None:
    """Return the scene of a caption of the world in any domain; ``None`` for another text."""
    statement = parse(text)
    return (
        None if statement is None else (statement.subject, statement.colour, statement.background)
    )


@dataclass(frozen=True, kw_only=True)
class RowSettings:
    """The settings of the command that writes rows, given as ``name=value``.

    Attributes:
        out: the JSON Lines file to write.
        seed: the seed of the held-out and the drawn captions.
        captions: the number of captions, without repetitions.
        variations: the largest number of edits of one caption by one prompt.
        held_out: the share of scenes that occur in no caption and no edit.
    """

    out: str
    seed: Seed = 0
    captions: int = 3000
    variations: int = 5
    held_out: float = 0.2


def draw_answers(settings: RowSettings) -> list[EditAnswer]:
    """Draw captions and every prompt's edits of them, without edits into held-out scenes."""
    training, _ = split_scenes(settings.held_out, settings.seed)
    allowed = set(training)
    texts = [text for scene in training for text in captions_of(scene)]
    if settings.captions > len(texts):
        raise UserError(f"captions={settings.captions}: there are {len(texts)} to draw from")
    rng = generator(settings.seed, "zoo", "perturber", "rows")
    answers = []
    for row in rng.permutation(len(texts))[: settings.captions]:
        # All edits of the caption by every prompt, in random order.
        text = texts[row]
        requests = [
            VariationRequest(
                text,
                edit_prompt,
                len(SUBJECTS),
                derive(settings.seed, "rows", text, edit_prompt.name),
            )
            for edit_prompt in PROMPTS
        ]
        for request, variations in zip(requests, WorldVariations().vary(requests), strict=True):
            edits = [edit for edit in variations.texts if scene_of(edit) in allowed]
            if edits:
                kept = tuple(edits[: settings.variations])
                answers.append(EditAnswer(text, request.prompt.name, kept))
    return answers


def main(argv: list[str]) -> int:
    """Write the rows."""
    settings = read(RowSettings, argv)
    file = Path(settings.out)
    if file.exists():
        raise UserError(f"{file} exists already: remove it or choose another out=FILE.jsonl")
    answers = draw_answers(settings)
    write_rows(file, answers)
    edits = sum(len(answer.edits) for answer in answers)
    print(f"{file}: {edits:,} edits of {settings.captions:,} captions in {len(answers):,} answers")
    return 0
