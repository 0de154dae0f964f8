"""Cross-modal attribute insertions (XMAI; Ramshetty et al., 2023, section 3): the editor.

Before each mention of an object detected in the image, a language model's guesses are scored by
their probability, their similarity to the object's attributes, and the distance of the resulting
caption from the image; the best guess is inserted. All captions of a call go through each model in
batches: first at the first mention of each, then at the second, and so on.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from cfaug.core.annotations import NO_RESULT
from cfaug.core.errors import UserError, say
from cfaug.core.types import Edit, Edited, Example, Rejected
from cfaug.core.validation import Positive, check_fields
from cfaug.editing.language_models import MaskedLM
from cfaug.editing.protocols import (
    MaskFiller,
    SentenceEmbedder,
    Tagger,
    propose_change,
    round_digits,
)
from cfaug.editing.word_lists import NLTK_STOP_WORDS
from cfaug.papers.xmai.insertions.drafts import MASK_IN_TEXT, Draft
from cfaug.papers.xmai.insertions.mentions import (
    AnswerCache,
    Canvas,
    Context,
    Fallback,
    Guess,
    Guesser,
    MentionFinder,
    WordSimilarity,
)
from cfaug.papers.xmai.insertions.scores import (
    BROKEN_PHOTO,
    BlockList,
    ImageTextDistance,
    Normalise,
    Weigher,
    Weights,
    score_candidates,
)
from cfaug.settings.read_if import CommandJob

KIND = "insertion"
NAMED = 5
"""Number of blocked words that are named on the terminal."""
NO_GUESS, NO_CANDIDATE, BLOCKED = "no_guess", "no_candidate", "blocked"
"""Reasons of captions without insertion, besides those of a draft: no mention is within the
language model's length limit; none of its guesses is a candidate; or all candidates are blocked."""


def propose(draft: Draft, keep_unchanged: bool) -> Edited:
    """Return the result for a caption: the proposal with its change, and the rejected edits."""
    if draft.reason == BROKEN_PHOTO:
        return Edited((), {BROKEN_PHOTO: 0})
    changed, changes = draft.text, []
    if draft.canvas is not None:
        changed, starts = draft.canvas.result()
        for mention, guess, start in zip(draft.mentions, draft.chosen, starts, strict=True):
            if guess is None or start is None:
                continue
            written = changed[start : start + len(guess.word)]
            # Capitalised at the beginning of the caption.
            same = written.lower() == guess.word.lower()
            first = draft.detections[mention.objects[0]] if mention.objects else None
            changes.append(
                {
                    "word": written if same else guess.word,
                    "object": mention.label,
                    "noun": mention.noun,
                    "box": None if first is None or first.box is None else list(first.box),
                    "attributes": draft.attributes(mention),
                    "language": guess.probability,
                    "similarity": guess.similarity,
                    "dissimilarity": guess.distance,
                    "score": round_digits(guess.score),
                    "rank": guess.rank,
                    "start": start,
                }
            )
    why_not = BLOCKED if draft.blocked else NO_CANDIDATE if draft.guesses else NO_GUESS
    reason = draft.reason or why_not
    edited = propose_change(
        draft.example, changed, KIND, changes=changes, reason=reason, keep_unchanged=keep_unchanged
    )
    if not draft.text:
        return edited
    survivors = {
        "detections": len(draft.detections),
        "mentions": len(draft.mentions),
        "guesses": draft.guesses,
        "candidates": draft.candidates,
    }
    places = [{"object": mention.label, "noun": mention.noun} for mention, _, _ in draft.blocked]
    rejected = tuple(
        Rejected(text, Edit(KIND, "", word), BLOCKED, where)
        for (_, word, text), where in zip(draft.blocked, places, strict=True)
    )
    more: dict[str, Any] = {} if changes else {"reason": reason}
    if draft.blocked:
        words = [word for _, word, _ in draft.blocked]
        more["blocked"] = [{"word": w, **p} for w, p in zip(words, places, strict=True)]
    if draft.ignored:
        more["ignored_attributes"] = draft.ignored
    proposals = []
    for proposal in edited.proposals:
        first_text, about = proposal.details
        proposals.append(replace(proposal, details=(first_text, {**about, **more})))
    return Edited(tuple(proposals), {**survivors, **edited.survivors}, rejected)


def say_blocked(edited: Sequence[Edited]) -> None:
    """Name the blocked words on the terminal, the most frequent first."""
    words = Counter(lost.edit.after.lower() for result in edited for lost in result.rejected)
    if words:
        usual = ", ".join(f"{word} {count:,}" for word, count in words.most_common(NAMED))
        captions = sum(bool(result.rejected) for result in edited)
        say(
            f"blocked: {words.total():,} words in {captions:,} of {len(edited):,} captions "
            f"({usual}{', ...' if len(words) > NAMED else ''}); recipe.editor.block_list says which"
        )


