"""docs/emoji.md's numbers: of arms from the kept answers, of the models from their embeddings."""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from scipy import stats

from cfaug.models.specs import HFClip
from tests.files_of_settings import settings_file
from tests.worlds.emoji.answers import FILE
from tests.worlds.emoji.test_pack import ARTISTS
from tests.worlds.emoji.test_pack import rows as read

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/emoji.md").read_text(encoding="utf-8")
ANSWERS: dict[str, dict[str, dict[str, list[str]]]] = json.loads(FILE.read_text(encoding="utf-8"))
EXPERIMENTS = ("emoji", "shapescapes", "shapescapes_questions")


def table(experiment: str) -> dict[str, Any]:
    text = settings_file(f"table/{experiment}").read_text(encoding="utf-8")
    settings: dict[str, Any] = yaml.safe_load(text)
    return settings


def variance(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def difference(experiment: str, arm: str, baseline: str, column: str) -> tuple[float, ...]:
    """Return lower end, mean and upper end in points.

    A two-way layout of seeds and items with random effects: the variance of the mean is that of
    seeds plus that of items less the rest, which both include.
    """
    ours, theirs = (ANSWERS[experiment][name][column] for name in (arm, baseline))
    rows = [
        [int(a) - int(b) for a, b in zip(*pair, strict=True)]
        for pair in zip(ours, theirs, strict=True)
    ]
    seeds, items = len(rows), len(rows[0])
    of_seeds = [sum(row) / items for row in rows]
    of_items = [sum(row[i] for row in rows) / seeds for i in range(items)]
    mean = sum(of_seeds) / seeds
    left = 0.0
    for row, of_seed in zip(rows, of_seeds, strict=True):
        left += sum((row[i] - of_seed - of_items[i] + mean) ** 2 for i in range(items))
    degrees = (seeds - 1) * (items - 1)
    rest = (left / degrees / seeds / items, degrees)
    by_seed = max((variance(of_seeds) / seeds, seeds - 1), rest)
    by_item = max((variance(of_items) / items, items - 1), rest)
    whole = by_seed[0] + by_item[0] - rest[0]
    known = whole**2 / sum(value**2 / count for value, count in (by_seed, by_item, rest))
    half = float(stats.t.ppf(0.975, known)) * math.sqrt(whole)
    return 100 * (mean - half), 100 * mean, 100 * (mean + half)


def words(low: float, mean: float, high: float) -> str:
    return f"{mean:+.1f} [{low:.1f}, {high:.1f}]".replace("[-0.0", "[0.0").replace(
        ", -0.0", ", 0.0"
    )


def verdict(entry: dict[str, Any], low: float, mean: float, high: float) -> str:
    """Return the verdict by the sentences of the page."""
    useful, sign = 100 * entry["useful"], {"better": 1, "worse": -1}.get(entry["expected"], 0)
    outside = (low > 0 or high < 0) and abs(mean) >= useful
    inside = -useful < low and high < useful
    if sign == 0:
        return "held" if inside else "did not hold" if outside else "undecided"
    if outside and mean * sign > 0:
        return "held"
    excluded = high < useful if sign > 0 else low > -useful
    return "did not hold" if inside or outside or excluded else "undecided"


def cells(heading: str) -> list[list[str]]:
    """Return the rows of the first table with a heading, without it."""
    lines = PAGE[PAGE.index(heading) :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


ROWS = (
    ("more_real", "real"), ("pairs", "more_real"), ("members", "more_real"), ("pairs", "members"),
    ("text_negatives", "pairs"),
)  # fmt: skip


def test_the_table_of_both_worlds_is_that_of_the_answers() -> None:
    rows, compared = cells("| | ShapeScapes | Fluent"), table("emoji")["compared"].values()
    assert len(rows) == 2 * len(ROWS)
    for number, (_, *shown, said) in enumerate(rows):
        arm, baseline = ROWS[number // 2]
        theirs, ours = (("ood", "names"), ("pairs", "pairs"))[number % 2]
        differences = [difference("shapescapes", arm, baseline, theirs)]
        verdicts = []
        for artist in ("fluent", "twemoji"):
            differences.append(difference("emoji", arm, baseline, f"{artist}_{ours}"))
            where = {"arm": arm, "baseline": baseline, "column": f"{artist}_{ours}"}
            [entry] = [e for e in compared if {key: e[key] for key in where} == where]
            verdicts.append(verdict(entry, *differences[-1]))
        assert shown == [words(*each) for each in differences], (arm, baseline)
        assert said.replace("*", "").split(", ") == verdicts


def test_the_table_the_other_way_is_that_of_the_answers() -> None:
    for arm, row in zip(("frozen", "weighted"), cells("| against pairs in one batch"), strict=True):
        columns = ("fluent_names", "twemoji_names", "noto_names")
        expected = [words(*difference("emoji", arm, "pairs", column)) for column in columns]
        assert row[1:4] == expected
    back = {
        (arm, column): difference("shapescapes_questions", arm, "pairs", column)
        for arm in ("frozen", "weighted") for column in ("ood", "pairs", "id")
    }  # fmt: skip
    assert f"{words(*back['frozen', 'id'])}, held; out of distribution" in PAGE
    assert f"out of distribution {back['frozen', 'ood'][1]:+.1f} |" in PAGE
    means = ", ".join(f"{back['weighted', column][1]:+.1f}" for column in ("ood", "pairs", "id"))
    assert f"| {means}, all held |" in PAGE
    for entry in table("shapescapes_questions")["compared"].values():
        if "expected" in entry:
            assert verdict(entry, *back[entry["arm"], entry["column"]]) == "held"


@pytest.mark.parametrize(
    ("sentence", "arm", "baseline"),
    [
        ("text negatives − pairs, {}, held", "text_negatives", "pairs"),
        ("pairs − one member, {}, undecided", "pairs", "members"),
        ("pairs gain {} over as many other names", "pairs", "more_real"),
        ("single members {}.", "members", "more_real"),
    ],
)
def test_noto_s_new_names(sentence: str, arm: str, baseline: str) -> None:
    low, mean, high = difference("emoji", arm, baseline, "noto_names")
    either = (words(low, mean, high), words(low, mean, high).lstrip("+"))
    assert any(sentence.format(text) in PAGE for text in either), either


def test_the_count_of_verdicts_and_what_was_forgotten() -> None:
    verdicts = [
        verdict(entry, *difference("emoji", entry["arm"], entry["baseline"], entry["column"]))
        for entry in table("emoji")["compared"].values() if "expected" in entry
    ]  # fmt: skip
    counts = [verdicts.count(name) for name in ("held", "did not hold", "undecided")]
    assert sum(counts) == 22
    said = re.search(
        r"Of 22 predictions, (\d+) held, (\d+) did\s+not hold, and (\d+) are undecided", PAGE
    )
    assert said is not None
    assert [int(number) for number in said.groups()] == counts

    def percent(arm: str) -> float:
        answers = ANSWERS["emoji"][arm]["fluent_names"]
        return 100 * sum(map(int, "".join(answers))) / len("".join(answers))

    after = [percent(arm) for arm in ANSWERS["emoji"] if arm != "before"]
    said = re.search(r"names: ([\d.]+) % come first before fine-tuning, ([\d.]+) to ([\d.]+)", PAGE)
    assert said is not None
    before, least, most = map(float, said.groups())
    assert (before, least, most) == pytest.approx(
        (percent("before"), min(after), max(after)), abs=0.05
    )


def unit(vectors: torch.Tensor) -> np.ndarray:
    array: np.ndarray = vectors.double().numpy()
    return array / np.linalg.norm(array, axis=1, keepdims=True)


@torch.inference_mode()
def embed(model: Any, rows: list[dict[str, Any]], image: str, caption: str) -> list[np.ndarray]:
    pictures = [
        torch.from_numpy(model.transform(Image.open(io.BytesIO(row[image]["bytes"]))).copy())
        for row in rows
    ]
    texts = model.tokenize([row[caption] for row in rows])
    return [unit(model.encode_image(torch.stack(pictures))), unit(model.encode_text(texts))]


def first_names(model: Any, rows: list[dict[str, Any]]) -> float:
    """Return the percentage of pictures whose own name is the most similar."""
    pictures, names = embed(model, rows, "image", "caption")
    scores = pictures @ names.T
    return 100 * float(np.mean([scores[i].argmax() == i for i in range(len(rows))]))


def whole_pairs(model: Any, rows: list[dict[str, Any]]) -> float:
    """Return the percentage of pairs of which both texts and both images are matched."""
    sides = [embed(model, rows, "image", "caption"), embed(model, rows, "cf_image", "cf_caption")]
    right = 0
    for i in range(len(rows)):
        s = [[float(image[0][i] @ text[1][i]) for text in sides] for image in sides]
        right += s[0][0] > max(s[0][1], s[1][0]) and s[1][1] > max(s[0][1], s[1][0])
    return 100 * right / len(rows)


@pytest.mark.slow
def test_the_table_of_models_is_that_of_their_embeddings() -> None:
    models = [HFClip(f"zoo:emoji-{seed}").load().eval() for seed in (0, 1)]
    measures = {"train": first_names, "names": first_names, "test_pairs": whole_pairs}
    rows = cells("| | Noto | Fluent | Twemoji | chance |")
    for row, (part, measure) in zip(rows, measures.items(), strict=True):
        for artist, cell in zip(ARTISTS, row[1:4], strict=True):
            values = [f"{measure(model, read(artist, part)):.1f}" for model in models]
            assert cell == ", ".join(values), (part, artist)
