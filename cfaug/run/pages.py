"""Pages and exports made from complete shards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.messages import say
from cfaug.generate.pipeline import Pipeline
from cfaug.run.build import build


def write_pages(folder: Path, title: str, pipeline: Pipeline | None) -> None:
    """Write gallery and scores when every shard is complete, after the last part.

    Args:
        folder: the folder of the shards.
        title: the title of the gallery.
        pipeline: the pipeline that made the shards; ``None`` after a stage that makes no shards.
    """
    card = _card(folder)
    if pipeline is not None and _is_complete(card):
        _write_images(folder, card, title, pipeline)


def _card(folder: Path) -> dict[str, Any]:
    card: dict[str, Any] = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    return card


def _is_complete(card: Mapping[str, Any]) -> bool:
    return len(card["shards"]) == card["of"]


def _is_newer(page: Path, *sources: Path) -> bool:
    """Return whether a page is newer than everything that it shows."""
    written = page.stat().st_mtime_ns if page.exists() else 0
    return all(source.stat().st_mtime_ns < written for source in sources)


def _write_images(folder: Path, card: Mapping[str, Any], title: str, pipeline: Pipeline) -> None:
    from cfaug.data.shards.shards import read_sets
    from cfaug.report.candidates import write_candidates
    from cfaug.report.gallery import write_gallery

    page, commits = folder / "gallery.html", list(folder.glob("[0-9]*.json"))
    if card["candidates"] and not _is_newer(folder / "candidates.svg", *commits):
        meanings = {
            name: meaning
            for scorer in pipeline.scorers.values()
            for name, meaning in getattr(
                scorer, "meanings", dict.fromkeys(scorer.names, "")
            ).items()
        }
        say(f"wrote {write_candidates(folder, meanings, pipeline.select.minimum)}")
    if card["sets"] and not _is_newer(page, *commits):
        say(f"wrote {write_gallery(read_sets(folder), page, title=title)}")


def _verdicts(file: str | None, folder: Path) -> dict[str, bool]:
    """Return the majority verdicts of people about questions, by ``<set>_<member>``.

    Raises:
        UserError: if the file cannot be read, or names questions that no set has.
    """
    if file is None:
        return {}
    from cfaug.annotation.human_answers import read_human_answers
    from cfaug.annotation.question_review import ANSWERS, GOOD
    from cfaug.data.shards.shards import read_sets

    found = read_human_answers(file, ANSWERS)
    names = {f"{one.key}_{i}" for one in read_sets(folder) for i in range(len(one.members))}
    found.check_images(names, str(folder))
    return {name: label == GOOD for name, label in found.labels.items()}


def write_exports(folder: Path, export: Mapping[str, Any]) -> None:
    """Write complete shards in the requested formats.

    Raises:
        UserError: if a part is not complete yet, or an output folder is not empty.
    """
    if all(export[name] is None for name in ("hub", "clip_benchmark", "questions")):
        return
    if not _is_complete(_card(folder)):
        raise UserError(f"{folder} is not complete: export when the last part is done")
    from cfaug.data.export import export_clip_benchmark, export_hub, export_questions
    from cfaug.data.shards.shards import read_sets

    if export["hub"] is not None:
        about, layout = build(export["about"]), export["layout"]
        export_hub(read_sets(folder), Path(export["hub"]), about, layout=layout)
        say(f"wrote {export['hub']}")
    if export["clip_benchmark"] is not None:
        export_clip_benchmark(read_sets(folder), Path(export["clip_benchmark"]))
        say(f"wrote {export['clip_benchmark']}")
    if export["questions"] is not None:
        export_questions(
            read_sets(folder), export["questions"], _verdicts(export["verified"], folder)
        )
        say(f"wrote {export['questions']}")
