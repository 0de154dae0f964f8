"""A question that people answer about images: its wording and its possible answers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cfaug.annotation.records import ImageItem
from cfaug.annotation.strata import Strata
from cfaug.core.errors import UserError
from cfaug.core.validation import check_fields
from cfaug.data.index import Index
from cfaug.data.questions import QUESTION, VERIFIED, question_of

CORRECT, INCORRECT = "correct", "incorrect"
"""Outcomes of choosing an offered caption: the image's own caption, or another one."""
Pictures = Literal["image", "set"]
NAME = re.compile(r"[a-z][a-z0-9_]*")
TAKEN = ("key", "member", "annotator", "texts", "seconds")
"""The other keys of an answer, which are not valid names of a field."""


def check_field(name: str) -> bool:
    """Return whether an answer may have this name in the files that annotators download."""
    return bool(NAME.fullmatch(name)) and name not in TAKEN


@dataclass(frozen=True)
class AnnotationQuestion:
    """The question about every image.

    An answer that chooses an offered caption has the outcome ``correct`` if the caption is the
    image's own, else ``incorrect``; every other answer is its own outcome.

    Args:
        options: {label: wording} of the answers for every image.
        captions: labels of the captions of a set's members; if given, all captions of the set are
            offered as answers above ``options``, in an order drawn for each annotator and image.
        accepted: outcomes that accept an image; an image is valid if most of its annotators accept
            it.
        reported: all outcomes in the order of tables and figures; by default ``correct`` and
            ``incorrect`` (if captions are offered), then ``options``.
        image_sets: names in tables for the images of the first, second, ... member of a set, each
            with a row besides the one for all images; empty for a single row.
        pictures: ``image`` shows only the image, ``set`` all images of its set with their captions,
            and marks the one in question.
        show_caption: whether to show the image's own caption below it; invalid if captions are
            offered.
        accepted_as: wording for accepted images in sentences, after "were".
        field: the name of an answer in the files that annotators download.
        groups: {end of a sentence: outcomes}, sums of outcomes for the report.
        reference: {statement: text}: known results, such as a paper's, appended to a statement of
            the report if people answered. Statements are ``accepted``, ``agreement``, ``disputed``
            and the names of ``groups``.
        strata: the division of the images by what they should show according to the source, for
            sampling, counting, and answers that fit only some of them; ``None`` for no strata.
        illustrated: the outcomes with examples that are kept for tables.

    Raises:
        UserError: if a value is invalid, naming its key and the choices.
    """

    title: str
    """the heading"""
    text: str
    """the question that people read"""
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    captions: Sequence[str] = ()
    accepted: Sequence[str] = (CORRECT,)
    reported: Sequence[str] = ()
    image_sets: Sequence[str] = ()
    pictures: Pictures = "image"
    show_caption: bool = False
    accepted_as: str = "accepted"
    field: str = "label"
    groups: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    reference: Mapping[str, str] = dataclasses.field(default_factory=dict)
    strata: Strata | None = None
    illustrated: Sequence[str] = ()

    balanced: bool = dataclasses.field(default=False, init=False, repr=False)
    """Whether both orders of the offered captions are shown equally often."""

    def __post_init__(self) -> None:
        check_fields(self, "annotate.question")
        chosen = self.chosen()
        if not self.reported:
            object.__setattr__(self, "reported", tuple(chosen))
        duplicated = len(set(self.labels)) < len(self.labels)
        if duplicated or len(self.labels) < 2 or not all(map(NAME.fullmatch, self.labels)):
            raise self._invalid(
                "labels", list(self.labels), "two or more different words of a-z, 0-9 and _"
            )
        if sorted(self.reported) != sorted(chosen):
            raise self._invalid("reported", list(self.reported), f"each once: {', '.join(chosen)}")
        offered = () if self.strata is None else tuple(self.strata.offered)
        for name, labels in (
            ("accepted", self.accepted), ("illustrated", self.illustrated),
            ("strata.offered", offered), *self.groups.items(),
        ):  # fmt: skip
            if not set(labels) <= set(chosen):
                raise self._invalid(name, list(labels), f"choose from {', '.join(chosen)}")
        if self.show_caption and (self.captions or self.pictures == "set"):
            raise self._invalid(
                "show_caption", True, "leave it out where the captions are offered or shown anyway"
            )
        if not check_field(self.field):
            raise self._invalid("field", self.field, "a word such as label")

    def _invalid(self, name: str, value: object, choices: str) -> UserError:
        return UserError(f"the question {self.title!r}: {name}={value} is invalid: {choices}")

    def chosen(self) -> list[str]:
        """Return every outcome, in the default order of tables."""
        return [CORRECT, INCORRECT] * bool(self.captions) + list(self.options)

    @property
    def labels(self) -> tuple[str, ...]:
        """All valid answers."""
        return (*self.captions, *self.options)

    def outcome(self, item: ImageItem, label: str) -> str:
        """Return the outcome of an answer to an image."""
        if label not in self.captions:
            return label
        return CORRECT if label == self.captions[item.member] else INCORRECT

    def offers(self, item: ImageItem, label: str) -> bool:
        """Return whether an answer fits an image: some answers are only for some strata."""
        return self.strata is None or self.strata.offers(item, label)

    def draw(self, items: Sequence[ImageItem], seed: int) -> list[ImageItem]:
        """Return the images to ask about, drawn evenly from the strata if there are any."""
        return list(items) if self.strata is None else self.strata.draw(items, seed)

    def accepts(self, item: ImageItem, label: str) -> bool:
        """Return whether an answer accepts an image."""
        return self.outcome(item, label) in self.accepted

    def rows_shown(self, item: ImageItem) -> dict[int, str]:
        """Return the rows of a source whose pictures are shown, and their names."""
        if self.pictures == "image":
            return {item.row: item.name}
        first = item.row - item.member
        return {first + member: f"{item.key}_{member}" for member in range(len(item.texts))}

    def script_data(self) -> dict[str, Any]:
        """Return the question in the form that the page's script reads."""
        file = "answers" if self.field == "label" else "categories"
        return {"field": self.field, "options": tuple(self.options.items()), "file": file}

    def identity(self) -> list[Any]:
        """Return JSON that identifies the question to which answers in a browser belong."""
        return [self.field, tuple(self.options.items())]

    def shown(self, item: ImageItem) -> dict[str, Any]:
        """Return the captions below the pictures, the one in question, and unfit answers."""
        unfit = [label for label in self.options if not self.offers(item, label)]
        unfit_part: dict[str, Any] = {"x": unfit} if unfit else {}
        if self.pictures == "set":
            return {"c": list(item.texts), "s": item.member, **unfit_part}
        return {"c": [item.text], "s": -1, **unfit_part} if self.show_caption else unfit_part

    def wording(self, outcome: str) -> str:
        """Return the name of an outcome in tables and figures."""
        return self.options.get(outcome, outcome.capitalize())


