"""ECCV Caption's own metrics, transcribed from eccv_caption/_metrics.py (NAVER, MIT licence)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

Ranked = Mapping[int, Sequence[int]]


def rprecision(target_items: Sequence[int], gt_items: set[int], r: int) -> float:
    top = set(target_items[:r])
    return 1 - len(top - gt_items) / len(top)


def compute_r_at_k(target_items: Ranked, gt_items: Ranked, K: int) -> float:
    recalls = []
    for query, matched in gt_items.items():
        recalls.append(1 if set(target_items[query][:K]) & set(matched) else 0)
    return float(np.mean(recalls))


def compute_eccv_metrics(target_items: Ranked, gt_items: Ranked) -> dict[str, float]:
    recalls, precisions, maps = [], [], []
    for query, matched in gt_items.items():
        target, all_matched = target_items[query], set(matched)
        recalls.append(1 if target[0] in all_matched else 0)
        precs = []
        for r in range(1, len(all_matched) + 1):
            prec = rprecision(target, all_matched, r)
            precs.append(prec if target[r - 1] in all_matched else 0)
        precisions.append(prec)
        maps.append(np.mean(precs))
    return {
        "mAP@R": float(np.mean(maps)),
        "R-precision": float(np.mean(precisions)),
        "R@1": float(np.mean(recalls)),
    }


def compute_coco1k_r_at_k(
    target_items: Ranked, gt_items: Ranked, nfold_itemids: set[int], K: int
) -> float:
    recalls = []
    for query, matched in gt_items.items():
        target = [item for item in target_items[query] if item in nfold_itemids]
        recalls.append(1 if set(target[:K]) & set(matched) else 0)
    return float(np.mean(recalls))
