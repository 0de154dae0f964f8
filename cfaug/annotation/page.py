"""The pages people answer on: one file, offline, that keeps answers and gives them back as jsonl.

The question is the paper's, word for word (COCO-CFs, figure 4). Nothing in a caption is ever read
as markup: the script sets text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cfaug.annotation.assignment import (
    BOTH,
    COUNTERFACTUAL,
    NEITHER,
    ORIGINAL,
    Assignment,
    Item,
)
from cfaug.errors import UserError
from cfaug.pixels import decode_image
from cfaug.progress import watch
from cfaug.report.page import render, script_data, small_picture, write_page

QUESTION = (
    "Select the caption which best describes the image. In cases where both captions are valid "
    "for the image, please try to pick the one which is more descriptive or detailed. If both "
    "captions are valid and describe the image equally well, select “Both”. If neither of the "
    "captions accurately describe the image, select “Neither”."
)
"""COCO-CFs, figure 4."""

WHY = (
    "People did not match the marked image to its own caption. Select the category that describes "
    "the cause best."
)

CATEGORIES: Mapping[str, str] = {
    "subject": "Failure to generate subject/object",
    "details": "Failure to generate fine-grained details",
    "hyponymy": "Hyponymy relationship between altered subjects",
    "annotation": "Human annotation error",
    "spatial": "Failure to accurately depict spatial relationships",
    "count": "Failure to generate correct number of objects",
    "both_present": "Both altered subjects are present in the image",
    "attribute": "Failure to bind attribute",
}
"""The paper's categories of errors, the most frequent first (COCO-CFs, Table 7)."""

DIFFUSION = ("subject", "details", "spatial", "count", "attribute")
"""Those that are known limits of text-to-image diffusion models (COCO-CFs, A.3.1)."""

MAX_PAGE = 300 * 2**20
"""Bytes of a page that browsers still open without trouble."""

SIDES = (32, 1024)