# Is a question about an image good? People verify it before it counts (CFMM, section 3.3).

GOOD = "good"
"""The answer that verifies a question."""
ANSWERS = (GOOD, "wrong_answer", "ambiguous", "leak", "not_counterfactual")
"""All possible answers; a question may offer fewer."""


@dataclass(frozen=True)
class QuestionItem(ImageItem):
    """A question to review; ``note`` lists its options, the right one first."""

    note: str = ""


@dataclass(frozen=True)
class QuestionReview(AnnotationQuestion):
    """The review of every question of a set; other arguments as for ``Question``.

    Args:
        only_new: whether to ask only about questions that nobody has verified, or about all.
    """

    only_new: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if GOOD not in self.options or not set(self.options) <= set(ANSWERS) or self.captions:
            raise self._invalid(
                "options", list(self.options), f"{GOOD} and some of {', '.join(ANSWERS[1:])}"
            )

    def items(self, index: Index) -> list[QuestionItem]:
        """Return the questions of sets that a recipe of questions made, in order."""
        if QUESTION not in index.extra_names:
            raise UserError(
                f"{index.source} holds no questions: name sets that `python generate.py` made "
                "with a recipe of questions"
            )
        items = []
        for row in range(len(index)):
            about = index.extra_row(row).get(QUESTION)
            question = question_of(index.text(row), about, f"{index.source}, {index.key(row)}")
            if self.only_new and question.extra.get(VERIFIED) is not False:
                continue
            key, _, member = index.key(row).rpartition("_")
            # The texts of an answer: the question, its right option and all options.
            texts = (question.text, question.right or "", *question.options)
            if question.right is None:
                note = f"Options: {'; '.join(question.options)}. No right answer is known."
            else:
                wrong = [
                    option for i, option in enumerate(question.options) if i != question.answer
                ]
                note = f"Right answer: {question.right}. Wrong: {'; '.join(wrong)}."
            items.append(QuestionItem(key, int(member), texts, row, question.text, note=note))
        if not items:
            raise UserError(
                f"{index.source} has no question that nobody verified; to ask about all: "
                "annotate.question.only_new=false"
            )
        return items

    def shown(self, item: ImageItem) -> dict[str, Any]:
        """Return the question below the picture, and its options."""
        assert isinstance(item, QuestionItem)
        return {"c": [item.text], "s": -1, "n": item.note}
