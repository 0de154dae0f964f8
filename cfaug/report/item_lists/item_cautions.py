"""Cautions about files of items: what their columns may mean besides right and wrong answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from cfaug.core.errors import UserError, name_some
from cfaug.report.item_lists.item_tables import ItemColumns, ItemFileTable, listed

RESULT = frozenset({
    "acc", "accuracy", "correct", "correctness", "em", "exact", "hit", "hits", "match", "matched",
    "pass", "passed", "right", "score", "scores", "solved", "success", "f1", "grade", "recall",
})  # fmt: skip
"""Words in names of columns that say whether an answer is right."""
LOWER = frozenset({
    "wrong", "incorrect", "error", "errors", "err", "wer", "cer", "fail", "failed", "failure",
    "miss", "missed", "hallucination", "hallucinations", "hallucinated", "hallucinates", "loss",
    "nll", "perplexity", "ppl", "brier", "distance", "regret", "toxicity", "toxic", "refused",
    "refusal", "bpb", "mae", "mse", "rmse", "ece",
})  # fmt: skip
"""Words in names of columns of which the lower value is the better one."""
ANSWER = frozenset({
    "answer", "answers", "pred", "preds", "prediction", "predictions", "predicted", "response",
    "output", "chosen", "selected", "guess", "guessed", "submission", "label", "labels", "idx",
    "index", "rank", "choice", "option", "yes", "no", "num", "count", "tokens", "length",
    "truncated",
})  # fmt: skip
"""Words in names of columns that say what was answered, or how, and not whether it is right."""
MODEL = ("model", "model_name", "model_id")
"""Columns that name the model whose answer a row is."""
TOGETHER = frozenset({
    "g_index", "image", "image_id", "image_path", "image_file", "image_name", "img", "img_id",
    "img_path", "filename", "file_name", "photo", "pair_index", "group", "video_id", "question_id",
})  # fmt: skip
"""Columns whose equal values mean that items belong together: of one photo, pair or question."""
PERCENT = 20.0
"""A value from which numbers are no shares, where another file has shares."""


def words_of(name: str) -> set[str]:
    """Return the words of a column's name, in lower case.

    >>> sorted(words_of("stats.numOutput_tokens"))
    ['num', 'output', 'stats', 'tokens']
    """
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)}


def is_wrongness(name: str) -> bool:
    """Return whether lower values of a column are better, by its name."""
    words = words_of(name)
    return bool(words & (LOWER | {"rank", "ranks"})) and not words & {"no", "non", "not"}


def may_be_answers(name: str) -> bool:
    """Return whether the name of a column says what was answered, and not whether it is right.

    >>> [may_be_answers(name) for name in ("model_answer", "answer_correct", "rank", "hit")]
    [True, False, True, False]
    """
    words = words_of(name)
    return bool(words & ANSWER) and not words & (RESULT | LOWER)


def check_one_model(tables: Sequence[ItemFileTable], columns: ItemColumns) -> None:
    """Refuse a list with the answers of several models, of which rows would count as items."""
    assigned = {*listed(columns.item), *listed(columns.by), *listed(columns.ignore)}
    for table in tables:
        for name in MODEL if table.model is None else ():
            models = sorted({*table.texts(name)} - {""}) if name in table.columns else []
            if len(models) > 1 and name not in assigned:
                raise UserError(
                    f"{table.file} has the answers of several models in {name!r}, "
                    f"{name_some(models, 3)}: a file is one model; write a list for each (to "
                    f"compare each with itself, columns.item=[ITEM,{name}])"
                )


def caution_about(
    tables: Sequence[ItemFileTable],
    values: Mapping[str, np.ndarray],
    columns: ItemColumns,
    *,
    clustered: bool,
) -> Iterator[str]:
    """Yield a sentence for every metric that may not be what its numbers look like.

    Args:
        values: {metric: its values, (files, items)}.
        clustered: whether a column of clusters is read.

    Raises:
        UserError: if a metric is in different units in two files.
    """
    lists = all(table.model is None for table in tables)
    unsure = [name for name in values if not words_of(name) & (RESULT | LOWER)]
    if unsure and lists and columns.metrics is None:
        yield (
            f"Taken for right (1) and wrong (0) answers, as nothing else is in them: "
            f"{', '.join(unsure)}; columns.metrics=[...] names others."
        )
    if lower := [name for name in values if is_wrongness(name)]:
        yield (
            f"Lower is better, by the name of {', '.join(lower)}: a negative difference speaks for "
            'the first file, and "only first right" counts items of which only its value is higher.'
        )
    for name, numbers in values.items():
        ranges = [(np.nanmin(n), np.nanmax(n)) for n in numbers if not np.isnan(n).all()]
        shares = [low >= 0 and high <= 1 for low, high in ranges]
        others = [low < 0 or high >= PERCENT for low, high in ranges]
        if any(shares) and any(others):
            said = ", ".join(
                f"{low:g} to {high:g} in {table.file.name}"
                for table, (low, high) in zip(tables, ranges, strict=False)
            )
            raise UserError(
                f"{name} is {said}: shares and percent, or probabilities and logits, have no "
                "difference; write it in one unit in all files"
            )
    for name in tables[0].columns if not clustered else ():
        texts, different = tables[0].texts(name), {*tables[0].texts(name)}
        if name.lower().rpartition(".")[2] in TOGETHER and 1 < len(different) < len(texts):
            yield (
                f"Items count as independent, though {name} has {len(different):,} values for "
                f"{len(texts):,} items: columns.cluster={name} tests them together."
            )
            break
    pairs = [values[name] for name in values]
    if pairs and all(np.array_equal(n[:1].repeat(len(n), 0), n, equal_nan=True) for n in pairs):
        yield "The files say the same of every item: are they answers of one model?"
