"""Skew of Cultural Counterfactuals against the columns of its table, ranked by plain loops."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch

from cfaug.core.pixels import decode_image
from cfaug.data.index import open_index
from cfaug.papers.social.skew import Skew
from tests.data.test_cultural_counterfactuals import cultural, cultural_rows


def unit(vector):
    array = vector[0].double().numpy()
    return array / np.linalg.norm(array)


@torch.inference_mode()
def slow_max_skew(encoder, rows, prompt, k):
    """Return MaxSkew@k of the backgrounds of some rows, by a loop over images."""
    query = unit(encoder.encode_text(encoder.tokenize([prompt])))
    scored = []
    for row in rows:
        pixels = encoder.transform(decode_image(row["image"]["bytes"], "it"))
        image = unit(encoder.encode_image(torch.from_numpy(pixels[None].copy())))
        scored.append((float(query @ image), row["context"]))
    top = Counter(context for _, context in sorted(scored, reverse=True)[:k])
    pool = Counter(context for _, context in scored)
    return max(math.log(n / k / (pool[label] / len(rows))) for label, n in top.items())


def test_max_skew_of_backgrounds_by_plain_loops(encoder, tmp_path):
    rows = cultural_rows()
    index = open_index(cultural(tmp_path / "religion", rows), tmp_path / "cache")
    skew = Skew(name="religion_skew", k=2, permutations=20, resamples=20).use(index)
    items = skew.run(encoder).items
    ours = dict(zip(items["subject"], items["max_skew"].tolist(), strict=True))
    for age, race, gender, prompt in (
        ("old", "Latino", "woman", "A photo of an old Latino woman"),
        ("young", "East Asian", "man", "A photo of a young East Asian man"),
    ):
        person = [r for r in rows if (r["age"], r["race"], r["gender"]) == (age, race, gender)]
        expected = slow_max_skew(encoder, person, prompt, 2)
        assert ours[f"{age} {race} {gender}".lower()] == pytest.approx(expected)
