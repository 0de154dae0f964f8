"""``generate.py export.*=...``: complete shards in other formats, each whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from cfaug.core.atomic_files import write_json
from cfaug.core.errors import UserError, Verbosity, say
from cfaug.core.outputs import check_output, check_output_folder
from cfaug.core.processes import hold_lock
from cfaug.core.safety.json_text import json_file
from cfaug.core.safety.safe_loading import read_json
from cfaug.core.stores import shown
from cfaug.core.validation import Node
from cfaug.core.weights import sha256_text
from cfaug.generate.folder import WORK
from cfaug.generate.recipe import IN_IMAGES
from cfaug.planning.build import build
from cfaug.settings.read_if import GIVEN, Condition, ReadIf

FORMATS = ("hub", "clip_benchmark", "questions", "lmms_eval", "vlmevalkit", "fiftyone")
"""The exports, by the names of their settings."""
RECORD = "exports.json"
"""What was exported of a folder of shards: {name and place: hash of its content}."""


IN_HUB: Condition = {**IN_IMAGES, "hub": GIVEN}


class ExportSettings(TypedDict):
    """The exports of complete shards, and details that only the publisher knows."""

    hub: str | None
    """an empty folder for parquet, dataset card and datasheet, as the Hub holds them"""
    layout: Annotated[Literal["pairs", "members", "grid"] | None, ReadIf(IN_HUB)]
    """with ``hub``: pairs, members, or grid, which has the columns of SocialCounterfactuals (two
    attributes); null: as the sets are"""
    croissant: Annotated[str | None, ReadIf(IN_HUB)]
    """with ``hub``: a new file of Croissant metadata (JSON-LD) about it"""
    clip_benchmark: str | None
    """an empty folder for the retrieval set that CLIP_benchmark reads"""
    questions: str | None
    """for a recipe of questions: an empty folder for questions.jsonl and its images"""
    lmms_eval: str | None
    """an empty folder TASK for a task of lmms-eval: questions, or pairs of images"""
    vlmevalkit: str | None
    """a new file NAME.tsv: the same for VLMEvalKit"""
    fiftyone: str | None
    """an empty folder for a data set that FiftyOne opens, a sample for each member"""
    verified: Annotated[
        str | None,
        ReadIf(
            {**IN_IMAGES, "questions": GIVEN},
            {**IN_IMAGES, "lmms_eval": GIVEN},
            {**IN_IMAGES, "vlmevalkit": GIVEN},
        ),
    ]
    """people's verdicts about questions (labels.jsonl of ``cfaug annotate read``); only
    questions found good are exported"""
    about: Annotated[
        Node, ReadIf(IN_HUB), ReadIf({**IN_HUB, "croissant": GIVEN}, of="url published")
    ]
    """details that only the publisher knows"""


def check_exports(folder: Path, export: Mapping[str, Any], *, overwrite: bool) -> None:
    """Refuse places of exports that hold anything else, before anything is made.

    Args:
        folder: the folder of shards, which need not exist yet.
        overwrite: whether exports of other shards are replaced as well.
    """
    places, metadata = _places(export), _metadata_elsewhere(export)
    named = {"paths.shards": folder} | {f"export.{name}": path for name, path in places.items()}
    if metadata is not None:
        named["export.croissant"] = metadata
    resolved = ((name, path.resolve()) for name, path in named.items())
    for (first, outer), (second, inner) in combinations(resolved, 2):
        shards = first == "paths.shards"  # an export may lie in the folder of its shards
        inside = inner.is_relative_to(outer) and not shards
        if outer == inner or outer.is_relative_to(inner) or inside:
            raise UserError(
                f"{first}={named[first]} and {second}={named[second]}: one would lie in the "
                "other; name a place of its own for each"
            )
    known = _read_record(folder)
    for name, path in places.items():
        if _key(name, path) not in known:  # of a known one, its content decides what is done
            _check_place(name, path, metadata, replace=overwrite)


def _check_place(name: str, path: Path, metadata: Path | None, *, replace: bool) -> None:
    from cfaug.data.export.dataset_card import CROISSANT
    from cfaug.data.export.evaluators import LMMS_EVAL, VLMEVALKIT
    from cfaug.data.export.fiftyone import FIFTYONE
    from cfaug.data.export.hub import CLIP, HUB, QUESTION_FORMAT

    kinds = {
        "hub": HUB,
        "clip_benchmark": CLIP,
        "questions": QUESTION_FORMAT,
        "lmms_eval": LMMS_EVAL,
        "fiftyone": FIFTYONE,
    }
    if name in kinds:
        check_output_folder(path, kinds[name], f"export.{name}", replace=replace)
    else:
        for file in (path, path.with_suffix(".py")):
            check_output(file, VLMEVALKIT, f"export.{name}", replace=replace)
    if name == "hub" and metadata is not None:
        check_output(metadata, CROISSANT, "export.croissant", replace=replace)


def _metadata_elsewhere(export: Mapping[str, Any]) -> Path | None:
    """Return the file of Croissant metadata, unless it lies in the export that it describes."""
    from cfaug.data.export.hub import croissant_place

    if export["croissant"] is None or export["hub"] is None:
        return None
    file = Path(export["croissant"]).expanduser()
    return file if croissant_place(Path(export["hub"]), file) is None else None


def write_exports(folder: Path, export: Mapping[str, Any], *, overwrite: bool = False) -> None:
    """Write shards in the requested formats, if all of them are there.

    One process at a time exports a folder of shards; what another one wrote meanwhile is done.

    Args:
        overwrite: whether exports of other shards are replaced as well.
    """
    places, metadata = _places(export), _metadata_elsewhere(export)
    if not places:
        return
    card = json_file(folder / "card.json")
    if len(card["shards"]) != card["of"]:
        say(f"{shown(folder)} is not complete: the part that completes it writes the exports")
        return
    from cfaug.data import export as formats
    from cfaug.data.shards.shards import read_chosen, read_sets

    verdicts: dict[str, bool] = {}  # of the majority, by ``<set>_<member>``
    if export["verified"] is not None:
        from cfaug.annotation.question import ANSWERS, GOOD
        from cfaug.annotation.record import read_human_answers

        people = read_human_answers(export["verified"], ANSWERS)
        members = {
            f"{counterfactual.key}_{i}"
            for counterfactual in read_sets(folder)
            for i in range(len(counterfactual.members))
        }
        people.check_images(members, str(folder))
        verdicts = {name: label == GOOD for name, label in people.labels.items()}
    how = {key: value for key, value in export.items() if key not in FORMATS}
    content = json.dumps([card, sorted(read_chosen(folder) or ()), how, verdicts], sort_keys=True)
    made = sha256_text(content)
    (folder / WORK).mkdir(exist_ok=True)
    with hold_lock(folder / WORK / "exports.lock"):
        for name, path in places.items():
            known, key = _read_record(folder), _key(name, path)
            is_there = path.is_file() or (path.is_dir() and any(path.iterdir()))
            if is_there and known.get(key) == made:
                say(f"nothing to do: {path} is written")
                continue
            again = overwrite or key in known
            _check_place(name, path, metadata, replace=again)
            # Its beginning is noted, so that the same command replaces what a killed one left.
            write_json(folder / WORK / RECORD, {**known, key: ""})
            sets = read_sets(folder)
            if name == "hub":
                croissant = None if export["croissant"] is None else Path(export["croissant"])
                formats.export_hub(
                    sets, path, build(export["about"]), layout=export["layout"],
                    croissant=croissant, replace=again,
                )  # fmt: skip
            elif name == "clip_benchmark":
                formats.export_clip_benchmark(sets, path, replace=again)
            elif name == "questions":
                formats.export_questions(sets, path, verdicts, replace=again)
            elif name == "lmms_eval":
                task = formats.export_lmms_eval(sets, path, verdicts, replace=again)
                command = f"python -m lmms_eval --include_path {path} --tasks {task} --model MODEL"
                say(f"{path} is asked by: {command}")
            elif name == "fiftyone":
                formats.export_fiftyone(sets, path, replace=again)
            else:
                formats.export_vlmevalkit(lambda: read_sets(folder), path, verdicts, replace=again)
            say(f"wrote {path}", level=Verbosity.QUIET)
            write_json(folder / WORK / RECORD, {**known, key: made})


def _places(export: Mapping[str, Any]) -> dict[str, Path]:
    """Return the places of the requested exports by the names of their settings."""
    return {name: Path(export[name]).expanduser() for name in FORMATS if export[name] is not None}


def _key(name: str, path: Path) -> str:
    return f"{name} {path.absolute()}"


def _read_record(folder: Path) -> dict[str, str]:
    """Return the hashes of the content of exports that were begun, empty until they are written."""
    file = folder / WORK / RECORD
    known: dict[str, str] = (read_json(file) if file.exists() else None) or {}
    return known
