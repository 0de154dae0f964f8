"""Exports: parquet for the Hugging Face Hub with a card and a datasheet, and question sets.

A pair is a row, as in COCO-Counterfactuals: image_0, image_1, caption_0, caption_1. Larger sets
have a row for each member; grids of two attributes, on request, the columns of
SocialCounterfactuals. Everything without its own column is JSON in ``about``, so that importing an
export restores equal sets.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, cast, get_args

from cfaug.core.atomic_files import replace_file, write_file
from cfaug.core.errors import UserError, say
from cfaug.core.outputs import check_output, check_output_folder, output_folder
from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.export.dataset_card import (
    CROISSANT,
    Facts,
    PublisherStatements,
    caution_lines,
    draw,
    write_card,
    write_croissant,
)
from cfaug.data.grids import ATTRIBUTES, GRID
from cfaug.data.questions import (
    BASIC,
    CATEGORY,
    COUNTERFACTUAL,
    NO_OPTION,
    QUESTION,
    VERIFIED,
    QuestionImage,
    SourceQuestion,
    question_of,
)
from cfaug.data.questions import QUESTIONS as OF_EXAMPLE
from cfaug.data.shards.codec import describe_member, image_extension

HUB, CLIP, QUESTION_FORMAT = (
    "an export for the Hub",
    "an export for CLIP_benchmark",
    "a question set",
)
"""What the record of outputs calls the folders."""
ROWS_PER_GROUP = 100
"""Suits the Hub's viewer, which reads whole row groups of images."""
BYTES_PER_FILE = 500 * 2**20
Layout = Literal["pairs", "members", "grid"]
"""``grid``: the columns of SocialCounterfactuals, and ``about``."""
GRID_COLUMNS = (
    "dataset_segment", "a1_type", "a2_type", "counterfactual_set", "caption", "a1", "a2", "a1a2",
)  # fmt: skip


def columns(layout: Layout, scores: Iterable[str]) -> dict[str, str]:
    """Return the type of each column: ``image``, or a name that Arrow and ``datasets`` share."""
    if layout == "grid":
        return {"image": "image", **dict.fromkeys((*GRID_COLUMNS, "about"), "string")}
    edit = {f"edit_{name}": "string" for name in ("kind", "before", "after")}
    numbers = dict.fromkeys((*scores, "p", "cfg"), "float64")
    tail = edit | numbers | {"seed": "string", "about": "string"}
    head = {"id": "string", "group": "string"}
    if layout == "members":
        return head | {"member": "int32", "image": "image", "caption": "string"} | tail
    both = [
        (f"{n}_{i}", kind) for n, kind in (("image", "image"), ("caption", "string")) for i in "01"
    ]
    return head | dict(both) | tail


def export_hub(
    sets: Iterable[CounterfactualSet],
    folder: Path,
    about: PublisherStatements,
    *,
    split: str = "train",
    layout: Layout | None = None,
    croissant: Path | None = None,
    replace: bool = False,
) -> Facts:
    """Write ``data/SPLIT-NNNNN-of-NNNNN.parquet``, ``README.md`` and ``DATASHEET.md``.

    Sets are written as a stream; at most ``ROWS_PER_GROUP`` rows are in memory. The same sets give
    the same bytes. The scores of the first set get columns; other scores of later sets are in
    ``about``, which has everything.

    Args:
        layout: ``pairs``, ``members`` or ``grid``; ``None`` is pairs if the first set is one, else
            members.
        croissant: a file for Croissant metadata of the same; ``None`` writes none.
        replace: whether an export to the Hub that is there is replaced, if nobody changed it.

    Returns:
        The facts that were counted during the export.
    """
    folder = folder.expanduser()
    inside = croissant_place(folder, croissant)
    if croissant is not None and inside is None:
        check_output(croissant.expanduser(), CROISSANT, "export.croissant", replace=replace)
    if layout not in (None, *get_args(Layout)):
        raise UserError(
            f"export.layout={layout} is invalid: choose {', '.join(get_args(Layout))} or null"
        )
    check_output_folder(folder, HUB, "export.hub", replace=replace)
    stream = iter(sets)
    first = next(stream, None)
    if first is None:
        raise UserError(f"there is nothing to export to {folder}")
    if layout is None:
        layout = "pairs" if len(first.members) == 2 else "members"
    facts = Facts()
    rows = hub_rows(facts.count_all(chain([first], stream)), layout)
    reserved = columns(layout, ())
    kinds = columns(layout, [name for name in first.scores if name not in reserved])
    lacks: list[str] = []
    with output_folder(folder, HUB, "export.hub", replace=replace) as fresh:
        (fresh / "data").mkdir()
        write_parquet(rows, fresh / "data", split, kinds)
        write_card(fresh, about, facts, kinds, split)
        if inside is not None:
            lacks = write_croissant(fresh / inside, fresh, about, facts, kinds)
    if croissant is not None and inside is None:
        lacks = write_croissant(croissant, folder, about, facts, kinds)
    if lacks:
        settings = ", ".join(f"export.about.{name}" for name in lacks)
        say(f"{croissant}: catalogues also ask for {settings}")
    return facts


