"""The settings of ``cfaug generate``, and which of them its stages and sources read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

from cfaug.core.annotations import Keys, Means
from cfaug.core.errors import OutputSettings, UserError
from cfaug.core.processes import Threads
from cfaug.core.targets import TARGET, Makes, locate
from cfaug.core.validation import DryRun, Node, Positive, Processes, Seed
from cfaug.generate.recipe import IMAGE_PARTS, IN_CAPTIONS, IN_IMAGES, TEXT_PARTS, RunSettings
from cfaug.planning.examples import READ_BY, ExampleSettings, settings_read
from cfaug.run.exports import ExportSettings
from cfaug.settings.read_if import GIVEN, SWEPT, CommandJob, Condition, Fact, Facts, ReadIf

GenerationPaths = Annotated[
    Mapping[str, str], Keys(("shards", "worlds", "cache"), (("image_roots", Sequence[str] | None),))
]
"""Where shards, worlds, indexes and annotations lie, and where a list may name images."""

WITH_TEXTS: Sequence[Condition] = (IN_CAPTIONS, {"/recipe.source_images": (True,)})
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


IN_WORLD: Sequence[Condition] = [{**texts, OF_SOURCE: ("world",)} for texts in WITH_TEXTS]
# A grid is recorded as one of the world if there is any world.
IN_WORLD_OR_GRID = (*IN_WORLD, *({**texts, "grid": GIVEN} for texts in WITH_TEXTS))
IN_REPAIR = ReadIf("by recipe=repair")


class SourceSettings(TypedDict):
    """The examples: a file or folder, a part of the embedded world, or a grid of captions."""

    source: str | None
    """a list of captions (jsonl, csv, tsv, txt), a folder of images in any known form, or the
    unedited examples of ``WORLD:PART``; for a recipe of questions a set of these: our jsonl, or
    a released one"""
    grid: Annotated[str | None, ReadIf(IN_CAPTIONS)]
    """in place of a source a grid of captions, for a recipe of grids: ``race_gender``, ..., or
    FILE.yaml"""
    keep_duplicates: Annotated[bool, ReadIf({**IN_CAPTIONS, "grid": GIVEN})]
    """keep duplicated and misprinted subjects of a grid's list"""
    leave_out: Annotated[
        Mapping[str, float] | None, ReadIf({**IN_CAPTIONS, OF_SOURCE: ("leave_out",)})
    ]
    """shares of the world's captions that omit these: ``{colour: 1, background: 0}``"""
    world: Annotated[Node | None, ReadIf(*IN_WORLD), ReadIf(*IN_WORLD_OR_GRID, of="_target_")]
    """the settings of the world, for ``data.source=WORLD:PART``"""
    extra: Annotated[Sequence[str], ReadIf({**IN_CAPTIONS, OF_SOURCE: ("extra",)})]
    """columns of a list of captions to copy to the members; all further columns of a folder are
    copied, except those of parquet read as classes"""
    fields: Annotated[
        Mapping[str, str | Sequence[str]], ReadIf({**IN_CAPTIONS, OF_SOURCE: ("fields",)})
    ]
    """the names of the source's columns, if they are not the usual ones: ``{caption: title, image:
    meta.file}``"""
    reader: Annotated[
        Annotated[Node, Makes("cfaug.data.sources.row.Reader")] | None,
        ReadIf({**IN_CAPTIONS, OF_SOURCE: ("reader",)}),
    ]
    """a class of your own that reads the source's rows: ``{_target_: my_module.MyReader}``"""
    failures: Annotated[str | None, IN_REPAIR]
    """failures to repair: a file that ``cfaug evaluate failures=FILE`` wrote"""
    budget: Annotated[Positive, IN_REPAIR]
    """the number of images to make for the failures"""
    weights: Annotated[Literal["effect", "equal"], IN_REPAIR]
    """``effect``: more images for failures of a larger effect; ``equal``: as many for every line
    of the file"""


@dataclass(frozen=True, kw_only=True)
class GenerateSettings(RunSettings, OutputSettings):
    """The settings of ``cfaug generate``."""

    recipe: Annotated[
        Node,
        Makes("cfaug.generate.recipe.Recipe"),
        ReadIf(IN_CAPTIONS, of=" ".join(TEXT_PARTS)),
        ReadIf(IN_IMAGES, of=" ".join(IMAGE_PARTS)),
        ReadIf(*WITH_TEXTS, of="example_per"),
    ]
    """how captions are edited, images drawn, scored and selected"""
    seed: Annotated[Seed, ReadIf({DRAWS: (True,)})] = 0
    zoo: Annotated[
        Mapping[str, str | ZooPart | None],
        Keys(("name",), (("knows", str | None),)),
        ReadIf("by parts of the recipe that are used and name it (${zoo....})"),
        ReadIf({}, of="name"),
    ]
    """the models that the recipe uses"""
    data: Annotated[SourceSettings, ReadIf(*WITH_TEXTS)]
    """the examples to begin with"""
    shards: Annotated[
        Node,
        ReadIf(IN_CAPTIONS, of="sets_per_shard"),
        ReadIf(IN_IMAGES, of="batch"),
        ReadIf({**IN_IMAGES, MAKES_IMAGES: (True,)}, of="image_format"),
    ]
    """the size and format of shards, and the size of batches"""
    export: Annotated[ExportSettings, ReadIf(IN_IMAGES)]
    """what is written once every part is complete"""
    paths: Annotated[
        GenerationPaths,
        ReadIf("by chosen files that name it (${paths....})"),
        ReadIf({}, of="shards worlds cache image_roots"),
    ]
    """folders of ``shards``, ``worlds``, ``cache``, and ``image_roots`` in which a list may name
    images"""
    limit: Annotated[Positive | Annotated[None, Means("all")], ReadIf(*WITH_TEXTS)]
    """the number of examples to take from the start; null: all"""
    parallel: Annotated[Processes, ReadIf({SWEPT: (True,)})]
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

    @property
    def recipe_of_stage(self) -> dict[str, Any]:
        """The recipe's node with the parts that the stage uses; the others are not loaded."""
        unused = {"captions": IMAGE_PARTS, "images": TEXT_PARTS, "all": ()}[self.stage]
        return {key: value for key, value in self.recipe.items() if key not in unused}

    @staticmethod
    def find_facts(job: CommandJob) -> Facts:
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
