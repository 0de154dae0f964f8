"""The score that ranks a mask's candidates: the weighted sum of three normalised scores.

It is equation 1 of Ramshetty et al. (2023): lambda_1 p + lambda_2 s + lambda_3 d.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from cfaug.core.types import SourceImage
from cfaug.xmai.insertions.answer_cache import AnswerCache
from cfaug.xmai.insertions.draft import BROKEN_PHOTO, Draft, ImageTextDistance, ScoredGuess
from cfaug.xmai.insertions.mentions import WordSimilarity

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
        weights: lambda_1, lambda_2 and lambda_3.
        how: the normalisation; see ``normalise_scores``.

    >>> score_candidates([0.2, 0.1], [0.0, 1.0], [0.5, 0.5], (1.0, 5.0, 5.0), "min_max")
    [0.09090909090909091, 0.45454545454545453]
    """
    parts = [normalise_scores(values, how) for values in (language, similarity, distance)]
    total = max(sum(abs(weight) for weight in weights), 1.0)
    scores = [0.0] * len(language)
    for weight, part in zip(weights, parts, strict=True):
        # The order of the released code: the last bits decide between equal scores.
        if part:
            scores = [one + weight * value for one, value in zip(scores, part, strict=True)]
    return [score / total for score in scores]


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

    def weigh(
        self, drafts: Sequence[Draft], candidates: Sequence[list[ScoredGuess]], i: int
    ) -> None:
        """Score the candidates of mask ``i`` of each caption, in place.

        Captions whose photo cannot be decoded lose their candidates, with a reason.
        """
        self._weigh_attributes(drafts, candidates, i)
        if self.image_text is not None:
            self._weigh_images(drafts, candidates, i)

    @cached_property
    def cache(self) -> AnswerCache:
        """The cached distances."""
        asked = self.folder is not None and self.image_text is not None
        identity = self.image_text.identity() if asked and self.image_text else ""
        return AnswerCache(self.folder if asked else None, f"distances {identity}")

    def forget(self) -> None:
        """Drop the embeddings of photos, because the next call has other photos."""
        self._embedded.clear()

    @cached_property
    def _embedded(self) -> dict[str, Any]:
        """The embeddings of the call's photos, by digest."""
        return {}

    def _weigh_attributes(
        self, drafts: Sequence[Draft], candidates: Sequence[list[ScoredGuess]], i: int
    ) -> None:
        """Add to each candidate its similarity to the most similar attribute."""
        similarity = self.similarity
        if similarity is None:
            return
        attributes = [draft.attributes(draft.found[i]) for draft in drafts]
        similarity.learn(
            word
            for names, some in zip(attributes, candidates, strict=True)
            for word in (*names, *(one.guess.word for one in some if names))
        )
        for names, some in zip(attributes, candidates, strict=True):
            words = [one.guess.word for one in some]
            rows = similarity.cosines(words, names)
            some[:] = [
                replace(one, similarity=max(row, default=0.0))
                for one, row in zip(some, rows, strict=True)
            ]

    def _weigh_images(
        self, drafts: Sequence[Draft], candidates: Sequence[list[ScoredGuess]], i: int
    ) -> None:
        """Add to each candidate the distance of its caption from the image."""
        questions, images = [], dict[str, SourceImage]()
        for draft, some in zip(drafts, candidates, strict=True):
            assert draft.canvas is not None
            assert draft.example.image is not None
            digest = draft.example.image.digest
            images[digest] = draft.example.image
            questions += [[digest, draft.canvas.candidate(i, one.guess.word)] for one in some]
        distances = iter(
            self.cache.ask(
                questions, lambda rows: self._ask_images([questions[row] for row in rows], images)
            )
        )
        for draft, some in zip(drafts, candidates, strict=True):
            found = [next(distances) for _ in some]
            if None in found:
                draft.reason = BROKEN_PHOTO
                some.clear()
            else:
                some[:] = [replace(c, distance=d) for c, d in zip(some, found, strict=True)]

    def _ask_images(
        self, questions: Sequence[Sequence[str]], images: Mapping[str, SourceImage]
    ) -> list[float | None]:
        """Return the distance of each image (by digest) and text; ``None`` for a broken image."""
        assert self.image_text is not None
        fresh = {d: images[d] for d, _ in questions if d not in self._embedded}
        self._embedded.update(self.image_text.embed_images(fresh))
        texts = list(dict.fromkeys(text for _, text in questions))
        vectors = dict(zip(texts, self.image_text.embed_texts(texts), strict=True))
        found: list[float | None] = []
        for digest, text in questions:
            image = self._embedded[digest]
            found.append(None if image is None else self.image_text.distance(image, vectors[text]))
        return found
