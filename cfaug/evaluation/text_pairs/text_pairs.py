"""Texts before and after a method changed them, from sets, lists and SNLI-VE.

A set has two members on one image: the original text, and the changed one, which is equal if the
method changed nothing. A list of modified captions (``cfaug.data.sources.xmai``) and
captions that were only edited (``generate.py stage=captions``) have no images; benchmarks of texts
alone accept them.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cfaug.annotation.record import HumanAnswers, read_human_answers
from cfaug.core.errors import UserError, say
from cfaug.core.types import ENTAILMENT
from cfaug.core.validation import check
from cfaug.data.index import Index
from cfaug.data.index.index import pair_rows, refuse_duplicated_keys
from cfaug.data.shards.shards import committed_captions, list_committed, read_all_edits, read_scores
from cfaug.data.sources.photo_lists import PREMISE
from cfaug.data.sources.xmai import read_modified_captions
from cfaug.evaluation.benchmark import cluster_rows, fingerprint, name_rows
from cfaug.evaluation.cached_model import image_keys
from cfaug.evaluation.text_pairs.text_pair_items import CHANGED, KEPT, UNKNOWN

EDIT = ("edit_kind", "edit_before", "edit_after")
COLUMNS = ("keys", "originals", "changed", "clusters", "kinds", "labels")
"""The fields of ``TextPairs`` with a value for each set."""


@dataclass(frozen=True)
class TextPairs:
    """Texts before and after one method changed them.

    Attributes:
        source: the folder or file, as given.
        keys: the key of each set; methods are compared on sets of the same key.
        kinds: the kind of each edit; "" if nothing was changed.
        labels: the class of each set; "" for none.
        index: the index of the sets; ``None`` for a list.
        rows: the index's rows of each original and changed text, int64 (sets, 2); (0, 2) for a
            list.
    """

    method: str
    source: str
    keys: tuple[str, ...]
    originals: tuple[str, ...]
    changed: tuple[str, ...]
    clusters: tuple[str, ...]
    kinds: tuple[str, ...]
    labels: tuple[str, ...]
    index: Index | None
    rows: np.ndarray
    hash: str

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def is_changed(self) -> np.ndarray:
        """Whether each text was changed, bool (sets,)."""
        pairs = zip(self.originals, self.changed, strict=True)
        return np.array([before != after for before, after in pairs], bool)

    @cached_property
    def scores(self) -> tuple[Mapping[str, float], ...]:
        """The scores of each set, as its recipe's scorers gave them; empty where there are none."""
        if self.index is None or self.index.kind != "shards":
            return ({},) * len(self)
        folder = Path(self.index.source).expanduser()
        if not folder.is_dir():  # a part of the world, given by name: its texts are not edits
            return ({},) * len(self)
        scores = read_scores(folder)
        return tuple(scores.get(key, {}) for key in self.keys)

    def choose(self, places: Sequence[int]) -> TextPairs:
        """Return the given sets, in this order."""
        columns: dict[str, Any] = {
            name: tuple(getattr(self, name)[at] for at in places) for name in COLUMNS
        }
        rows = self.rows if self.index is None else self.rows[list(places)]
        return replace(self, **columns, rows=rows, hash=fingerprint(self.hash, columns["keys"]))


def read_text_pairs(method: str, index: Index, rows: np.ndarray | None = None) -> TextPairs:
    """Read sets of two texts on one image.

    Args:
        method: the method's name in tables; "" takes the kind of its edits, or the folder's name if
            there are several kinds.
        rows: the rows to use, of whole sets; ``None`` for all.
    """
    keys, pairs = pair_rows(index, rows)
    kinds = ("",) * len(keys)
    if EDIT[0] in index.extra_names:
        named = index.extra(EDIT[0]).take(pairs[:, 1]).to_pylist()
        kinds = tuple("" if kind is None else str(kind) for kind in named)
    return TextPairs(
        method=method or _name(index.source, kinds),
        source=index.source,
        keys=keys,
        originals=tuple(index.text(int(row)) for row in pairs[:, 0]),
        changed=tuple(index.text(int(row)) for row in pairs[:, 1]),
        clusters=tuple(cluster_rows(index, pairs[:, 0])),
        kinds=kinds,
        labels=tuple(index.label(int(row)) or "" for row in pairs[:, 1]),
        index=index,
        rows=pairs,
        hash=fingerprint(
            index.hash_with([name for name in EDIT if name in index.extra_names]), pairs
        ),
    )


