"""``generate.py``: captions, caption editor, image editor and judge put together, then made."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from cfaug.errors import UserError
from cfaug.generate.job import Job, Summary
from cfaug.generate.pipeline import Pipeline
from cfaug.generate.plan import count_candidates, shard_count, shards_of
from cfaug.generate.run import generate as make
from cfaug.generate.settings import OnError, Stage
from cfaug.generate.sibling_captions import sibling_aware
from cfaug.generate.source import read_captions
from cfaug.messages import say
from cfaug.run.arguments import flatten
from cfaug.run.build import build
from cfaug.run.compose import Config
from cfaug.run.launch import DONE, FAILED, Jobs, report
from cfaug.run.pages import write_exports, write_pages
from cfaug.run.parallel import check_parallel, run_at_once
from cfaug.run.setting_types import Keys, Node
from cfaug.run.sources import CAPTIONS, part_folder, say_once
from cfaug.run.threads import use_threads
from cfaug.score.clip import LazyClipScorer
from cfaug.types import Example
from cfaug.world_source import is_world, world_part

WHERE_IT_RUNS = ("device", "batch_tokens", "chunk")
"""Last parts of keys that say where or in what portions, never what comes out."""


class CaptionSource(TypedDict):
    """The captions to edit: a file, or a part of the embedded world."""

    captions: str | None
    world: Node | None


class ScorerSettings(TypedDict):
    """The encoders that judge images."""

    encoder: Node | None
    preprocessing: Literal["ip2p", "standard"]
    device: str
    report: Node | None


class ExportSettings(TypedDict):
    """Where complete shards are exported to, and what only the publisher knows."""

    hub: str | None
    clip_benchmark: str | None
    about: Node


def generate(
    *,
    recipe: str,
    zoo: Annotated[Mapping[str, str | Node | None], Keys(("name",))],
    stage: Stage,
    seed: int,
    part: int,
    parts: int,
    limit: int | None,
    on_error: OnError,
    overlap: bool,
    parallel: int,
    dry_run: bool,
    overwrite: bool,
    data: CaptionSource,
    text: Node,
    image: Node,
    draws: Node,
    scorer: ScorerSettings,
    select: Node,
    finish: Node | None,
    shards: Node,
    export: ExportSettings,
    paths: Annotated[Mapping[str, str], Keys(("shards", "worlds"))],
    threads: int | None = None,
    overrides: Sequence[str] = (),
) -> int:
    """Make what is left of one part, and the pages when the last part is complete.

    The keyword arguments are the top level of ``conf/generate.yaml``, described there, and of the
    recipe.

    Raises:
        UserError: for settings, captions or a folder that cannot be used.
    """
    use_threads(threads)
    check_parallel(parallel)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise UserError(f"seed must be a whole number, not {seed!r}")
    captions: tuple[Example, ...] = ()
    editor = None
    if stage != "images":
        captions = _captions(data, limit, seed, paths)
        editor = sibling_aware(build(text), captions)
    models = {} if editor is None else editor.describe()
    job = Job(
        folder=Path(paths["shards"]),
        stage=stage,
        captions=captions,
        editor=editor,
        studio=_studio(zoo, image, scorer, select, finish, shards) if stage != "captions" else None,
        draws=build(draws),
        shards=build(shards),
        seed=seed,
        part=part,
        parts=parts,
        on_error=on_error,
        overwrite=overwrite,
        overlap=overlap,
        provenance={"recipe": recipe, "zoo": zoo["name"]},
        caption_settings={CAPTIONS: _source(data), **_result({"text": text}), **models},
        image_settings=_result({"image": image, "scorer": scorer, "finish": finish}),
    )
    if dry_run:
        say(json.dumps(_plan(job)), sys.stdout)
        return DONE
    summary = make(job)
    write_pages(job.folder, f"{recipe}, zoo {zoo['name']}", job.studio)
    write_exports(job.folder, export)
    return _told(summary, job.folder)


def run_jobs(jobs: Jobs) -> int:
    """Run every composed job, ``parallel`` at once, and return the worst exit code."""
    parallel = jobs[0][0]["parallel"]
    check_parallel(parallel)
    if min(parallel, len(jobs)) > 1:
        return max(code for _, code in run_at_once(jobs, _reported, min(parallel, len(jobs))))
    return max(generate(**config, overrides=words) for config, words in jobs)


def _reported(job: tuple[Config, list[str]]) -> int:
    """Run one job in a process of its own; an error is told and becomes its exit code."""
    try:
        return generate(**job[0], overrides=job[1])
    except Exception as error:
        return report(error)


def _captions(
    data: Mapping[str, Any], limit: int | None, seed: int, paths: Mapping[str, Any]
) -> tuple[Example, ...]:
    name = data["captions"]
    if limit is not None and (isinstance(limit, bool) or limit < 1):
        raise UserError(f"limit={limit} should be at least 1, or null")
    if name is None:
        raise UserError("say which captions: data.captions=FILE (jsonl, csv, tsv or txt)")
    if not is_world(str(name)):
        found = read_captions(name, limit)
        if found.duplicates:
            say(f"{name}: {found.duplicates} captions came twice and are left out", sys.stdout)
        say_once(found.line(name))
        return found.captions
    from cfaug.data.storage.shards import read_sets

    if data["world"] is None:
        raise UserError(f"data.captions={name} needs data.world: choose zoo=shapescapes")
    world = build(data["world"])
    folder = part_folder(world, seed, world_part(str(name)), Path(paths["worlds"]))
    every = (Example(one.key, one.group, (one.members[0].text,)) for one in read_sets(folder))
    return tuple(every)[:limit]


def _source(data: Mapping[str, Any]) -> str:
    """Name the captions: a world's part as such, a file by its content, which is hashed apart."""
    name = str(data["captions"])
    return name if is_world(name) else "file"


