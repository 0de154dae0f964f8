"""Whether files of items are about the same items, and in which order: decided here alone.

It holds for logs of lm-evaluation-harness, lmms-eval and inspect_ai, for lists, and for parquet.
Two files have the same items if everything that both say of a question agrees: its name, its text,
its picture, its right answer, its task. What one of them does not say counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cfaug.core.errors import UserError
from cfaug.report.item_lists.item_cautions import may_be_answers
from cfaug.report.item_lists.item_tables import (
    ItemColumns,
    ItemFileTable,
    as_text,
    describes_item,
    listed,
    read_number,
)

NAMES = (
    "item", "doc_id", "question_id", "sample_id", "id", "key", "index", "instance_id", "item_id",
    "uid", "qid",
)  # fmt: skip
"""Columns that name an item, the first of those whose values are unique."""
CLUSTER = "cluster"
"""The default column of clusters."""
QUESTION = frozenset({
    *NAMES, CLUSTER, "group", "pair_index", "question", "questions", "caption", "captions",
    "caption_0", "caption_1", "negative_caption", "premise", "hypothesis", "context", "sentence",
    "image", "images", "image_id", "image_0", "image_1", "image_path", "image_file", "image_name",
    "img", "img_id", "filename", "file_name", "file", "filepath", "path", "photo", "video",
    "video_id", "doc", "doc_hash",
})  # fmt: skip
"""Columns of lists, and of dictionaries in logs, that say which question it is."""
MEANING = frozenset({
    "target", "target_hash", "gold", "gt", "gt_answer", "ground_truth", "groundtruth", "reference",
    "references", "label", "labels", "correct_answer", "options", "choices", "task", "subtask",
    "dataset", "split", "subset", "category", "subcategory", "type", "subtype", "kind",
})  # fmt: skip
"""Columns that say more of a question, such as its right answer, and may be equal for several."""
PROMPTS = frozenset({"prompt", "prompts", "input", "prompt_hash", "arguments", "instruction"})
"""Columns of lists with the prompts of a model."""
ANSWERS = frozenset({
    "prediction", "predictions", "pred", "preds", "predicted", "response", "responses", "output",
    "outputs", "completion", "generation", "generated", "resps", "filtered_resps", "model",
    "model_id", "model_name", "parsed_pred", "raw_output", "explanation", "rationale",
    "model_answer", "model_response", "model_output", "model_prediction", "pred_answer",
    "pred_label", "predicted_answer", "predicted_label",
})  # fmt: skip
"""Columns that say what a model answered."""
CUT = ("...\n(content truncated)", "...")
"""How a text ends that a summary of inspect_ai cut off."""
REMOVED = "Key removed from summary (> 1k)"
"""What a summary of inspect_ai says in place of a long value."""
NAMED = 3
"""Items that a message names."""


@dataclass(frozen=True)
class Alignment:
    """Files of the same items.

    Attributes:
        tables: the files, whose rows are the same items, in the order of the first file.
        notes: sentences on how they were matched and on what differs, for the table.
        names: the columns that name an item; empty where rows were matched by their position.
    """

    tables: Sequence[ItemFileTable]
    notes: Sequence[str]
    names: Sequence[str] = ()


def align(tables: Sequence[ItemFileTable], columns: ItemColumns) -> Alignment:
    """Return files with their rows in one order, or refuse them as files of different items.

    Raises:
        UserError: if a log is unfinished, an item is doubled, missing or has no name, or if files
            say different things of an item; the file, the line and the column are named.
    """
    notes = [remark for table in tables for remark in table.remarks]
    for table in tables:
        if table.unfinished and not columns.common:
            raise UserError(
                f"{table.unfinished}; or columns.common=true compares the items that all files have"
            )
        if table.unfinished:  # a table may be published: names of files, without their folders
            notes.append(f"{table.unfinished.replace(str(table.file), table.file.name)}.")
    ignored = listed(columns.ignore)
    there = dict.fromkeys(name for table in tables for name in (*table.columns, *table.about))
    for name in ignored:
        if name not in there:
            raise UserError(
                f"columns.ignore: no file has a column {name!r}; they have {', '.join(there)}"
            )
        if name in {*listed(columns.item), *listed(columns.by), columns.cluster}:
            raise UserError(f"columns: {name} is read and ignored; remove one of the two")
    tables = [table.without(ignored) for table in tables]
    # Files that say of all their items that they are of another task.
    for name in dict.fromkeys(name for table in tables for name in table.about):
        first, *others = (table for table in tables if name in table.about)
        for table in others:
            ours, theirs = first.about[name], table.about[name]
            if ours != theirs:
                raise UserError(
                    f"{table.file}: its {name} is {theirs!r}, and {ours!r} in {first.file}: these "
                    f"are not the same items; columns.ignore=[{name}] compares them if "
                    "they are"
                )
    # The columns that hold models' results.
    if columns.metrics is None:
        results = {name for name in tables[0].columns if holds_results(tables, name)}
    else:
        results = {*listed(columns.metrics)}
    names = listed(columns.item) or _choose_names(tables)
    if names:
        tables, left_out = _match_names(tables, names, common=columns.common)
        notes += left_out
    else:
        _check_positions(tables, results)
        notes.append(
            "No column of all files names items, so that rows were matched by their position."
        )
    notes += _check_questions(tables, columns, results, named=bool(names))
    return Alignment(tables, notes, names)


def is_question(table: ItemFileTable, name: str) -> bool:
    """Return whether a column describes the question, and not how a model answered."""
    if describes_item(name) or name in (table.question or ()):
        return True
    prefix, _, last = name.lower().rpartition(".")
    # A scorer of inspect_ai may have any name; the parts of what a metric returns are telling.
    if table.question is not None and not prefix:
        return name in NAMES
    if last == "answer":  # the right one, where another column has the model's
        return any(is_answer(other) for other in table.columns if other != name)
    return last in QUESTION or last in MEANING


def is_answer(name: str) -> bool:
    """Return whether a column has models' answers by its name, which may be 0 and 1 as well."""
    return name.lower().rpartition(".")[2] in ANSWERS