def read_caption_list(method: str, file: Path) -> TextPairs:
    """Read a list of modified captions: texts without images.

    Args:
        method: the method's name in tables; "" takes the file's name.
        file: a list in a form that ``read_modified_captions`` reads; duplicated rows are left out
            with a message.
    """
    listed = read_modified_captions(file)
    if listed.duplicates:
        say(f"{file}: {listed.duplicates} rows repeat a text of the same photo and are left out")
    return _without_images(
        method or file.stem,
        file,
        [(row.key, row.original, row.modified, row.group, "", row.label) for row in listed.rows],
    )


def holds_edited_captions(folder: Path) -> bool:
    """Return whether a folder has edited captions but no sets made from them."""
    return bool(committed_captions(folder)) and not list_committed(folder)


def read_edited_captions(method: str, folder: Path) -> TextPairs:
    """Read captions before and after an editor changed them: texts without images.

    Args:
        method: the method's name in tables; "" takes the kind of its edits, or the folder's name if
            there are several kinds.
        folder: a folder that ``generate.py stage=captions`` wrote; rejected captions are left out.
    """
    proposals = [proposal for _, edited in read_all_edits(folder) for proposal in edited.proposals]
    wrong = [proposal.key for proposal in proposals if len(proposal.texts) != 2]
    if wrong or not proposals:
        reason = f"{wrong[0]!r} lacks two texts" if wrong else "no caption was edited"
        raise UserError(
            f"{folder}: {reason}; the recipes deletion, eda, checklist and clare make a text "
            "before and after"
        )
    refuse_duplicated_keys(str(folder), tuple(proposal.key for proposal in proposals))
    kinds = ["" if proposal.edits[1] is None else proposal.edits[1].kind for proposal in proposals]
    return _without_images(
        method or _name(str(folder), kinds),
        folder,
        [
            (proposal.key, *proposal.texts, proposal.group, kind, proposal.example.label)
            for proposal, kind in zip(proposals, kinds, strict=True)
        ],
    )


def _without_images(method: str, source: Path, sets: Sequence[tuple[str | None, ...]]) -> TextPairs:
    """Return sets of ``COLUMNS``, with ``None`` for no label."""
    columns = [tuple(value or "" for value in column) for column in zip(*sets, strict=True)]
    fields: dict[str, Any] = dict(zip(COLUMNS, columns or [()] * len(COLUMNS), strict=True))
    content = json.dumps([list(fields["originals"]), list(fields["changed"])]).encode()
    content_hash = hashlib.sha256(content).hexdigest()[:16]
    no_rows = np.empty((0, 2), np.int64)
    return TextPairs(
        method=method, source=str(source), index=None, rows=no_rows, hash=content_hash, **fields
    )


def share_captions(pairs: Sequence[TextPairs]) -> list[TextPairs]:
    """Return the sets that all methods share, in the first method's order.

    Sets that some methods lack are left out of all, and counted in a message, so that methods are
    compared on the same captions.
    """
    names = [pair.method for pair in pairs]
    for name, count in Counter(names).items():
        if count > 1:
            raise UserError(
                f"the method {name!r} is duplicated: give the folders names, "
                "benchmark.data={NAME: FOLDER, ...}"
            )
    common = set(pairs[0].keys).intersection(*(pair.keys for pair in pairs[1:]))
    if not common:
        shown = ", ".join(f"{pair.source} ({pair.keys[0]}, ...)" for pair in pairs)
        raise UserError(
            f"no caption is common to all of {shown}: make them of the same data.source"
        )
    order = [key for key in pairs[0].keys if key in common]
    shared: list[TextPairs] = []
    for pair in pairs:
        if len(pair) > len(order):
            say(
                f"{pair.method}: {len(pair) - len(order):,} of {len(pair):,} captions are left "
                "out, which another method lacks"
            )
        position = {key: at for at, key in enumerate(pair.keys)}
        same = list(pair.keys) == order
        shared.append(pair if same else pair.choose([position[key] for key in order]))
        for noun, field in (("caption", "originals"), ("photo", "clusters")):
            values = (getattr(of, field) for of in (shared[0], shared[-1]))
            for key, a, b in zip(order, *values, strict=True):
                if a != b:
                    raise UserError(
                        f"the {noun} {key} is {a[:80]!r} in {shared[0].source}, and {b[:80]!r} in "
                        f"{pair.source}: make both of the same data.source"
                    )
    return shared


