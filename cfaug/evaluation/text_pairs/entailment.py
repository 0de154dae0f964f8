"""Does a model still judge whether a text follows from a photo after the text was changed?

``benchmark=entailment``: XMAI (Ramshetty et al., 2023), section 4.2 and Table 2.

For a source of unchanged hypotheses, such as SNLI-VE itself, the columns and outcomes of changed
texts are left out.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.item_schema import ItemSchema
from cfaug.core.pixels import content_digest
from cfaug.core.progress import watch
from cfaug.core.protocols import EncodesImages, Entailer
from cfaug.core.types import ENTAILMENT, Evaluation, Outcome
from cfaug.core.validation import Positive
from cfaug.data.sources.lists import LISTS
from cfaug.evaluation.benchmark import fingerprint
from cfaug.evaluation.cached_model import CachedEntailer, image_keys, recall_or_compute, text_keys
from cfaug.evaluation.inference import Pixels, check_outputs, compute_distinct, evaluating
from cfaug.evaluation.text_pairs.entailment_items import (
    BEFORE,
    ENTAILMENT_ITEMS,
    EntailmentItems,
    summarise_entailment,
    write_entailment,
)
from cfaug.evaluation.text_pairs.text_pair_benchmark import METHOD, Metric, TextPairBenchmark
from cfaug.evaluation.text_pairs.text_pairs import (
    Question,
    TextPairs,
    check_entailment_labels,
    find_photos,
    holds_changes,
    lacks_photos,
    read_hypotheses,
    read_text_pairs,
)
from cfaug.models.indistinct import check_answers
from cfaug.report.items import Items, read_items
from cfaug.settings.read_if import FOLDER, GIVEN, TRAINED, Condition, ReadIf
from cfaug.stats.classification import MacroScores, confusion_matrix, macro_scores

if TYPE_CHECKING:
    from cfaug.core.protocols import Benchmark
    from cfaug.data.index import Index
    from cfaug.evaluation.context import EvaluationContext


METRICS: Mapping[str, Metric] = {
    "accuracy_original": Metric(),
    "accuracy": Metric(),
    "accuracy_drop": Metric("lower"),
    "axiom_violations": Metric("lower"),
    "changed": Metric(),
}


@dataclass
class Entailment(TextPairBenchmark):
    """Accuracy and macro scores of hypotheses about photos, before and after methods changed them.

    Other arguments as for ``TextPairBenchmark``; ``answers`` are one of the three labels or
    ``unsure``.

    Args:
        data: folders as for ``TextPairBenchmark``, whose members are labelled; or unchanged
            labelled hypotheses; ``None`` uses the rows that the run's experiment held out
            (``data.holdout``).
        batch_size: number of photos, and of pairs of photo and text, given to the model at once.
        photos: SNLI-VE with its photos, where ``data`` names lists without photos, such as those
            that XMAI's authors released: their photos are found by premise and hypothesis.
    """

    batch_size: Positive = 64
    without_leaks: Annotated[
        bool, ReadIf({"data": FOLDER, "photos": (None,), TRAINED: (True,)})
    ] = False
    photos: Annotated[str | None, ReadIf({"data": GIVEN})] = None

    kind: ClassVar[str] = "entailment"
    item_schema: ClassVar[ItemSchema] = ENTAILMENT_ITEMS
    needs: ClassVar[type] = Entailer
    question: ClassVar[Question] = "entailment"
    page_files: ClassVar[tuple[str, ...]] = ("entailment.md",)
    reads_data: ClassVar[Mapping[str, Condition]] = {
        name: {"data": (None,)} for name in ("data.real", "data.counterfactual", "data.holdout")
    }

    def open(self, context: EvaluationContext) -> list[Benchmark]:
        if self.data is not None:
            return super().open(context)
        held = context.held_out()
        if held is None:
            raise UserError(
                "benchmark=entailment needs benchmark.data=FOLDER, or a run that held out a test "
                "set: train with data.holdout=0.1"
            )
        opened = copy.copy(self)
        opened.name = f"heldout_{self.kind}" if self.name is None else self.name
        return cast("list[Benchmark]", [opened.use(opened.read_pairs("heldout", *held))])

    def read(self, context: EvaluationContext, method: str, source: str) -> TextPairs:
        """Return the texts of a source, or of a list whose photos are in another source."""
        file = Path(source).expanduser()
        if self.photos is not None:
            return find_photos(method, file, context.open(self.photos))
        if file.suffix.lower() in LISTS and file.is_file() and lacks_photos(file):
            raise UserError(
                f"{source} lists hypotheses without photos: name SNLI-VE's, in which they are "
                "found by premise and hypothesis, with benchmark.photos=SNLI_VE:test"
            )
        return super().read(context, method, source)

    def read_pairs(self, method: str, index: Index, rows: np.ndarray | None) -> TextPairs:
        """Return the texts before and after, or hypotheses by themselves."""
        if holds_changes(index):
            return read_text_pairs(method, index, rows)
        return read_hypotheses(method or Path(index.source).name.replace(":", "_"), index, rows)

    def use(self, *pairs: TextPairs) -> Entailment:
        super().use(*pairs)
        for pair in self._pairs:
            check_entailment_labels(pair)
        first = self._pairs[0]
        assert first.index is not None
        keys = image_keys(first.index, first.rows[:, 0])
        numbers = {key: at for at, key in enumerate(dict.fromkeys(keys))}
        self._at = np.array([numbers[key] for key in keys])
        _, rows = np.unique(self._at, return_index=True)
        self._photos = Pixels(first.index, first.rows[rows, 0])
        self._digests = [key.hex() for key in keys]
        return self

    def identifying_settings(self) -> list[Any]:
        """Return the settings that change the test, for ``data_hash``: the labels."""
        return [fingerprint(*(list(pair.labels) for pair in self._pairs))]

    def run(self, model: Entailer | CachedEntailer) -> Evaluation:
        """Return accuracy and macro scores of every method, before and after."""
        reads = (
            model.reads_images if isinstance(model, CachedEntailer) else model.transform is not None
        )
        if not reads:
            raise UserError(
                "this model reads texts only, and benchmark=entailment asks about photos: choose "
                "model=vilt_entailer, bridgetower_entailer, flava_entailer or prompted_entailer"
            )
        texts = [self._pairs[0].originals, *(pair.changed for pair in self._pairs)]
        claims = Claims(
            self._photos, np.tile(self._at, len(texts)), [text for kind in texts for text in kind]
        )
        answers = entail(model, claims, self.batch_size).reshape(len(texts), len(self._at), -1)
        chosen = answers.argmax(-1).reshape(-1).tolist()
        check_answers(
            list(zip(claims.at.tolist(), claims.texts, strict=True)),
            [ENTAILMENT[label] for label in chosen],
        )
        # Columns of the answers to the original texts, then of those to each method's.
        items = self.pair_columns()
        expected = np.array([ENTAILMENT.index(str(label)) for label in items["label"]])
        items["image"] = self._digests * len(self._pairs)
        items["changed"] = np.concatenate([pair.is_changed for pair in self._pairs]).astype(float)
        items |= _answer_columns(np.tile(answers[0], (len(self._pairs), 1)), expected, BEFORE)
        if not self._before_alone:
            items |= _answer_columns(answers[1:].reshape(-1, len(ENTAILMENT)), expected, "")
            items["accuracy_drop"] = items[f"accuracy{BEFORE}"] - items["accuracy"]
            earlier, now = (np.array(items[f"predicted{part}"]) for part in (BEFORE, ""))
            follows = (expected == 0) & (earlier == ENTAILMENT[0])
            items["axiom_violations"] = np.where(follows, now == ENTAILMENT[2], np.nan)
        outcomes = self.means(items, {n: m for n, m in METRICS.items() if n in items})
        if self._before_alone:
            outcomes = [outcome for outcome in outcomes if outcome.metric == f"accuracy{BEFORE}"]
        reported = [outcome.by for outcome in outcomes if outcome.metric == f"accuracy{BEFORE}"]
        for by in reported:
            rows = np.ones(len(items["label"]), bool)
            for name, value in by.items():
                rows &= np.asarray(items[name], object) == value
            outcomes += self._macro(items, np.flatnonzero(rows), by)
        methods, labels = (np.asarray(items[name], object) for name in (METHOD, "label"))
        accuracies = {n: metric for n, metric in METRICS.items() if n.startswith("accuracy")}
        for method, label in product(dict.fromkeys(methods.tolist()), ENTAILMENT):
            chosen = (methods == method) & (labels == label)
            outcomes += self._means(items, accuracies, chosen, {METHOD: method, "label": label})
        return Evaluation(outcomes, items)

    def summarise(self, evaluation: Evaluation) -> Sequence[str]:
        items = Items(str(self.name), "", "", evaluation.items)
        return summarise_entailment(EntailmentItems("", items))

    def write_page(self, folder: Path, title: str) -> Path | None:
        """Write the scores, their tests and the confusion matrices (``entailment.md``)."""
        items = read_items(folder, str(self.name))
        return None if items is None else write_entailment(folder, EntailmentItems(title, items))

    @property
    def _before_alone(self) -> bool:
        """Whether nothing was changed: the changed text of an unchanged hypothesis is itself."""
        return not any(
            pair.is_changed.any() or (pair.rows[:, 0] != pair.rows[:, 1]).any()
            for pair in self._pairs
        )

    def _macro(
        self, items: Mapping[str, Any], rows: np.ndarray, by: Mapping[str, str]
    ) -> list[Outcome]:
        """Return macro precision, recall and F1 of rows, and the drop of each."""
        scores: dict[str, MacroScores] = {}
        for part in (BEFORE, ""):
            if f"predicted{part}" in items:
                truth, predicted = (
                    np.array([ENTAILMENT.index(items[name][row]) for row in rows.tolist()])
                    for name in ("label", f"predicted{part}")
                )
                scores[part] = macro_scores(confusion_matrix(truth, predicted, len(ENTAILMENT)))
        outcomes = []
        for name in ("precision", "recall", "f1"):
            values = {part: getattr(score, name) for part, score in scores.items()}
            outcomes += [
                Outcome(str(self.name), f"{name}_macro{part}", value, len(rows), by=by)
                for part, value in values.items()
            ]
            if "" in values:
                drop = values[BEFORE] - values[""]
                outcomes.append(
                    Outcome(str(self.name), f"{name}_macro_drop", drop, len(rows), "lower", by=by)
                )
        return outcomes


def _answer_columns(answers: np.ndarray, labels: np.ndarray, part: str) -> dict[str, Any]:
    predicted = answers.argmax(axis=1)
    return {
        f"predicted{part}": [ENTAILMENT[number] for number in predicted.tolist()],
        f"accuracy{part}": (predicted == labels).astype(float),
        **{
            f"p_{label}{part}": answers[:, number].astype(np.float64)
            for number, label in enumerate(ENTAILMENT)
        },
    }


# An entailer's answers about photos and texts: each distinct pair and photo is processed once.


@dataclass(frozen=True)
class Claims:
    """Texts, each about a photo.

    Attributes:
        at: the place in ``photos`` of each text's photo, int64 (texts,).
    """

    photos: Pixels
    at: np.ndarray
    texts: Sequence[str]

    def choose(self, places: Sequence[int]) -> Claims:
        """Return some of the texts, in this order."""
        return replace(self, at=self.at[list(places)], texts=[self.texts[p] for p in places])


def entail(model: Entailer | CachedEntailer, claims: Claims, batch_size: int) -> np.ndarray:
    """Return the probabilities of ``cfaug.core.types.ENTAILMENT``, float32 (texts, 3).

    Equal texts about photos of equal bytes have equal answers. A model that looks at an image
    before it reads does so once for all texts about it.

    Args:
        batch_size: number of photos, and of pairs of photo and text, given to the model at once.
    """
    order = np.argsort(claims.at, kind="stable")  # group the texts about a photo
    sorted_claims = claims.choose(order.tolist())
    images = image_keys(claims.photos.index, claims.photos.rows)
    texts = text_keys(sorted_claims.texts)
    keys = [
        content_digest(images[at] + key) for at, key in zip(sorted_claims.at, texts, strict=True)
    ]

    def compute(places: list[int]) -> Iterator[np.ndarray]:
        entailer = model.model if isinstance(model, CachedEntailer) else model
        return _batches(entailer, sorted_claims.choose(places), batch_size)

    if isinstance(model, CachedEntailer):
        probabilities = recall_or_compute(model.answers, keys, compute)
    else:
        probabilities = compute_distinct(keys, compute)
    answers = np.empty_like(probabilities)
    answers[order] = probabilities
    return answers


def _batches(model: Entailer, claims: Claims, size: int) -> Iterator[np.ndarray]:
    """Yield the answers to claims that are sorted by their photos."""
    import torch

    assert model.transform is not None  # the caller checks them
    wanted, of_claim = np.unique(claims.at, return_inverse=True)
    photos = Pixels(claims.photos.index, claims.photos.rows[wanted])
    batches = watch(photos.batches(model.transform, size), "entailing", len(wanted), "photos", len)
    first = 0
    for batch in batches:
        start, end = np.searchsorted(of_claim, [first, first + len(batch)])
        with torch.inference_mode(), evaluating(model):
            seen = torch.from_numpy(batch)
            seen = model.encode_images(seen) if isinstance(model, EncodesImages) else seen
            for low in range(start, end, size):
                some = slice(low, min(low + size, end))
                shown, texts = seen[torch.from_numpy(of_claim[some] - first)], claims.texts[some]
                if isinstance(model, EncodesImages):
                    given = model.entail_encoded(shown, texts)
                else:
                    given = model.entail([""] * len(texts), texts, shown)
                answers = given.float().cpu().numpy()
                check_outputs(model, answers)
                yield answers
        first += len(batch)
