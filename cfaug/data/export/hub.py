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
from typing import Any, Literal, get_args

from cfaug.core.errors import UserError
from cfaug.core.files import replace_file, write_file
from cfaug.core.grids import ATTRIBUTES, GRID
from cfaug.core.questions import (
    BASIC,
    CATEGORY,
    COUNTERFACTUAL,
    NO_OPTION,
    QUESTION,
    VERIFIED,
    AskedImage,
    AskedQuestion,
    question_of,
)
from cfaug.core.questions import QUESTIONS as OF_EXAMPLE
from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.export.dataset_card import (
    Facts,
    PublisherStatements,
    caution_lines,
    draw,
    empty_folder,
    write_card,
)
from cfaug.data.shards.codec import describe_member, image_extension

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
) -> Facts:
    """Write ``data/SPLIT-NNNNN-of-NNNNN.parquet``, ``README.md`` and ``DATASHEET.md``.

    Sets are written as a stream; at most ``ROWS_PER_GROUP`` rows are in memory. The same sets give
    the same bytes. The scores of the first set get columns; other scores of later sets are in
    ``about``, which has everything.

    Args:
        folder: the folder to write to, which must be empty or missing.
        about: the statements that only the publisher can make.
        layout: ``pairs``, ``members`` or ``grid``; ``None`` is pairs if the first set is one, else
            members.

    Returns:
        The facts that were counted during the export.
    """
    if layout not in (None, *get_args(Layout)):
        raise UserError(f"layout={layout} is invalid: choose {', '.join(get_args(Layout))} or null")
    folder = empty_folder(folder)
    stream = iter(sets)
    first = next(stream, None)
    if first is None:
        raise UserError(f"there is nothing to export to {folder}")
    if layout is None:
        layout = "pairs" if len(first.members) == 2 else "members"
    facts = Facts()
    rows = _rows(facts.count_all(chain([first], stream)), layout)
    reserved = columns(layout, ())
    found = columns(layout, [name for name in first.scores if name not in reserved])
    (folder / "data").mkdir()
    _write_files(rows, folder / "data", split, found)
    write_card(folder, about, facts, found, split)
    return facts


def _rows(sets: Iterable[CounterfactualSet], layout: Layout) -> Iterator[dict[str, Any]]:
    for counterfactual in sets:
        if layout != "pairs":
            row = _member_row if layout == "members" else _grid_row
            yield from (row(counterfactual, i) for i in range(len(counterfactual.members)))
        elif len(counterfactual.members) == 2:
            yield _pair_row(counterfactual)
        else:
            raise UserError(
                f"set {counterfactual.key!r} has {len(counterfactual.members)} members, so it "
                "is not a pair: use layout='members'"
            )


def _pair_row(counterfactual: CounterfactualSet) -> dict[str, Any]:
    row = _common(counterfactual, counterfactual.members[1])
    for i, member in enumerate(counterfactual.members):
        row |= {f"image_{i}": _image(counterfactual, i), f"caption_{i}": member.text}
    return row | {"about": _json(_rest(counterfactual, counterfactual.members))}


def _member_row(counterfactual: CounterfactualSet, i: int) -> dict[str, Any]:
    member = counterfactual.members[i]
    # Only the first row has the facts about the whole set; the others would repeat them.
    rest = _json(_rest(counterfactual, counterfactual.members) if i == 0 else {})
    row = _common(counterfactual, member) | {
        "member": i,
        "image": _image(counterfactual, i),
        "caption": member.text,
    }
    return row | {"about": rest}


def _grid_row(counterfactual: CounterfactualSet, i: int) -> dict[str, Any]:
    member = counterfactual.members[i]
    attributes = member.extra.get(ATTRIBUTES)
    if not isinstance(attributes, Mapping) or len(attributes) != 2 or not member.extra.get(GRID):
        raise UserError(
            f"set {counterfactual.key!r}, member {i}: SocialCounterfactuals has grids of two "
            f"attributes; this member says {attributes!r} of its attributes: use layout='members'"
        )
    rest = (
        {"group": counterfactual.group, **_rest(counterfactual, counterfactual.members)}
        if i == 0
        else {}
    )
    (first, second), values = attributes, [str(value) for value in attributes.values()]
    cells = (
        str(member.extra[GRID]), first, second, counterfactual.key, member.text, *values,
        " ".join(values),
    )  # fmt: skip
    row = dict(zip(GRID_COLUMNS, cells, strict=True))
    return row | {"image": _image(counterfactual, i), "about": _json({"member": i, **rest})}


