"""Skew of one pool of faces against the lines of its list, ranked by plain loops."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter

import numpy as np
import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.data.index import open_index
from cfaug.papers.social.pool_skew import PoolSkew
from tests.data.foils import fairface

WORDS = ["good", "evil", "criminal"]
K = 3


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    root = tmp_path_factory.mktemp("faces")
    folder = fairface(root / "FairFace")
    return folder, open_index(f"{folder}:val", root / "cache")


@torch.inference_mode()
def slow_ranking(encoder, folder, prompt):
    """Return the lines of the list, the best first, by a loop over photos."""

    def unit(vector):
        array = vector[0].double().numpy()
        return array / np.linalg.norm(array)

    query = unit(encoder.encode_text(encoder.tokenize([prompt])))
    with (folder / "fairface_label_val.csv").open(newline="") as handle:
        lines = list(csv.DictReader(handle))
    scores = []
    for line in lines:
        photo = decode_image((folder / line["file"]).read_bytes(), line["file"])
        pixels = torch.from_numpy(encoder.transform(photo)[None].copy())
        scores.append(float(query @ unit(encoder.encode_image(pixels))))
    return [lines[at] for at in sorted(range(len(lines)), key=lambda at: -scores[at])]


def slow_ndkl(labels):
    """Return the NDKL of a ranking (Geyik et al., 2019): a mean over every prefix."""
    pool, total, weights = Counter(labels), 0.0, 0.0
    for length in range(1, len(labels) + 1):
        weight = 1 / math.log2(length + 1)
        top = Counter(labels[:length])
        total += weight * sum(
            n / length * math.log(n / length / (pool[label] / len(labels)))
            for label, n in top.items()
        )
        weights += weight
    return total / weights


def test_numbers_by_plain_loops(faces, encoder):
    folder, index = faces
    evaluation = PoolSkew(name="f_pool_skew", words=WORDS, k=K).use(index).run(encoder)
    items = evaluation.items
    rows = {name: at for at, name in enumerate(items["item"])}
    assert len(rows) == 9
    for word in WORDS:
        article = "an" if word[0] in "aeiou" else "a"
        ranked = slow_ranking(encoder, folder, f"This is a photo of {article} {word} person")
        for labelling in ("race", "gender", "age"):
            labels = [line[labelling] for line in ranked]
            top, pool = Counter(labels[:K]), Counter(labels)
            at = rows[f"{labelling}/{word}@{K}"]
            expected = max(math.log(n / K / (pool[x] / len(labels))) for x, n in top.items())
            assert items["max_skew"][at] == pytest.approx(expected)
            assert items["ndkl"][at] == pytest.approx(slow_ndkl(labels))
            names = json.loads(items["labels"][at])
            assert json.loads(items["top_counts"][at]) == [top[name] for name in names]
            assert json.loads(items["pool_counts"][at]) == [pool[name] for name in names]
            assert 0 < items["p"][at] <= items["p_holm"][at] <= 1
    means = {(o.metric, o.by["labelling"]): o.value for o in evaluation.outcomes}
    of_race = [items["max_skew"][rows[f"race/{word}@{K}"]] for word in WORDS]
    assert means["max_skew", "race"] == pytest.approx(np.mean(of_race))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"k": 9}, r"k=9 is more than the pool of 8 images"),
        ({"labels": ["religion"]}, r"no column 'religion'.*race"),
        ({"labels": ["set"]}, r"all images have the set 'fairface'"),
    ],
)
def test_what_a_pool_cannot_answer_is_said(faces, settings, said):
    with pytest.raises(UserError, match=said):
        PoolSkew(name="f_pool_skew", **{"k": K, **settings}).use(faces[1])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"template": "a person"}, r"should have \{word\}"),
        ({"template": "a {word} {thing}"}, r"should have \{word\}"),
        ({"words": []}, "should each have something"),
    ],
)
def test_settings_that_ask_nothing_are_refused(settings, said):
    with pytest.raises(UserError, match=said):
        PoolSkew(**settings)