def croissant_place(folder: Path, croissant: Path | None) -> Path | None:
    """Return the path of the metadata within the export's folder; ``None`` if it is elsewhere."""
    if croissant is None:
        return None
    whole, file = folder.expanduser().absolute(), croissant.expanduser().absolute()
    return file.relative_to(whole) if file.is_relative_to(whole) else None


def hub_rows(sets: Iterable[CounterfactualSet], layout: Layout) -> Iterator[dict[str, Any]]:
    """Yield the rows of an export, {column: cell}."""
    for item in sets:
        rest = {
            "members": [describe_member(member) for member in item.members],
            "scores": dict(item.scores),
            "provenance": dict(item.provenance),
        }
        if layout == "pairs":
            if len(item.members) != 2:
                raise UserError(
                    f"set {item.key!r} has {len(item.members)} members, so it is not a pair: use "
                    "export.layout=members"
                )
            row = _common(item, item.members[1])
            for i, member in enumerate(item.members):
                row |= {f"image_{i}": _image(item, i), f"caption_{i}": member.text}
            yield row | {"about": _json(rest)}
            continue
        for i, member in enumerate(item.members):
            # Only the first row has the facts about the whole set; the others would repeat them.
            about = rest if i == 0 else {}
            if layout == "members":
                cells = {"member": i, "image": _image(item, i), "caption": member.text}
                yield _common(item, member) | cells | {"about": _json(about)}
                continue
            attributes = member.extra.get(ATTRIBUTES)
            named = isinstance(attributes, Mapping) and len(attributes) == 2
            if not isinstance(attributes, Mapping) or not named or not member.extra.get(GRID):
                raise UserError(
                    f"set {item.key!r}, member {i}: SocialCounterfactuals has grids of two "
                    f"attributes; this member says {attributes!r} of its attributes: use "
                    "export.layout=members"
                )
            (first, second), values = attributes, [str(value) for value in attributes.values()]
            texts = (
                str(member.extra[GRID]), first, second, item.key, member.text, *values,
                " ".join(values),
            )  # fmt: skip
            details = {"member": i, **({"group": item.group, **rest} if i == 0 else {})}
            row = dict(zip(GRID_COLUMNS, texts, strict=True))
            yield row | {"image": _image(item, i), "about": _json(details)}


def _common(counterfactual: CounterfactualSet, edited: Member) -> dict[str, Any]:
    edit = {} if edited.edit is None else asdict(edited.edit)
    drawn = draw(counterfactual)
    seed = {} if drawn.get("seed") is None else {"seed": str(drawn["seed"])}
    numbers = {**counterfactual.scores, **{name: drawn.get(name) for name in ("p", "cfg")}}
    return (
        {name: float(v) for name, v in numbers.items() if isinstance(v, int | float)}
        | {"id": counterfactual.key, "group": counterfactual.group}
        | {f"edit_{name}": value for name, value in edit.items()}
        | seed  # text, because 64 bits do not fit every reader's numbers
    )


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)


def _image(counterfactual: CounterfactualSet, i: int) -> dict[str, Any]:
    data = counterfactual.images[counterfactual.members[i].image_name]
    name = f"{counterfactual.key}_{i}"
    return {"bytes": data, "path": f"{name}.{image_extension(data, name)}"}