def _common(counterfactual: CounterfactualSet, edited: Member) -> dict[str, Any]:
    edit = {} if edited.edit is None else asdict(edited.edit)
    found = draw(counterfactual)
    seed = {} if found.get("seed") is None else {"seed": str(found["seed"])}
    numbers = {**counterfactual.scores, **{name: found.get(name) for name in ("p", "cfg")}}
    return (
        {name: float(v) for name, v in numbers.items() if isinstance(v, int | float)}
        | {"id": counterfactual.key, "group": counterfactual.group}
        | {f"edit_{name}": value for name, value in edit.items()}
        | seed  # text, because 64 bits do not fit every reader's numbers
    )


def _rest(counterfactual: CounterfactualSet, members: Iterable[Member]) -> dict[str, Any]:
    return {
        "members": [describe_member(member) for member in members],
        "scores": dict(counterfactual.scores),
        "provenance": dict(counterfactual.provenance),
    }


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)


def _image(counterfactual: CounterfactualSet, i: int) -> dict[str, Any]:
    data = counterfactual.images[counterfactual.members[i].image_name]
    name = f"{counterfactual.key}_{i}"
    return {"bytes": data, "path": f"{name}.{image_extension(data, name)}"}


def _schema(found: Mapping[str, str]) -> Any:
    """Return the Arrow schema, with the metadata about features that ``datasets`` reads."""
    import pyarrow as pa

    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    fields = [(n, image if kind == "image" else getattr(pa, kind)()) for n, kind in found.items()]
    features = {
        name: {"_type": "Image"} if kind == "image" else {"dtype": kind, "_type": "Value"}
        for name, kind in found.items()
    }
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return pa.schema(fields, metadata=metadata)


def _write_files(
    rows: Iterator[dict[str, Any]], folder: Path, split: str, found: Mapping[str, str]
) -> None:
    """Write files of about ``BYTES_PER_FILE``, named last: each name has the number of files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, written = _schema(found), list[Path]()
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
Sample = list[tuple[str, bytes]]


def export_clip_benchmark(
    sets: Iterable[CounterfactualSet], folder: Path, *, split: str = "test"
) -> dict[str, int]:
    """Write every image with its captions; return the numbers of images, captions and shards.

    Members that share an image become its captions. The images of a set are adjacent, so that the
    hardest wrong answer is always in the same test.
    """
    folder = empty_folder(folder)
    here = folder / split
    here.mkdir()
    facts = Facts()
    samples, images, captions, shards = _samples(facts.count_all(sets)), 0, 0, 0
    while True:
        first = next(samples, None)
        if first is None:
            break
        with (
            replace_file(here / f"{shards}.tar") as handle,
            tarfile.open(fileobj=handle, mode="w", format=tarfile.GNU_FORMAT) as tar,
        ):
            for sample in _with(first, islice(samples, IMAGES_PER_SHARD - 1)):
                images += 1
                for name, content in sample:
                    captions += content.count(b"\n") + 1 if name.endswith(".txt") else 0
                    entry = tarfile.TarInfo(name)
                    entry.size, entry.mode = len(content), 0o644
                    tar.addfile(entry, io.BytesIO(content))
        shards += 1
    if not shards:
        raise UserError(f"there is nothing to export to {folder}")
    if facts.grids:
        lines = "\n".join(caution_lines(facts.attributes, facts.grids))
        (folder / "README.md").write_text(lines, encoding="utf-8")
    (folder / "dataset_type.txt").write_text("retrieval\n", encoding="utf-8")
    # Last: it makes the split exist.
    (here / "nshards.txt").write_text(f"{shards}\n", encoding="utf-8")
    return {"images": images, "captions": captions, "shards": shards}


def _with(first: Sample, rest: Iterator[Sample]) -> Iterator[Sample]:
    yield first
    yield from rest


def _samples(sets: Iterable[CounterfactualSet]) -> Iterator[Sample]:
    for counterfactual in sets:
        texts: dict[str, list[str]] = {}
        for member in counterfactual.members:
            # One line each: split() removes every line break that CLIP_benchmark's splitlines()
            # finds.
            texts.setdefault(member.image_name, []).append(" ".join(member.text.split()))
        for number, (image, lines) in enumerate(texts.items()):
            key, data = f"{counterfactual.key}_{number}", counterfactual.images[image]
            yield [
                (f"{key}.{image_extension(data, key)}", data),
                (f"{key}.txt", "\n".join(lines).encode()),
                (
                    f"{key}.json",
                    json.dumps(
                        {"group": counterfactual.group, "from_set": counterfactual.key}
                    ).encode(),
                ),
            ]


# Question sets as JSONL with their images: ``questions.jsonl`` and ``images/``.
#
# The format is that of ``cfaug.data.sources.question_sets.rows``, which reads it.

QUESTIONS, IMAGES = "questions.jsonl", "images"
"""Names of the list and of the folder of images."""
USED = (CATEGORY, QUESTION, OF_EXAMPLE)
"""Names in a member's ``extra`` that have columns of their own; others are kept unchanged."""


