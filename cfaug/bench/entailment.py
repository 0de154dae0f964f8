"""Does a model still say whether a text follows from a photo once it was changed?

``benchmark=entailment``: XMAI (Ramshetty et al., 2023), section 4.2 and Table 2. The items, one row
a method and set, are those of :class:`cfaug.bench.text_pair_benchmark.TextPairBenchmark` and:

* ``label``: the right answer to the original text, which both texts are marked by, as in the paper;
* ``image``: digest of the photo's bytes; ``changed``: 1 if the texts differ;
* ``predicted_original``, ``predicted``: what the model says of the text before and after;
* ``accuracy_original``, ``accuracy``: 1 where that is the label; ``accuracy_drop``: the first less
  the second;
* ``p_entailment_original``, ``p_entailment``, ...: probabilities of the three;
* ``axiom_violations``: of texts that follow, and that the model says follow: 1 if it says of the
  changed text that it contradicts, else 0 (section 4.2: an entailed text that is enriched with what
  the photo shows should not become a contradiction); null of all others.

A source whose hypotheses nobody changed, such as SNLI-VE itself, is asked before alone: the columns
and outcomes of what comes after are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from cfaug.bench.cached_model import CachedEntailer
from cfaug.bench.embed import Pixels
from cfaug.bench.entail import Claims, entail
from cfaug.bench.feature_cache import image_keys
from cfaug.bench.identity import fingerprint
from cfaug.bench.item_names import cluster_rows, name_rows
from cfaug.bench.label_check import Question
from cfaug.bench.text_pair_benchmark import METHOD, Metric, TextPairBenchmark
from cfaug.bench.text_pairs import EDIT, TextPairs, read_text_pairs
from cfaug.errors import UserError
from cfaug.metrics.confusion import MacroScores, confusion_matrix, macro_scores
from cfaug.protocols import Entailer
from cfaug.report.entailment import BEFORE, EntailmentItems, summarise_entailment, write_entailment
from cfaug.report.items import Items, read_items
from cfaug.types import ENTAILMENT, Evaluation, Outcome

if TYPE_CHECKING:
    from cfaug.data.index import Index

NAMED = 3
"""Sets that a message names."""

METRICS: Mapping[str, Metric] = {
    "accuracy_original": Metric(),
    "accuracy": Metric(),
    "accuracy_drop": Metric("lower"),
    "axiom_violations": Metric("lower"),
    "changed": Metric(),
}

MACRO = ("precision", "recall", "f1")
"""Scores of all classes together, beside accuracy."""


@dataclass
class Entailment(TextPairBenchmark):
    """Accuracy and macro scores of hypotheses about photos, before and after methods changed them.

    Args:
        data: a folder of sets of two texts on one photo, whose members are labelled; several,
            ``{METHOD: FOLDER}`` or a list, are compared on the texts that all of them have. Or
            labelled hypotheses that nobody changed.
        name: what tables call it, "_entailment" added; ``None`` is the folder's name, or of several
            ``entailment``.
        batch_size: photos, and pairs of photo and text, that go through the model at once.
        without_leaks: leave out sets of photos that the run was trained on.
        answers: what people said of the texts, one of the three labels or ``unsure``, a file, or of
            several folders ``{METHOD: FILE}``; it goes before what an oracle says.
    """

    batch_size: int = 64

    kind: ClassVar[str] = "entailment"
    needs: ClassVar[type] = Entailer
    question: ClassVar[Question] = "entailment"
    page_files: ClassVar[tuple[str, ...]] = ("entailment.md",)

    def read_pairs(self, method: str, index: Index, rows: np.ndarray | None) -> TextPairs:
        """Return the texts before and after, or hypotheses by themselves.

        Args:
            method: what changed the texts; may be empty.
            index: the source.
            rows: which rows; ``None`` is all.
        """
        if _is_changed(index):
            return read_text_pairs(method, index, rows)
        return _read_alone(method or Path(index.source).name.replace(":", "_"), index, rows)

    def ask(self, *pairs: TextPairs) -> Entailment:
        """Ask about texts, and return this benchmark.

        Args:
            pairs: of each method.

        Raises:
            UserError: if methods have no texts in common, or a label is none of the three.
        """
        super().ask(*pairs)
        for one in self._pairs:
            _check_labels(one)
        first = self._pairs[0]
        assert first.index is not None
        keys = image_keys(first.index, first.rows[:, 0])
        numbers = {key: at for at, key in enumerate(dict.fromkeys(keys))}
        self._at = np.array([numbers[key] for key in keys])
        _, rows = np.unique(self._at, return_index=True)
        self._photos = Pixels(first.index, first.rows[rows, 0])
        self._digests = [key.hex() for key in keys]
        return self

    def settings_asked(self) -> list[Any]:
        """Return the settings that change what is asked, for ``data_hash``: the labels."""
        return [fingerprint(*(list(one.labels) for one in self._pairs))]

    def run(self, model: Entailer | CachedEntailer) -> Evaluation:
        """Return accuracy and macro scores of every method, before and after.

        Raises:
            UserError: if the model reads texts only, or an answer is no number.
        """
        _check_reads_images(model)
        texts = [self._pairs[0].originals, *(one.changed for one in self._pairs)]
        claims = Claims(
            self._photos, np.tile(self._at, len(texts)), [text for kind in texts for text in kind]
        )
        answers = entail(model, claims, self.batch_size).reshape(len(texts), len(self._at), -1)
        items = self._items(answers)
        outcomes = self.means(items, {n: m for n, m in METRICS.items() if n in items})
        if self._before_alone:
            outcomes = [one for one in outcomes if one.metric == f"accuracy{BEFORE}"]
        for by, rows in list(self._parts(items, outcomes)):
            outcomes += self._macro(items, rows, by)
        return Evaluation([*outcomes, *self._by_label(items)], items)

    def summarise(self, found: Evaluation) -> Sequence[str]:
        """Return a few lines for the terminal."""
        return summarise_entailment(EntailmentItems("", _as_items(str(self.name), found)))

    def write_page(self, folder: Path, title: str) -> Path | None:
        """Write the scores, their tests and the confusion matrices (``entailment.md``)."""
        items = read_items(folder, str(self.name))
        return None if items is None else write_entailment(folder, EntailmentItems(title, items))

    @property
    def _before_alone(self) -> bool:
        return not any((one.rows[:, 0] != one.rows[:, 1]).any() for one in self._pairs)

    def _items(self, answers: np.ndarray) -> dict[str, Any]:
        """Return all columns; ``answers`` are of the original texts, then of each method's."""
        items = self.pair_columns()
        count = len(self._pairs)
        labels = np.array([ENTAILMENT.index(str(label)) for label in items["label"]])
        items["image"] = self._digests * count
        items["changed"] = np.concatenate([one.is_changed for one in self._pairs]).astype(float)
        before = np.concatenate([answers[0]] * count)
        items |= _answer_columns(before, labels, BEFORE)
        if self._before_alone:
            return items
        items |= _answer_columns(answers[1:].reshape(-1, len(ENTAILMENT)), labels, "")
        items["accuracy_drop"] = items[f"accuracy{BEFORE}"] - items["accuracy"]
        said, now = (np.array(items[f"predicted{part}"]) for part in (BEFORE, ""))
        follows = (labels == 0) & (said == ENTAILMENT[0])
        items["axiom_violations"] = np.where(follows, now == ENTAILMENT[2], np.nan)
        return items

    def _parts(
        self, items: Mapping[str, Any], outcomes: Sequence[Outcome]
    ) -> Iterator[tuple[Mapping[str, str], np.ndarray]]:
        """Yield the parts of the test that means are told of, with their rows."""
        for one in [o for o in outcomes if o.metric == f"accuracy{BEFORE}"]:
            rows = np.ones(len(items["label"]), bool)
            for name, value in one.by.items():
                rows &= np.asarray(items[name], object) == value
            yield one.by, np.flatnonzero(rows)

    def _macro(
        self, items: Mapping[str, Any], rows: np.ndarray, by: Mapping[str, str]
    ) -> list[Outcome]:
        """Return macro precision, recall and F1 of rows, and how much of each is lost."""
        found: dict[str, MacroScores] = {part: _score(items, rows, part) for part in _sides(items)}
        outcomes = []
        for name in MACRO:
            values = {part: getattr(one, name) for part, one in found.items()}
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

    def _by_label(self, items: Mapping[str, Any]) -> list[Outcome]:
        """Return the accuracy on the items of each label."""
        found = []
        methods, labels = (np.asarray(items[name], object) for name in (METHOD, "label"))
        for method in dict.fromkeys(methods.tolist()):
            for label in ENTAILMENT:
                rows = (methods == method) & (labels == label)
                if rows.any():
                    by = {METHOD: method, "label": label}
                    named = {n: m for n, m in METRICS.items() if n.startswith("accuracy")}
                    found += self._means(items, named, rows, by)
        return found


