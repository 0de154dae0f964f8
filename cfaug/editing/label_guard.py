"""Guards of caption edits: the label must stay the same, and the meaning must change.

LANCE's label guard has three different definitions (section 3.1, Algorithm 1, released code). Each
is a named rule here, and so is a corrected one, the default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.messages import say
from cfaug.core.read_with import GIVEN, ReadWith
from cfaug.core.validation import check_fields
from cfaug.editing.class_words import ClassWords
from cfaug.editing.protocols import SentenceEmbedder, round_digits
from cfaug.editing.variations import CaptionEdit, Verdict

Rule = Literal["fixed", "paper", "algorithm_1", "released"]

CHANGES_LABEL = "changes the label"
NO_OP = "means the same"


@dataclass(frozen=True)
class LabelGuard:
    """Rejects edits after which a picture of the caption may no longer show its class.

    Args:
        rule: ``paper`` rejects an edit if its new words are similar to the class name (section
            3.1); ``algorithm_1`` if the edited caption is (line 11); ``released`` if the replaced
            words are, while all insertions pass (the released code, with CLIP's text tower).
            ``fixed`` rejects an edit if the replaced words are similar to the class name or share
            words with its names, or if the caption no longer names the class.
        encoder: the encoder of texts, whose cosine is the similarity: a sentence encoder for the
            paper's rules, ``cfaug.editing.text_tower.TextTower`` for the released one; ``None``
            compares only words, which ``fixed`` can do.
        words: the names of classes.
        threshold: the least similarity that is rejected (0.5, Table 6). Cosines of CLIP's text
            tower are higher than those of a sentence encoder.

    Raises:
        UserError: if the rule is invalid, or needs an encoder that is missing.
    """

    rule: Rule = "fixed"
    encoder: SentenceEmbedder | None = None
    words: ClassWords = field(default_factory=ClassWords)
    threshold: float = 0.5

    name = "label"

    def __post_init__(self) -> None:
        check_fields(self)
        if self.encoder is None and self.rule != "fixed":
            raise UserError(
                f"the label guard's rule={self.rule} needs an encoder, and there is none: choose "
                "rule=fixed, or a zoo with a sentence encoder"
            )

    def judge(self, edits: Sequence[CaptionEdit]) -> list[Verdict]:
        """Return a verdict on whether each edit keeps its label.

        The notes are ``label_similarity``, by the rule's measure, and ``label_gone`` if the caption
        no longer names the class.

        Raises:
            UserError: if an example has no label; it names the example.
        """
        for edit in edits:
            self._check(edit)
        asked = [self._compared(edit) for edit in edits]
        similar = similarities(self.encoder, [(text, self._class(e)) for text, e in asked])
        return [self._verdict(edit, cosine) for edit, cosine in zip(edits, similar, strict=True)]

    def _compared(self, edit: CaptionEdit) -> tuple[str, CaptionEdit]:
        """Return the words to compare with the class name, and the edit."""
        before, after = edit.span
        text = {"paper": after, "algorithm_1": edit.text}.get(self.rule, before)
        return text, edit

    def _class(self, edit: CaptionEdit) -> str:
        return self.words.names(str(edit.example.label))[0]

    def _verdict(self, edit: CaptionEdit, cosine: float | None) -> Verdict:
        if self.rule != "fixed":
            # A pure insertion (released) or a pure deletion (paper) has nothing to compare, and
            # passes.
            notes = {} if cosine is None else {"label_similarity": cosine}
            rejected = cosine is not None and cosine >= self.threshold
            return Verdict(CHANGES_LABEL if rejected else "", notes)
        label = str(edit.example.label)
        overlap = self.words.overlap(edit.span[0], label) if edit.span[0] else 0.0
        found = round_digits(max(overlap, cosine or 0.0))
        gone = self.words.mentioned(edit.caption, label) and not self.words.mentioned(
            edit.text, label
        )
        notes = {"label_similarity": found, **({"label_gone": True} if gone else {})}
        return Verdict(CHANGES_LABEL if gone or found >= self.threshold else "", notes)

    def _check(self, edit: CaptionEdit) -> None:
        label = edit.example.label
        if label is None or not label.strip():
            raise UserError(
                f"example {edit.example.key!r} has no label, which the label guard compares: name "
                "a source with classes, or leave the guard out "
                "(recipe.editor.editor.guards.label=null)"
            )
        if label not in self._told and not self.words.known(label):
            say(
                f"the label {label!r} is in no vocabulary: edits are checked against these words "
                "alone; give its names in a file (words.file)"
            )
        self._told.add(label)

    @cached_property
    def _told(self) -> set[str]:
        return set()

    def describe(self) -> dict[str, str]:
        """Return the rule, its threshold and its encoder."""
        about = {} if self.encoder is None else self.encoder.describe()
        by = "similarity" if about else "words of the class's names alone"
        described = {"label_guard": f"{self.rule}, {by}, threshold {self.threshold}"}
        described |= {f"label_guard {name}": said for name, said in about.items()}
        asks_words = self.rule == "fixed" or self.words.file is not None
        return described | (self.words.describe() if asks_words else {})


@dataclass(frozen=True)
class NoOpGuard:
    """Rejects edits whose new words mean the same as the replaced ones (LANCE, section 3.1).

    Args:
        encoder: the encoder of texts; ``None`` recognises only singular and plural ("dogs" for
            "dog").
        words: the source of dictionary forms of words.
        threshold: the cosine above which an edit is rejected; the paper does not publish its own.
    """

    encoder: SentenceEmbedder | None = None
    words: ClassWords = field(default_factory=ClassWords)
    threshold: float = 0.95

    name = "no_op"

    read_with: ClassVar[ReadWith] = {
        # Without an encoder only equal words are compared, whose similarity is 1.
        "threshold": [{"encoder": GIVEN}, {"threshold": (1,)}]
    }

    def judge(self, edits: Sequence[CaptionEdit]) -> list[Verdict]:
        """Return a verdict on whether each edit changes the meaning; insertions and deletions do.

        The note is ``edit_similarity``, for edits that replace words.
        """
        spans = [edit.span for edit in edits]
        cosines = similarities(self.encoder, spans)
        return [
            self._verdict(before, after, cosine)
            for (before, after), cosine in zip(spans, cosines, strict=True)
        ]

    def _verdict(self, before: str, after: str, cosine: float | None) -> Verdict:
        if not before or not after:
            return Verdict()
        same = self.words.lemmas(before) == self.words.lemmas(after)
        found = 1.0 if same else cosine
        notes = {} if found is None else {"edit_similarity": found}
        return Verdict(NO_OP if found is not None and found > self.threshold else "", notes)

    def describe(self) -> dict[str, str]:
        """Return the encoder and the threshold."""
        about = {} if self.encoder is None else self.encoder.describe()
        by = " ".join(about.values()) or "words in another number alone"
        return {"no_op_guard": f"{by}, threshold {self.threshold}"}


def similarities(
    encoder: SentenceEmbedder | None, pairs: Sequence[tuple[str, str]]
) -> list[float | None]:
    """Return the cosine of each pair of texts; ``None`` if one is empty, or without an encoder."""
    texts = list(dict.fromkeys(t for pair in pairs if all(pair) for t in pair))
    if encoder is None or not texts:
        return [None] * len(pairs)
    rows = {text: i for i, text in enumerate(texts)}
    vectors = encoder.encode(texts)

    def cosine(a: str, b: str) -> float:
        return round_digits(float(np.dot(vectors[rows[a]], vectors[rows[b]])))

    return [cosine(a, b) if a and b else None for a, b in pairs]
