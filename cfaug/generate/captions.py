"""The first stage: captions to minimal edits, a shard at a time.

``captions/NNNNN.jsonl`` has a line for every caption, edited or not, with the number of candidates
that passed each filter and, if the editor keeps them, the rejected edits with their reasons.
``captions/NNNNN.json`` is its commit, and ``captions/report.md`` summarises all shards.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cfaug.core.atomic_files import write_file, write_json
from cfaug.core.errors import UserError
from cfaug.core.protocols import Editor
from cfaug.core.types import Edited, Example
from cfaug.data.index.disk_format import code_texts, find_repeated, group_code
from cfaug.data.shards.shards import (
    FOLDER,
    committed_captions,
    disk_errors,
    read_caption_commit,
    read_edits,
    read_lines,
    sets_of,
)
from cfaug.editing.filters import caption_report
from cfaug.editing.substitution import Substitution
from cfaug.generate.failures import Attempt, attempt, check_json, check_results, say_some

REPORT = f"{FOLDER}/report.md"


def _refuse_duplicated(keys: Iterable[tuple[str, str]]) -> None:
    """Refuse equal proposal keys among pairs (proposal's key, example's key)."""
    first: dict[str, str] = {}
    for key, example in keys:
        if key in first:
            raise UserError(
                f"recipe.editor: the proposal key {key!r} is duplicated: examples "
                f"{first[key]!r} and {example!r} have it; leave the key of a proposal "
                "empty, or begin it with the example's"
            )
        first[key] = example


def check_all_keys(folder: Path) -> None:
    """Refuse proposals with equal keys in any two shards, whichever part edited them.

    Parts are edited at the same time. A shard that another process is writing is skipped here; that
    process checks later and compares it with the shards of this part.
    """

    def keys() -> Iterator[tuple[str, str]]:
        for number in committed_captions(folder):
            with suppress(UserError):
                lines = read_lines(folder, number)
                yield from (
                    (record["key"], line["key"]) for line in lines for record in sets_of(line)
                )

    repeated = set(find_repeated(lambda: (key for key, _ in keys())))
    try:
        _refuse_duplicated(pair for pair in (keys() if repeated else ()) if pair[0] in repeated)
    except UserError as error:
        raise UserError(
            f"{error}; then remove {folder / FOLDER} and run the same command again"
        ) from error


def write_captions(
    examples: Sequence[Example],
    attempted: Attempt[Edited],
    folder: Path,
    number: int,
    models: Mapping[str, str],
) -> None:
    """Write a shard's edits and commit them.

    Args:
        attempted: the editor's results by place; the commit lists examples without a result.
    """
    edited = attempted.done
    lines = [_line(examples[i], edited[i]) for i in sorted(edited)]
    content = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
    proposals = [proposal for result in edited.values() for proposal in result.proposals]
    _refuse_duplicated((proposal.key, proposal.example.key) for proposal in proposals)
    rejected = Counter(
        result.rejected_by for result in edited.values() if result.rejected_by is not None
    )
    kinds: dict[str, Counter[str]] = {}
    for lost in (lost for result in edited.values() for lost in result.rejected):
        kinds.setdefault(lost.reason, Counter())[lost.edit.kind] += 1
    commit = {
        "kind": "cfaug-captions",
        "captions": len(examples),
        "sets": len(proposals),
        "members": sum(len(proposal.texts) for proposal in proposals),
        "rejected": dict(rejected),
        "models": dict(models),
        "failed": [asdict(failure) for failure in attempted.lost.values()],
        "sha256": hashlib.sha256(content).hexdigest(),
        "bytes": len(content),
    }
    if kinds:
        commit["rejected_edits"] = kinds
    stem = folder / FOLDER / f"{number:05d}"
    with disk_errors(stem.parent, f"captions of shard {number:05d}", len(content)):
        stem.parent.mkdir(exist_ok=True)
        stem.with_suffix(".json").unlink(missing_ok=True)
        write_file(stem.with_suffix(".jsonl"), content)
        write_json(stem.with_suffix(".json"), commit)


def _line(example: Example, edited: Edited) -> dict[str, Any]:
    """Return the line of an example; optional fields are left out if they are empty."""
    line: dict[str, Any] = {"key": example.key, "group": example.group}
    line |= {"text": example.text} if len(example.texts) == 1 else {"texts": example.texts}
    if example.image is not None:
        line["image"] = example.image.digest
    if example.label is not None:
        line["label"] = example.label
    if example.extra:
        line["extra"] = dict(example.extra)
    line["survivors"] = dict(edited.survivors)
    if edited.rejected:
        line["rejected"] = [
            {
                **asdict(lost.edit),
                "text": lost.text,
                "reason": lost.reason,
                "extra": dict(lost.extra),
            }
            for lost in edited.rejected
        ]
    proposals = []
    for proposal in edited.proposals:
        details = [dict(detail) for detail in proposal.details]
        proposals.append(
            {
                "key": proposal.key,
                "group": proposal.group,
                "texts": proposal.texts,
                "edits": [None if edit is None else asdict(edit) for edit in proposal.edits],
                "extra": dict(proposal.extra),
                **({"details": details} if details else {}),
            }
        )
    if len(proposals) > 1:
        return {**line, "sets": proposals}
    return {**line, "set": proposals[0] if proposals else None}


def write_report(folder: Path, shards: int) -> None:
    """Write a readable report of the stage, once the edits of every shard exist."""
    if any(read_caption_commit(folder, number) is None for number in range(shards)):
        return
    report = caption_report([_ShardEdits(folder, number) for number in range(shards)])
    write_file(folder / REPORT, report.encode())


@dataclass(frozen=True)
class _ShardEdits:
    folder: Path
    number: int

    def __iter__(self) -> Iterator[Edited]:
        return (edited for _, edited in read_edits(self.folder, self.number))


def edit_captions(examples: Attempt[Example], editor: Editor) -> Attempt[Edited]:
    """Edit a shard's examples in one call; if it fails, one by one to find the failing examples.

    Returns:
        The editor's results by place. An example that was rejected, here or by an annotator, has no
        proposal, and its reason is among the survivors.
    """
    indices = sorted(examples.done)
    some = [examples.done[i] for i in indices]

    def edit(batch: Sequence[Example]) -> list[Edited]:
        results = check_results(editor.edit(batch), batch, "recipe.editor")
        for example, edited in zip(batch, results, strict=True):
            where = f"recipe.editor, example {example.key!r}"
            if not isinstance(edited, Edited):
                raise UserError(
                    f"{where}: should be a cfaug.core.types.Edited, not {type(edited).__name__}"
                )
            for name, left in edited.survivors.items():
                if isinstance(left, bool) or not isinstance(left, int):
                    raise UserError(
                        f"{where}: survivors[{name!r}] should be a whole number, not {left!r}"
                    )
            for proposal in edited.proposals:
                label = f"the proposal {proposal.key!r}"
                if proposal.example.key != example.key:
                    raise UserError(f"{where}: {label} is of example {proposal.example.key!r}")
                for about in (proposal.extra, *proposal.details):
                    check_json(about, f"{where}: what is known of {label}")
            for lost in edited.rejected:
                check_json(lost.extra, f"{where}: what is known of the rejected edit {lost.text!r}")
        return results

    attempted = attempt(some, edit, lambda example: example.key)
    edited = {indices[row]: result for row, result in attempted.done.items()}
    failed = {
        **examples.failed,
        **{indices[row]: failure for row, failure in attempted.failed.items()},
    }
    rejected, failed = Attempt(edited, failed).split_rejections()
    for i, rejection in rejected.items():
        edited[i] = Edited((), {rejection.reason: 0})
    say_some(
        [
            f"rejected: {rejection.key} ({rejection.reason}): {rejection.error}"
            for rejection in rejected.values()
        ]
    )
    return Attempt(edited, failed)


def sibling_aware(editor: Editor, examples: Sequence[Example]) -> Editor:
    """Return the editor, which sees each caption's siblings if it or one of its filters needs them.

    Args:
        examples: all examples of the plan, whatever the part or shard: siblings may lie in
            different shards.
    """
    filters = editor.filters if isinstance(editor, Substitution) else ()
    parts = filters.values() if isinstance(filters, Mapping) else filters
    wanted = any(getattr(part, "needs_siblings", False) for part in (editor, *parts))
    return SiblingAware(editor, examples) if wanted else editor


@dataclass(frozen=True)
class SiblingAware:
    """An editor that sees the siblings of each caption in ``example.extra["siblings"]``.

    Siblings are the other captions of the same group. They are not written to disk.
    """

    editor: Editor
    examples: Sequence[Example]

    @cached_property
    def _rows(self) -> tuple[np.ndarray, np.ndarray]:
        """The ascending codes of all examples' groups, and the rows of these examples."""
        codes = code_texts(example.group for example in self.examples)
        rows = np.argsort(codes, kind="stable")
        return codes[rows], rows

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return the editor's result for each example, in order."""
        codes, rows = self._rows
        shown = []
        for example in examples:
            code = np.uint64(group_code(example.group))
            begin, end = (int(np.searchsorted(codes, code, side)) for side in ("left", "right"))
            others = (self.examples[row] for row in rows[begin:end].tolist())
            siblings = [
                other.text
                for other in others
                if other.group == example.group and other.key != example.key
            ]
            shown.append(replace(example, extra={**example.extra, "siblings": siblings}))
        hidden = []
        for edited, example in zip(self.editor.edit(shown), examples, strict=True):
            proposals = tuple(replace(proposal, example=example) for proposal in edited.proposals)
            hidden.append(replace(edited, proposals=proposals))
        return hidden

    def describe(self) -> dict[str, str]:
        return self.editor.describe()
