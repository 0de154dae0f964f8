"""Sources of labelled hypotheses: sets of two texts, SNLI-VE itself, lists without photos."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from cfaug.annotation.record import HumanAnswers, read_human_answers
from cfaug.core.errors import UserError, say
from cfaug.core.types import ENTAILMENT
from cfaug.core.validation import check
from cfaug.data.sources.modified_captions import read_modified_captions
from cfaug.data.sources.snli_ve import PREMISE
from cfaug.evaluation.benchmark import cluster_rows, fingerprint, name_rows
from cfaug.evaluation.cached_model import image_keys
from cfaug.xmai.text_pair_items import CHANGED, KEPT, UNKNOWN
from cfaug.xmai.text_pairs import EDIT, TextPairs, read_caption_list

if TYPE_CHECKING:
    from cfaug.data.index import Index


NAMED = 3
"""Texts that a message names."""


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
        method: the source's name in tables.
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
    premises = index.extra(PREMISE).to_pylist()
    row_of: dict[tuple[str, str], int] = {}
    for row, premise in enumerate(premises):
        row_of.setdefault((str(premise).strip(), index.text(row).strip()), row)
    pairs = read_caption_list(method, file)
    asked = [
        ((one.premise or "").strip(), one.original.strip())
        for one in read_modified_captions(file).rows
    ]
    places = [at for at, words in enumerate(asked) if words in row_of]
    if not places:
        raise UserError(
            f"{file}: none of its {len(asked):,} hypotheses is among those of {index.source}, such "
            f"as {asked[0][1][:80]!r}: is it of another part?"
        )
    if len(places) < len(asked):
        say(
            f"{file}: {len(asked) - len(places):,} of {len(asked):,} hypotheses are not in "
            f"{index.source} and are left out"
        )
    found = pairs.choose(places)
    rows = np.array([row_of[asked[at]] for at in places])
    return TextPairs(
        method=found.method, source=found.source, keys=found.keys, originals=found.originals,
        changed=found.changed, clusters=tuple(cluster_rows(index, rows)), kinds=found.kinds,
        labels=found.labels, index=index, rows=np.stack([rows, rows], axis=1),
        hash=fingerprint(found.hash, index.hash, rows),
    )  # fmt: skip


def check_entailment_labels(pairs: TextPairs) -> None:
    """Refuse texts whose label is not one of the three."""
    wrong = [at for at, label in enumerate(pairs.labels) if label not in ENTAILMENT]
    if wrong:
        label = pairs.labels[wrong[0]]
        what = f"the label {label[:40]!r}" if label else "no label"
        names = ", ".join(pairs.keys[at] for at in wrong[:NAMED])
        raise UserError(
            f"{pairs.source}: {len(wrong):,} of {len(pairs):,} hypotheses have no label of "
            f"{', '.join(ENTAILMENT)} ({names}{', ...' if len(wrong) > NAMED else ''}), the first "
            f"has {what}: benchmark=entailment asks about labelled hypotheses, such as SNLI-VE's, "
            "or those that a recipe made from them"
        )


# Is the right answer still the same after an edit? An oracle or people decide.
#
# A method that changes a text may change the right answer: a wrong word makes a true caption false,
# or a hypothesis no longer follows. If the model's answer changes as well, that is the text's fault
# and not the model's, so such items are counted separately.
#
# The oracle's answers are scores of the sets: ``truth_0`` and ``truth_1``, 1 or 0 (is the text true
# of its image?), or ``entailment_0`` and ``entailment_1``, numbers of ``ENTAILMENT``.

Question = Literal["truth", "entailment"]
UNSURE = "unsure"
"""The answer of people who cannot tell; it counts as no answer."""
ANSWERS: Mapping[Question, Mapping[str, float]] = {
    "truth": {"yes": 1.0, "no": 0.0},
    "entailment": {label: float(number) for number, label in enumerate(ENTAILMENT)},
}
"""Meanings of people's answers: those of ``annotate.question=caption_true``, or a label."""


def read_right_answers(file: str, question: Question) -> HumanAnswers:
    """Read people's answers about texts, as ``annotate=read`` writes them: the majority for each.

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
    said = {} if answers is None else answers.labels
    if answers is not None:
        names = [f"{key}_{member}" for key in pairs.keys for member in (0, 1)]
        answers.check_images(names, pairs.source)
    found = []
    for at, differs in enumerate(pairs.is_changed.tolist()):
        if not differs:
            found.append(KEPT)
            continue
        before, after = (_right(pairs, at, said, question, member) for member in (0, 1))
        before = _usual(pairs.labels[at], question) if before is None else before
        unknown = before is None or after is None
        found.append(UNKNOWN if unknown else KEPT if before == after else CHANGED)
    return found


def _right(
    pairs: TextPairs, at: int, said: Mapping[str, str], question: Question, member: int
) -> float | None:
    """Return the right answer to a text by people or the oracle; ``None`` without either."""
    label = said.get(f"{pairs.keys[at]}_{member}", UNSURE)
    if label != UNSURE:
        return ANSWERS[question][label]
    score = pairs.scores[at].get(f"{question}_{member}")
    if score is not None and score not in ANSWERS[question].values():
        raise UserError(
            f"{pairs.source}: set {pairs.keys[at]!r}: the score {question}_{member} is {score}; it "
            f"should be one of {', '.join(f'{one:g}' for one in ANSWERS[question].values())}"
        )
    return score


def _usual(label: str, question: Question) -> float | None:
    """Return the right answer to an original text according to the data."""
    return 1.0 if question == "truth" else ANSWERS[question].get(label)
