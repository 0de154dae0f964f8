r"""Let people answer questions about counterfactual pairs, and read their answers.

cfaug annotate export pairs=FOLDER
cfaug annotate read pairs=FOLDER
cfaug annotate export annotate/question=quality pairs=FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cfaug.core.errors import OutputSettings, UserError
from cfaug.core.files import check_place
from cfaug.core.processes import Threads, use_threads
from cfaug.core.targets import TARGET, locate
from cfaug.core.validation import Node, RunPaths, RunSeed, Words
from cfaug.core.worlds import find_drawn, is_world
from cfaug.data.index import Index
from cfaug.data.mixture.settings import DataSettings, ImageData
from cfaug.data.sources.fields import reading_by, refuse_unused
from cfaug.planning.build import build
from cfaug.planning.sources import label_file, open_source, permitted_roots, say_source
from cfaug.run.annotation_steps import QUESTION, AnnotationSource
from cfaug.run.launch import Jobs, Script, choose_named, launch, report_each
from cfaug.settings.arguments import flatten, texts_in
from cfaug.settings.read_if import (
    DRAWS_WORLD,
    GIVEN,
    CommandJob,
    Facts,
    ReadIf,
    describe_conditions,
)


@dataclass(frozen=True, kw_only=True)
class AnnotateSettings(OutputSettings):
    """The settings of ``cfaug annotate``."""

    annotate: Node
    """the step: ``export`` a page of questions, ``read`` answers, sort errors (``taxonomy``), or
    ``simulate`` answers"""
    pairs: str | None
    """the pairs to ask about: a folder of sets in any form, or ``WORLD:PART``"""
    world: Annotated[Node | None, ReadIf(describe_conditions([{DRAWS_WORLD: GIVEN}]))]
    """the settings of the world, for ``pairs=WORLD:PART``"""
    fields: Mapping[str, str | Sequence[str]]
    """names of columns in the list, parquet or tars of ``pairs``, as ``data.fields`` of training"""
    reader: Node | None
    """a reader of your own for ``pairs``, as ``data.reader`` of training"""
    seed: Annotated[RunSeed, ReadIf({DRAWS_WORLD: GIVEN})]
    """the seed of the world, as of a run: its scenes are drawn with seed + 1, or with
    ``world.seed``"""
    paths: RunPaths
    """folders of pages and answers (``runs``), of worlds (``shards``) and of indexes (``cache``)"""
    threads: Threads = None
    """torch's threads on a CPU; null: all cores"""
    overrides: Words = ()

    @staticmethod
    def find_facts(job: CommandJob) -> Facts:
        """Return what people are asked about."""
        from cfaug.annotation.forms import Form, Preference

        step = job.settings["annotate"] or {}
        node = step.get("question") or {}
        kind = locate(node[TARGET]) if TARGET in node else object
        kinds = {
            "question": not issubclass(kind, Form),
            "images": not issubclass(kind, Form | Preference),
        }
        sources = texts_in([job.settings["pairs"], *flatten(step).values()])
        return {
            QUESTION: [name for name, holds in kinds.items() if holds],
            DRAWS_WORLD: find_drawn(sources, "world"),
        }

    @staticmethod
    def find_left_out(node: Mapping[str, Any], place: str, job: CommandJob) -> dict[str, None]:
        """Return the settings of the world that draw what people are asked about: they are read."""
        return dict.fromkeys(job.known[DRAWS_WORLD])


def annotate(settings: AnnotateSettings) -> list[Path]:
    """Carry out a step of ``conf/annotate`` with a folder's pairs, or those of the world.

    Returns:
        The files that were written; empty for a step of somebody's own that returns nothing.
    """
    use_threads(settings.threads)
    name, paths = settings.pairs, settings.paths
    if name is None:
        raise UserError("pairs=FOLDER is missing: the pairs that people are asked about")
    for key in ("runs", "cache"):  # pages are named in the one and made of images in the other
        check_place(paths[key], f"paths.{key}")
    world = None if settings.world is None else build(settings.world)
    reader = None if settings.reader is None else build(settings.reader)
    data: DataSettings = ImageData(None, name, world=world, fields=settings.fields, reader=reader)
    data, shards = data.with_seed(settings.seed), paths["shards"]

    def oracle() -> Path:
        if not is_world(name):
            raise UserError(
                "cfaug annotate simulate asks the embedded world's oracle, which knows nothing of "
                f"{name}: name a part of a world, pairs=WORLD:PART, or let people "
                "answer (cfaug annotate export)"
            )
        return label_file(name, data.world, data.seed, Path(shards))

    cache, roots = Path(paths["cache"]), permitted_roots(paths)

    def open_other(other: str) -> Index:
        with reading_by(data.fields, data.reader):
            return open_source(other, data.world, data.seed, Path(shards), cache, roots)

    index = open_other(name)
    refuse_unused(data.fields, data.reader, {name: index.reading})
    say_source("pairs", name, index)
    shown = name if is_world(name) else Path(name).resolve().name
    written = build(settings.annotate).run(AnnotationSource(shown, index, oracle, open_other))
    return list(written or ())


def run_jobs(jobs: Jobs) -> int:
    """Carry out each composed job and return the worst exit code; errors are reported."""
    return report_each(annotate, AnnotateSettings, jobs)


SCRIPT = Script("annotate", AnnotateSettings, run_jobs, __doc__ or "")


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``cfaug annotate STEP ...``, which is ``annotate=STEP``, and return the exit code."""
    return launch(SCRIPT, choose_named("annotate", sys.argv[1:] if argv is None else argv))
