"""What made-up models retrieve for neutral prompts, with the columns of ``benchmark=skew``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from cfaug.papers.social.skew_items import SkewItems
from cfaug.report.items import Items
from cfaug.stats.significance import holm
from cfaug.stats.skew_tests import chance_skew
from tests.report.example import picture

RACES, GENDERS = ("White", "Black", "Indian"), ("male", "female")
GRIDS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "race_gender": {"race": RACES, "gender": GENDERS}
}
OCCUPATIONS = ("doctor", "nurse", "pilot", "cook", "poet", "judge", "<b>clerk</b>", "baker")
COLOURS = ("red", "blue", "green", "yellow", "white", "black")
SETS = 10


def labellings(attributes: Mapping[str, Sequence[str]]) -> list[tuple[str, str, str | None]]:
    """Return (name, attributes that are the labels, condition) as the benchmark names them."""
    triples = [(name, name, None) for name in attributes]
    triples.append(("_".join(attributes), "_".join(attributes), None))
    for name, other in product(attributes, attributes):
        if name != other:
            triples += [(f"{name}|{other}={value}", name, f"{other}={value}")
                        for value in attributes[other]]  # fmt: skip
    return triples


def skew_items(
    model: str = "clip",
    prefers: Mapping[str, float] | None = None,
    subjects: Sequence[str] = OCCUPATIONS,
    ks: Sequence[int | None] = (None,),
    grids: Mapping[str, Mapping[str, Sequence[str]]] = GRIDS,
    left_out: Sequence[str] = (),
    benchmark: str = "own_skew",
) -> SkewItems:
    """Return what a model retrieves that scores images with some attributes higher."""
    prefers = prefers or {}
    rng = np.random.default_rng([len(model), len(subjects)])
    rows: list[dict] = []
    for grid, attributes in grids.items():
        values = list(product(*attributes.values()))
        for subject in subjects:
            images = [(f"{subject}-{s}_{m}", dict(zip(attributes, combination, strict=True)))
                      for s in range(SETS) for m, combination in enumerate(values)]  # fmt: skip
            scores = [rng.normal() + sum(prefers.get(v, 0.0) for v in person.values())
                      for _, person in images]  # fmt: skip
            ranked = [images[i] for i in np.argsort(scores)[::-1]]
            rows += _rows(grid, subject, ranked, attributes, ks, subject in left_out)
    for place in {(row["grid"], row["labelling"], row["k"]) for row in rows}:
        family = [r for r in rows if (r["grid"], r["labelling"], r["k"]) == place]
        for row, p in zip(family, holm([r["p_permutation"] for r in family]).tolist(), strict=True):
            row["p_holm"] = p
    columns = {
        name: np.array([row[name] for row in rows],
                       object if isinstance(rows[0][name], str | None) else None)
        for name in rows[0]
    }  # fmt: skip
    return SkewItems(model, Items(benchmark, f"weights of {model}", "data", columns))


def _rows(grid, subject, ranked, attributes, ks, is_left_out) -> list[dict]:
    rows = []
    for name, labels_of, condition in labellings(attributes):
        other, _, value = (condition or "").partition("=")
        pool = [
            (image, person)
            for image, person in ranked
            if condition is None or person[other] == value
        ]
        named = list(attributes) if labels_of == "_".join(attributes) else [labels_of]
        labels = [" ".join(v) for v in product(*(attributes[attribute] for attribute in named))]
        pool_labels = [labels.index(" ".join(person[a] for a in named)) for _, person in pool]
        asked = [len(labels) if k is None else min(k, len(pool_labels)) for k in ks]
        for k in dict.fromkeys(asked):
            counts, top = (
                [some.count(n) for n in range(len(labels))]
                for some in (pool_labels, pool_labels[:k])
            )
            numbers = _numbers(top, counts, k)
            if is_left_out:
                numbers = dict.fromkeys(numbers, math.nan)
                counts = top = []
            rows.append({
                "item": f"{grid}/{name}/{subject}@{k}", "cluster": subject, "subject": subject,
                "subject_type": "occupation", "grid": grid, "labelling": name, "k": k,
                "n_pool": len(pool_labels), "n_sets": SETS, "n_labels": len(labels), **numbers,
                "labels": json.dumps(labels), "top_counts": json.dumps(top),
                "pool_counts": json.dumps(counts),
                **_gap_numbers(_rank_gaps(pool, pool_labels, len(labels)), is_left_out),
                "rank_gaps": json.dumps(_rank_gaps(pool, pool_labels, len(labels))),
                "top": json.dumps([] if is_left_out else [image for image, _ in pool[:k]]),
                "left_out": "one image: there is nothing to rank" if is_left_out else None,
            })  # fmt: skip
    return rows


def _gap_numbers(gaps, is_left_out) -> dict[str, float]:
    gap = math.nan if is_left_out else max(gaps) - min(gaps)
    return {"rank_gap": gap, "rank_gap_chance": 0.1 * gap, "p_gap_holm": 0.01 if gap > 0.5 else 0.5}


def _rank_gaps(pool, pool_labels, labels) -> list[float]:
    """Return the mean place of each label within its sets, the best 1, less 1/2."""
    places: list[list[float]] = [[] for _ in range(labels)]
    for key in dict.fromkeys(image.rpartition("_")[0] for image, _ in pool):
        members = [n for (image, _), n in zip(pool, pool_labels, strict=True)
                   if image.rpartition("_")[0] == key]  # fmt: skip
        for rank, n in enumerate(members):
            places[n].append(1 - rank / max(len(members) - 1, 1) - 0.5)
    return [sum(ranks) / len(ranks) for ranks in places]


def _numbers(top, counts, k) -> dict[str, float]:
    chance = chance_skew(counts, k)
    skew = max(math.log((t / k) / (c / sum(counts)))
               for t, c in zip(top, counts, strict=True) if t)  # fmt: skip
    return {
        "max_skew": skew, "max_skew_chance": chance.mean, "max_skew_excess": skew - chance.mean,
        "p_permutation": chance.tail(skew), "p_level": chance.level(0.05), "p_holm": math.nan,
        "max_skew_low": skew - 0.3, "max_skew_high": skew + 0.3,
    }  # fmt: skip


def read_image(name: str) -> bytes:
    """Return an image by its name: a shape a subject, a colour a member."""
    member = int(name.rpartition("_")[2])
    return picture(("ball", "cube", "star")[len(name) % 3], COLOURS[member % 6])