def write_questions(images: Iterable[AskedImage], folder: Path | str) -> int:
    """Write images, each with a basic question and counterfactual ones; return their number.

    The same images give the same bytes; an image that several entries share is written once.

    Args:
        folder: an empty or missing folder.
    """
    return _write(((image, _read_image(image)) for image in images), Path(folder))


def export_questions(
    sets: Iterable[CounterfactualSet],
    folder: Path | str,
    verdicts: Mapping[str, bool] | None = None,
) -> int:
    """Write the questions that are the members of sets, as a recipe makes them.

    Args:
        sets: the sets; the members of each are questions about one image.
        folder: an empty or missing folder.
        verdicts: people's judgements, ``{<set>_<member>: good or not}``. A good question is marked
            verified and any other judged one is left out, as is an image without a remaining
            counterfactual question; questions without a judgement stay as they are, and unknown
            names are ignored.

    Returns:
        The number of images that were written.
    """
    return _write(_judged(sets, verdicts or {}), Path(folder))


def _judged(
    sets: Iterable[CounterfactualSet], verdicts: Mapping[str, bool]
) -> Iterator[tuple[AskedImage, bytes]]:
    """Yield each set without the questions that people rejected."""
    for counterfactual in sets:
        asked = asked_of(counterfactual)
        left = []
        for number, question in enumerate(asked.questions):
            good = verdicts.get(f"{counterfactual.key}_{number}")
            if good is not False:
                extra = {**question.extra, VERIFIED: True} if good else question.extra
                left.append(replace(question, extra=extra))
        kinds = {question.kind for question in left}
        if {BASIC, COUNTERFACTUAL} <= kinds:
            yield replace(asked, questions=tuple(left)), _image_of(counterfactual)


def asked_of(one: CounterfactualSet) -> AskedImage:
    """Return a set of questions as an entry of a question set, without its image."""
    first = one.members[0].extra
    return AskedImage(
        key=one.key,
        group=one.group,
        image=None,
        category=str(first.get(CATEGORY, "")),
        questions=tuple(
            question_of(member.text, member.extra.get(QUESTION), f"set {one.key!r}")
            for member in one.members
        ),
        extra={name: value for name, value in first.items() if name not in USED},
    )


def _image_of(counterfactual: CounterfactualSet) -> bytes:
    names = {member.image_name for member in counterfactual.members}
    if len(names) > 1:
        raise UserError(
            f"set {counterfactual.key!r}: its members are not questions about one image"
        )
    return counterfactual.images[names.pop()]


def _read_image(image: AskedImage) -> bytes:
    if image.image is None:
        raise UserError(f"{image.key!r} has no image: questions are written with images only")
    return image.image.read()


def _write(entries: Iterable[tuple[AskedImage, bytes]], folder: Path) -> int:
    folder = empty_folder(folder)
    (folder / IMAGES).mkdir()
    lines: list[str] = []
    written: set[str] = set()
    for one, data in entries:
        extension = image_extension(data, f"the image of {one.key!r}")
        content = hashlib.blake2b(data, digest_size=16).hexdigest()
        name = f"{IMAGES}/{content}.{extension}"
        if name not in written:
            write_file(folder / name, data)
            written.add(name)
        lines.append(json.dumps(_record(one, name), ensure_ascii=False) + "\n")
    if not lines:
        raise UserError(f"there is no question to write to {folder}")
    write_file(folder / QUESTIONS, "".join(lines).encode())
    return len(lines)


def _record(one: AskedImage, image: str) -> dict[str, Any]:
    basic, further = one.of_kind(BASIC), one.of_kind(COUNTERFACTUAL)
    if len(basic) != 1 or 1 + len(further) != len(one.questions):
        kinds = ", ".join(question.kind for question in one.questions)
        raise UserError(
            f"{one.key!r} has questions of the kinds {kinds}: only one basic question and "
            "counterfactual ones are written"
        )
    return {
        "id": one.key, "image": image, "group": one.group, "category": one.category,
        **one.extra,
        "basic": _question(basic[0]),
        "counterfactuals": [_question(question) for question in further],
    }  # fmt: skip


def _question(question: AskedQuestion) -> dict[str, Any]:
    extra = dict(question.extra)
    answer: Any = question.answer
    if answer == NO_OPTION and isinstance(extra.get("answer"), str):
        answer = extra["answer"]  # is read back as an empty option
    extra.pop("answer", None)
    return {"q": question.text, "options": list(question.options), "answer": answer, **extra}
