"""A form about single captions of photos: how good are original and changed ones (XMAI, 5.1)?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from cfaug.annotation.attention import ASKS, PREFIX, Checks, draw_check
from cfaug.annotation.form import EDIT_KIND, EditedItem, Field, Form
from cfaug.annotation.question import ImageItem
from cfaug.annotation.two_texts import TwoTexts, known_truth, read_two_texts
from cfaug.core.errors import UserError
from cfaug.core.read_with import GIVEN, ReadWith
from cfaug.core.rng import derive
from cfaug.data.index import Index

ORIGINAL = "original"
"""The kind of an unchanged caption."""


@dataclass(frozen=True)
class CaptionForm(Form):
    """A form about a caption; other arguments as for ``Form``.

    Some photos are shown with their original caption and as many others with the changed one;
    annotators are not told which.

    Args:
        per_kind: number of photos for each kind of caption, drawn at random; ``None`` for every
            caption of every photo.
        attention: number of attention checks for everyone (A.1).
        examples: number of photos with original captions that are shown first as a reference,
            without questions.
    """

    attention: Checks = 3
    examples: Checks = 5

    read_with: ClassVar[ReadWith] = {
        "examples": {"per_kind": GIVEN},
        "leave_out": (),  # a caption is original or changed, by whatever kind of edit
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not any(one.kind == "scale" for one in self.fields.values()):
            raise UserError(f"the form {self.title!r} asks for no scale: give it one")

    def items(self, index: Index, seed: int = 0) -> list[EditedItem]:
        """Return the captions to ask about, in the order of the source; then the checks.

        Args:
            index: the index of sets of two texts on one photo.
            seed: the seed of the draw.

        Raises:
            UserError: if the sets do not have two texts.
        """
        sets = read_two_texts(index)
        changed, original = self._draw(sets, seed)
        kinds = _kinds(index)
        found = [
            _item(one, member, kinds[one.rows[1]] if member else ORIGINAL)
            for one in sets
            for member, chosen in ((0, original), (1, changed))
            if one.key in chosen
        ]
        rows = [one.rows[0] for one in sets]
        return found + [self._check(number, rows) for number in range(self.attention)]

    def example_items(self, index: Index, seed: int = 0) -> list[EditedItem]:
        """Return reference photos with their original captions, for which there are no questions.

        Args:
            index: the index given to ``items``.
            seed: the seed given to ``items``.
        """
        sets = read_two_texts(index)
        if self.per_kind is None:
            return []
        taken = set.union(*self._draw(sets, seed))
        free = [one for one in _shuffled(sets, seed) if one.key not in taken]
        return [_item(one, 0, ORIGINAL) for one in free[: self.examples]]

    def _draw(self, sets: list[TwoTexts], seed: int) -> tuple[set[str], set[str]]:
        """Return the keys of photos shown with the changed and with the original caption."""
        eligible = [one.key for one in _shuffled(sets, seed) if one.is_changed]
        if self.per_kind is None:
            return set(eligible), {one.key for one in sets}
        count = min(self.per_kind, len(eligible) // 2)
        return set(eligible[:count]), set(eligible[count : 2 * count])

    def _check(self, number: int, rows: list[int]) -> EditedItem:
        expected, row = draw_check(number, self.labels, rows)
        text = f"{ASKS}choose {expected}."
        return EditedItem(
            f"{PREFIX}-{number}", 0, (text,), row, text, photo=row, kind=PREFIX, expected=expected
        )

    @property
    def _scale(self) -> tuple[str, Field]:
        return next((name, one) for name, one in self.fields.items() if one.kind == "scale")

    @property
    def field(self) -> str:
        """The name of the first scale in the files."""
        return self._scale[0]

    @property
    def labels(self) -> tuple[str, ...]:
        """The numbers of the first scale."""
        scale = self._scale[1]
        return tuple(str(value) for value in range(scale.low, scale.high + 1))

    def oracle_answers(
        self, items: Sequence[ImageItem], scores: Mapping[str, Mapping[str, float]]
    ) -> list[str | None]:
        """Return an oracle's answers: the best number for true captions, the worst for false ones.

        Args:
            items: the items to ask about.
            scores: {key of the set: its scores}.

        Returns:
            One answer per item; ``None`` if the sets do not say whether the caption is true.
        """
        found: list[str | None] = []
        for item in items:
            if item.expected:
                found.append(item.expected)
                continue
            truth = known_truth(scores, item.key, item.member)
            found.append(None if truth is None else self.labels[-1 if truth else 0])
        return found

    def rows_shown(self, item: EditedItem) -> dict[int, str]:
        """Return the row of the photo and its name."""
        return {item.row: item.name}

    def shown(self, item: EditedItem) -> dict[str, Any]:
        """Return the caption below the photo."""
        return {"c": [item.text], "s": -1}


def _item(one: TwoTexts, member: int, kind: str) -> EditedItem:
    text = one.texts[member]
    return EditedItem(
        one.key, member, (text,), one.rows[member], text, photo=one.rows[0], kind=kind
    )


def _shuffled(sets: list[TwoTexts], seed: int) -> list[TwoTexts]:
    return sorted(sets, key=lambda one: derive(seed, "caption_form", one.key))


def _kinds(index: Index) -> list[str]:
    if EDIT_KIND not in index.extra_names:
        return ["changed"] * len(index)
    return [str(kind or "changed") for kind in index.extra(EDIT_KIND).to_pylist()]
