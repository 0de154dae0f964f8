"""Metrics in words, for two header rows: ``image_to_text_R@1`` is "R@1" of "image to text"."""

from __future__ import annotations

import re

WORDS = {
    "acc": "accuracy",
    "p": "probability of the class",
    "delta_p": "change of probability",
    "p_drop": "probability lost",
    "photo_acc": "accuracy on the photos",
    "drop": "accuracy lost",
    "paired_drop": "lost on the same photos",
    "net_drop": "lost beyond reconstruction",
}
"""{metric: its words}, without the "1" and "5" that count the first answers."""
FIRST_ANSWERS = re.compile(r"((?:\w+_)?(?:acc|drop))(\d+)")
AMONG_FIRST = re.compile(r"(?:(.*)_)?([Rr](?:ecall)?@\d+)")
CLASS_MEAN = "mean_per_class_recall"
SCORES = re.compile(r"(text|image|group)_score")


def split_metric(metric: str) -> tuple[str, str]:
    """Return a metric as the header of its group, and that of its column; either may be empty.

    >>> split_metric("image_to_text_R@10"), split_metric("acc5"), split_metric("blind_right")
    (('image to text', 'R@10'), ('accuracy', 'top 5'), ('', 'blind right'))
    """
    if match := AMONG_FIRST.fullmatch(metric):
        return (match[1] or "").replace("_", " "), match[2]
    if match := FIRST_ANSWERS.fullmatch(metric):
        return WORDS.get(match[1], match[1].replace("_", " ")), f"top {match[2]}"
    if metric == CLASS_MEAN:
        return "accuracy", "class mean"
    if match := SCORES.fullmatch(metric):
        return "score", match[1]
    return "", WORDS.get(metric, metric.replace("_", " "))
