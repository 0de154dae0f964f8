"""The similarity of candidates to attributes, and the distance of their captions from the photo.

All candidates of a call are scored together: words and photos are embedded once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cfaug.core.types import SourceImage
from cfaug.xmai.insertions.answer_cache import AnswerCache
from cfaug.xmai.insertions.draft import Draft, ScoredGuess
from cfaug.xmai.insertions.image_text import BROKEN_PHOTO, ImageTextDistance
from cfaug.xmai.insertions.switches import Switches
from cfaug.xmai.insertions.word_similarity import WordSimilarity


@dataclass(frozen=True)
class Weigher:
    """Adds similarity and distance to the candidates of masks.

    Args:
        similarity: the similarity of words; ``None`` adds no similarities.
        image_text: the distance of captions from photos; ``None`` adds no distances.
        switches: resolved switches; only ``attributes`` is used.
        folder: the folder of cached distances; ``None`` caches no distances.
    """

    similarity: WordSimilarity | None
    image_text: ImageTextDistance | None
    switches: Switches
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
        attributes = [self._attributes(draft, i) for draft in drafts]
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

    def _attributes(self, draft: Draft, i: int) -> list[str]:
        """Return the attributes to compare with the candidates of a mask."""
        mention = draft.found[i]
        if self.switches.attributes == "token":
            assert draft.canvas is not None
            token = draft.canvas.next_token(i)
            mention = replace(mention, objects=draft.mentions.by_token.get(token, ()))
        return draft.attributes(mention)

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
