"""One intervention applied to every caption of a class, to test whether an insight generalises.

In LANCE, appendix B and Figure 9, "photo" becomes "painting" in the captions of every class.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from cfaug.core.errors import UserError
from cfaug.core.protocols import ChecksSource, Editor
from cfaug.core.read_with import ReadWith
from cfaug.core.types import ORIGINAL, RECONSTRUCTION, Edit, Edited, Example, Proposal
from cfaug.core.validation import check_fields
from cfaug.editing.sentence import Sentence, Slot, replace_slot, split

NAMED = 5
"""Number of classes that an error names."""
Where = Literal["end", "start"]
OTHER_CLASS, NOT_THERE = "another class", "words not found"


@dataclass(frozen=True)
class FixedEdit:
    """An editor that makes the same change to every caption to which it applies.

    Args:
        kind: the kind of the edit, such as ``domain``, by which pages and metrics group edits.
        after: the new words.
        before: the words to replace, at their first occurrence in a caption, ignoring case; "a"
            before them becomes "an" where the new words need it. If empty, ``after`` is added to
            the caption.
        where: the place of added words: ``end`` or ``start`` of the caption.
        labels: the classes whose examples are edited; empty for all classes.

    Raises:
        UserError: if an argument is invalid; it names the argument.
    """

    kind: str
    after: str
    before: str = ""
    where: Where = "end"
    labels: Sequence[str] = ()
    _before: tuple[str, ...] = field(init=False, repr=False, compare=False)

    read_with: ClassVar[ReadWith] = {"where": {"before": ("",)}}

    def __post_init__(self) -> None:
        if not self.kind.strip() or not self.after.strip():
            raise UserError(
                "a fixed edit needs a kind and the new words: recipe.editor.editor.after=..."
            )
        check_fields(self, "recipe.editor.editor")
        words = tuple(word.lower() for word in split(self.before).words)
        object.__setattr__(self, "_before", words)
        if " ".join(self.before.lower().split()) == " ".join(self.after.lower().split()):
            raise UserError(
                f"recipe.editor.editor.after={self.after} is what recipe.editor.editor.before says"
            )

    def check_source(self, examples: Sequence[Example]) -> None:
        """Refuse classes without any example."""
        there = sorted({example.label for example in examples if example.label is not None})
        for label in self.labels:
            if label not in there:
                near = difflib.get_close_matches(label, there, NAMED, 0.4) or there[:NAMED]
                raise UserError(
                    f"recipe.editor.editor.labels: no example is of the class {label!r}; among the "
                    f"{len(there)} classes there are {', '.join(map(repr, near)) or 'none'}"
                )

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return the edit of each example's first text, or the reason why there is none."""
        return [self._edit(example) for example in examples]

    def describe(self) -> dict[str, str]:
        """Return an empty mapping: a plain rule."""
        return {}

    def _edit(self, example: Example) -> Edited:
        if self.labels and example.label not in self.labels:
            return _rejected(OTHER_CLASS)
        sentence = split(example.text)
        text, edit = self._apply(sentence)
        if edit is None:
            return _rejected(NOT_THERE)
        details: tuple[Mapping[str, str], ...] = ({}, {"intervention": self._said})
        texts = (sentence.text, text)
        return Edited((Proposal(example, texts, (None, edit), details=details),))

    @property
    def _said(self) -> str:
        return f"{self.before} -> {self.after}" if self._before else f"+ {self.after}"

    def _apply(self, sentence: Sentence) -> tuple[str, Edit | None]:
        """Return the edited text and the edit; ``None`` if the text lacks the words to replace."""
        if not self._before:
            return self._add(sentence.text), Edit(self.kind, "", self.after)
        lowered = [word.lower() for word in sentence.words]
        count = len(self._before)
        for first in range(len(lowered) - count + 1):
            if tuple(lowered[first : first + count]) == self._before:
                slot = Slot(first, first + count - 1)
                start, end = slot.span(sentence)
                old = sentence.text[start:end]
                after = self.after if old[0].islower() else self.after[:1].upper() + self.after[1:]
                edited = replace_slot(sentence, slot, after, article=True)
                return edited.text, Edit(self.kind, old, after)
        return sentence.text, None

    def _add(self, text: str) -> str:
        if self.where == "start":
            return f"{self.after} {text}"
        bare = text.rstrip(" .")
        return f"{bare} {self.after}{'.' * text.rstrip().endswith('.')}"


def _rejected(reason: str) -> Edited:
    return Edited((), {reason: 0})


# The control of a method that edits images: a proposal of every text, unchanged.


@dataclass(frozen=True)
class AddReconstruction:
    """Adds a proposal without any edit before the proposals of another editor.

    The image editor's result for it is the method's reconstruction of the source image, whose
    losses are not due to an edit (LANCE, Table 2, "Reconstructed").

    Args:
        editor: the editor of the other proposals.
        always: whether examples without proposals get the control, too; examples without any words
            never do.
    """

    editor: Editor
    always: bool = True

    def check_source(self, examples: Sequence[Example]) -> None:
        """Let the editor refuse settings that name an entry that no example has."""
        if isinstance(self.editor, ChecksSource):
            self.editor.check_source(examples)

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return the editor's result for each example, in order, with the control first."""
        return [
            self._add(example, edited)
            for example, edited in zip(examples, self.editor.edit(examples), strict=True)
        ]

    def _add(self, example: Example, edited: Edited) -> Edited:
        kinds = {
            edit.kind
            for proposal in edited.proposals
            for edit in proposal.edits
            if edit is not None
        }
        for taken in kinds & {ORIGINAL, RECONSTRUCTION}:
            raise UserError(
                f"recipe.editor: edits of the kind {taken!r} would be taken for what is not "
                "edited: choose another name for the kind"
            )
        text = " ".join(example.text.split())
        if not text or not (edited.proposals or self.always):
            return edited
        key = f"{example.key}-{RECONSTRUCTION}"
        nothing = Edit(RECONSTRUCTION, "", "")
        control = Proposal(example, (text, text), (None, nothing), key=key)
        return replace(edited, proposals=(control, *edited.proposals))

    def describe(self) -> dict[str, str]:
        """Return the editor's description."""
        return dict(self.editor.describe())


def is_control(proposal: Proposal) -> bool:
    """Return whether a proposal has several texts, all equal."""
    return len(proposal.texts) > 1 and len(set(proposal.texts)) == 1