def _answer_columns(answers: np.ndarray, labels: np.ndarray, part: str) -> dict[str, Any]:
    said = answers.argmax(axis=1)
    return {
        f"predicted{part}": [ENTAILMENT[number] for number in said.tolist()],
        f"accuracy{part}": (said == labels).astype(float),
        **{
            f"p_{label}{part}": answers[:, number].astype(np.float64)
            for number, label in enumerate(ENTAILMENT)
        },
    }


def _sides(items: Mapping[str, Any]) -> list[str]:
    return [part for part in (BEFORE, "") if f"predicted{part}" in items]


def _score(items: Mapping[str, Any], rows: np.ndarray, part: str) -> MacroScores:
    truth, said = (
        np.array([ENTAILMENT.index(items[name][row]) for row in rows.tolist()])
        for name in ("label", f"predicted{part}")
    )
    return macro_scores(confusion_matrix(truth, said, len(ENTAILMENT)))


def _as_items(name: str, found: Evaluation) -> Items:
    return Items(name, "", "", found.items)


def _check_reads_images(model: Entailer | CachedEntailer) -> None:
    reads = model.reads_images if isinstance(model, CachedEntailer) else model.transform is not None
    if not reads:
        raise UserError(
            "this model reads texts only, and benchmark=entailment asks about photos: choose "
            "model=vilt_entailer, bridgetower_entailer, flava_entailer or asked_entailer"
        )


