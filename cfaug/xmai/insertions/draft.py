"""A caption during insertion, and its final record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from cfaug.core.binding import ReadWith
from cfaug.core.detections import Detection, detections_of
from cfaug.core.errors import UserError, say
from cfaug.core.pixels import decode_image, stack_pixels
from cfaug.core.processes import check_device, choose_device
from cfaug.core.protocols import DualEncoder
from cfaug.core.safety.safe_loading import find_damaged
from cfaug.core.types import Edit, Edited, Example, Rejected
from cfaug.core.validation import check_fields
from cfaug.editing.protocols import EMPTY, propose_change, round_digits
from cfaug.editing.sentence import normalise
from cfaug.xmai.insertions.guesses import Canvas, Guess
from cfaug.xmai.insertions.mentions import Mention

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfaug.core.types import SourceImage
    from cfaug.models.checkpoints import Checkpoint


KIND = "insertion"
NAMED = 5
"""Number of blocked words that are named on the terminal."""
NO_DETECTIONS, NO_MENTION = "no_detections", "no_mention"
NO_GUESS, NO_CANDIDATE, BLOCKED = "no_guess", "no_candidate", "blocked"
MASK_IN_TEXT = "mask_in_text"
"""Reasons of captions without insertion: nothing was detected; no detected object is mentioned; no
mention is within the language model's length limit; none of its guesses is a candidate; all
candidates are blocked; or the caption contains the mask token."""


@dataclass(frozen=True)
class ScoredGuess:
    """A guess that may be inserted, with its scores."""

    guess: Guess
    similarity: float | None = None
    distance: float | None = None
    score: float = 0.0


@dataclass
class Draft:
    """A caption during insertion, with the state of its masks."""

    example: Example
    text: str
    detections: tuple[Detection, ...] = ()
    found: tuple[Mention, ...] = ()
    canvas: Canvas | None = None
    reason: str = ""
    chosen: list[ScoredGuess | None] = field(default_factory=list)
    blocked: list[tuple[Mention, str, str]] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    guesses: int = 0
    candidates: int = 0

    @classmethod
    def of(cls, example: Example, mask: str) -> Draft:
        """Return the draft of an example, with the reason if no word can be inserted."""
        draft = cls(example, normalise(example.text))
        if not draft.text:
            draft.reason = EMPTY
            return draft
        every = detections_of(example)
        # A name without letters ("???", "12") is not a word that an encoder or a caption could
        # use.
        draft.ignored = sorted(
            {a.name for one in every for a in one.attributes if not _is_word(a.name)}
        )
        draft.detections = tuple(
            replace(one, attributes=tuple(a for a in one.attributes if _is_word(a.name)))
            for one in every
        )
        if not every:
            draft.reason = NO_DETECTIONS
        elif mask in draft.text:
            draft.reason = MASK_IN_TEXT
        return draft

    def place(self, mentions: tuple[Mention, ...]) -> None:
        """Set the mentions, from left to right; if there are none, this is the reason."""
        self.found = mentions
        self.chosen = [None] * len(mentions)
        if not mentions:
            self.reason = NO_MENTION

    def nouns(self, mention: Mention) -> set[str]:
        """Return the noun of a mention, and the labels of its objects."""
        return {mention.noun, *(self.detections[number].label for number in mention.objects)}

    def attributes(self, mention: Mention) -> list[str]:
        """Return the distinct names of the attributes of a mention's objects."""
        numbers = mention.objects
        return list(
            dict.fromkeys(a.name for number in numbers for a in self.detections[number].attributes)
        )


