"""Guards of caption edits: the label must stay the same, and the meaning must change.

LANCE's label guard has three different definitions (section 3.1, Algorithm 1, released code). Each
is a named rule here, and so is a corrected one, the default.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from cfaug.core.errors import UserError, say
from cfaug.core.files import require_regular
from cfaug.core.safety.json_text import load_json
from cfaug.core.validation import check_fields
from cfaug.core.weights import sha256_text
from cfaug.editing.protocols import CaptionEdit, SentenceEmbedder, Verdict, round_digits
from cfaug.editing.sentence import split
from cfaug.editing.wordnet import Synset, WordNet
from cfaug.settings.read_if import GIVEN, ReadIf

WNID = re.compile(r"n(\d{8})")
"""ImageNet's name of a class: the offset of its sense in WordNet 3.0."""
SENSES = 2
"""Number of senses of a word that are considered, the most frequent first."""


@dataclass(frozen=True)
class ClassWords:
    """Finds the names of classes, and decides whether words of a caption name a class.

    Args:
        wordnet: the source of synonyms and kinds; ``None`` uses only a class's own name.
        file: the path of a JSON object of names by label, for labels that are not words; these
            names come before WordNet's. ``None`` for no file.
        kinds: whether a more general word (``animal`` for ``dog``), or a more specific one, also
            names the class; only with a WordNet.
    """

    wordnet: WordNet | None = None
    file: str | None = None
    kinds: Annotated[bool, ReadIf({"wordnet": GIVEN})] = True

    def names(self, label: str) -> tuple[str, ...]:
        """Return the names of a class, in lower case, the label's own words first.

        >>> ClassWords().names("dog_sled, dogsled")
        ('dog sled', 'dogsled')
        """
        words = [] if WNID.fullmatch(label) and self.wordnet is not None else label.split(",")
        names = [*words, *self._file.get(label, ())]
        names += [word for sense in self._senses(label) for word in sense.words]
        clean = (" ".join(name.replace("_", " ").lower().split()) for name in names)
        return tuple(dict.fromkeys(name for name in clean if name)) or (label.lower(),)

    def known(self, label: str) -> bool:
        """Return whether the vocabulary has the label; ``True`` without a vocabulary."""
        return label in self._file or self.wordnet is None or bool(self._senses(label))

    def overlap(self, words: str, label: str) -> float:
        """Return the share, from 0 to 1, of a class's name that some words cover.

        It is the largest share over the names of the class, and 1 if a noun among the words is a
        more general or a more specific word for the class.

        >>> ClassWords().overlap("two dogs", "dog sled")
        0.5
        """
        lemmas = set(self.lemmas(words))
        names = [set(name) for name in map(self.lemmas, self.names(label)) if name]
        best = max((len(lemmas & name) / len(name) for name in names), default=0.0)
        if best < 1 and self.kinds and self.wordnet is not None:
            of_label = self._senses(label)
            above = self.wordnet.above(of_label)
            offsets = {sense.offset for sense in of_label}
            for lemma in lemmas:
                senses = self.wordnet.senses(lemma, SENSES)
                general = above & {sense.offset for sense in senses}
                if general or offsets & self.wordnet.above(senses[:1]):
                    return 1.0
        return best

    def mentioned(self, caption: str, label: str) -> bool:
        """Return whether a caption has one of the class's names, in singular or plural."""
        lemmas = self.lemmas(caption)
        names = [name for name in map(self.lemmas, self.names(label)) if name]
        return any(lemmas[i : i + len(n)] == n for n in names for i in range(len(lemmas)))

    def lemmas(self, text: str) -> tuple[str, ...]:
        """Return the words of a text in their dictionary form."""
        if self.wordnet is not None:
            return tuple(map(self.wordnet.base, _words(text)))
        return tuple(
            word[:-1] if len(word) > 3 and word.endswith("s") and word[-2] != "s" else word
            for word in _words(text)
        )

    def _senses(self, label: str) -> list[Synset]:
        """Return the senses of a label in WordNet: the most frequent one of each of its names."""
        if self.wordnet is None:
            return []
        if (wnid := WNID.fullmatch(label)) is not None:
            return self.wordnet.at(int(wnid[1]))
        names = [*label.split(","), *self._file.get(label, ())]
        words = [name.strip().lower().replace(" ", "_") for name in names]
        return [sense for word in words if word for sense in self.wordnet.senses(word, 1)]

    @cached_property
    def _file(self) -> Mapping[str, Sequence[str]]:
        if self.file is None:
            return {}
        path = Path(self.file).expanduser()
        try:
            content = load_json(require_regular(path).read_text(encoding="utf-8"))
            names_of = {
                label: [n] if isinstance(n, str) else list(n) for label, n in content.items()
            }
            if not all(isinstance(name, str) for names in names_of.values() for name in names):
                raise TypeError("a name is not a text")
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path} is invalid ({error}): it should be a JSON object with a name, or a list "
                "of names, for each label"
            ) from error
        return names_of

    def describe(self) -> dict[str, str]:
        """Return the sources of the names, with the hash of a file's content."""
        parts = ["the label's own words"]
        if self.file is not None:
            named = json.dumps(dict(self._file), sort_keys=True)
            parts.append(f"{Path(self.file).name} sha256:{sha256_text(named)[:16]}")
        parts += ["WordNet's synonyms"] if self.wordnet is not None else []
        parts += ["its kinds"] if self.wordnet is not None and self.kinds else []
        return {"class_words": ", ".join(parts)}


