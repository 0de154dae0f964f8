"""Make counterfactual image-text sets: edit captions, draw both images, keep the best by CLIP.

python generate.py
python generate.py limit=20 paths.shards=shards/try
python generate.py zoo=captions stage=captions data.source=captions.jsonl
python generate.py zoo=paper data.source=captions.jsonl part=0 parts=16
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import Parameter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.core.annotations import signature_of, without_result
from cfaug.core.errors import UserError, Verbosity, say, say_record
from cfaug.core.files import check_place
from cfaug.core.fitting import Config
from cfaug.core.outputs import begin_record, check_output
from cfaug.core.processes import equal_threads
from cfaug.core.safety.json_text import json_file
from cfaug.core.stores import mirror_of, shown
from cfaug.core.targets import TARGET, locate
from cfaug.core.types import Example
from cfaug.core.validation import Processes, check
from cfaug.core.weights import HUB_ID
from cfaug.core.worlds import is_questions, is_world, name_world
from cfaug.data.shards.shards import CARD
from cfaug.generate.failures import Failure, ProgressReporter
from cfaug.generate.folder import (
    CANDIDATES,
    GALLERY,
    join_folder,
    publish_files,
    read_record,
    refresh,
    work_folder,
)
from cfaug.generate.images import yield_lines
from cfaug.generate.job import Job, JobIdentity, ShardStage, Unpublished, make_shards
from cfaug.generate.job import generate as make_part
from cfaug.generate.recipe import (
    IMAGE_PARTS,
    TEXT_PARTS,
    Recipe,
    count_candidates,
    shard_count,
    shards_of,
)
from cfaug.planning.build import build
from cfaug.planning.examples import ExampleSettings, open_examples
from cfaug.planning.sources import SOURCE, shows_world
from cfaug.run.exports import check_exports, write_exports
from cfaug.run.folder_names import clean_name
from cfaug.run.generate_settings import GenerateSettings
from cfaug.run.identity import without_module
from cfaug.run.launch import DONE, FAILED, Jobs, Script, launch, report
from cfaug.run.parallel import RayEngine, run_at_once
from cfaug.settings.arguments import flatten, write_override
from cfaug.settings.unread import nodes_of

if TYPE_CHECKING:
    from cfaug.report.document import Part

NAMES_OF_WEIGHTS = ("weights", "vae")
"""Keys of parts that name models."""
FEWEST = 50
"""The fewest sets after which a training is the next command; before, it is their gallery."""
OWN_FILE = "file"
"""The source in the record of a folder, if it is neither the embedded world nor a grid."""
MOST_SHOWN = 2000
"""Sets on the gallery of an object store."""


def generate(settings: GenerateSettings) -> int:
    """Make the rest of one part, and the pages when the last part is complete."""
    paths, export, overwrite = settings.paths, settings.export, settings.overwrite
    cache = check_place(paths["cache"], "paths.cache")
    workplace = work_folder(paths["shards"], cache, settings.parts)
    with equal_threads(settings.threads), workplace as folder:
        job = plan_job(settings, folder)
        job.check_source()
        if export["verified"] is not None and not Path(export["verified"]).expanduser().is_file():
            raise UserError(f"export.verified={export['verified']}: there is no such file")
        if settings.dry_run:
            _say_plan(job, settings.recipe_of_stage, as_json=settings.dry_run == "json")
            return DONE
        draws = settings.stage != "captions"
        if draws:
            if read_record(folder) is not None:
                begin_record(folder, earlier=True)
            for name in (GALLERY, CANDIDATES):
                check_output(folder / name, name)
            check_exports(folder, export, overwrite=overwrite)
        make = make_shards
        if settings.engine is not None:
            make = partial(_make_on_engine, build(settings.engine), partial(_shard_maker, settings))
        summary = make_part(job, make)
        following = None
        if draws:
            card = json_file(folder / CARD)
            complete = len(card["shards"]) == card["of"]
            if complete:
                _write_pages(job, card, f"{job.recipe.name}, zoo {settings.zoo['name']}")
            write_exports(folder, export, overwrite=overwrite)
            if complete and card["sets"]:
                following = _next_command(folder, card["sets"], settings.data["source"])
        for line in yield_lines(summary.yields) if summary.yields else ():
            say(line)
        for number in summary.unpublished:
            say(f"failed: shard {number:05d} of {shown(folder)} is not published")
        say_record(summary.json())
        if following is not None:
            say(f"next: {following}")
        return FAILED if summary.unpublished else DONE


def plan_job(settings: GenerateSettings, folder: Path) -> Job:
    """Make the job of a command: here its settings become objects, and nowhere below.

    Args:
        folder: the folder to make shards in, a mirror of an object store's, or any other.
    """
    _check_source(settings, folder)
    about = describe_settings(settings)
    recipe = build_recipe(settings)
    return Job(
        folder=folder,
        recipe=recipe,
        source=find_source(settings, recipe),
        run=settings,
        shards=build(settings.shards),
        about=about,
        cache=Path(settings.paths["cache"]).expanduser(),
    )


def _check_source(settings: GenerateSettings, folder: Path) -> None:
    """Refuse a world's questions, and a source of one's own for models that know drawn scenes."""
    source, zoo, recipe = settings.data["source"], settings.zoo, settings.recipe
    if source is not None and is_questions(source):
        raise UserError(
            f"data.source={source}: the world has its own counterfactual questions, so none are "
            f"generated. They are asked by python evaluate.py benchmark=vqa benchmark.data={source}"
        )
    if zoo.get("knows") is None or settings.force:
        return
    if settings.stage == "images":  # of the edits in the folder
        made = read_record(folder)
        foreign = made is not None and made.captions.get(SOURCE) == OWN_FILE
        nonsense_of = f"the edits in {shown(folder)}, which are of your own source"
    else:
        foreign = source is not None and not is_world(source)
        nonsense_of = f"data.source={source}"
    if not foreign:
        return
    nodes = [node for _, node in nodes_of(settings.recipe_of_stage)]
    used = sorted(name for name, model in zoo.items() if name != "knows" and model in nodes)
    if not used:
        return
    offline = ""
    # The models that are shipped edit the captions alone.
    if "captioner" not in used and settings.stage != "images":
        words = [f"recipe={recipe['name']}", "zoo=captions", "stage=captions"]
        words.append(f"data.source={source}")
        if settings.data["leave_out"] is not None:
            words.append("data.leave_out=null")
        if "detections" in (recipe.get("annotators") or {}):
            words += ["detections@recipe=file", "recipe.annotators.detections.file=FILE"]
        typed = f"python generate.py {shlex.join(words)}"
        offline = f"; offline, captions alone are edited by {typed}"
    raise UserError(
        f"zoo={zoo['name']} knows {zoo['knows']} only, so its models ({', '.join(used)}) would "
        f"make nonsense of {nonsense_of}. Choose zoo=paper, whose weights are downloaded"
        f"{offline}; force=true uses these models nevertheless"
    )


def build_recipe(settings: GenerateSettings) -> Recipe:
    """Build the recipe with the parts that the stage uses, and no other."""
    node = settings.recipe_of_stage
    missing = []  # required arguments of parts that are null
    for place, part in nodes_of({"recipe": node}):
        if None in part.values():
            taken = signature_of(locate(part[TARGET]))
            missing += [
                f"{place}{name}"
                for name, value in part.items()
                if value is None and name in taken and taken[name].default is Parameter.empty
            ]
    if missing:
        first, zoo = min(missing), settings.zoo["name"]
        others = " or ".join(f"zoo={name}" for name in ("shapescapes", "paper") if name != zoo)
        alone = "" if first.split(".")[1] in TEXT_PARTS else "run stage=captions with it, or "
        raise UserError(
            f"{first} is null: zoo={zoo} has no such model: {alone}choose a zoo that has one, "
            f"such as {others}"
        )
    recipe: Recipe = build(node)
    recipe.check(settings.stage)
    grid, editor = settings.data["grid"], recipe.editor
    if not (grid is None or editor is None or getattr(editor, "takes_grids", False)):
        raise UserError(
            f"data.grid={grid}: recipe.editor, a {type(editor).__name__}, takes captions, not "
            "grids of them: choose recipe=social, or give data.source in place of data.grid"
        )
    return recipe


def find_source(settings: GenerateSettings, recipe: Recipe) -> Callable[[], Sequence[Example]]:
    """Return the reader of the examples that a recipe is given."""
    data = settings.data
    if data["source"] is None and data["grid"] is None and settings.stage == "images":
        return lambda: ()  # examples are read only for their source images
    return open_examples(
        ExampleSettings(
            source=data["source"],
            world=data["world"],
            extra=data["extra"],
            per=recipe.example_per,
            images=recipe.source_images,
            limit=settings.limit,
            seed=settings.seed,
            paths=settings.paths,
            grid=data["grid"],
            keep_duplicates=data["keep_duplicates"],
            leave_out=data["leave_out"],
            fields=data["fields"],
            reader=None if data["reader"] is None else build(data["reader"]),
        )
    )


def describe_settings(settings: GenerateSettings) -> JobIdentity:
    """Return a run's name, and the settings that decide its result."""
    data, recipe = settings.data, settings.recipe
    source = str(data["source"])
    if data["grid"] is not None:  # its images may show the embedded world
        source = "grid" if data["world"] is None else f"{name_world(data['world'])}:grid"
    elif not is_world(source):
        source = OWN_FILE  # its content is hashed separately
    text, image = (
        _settings_of_result({name: recipe[name] for name in parts if name in recipe})
        for parts in (TEXT_PARTS, IMAGE_PARTS)
    )
    names = {"recipe": recipe["name"], "zoo": settings.zoo["name"]}
    return JobIdentity(names, {SOURCE: source, **text}, image)