@dataclass(frozen=True)
class Task:
    """One question: the pictures to show, which of them it is about, what may be answered.

    Attributes:
        item: the image it is about.
        shown: members of the pair whose pictures are shown.
        options: (answer, text) of its own, above those of the page.
        note: a line below the pictures.
    """

    item: Item
    shown: tuple[int, ...]
    options: tuple[tuple[str, str], ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Questions:
    """What a page asks, whoever answers.

    Attributes:
        title: what the page is called.
        question: how it is put.
        field: what an answer is called in the jsonl: ``label`` or ``category``.
        options: (answer, text) of every task, below its own.
        tasks: in any order.
        orders: for each annotator, (task, whether its own options change places) in order.
    """

    title: str
    question: str
    field: str
    options: tuple[tuple[str, str], ...]
    tasks: tuple[Task, ...]
    orders: Mapping[str, Sequence[tuple[int, bool]]]

    @property
    def hash(self) -> str:
        """Return what the browser keeps its answers under: they fit these questions only."""
        asked = [(t.item.name, t.item.texts, t.options) for t in self.tasks]
        text = json.dumps([self.field, self.options, asked], ensure_ascii=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def which_caption(items: Sequence[Item], plan: Assignment, title: str) -> Questions:
    """Return the paper's question for every image, shared out as planned."""
    return Questions(
        title=title,
        question=QUESTION,
        field="label",
        options=((BOTH, "Both"), (NEITHER, "Neither")),
        tasks=tuple(
            Task(
                item,
                (item.member,),
                tuple(zip((ORIGINAL, COUNTERFACTUAL), item.texts, strict=True)),
            )
            for item in items
        ),
        orders={
            str(who): [(i, plan.swapped(who, items[i])) for i in own]
            for who, own in enumerate(plan.shared(items), 1)
        },
    )


def why_wrong(errors: Sequence[tuple[Item, str]], title: str) -> Questions:
    """Return the question that sorts errors into the paper's categories (COCO-CFs, A.3.1).

    Args:
        errors: images that people did not match to their caption, and what they said instead.
        title: what the page is called.
    """
    return Questions(
        title=title,
        question=WHY,
        field="category",
        options=tuple(CATEGORIES.items()),
        tasks=tuple(Task(item, (0, 1), note=said) for item, said in errors),
        orders={"1": [(i, False) for i in range(len(errors))]},
    )


def write_questions(
    questions: Questions,
    file: Path,
    read_image: Callable[[int], bytes],
    *,
    side: int = 256,
    annotators: Iterable[str] | None = None,
) -> Path:
    """Write one page and return its path; the same questions give the same bytes.

    Args:
        questions: what is asked.
        file: where to; its folder is made if missing.
        read_image: gives the encoded image of a source's row.
        side: longest side of the pictures.
        annotators: who answers on this page; the page asks them who they are. ``None`` is all.

    Raises:
        UserError: if there is nothing to ask, a picture cannot be decoded, or the page would be
            too large to open.
    """
    if type(side) is not int or not SIDES[0] <= side <= SIDES[1]:
        raise UserError(f"annotate.side={side}: choose from {SIDES[0]} to {SIDES[1]} pixels")
    people = list(questions.orders if annotators is None else annotators)
    used = sorted({task for who in people for task, _ in questions.orders[who]})
    if not used:
        raise UserError(f"there is nothing to ask in {file}: no image is left for these settings")
    place = {task: i for i, task in enumerate(used)}
    tasks = [questions.tasks[i] for i in used]
    names = {row: name for task in tasks for row, name in _rows(task).items()}
    pictures = _pictures(names, read_image, side, file)
    numbers = {row: number for number, row in enumerate(names)}
    data = {
        "plan": questions.hash,
        "field": questions.field,
        "options": questions.options,
        "tasks": [_task(task, numbers) for task in tasks],
        "pictures": pictures,
        "people": {
            who: [[place[task], int(swap)] for task, swap in questions.orders[who]]
            for who in people
        },
    }
    text = render(
        "annotate.html",
        title=questions.title,
        question=questions.question,
        data=script_data(data),
    )
    return write_page(file, text)


def _rows(task: Task) -> dict[int, str]:
    """Return the rows whose pictures a task shows, and what they are called."""
    first = task.item.row - task.item.member
    return {first + member: f"{task.item.key}_{member}" for member in task.shown}


def _pictures(
    names: Mapping[int, str], read_image: Callable[[int], bytes], side: int, file: Path
) -> list[dict[str, Any]]:
    """Return small copies of rows' images, on every core, with a bar if there are many."""

    def small(row: int) -> dict[str, Any]:
        return small_picture(decode_image(read_image(row), names[row]), side)

    found: list[dict[str, Any]] = []
    size = 0
    # Pillow lets go of the interpreter while it decodes, shrinks and encodes.
    with ThreadPoolExecutor() as pool:
        try:
            pictures = pool.map(small, names)
            for picture in watch(pictures, f"pictures of {file.name}", len(names), "images"):
                found.append(picture)
                size += len(picture["i"])
                if size > MAX_PAGE:
                    raise UserError(_too_large(file, len(found), len(names)))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return found


def _too_large(file: Path, done: int, total: int) -> str:
    return (
        f"{file}: the page would hold more than {MAX_PAGE / 2**20:.0f} MiB of pictures, that is "
        f"{done:,} of {total:,}; write a page for each annotator (annotate.pages=each) and have "
        "more of them, choose a smaller annotate.side, or ask about an annotate.sample"
    )


def _task(task: Task, numbers: Mapping[int, int]) -> dict[str, Any]:
    """Return a task as the script reads it.

    k key, m member, h hash of its captions, p pictures, c captions below them, s which of them it
    is about, o own options, n note.
    """
    item = task.item
    found: dict[str, Any] = {
        "k": item.key,
        "m": item.member,
        "h": item.texts_hash,
        "p": [numbers[row] for row in _rows(task)],
        "o": task.options,
    }
    if len(task.shown) > 1:
        found |= {"c": [item.texts[member] for member in task.shown],
                  "s": task.shown.index(item.member)}  # fmt: skip
    return found | ({"n": task.note} if task.note else {})
