"""The settings of ``cfaug generate``, and which of them its stages and sources read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypedDict

from cfaug.core.annotations import Keys, Means
from cfaug.core.errors import OutputSettings, UserError
from cfaug.core.processes import Threads
from cfaug.core.targets import TARGET, Makes, locate
from cfaug.core.validation import DryRun, Node, Positive, Processes
from cfaug.generate.recipe import IMAGE_PARTS, TEXT_PARTS, RunSettings
from cfaug.planning.examples import READ_BY, ExampleSettings, settings_read
from cfaug.run.exports import ExportSettings
from cfaug.settings.read_with import GIVEN, SWEPT, Condition, Fact, Facts, Job, ReadWith

GenerationPaths = Annotated[
    Mapping[str, str], Keys(("shards", "worlds", "cache"), (("image_roots", Sequence[str] | None),))
]
"""Where shards, worlds, indexes and annotations lie, and where a list may name images."""

IN_CAPTIONS: Condition = {"stage": ("captions", "all")}
WITH_TEXTS: Sequence[Condition] = (IN_CAPTIONS, {"recipe.source_images": (True,)})
IN_IMAGES: Condition = {"stage": ("images", "all")}
OF_SOURCE = Fact(
    {
        "extra": "a list of captions (data.source=FILE)",
        "fields": "a list, parquet or tars (data.source=FILE or FOLDER)",
        "reader": "a source of rows (data.source=FILE or FOLDER)",
        **dict.fromkeys(("world", "leave_out"), "sources in the embedded world (shapescapes:PART)"),
    }
)
"""The settings of ``data`` that the source is read with."""
MAKES_IMAGES = Fact({True: "by recipes that make images of their own"})
DRAWS = Fact(
    {True: "by editors that draw (stage=images or all), or by a world without data.world.seed"}
)
"""Whether images, or the scenes of the source, are drawn with the seed."""


ZooPart = Annotated[Node, Makes("builtins.object")]
"""A part of a recipe, checked where the recipe takes it."""


class SourceSettings(TypedDict):
    """The examples: a file or folder, a part of the embedded world, or a grid of captions."""

    source: str | None
    """a list of captions (jsonl, csv, tsv, txt), a folder of images in any known form, or the
    unedited examples of ``WORLD:PART``; for a recipe of questions a set of these: our jsonl, or
    a released one"""
    grid: str | None
    """in place of a source a grid of captions, for a recipe of grids: ``race_gender``, ..., or
    FILE.yaml"""
    keep_duplicates: bool
    """keep duplicated and misprinted subjects of a grid's list"""
    leave_out: Mapping[str, float] | None
    """shares of the world's captions that omit these: ``{colour: 1, background: 0}``"""
    world: Node | None
    """the settings of the world, for ``data.source=WORLD:PART``"""
    extra: Sequence[str]
    """columns of a list of captions to copy to the members; all further columns of a folder are
    copied, except those of parquet read as classes"""
    fields: Mapping[str, str | Sequence[str]]
    """the names of the source's columns, if they are not the usual ones: ``{caption: title, image:
    meta.file}``"""
    reader: Annotated[Node, Makes("cfaug.data.sources.row.Reader")] | None
    """a class of your own that reads the source's rows: ``{_target_: my_module.MyReader}``"""
    failures: str | None
    """failures to repair: a file that ``cfaug evaluate failures=FILE`` wrote"""
    budget: Positive
    """the number of images to make for the failures"""
    weights: Literal["effect", "equal"]
    """``effect``: more images for failures of a larger effect; ``equal``: as many for every line
    of the file"""