@lru_cache(maxsize=10_000)
def _words(text: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in split(text).words if word[:1].isalnum())


CHANGES_LABEL = "changes the label"


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
            paper's rules, ``cfaug.editing.pretrained.TextTower`` for the released one; ``None``
            compares only words, which ``fixed`` can do.
        threshold: the least similarity that is rejected (0.5, Table 6). Cosines of CLIP's text
            tower are higher than those of a sentence encoder.
    """

    rule: Literal["fixed", "paper", "algorithm_1", "released"] = "fixed"
    encoder: SentenceEmbedder | None = None
    words: ClassWords = field(default_factory=ClassWords)
    """the words of each class, by which a text names it"""
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
        """
        pairs = []
        for edit in edits:
            label = edit.example.label
            if label is None or not label.strip():
                raise UserError(
                    f"example {edit.example.key!r} has no label, which the label guard compares: "
                    "name a source with classes, or leave the guard out "
                    "(recipe.editor.editor.guards.label=null)"
                )
            if label not in self._seen and not self.words.known(label):
                say(
                    f"the label {label!r} is in no vocabulary: edits are checked against these "
                    "words alone; give its names in a file (words.file)"
                )
            self._seen.add(label)
            before, after = edit.span
            compared = {"paper": after, "algorithm_1": edit.text}.get(self.rule, before)
            pairs.append((compared, self.words.names(label)[0]))
        verdicts = []
        for edit, similarity in zip(edits, similarities(self.encoder, pairs), strict=True):
            gone = {}
            if self.rule == "fixed":
                label, before = str(edit.example.label), edit.span[0]
                overlap = self.words.overlap(before, label) if before else 0.0
                similarity = round_digits(max(overlap, similarity or 0.0))
                mentioned = self.words.mentioned
                if mentioned(edit.caption, label) and not mentioned(edit.text, label):
                    gone = {"label_gone": True}
            # By the other rules, a pure insertion (released) or a pure deletion (paper) has nothing
            # to compare, and passes.
            similar = similarity is not None and similarity >= self.threshold
            notes = {} if similarity is None else {"label_similarity": similarity, **gone}
            verdicts.append(Verdict(CHANGES_LABEL if gone or similar else "", notes))
        return verdicts

    @cached_property
    def _seen(self) -> set[str]:
        """The labels that were looked up in the vocabulary."""
        return set()

    def describe(self) -> dict[str, str]:
        """Return the rule, its threshold and its encoder."""
        about = {} if self.encoder is None else self.encoder.describe()
        by = "similarity" if about else "words of the class's names alone"
        described = {"label_guard": f"{self.rule}, {by}, threshold {self.threshold}"}
        described |= {f"label_guard {name}": value for name, value in about.items()}
        asks_words = self.rule == "fixed" or self.words.file is not None
        return described | (self.words.describe() if asks_words else {})


@dataclass(frozen=True)
class NoOpGuard:
    """Rejects edits whose new words mean the same as the replaced ones (LANCE, section 3.1).

    Args:
        encoder: the encoder of texts; ``None`` recognises only singular and plural ("dogs" for
            "dog").
        threshold: the cosine above which an edit is rejected; the paper does not publish its own.
    """

    encoder: SentenceEmbedder | None = None
    words: ClassWords = field(default_factory=ClassWords)
    """the words of each class, by which a text names it"""
    # Without an encoder only equal words are compared, whose similarity is 1.
    threshold: Annotated[float, ReadIf({"encoder": GIVEN}, {"threshold": (1,)})] = 0.95

    name = "no_op"

    def judge(self, edits: Sequence[CaptionEdit]) -> list[Verdict]:
        """Return a verdict on whether each edit changes the meaning; insertions and deletions do.

        The note is ``edit_similarity``, for edits that replace words.
        """
        spans = [edit.span for edit in edits]
        verdicts = []
        for span, similarity in zip(spans, similarities(self.encoder, spans), strict=True):
            before, after = map(self.words.lemmas, span)
            if all(span) and before == after:
                similarity = 1.0
            if similarity is None:
                verdicts.append(Verdict())
            else:
                reason = "means the same" if similarity > self.threshold else ""
                verdicts.append(Verdict(reason, {"edit_similarity": similarity}))
        return verdicts

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

    return [
        round_digits(float(np.dot(vectors[rows[a]], vectors[rows[b]]))) if a and b else None
        for a, b in pairs
    ]
