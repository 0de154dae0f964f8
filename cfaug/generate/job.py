"""The task of one process, and the summary that it reports."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from cfaug.core.errors import UserError, name_some, say
from cfaug.core.processes import interruptible
from cfaug.core.protocols import ChecksSource, Editor, SharesExamples
from cfaug.core.stores import shown
from cfaug.core.types import Example, Proposal, SourceImage
from cfaug.data.index.disk_format import find_repeated
from cfaug.data.shards import shards as edits
from cfaug.data.shards.shards import CARD, CHOSEN, read_commit, write_chosen
from cfaug.editing.filters import is_control
from cfaug.generate import captions, images
from cfaug.generate.annotation import AnnotationStage
from cfaug.generate.candidate_scoring import Journal, ShardScorer
from cfaug.generate.captions import edit_captions, sibling_aware
from cfaug.generate.failures import Attempt, Failure, ProgressReporter, say_some
from cfaug.generate.folder import (
    FolderRecord,
    claim,
    fetch_captions,
    hold_file,
    hold_shard,
    journal_folder,
    name_settings,
    publish_files,
    publish_record,
    publish_shard,
    read_record,
    settings_hash,
    write_card,
)
from cfaug.generate.recipe import (
    Pipeline,
    Recipe,
    RunSettings,
    ShardPlan,
    ShardSettings,
    check_groups,
    count_candidates,
    shard_count,
    shard_slice,
    shards_of,
)
from cfaug.generate.source import digest_of

ShardStage = Literal["captions", "images"]
NAMED = 5
"""Number of duplicated keys that an error names."""


@dataclass(frozen=True)
class JobSummary:
    """The output of a part, including that of earlier runs.

    Attributes:
        sets: the number of sets in the part's complete shards: of images, or after
            ``stage=captions`` of texts.
        wall_s: the wall time of this process, in seconds.
        yields: the counts of all parts' candidates, for example by grid, as on the card; empty if
            the recipe does not count them.
    """

    shards: int
    sets: int
    members: int
    rejected: Mapping[str, int]
    failures: tuple[Failure, ...]
    wall_s: float
    unpublished: tuple[int, ...] = ()
    yields: Mapping[str, Any] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        """Return the last line of stdout."""
        return {
            "shards": self.shards,
            "sets": self.sets,
            "members": self.members,
            "rejected": dict(self.rejected),
            "failed": len(self.failures),
            "wall_s": round(self.wall_s, 2),
        }


@dataclass(frozen=True)
class JobIdentity:
    """The names of a run, and every setting that decides its result.

    Attributes:
        provenance: the names of recipe, zoo and other parts of the run, written into every set.
        text_settings: the settings that decide the proposals of the examples, by dotted key.
        image_settings: the settings that decide the images of the proposals, by dotted key;
            ``None`` takes the recipe's draws and selection.
    """

    provenance: Mapping[str, Any] = field(default_factory=dict)
    text_settings: Mapping[str, Any] = field(default_factory=dict)
    image_settings: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Job:
    """The task of one process, with everything it needs.

    Attributes:
        recipe: the method that makes sets; only the parts that ``run.stage`` uses are needed.
        source: a function that returns the examples of all parts; ``stage=images`` calls it only
            for proposals whose examples have images.
        cache: the folder of annotators' cached results, shared by all runs; ``None`` keeps them
            only in memory.
    """

    folder: Path
    recipe: Recipe
    source: Callable[[], Sequence[Example]]
    run: RunSettings = field(default_factory=RunSettings)
    shards: ShardSettings = field(default_factory=ShardSettings)
    about: JobIdentity = field(default_factory=JobIdentity)
    cache: Path | None = None

    def __post_init__(self) -> None:
        self.recipe.check(self.run.stage)
        if self.run.stage != "captions":
            _ = self.pipeline  # checked before the first caption is edited

    @cached_property
    def examples(self) -> Sequence[Example]:
        """The examples of all parts, read once."""
        examples = self.source()
        if not examples:
            raise UserError("the source has no examples: name one with data.source=FILE or FOLDER")
        duplicated = find_repeated(lambda: (example.key for example in examples))
        if duplicated:
            raise UserError(f"the source has duplicated keys: {name_some(duplicated, NAMED)}")
        return examples

    def check_source(self) -> None:
        """Refuse examples, or files beside them, that editor and annotators cannot work on."""
        for part in (self.recipe.editor, *self.recipe.annotators.values()):
            if self.run.stage != "images" and isinstance(part, ChecksSource):
                part.check_source(self.examples)

    @cached_property
    def editor(self) -> Editor:
        """The recipe's editor, with access to an image's other captions if it asks for them."""
        assert self.recipe.editor is not None
        self.check_source()
        return sibling_aware(self.recipe.editor, self.examples)

    @cached_property
    def annotation(self) -> AnnotationStage:
        """The stage that runs the recipe's annotators."""
        recipe = self.recipe
        annotators = [
            annotator for annotator in recipe.annotators.values() if annotator is not None
        ]
        return AnnotationStage(
            annotators, self.cache,
            texts_from=recipe.texts_from, replace_texts=recipe.replace_texts,
        )  # fmt: skip

    @cached_property
    def pipeline(self) -> Pipeline:
        """The parts that make, score and encode images."""
        return self.recipe.pipeline(self.shards.image_format)

    def find_image(self, key: str) -> SourceImage | None:
        """Return the source image of the example ``key``; ``None`` if there is no such example."""
        return self._images.get(key)

    @cached_property
    def _images(self) -> dict[str, SourceImage]:
        return {
            example.key: example.image for example in self.examples if example.image is not None
        }

    def record(self) -> FolderRecord:
        """Return the record that the folder has to match."""
        recipe, per_shard = self.recipe, self.shards.sets_per_shard
        text: Mapping[str, Any]
        if self.run.stage == "images":
            there = read_record(self.folder)
            if there is None:
                raise UserError(
                    f"{self.folder} holds no edited captions: run stage=captions first, or "
                    "stage=all"
                )
            text, count = there.captions, there.shards
        else:
            text = {
                **self.about.text_settings,
                **self.annotation.identities(),
                **self.editor.describe(),
                "data.source (number)": len(self.examples),
                "data.source (content)": digest_of(self.examples),
                "shards.sets_per_shard": per_shard,
            }
            count = shard_count(len(self.examples), per_shard)
        if self.run.stage == "captions":
            return FolderRecord(text, None, count)
        settings = self.about.image_settings
        if settings is None:
            draws = {} if recipe.draws is None else asdict(recipe.draws)
            settings = {
                **name_settings("recipe.draws", draws),
                **name_settings("recipe.selection", asdict(recipe.selection)),
                "recipe.set_per": recipe.set_per,
                "recipe.count_by": recipe.count_by,
            }
        image = {
            **settings,
            "seed": self.run.seed,
            "edits": settings_hash(text),
            "shards.image_format": self.shards.image_format,
            "shards.batch": self.shards.batch,
        }
        return FolderRecord(text, image, count)

    def examples_of(self, number: int) -> Sequence[Example]:
        """Return the examples whose proposals are in a shard."""
        return shard_slice(self.examples, number, self.shards.sets_per_shard)

    def count_candidates(self, number: int) -> int:
        """Return the number of candidates that a shard's edited captions need."""
        is_control, draws = self.recipe.selection.is_control, self.recipe.draws
        proposals = edits.read_proposals(self.folder, number, self.find_image)
        return sum(
            1 if is_control(proposal.edits) else count_candidates(draws) for proposal in proposals
        )

    def missing_shards(self, stage: ShardStage, numbers: Sequence[int]) -> list[int]:
        """Return the shards that are missing, or lack items that this job should retry.

        Args:
            numbers: the shards to look at.
        """
        commit_of, loss_of = (
            (edits.read_caption_commit, edits.find_caption_loss)
            if stage == "captions"
            else (read_drawn_commit, edits.find_loss)
        )
        retries = not self.run.publish_incomplete
        missing, damaged = [], []
        for number in numbers:
            commit = commit_of(self.folder, number)
            loss = None if commit is None else loss_of(self.folder, number, commit)
            if loss is not None:
                damaged.append(f"damaged: {loss}: it is made again")
            if commit is None or loss is not None or (retries and commit["failed"]):
                missing.append(number)
        say_some(damaged)
        if numbers and not missing:
            kind = "edited captions" if stage == "captions" else "shards"
            say(
                f"nothing to do: all {len(numbers)} {kind} of part {self.run.part} are in "
                f"{shown(self.folder)}"
            )
        return missing

    def make_shard(
        self, stage: ShardStage, number: int, watch: ProgressReporter
    ) -> tuple[Failure, ...]:
        """Make and commit a shard of one stage, independently of all others.

        The folder has to be claimed, by this process or by the one that distributes the shards.
        Before images are made, the captions of all shards have to be there, and checked.

        Args:
            watch: counts finished captions or candidates.

        Returns:
            The failures because of which the shard was not written; empty if it was.
        """
        with hold_shard(self.folder, number):
            if stage == "captions":
                failures = self._edit(number, watch)
                subfolder = edits.FOLDER
            else:
                fetch_captions(self.folder, number)
                failures = self._draw(number, watch)
                subfolder = ""
            if not failures:
                publish_shard(self.folder, number, subfolder)
            return failures

    def _edit(self, number: int, watch: ProgressReporter) -> tuple[Failure, ...]:
        examples = self.examples_of(number)
        annotated = self.annotation.annotate(examples)
        attempted = edit_captions(annotated, self.editor)
        failures = self._hold_back(number, attempted)
        if not failures:
            known = [annotated.done.get(n, example) for n, example in enumerate(examples)]
            models = {**self.annotation.describe(), **self.editor.describe()}
            captions.write_captions(known, attempted, self.folder, number, models)
        changed = sum(
            not all(map(is_control, edited.proposals)) for edited in attempted.done.values()
        )
        watch.count(len(examples), changed)
        return failures

    def plan_batches(self, proposals: Sequence[Proposal]) -> ShardPlan:
        """Return the batches in which the candidates of some sets are drawn."""
        return ShardPlan(
            proposals, self.recipe.draws, self.run.seed, self.shards.batch,
            self.recipe.selection.is_control,
            whole_examples=isinstance(self.pipeline.editor, SharesExamples),
        )  # fmt: skip

    def _draw(self, number: int, watch: ProgressReporter) -> tuple[Failure, ...]:
        proposals = edits.read_proposals(self.folder, number, self.find_image)
        shard = ShardScorer(self.pipeline, proposals, self.recipe.draws)
        journal = Journal(journal_folder(self.folder, number))
        attempted = images.draw_shard(
            shard, self.plan_batches(proposals), journal, watch, overlap=self.run.pipeline_scoring,
            stop_at_failure=not self.run.publish_incomplete,
        )  # fmt: skip
        failures = self._hold_back(number, attempted)
        if not failures:
            edited = edits.require_commit(self.folder, number)
            models = {"text": edited["models"], **self.pipeline.describe()}
            provenance = images.Provenance(self.about.provenance, models, edited["sha256"])
            images.publish(shard, attempted, self.folder, number, provenance)
            journal.clear()
        return failures

    def _hold_back(self, number: int, attempted: Attempt[Any]) -> tuple[Failure, ...]:
        """Name the failures, and return those that prevent the shard from being written."""
        failed = tuple({failure.key: failure for failure in attempted.failed.values()}.values())
        say_some(
            [f"failed: {failure.key} (shard {number:05d}): {failure.error}" for failure in failed]
        )
        return () if self.run.publish_incomplete else failed


