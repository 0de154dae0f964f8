"""``card.json``: a summary of the output of all parts so far; it can be rewritten at any time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cfaug.core.files import write_json
from cfaug.data.shards.edits import FOLDER, read_caption_commit
from cfaug.data.shards.shards import CARD, list_committed, summarise
from cfaug.generate.folder import hold_file, read_record
from cfaug.generate.yields import add_yields

OF_ONE_SHARD = ("kind", "format", "sets", "members", "bytes", "sha256", "beside", "edits")
ADDED = ("caption_sets", "candidates", "accepted", "without")


def write_card(folder: Path) -> dict[str, Any]:
    """Summarise the commits of both stages; the same commits give the same bytes.

    Processes take turns, so that the last one to commit is also the last one to write the card.

    Returns:
        The card: the fields of ``cfaug.data.shards.shards``; the planned number of shards
        (``of``); the numbers of candidates, of accepted ones, of rejected ones by reason, and of
        sets ``without`` an accepted one; failed items; ``yields``, if the recipe counts them, for
        example by grid; recipe and models; and under ``edits`` the same for the captions, with the
        rejected edits by reason and kind if the editor keeps them.
    """
    with hold_file(folder, CARD):
        card = _card(folder)
        write_json(folder / CARD, card)
    return card


def _card(folder: Path) -> dict[str, Any]:
    shards = list_committed(folder)
    commits = [commit for _, commit in shards]
    record = read_record(folder)
    card = {**summarise(shards), "of": None if record is None else record.shards}
    card |= {name: sum(commit[name] for commit in commits) for name in ADDED}
    card |= {"rejected": add_counts(commits, "rejected"), "failed": join_lists(commits, "failed")}
    yields = [commit["yields"] for commit in commits if "yields" in commit]
    if yields:
        card["yields"] = add_yields(yields)
    known = {*OF_ONE_SHARD, *ADDED, "rejected", "failed", "yields"}
    for name in sorted({name for commit in commits for name in commit} - known):
        card[name] = _merge_equal([commit.get(name) for commit in commits])
    numbers = sorted(int(file.stem) for file in (folder / FOLDER).glob("[0-9]*.json"))
    edits = [commit for n in numbers if (commit := read_caption_commit(folder, n)) is not None]
    if edits:
        card["edits"] = {
            **{name: sum(edit[name] for edit in edits) for name in ("captions", "sets", "members")},
            "shards": len(edits),
            "rejected": add_counts(edits, "rejected"),
            "failed": join_lists(edits, "failed"),
            "models": _merge_equal([edit["models"] for edit in edits]),
        }
        kinds = _add_kinds([edit.get("rejected_edits", {}) for edit in edits])
        if kinds:
            card["edits"]["rejected_edits"] = kinds
    return card


def add_counts(commits: Sequence[Mapping[str, Any]], name: str) -> dict[str, int]:
    """Return the sums over several commits of the counts by reason under ``name``."""
    total: Counter[str] = Counter()
    for commit in commits:
        total.update(commit[name])
    return dict(total)


def _add_kinds(counts: Sequence[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    """Return the sums over several commits of the counts by reason and kind."""
    reasons = dict.fromkeys(reason for one in counts for reason in one)
    return {
        reason: add_counts([{"of": one.get(reason, {})} for one in counts], "of")
        for reason in reasons
    }


def join_lists(commits: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """Return the items that several commits list under ``name``, in their order."""
    return [item for commit in commits for item in commit[name]]


def _merge_equal(values: Sequence[Any]) -> Any:
    """Return the value that all shards share, or a list of their different values."""
    distinct = {json.dumps(value, sort_keys=True): value for value in values}
    return next(iter(distinct.values())) if len(distinct) == 1 else list(distinct.values())
