"""A method of one's own: an editor of captions, an editor of images, a benchmark, and its table.

The example swaps two colours in a caption and in its image, and asks whether a model prefers an
image's own caption. Replace one part after the other; ``pytest`` in this folder tests them. The
folder has the shape of a paper's: ``conf/`` (recipe, benchmark, table), ``sweeps/``, ``published/``
(printed numbers) and ``reproduce.mk``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.core.pixels import decode_image
from cfaug.core.protocols import DualEncoder
from cfaug.core.types import (
    CLUSTER,
    ITEM,
    Edit,
    Edited,
    Evaluation,
    Example,
    ImageJob,
    Images,
    Proposal,
)
from cfaug.evaluation.benchmark import (
    SourceBenchmark,
    cluster_rows,
    fingerprint,
    name_rows,
    paired_rows,
)
from cfaug.evaluation.inference import Pixels, embed_images, embed_texts
from cfaug.report.document import Column, Document, Entry, make_part
from cfaug.report.page import percent
from cfaug.report.paper_tables import ModelsTable

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.evaluation.context import EvaluationContext
    from cfaug.report.arm_results import Runs
    from cfaug.report.items import Items


@dataclass(frozen=True)
class SwapColoursEditor:
    """Proposes a caption with its colour replaced, beside the caption itself.

    Args:
        words: the replacement of each colour; captions without one of these get no proposal.
    """

    words: Mapping[str, str]

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        return [self._edit(example) for example in examples]

    def describe(self) -> dict[str, str]:
        """Return what decides the result, for the card; here also names of weights, if any."""
        return {"words": ", ".join(f"{old}: {new}" for old, new in self.words.items())}

    def _edit(self, example: Example) -> Edited:
        words = example.text.split()
        old = next((word for word in words if word in self.words), None)
        if old is None:
            return Edited((), {"has_colour": 0})
        new = self.words[old]
        texts = (example.text, " ".join(new if word == old else word for word in words))
        edits = (None, Edit("colour", old, new))
        return Edited((Proposal(example, texts, edits),), {"has_colour": 1})


@dataclass(frozen=True)
class SwapColoursImages:
    """Makes the image of the edited caption from the photo: red and green change places.

    A random choice would be drawn from ``job.draw.seed``, which is the same in every run.
    """

    def edit(self, jobs: Sequence[ImageJob]) -> list[Images]:
        return [self._edit(job) for job in jobs]

    def describe(self) -> dict[str, str]:
        return {"channels": "green, red, blue"}

    def _edit(self, job: ImageJob) -> Images:
        if job.image is None:
            return Images((), rejected="no photo")
        key = job.proposal.example.key
        photo = np.asarray(decode_image(job.image.read(), f"the photo of {key}"))
        return Images((photo, np.ascontiguousarray(photo[:, :, [1, 0, 2]])))


@dataclass
class SwapColoursBenchmark(SourceBenchmark):
    """Share of images whose own caption is more similar than the other caption of their pair.

    Args:
        data: a folder of pairs, such as the recipe makes.
    """

    kind: ClassVar[str] = "swap_colours"
    needs: ClassVar[type] = DualEncoder
    item_schema: ClassVar[ItemSchema] = ItemSchema(
        "an image",
        (
            ItemColumn("item", "the image", "text", always=True),
            ItemColumn("cluster", "its group, such as its photo", "text", always=True),
            ItemColumn("own_caption", "1 if its own caption is more similar than the other"),
        ),
    )

    def prepare(self, context: EvaluationContext, index: Index, rows: np.ndarray | None) -> None:
        self._index, self._rows = index, paired_rows(self.name, index, rows)

    @property
    def data_hash(self) -> str:
        return fingerprint(self._index.hash, self._rows)

    def run(self, model: DualEncoder) -> Evaluation:
        """Return the share, with a row for each image."""
        index, rows = self._index, self._rows
        texts = [index.text(int(row)) for row in rows]
        images = embed_images(model, Pixels(index, rows), self.batch_size)
        captions = embed_texts(model, texts, self.batch_size)
        other = captions.reshape(-1, 2, captions.shape[1])[:, ::-1].reshape(captions.shape)
        hits = {"own_caption": ((images * captions).sum(1) > (images * other).sum(1)) * 1.0}
        names = {ITEM: name_rows(index, rows), CLUSTER: cluster_rows(index, rows)}
        return Evaluation(self.mean_outcomes(hits, {"own_caption": 0.5}), {**names, **hits})


@dataclass(frozen=True, kw_only=True)
class SwapColoursTable(ModelsTable):
    """The share of every model that answered the benchmark, below the numbers that are printed."""

    def build(self, runs: Runs) -> Document:
        """Return the printed part and ours, with a row for each model."""
        answers = self.answers(runs, lambda _, items: items)
        self.require(answers, f"answers of a model to benchmark={self.benchmark}")
        rows = [((model,), [items for _, items in pairs]) for model, pairs in answers.items()]
        ours = make_part("Ours", ("model",), [Column("own caption", _share)], rows)
        return self.document(self.printed("model", "model", _printed), ours)


def _share(answers: Sequence[Items]) -> Entry:
    """Return the mean over a model's checkpoints."""
    value = float(np.mean([items.metric("own_caption").mean() for items in answers]))
    return Entry(percent(value, 1), numbers={"value": value})


def _printed(_: Mapping[str, Any], value: float) -> Entry:
    return Entry(f"{value:.1f}", numbers={"value": value / 100})
