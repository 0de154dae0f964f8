"""What made-up models answer to texts before and after a change, with the benchmarks' columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cfaug.core.types import ENTAILMENT
from cfaug.evaluation.text_pairs.entailment_items import EntailmentItems
from cfaug.evaluation.text_pairs.text_pair_items import InsertionItems
from cfaug.report.items import Items

METHODS: Mapping[str, float] = {"deletion": 0.05, "checklist": 0.0, "clare": 0.08, "xmai": 0.15}
"""By how much each lowers a reciprocal rank, about."""


def insertion_items(
    model: str = "clip",
    methods: Mapping[str, float] = METHODS,
    photos: int = 12,
    captions: int = 2,
    sources: Mapping[str, str] | None = None,
    left_out: Mapping[str, Sequence[str]] | None = None,
    benchmark: str = "own_insertion",
) -> InsertionItems:
    """Return answers to a few captions of each photo, changed by methods."""
    rng = np.random.default_rng([len(model), photos])
    rows: list[dict] = []
    keys = [(f"p{p}", f"p{p}-{c}") for p in range(photos) for c in range(captions)]
    before = {key: 1 / rng.integers(1, 4) for _, key in keys}
    cosine = {key: rng.uniform(0.25, 0.35) for _, key in keys}
    for method, fall in methods.items():
        for place, (photo, key) in enumerate(keys):
            if key in (left_out or {}).get(method, ()):
                continue
            changed = float(fall > 0 or place % 6 == 0)
            after = max(0.01, before[key] - changed * fall * rng.uniform(0.5, 1.5))
            words = int(changed * rng.integers(0, 3))
            rows.append({
                "item": f"{method}/{key}", "cluster": photo, "method": method, "key": key,
                "source": (sources or {}).get(method, f"shards/{method}"),
                "kind": method if changed else None, "label": None,
                "text_before": f"a dog, {key}", "text": f"a {method} dog, {key}",
                "image": f"{photo:>032}", "changed": changed, "novel": float(words > 0),
                "inserted_words": float(words), "mrr_original": before[key], "mrr": after,
                "mrr_drop": before[key] - after, "mrr_original_batches": before[key],
                "mrr_batches": min(1.0, after + 0.02),
                "mrr_drop_batches": before[key] - min(1.0, after + 0.02),
                "rank_original": 1 / before[key], "rank": 1 / after,
                "similarity_text": 1 - 0.5 * fall, "similarity_image_original": cosine[key],
                "similarity_image": cosine[key] - 0.1 * fall, "bleu": 1 - 2 * fall,
                "meteor": 1 - fall,
                "label_kept": ("kept", "kept", "changed", "unknown")[place % 4],
            })  # fmt: skip
    columns = {name: _column([row[name] for row in rows]) for name in rows[0]}
    return InsertionItems(model, Items(benchmark, f"weights of {model}", "data", columns))


def entailment_items(
    model: str = "vilt",
    methods: Mapping[str, float] = METHODS,
    photos: int = 12,
    sources: Mapping[str, str] | None = None,
    benchmark: str = "own_entailment",
) -> EntailmentItems:
    """Return what a model says of three hypotheses a photo, changed by methods."""
    rng = np.random.default_rng([len(model), photos, 1])
    rows: list[dict] = []
    keys = [(f"p{p}", f"p{p}-{label}", label) for p in range(photos) for label in ENTAILMENT]
    before = {key: label if rng.random() < 0.9 else ENTAILMENT[0] for _, key, label in keys}
    for method, fall in methods.items():
        for place, (photo, key, label) in enumerate(keys):
            wrong = rng.random() < 5 * fall
            after = ENTAILMENT[(ENTAILMENT.index(label) + 1) % 3] if wrong else before[key]
            rows.append({
                "item": f"{method}/{key}", "cluster": photo, "method": method, "key": key,
                "source": (sources or {}).get(method, f"shards/{method}"), "label": label,
                "changed": 1.0, "label_kept": ("kept", "changed")[place % 5 == 0],
                "predicted_original": before[key], "predicted": after,
                "accuracy_original": float(before[key] == label), "accuracy": float(after == label),
            })  # fmt: skip
    columns = {name: _column([row[name] for row in rows]) for name in rows[0]}
    return EntailmentItems(model, Items(benchmark, f"weights of {model}", "data", columns))


def _column(values: list) -> np.ndarray:
    return np.array(values, object if isinstance(values[0], str | None) else np.float64)