def propose(draft: Draft, keep_unchanged: bool) -> Edited:
    """Return the result for a caption: the proposal with its change, and the rejected edits."""
    if draft.reason == BROKEN_PHOTO:
        return Edited((), {BROKEN_PHOTO: 0})
    changed, changes = _changes(draft)
    edited = propose_change(
        draft.example, changed, KIND, changes=changes,
        reason=draft.reason or _why_not(draft), keep_unchanged=keep_unchanged,
    )  # fmt: skip
    if not draft.text:
        return edited
    survivors = {
        "detections": len(draft.detections),
        "mentions": len(draft.found),
        "guesses": draft.guesses,
        "candidates": draft.candidates,
    }
    rejected = tuple(
        Rejected(text, Edit(KIND, "", word), BLOCKED, {"object": m.label, "noun": m.noun})
        for m, word, text in draft.blocked
    )
    proposals = (replace(p, details=_details(p.details, draft)) for p in edited.proposals)
    return Edited(tuple(proposals), {**survivors, **edited.survivors}, rejected)


def say_blocked(edited: Sequence[Edited]) -> None:
    """Name the blocked words on the terminal, the most frequent first."""
    words = Counter(lost.edit.after.lower() for one in edited for lost in one.rejected)
    if words:
        usual = ", ".join(f"{word} {count:,}" for word, count in words.most_common(NAMED))
        captions = sum(bool(one.rejected) for one in edited)
        say(
            f"blocked: {words.total():,} words in {captions:,} of {len(edited):,} captions "
            f"({usual}{', ...' if len(words) > NAMED else ''}); recipe.editor.block_list says which"
        )


def _changes(draft: Draft) -> tuple[str, list[dict[str, Any]]]:
    """Return the changed text, and the details of each insertion in it."""
    if draft.canvas is None:
        return draft.text, []
    text, starts = draft.canvas.result()
    changes = []
    for i, chosen in enumerate(draft.chosen):
        if chosen is not None:
            about = _change(draft, draft.found[i], chosen)
            word, start = chosen.guess.word, starts[i] or 0
            written = text[start : start + len(word)]
            # Capitalised at the beginning of the caption.
            same = written.lower() == word.lower()
            changes.append({"word": written if same else word, **about, "start": start})
    return text, changes


def _why_not(draft: Draft) -> str:
    """Return the reason why a caption with mentions has no insertion."""
    if draft.blocked:
        return BLOCKED
    return NO_CANDIDATE if draft.guesses else NO_GUESS


def _details(details: Sequence[Mapping[str, Any]], draft: Draft) -> tuple[Mapping[str, Any], ...]:
    """Add blocked words and ignored attributes to the details of a changed text."""
    first, about = details
    more: dict[str, Any] = {}
    if not any(draft.chosen):
        more["reason"] = draft.reason or _why_not(draft)
    if draft.blocked:
        more["blocked"] = [
            {"word": w, "object": m.label, "noun": m.noun} for m, w, _ in draft.blocked
        ]
    if draft.ignored:
        more["ignored_attributes"] = draft.ignored
    return first, {**about, **more}


def _change(draft: Draft, mention: Mention, chosen: ScoredGuess) -> dict[str, Any]:
    """Return the details of an insertion, as JSON."""
    first = draft.detections[mention.objects[0]] if mention.objects else None
    return {
        "object": mention.label,
        "noun": mention.noun,
        "box": None if first is None or first.box is None else list(first.box),
        "attributes": draft.attributes(mention),
        "language": chosen.guess.probability,
        "similarity": chosen.similarity,
        "dissimilarity": chosen.distance,
        "score": round_digits(chosen.score),
        "rank": chosen.guess.rank,
    }


def _is_word(name: str) -> bool:
    return any(character.isalpha() for character in name)


# The distance of a caption from its image, by a dual encoder such as CLIP.

IMAGES, TEXTS = 64, 256
"""Numbers of images and of texts embedded at once."""
BROKEN_PHOTO = "photo_broken"
"""The reason of an example whose image cannot be decoded."""


