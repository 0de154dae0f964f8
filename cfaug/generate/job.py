"""The task of one process, and the summary that it reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError, name_some
from cfaug.core.protocols import ChecksSource, Editor
from cfaug.core.types import Example, SourceImage
from cfaug.generate.annotation import AnnotationStage
from cfaug.generate.failures import Failure
from cfaug.generate.folder import FolderRecord, name_settings, read_record, settings_hash
from cfaug.generate.pipeline import Pipeline
from cfaug.generate.plan import shard_count
from cfaug.generate.recipe import Recipe
from cfaug.generate.settings import RunSettings, ShardSettings
from cfaug.generate.sibling_captions import sibling_aware
from cfaug.generate.source import digest_of

NAMED = 5
"""Number of duplicated keys that an error names."""


@dataclass(frozen=True)
class JobSummary:
    """The output of a part, including that of earlier runs.

    Attributes:
        shards: the number of the part's complete shards.
        sets: the number of sets in these shards: of images, or after ``stage=captions`` of texts.
        members: the number of members of these sets.
        rejected: the numbers of rejected captions and candidates, by reason.
        failures: the items that failed.
        wall_s: the wall time of this process, in seconds.
        unpublished: the numbers of shards that were not written because of failed items.
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
        folder: the folder of the shards.
        recipe: the method that makes sets; only the parts that ``run.stage`` uses are needed.
        source: a function that returns the examples of all parts; ``stage=images`` calls it only
            for proposals whose examples have images.
        run: the settings of this process: stage, part, seed.
        shards: the size and format of shards.
        about: the names and settings of the run; the settings identify the folder.
        cache: the folder of annotators' cached results, shared by all runs; ``None`` keeps them
            only in memory.

    Raises:
        UserError: if a part of the recipe that the stage uses is missing or invalid, or its scores
            and its selection do not fit together.
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
        """The examples of all parts, read once.

        Raises:
            UserError: if there is no example, or a key is duplicated.
        """
        found = self.source()
        if not found:
            raise UserError("the source has no examples: name one with data.source=FILE or FOLDER")
        keys = Counter(one.key for one in found)
        duplicated = [key for key, count in keys.items() if count > 1]
        if duplicated:
            raise UserError(f"the source has duplicated keys: {name_some(duplicated, NAMED)}")
        return found

    @cached_property
    def editor(self) -> Editor:
        """The recipe's editor, with access to an image's other captions if it asks for them.

        Raises:
            UserError: if the editor's settings name an entry that no example has.
        """
        assert self.recipe.editor is not None
        if isinstance(self.recipe.editor, ChecksSource):
            self.recipe.editor.check_source(self.examples)
        return sibling_aware(self.recipe.editor, self.examples)

    @cached_property
    def annotation(self) -> AnnotationStage:
        """The stage that runs the recipe's annotators."""
        return self.recipe.annotation(self.cache)

    def text_models(self) -> dict[str, str]:
        """Return the names, revisions and hashes of the models that make proposals."""
        return {**self.annotation.describe(), **self.editor.describe()}

    @cached_property
    def pipeline(self) -> Pipeline:
        """The parts that make, score and encode images."""
        return self.recipe.pipeline(self.shards.image_format)

    def find_image(self, key: str) -> SourceImage | None:
        """Return the source image of the example ``key``; ``None`` if there is no such example."""
        return self._images.get(key)

    @cached_property
    def _images(self) -> dict[str, SourceImage]:
        return {one.key: one.image for one in self.examples if one.image is not None}

    def record(self) -> FolderRecord:
        """Return the record that the folder has to match.

        Raises:
            UserError: if ``stage=images`` finds no edits.
        """
        captions, count = self._text_identity()
        return FolderRecord(captions, self._image_identity(captions), count)

    def _image_identity(self, captions: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if self.run.stage == "captions":
            return None
        settings = self.about.image_settings
        if settings is None:
            settings = _default_settings(self.recipe)
        return {
            **settings,
            "seed": self.run.seed,
            "edits": settings_hash(captions),
            "shards.image_format": self.shards.image_format,
            "shards.batch": self.shards.batch,
        }

    def _text_identity(self) -> tuple[Mapping[str, Any], int]:
        if self.run.stage == "images":
            there = read_record(self.folder)
            if there is None:
                raise UserError(
                    f"{self.folder} holds no edited captions: run stage=captions first, or "
                    "stage=all"
                )
            return there.captions, there.shards
        per_shard = self.shards.sets_per_shard
        settings = {
            **self.about.text_settings,
            **self.annotation.identities(),
            **self.editor.describe(),
            "data.source (number)": len(self.examples),
            "data.source (content)": digest_of(self.examples),
            "shards.sets_per_shard": per_shard,
        }
        return settings, shard_count(len(self.examples), per_shard)


NEW_SETTINGS: Mapping[str, Any] = {
    "recipe.selection.prefer": "first", "recipe.selection.controls": [],
    "recipe.set_per": "proposal", "recipe.draws.p_law": "uniform",
    "recipe.selection.rank_aggregate": None, "recipe.count_by": None,
}  # fmt: skip
"""Values of settings that a folder's record leaves out, because older folders lack the settings."""


def _default_settings(recipe: Recipe) -> dict[str, Any]:
    """Return the image settings of a recipe that no configuration describes."""
    draws = recipe.draws
    settings = {
        **name_settings("recipe.draws", {} if draws is None else asdict(draws)),
        **name_settings("recipe.selection", asdict(recipe.selection)),
        "recipe.set_per": recipe.set_per,
        "recipe.count_by": recipe.count_by,
    }
    return {k: v for k, v in settings.items() if k not in NEW_SETTINGS or v != NEW_SETTINGS[k]}