def holds_results(tables: Sequence[ItemFileTable], name: str) -> bool:
    """Return whether a column of all files says which items are answered right."""
    return all(
        table.holds_scores(name)
        and not is_question(table, name)
        # A scorer of inspect_ai may have any name.
        and not (
            (is_answer(name) or may_be_answers(name)) and (table.question is None or "." in name)
        )
        for table in tables
    )


def is_prompt(table: ItemFileTable, name: str) -> bool:
    """Return whether a column has the prompts of a model."""
    known = table.prompts if table.question is not None else PROMPTS
    return (name if table.question is not None else name.lower()) in known


def holds_numbers(tables: Sequence[ItemFileTable], name: str) -> bool:
    """Return whether a column has nothing but numbers, which a model may have answered."""
    return all(read_number(value) is not None for table in tables for value in table.columns[name])


# The order of rows: by names of items, or by their position.


def _choose_names(tables: Sequence[ItemFileTable]) -> list[str]:
    """Return the column that names items in all files; [] if there is none."""
    shared = [name for name in NAMES if all(name in table.columns for table in tables)]

    def is_unique(name: str) -> bool:
        keys = [table.texts(name) for table in tables]
        return all("" not in texts and len({*texts}) == len(texts) for texts in keys)

    if "item" in shared:
        return ["item"]
    # The number of a row may be called index: it does not replace names that are doubled.
    choices = [name for name in shared if name != "index"] or shared
    return [next((name for name in choices if is_unique(name)), choices[0])] if choices else []


