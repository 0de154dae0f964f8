"""Question sets as JSONL with their images: ``questions.jsonl`` and ``images/``.

The format is that of ``cfaug.data.sources.question_sets.rows``, which reads it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.files import write_file
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
from cfaug.core.types import CounterfactualSet
from cfaug.data.export.dataset_card import empty_folder
from cfaug.data.shards.codec import image_extension

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