@dataclass(frozen=True)
class ImageTextDistance:
    """One minus the cosine of image and text: d of equation 1 before normalisation.

    Texts beyond the model's length limit are truncated, as in the released code: candidates that
    differ only beyond it have the same distance.

    Args:
        model: the specification of a model that provides a DualEncoder, loaded on first use (CLIP
            ViT-B/32, section 4.4).
        prefix: the text put before each text, "This is " in the released code.
        device: a name for ``choose_device``; ``auto`` is the GPU where there is one.
        dtype: the number format of the computation. A distance's last bits depend on its batch.
            After rounding to five digits, float64 distances do not, and one in some hundred float32
            distances does.
    """

    model: Checkpoint
    prefix: str = "This is "
    device: str = "auto"
    dtype: Literal["float32", "float64"] = "float32"

    read_with: ClassVar[ReadWith] = {"model.logit_scale_min": [], "model.logit_scale_max": []}

    def __post_init__(self) -> None:
        check_device(self.device, "recipe.editor.image_text.device")
        check_fields(self, "recipe.editor.image_text")

    def embed_images(
        self, images: Mapping[str, SourceImage]
    ) -> dict[str, NDArray[np.float64] | None]:
        """Return the unit embedding (dim,) of each image, by digest.

        An image that cannot be decoded is named on the terminal and left out.
        """
        found: dict[str, NDArray[np.float64] | None] = {}
        digests = list(images)
        for start in range(0, len(digests), IMAGES):
            pixels: dict[str, np.ndarray] = {}
            for digest in digests[start : start + IMAGES]:
                data = images[digest].read()
                try:
                    photo = decode_image(data, f"the image {digest[:16]}")
                except UserError as error:
                    say(f"rejected ({BROKEN_PHOTO}): {error}")
                    found[digest] = None
                else:
                    pixels[digest] = self._encoder.transform(photo)
            if pixels:
                found.update(zip(pixels, self._embed_pixels(list(pixels.values())), strict=True))
        return found

    def embed_texts(self, texts: Sequence[str]) -> list[NDArray[np.float64]]:
        """Return the unit embedding (dim,) of each text with the prefix before it."""
        import torch

        # Texts of similar length form a batch, so that short ones are not padded to the longest.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        found: list[Any] = [None] * len(texts)
        for start in range(0, len(order), TEXTS):
            rows = order[start : start + TEXTS]
            with torch.inference_mode():
                tokens = self._encoder.tokenize([f"{self.prefix}{texts[i]}" for i in rows])
                placed = {name: one.to(self._place) for name, one in tokens.items()}
                some = self._units(self._encoder.encode_text(placed))
            for row, vector in zip(rows, some, strict=True):
                found[row] = vector
        return found

    @staticmethod
    def distance(image: NDArray[np.float64], text: NDArray[np.float64]) -> float:
        """Return one minus the cosine of two unit embeddings, rounded to five digits."""
        return round_digits(1.0 - float(image @ text))

    def describe(self) -> dict[str, str]:
        """Return the model with its settings, and the hash of its weights, for the card."""
        return {"image_text": f"{self.model} sha256:{self.model.weights_hash()}"}

    def identity(self) -> str:
        """Return everything that a distance depends on."""
        parts = [self.prefix, self.dtype, self.model.identity(), self.model.settings_hash()]
        return " ".join(map(repr, parts))

    def _embed_pixels(self, pixels: Sequence[np.ndarray]) -> NDArray[np.float64]:
        import torch

        transform = self._encoder.transform
        stacked = torch.from_numpy(stack_pixels(pixels, transform.size)).to(self._place)
        with torch.inference_mode():
            normal = transform.normalize(stacked).to(getattr(torch, self.dtype))
            return self._units(self._encoder.encode_pixels(normal))

    def _units(self, vectors: Any) -> NDArray[np.float64]:
        found = vectors.double().cpu().numpy()
        if not np.isfinite(found).all():
            wrong = find_damaged(self._encoder)
            raise UserError(
                f"{self.model}: its embeddings are not numbers"
                + ("" if wrong is None else f": its weight {wrong} is damaged")
            )
        return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)

    @cached_property
    def _place(self) -> str:
        return str(choose_device(self.device, "recipe.editor.image_text.device"))

    @cached_property
    def _encoder(self) -> Any:
        import torch

        encoder: Any = self.model.load(DualEncoder)
        return encoder.to(self._place).to(getattr(torch, self.dtype)).eval()