@dataclass(frozen=True)
class AttributeInsertion:
    """Inserts words before the nouns of a caption that name objects of its image.

    Args:
        filler: the language model whose guesses are scored (bert-base-cased, section 4.4).
        word_encoder: the encoder of nouns and labels, whose similarity is the cosine
            (bert-base-nli-mean-tokens, section 4.4). ``None`` needs fallback=never.
        tagger: the part-of-speech tagger that finds the nouns to compare with the objects; ``None``
            needs fallback=never.
        attribute_encoder: the encoder of attributes and guesses (spaCy's en_core_web_md, section
            4.4); ``None`` is ``word_encoder``; without either, lambda_2 has to be 0.
        image_text: the distance of a caption from its image; ``None`` needs a lambda_3 of 0.
        weights: lambda_1 of the language model's probability, lambda_2 of the similarity to the
            object's attributes, lambda_3 of the distance from the image. Negative weights favour
            the opposite. Section 4.4: 1, 5 and 5.
        threshold: the least cosine at which a noun mentions an object: t (section 4.4).
        k: the number of candidates of a mention to score (section 4.4).
        guesses: the number of the language model's guesses, among which the first k candidates are
            taken; 20 in the released code.
        normalise: the method that makes the three scores of a mask's candidates comparable.
            ``min_max`` maps the least to 0 and the greatest to 1, as the released code does;
            ``sum`` divides by their sum (section 3), after which the distances of three captions
            that differ in one word are all about a third, so that lambda_3 has no effect.
        context: the language model's input to the left of a mask: ``sequential``, the words
            inserted there (section 3); or ``alone``, the caption without other insertions. Then
            choices are independent, and ablations over lambda, k and t share all answers of the
            models; it is an approximation of ours.
        fallback: the nouns to compare with the detected objects: every ``noun`` that is not a
            direct match; those of a ``text`` without any direct match (section 3); ``never`` any;
            or ``only`` nouns, without direct matches.
        block_list: the words not to insert; ``None`` allows every word.
        keep_unchanged: whether a caption without an insertion still gives a set, of the same text
            twice: the published tables also average over those.
        cache: the folder of cached answers of models, so that ablations over lambda, k and t repeat
            no question; ``None`` caches no answers.
        chunk: the number of captions that go through the models together; it bounds memory without
            changing results.
    """

    filler: MaskFiller
    word_encoder: SentenceEmbedder | None = None
    tagger: Tagger | None = None
    attribute_encoder: SentenceEmbedder | None = None
    image_text: ImageTextDistance | None = None
    weights: Sequence[float] = (1.0, 5.0, 5.0)
    threshold: float = 0.7
    k: Positive = 3
    guesses: Positive = 20
    normalise: Normalise = "min_max"
    context: Context = "sequential"
    fallback: Fallback = "noun"
    block_list: BlockList | None = field(default_factory=BlockList)
    keep_unchanged: bool = True
    cache: Annotated[str | None, NO_RESULT] = None
    chunk: Annotated[Positive, NO_RESULT] = 1000

    @staticmethod
    def find_left_out(node: Mapping[str, Any], place: str, job: CommandJob) -> dict[str, str]:
        """Return the distance from images if it is given no weight."""
        weights = node.get("weights")
        if weights is None or len(weights) != 3 or weights[2] != 0:
            return {}
        return {"image_text": f"with a lambda_3 other than 0 ({place}weights)"}

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor")
        if self._weights[1] and self.word_encoder is None and self.attribute_encoder is None:
            raise UserError(
                f"lambda_2, {self._weights[1]:g} of recipe.editor.weights, weighs the similarity "
                "of words, and recipe.editor.word_encoder is missing: set lambda_2 to 0, as in "
                f"'recipe.editor.weights=[{self._weights[0]:g},0,{self._weights[2]:g}]', or choose "
                "a zoo that has one"
            )
        if self._weights[2] and self.image_text is None:
            raise UserError(
                f"lambda_3, {self._weights[2]:g} of recipe.editor.weights, weighs the distance of "
                "image and text, and recipe.editor.image_text is missing: set lambda_3 to 0, as in "
                f"{self._without_images}, or choose a zoo with a CLIP, such as zoo=shapescapes or "
                "zoo=paper"
            )
        if self.fallback != "never" and (self.word_encoder is None or self.tagger is None):
            raise UserError(
                f"recipe.editor.fallback={self.fallback} compares nouns with "
                "objects and needs recipe.editor.word_encoder and recipe.editor.tagger: without "
                "them set recipe.editor.fallback=never"
            )

    @cached_property
    def _weights(self) -> Weights:
        given = tuple(self.weights)
        numbers = [w for w in given if isinstance(w, int | float) and math.isfinite(w)]
        if len(given) != 3 or len(numbers) != 3:
            raise UserError(
                f"recipe.editor.weights={list(given)} should be three numbers: lambda_1, lambda_2 "
                "and lambda_3"
            )
        first, second, third = map(float, numbers)
        return first, second, third

    @property
    def _without_images(self) -> str:
        return f"'recipe.editor.weights=[{self._weights[0]:g},{self._weights[1]:g},0]'"

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return one proposal of two texts, or none, for each example's first text, in order."""
        editeds = []
        for start in range(0, len(examples), self.chunk):
            drafts = self._prepare(examples[start : start + self.chunk])
            for step in range(max((len(draft.mentions) for draft in drafts), default=0)):
                self._fill([draft for draft in drafts if len(draft.mentions) > step], step)
            editeds += [propose(draft, self.keep_unchanged) for draft in drafts]
        similarities = (self._similarity, self._weigher.similarity)
        caches = [self._guesser.cache, self._weigher.cache]
        caches += [similarity.cache for similarity in similarities if similarity is not None]
        for cache in caches:
            cache.write()
        self._weigher.forget()
        if len(examples) > 1:  # a single example has the words in its details
            say_blocked(editeds)
        return editeds

    def describe(self) -> dict[str, str]:
        """Return the parts, the weights and the choices, for the card."""
        described: dict[str, str] = {}
        parts = (self.filler, self.word_encoder, self.tagger, self.image_text, self.block_list)
        for part in parts:
            described |= {} if part is None else part.describe()
        if self.attribute_encoder is not None:
            of = self.attribute_encoder.describe()
            described |= {f"attributes {name}": value for name, value in of.items()}
        lambdas = ", ".join(f"{weight:g}" for weight in self._weights)
        choices = f"normalise={self.normalise}, context={self.context}, fallback={self.fallback}"
        return {**described, "insertion": f"lambda {lambdas}; {choices}"}

    def _prepare(self, examples: Sequence[Example]) -> list[Draft]:
        """Find the mentions of every caption, and note the reason if a caption has none."""
        drafts = [Draft.of(example, self._guesser.mask) for example in examples]
        for example in examples if self._weights[2] else ():
            if example.image is None:
                raise UserError(
                    f"example {example.key!r} has no image, whose distance lambda_3, "
                    f"{self._weights[2]:g} of recipe.editor.weights, weighs: name a source with "
                    f"images, or set lambda_3 to 0, as in {self._without_images}"
                )
        some = [draft for draft in drafts if not draft.reason]
        finder = MentionFinder(self.fallback, self.tagger, self._similarity, self.threshold)
        mentions = finder.find([draft.text for draft in some], [draft.detections for draft in some])
        for draft, draft_mentions in zip(some, mentions, strict=True):
            draft.place(draft_mentions)
        for draft in drafts:
            if draft.text and draft.reason != MASK_IN_TEXT:
                draft.canvas = Canvas(draft.text, draft.mentions, self.context)
        return drafts

    def _fill(self, drafts: Sequence[Draft], i: int) -> None:
        """Fill mask ``i`` of captions that have such a mask."""
        live = [
            (draft, draft.canvas)
            for draft in drafts
            if draft.reason != BROKEN_PHOTO and draft.canvas is not None
        ]
        guessed = self._guesser.ask([canvas.surroundings(i) for _, canvas in live])
        candidates = []
        for (draft, canvas), guesses in zip(live, guessed, strict=True):
            # The first k guesses that may be inserted.
            mention, unwanted = draft.mentions[i], NLTK_STOP_WORDS | canvas.unwanted(i)
            nouns = {mention.noun, *(draft.detections[number].label for number in mention.objects)}
            kept: list[Guess] = []
            for guess in guesses:
                if len(kept) == self.k:
                    break
                if guess.word.lower() in unwanted:
                    continue
                if self.block_list is not None and self.block_list.blocks(guess.word, nouns):
                    draft.blocked.append((mention, guess.word, canvas.candidate(i, guess.word)))
                else:
                    kept.append(guess)
            draft.guesses += len(guesses)
            draft.candidates += len(kept)
            candidates.append(kept)
        self._weigher.weigh([draft for draft, _ in live], candidates, i)
        for (draft, canvas), some in zip(live, candidates, strict=True):
            scores = score_candidates(
                [guess.probability for guess in some],
                [guess.similarity for guess in some if guess.similarity is not None],
                [guess.distance for guess in some if guess.distance is not None],
                self._weights,
                self.normalise,
            )
            if scores:  # the highest, or the first of equal ones
                best = max(range(len(scores)), key=scores.__getitem__)
                draft.chosen[i] = replace(some[best], score=scores[best])
                canvas.fill(i, some[best].word)

    @cached_property
    def _similarity(self) -> WordSimilarity | None:
        encoder = self.word_encoder
        return None if encoder is None else WordSimilarity(encoder, self._folder)

    @cached_property
    def _weigher(self) -> Weigher:
        similarity = self._similarity
        if self.attribute_encoder is not None:
            similarity = WordSimilarity(self.attribute_encoder, self._folder)
        image_text = self.image_text if self._weights[2] else None
        return Weigher(similarity, image_text, self._folder)

    @cached_property
    def _folder(self) -> Path | None:
        return None if self.cache is None else Path(self.cache).expanduser()

    @cached_property
    def _guesser(self) -> Guesser:
        # Only a model's answers are worth caching, and only a model describes everything that they
        # depend on.
        folder = self._folder if isinstance(self.filler, MaskedLM) else None
        described = f"{self.filler.describe()} {self.guesses}" if folder else ""
        return Guesser(self.filler, self.guesses, AnswerCache(folder, f"guesses {described}"))