def _name(source: str, kinds: Sequence[str]) -> str:
    """Return the only kind of edit, or the folder's name."""
    named = {*kinds} - {""}
    return named.pop() if len(named) == 1 else Path(source).name


# Sources of labelled hypotheses: sets of two texts, SNLI-VE itself, lists without photos.


def holds_changes(index: Index) -> bool:
    """Return whether a source has texts before and after a change, not just hypotheses."""
    if EDIT[0] in index.extra_names and index.extra(EDIT[0]).null_count < len(index):
        return True
    sets, images = np.asarray(index.sets), np.asarray(index.images)
    if len(sets) % 2 or (np.bincount(sets) != 2).any() or (images[::2] != images[1::2]).any():
        return False
    return all(index.text(row) == index.text(row + 1) for row in range(0, len(index), 2))


def read_hypotheses(method: str, index: Index, rows: np.ndarray | None) -> TextPairs:
    """Return unchanged hypotheses: each is its own text before and after.

    A hypothesis that is duplicated for a photo counts once, as for XMAI's authors (42 of 17,901 in
    SNLI-VE's test part).

    Args:
        rows: the rows to use; ``None`` for all.
    """
    chosen = np.arange(len(index)) if rows is None else np.sort(rows)
    if not len(chosen):
        raise UserError(f"{index.source} has no hypotheses")
    first: dict[tuple[bytes, str], int] = {}
    for key, row in zip(image_keys(index, chosen), chosen.tolist(), strict=True):
        first.setdefault((key, index.text(row)), row)
    if len(first) < len(chosen):
        say(
            f"{index.source}: {len(chosen) - len(first):,} hypotheses are duplicates for the same "
            "photo and are left out"
        )
    chosen = np.array(sorted(first.values()))
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


def lacks_photos(file: Path) -> bool:
    """Return whether a list of modified texts does not name the photos."""
    try:
        rows = read_modified_captions(file).rows
    except UserError:  # another kind of list, which its reader will report
        return False
    return bool(rows) and all(row.image is None and row.premise == row.group for row in rows)


def find_photos(method: str, file: Path, index: Index) -> TextPairs:
    """Return the texts of a list, each with the photo of the same hypothesis in another source.

    Args:
        method: the name of the method that changed the texts; "" takes the file's name.
    """
    if PREMISE not in index.extra_names:
        raise UserError(
            f"benchmark.photos: {index.source} has no premises to find texts by: name SNLI-VE "
            "itself, as in benchmark.photos=SNLI_VE:test"
        )
    if not file.is_file():
        raise UserError(
            f"benchmark.data={file}: there is no such file; with benchmark.photos it is a list of "
            "modified hypotheses"
        )
    row_of: dict[tuple[str, str], int] = {}
    for row, premise in enumerate(index.extra(PREMISE).to_pylist()):
        row_of.setdefault((str(premise).strip(), index.text(row).strip()), row)
    pairs = read_caption_list(method, file)
    texts = [
        ((caption.premise or "").strip(), caption.original.strip())
        for caption in read_modified_captions(file).rows
    ]
    places = [at for at, words in enumerate(texts) if words in row_of]
    if not places:
        raise UserError(
            f"{file}: none of its {len(texts):,} hypotheses is among those of {index.source}, such "
            f"as {texts[0][1][:80]!r}: is it of another part?"
        )
    if len(places) < len(texts):
        say(
            f"{file}: {len(texts) - len(places):,} of {len(texts):,} hypotheses are not in "
            f"{index.source} and are left out"
        )
    chosen = pairs.choose(places)
    rows = np.array([row_of[texts[at]] for at in places])
    return replace(
        chosen, clusters=tuple(cluster_rows(index, rows)), index=index,
        rows=np.stack([rows, rows], axis=1), hash=fingerprint(chosen.hash, index.hash, rows),
    )  # fmt: skip