def _name_rows(table: ItemFileTable, names: Sequence[str]) -> dict[str, int]:
    """Return the row of each item by its name, the texts of some columns together."""
    rows: dict[str, int] = {}
    advice = (
        "columns.item=[COLUMN,...] names what tells items apart, and "
        f"columns.ignore=[{','.join(names)}] matches rows without it"
    )
    for row, parts in enumerate(zip(*(table.texts(name) for name in names), strict=True)):
        where = table.places[row]
        if not all(parts):
            empty = names[parts.index("")]
            raise UserError(f"{where}: the item has no name, its {empty} is missing; {advice}")
        name = " | ".join(parts)
        if name in rows:
            raise UserError(
                f"{where}: the item {name!r} is duplicated, it is at {table.places[rows[name]]} "
                f"already ({' and '.join(names)}); {advice}"
            )
        rows[name] = row
    return rows


def _match_names(
    tables: Sequence[ItemFileTable], names: Sequence[str], *, common: bool
) -> tuple[list[ItemFileTable], list[str]]:
    """Return the tables with the rows of the same items, and how many of each file are left out."""
    rows_of = [_name_rows(table, names) for table in tables]
    first = rows_of[0]
    if not common:
        for table, rows in zip(tables, rows_of, strict=True):
            for lacking, theirs, missing in (
                (table, tables[0], [name for name in first if name not in rows]),
                (tables[0], table, [name for name in rows if name not in first]),
            ):
                if missing:
                    place = theirs.places[(first if theirs is tables[0] else rows)[missing[0]]]
                    more = f" and {len(missing) - NAMED:,} more" if len(missing) > NAMED else ""
                    raise UserError(
                        f"{lacking.file} lacks the items {', '.join(map(repr, missing[:NAMED]))}"
                        f"{more}: {missing[0]!r} is at {place}; columns.common=true "
                        "compares the items that all files have"
                    )
    shared = [name for name in first if all(name in rows for rows in rows_of)]
    if not shared:
        raise UserError(
            f"no item is in all files: {' and '.join(names)} is {next(iter(first))!r} at "
            f"{tables[0].places[0]}, and {next(iter(rows_of[1]))!r} at {tables[1].places[0]}; "
            "columns.item=[COLUMN,...] names what identifies an item"
        )
    notes = [
        f"{table.file.name}: {len(table) - len(shared):,} of {len(table):,} items are left out, as "
        "another file lacks them."
        for table in tables
        if len(shared) < len(table)
    ]
    matched = [
        table.take([rows[name] for name in shared])
        for table, rows in zip(tables, rows_of, strict=True)
    ]
    return matched, notes


def _check_positions(tables: Sequence[ItemFileTable], results: set[str]) -> None:
    """Refuse files whose rows cannot be matched by their position."""
    first = tables[0]
    naming = {name: table for table in tables for name in NAMES if name in table.columns}
    for name, table in naming.items():
        lacking = next(other for other in tables if name not in other.columns)
        if not any(_tells_apart(tables, column) for column in {*first.columns} - results):
            raise UserError(
                f"{lacking.file} has no column {name!r}, which names the items of {table.file}, "
                "and no other column of all files tells items apart: give both the same names, or "
                f"columns.ignore=[{','.join(naming)}] matches rows by their position"
            )
    for table in tables[1:]:
        if len(table) != len(first):
            raise UserError(
                f"{first.file} has {len(first):,} items and {table.file} {len(table):,}: nothing "
                "names them, so they cannot be matched; columns.item=[COLUMN,...] names "
                "what identifies an item"
            )


def _tells_apart(tables: Sequence[ItemFileTable], name: str) -> bool:
    """Return whether a column of all files has another value in every row."""
    return all(
        name in table.columns and len({*table.texts(name)}) == len(table) for table in tables
    )


# What the files say of each item.