def _is_changed(index: Index) -> bool:
    """Say whether the source has texts before and after a change, not hypotheses by themselves."""
    if EDIT[0] in index.extra_names and index.extra(EDIT[0]).null_count < len(index):
        return True
    sets, images = np.asarray(index.sets), np.asarray(index.images)
    if len(sets) % 2 or (np.bincount(sets) != 2).any() or (images[::2] != images[1::2]).any():
        return False
    return all(index.text(row) == index.text(row + 1) for row in range(0, len(index), 2))


def _read_alone(method: str, index: Index, rows: np.ndarray | None) -> TextPairs:
    """Return hypotheses by themselves: each its own text before and after.

    Raises:
        UserError: if there is none.
    """
    chosen = np.arange(len(index)) if rows is None else np.sort(rows)
    if not len(chosen):
        raise UserError(f"{index.source} holds no hypothesis")
    texts = tuple(index.text(int(row)) for row in chosen)
    return TextPairs(
        method=method,
        source=index.source,
        keys=tuple(name_rows(index, chosen)),
        originals=texts,
        changed=texts,
        clusters=tuple(cluster_rows(index, chosen)),
        kinds=("",) * len(chosen),
        labels=tuple(index.label(int(row)) or "" for row in chosen),
        index=index,
        rows=np.stack([chosen, chosen], axis=1),
        hash=fingerprint(index.hash, chosen),
    )


def _check_labels(pairs: TextPairs) -> None:
    """Refuse texts whose label is none of the three.

    Raises:
        UserError: naming the source, how many, and one of them.
    """
    wrong = [at for at, label in enumerate(pairs.labels) if label not in ENTAILMENT]
    if wrong:
        label = pairs.labels[wrong[0]]
        what = f"the label {label[:40]!r}" if label else "no label"
        names = ", ".join(pairs.keys[at] for at in wrong[:NAMED])
        raise UserError(
            f"{pairs.source}: {len(wrong):,} of {len(pairs):,} hypotheses have no label of "
            f"{', '.join(ENTAILMENT)} ({names}{', ...' if len(wrong) > NAMED else ''}), the first "
            f"has {what}: benchmark=entailment asks about labelled hypotheses, as SNLI-VE's, or "
            "what a recipe made of them"
        )
