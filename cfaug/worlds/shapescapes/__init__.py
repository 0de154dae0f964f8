"""The embedded world: drawn scenes whose perfect counterfactuals are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.core.worlds import QUESTIONS
from cfaug.worlds.shapescapes.settings import (
    COMPOSITIONAL,
    COMPOSITIONAL_PREFIX,
    PREFIX,
    PROMPTS,
    QUESTIONS_PREFIX,
    READ_BY,
    WorldSettings,
)

if TYPE_CHECKING:
    from cfaug.core.types import CounterfactualSet, Example
    from cfaug.data.questions import QuestionImage
    from cfaug.worlds.shapescapes.parts import ensure

__all__ = ["PROMPTS", "WORLD", "WorldSettings", "ensure"]


class ShapeScapes:
    """The world as a ``cfaug.core.worlds.WorldSource``; rendering is imported lazily.

    ``shapescapes:PART`` or ``shapescapes:PART@STYLE`` is a part, ``shapescapes_vqa:PART`` one of
    questions about the world, ``shapescapes_compositional:PART`` one of its compositional tests.

    >>> [WORLD.find_part(name) for name in (
    ...     "shapescapes:ood@photo", "shapescapes_compositional:pairs", "shapescapes_vqa:test")]
    ['ood@photo', 'compositional_pairs', 'test']
    """

    name = "shapescapes"
    settings = "cfaug.worlds.shapescapes.WorldSettings"
    drawn_by = READ_BY
    unedited = ("ve", "ve_test")

    def find_family(self, source: str) -> str | None:
        """Return the family of the part that a source names.

        >>> [WORLD.find_family(name) for name in (
        ...     "shapescapes:ve_test", "shapescapes:ood@photo", "/photos")]
        ['entailment', 'photos', None]
        """
        if source.startswith(QUESTIONS_PREFIX):
            return QUESTIONS
        if not source.startswith((PREFIX, COMPOSITIONAL_PREFIX)):
            return None
        part = self.find_part(source).partition("@")[0]
        if part.startswith(COMPOSITIONAL):
            return "compositional"
        return "entailment" if part in self.unedited else "photos"

    def find_part(self, source: str) -> str:
        if source.startswith(COMPOSITIONAL_PREFIX):
            return COMPOSITIONAL + source.removeprefix(COMPOSITIONAL_PREFIX)
        return source.removeprefix(PREFIX).removeprefix(QUESTIONS_PREFIX)

    def check_part(self, part: str) -> None:
        from cfaug.worlds.shapescapes.parts import check_part

        check_part(part)

    def write_part(self, settings: WorldSettings, part: str, root: Path) -> Path:
        from cfaug.worlds.shapescapes.parts import ensure

        return ensure(settings, part, root)

    def draw_sets(self, settings: WorldSettings, part: str) -> Iterator[CounterfactualSet]:
        from cfaug.worlds.shapescapes.parts import make_part

        return make_part(settings, part)

    def draw_questions(self, settings: WorldSettings, part: str) -> Iterator[QuestionImage]:
        from cfaug.worlds.shapescapes.question_parts import make_questions

        return make_questions(settings, part)

    def write_labels(self, settings: WorldSettings, part: str, root: Path) -> Path:
        from cfaug.worlds.shapescapes.labels import ensure_labels

        return ensure_labels(settings, part, root)

    def shorten_captions(
        self, shares: Mapping[str, float], seed: int
    ) -> Callable[[Example], Example]:
        """Return a function that leaves the colour or the background out of captions."""
        from cfaug.worlds.shapescapes.parts import read_leave_out, shorten_caption

        read = read_leave_out(shares)
        return lambda example: shorten_caption(example, read, seed)

    def make_edit_oracle(self) -> Any:
        """Return the oracle that redraws scenes and judges pictures."""
        from cfaug.worlds.shapescapes.edit_oracle import WorldEdits

        return WorldEdits()


WORLD = ShapeScapes()


def __getattr__(name: str) -> Any:
    """Import rendering code lazily: settings of a world are needed much more often."""
    if name == "ensure":
        from cfaug.worlds.shapescapes.parts import ensure

        return ensure
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