def _settings_of_result(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of parts of a recipe that change its result, each with its place."""
    left_out = {
        f"{place}{name}"
        for place, node in nodes_of({"recipe": recipe})
        for name in without_result(locate(node[TARGET]))
    }
    return {
        key: without_module(value) if key.endswith(TARGET) else value
        for key, value in flatten({"recipe": recipe}).items()
        if key not in left_out
    }


def _say_plan(job: Job, recipe: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the plan of a job and its cost, with the models to download.

    Args:
        recipe: the recipe's node, with the parts that the stage uses.
    """
    from cfaug.report.terminal import print_parts
    from cfaug.run.doctor import find_trouble

    nodes = [node for _, node in nodes_of(recipe)]
    named = (str(node[key]) for node in nodes for key in NAMES_OF_WEIGHTS if node.get(key))
    downloads = [
        name
        for name in dict.fromkeys(named)
        if HUB_ID.fullmatch(name) and find_trouble(name) is not None
    ]
    if job.run.stage == "images":  # of the edits in the folder
        made = job.record()
        examples, count = made.captions["data.source (number)"], made.shards
    else:
        examples = len(job.examples)
        count = shard_count(examples, job.shards.sets_per_shard)
    about: dict[str, Any] = {
        "captions": examples,
        "shards": count,
        "shards_of_part": len(shards_of(job.run.part, job.run.parts, count)),
        "candidates_at_most": examples * count_candidates(job.recipe.draws),
        "folder": shown(job.folder),
    }
    if downloads:
        about["to_download"] = downloads
    parts: list[Part] = []
    if job.run.stage != "captions":
        from cfaug.generate.costs import cost_parts, describe_cost, estimate

        cost, basis = estimate(job, examples)
        about["cost"] = describe_cost(cost, job, basis)
        parts += cost_parts(cost, job, basis)
    if as_json:
        say_record(about, as_json=True)
        return
    say_record(about, hidden=("cost",), as_json=False)
    for part in parts:
        print_parts([part] if part.rows else (), part.notes)


def _make_on_engine(
    engine: RayEngine,
    make_worker: Callable[[ShardStage], Callable[[int], tuple[Failure, ...]]],
    job: Job,
    stage: ShardStage,
    numbers: Sequence[int],
) -> Unpublished:
    """Make shards in the workers of an engine.

    Args:
        make_worker: called in each worker; returns what makes a shard there.
    """
    verb = "editing" if stage == "captions" else "drawing"
    made = engine.run(partial(make_worker, stage), numbers, verb, "shards")
    unpublished = {number: failures for number, failures in sorted(made) if failures}
    refresh(job.folder)  # what workers uploaded from elsewhere
    return unpublished


def _shard_maker(
    settings: GenerateSettings, stage: ShardStage
) -> Callable[[int], tuple[Failure, ...]]:
    """Return what makes a shard in a worker, with the models that it keeps for the next one."""
    job = plan_job(settings, join_folder(settings.paths["shards"], Path(settings.paths["cache"])))
    silent = ProgressReporter(stage, "units", "accepted", 0, shown=False)

    def make(number: int) -> tuple[Failure, ...]:
        with equal_threads(settings.threads):
            return job.make_shard(stage, number, silent)

    return make


def _write_pages(job: Job, card: Mapping[str, Any], title: str) -> None:
    """Write gallery and scores of a complete folder, unless they are newer than all its shards."""
    from cfaug.data.shards.shards import read_sets
    from cfaug.report.candidates import write_candidates
    from cfaug.report.gallery import write_gallery

    folder, stale = job.folder, []
    commits = [commit.stat().st_mtime_ns for commit in folder.glob("[0-9]*.json")]
    for name, count in ((CANDIDATES, card["candidates"]), (GALLERY, card["sets"])):
        page = folder / name
        if count and not (page.exists() and max(commits) < page.stat().st_mtime_ns):
            stale.append(name)
    if CANDIDATES in stale:
        meanings: dict[str, str] = {}
        for scorer in job.pipeline.scorers.values():
            meanings |= getattr(scorer, "meanings", dict.fromkeys(scorer.names, ""))
        write_candidates(folder, meanings, job.pipeline.select.minimum)
    if GALLERY in stale:
        # Of a store the first tars alone are read again, not all of them for a sample.
        most = None if mirror_of(folder) is None else MOST_SHOWN
        write_gallery(islice(read_sets(folder), most), folder / GALLERY, title=title)
    for name in stale:
        say(f"wrote {shown(folder)}/{name}", level=Verbosity.QUIET)
    publish_files(folder, stale)


def _next_command(folder: Path, sets: int, source: str | None) -> str:
    """Return what to type after the sets of a folder are complete: to look at them, or to train."""
    from cfaug.data.shards.shards import read_sets

    if sets < FEWEST:
        page = shlex.quote(f"{shown(folder)}/{GALLERY}")
        return f"open {page} in a browser; {sets} sets are few to train on"
    words = ["python", "train.py", "--multirun"]
    if not shows_world(str(folder)):
        photos = source if source is not None and Path(source).is_dir() else "PHOTOS"
        words += ["data=folder", f"data.real={photos}"]
    words += [f"data.counterfactual={shown(folder)}", "data.cf_ratio=0,0.6"]
    if any(len(made.members) < 2 for made in islice(read_sets(folder), 1)):
        words.append("data.counterfactual_members=singles")
    # An experiment of its own: its arms may have other seeds than those of main. The largest
    # data.size that both can have depends on the real examples, and the dry run names it.
    words += [write_override("name", clean_name(Path(shown(folder)).name, "")), "dry_run=true"]
    return shlex.join(words)


def run_jobs(jobs: Jobs) -> int:
    """Run every composed job, ``parallel`` at once, and return the worst exit code."""
    parallel = jobs[0][0]["parallel"]
    check(parallel, Processes, "parallel")
    if min(parallel, len(jobs)) > 1:
        return max(code for _, code in run_at_once(jobs, _run_reported, min(parallel, len(jobs))))
    return max(generate(GenerateSettings(**config, overrides=words)) for config, words in jobs)


def _run_reported(job: tuple[Config, list[str]]) -> int:
    """Run one job in a process of its own; an error is reported and becomes its exit code."""
    config, words = job
    try:
        return generate(GenerateSettings(**config, overrides=words))
    except Exception as error:
        return report(error)


SCRIPT = Script("generate", GenerateSettings, run_jobs, __doc__ or "")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return launch(SCRIPT, argv)
