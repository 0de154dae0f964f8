"""Pages for annotators: one offline file that stores answers and exports them as jsonl.

The script inserts questions and captions as text, so they are never read as markup.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cfaug.annotation.assignment import Assignment
from cfaug.annotation.question import AnnotationQuestion, ImageItem
from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.progress import watch
from cfaug.report.page import render, script_data, small_picture, write_page

MAX_PAGE = 300 * 2**20
"""Maximum size, in bytes, of a page that browsers open without trouble."""

SIDES = (32, 1024)


class PageQuestion(Protocol):
    """The question of a page about an image: a ``Question``, or a ``Form`` of several."""

    @property
    def text(self) -> str:
        """The text that people read first."""
        ...

    @property
    def captions(self) -> Sequence[str]:
        """Labels of the captions that are offered as answers; empty without such captions."""
        ...

    @property
    def balanced(self) -> bool:
        """Whether each annotator sees both orders of the captions equally often."""
        ...

    def asked(self) -> dict[str, Any]:
        """Return the question in the form that the page's script reads."""
        ...

    def identity(self) -> list[Any]:
        """Return JSON that identifies the question to which answers in a browser belong."""
        ...

    def rows_shown(self, item: Any) -> dict[int, str]:
        """Return the rows of a source whose pictures are shown, and their names."""
        ...

    def shown(self, item: Any) -> dict[str, Any]:
        """Return the text below the pictures in the form that the page's script reads."""
        ...


@dataclass(frozen=True)
class PageTask:
    """One image to ask about, with a note.

    Attributes:
        note: a line below the pictures.
    """

    item: ImageItem
    note: str = ""


@dataclass(frozen=True)
class Questionnaire:
    """The content of a page for all annotators.

    Attributes:
        question: the question about every image.
        tasks: the images to ask about, in any order.
        orders: {annotator: [(index of the task, whether its captions are in reverse order)]}.
        examples: images with captions that are shown before the questions.
    """

    question: PageQuestion
    title: str
    tasks: tuple[PageTask, ...]
    orders: Mapping[str, Sequence[tuple[int, bool]]]
    examples: tuple[ImageItem, ...] = ()

    @property
    def hash(self) -> str:
        """Return the browser's storage key for answers, which fit only these questions."""
        asked = [(t.item.name, t.item.texts, self.own_options(t)) for t in self.tasks]
        text = json.dumps([*self.question.identity(), asked], ensure_ascii=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def own_options(self, task: PageTask) -> tuple[tuple[str, str], ...]:
        """Return (label, caption) of the captions offered as answers to a task."""
        captions = self.question.captions
        return tuple(zip(captions, task.item.texts, strict=True)) if captions else ()


def share_out(
    question: PageQuestion,
    items: Sequence[ImageItem],
    assignment: Assignment,
    title: str,
    to_everyone: Collection[int] = (),
    examples: Sequence[ImageItem] = (),
) -> Questionnaire:
    """Build the questionnaire of a question about images, distributed over annotators.

    Args:
        to_everyone: indices of the images that every annotator answers.
        examples: images with captions that are shown before the questions.
    """
    orders = assignment.distribute(items, to_everyone)

    def order(who: int, own: Sequence[int]) -> list[tuple[int, bool]]:
        if question.balanced:
            swapped = assignment.reversed_half(who, [items[i] for i in own])
            return [(i, items[i].name in swapped) for i in own]
        return [(i, assignment.is_reversed(who, items[i])) for i in own]

    return Questionnaire(
        question=question,
        title=title,
        tasks=tuple(map(PageTask, items)),
        orders={str(who): order(who, own) for who, own in enumerate(orders, 1)},
        examples=tuple(examples),
    )


def ask_one(question: AnnotationQuestion, tasks: Sequence[PageTask], title: str) -> Questionnaire:
    """Build the questionnaire of a question about images with notes for one annotator."""
    return Questionnaire(
        question, title, tuple(tasks), {"1": [(i, False) for i in range(len(tasks))]}
    )


def write_questions(
    questions: Questionnaire,
    file: Path,
    read_image: Callable[[int], bytes],
    *,
    side: int = 256,
    annotators: Iterable[str] | None = None,
) -> Path:
    """Write one page and return its path; equal questions give equal bytes.

    Args:
        file: the file to write; its folder is created if missing.
        read_image: a function that returns the encoded image of a row of the source.
        side: longest side of the pictures in pixels.
        annotators: names of the annotators who answer on this page, which asks for their name;
            ``None`` for all.
    """
    if type(side) is not int or not SIDES[0] <= side <= SIDES[1]:
        raise UserError(f"annotate.side={side}: choose from {SIDES[0]} to {SIDES[1]} pixels")
    people = list(questions.orders if annotators is None else annotators)
    used = sorted({task for who in people for task, _ in questions.orders[who]})
    if not used:
        raise UserError(f"there is nothing to ask in {file}: no image is left for these settings")
    place = {task: i for i, task in enumerate(used)}
    tasks = [questions.tasks[i] for i in used]
    names = {
        row: name for t in tasks for row, name in questions.question.rows_shown(t.item).items()
    } | {item.row: item.name for item in questions.examples}
    pictures = _pictures(names, read_image, side, file)
    numbers = {row: number for number, row in enumerate(names)}
    data = {
        "plan": questions.hash,
        **questions.question.asked(),
        "tasks": [_task(task, questions, numbers) for task in tasks],
        "pictures": pictures,
        "people": {
            who: [[place[task], int(swap)] for task, swap in questions.orders[who]]
            for who in people
        },
    }
    if questions.examples:
        data["examples"] = [[numbers[item.row], item.text] for item in questions.examples]
    text = render(
        "annotate.html",
        title=questions.title,
        question=questions.question.text,
        data=script_data(data),
    )
    return write_page(file, text)


def _pictures(
    names: Mapping[int, str], read_image: Callable[[int], bytes], side: int, file: Path
) -> list[dict[str, Any]]:
    """Return small copies of rows' images, made on all cores with a progress bar."""

    def small(row: int) -> dict[str, Any]:
        return small_picture(decode_image(read_image(row), names[row]), side)

    found: list[dict[str, Any]] = []
    size = 0
    # Pillow releases the interpreter's lock while it decodes, shrinks and encodes.
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
        f"{file}: the page would contain more than {MAX_PAGE / 2**20:.0f} MiB of pictures, that is "
        f"{done:,} of {total:,}; write a page for each annotator (annotate.pages=each) and have "
        "more of them, choose a smaller annotate.side, or ask about an annotate.sample"
    )


def _task(task: PageTask, questions: Questionnaire, numbers: Mapping[int, int]) -> dict[str, Any]:
    """Return a task in the form that the script reads.

    k key, m member, h hash of its captions, p pictures, c captions below them, s index of the one
    in question, o own options, x common options that do not fit it, n note.
    """
    item, question = task.item, questions.question
    found = {
        "k": item.key,
        "m": item.member,
        "h": item.texts_hash,
        "p": [numbers[row] for row in question.rows_shown(item)],
        "o": questions.own_options(task),
        **question.shown(item),
    }
    return found | ({"n": task.note} if task.note else {})