def _studio(
    zoo: Mapping[str, Any],
    image: Mapping[str, Any],
    scorer: Mapping[str, Any],
    select: Mapping[str, Any],
    finish: Mapping[str, Any] | None,
    shards: Mapping[str, Any],
) -> Pipeline:
    if zoo.get("diffusion") is None or scorer["encoder"] is None:
        raise UserError(
            f"zoo={zoo['name']} has no model that draws: run stage=captions with it, or choose "
            "zoo=shapescapes or zoo=paper"
        )
    report = scorer["report"]
    how = (scorer["preprocessing"], scorer["device"])
    return Pipeline(
        editor=build(image),
        scorers={"scorer": LazyClipScorer(build(scorer["encoder"]), *how)},
        select=build(select),
        report={}
        if report is None
        else {"report": LazyClipScorer(build(report), *how, prefix="report_")},
        finish=None if finish is None else build(finish),
        image_format=build(shards).image_format,
    )


def _result(settings: Mapping[str, Any]) -> dict[str, Any]:
    flat = flatten(settings)
    return {k: v for k, v in flat.items() if k.rsplit(".", 1)[-1] not in WHERE_IT_RUNS}


def _plan(job: Job) -> dict[str, Any]:
    count = shard_count(len(job.captions), job.shards.sets_per_shard)
    return {
        "captions": len(job.captions),
        "shards": count,
        "shards_of_part": len(shards_of(job.part, job.parts, count)),
        "candidates_at_most": len(job.captions) * count_candidates(job.draws),
        "folder": str(job.folder),
    }


def _told(summary: Summary, folder: Path) -> int:
    """Print what was made, the last line as JSON, and return the exit code."""
    for number in summary.unpublished:
        say(f"failed: shard {number:05d} of {folder} is not published")
    say(json.dumps(summary.json()), sys.stdout)
    return FAILED if summary.unpublished else DONE