def _check_questions(
    tables: Sequence[ItemFileTable], columns: ItemColumns, results: set[str], *, named: bool
) -> list[str]:
    """Refuse files that say different things of an item, and return notes on what may differ."""
    clusters = {columns.cluster or CLUSTER, *listed(columns.by)}
    every = dict.fromkeys(name for table in tables for name in table.columns)
    prompts, answers = [], []
    for name in every:
        saying = [table for table in tables if name in table.columns]
        if len(saying) < 2 or (name in results and name not in clusters):
            continue
        in_question = name in clusters or any(is_question(table, name) for table in saying)
        prompt = any(is_prompt(table, name) for table in saying)
        if not in_question and not prompt and any(table.question is not None for table in saying):
            continue  # a result in a log
        rows = {row for table in saying[1:] for row in _find_differences(saying[0], table, name)}
        if not rows:
            continue
        if in_question:
            _refuse(saying, name, clusters, named=named)
        if prompt:
            prompts.append((name, saying, len(rows)))
        elif named or is_answer(name) or holds_numbers(saying, name):
            answers.append(name)
        else:
            _refuse(saying, name, clusters, named=named)
    for name, saying, _ in prompts:
        if not all(_names_questions(table, name) for table in saying):
            _refuse(saying, name, clusters, named=named)
    notes = [
        f"{name} differs in {count:,} of {len(tables[0]):,} items, and all else that is said of "
        "them agrees: the same questions in other words or with other examples, so that a "
        "difference is one of models and prompts together."
        for name, _, count in prompts
    ]
    if answers:
        notes.append(
            f"Taken for the models' answers, since the files differ in them: {', '.join(answers)}."
        )
    return notes


def _find_differences(first: ItemFileTable, other: ItemFileTable, name: str) -> Iterator[int]:
    """Yield the rows of which two files say different things in a column."""
    pairs = zip(first.columns[name], other.columns[name], strict=True)
    for row, (ours, theirs) in enumerate(pairs):
        if ours != theirs and not _agree(as_text(ours), as_text(theirs)):
            yield row


def _agree(ours: str, theirs: str) -> bool:
    """Return whether two texts are equal, as far as both say something.

    >>> _agree("a long question", "a lo..."), _agree("a cat", "a dog"), _agree("a cat", "")
    (True, False, True)
    """
    if ours == theirs or not ours or not theirs or REMOVED in (ours, theirs):
        return True
    ours, theirs = " ".join(ours.split()), " ".join(theirs.split())
    if ours == theirs:
        return True
    for text, whole in ((ours, theirs), (theirs, ours)):
        for end in (" ".join(end.split()) for end in CUT):
            if text.endswith(end) and whole.startswith(text.removesuffix(end)):
                return True
    return False


def _names_questions(table: ItemFileTable, prompt: str) -> bool:
    """Return whether the other columns tell all items apart that differ in their prompts."""
    naming = [
        table.texts(name)
        for name in table.columns
        if (describes_item(name) or name.lower().rpartition(".")[2] in QUESTION)
        and name not in NAMES
        and name != CLUSTER
    ]
    prompts = table.texts(prompt)
    questions = {*zip(*naming, strict=True)} if naming else set()
    return bool(questions) and len(questions) >= len({*prompts})


def _refuse(saying: Sequence[ItemFileTable], name: str, clusters: set[str], *, named: bool) -> None:
    """Refuse files by the first item of which they say different things in a column."""
    first = saying[0]
    for table in saying[1:]:
        rows = [*_find_differences(first, table, name)]
        if not rows:
            continue
        row = rows[0]
        ours, theirs = (as_text(side.columns[name][row])[:60] for side in (first, table))
        if name in clusters:
            why = "the files put this item into different clusters or parts"
            advice = "correct one file, or name a column in which they agree"
        elif named:
            why = "these are not the same questions"
            advice = f"columns.ignore=[{name}] compares them if they are"
        else:
            why = "other items, or another order"
            advice = (
                "columns.item=[COLUMN,...] names what identifies an item, and "
                f"columns.ignore=[{name}] allows {name} to differ"
            )
        place = first.places[row]
        if len(rows) > 1:
            place += f" ({len(rows):,} of {len(first):,} items differ in it)"
        raise UserError(
            f"{table.places[row]}: {name} is {theirs!r}, and {ours!r} at {place}: {why}; {advice}"
        )