@dataclass(frozen=True, kw_only=True)
class GenerateSettings(RunSettings, OutputSettings):
    """The settings of ``cfaug generate``."""

    recipe: Annotated[Node, Makes("cfaug.generate.recipe.Recipe")]
    """how captions are edited, images drawn, scored and selected"""
    zoo: Annotated[Mapping[str, str | ZooPart | None], Keys(("name",), (("knows", str | None),))]
    """the models that the recipe uses"""
    data: SourceSettings
    """the examples to begin with"""
    shards: Node
    """the size and format of shards, and the size of batches"""
    export: ExportSettings
    """what is written once every part is complete"""
    paths: GenerationPaths
    """folders of ``shards``, ``worlds``, ``cache``, and ``image_roots`` in which a list may name
    images"""
    limit: Positive | Annotated[None, Means("all")]
    """the number of examples to take from the start; null: all"""
    parallel: Processes
    """parts of a sweep (``-m part=0,1 parts=2``) at once, each with its share of the cores"""
    dry_run: DryRun
    """print the plan, and stop; ``json``: the same for programs"""
    force: bool = False
    """a zoo that has seen only drawn scenes also gets a source of your own"""
    threads: Threads = None
    """torch's threads on a CPU; null: two, as with 1, so that bytes are those of any machine"""
    engine: Node | None = None
    """where shards are made; null: in this process"""
    overrides: Sequence[str] = ()

    read_with: ClassVar[ReadWith] = {
        "parallel": {SWEPT: (True,)},
        "seed": {DRAWS: (True,)},
        "zoo": "by parts of the recipe that are used and name it (${zoo....})",
        "paths": "by chosen files that name it (${paths....})",
        "zoo.name paths.shards paths.worlds paths.cache paths.image_roots": {},
        " ".join(f"recipe.{part}" for part in TEXT_PARTS): IN_CAPTIONS,
        " ".join(f"recipe.{part}" for part in IMAGE_PARTS): IN_IMAGES,
        "data limit recipe.example_per": WITH_TEXTS,
        "data.grid shards.sets_per_shard": IN_CAPTIONS,
        "data.keep_duplicates": {**IN_CAPTIONS, "data.grid": GIVEN},
        "data.extra": {**IN_CAPTIONS, OF_SOURCE: ("extra",)},
        "data.fields": {**IN_CAPTIONS, OF_SOURCE: ("fields",)},
        "data.reader": {**IN_CAPTIONS, OF_SOURCE: ("reader",)},
        "data.leave_out": {**IN_CAPTIONS, OF_SOURCE: ("leave_out",)},
        "data.world": [{**texts, OF_SOURCE: ("world",)} for texts in WITH_TEXTS],
        # A grid is recorded as one of the world if there is any world.
        "data.world._target_": [
            *({**texts, OF_SOURCE: ("world",)} for texts in WITH_TEXTS),
            *({**texts, "data.grid": GIVEN} for texts in WITH_TEXTS),
        ],
        "data.failures data.budget data.weights": "by recipe=repair",
        "shards.batch pipeline_scoring export": IN_IMAGES,
        "shards.image_format": {**IN_IMAGES, MAKES_IMAGES: (True,)},
        "export.layout export.about export.croissant": {**IN_IMAGES, "export.hub": GIVEN},
        "export.about.url export.about.published": {
            **IN_IMAGES,
            "export.hub": GIVEN,
            "export.croissant": GIVEN,
        },
        "export.verified": [
            {**IN_IMAGES, f"export.{name}": GIVEN}
            for name in ("questions", "lmms_eval", "vlmevalkit")
        ],
    }

    @staticmethod
    def find_facts(job: Job) -> Facts:
        """Return what is known of the source, and whether anything is drawn."""
        settings, recipe = job.settings, job.settings["recipe"]
        data = settings["data"]
        examples = ExampleSettings(
            source=data["source"], grid=data["grid"], world=data["world"], extra=data["extra"],
            per=recipe.get("example_per", "text"), images=recipe.get("source_images", False),
            limit=None, seed=settings["seed"], paths=settings["paths"], fields=data["fields"],
            reader=data["reader"],
        )  # fmt: skip
        try:
            read = list(settings_read(examples))
        except UserError:  # refused with its own message when it is read
            read = [name for names in READ_BY.values() for name in names]
        # Recipes that make no images keep the files of their source.
        target = (recipe.get("image_editor") or {}).get(TARGET)
        makes_images = target is None or not getattr(locate(target), "keeps_files", False)
        draws_scenes = (
            data["world"] is not None and data["world"].get("seed") is None and "world" in read
        )
        draws = (settings["stage"] != "captions" and makes_images) or draws_scenes
        return {OF_SOURCE: read, MAKES_IMAGES: makes_images, DRAWS: draws}