def write_parquet(
    rows: Iterator[dict[str, Any]], folder: Path, split: str, kinds: Mapping[str, str]
) -> None:
    """Write files of about ``BYTES_PER_FILE``, named last: each name has the number of files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    fields = [(n, image if kind == "image" else getattr(pa, kind)()) for n, kind in kinds.items()]
    features = {  # as ``datasets`` reads them
        name: {"_type": "Image"} if kind == "image" else {"dtype": kind, "_type": "Value"}
        for name, kind in kinds.items()
    }
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    schema, written = pa.schema(fields, metadata=metadata), list[Path]()
    batch: list[dict[str, Any]] = []
    writer = None
    try:
        for row in rows:
            if writer is None:
                written.append(folder / f"{len(written):05d}.tmp")
                writer = pq.ParquetWriter(written[-1], schema, write_statistics=False)
            batch.append(row)
            if len(batch) == ROWS_PER_GROUP:
                writer.write_table(pa.Table.from_pylist(batch, schema))
                batch = []
                if written[-1].stat().st_size >= BYTES_PER_FILE:
                    writer.close()
                    writer = None
        if batch and writer is not None:
            writer.write_table(pa.Table.from_pylist(batch, schema))
    finally:
        if writer is not None:
            writer.close()
    for number, file in enumerate(written):
        os.replace(file, folder / f"{split}-{number:05d}-of-{len(written):05d}.parquet")


IMAGES_PER_SHARD = 10_000


def export_clip_benchmark(
    sets: Iterable[CounterfactualSet],
    folder: Path,
    *,
    split: str = "test",
    replace: bool = False,
) -> dict[str, int]:
    """Write every image with its captions; return the numbers of images, captions and shards.

    Members that share an image become its captions. The images of a set are adjacent, so that the
    hardest wrong answer is always in the same test.

    Args:
        replace: whether an earlier export of this kind is replaced, if nobody changed it.
    """
    folder = folder.expanduser()
    with output_folder(folder, CLIP, "export.clip_benchmark", replace=replace) as fresh:
        counts = _write_clip_benchmark(sets, fresh, split)
        if not counts["shards"]:
            raise UserError(f"there is nothing to export to {folder}")
    return counts


def _write_clip_benchmark(
    sets: Iterable[CounterfactualSet], folder: Path, split: str
) -> dict[str, int]:
    here = folder / split
    here.mkdir()
    facts = Facts()
    images = captions = shards = 0

    def samples() -> Iterator[list[tuple[str, bytes]]]:
        for counterfactual in facts.count_all(sets):
            texts: dict[str, list[str]] = {}
            for member in counterfactual.members:
                # One line each: split() removes every line break that CLIP_benchmark's splitlines()
                # finds.
                texts.setdefault(member.image_name, []).append(" ".join(member.text.split()))
            about = json.dumps(
                {"group": counterfactual.group, "from_set": counterfactual.key}
            ).encode()
            for number, (image, lines) in enumerate(texts.items()):
                key, data = f"{counterfactual.key}_{number}", counterfactual.images[image]
                yield [
                    (f"{key}.{image_extension(data, key)}", data),
                    (f"{key}.txt", "\n".join(lines).encode()),
                    (f"{key}.json", about),
                ]

    stream = samples()
    for first in stream:
        with (
            replace_file(here / f"{shards}.tar") as handle,
            tarfile.open(fileobj=handle, mode="w", format=tarfile.GNU_FORMAT) as tar,
        ):
            for sample in chain([first], islice(stream, IMAGES_PER_SHARD - 1)):
                images += 1
                for name, content in sample:
                    captions += content.count(b"\n") + 1 if name.endswith(".txt") else 0
                    entry = tarfile.TarInfo(name)
                    entry.size, entry.mode = len(content), 0o644
                    tar.addfile(entry, io.BytesIO(content))
        shards += 1
    if facts.grids:
        lines = "\n".join(caution_lines(facts.attributes, facts.grids))
        (folder / "README.md").write_text(lines, encoding="utf-8")
    (folder / "dataset_type.txt").write_text("retrieval\n", encoding="utf-8")
    # Last: it makes the split exist.
    (here / "nshards.txt").write_text(f"{shards}\n", encoding="utf-8")
    return {"images": images, "captions": captions, "shards": shards}


# Question sets as JSONL with their images: ``questions.jsonl`` and ``images/``.
#
# The format is that of ``cfaug.data.sources.question_sets.rows``, which reads it.

QUESTIONS, IMAGES = "questions.jsonl", "images"
"""Names of the list and of the folder of images."""
USED = (CATEGORY, QUESTION, OF_EXAMPLE)
"""Names in a member's ``extra`` that have columns of their own; others are kept unchanged."""


