"""Both stages for the shards of one part: claim it, resume, commit each shard, summarise."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cfaug.core.messages import say
from cfaug.core.protocols import SharesExamples
from cfaug.core.signals import interruptible
from cfaug.data.shards import edits
from cfaug.data.shards.shards import read_commit
from cfaug.generate import captions, images
from cfaug.generate.batch_checkpoints import Journal
from cfaug.generate.candidate_scoring import ShardScorer
from cfaug.generate.card import add_counts, join_lists, write_card
from cfaug.generate.editing import edit_captions
from cfaug.generate.failures import Attempt, Failure, say_some
from cfaug.generate.folder import claim, hold_file, hold_shard, journal_folder
from cfaug.generate.job import Job, JobSummary
from cfaug.generate.plan import (
    ShardPlan,
    check_groups,
    count_candidates,
    shard_slice,
    shards_of,
)
from cfaug.generate.progress import ProgressReporter

CommitOf = Callable[[Path, int], dict[str, Any] | None]

Unpublished = dict[int, tuple[Failure, ...]]
"""The failures of each shard that was not written because of them."""


def generate(job: Job) -> JobSummary:
    """Complete a part, stage by stage, and return a summary of all its output.

    If this process is killed, at most one batch or one shard of edits is lost: the same job resumes
    there and writes the same bytes as an uninterrupted one. Failed items are named on stderr.

    Raises:
        UserError: if the folder was made with other settings, another process is at work on the
            part, or the disk is full.
        KeyboardInterrupt: on SIGINT or SIGTERM; finished work is on the disk.
    """
    began = time.monotonic()
    with (
        claim(job.folder, job.record(), job.run) as record,
        interruptible(),
    ):
        numbers = shards_of(job.run.part, job.run.parts, record.shards)
        failed = Unpublished()
        if job.run.stage != "images":
            left = _find_missing(job, numbers, edits.read_caption_commit)
            failed |= _edit(job, left)
            if left or not (job.folder / captions.REPORT).exists():
                with hold_file(job.folder, captions.REPORT):
                    captions.write_report(job.folder, record.shards)
            if left and job.run.stage == "captions":  # otherwise ``_draw`` checks them
                captions.check_all_keys(job.folder)
        if job.run.stage != "captions":
            drawable = [number for number in numbers if number not in failed]
            left = _find_missing(job, drawable, read_drawn_commit)
            for number in set(drawable).difference(left):  # left by a killed process
                Journal(journal_folder(job.folder, number)).clear()
            failed |= _draw(job, left)
        card = write_card(job.folder)
        summary = _summary(job, numbers, failed, time.monotonic() - began)
        return replace(summary, yields=card.get("yields", {}))


def _find_missing(job: Job, numbers: Sequence[int], commit_of: CommitOf) -> list[int]:
    """Return the numbers of shards that are missing, or lack items that this job should retry."""
    retries = not job.run.publish_incomplete
    commits = {number: commit_of(job.folder, number) for number in numbers}
    left = [n for n, commit in commits.items() if commit is None or (retries and commit["failed"])]
    if numbers and not left:
        what = "edited captions" if commit_of is edits.read_caption_commit else "shards"
        say(f"nothing to do: all {len(numbers)} {what} of part {job.run.part} are in {job.folder}")
    return left


def read_drawn_commit(folder: Path, number: int) -> dict[str, Any] | None:
    """Return the commit of a shard; ``None`` if it is missing or belongs to other edits."""
    commit = read_commit(folder, number)
    if commit is None or commit["edits"] != edits.require_commit(folder, number)["sha256"]:
        return None
    return commit


def _edit(job: Job, numbers: Sequence[int]) -> Unpublished:
    """Edit the captions of some shards; return the failures of those that were not written."""
    of = {n: shard_slice(job.examples, n, job.shards.sets_per_shard) for n in numbers}
    unpublished = Unpublished()
    with ProgressReporter("editing", "captions", "edited", sum(map(len, of.values()))) as watch:
        for number, examples in of.items():
            with hold_shard(job.folder, number):
                annotated = job.annotation.annotate(examples)
                found = edit_captions(annotated, job.editor)
                if not _hold_back(job, number, found, unpublished):
                    known = [annotated.done.get(n, one) for n, one in enumerate(examples)]
                    captions.write_captions(known, found, job.folder, number, job.text_models())
            good = sum(bool(one.proposals) for one in found.done.values())
            watch.count(len(examples), good)
    return unpublished


def _draw(job: Job, numbers: Sequence[int]) -> Unpublished:
    """Make the images of some shards; return the failures of those that were not written."""
    unpublished = Unpublished()
    if not numbers:
        return unpublished
    sets = {number: edits.read_proposals(job.folder, number, job.find_image) for number in numbers}
    captions.check_all_keys(job.folder)
    if job.recipe.selection.per == "group":
        check_groups(edits.read_groups(job.folder))
    draws = job.recipe.draws
    is_control = job.recipe.selection.is_control
    total = sum(
        1 if is_control(one.edits) else count_candidates(draws)
        for proposals in sets.values()
        for one in proposals
    )
    with ProgressReporter("drawing", "candidates", "accepted", total) as watch:
        for number in numbers:
            with hold_shard(job.folder, number):
                shard = ShardScorer(job.pipeline, sets[number], draws)
                plan = ShardPlan(
                    sets[number], draws, job.run.seed, job.shards.batch, is_control,
                    whole_examples=isinstance(job.pipeline.editor, SharesExamples),
                )  # fmt: skip
                journal = Journal(journal_folder(job.folder, number))
                found = images.draw_shard(
                    shard, plan, journal, watch, overlap=job.run.pipeline_scoring,
                    stop_at_failure=not job.run.publish_incomplete,
                )  # fmt: skip
                if not _hold_back(job, number, found, unpublished):
                    edited = edits.require_commit(job.folder, number)
                    models = {"text": edited["models"], **job.pipeline.describe()}
                    provenance = images.Provenance(job.about.provenance, models, edited["sha256"])
                    images.publish(shard, found, job.folder, number, provenance)
                    journal.clear()
    return unpublished


def _hold_back(job: Job, number: int, found: Attempt[Any], unpublished: Unpublished) -> bool:
    """Name the failures, and return whether they prevent the shard from being written."""
    failed = tuple({one.key: one for one in found.failed.values()}.values())
    say_some([f"failed: {one.key} (shard {number:05d}): {one.error}" for one in failed])
    if failed and not job.run.publish_incomplete:
        unpublished[number] = failed
        return True
    return False


def _summary(
    job: Job, numbers: Sequence[int], unpublished: Unpublished, wall_s: float
) -> JobSummary:
    def commits(of: CommitOf) -> list[dict[str, Any]]:
        found = (of(job.folder, number) for number in numbers if number not in unpublished)
        return [commit for commit in found if commit is not None]

    edited = commits(edits.read_caption_commit)
    made = edited if job.run.stage == "captions" else commits(read_drawn_commit)
    told = edited if job.run.stage == "captions" else [*edited, *made]
    listed = [Failure(**one) for one in join_lists(told, "failed")]
    return JobSummary(
        shards=len(made),
        sets=sum(commit["sets"] for commit in made),
        members=sum(commit["members"] for commit in made),
        rejected=add_counts(told, "rejected"),
        failures=(*listed, *(one for failed in unpublished.values() for one in failed)),
        wall_s=wall_s,
        unpublished=tuple(sorted(unpublished)),
    )
