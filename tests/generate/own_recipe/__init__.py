"""What a second paper costs: an editor, a scorer and a benchmark, and recipe/insertion.yaml.

Nothing of it is known to ``cfaug`` or ``conf``. It is unlike the first recipe in every respect: it
starts from photos, proposes several single texts for each, draws nothing, scores texts, and asks a
question of which lower values are better, by part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cfaug.core.types import (
    CLUSTER,
    ITEM,
    Edit,
    Edited,
    Evaluation,
    Example,
    Images,
    Outcome,
    Proposal,
    Scores,
)
from cfaug.evaluation.benchmark import SourceBenchmark, cluster_rows, fingerprint, name_rows
from cfaug.evaluation.inference import Pixels, embed_images, embed_texts


@dataclass(frozen=True)
class InsertAttribute:
    """Proposes a photo's caption with a word before its noun, once for each word.

    Args:
        words: the words by the kind of attribute.
    """

    words: Mapping[str, Sequence[str]]

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        return [self._edit(example) for example in examples]

    def describe(self) -> dict[str, str]:
        return {"editor": "insertion"}

    def _edit(self, example: Example) -> Edited:
        noun = example.extra["noun"]
        if noun not in example.text.split():
            return Edited((), {"noun": 0})
        pairs = [(kind, word) for kind, words in self.words.items() for word in words]
        proposals = tuple(
            Proposal(
                example,
                (example.text.replace(noun, f"{word} {noun}"),),
                (Edit(kind, noun, f"{word} {noun}"),),
                details=({"kind": kind, "caption": example.text},),
            )
            for kind, word in pairs
        )
        return Edited(proposals, {"noun": 1})


@dataclass(frozen=True)
class Rarity:
    """Scores texts alone: how many words they have, and whether all of them are likely."""

    unlikely: Sequence[str]

    names: ClassVar[tuple[str, ...]] = ("words", "likely")

    def score(self, proposals: Sequence[Proposal], images: Sequence[Images]) -> list[Scores]:
        return [
            {
                "words": float(len(proposal.texts[0].split())),
                "likely": float(not set(self.unlikely) & set(proposal.texts[0].split())),
            }
            for proposal in proposals
        ]

    def describe(self) -> dict[str, str]:
        return {"unlikely": ",".join(self.unlikely)}


@dataclass
class Brittleness(SourceBenchmark):
    """By how much the image's cosine with its caption drops where an attribute is inserted."""

    kind: ClassVar[str] = "brittleness"

    def prepare(self, context: Any, index: Any, rows: np.ndarray | None) -> None:
        self._index, self._rows = index, np.arange(len(index)) if rows is None else rows

    @property
    def data_hash(self) -> str:
        return fingerprint(self._index.hash_with(["kind", "caption"]), self._rows)

    def run(self, model: Any) -> Evaluation:
        index, rows = self._index, self._rows
        kinds = np.array(index.extra("kind").to_pylist())[rows]
        images = embed_images(model, Pixels(index, rows), self.batch_size)
        before, after = (
            embed_texts(model, texts, self.batch_size)
            for texts in (
                [index.extra("caption")[int(row)].as_py() for row in rows],
                [index.text(int(row)) for row in rows],
            )
        )
        drop = ((images * before).sum(1) - (images * after).sum(1)).astype(np.float64)
        parts: list[tuple[dict[str, str], np.ndarray]] = [({}, drop)]
        parts += [({"kind": kind}, drop[kinds == kind]) for kind in sorted(set(kinds))]
        outcomes = [
            Outcome(str(self.name), "drop", float(some.mean()), len(some), "lower", "cosine", by)
            for by, some in parts
        ]
        items = {
            ITEM: name_rows(index, rows),
            CLUSTER: cluster_rows(index, rows),
            "drop": drop,
            "kind": kinds.tolist(),
        }
        return Evaluation(outcomes, items)