def write_questions(images: Iterable[QuestionImage], folder: Path | str) -> int:
    """Write images, each with a basic question and counterfactual ones; return their number.

    The same images give the same bytes; an image that several entries share is written once. The
    folder must be new or empty.
    """

    def with_images() -> Iterator[tuple[QuestionImage, bytes]]:
        for image in images:
            if image.image is None:
                raise UserError(
                    f"{image.key!r} has no image: questions are written with images only"
                )
            yield image, image.image.read()

    return _write(with_images(), Path(folder), "out", replaces=False)


def export_questions(
    sets: Iterable[CounterfactualSet],
    folder: Path | str,
    verdicts: Mapping[str, bool] | None = None,
    *,
    replace: bool = False,
) -> int:
    """Write the questions that are the members of sets, as a recipe makes them.

    Args:
        sets: the sets; the members of each are questions about one image.
        verdicts: people's judgements, ``{<set>_<member>: good or not}``. A good question is marked
            verified and any other judged one is left out, as is an image without a remaining
            counterfactual question; questions without a judgement stay as they are, and unknown
            names are ignored.
        replace: whether an earlier export of this kind is replaced, if nobody changed it.

    Returns:
        The number of images that were written.
    """
    chosen = judged_questions(sets, verdicts)
    return _write(chosen, Path(folder), "export.questions", replaces=replace)


def judged_questions(
    sets: Iterable[CounterfactualSet], verdicts: Mapping[str, bool] | None = None
) -> Iterator[tuple[QuestionImage, bytes]]:
    """Yield the questions of each set that ``export_questions`` writes, and their image."""
    for counterfactual in sets:
        entry, left = entry_of(counterfactual), []
        for number, question in enumerate(entry.questions):
            good = (verdicts or {}).get(f"{counterfactual.key}_{number}")
            if good is not False:
                extra = {**question.extra, VERIFIED: True} if good else question.extra
                left.append(replace(question, extra=extra))
        if {BASIC, COUNTERFACTUAL} <= {question.kind for question in left}:
            names = {member.image_name for member in counterfactual.members}
            if len(names) > 1:
                raise UserError(
                    f"set {counterfactual.key!r}: its members are not questions about one image"
                )
            yield replace(entry, questions=tuple(left)), counterfactual.images[names.pop()]


def entry_of(counterfactual: CounterfactualSet) -> QuestionImage:
    """Return a set of questions as an entry of a question set, without its image."""
    first = counterfactual.members[0].extra
    return QuestionImage(
        key=counterfactual.key,
        group=counterfactual.group,
        image=None,
        category=str(first.get(CATEGORY, "")),
        questions=tuple(
            question_of(member.text, member.extra.get(QUESTION), f"set {counterfactual.key!r}")
            for member in counterfactual.members
        ),
        extra={name: value for name, value in first.items() if name not in USED},
    )


def _write(
    entries: Iterable[tuple[QuestionImage, bytes]], folder: Path, setting: str, *, replaces: bool
) -> int:
    def written_as(question: SourceQuestion) -> dict[str, Any]:
        extra, answer = dict(question.extra), cast("Any", question.answer)
        stated = extra.pop("answer", None)
        if answer == NO_OPTION and isinstance(stated, str):
            answer = stated  # is read back as an empty option
        return {"q": question.text, "options": list(question.options), "answer": answer, **extra}

    folder = folder.expanduser()
    lines: list[str] = []
    written: set[str] = set()
    with output_folder(folder, QUESTION_FORMAT, setting, replace=replaces) as fresh:
        (fresh / IMAGES).mkdir()
        for image, data in entries:
            extension = image_extension(data, f"the image of {image.key!r}")
            content = hashlib.blake2b(data, digest_size=16).hexdigest()
            name = f"{IMAGES}/{content}.{extension}"
            if name not in written:
                write_file(fresh / name, data)
                written.add(name)
            basic, further = image.of_kind(BASIC), image.of_kind(COUNTERFACTUAL)
            if len(basic) != 1 or 1 + len(further) != len(image.questions):
                kinds = ", ".join(question.kind for question in image.questions)
                raise UserError(
                    f"{image.key!r} has questions of the kinds {kinds}: only one basic question "
                    "and counterfactual ones are written"
                )
            record = {
                "id": image.key, "image": name, "group": image.group, "category": image.category,
                **image.extra,
                "basic": written_as(basic[0]),
                "counterfactuals": [written_as(question) for question in further],
            }  # fmt: skip
            lines.append(_json(record) + "\n")
        write_file(fresh / QUESTIONS, "".join(lines).encode())
        if not lines:
            raise UserError(f"there is no question to write to {folder}")
    return len(lines)
