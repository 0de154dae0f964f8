"""Answers of made-up classifiers to photos, reconstructions and edits, with their pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cfaug.core.types import ORIGINAL, RECONSTRUCTION
from cfaug.evaluation.stress.stress_items import EDITED, StressItems
from cfaug.report.items import Items
from tests.report.example import HOSTILE, picture

CLASSES = ("ball", "cube", "star", "tree", "<b>cone</b>")
COLOURS = ("red", "blue", "green", "yellow")
INTERVENTIONS = (
    ("background", "on the beach", "in the snow"),
    ("background", "", "at night"),
    ("adjective", "red", "blue"),
    ("domain", "photo", "sketch"),
)
RELIES_ON = {"background": 0.5, "adjective": 0.05, "domain": 0.15}
NAMES = tuple(name for _, _, name in INTERVENTIONS)


def softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits - logits.max())
    return raised / raised.sum()


def stress_items(
    model: str = "net",
    photos: int = 12,
    relies_on: dict[str, float] = RELIES_ON,
    sets: Sequence[str] = (EDITED,),
    hostile: bool = False,
    benchmark: str = "own_stress",
) -> StressItems:
    """Return answers of a classifier that loses so many logits when a factor is changed."""
    rng = np.random.default_rng([len(model), photos])
    rows: list[dict] = []

    def answer(label: int, loss: float) -> dict:
        logits = rng.normal(0, 0.3, len(CLASSES))
        logits[label] += 2.5 - 8 * loss
        p = softmax(logits)
        order = np.argsort(-p)
        row = {"p": p[label], "acc1": float(order[0] == label), "acc5": 1.0,
               "rank": int(np.flatnonzero(order == label)[0]) + 1}  # fmt: skip
        for n, at in enumerate(order, 1):
            row |= {f"top{n}": CLASSES[at], f"top{n}_p": p[at]}
        return row

    for number in range(photos):
        label = number % 3
        text = f"a photo of a red {CLASSES[label]} on the beach, {number}"
        text = HOSTILE if hostile and number == 0 else text
        shared = {"cluster": f"g{number}", "photo": f"{ORIGINAL}/k{number}_0", "photos": "edited",
                  "class": CLASSES[label], "class_name": CLASSES[label], "text_before": text,
                  "source": "shards", "key": f"k{number}"}  # fmt: skip
        plain, again = answer(label, 0.0), answer(label, 0.01)
        nothing = {"before": "", "after": "", "text": text}
        missing = dict.fromkeys(("p_photo", "p_reconstruction", "p_drop", "delta_p", "photo_acc1",
                                 "paired_drop1", "net_drop1"), np.nan)  # fmt: skip
        rows.append({"item": f"{ORIGINAL}/k{number}_0", "set": ORIGINAL, "kind": ORIGINAL,
                     "image": f"{number:032x}", "member": 0, **shared, **nothing, **plain,
                     **missing})  # fmt: skip

        def compared(drawn: dict, plain: dict = plain, again: dict = again) -> dict:
            drop = plain["p"] - drawn["p"]
            return {**drawn, "p_photo": plain["p"], "p_reconstruction": again["p"], "p_drop": drop,
                    "delta_p": abs(drop), "photo_acc1": plain["acc1"],
                    "paired_drop1": plain["acc1"] - drawn["acc1"],
                    "net_drop1": again["acc1"] - drawn["acc1"]}  # fmt: skip

        rows.append({"item": f"{RECONSTRUCTION}/k{number}_1", "set": RECONSTRUCTION,
                     "kind": RECONSTRUCTION, "image": f"{number + 1000:032x}", "member": 1,
                     **shared, **nothing, **compared(again)})  # fmt: skip
        for part in sets:
            for n, (kind, before, after) in enumerate(INTERVENTIONS, 2):
                row_kind = kind if part == EDITED else part
                loss = relies_on.get(kind, 0.0) * (2 if after == "in the snow" else 1)
                loss *= 1 if part == EDITED else 0.2
                edited = text.replace(before, after) if before else f"{text} {after}"
                rows.append({"item": f"{part}/k{number}_{n}", "set": part, "kind": row_kind,
                             "image": f"{number * 10 + n + 2000:032x}", "member": n, **shared,
                             "before": before, "after": after, "text": edited,
                             **compared(answer(label, loss))})  # fmt: skip
    columns = {name: np.array([row[name] for row in rows], object if isinstance(rows[0][name], str)
                              else None) for name in rows[0]}  # fmt: skip
    return StressItems(model, Items(benchmark, f"weights of {model}", "data", columns))


def read_image(name: str) -> bytes:
    """Return a photo, its reconstruction or an edit of it, by the item's name."""
    number, member = (int(part) for part in name.rpartition("k")[2].split("_"))
    colour = COLOURS[member % 4] if member > 1 else "red"
    return picture(("ball", "cube", "star")[number % 3], colour)
