"""The score that ranks a mask's candidates, and the words that are not inserted.

The score is equation 1 of Ramshetty et al. (2023), lambda_1 p + lambda_2 s + lambda_3 d: the
weighted sum of three normalised scores. Blocked are demographic terms: a third of the published
insertions on SNLI-VE are "white" and "black", many of them before people.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from cfaug.core.annotations import NO_RESULT
from cfaug.core.errors import UserError, say
from cfaug.core.files import require_regular
from cfaug.core.pixels import decode_image, stack_pixels
from cfaug.core.processes import check_device, choose_device
from cfaug.core.protocols import DualEncoder
from cfaug.core.safety.safe_loading import find_damaged
from cfaug.core.types import SourceImage
from cfaug.core.validation import check_fields
from cfaug.core.weights import sha256_text
from cfaug.editing.protocols import round_digits
from cfaug.editing.word_lists import SHIPPED, list_lines
from cfaug.editing.wordnet import WordNet
from cfaug.papers.xmai.insertions.mentions import AnswerCache, Guess, WordSimilarity
from cfaug.settings.read_if import ReadIf

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfaug.models.checkpoints import Checkpoint
    from cfaug.papers.xmai.insertions.drafts import Draft


Normalise = Literal["min_max", "sum"]
Weights = tuple[float, float, float]
"""lambda_1, lambda_2 and lambda_3."""


def normalise_scores(values: Sequence[float], how: Normalise) -> list[float]:
    """Normalise the scores of a mask's candidates, so that they are comparable to other scores.

    Args:
        how: ``min_max`` maps the least to 0 and the greatest to 1, and equal scores to 0, nearly as
            the released code does; ``sum`` divides by the sum (section 3), and negative values
            count as 0.

    >>> normalise_scores([1.0, 3.0], "sum"), normalise_scores([1.0, 3.0, 2.0], "min_max")
    ([0.25, 0.75], [0.0, 1.0, 0.5])
    """
    if not values:
        return []
    if how == "sum":
        shares = [max(value, 0.0) for value in values]
        total = sum(shares)
        return [share / total if total > 0 else 0.0 for share in shares]
    least, most = min(values), max(values)
    if least == most:
        return [0.0] * len(values)
    return [(value - least) / (most - least) for value in values]


def score_candidates(
    language: Sequence[float],
    similarity: Sequence[float],
    distance: Sequence[float],
    weights: Weights,
    how: Normalise,
) -> list[float]:
    """Return the score of each candidate of a mask.

    Args:
        language: the probabilities by the language model: p.
        similarity: the similarities to the object's attributes: s; empty if they are not compared.
        distance: the distances of image and text: d; empty if images are not compared.

    >>> score_candidates([0.2, 0.1], [0.0, 1.0], [0.5, 0.5], (1.0, 5.0, 5.0), "min_max")
    [0.09090909090909091, 0.45454545454545453]
    """
    parts = [normalise_scores(values, how) for values in (language, similarity, distance)]
    total = max(sum(abs(weight) for weight in weights), 1.0)
    scores = [0.0] * len(language)
    for weight, part in zip(weights, parts, strict=True):
        # The order of the released code: the last bits decide between equal scores.
        if part:
            scores = [score + weight * value for score, value in zip(scores, part, strict=True)]
    return [score / total for score in scores]


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

    model: Annotated[Checkpoint, ReadIf(of="logit_scale_min logit_scale_max")]
    prefix: str = "This is "
    device: Annotated[str, NO_RESULT] = "auto"
    dtype: Literal["float32", "float64"] = "float32"

    def __post_init__(self) -> None:
        check_device(self.device, "recipe.editor.image_text.device")
        check_fields(self, "recipe.editor.image_text")

    def embed_images(
        self, images: Mapping[str, SourceImage]
    ) -> dict[str, NDArray[np.float64] | None]:
        """Return the unit embedding (dim,) of each image, by digest.

        An image that cannot be decoded is named on the terminal and left out.
        """
        import torch

        transform = self._encoder.transform
        embeddings: dict[str, NDArray[np.float64] | None] = {}
        digests = list(images)
        for start in range(0, len(digests), IMAGES):
            pixels: dict[str, np.ndarray] = {}
            for digest in digests[start : start + IMAGES]:
                data = images[digest].read()
                try:
                    photo = decode_image(data, f"the image {digest[:16]}")
                except UserError as error:
                    say(f"rejected ({BROKEN_PHOTO}): {error}")
                    embeddings[digest] = None
                else:
                    pixels[digest] = transform(photo)
            if not pixels:
                continue
            stacked = torch.from_numpy(stack_pixels(list(pixels.values()), transform.size))
            with torch.inference_mode():
                normal = transform.normalize(stacked.to(self._place))
                embedded = self._encoder.encode_pixels(normal.to(getattr(torch, self.dtype)))
                embeddings.update(zip(pixels, self._units(embedded), strict=True))
        return embeddings

    def embed_texts(self, texts: Sequence[str]) -> list[NDArray[np.float64]]:
        """Return the unit embedding (dim,) of each text with the prefix before it."""
        import torch

        # Texts of similar length form a batch, so that short ones are not padded to the longest.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        embeddings: list[Any] = [None] * len(texts)
        for start in range(0, len(order), TEXTS):
            rows = order[start : start + TEXTS]
            with torch.inference_mode():
                tokens = self._encoder.tokenize([f"{self.prefix}{texts[i]}" for i in rows])
                placed = {name: tensor.to(self._place) for name, tensor in tokens.items()}
                some = self._units(self._encoder.encode_text(placed))
            for row, vector in zip(rows, some, strict=True):
                embeddings[row] = vector
        return embeddings

    @staticmethod
    def distance(image: NDArray[np.float64], text: NDArray[np.float64]) -> float:
        """Return one minus the cosine of two unit embeddings, rounded to five digits."""
        return round_digits(1.0 - float(image @ text))

    def describe(self) -> dict[str, str]:
        return {"image_text": f"{self.model} sha256:{self.model.weights_hash()}"}

    def identity(self) -> str:
        """Return everything that a distance depends on."""
        parts = [self.prefix, self.dtype, self.model.identity(), self.model.settings_hash()]
        return " ".join(map(repr, parts))

    def _units(self, vectors: Any) -> NDArray[np.float64]:
        embeddings = vectors.double().cpu().numpy()
        if not np.isfinite(embeddings).all():
            wrong = find_damaged(self._encoder)
            raise UserError(
                f"{self.model}: its embeddings are not numbers"
                + ("" if wrong is None else f": its weight {wrong} is damaged")
            )
        return embeddings / np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-12)

    @cached_property
    def _place(self) -> str:
        return str(choose_device(self.device, "recipe.editor.image_text.device"))

    @cached_property
    def _encoder(self) -> Any:
        import torch

        encoder: Any = self.model.load(DualEncoder)
        return encoder.to(self._place).to(getattr(torch, self.dtype)).eval()


# The similarity of candidates to attributes, and the distance of their captions from the photo.
#
# All candidates of a call are scored together: words and photos are embedded once.


@dataclass(frozen=True)
class Weigher:
    """Adds similarity and distance to the candidates of masks.

    Args:
        similarity: the similarity of words; ``None`` adds no similarities.
        image_text: the distance of captions from photos; ``None`` adds no distances.
        folder: the folder of cached distances; ``None`` caches no distances.
    """

    similarity: WordSimilarity | None
    image_text: ImageTextDistance | None
    folder: Path | None

    def weigh(self, drafts: Sequence[Draft], candidates: Sequence[list[Guess]], i: int) -> None:
        """Score the candidates of mask ``i`` of each caption, in place.

        Each gets its similarity to the most similar attribute, and the distance of its caption from
        the image. Captions whose photo cannot be decoded lose their candidates, with a reason.
        """
        if self.similarity is not None:
            attributes = [draft.attributes(draft.mentions[i]) for draft in drafts]
            self.similarity.learn(
                word
                for names, some in zip(attributes, candidates, strict=True)
                for word in (*names, *(guess.word for guess in some if names))
            )
            for names, some in zip(attributes, candidates, strict=True):
                rows = self.similarity.cosines([guess.word for guess in some], names)
                some[:] = [
                    replace(guess, similarity=max(row, default=0.0))
                    for guess, row in zip(some, rows, strict=True)
                ]
        if self.image_text is None:
            return
        measure, embedded = self.image_text, self._embedded
        questions, images = [], dict[str, SourceImage]()
        for draft, some in zip(drafts, candidates, strict=True):
            assert draft.canvas is not None
            assert draft.example.image is not None
            digest = draft.example.image.digest
            images[digest] = draft.example.image
            questions += [[digest, draft.canvas.candidate(i, guess.word)] for guess in some]

        def answer(rows: list[int]) -> list[float | None]:
            """Return the distances of some questions; ``None`` for a broken image."""
            wanted = [questions[row] for row in rows]
            fresh = {digest: images[digest] for digest, _ in wanted if digest not in embedded}
            embedded.update(measure.embed_images(fresh))
            texts = list(dict.fromkeys(text for _, text in wanted))
            vectors = dict(zip(texts, measure.embed_texts(texts), strict=True))
            return [
                None if embedded[digest] is None
                else measure.distance(embedded[digest], vectors[text])
                for digest, text in wanted
            ]  # fmt: skip

        distances = iter(self.cache.ask(questions, answer))
        for draft, some in zip(drafts, candidates, strict=True):
            measured = [next(distances) for _ in some]
            if None in measured:
                draft.reason = BROKEN_PHOTO
                some.clear()
            else:
                some[:] = [replace(g, distance=d) for g, d in zip(some, measured, strict=True)]

    @cached_property
    def cache(self) -> AnswerCache:
        """The cached distances."""
        if self.folder is None or self.image_text is None:
            return AnswerCache(None, "distances ")
        return AnswerCache(self.folder, f"distances {self.image_text.identity()}")

    def forget(self) -> None:
        """Drop the embeddings of photos, because the next call has other photos."""
        self._embedded.clear()

    @cached_property
    def _embedded(self) -> dict[str, Any]:
        return {}


NOUNS = "NOUNS"
LARGEST = 1_000_000
"""Largest size of a list in bytes."""


@dataclass(frozen=True)
class BlockList:
    """Decides whether a word may be inserted before a noun.

    Some words are blocked before every noun, others, such as colours, only before a noun for
    people: "a white man", but not "a white car". A noun is a noun for people if it, its last word
    or the label of its object is in the list's ``NOUNS``, or is a person in WordNet.

    Args:
        file: the path of a list in the form of ``cfaug/editing/word_lists/demographic_terms.txt``;
            ``None`` is that list.
        kinds: the kinds of words to block, such as ``gender``; ``None`` for all of the list.
        wordnet: the source for nouns that the list lacks; ``None`` uses only the list.
    """

    file: str | None = None
    kinds: Sequence[str] | None = None
    wordnet: WordNet | None = None

    def __post_init__(self) -> None:
        kinds = {kind for kind, _ in self._words} - {NOUNS}
        missing = sorted(set(self.kinds or ()) - kinds)
        if missing:
            raise UserError(
                f"recipe.editor.block_list.kinds: {missing[0]!r} is missing in {self._path}: "
                f"choose from {', '.join(sorted(kinds))}"
            )

    def blocks(self, word: str, nouns: Iterable[str]) -> bool:
        """Return whether a word is blocked.

        Args:
            nouns: the noun after it in the caption, and the labels of the detected objects.

        >>> block_list = BlockList()
        >>> block_list.blocks("white", ["man"]), block_list.blocks("white", ["car"])
        (True, False)
        >>> block_list.blocks("Female", ["figure"])
        True
        """
        everywhere, before_people = self._blocked
        if word.lower() in everywhere:
            return True
        return word.lower() in before_people and any(map(self.is_person, nouns))

    def is_person(self, noun: str) -> bool:
        """Return whether a noun is a noun for people."""
        words = noun.lower().split()
        listed = self._words.get((NOUNS, False), frozenset())
        if not words:
            return False
        if " ".join(words) in listed or words[-1] in listed:
            return True
        if self.wordnet is None:
            return False
        person = {sense.offset for sense in self.wordnet.senses("person", 1)}
        return bool(person & self.wordnet.above(self.wordnet.senses(words[-1], 1)))

    def describe(self) -> dict[str, str]:
        """Return the name of the list; for a user's list, also the hash of its content."""
        name = "demographic terms"
        if self.file is not None:
            name = f"{self._path.name} sha256:{sha256_text(self._text)[:16]}"
        if self.kinds is not None:
            name += f", {', '.join(self.kinds)}"
        return {"block_list": name + (", people by WordNet too" if self.wordnet else "")}

    @property
    def _path(self) -> Path:
        if self.file is None:
            return SHIPPED / "demographic_terms.txt"
        return Path(self.file).expanduser()

    @cached_property
    def _text(self) -> str:
        try:
            path = require_regular(self._path)
            if path.stat().st_size > LARGEST:
                raise ValueError(f"it has more than {LARGEST:,} bytes")
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UserError(f"the block list {self._path} cannot be read: {error}") from error

    @cached_property
    def _words(self) -> Mapping[tuple[str, bool], frozenset[str]]:
        """The words by kind, and by whether they are blocked only before people."""
        by_kind: dict[tuple[str, bool], frozenset[str]] = {}
        for line in list_lines(self._text):
            match = re.fullmatch(r"([\w -]+?)\s*(\(people\))?\s*:(.*)", line)
            words = {word.strip().lower() for word in match[3].split(",")} if match else set()
            if match is None or not words - {""}:
                raise UserError(
                    f"the block list {self._path}: {line[:80]!r} is invalid: it should be KIND: "
                    f"WORD, ... or KIND (people): WORD, ... or {NOUNS}: WORD, ..."
                )
            key = (match[1], match[2] is not None)
            by_kind[key] = by_kind.get(key, frozenset()) | (words - {""})
        return by_kind

    @cached_property
    def _blocked(self) -> tuple[frozenset[str], frozenset[str]]:
        """The words of the chosen kinds that are blocked everywhere, and only before people."""
        everywhere, before_people = (
            frozenset(
                word
                for (kind, only), words in self._words.items()
                if kind != NOUNS and only == people and (self.kinds is None or kind in self.kinds)
                for word in words
            )
            for people in (False, True)
        )
        return everywhere, before_people