def check_entailment_labels(pairs: TextPairs) -> None:
    """Refuse texts whose label is not one of the three."""
    wrong = [at for at, label in enumerate(pairs.labels) if label not in ENTAILMENT]
    if wrong:
        label = pairs.labels[wrong[0]]
        given = f"the label {label[:40]!r}" if label else "no label"
        named = 3
        names = ", ".join(pairs.keys[at] for at in wrong[:named])
        raise UserError(
            f"{pairs.source}: {len(wrong):,} of {len(pairs):,} hypotheses have no label of "
            f"{', '.join(ENTAILMENT)} ({names}{', ...' if len(wrong) > named else ''}), the first "
            f"has {given}: benchmark=entailment asks about labelled hypotheses, such as SNLI-VE's, "
            "or those that a recipe made from them"
        )


Question = Literal["truth", "entailment"]
UNSURE = "unsure"
"""The answer of people who cannot tell; it counts as no answer."""
ANSWERS: Mapping[Question, Mapping[str, float]] = {
    "truth": {"yes": 1.0, "no": 0.0},
    "entailment": {label: float(number) for number, label in enumerate(ENTAILMENT)},
}
"""Meanings of people's answers: those of ``annotate.question=caption_true``, or a label."""


def read_right_answers(file: str, question: Question) -> HumanAnswers:
    """Read people's answers about texts, as ``cfaug annotate read`` writes them: majorities.

    Args:
        file: ``labels.jsonl``, with ``key``, ``member`` (0 before, 1 after), ``annotator`` and
            ``label``.
        question: ``truth``, answered by ``yes``, ``no`` or ``unsure``; or ``entailment``, answered
            by one of its labels or ``unsure``.
    """
    return read_human_answers(file, (*ANSWERS[question], UNSURE))


def check_labels(
    pairs: TextPairs, question: Question, answers: HumanAnswers | None = None
) -> list[str]:
    """Return for each set whether the right answer to its second text is that to its first.

    People's answers take precedence over the oracle's. Without an answer to the original text, the
    data decide: a caption is true of its photo, a hypothesis has its label. Equal texts have equal
    answers.

    Args:
        question: ``truth`` for captions, ``entailment`` for hypotheses.
        answers: people's answers; ``None`` for the oracle's alone.

    Returns:
        ``kept``, ``changed`` or ``unknown`` for each set.
    """
    check(question, Question, "question")
    if answers is not None:
        names = [f"{key}_{member}" for key in pairs.keys for member in (0, 1)]
        answers.check_images(names, pairs.source)
    labels = {} if answers is None else answers.labels
    meanings = ANSWERS[question]

    def right(at: int, member: int) -> float | None:
        """Return the right answer to a text by people or the oracle; ``None`` without either."""
        label = labels.get(f"{pairs.keys[at]}_{member}", UNSURE)
        if label != UNSURE:
            return meanings[label]
        score = pairs.scores[at].get(f"{question}_{member}")
        if score is not None and score not in meanings.values():
            raise UserError(
                f"{pairs.source}: set {pairs.keys[at]!r}: the score {question}_{member} is "
                f"{score}; it should be one of "
                f"{', '.join(f'{value:g}' for value in meanings.values())}"
            )
        return score

    checks = []
    for at, differs in enumerate(pairs.is_changed.tolist()):
        if not differs:
            checks.append(KEPT)
            continue
        before, after = right(at, 0), right(at, 1)
        if before is None:  # by the data
            before = 1.0 if question == "truth" else meanings.get(pairs.labels[at])
        unknown = before is None or after is None
        checks.append(UNKNOWN if unknown else KEPT if before == after else CHANGED)
    return checks
