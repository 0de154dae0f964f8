"""What one process is asked to do, and what it says in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

from cfaug.errors import UserError
from cfaug.generate.failures import Failure
from cfaug.generate.folder import Record, name_settings, read_record, settings_hash
from cfaug.generate.pipeline import Pipeline
from cfaug.generate.plan import check_part, shard_count
from cfaug.generate.sampling import Draws
from cfaug.generate.settings import OnError, ShardSettings, Stage, check_choice
from cfaug.generate.source import digest_of
from cfaug.protocols import Editor
from cfaug.types import Example


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
    """

    shards: int
    sets: int
    members: int
    rejected: Mapping[str, int]
    failures: tuple[Failure, ...]
    wall_s: float
    unpublished: tuple[int, ...] = ()

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
class Job:
    """What one process is asked to do, and with what.

    Attributes:
        folder: of the shards.
        stage: ``captions`` (edits only), ``images`` (of edits already made), or ``all``.
        captions: of all parts; not looked at by ``stage=images``.
        editor: of captions; not needed by ``stage=images``.
        studio: draws and judges; not needed by ``stage=captions``.
        draws: the candidates of a set; ``None``: one, of which nothing is random.
        shards: how shards are cut and written.
        seed: of every draw.
        part: makes the shards whose number leaves this remainder when divided by ``parts``.
        parts: how many parts there are.
        on_error: ``fail`` leaves a shard with failed items unpublished, so that the next run
            retries them; ``publish`` writes it without them and lists them.
        overwrite: clear what other settings made in the folder.
        overlap: judge in a second thread; worth it where the sampler runs on a GPU.
        provenance: recipe, zoo and whatever else names the run; it goes into every set.
        caption_settings: whatever else decides the edits; part of the folder's identity.
        image_settings: whatever else decides the images; part of the folder's identity.
    """

    folder: Path
    stage: Stage = "all"
    captions: Sequence[Example] = ()
    editor: Editor | None = None
    studio: Pipeline | None = None
    draws: Draws | None = field(default_factory=Draws)
    shards: ShardSettings = field(default_factory=ShardSettings)
    seed: int = 0
    part: int = 0
    parts: int = 1
    on_error: OnError = "fail"
    overwrite: bool = False
    overlap: bool = False
    provenance: Mapping[str, Any] = field(default_factory=dict)
    caption_settings: Mapping[str, Any] = field(default_factory=dict)
    image_settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_part(self.part, self.parts)
        check_choice("stage", self.stage, get_args(Stage))
        check_choice("on_error", self.on_error, get_args(OnError))
        if self.stage != "images" and (self.editor is None or not self.captions):
            raise UserError(f"stage={self.stage} needs captions (data.captions=FILE) and an editor")
        if self.stage != "captions" and self.studio is None:
            raise UserError(f"stage={self.stage} needs an image editor")

    def wanted(self) -> Record:
        """Return what the folder must have been made for.

        Raises:
            UserError: if ``stage=images`` finds no edits.
        """
        captions, count = self._caption_identity()
        chosen = None
        if self.stage != "captions":
            assert self.studio is not None
            chosen = {
                **self.image_settings,
                "seed": self.seed,
                "edits": settings_hash(captions),
                "shards.image_format": self.shards.image_format,
                "shards.batch": self.shards.batch,
                **name_settings("draws", {} if self.draws is None else asdict(self.draws)),
                **name_settings("select", asdict(self.studio.select)),
            }
        return Record(captions, chosen, count)

    def _caption_identity(self) -> tuple[Mapping[str, Any], int]:
        if self.stage == "images":
            there = read_record(self.folder)
            if there is None:
                raise UserError(
                    f"{self.folder} holds no edited captions: run stage=captions first, or "
                    "stage=all"
                )
            return there.captions, there.shards
        per_shard = self.shards.sets_per_shard
        settings = {
            **self.caption_settings,
            "data.captions (number)": len(self.captions),
            "data.captions (content)": digest_of(self.captions),
            "shards.sets_per_shard": per_shard,
        }
        return settings, shard_count(len(self.captions), per_shard)