# The shards of one part, stage by stage: claim it, resume, commit each shard, summarise.

Unpublished = dict[int, tuple[Failure, ...]]
"""The failures of each shard that was not written because of them."""


def make_shards(job: Job, stage: ShardStage, numbers: Sequence[int]) -> Unpublished:
    """Make shards in this process, one after the other."""
    if stage == "captions":
        total = sum(len(job.examples_of(number)) for number in numbers)
        watch = ProgressReporter("editing", "captions", "edited", total)
    else:
        total = sum(job.count_candidates(number) for number in numbers)
        watch = ProgressReporter("drawing", "candidates", "accepted", total)
    with watch:
        failed = {number: job.make_shard(stage, number, watch) for number in numbers}
    return {number: failures for number, failures in failed.items() if failures}


def generate(
    job: Job, make: Callable[[Job, ShardStage, Sequence[int]], Unpublished] = make_shards
) -> JobSummary:
    """Complete a part, stage by stage, and return a summary of all its output.

    If this process is killed, at most one batch or one shard of edits is lost: the same job resumes
    there and writes the same bytes as an uninterrupted one. Failed items are named on stderr.

    Args:
        make: a function that makes the missing shards of a stage; by default this process makes
            them one after the other.

    Raises:
        KeyboardInterrupt: on Ctrl-C or a signal that announces the end; finished work is on
            the disk.
    """
    began = time.monotonic()
    stage = job.run.stage
    with claim(job.folder, job.record(), job.run) as record, interruptible():
        publish_record(job.folder)
        numbers = shards_of(job.run.part, job.run.parts, record.shards)
        failed = Unpublished()
        if stage != "images":
            missing = job.missing_shards("captions", numbers)
            if missing:
                failed |= make(job, "captions", missing)
            if missing or not (job.folder / captions.REPORT).exists():
                with hold_file(job.folder, captions.REPORT):
                    captions.write_report(job.folder, record.shards)
                publish_files(job.folder, [captions.REPORT])
            if missing and stage == "captions":  # otherwise before the images are made
                captions.check_all_keys(job.folder)
        else:
            for number in numbers:
                edited = edits.require_commit(job.folder, number)
                if loss := edits.find_caption_loss(job.folder, number, edited):
                    raise UserError(f"{loss}: run stage=captions again, or stage=all")
        if stage != "captions":
            drawable = [number for number in numbers if number not in failed]
            missing = job.missing_shards("images", drawable)
            for number in set(drawable).difference(missing):  # left by a killed process
                Journal(journal_folder(job.folder, number)).clear()
            if missing:
                captions.check_all_keys(job.folder)
                if job.recipe.selection.per == "group":
                    check_groups(lambda: edits.read_groups(job.folder))
                failed |= make(job, "images", missing)
        card = write_card(job.folder)
        publish_files(job.folder, [CARD])
        if job.recipe.choice is not None and len(card["shards"]) == card["of"] and not failed:
            with hold_file(job.folder, CHOSEN):  # by whichever part is the last
                write_chosen(job.folder, job.recipe.choice.choose(job.folder))
            publish_files(job.folder, [CHOSEN])
        readers = [edits.read_caption_commit, *(() if stage == "captions" else [read_drawn_commit])]
        rejected, listed = Counter[str](), []
        for read in readers:  # commit by commit: there may be 100,000
            made = Counter[str]()
            for number in numbers:
                commit = None if number in failed else read(job.folder, number)
                if commit is not None:
                    made.update(shards=1, sets=commit["sets"], members=commit["members"])
                    rejected.update(commit["rejected"])
                    listed += [Failure(**item) for item in commit["failed"]]
        return JobSummary(
            shards=made["shards"],
            sets=made["sets"],
            members=made["members"],
            rejected=dict(rejected),
            failures=(*listed, *(item for items in failed.values() for item in items)),
            wall_s=time.monotonic() - began,
            unpublished=tuple(sorted(failed)),
            yields=card.get("yields", {}),
        )


DRAWN = ("edits", "failed", "rejected", "caption_sets", "candidates", "accepted", "without")
"""Fields of the commit of a shard that was drawn here, besides those of every shard."""


def read_drawn_commit(folder: Path, number: int) -> dict[str, Any] | None:
    """Return the commit of a shard; ``None`` if it is missing or belongs to other edits."""
    commit = read_commit(folder, number)
    if commit is not None:
        edits.require_fields(folder / f"{number:05d}.json", commit, DRAWN)
    if commit is None or commit["edits"] != edits.require_commit(folder, number)["sha256"]:
        return None
    return commit
