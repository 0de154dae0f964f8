"""``insights.json``: the interventions that move a classifier most, with pictures, for tables."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.json_records import from_json
from cfaug.core.pixels import decode_image
from cfaug.core.types import ITEM
from cfaug.lance.stress_items import Insight, StressItems
from cfaug.report.page import write_page

FILE = "insights.json"

SHOWN = 6
"""Most insights that are saved; LANCE's Figure 6 shows three."""

PAIRS = 3
"""Most edits per insight whose pictures are saved."""

SIDE = 128
"""Longest side of a picture."""


@dataclass(frozen=True)
class ShownInsight:
    """An insight as tables print it.

    Attributes:
        label: name of the class.
        kind: kind of the edit that names it.
        words: the intervention in words.
        edits: number of its edits.
        photos: number of photos that were edited.
        mean: mean change of the probability of the true class.
        low: lower end of the 95 % interval of the mean; ``None`` without one.
        high: upper end of the interval; ``None`` without one.
        p_holm: one-sided p, corrected over all insights of the model; ``None`` without a control.
        png: pictures in base64, photos above and their edits below.
    """

    label: str
    kind: str
    words: str
    edits: int
    photos: int
    mean: float
    low: float | None
    high: float | None
    p_holm: float | None
    png: str


def write_insights(
    answers: StressItems,
    insights: Sequence[Insight],
    read_image: Callable[[str], bytes],
    folder: Path,
) -> Path:
    """Save the strongest insights with their pictures beside a model's results; return the file.

    Args:
        answers: the model's answers to the items of ``benchmark=stress``.
        insights: insights found in these answers.
        read_image: function that returns the image of an item by its name.
        folder: folder of the run, where ``insights.json`` is written.
    """
    strongest = sorted(insights, key=lambda one: -one.effect.mean)[:SHOWN]
    kept = [_shown(answers, one, read_image) for one in strongest]
    content = {
        "benchmark": answers.items.benchmark,
        "weights": answers.items.weights,
        "data": answers.items.data,
        "insights": [asdict(one) for one in kept],
    }
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return write_page(folder / FILE, text)


def _shown(answers: StressItems, one: Insight, read_image: Callable[[str], bytes]) -> ShownInsight:
    effect, names, photos = one.effect, answers.texts(ITEM), answers.texts("photo")
    # Only the strongest edit of each photo: several look alike.
    rows = list({photos[row]: int(row) for row in effect.rows[::-1]}.values())[::-1][:PAIRS]
    pictures = [
        [decode_image(read_image(name), name) for name in (photos[row], names[row])] for row in rows
    ]
    return ShownInsight(
        label=one.label,
        kind=one.kind,
        words=one.words,
        edits=len(effect),
        photos=effect.photos,
        mean=effect.mean,
        low=_known(effect.low),
        high=_known(effect.high),
        p_holm=_known(effect.p_holm),
        png=_sheet(pictures),
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _sheet(pairs: Sequence[Sequence[Image.Image]]) -> str:
    """Return pairs of pictures as one PNG in base64: a column per pair, separated by white."""
    for picture in (one for pair in pairs for one in pair):
        picture.thumbnail((SIDE, SIDE))
    width = max(one.width for pair in pairs for one in pair)
    height = max(one.height for pair in pairs for one in pair)
    gap = max(1, width // 16)
    sheet = Image.new("RGB", ((width + gap) * len(pairs) - gap, 2 * height + gap), "white")
    for column, pair in enumerate(pairs):
        for row, picture in enumerate(pair):
            sheet.paste(picture, ((width + gap) * column, (height + gap) * row))
    file = io.BytesIO()
    sheet.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def read_insights(folder: Path, answers: StressItems) -> list[ShownInsight]:
    """Read the insights into a model's answers; empty if none were written for these answers.

    Args:
        folder: folder of the run, where ``insights.json`` is kept.
        answers: the model's current answers to the items of ``benchmark=stress``.

    Raises:
        UserError: if the file does not hold insights.
    """
    file = folder / FILE
    if not file.exists():
        return []
    try:
        found = json.loads(require_regular(file).read_text(encoding="utf-8"))
        about = [found[name] for name in ("benchmark", "weights", "data")]
        items = answers.items
        if about != [items.benchmark, items.weights, items.data]:
            return []
        return from_json(list[ShownInsight], found["insights"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UserError(
            f"{file} is not what evaluate.py benchmark=stress writes ({error}): remove it, and "
            "evaluate the model again"
        ) from error
