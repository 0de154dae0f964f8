"""What one process is asked to do, and what it reports in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cfaug.errors import UserError, name_some
from cfaug.generate.annotation import AnnotationStage
from cfaug.generate.failures import Failure
from cfaug.generate.folder import Record, name_settings, read_record, settings_hash
from cfaug.generate.pipeline import Pipeline
from cfaug.generate.plan import shard_count
from cfaug.generate.recipe import Recipe
from cfaug.generate.settings import RunSettings, ShardSettings
from cfaug.generate.sibling_captions import sibling_aware
from cfaug.generate.source import digest_of
from cfaug.protocols import ChecksSource, Editor
from cfaug.types import Example, SourceImage

NAMED = 5
"""Duplicated keys that an error names."""


@dataclass(frozen=True)
class Summary:
    """What a part has made, earlier runs of it included.

    Attributes:
        shards: complete ones of the part.
        sets: in them: of images, or after ``stage=captions`` of texts.
        members: of these sets.
        rejected: captions and candidates by the reason they were rejected for.
        failures: items that could not be done.
        wall_s: seconds this process took.
        unpublished: shards that failed items kept from being written.
        yields: what became of all parts' candidates by grid or the like, as the card has it; empty
            where the recipe does not count them.
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
class About:
    """What a run is called, and every setting that decides its result.

    Attributes:
        provenance: recipe, zoo and whatever else names the run; it is written into every set.
        text_settings: what decides the proposals beside the examples, by dotted key.
        image_settings: what decides the images beside the proposals, by dotted key; ``None`` takes
            the recipe's draws and selection.
    """

    provenance: Mapping[str, Any] = field(default_factory=dict)
    text_settings: Mapping[str, Any] = field(default_factory=dict)
    image_settings: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Job:
    """What one process is asked to do, and with what.

    Attributes:
        folder: of the shards.
        recipe: how sets are made; only the parts that ``run.stage`` uses need to be there.
        source: returns the examples of all parts; ``stage=images`` calls it only for proposals
            whose examples have images.
        run: which stage and part, and how.
        shards: how shards are cut and written.
        about: names and settings of the run; the settings are the folder's identity.
        cache: folder in which answers of annotators are kept, for every run that meets the same
            content; ``None`` keeps nothing.

    Raises:
        UserError: if a part of the recipe that the stage uses is missing or invalid, or its scores
            and its selection do not fit together.
    """

    folder: Path
    recipe: Recipe
    source: Callable[[], Sequence[Example]]
    run: RunSettings = field(default_factory=RunSettings)
    shards: ShardSettings = field(default_factory=ShardSettings)
    about: About = field(default_factory=About)
    cache: Path | None = None

    def __post_init__(self) -> None:
        self.recipe.check(self.run.stage)
        if self.run.stage != "captions":
            _ = self.pipeline  # checked before the first caption is edited

    @cached_property
    def examples(self) -> Sequence[Example]:
        """The examples of all parts, read once.

        Raises:
            UserError: if there is none, or a key is duplicated.
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
        """The recipe's editor, shown the other captions of an image where it asks for them.

        Raises:
            UserError: if its settings name what no example has.
        """
        assert self.recipe.editor is not None
        if isinstance(self.recipe.editor, ChecksSource):
            self.recipe.editor.check_source(self.examples)
        return sibling_aware(self.recipe.editor, self.examples)

    @cached_property
    def annotation(self) -> AnnotationStage:
        """What asks the recipe's annotators."""
        return self.recipe.annotation(self.cache)

    def text_models(self) -> dict[str, str]:
        """Return what makes proposals: names, revisions and hashes of weights."""
        return {**self.annotation.describe(), **self.editor.describe()}

    @cached_property
    def pipeline(self) -> Pipeline:
        """What makes, scores and encodes images."""
        return self.recipe.pipeline(self.shards.image_format)

    def find_image(self, key: str) -> SourceImage | None:
        """Return the source image of the example ``key``; ``None`` if there is no such example."""
        return self._images.get(key)

    @cached_property
    def _images(self) -> dict[str, SourceImage]:
        return {one.key: one.image for one in self.examples if one.image is not None}

    def record(self) -> Record:
        """Return what the folder must have been made for.

        Raises:
            UserError: if ``stage=images`` finds no edits.
        """
        captions, count = self._text_identity()
        return Record(captions, self._image_identity(captions), count)

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
"""Settings that a folder's record names only where they differ: older folders have none of them."""


def _default_settings(recipe: Recipe) -> dict[str, Any]:
    """Return what decides the images of a recipe that no configuration describes."""
    draws = recipe.draws
    settings = {
        **name_settings("recipe.draws", {} if draws is None else asdict(draws)),
        **name_settings("recipe.selection", asdict(recipe.selection)),
        "recipe.set_per": recipe.set_per,
        "recipe.count_by": recipe.count_by,
    }
    return {k: v for k, v in settings.items() if k not in NEW_SETTINGS or v != NEW_SETTINGS[k]}
