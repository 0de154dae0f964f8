"""Models on whole test sets: embeddings, logits and matching scores, each image decoded once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cfaug.core.errors import UserError, say_once
from cfaug.core.pixels import decode_image, stack_pixels
from cfaug.core.progress import watch
from cfaug.core.protocols import Projects
from cfaug.core.safety.safe_loading import NOT_NUMBERS, find_damaged
from cfaug.core.weights import sha256_text
from cfaug.data.sources.row import equal_names_warning, require_names
from cfaug.evaluation.cached_model import (
    CachedClassifier,
    CachedEncoder,
    CachedMatcher,
    batch_keys,
    explain_refusal,
    image_keys,
    recall_or_compute,
    text_keys,
)
from cfaug.models.indistinct import (
    Indistinct,
    check_captions,
    check_image_embeddings,
    check_text_embeddings,
    check_varying,
    count_indistinct,
)
from cfaug.stats.classification import class_vectors, fill_templates, zero_shot_scores

if TYPE_CHECKING:
    from torch import Tensor

    from cfaug.core.pixels import ImageTransform
    from cfaug.core.protocols import Classifier, DualEncoder, Matcher
    from cfaug.data.index import Index
    from cfaug.evaluation.records import Classes


# Embeddings of whole test sets: decoded once per benchmark, computed in batches, normalised.

KEEP_BYTES = 512 * 1024 * 1024
"""Bytes of decoded pixels kept between models; least recently used test sets are dropped first."""
DECODERS = 4
"""Threads that decode images; PIL releases the interpreter's lock meanwhile."""


class _Kept:
    """Decoded test sets of this process, up to ``KEEP_BYTES``, as every run asks for the same."""

    def __init__(self) -> None:
        self._sets: OrderedDict[tuple[Any, ...], np.ndarray] = OrderedDict()

    def get(self, key: tuple[Any, ...]) -> np.ndarray | None:
        pixels = self._sets.get(key)
        if pixels is not None:
            self._sets.move_to_end(key)
        return pixels

    def put(self, key: tuple[Any, ...], pixels: np.ndarray) -> None:
        self._sets[key] = pixels
        while sum(array.nbytes for array in self._sets.values()) > KEEP_BYTES:
            self._sets.popitem(last=False)


_KEPT = _Kept()


class Pixels:
    """The images of an index at the given rows, after a model's transform.

    Kept between models that share a transform, because decoding costs more than a small model.
    """

    def __init__(self, index: Index, rows: np.ndarray) -> None:
        self.index = index
        self.rows = rows

    def batches(self, transform: ImageTransform, size: int) -> Iterator[np.ndarray]:
        """Yield every image as uint8 (n, 3, side, side), ``size`` at a time."""
        key = (self.index.folder, self.rows.tobytes(), transform)
        whole = _KEPT.get(key)
        if whole is None:
            fresh = decode_rows(self.index, self.rows, transform, size)
            if len(self.rows) * 3 * transform.size**2 > KEEP_BYTES:
                yield from fresh
                return
            whole = np.concatenate(list(fresh))
            _KEPT.put(key, whole)
        for start in range(0, len(whole), size):
            yield whole[start : start + size]


def decode_rows(
    index: Index, rows: np.ndarray, transform: ImageTransform, size: int
) -> Iterator[np.ndarray]:
    """Yield the images at the given rows as uint8 (n, 3, side, side), ``size`` at a time."""

    def decode(row: int) -> np.ndarray:
        return transform(decode_image(index.read_image(row), index.image_name(row)))

    with ThreadPoolExecutor(DECODERS) as pool:
        for start in range(0, len(rows), size):
            some = rows[start : start + size].tolist()
            yield stack_pixels(list(pool.map(decode, some)), transform.size)


ImageFeatures = Literal["embedding", "encode_image", "before_projection"]
"""Unit embeddings, as retrieval compares them; as the encoder returns them; and as its image tower
gives them before they are projected into the space of texts."""


def embed_images(
    encoder: DualEncoder | CachedEncoder,
    pixels: Pixels,
    batch_size: int,
    features: ImageFeatures = "embedding",
) -> np.ndarray:
    """Return image embeddings, float32 (images, dim), in the order of ``pixels.rows``.

    Images of equal bytes have equal embeddings.

    Raises:
        UserError: if the encoder has no features before a projection and these are wanted.
    """

    def compute(places: list[int]) -> Iterator[np.ndarray]:
        import torch

        some = pixels
        if len(places) < len(pixels.rows):
            some = Pixels(pixels.index, pixels.rows[places])
        model = _model(encoder)
        encode = model.encode_image
        if features == "before_projection":
            if not isinstance(model, Projects):
                raise UserError(
                    f"{type(model).__name__} cannot be asked for features before a projection: "
                    "benchmark.features=embedding or encode_image"
                )
            encode = model.encode_unprojected
        batches = some.batches(model.transform, batch_size)
        return _embed(
            model,
            lambda batch: encode(torch.from_numpy(batch)),
            watch(batches, "embedding", len(some.rows), "images", len),
            lambda place: some.index.image_name(int(some.rows[place])),
            normalise=features == "embedding",
        )

    keys = image_keys(pixels.index, pixels.rows)
    if isinstance(encoder, CachedEncoder):
        by_features = {
            "embedding": lambda: encoder.images,
            "encode_image": lambda: encoder.raw_images,
            "before_projection": lambda: encoder.unprojected_images,
        }
        embeddings = recall_or_compute(by_features[features](), keys, compute)
    else:
        embeddings = compute_distinct(keys, compute)
    check_image_embeddings(
        lambda place: pixels.index.image_name(int(pixels.rows[place])), keys, embeddings
    )
    return embeddings


def embed_pictures(
    encoder: DualEncoder | CachedEncoder, pictures: Sequence[np.ndarray], batch_size: int
) -> np.ndarray:
    """Return unit embeddings of pictures that no index has, float32 (pictures, dim).

    Args:
        pictures: uint8 (3, side, side) each, from the encoder's ``transform``.
    """
    import torch

    model = _model(encoder)
    batches = (
        stack_pixels(list(pictures[start : start + batch_size]), model.transform.size)
        for start in range(0, len(pictures), batch_size)
    )

    embeddings = _embed(
        model,
        lambda batch: model.encode_image(torch.from_numpy(batch)),
        batches,
        lambda place: f"picture {place}",
    )
    return np.concatenate(list(embeddings))


def embed_texts(
    encoder: DualEncoder | CachedEncoder,
    texts: Sequence[str],
    batch_size: int,
    normalise: bool = True,
) -> np.ndarray:
    """Return text embeddings, float32 (texts, dim), in order; equal texts have equal ones.

    Args:
        normalise: scale embeddings to unit length; otherwise they are as the encoder returns them,
            for callers that need their mean.
    """

    def count() -> Indistinct:
        return _count_indistinct(encoder, texts)

    check_captions(count)

    def compute(places: list[int]) -> Iterator[np.ndarray]:
        some = [texts[at] for at in places]
        model = _model(encoder)
        batches = (some[i : i + batch_size] for i in range(0, len(some), batch_size))
        return _embed(
            model,
            lambda batch: model.encode_text(model.tokenize(batch)),
            watch(batches, "embedding", len(some), "texts", len),
            lambda place: repr(some[place]),
            normalise,
        )

    if isinstance(encoder, CachedEncoder):
        kept = encoder.texts if normalise else encoder.raw_texts
        embeddings = recall_or_compute(kept, text_keys(texts), compute)
    else:
        embeddings = compute_distinct(texts, compute)
    check_text_embeddings(texts, embeddings, count)
    return embeddings


def _count_indistinct(
    model: DualEncoder | CachedEncoder | Matcher | CachedMatcher, texts: Sequence[str]
) -> Indistinct:
    """Count captions that the model cannot tell apart; the counts of a cached model are kept."""
    if not isinstance(model, CachedEncoder | CachedMatcher):
        return count_indistinct(model.tokenize, texts)
    key = sha256_text("\n".join(texts))
    if key not in model.captions:
        counts = count_indistinct(model.model.tokenize, texts)
        with explain_refusal(model.folder):
            model.captions.add({key: asdict(counts)})
    kept = model.captions[key]
    return Indistinct(**{**kept, "example": tuple(kept["example"])})


def _model(encoder: DualEncoder | CachedEncoder) -> DualEncoder:
    return encoder.model if isinstance(encoder, CachedEncoder) else encoder


def compute_distinct(
    keys: Sequence[Hashable], compute: Callable[[list[int]], Iterator[np.ndarray]]
) -> np.ndarray:
    """Return a model's output for each key; equal keys are computed once and have equal outputs.

    Computed twice, they might differ, as the rest of a batch changes an embedding's last digits.

    Args:
        keys: a key for the content of each input, such as an image's digest or a text itself.
        compute: yields the outputs for positions in ``keys``, batch by batch.
    """
    first: dict[Hashable, int] = {}
    for position, key in enumerate(keys):
        first.setdefault(key, position)
    distinct = np.concatenate(list(compute(list(first.values()))))
    if len(first) == len(keys):
        return distinct
    number = {key: i for i, key in enumerate(first)}
    return distinct[[number[key] for key in keys]]


def _embed(
    encoder: DualEncoder,
    run: Callable[..., Tensor],
    batches: Iterable,
    name: Callable[[int], str],
    normalise: bool = True,
) -> Iterator[np.ndarray]:
    """Yield embeddings batch by batch; ``name`` names an input by its position in all batches."""
    import torch

    done = 0
    for batch in batches:
        with torch.inference_mode(), evaluating(encoder):
            given = run(batch).float()
            if normalise:
                given = torch.nn.functional.normalize(given, dim=-1)
            outputs = given.cpu().numpy()
        if not np.isfinite(outputs).all():
            wrong = int(np.flatnonzero(~np.isfinite(outputs).all(axis=-1))[0])
            check_outputs(encoder, outputs, name(done + wrong))
        done += len(outputs)
        yield outputs


def check_outputs(model: Any, outputs: np.ndarray, first: str = "") -> None:
    """Refuse a model's outputs if any is NaN or infinite, before anything is cached or counted.

    Args:
        model: the model that computed the outputs, a ``torch.nn.Module``.
        outputs: embeddings or scores, float of any shape.
        first: the name of the first input with such an output; "" if unknown.
    """
    if np.isfinite(outputs).all():
        return
    name = find_damaged(model)
    overflow = "its numbers overflow" + (f", first for {first}" if first else "")
    reason = overflow if name is None else f"its weight {name} {NOT_NUMBERS}"
    raise UserError(f"the model's answers are not numbers (NaN or infinite): {reason}")


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Switch a ``torch.nn.Module``'s dropout off, and restore its mode afterwards."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


# Classify whole test sets: each distinct image is decoded and classified once.


def classify_images(
    model: Classifier | CachedClassifier | ZeroShotClassifier, pixels: Pixels, batch_size: int
) -> np.ndarray:
    """Return logits, float32 (images, classes), in the order of ``pixels.rows``.

    Images of equal bytes have equal logits.
    """
    if isinstance(model, ZeroShotClassifier):
        return model.classify_images(pixels, batch_size)

    def compute(places: list[int]) -> Iterator[np.ndarray]:
        some = pixels
        if len(places) < len(pixels.rows):
            some = Pixels(pixels.index, pixels.rows[places])
        classifier = model.model if isinstance(model, CachedClassifier) else model
        return _logit_batches(classifier, some, batch_size)

    keys = image_keys(pixels.index, pixels.rows)
    if isinstance(model, CachedClassifier):
        logits = recall_or_compute(model.logits, keys, compute)
    else:
        logits = compute_distinct(keys, compute)
    if len(set(keys)) == len(keys):
        check_varying(logits, f"all {len(keys):,} images the same scores of classes")
    return logits


def _logit_batches(model: Classifier, pixels: Pixels, size: int) -> Iterator[np.ndarray]:
    import torch

    batches = pixels.batches(model.transform, size)
    for batch in watch(batches, "classifying", len(pixels.rows), "images", len):
        with torch.inference_mode():
            logits = model.classify(torch.from_numpy(batch)).float().cpu().numpy()
        check_outputs(model, logits)
        yield logits


# Scores of a matcher for images with texts: cached, or computed in batches.


@dataclass(frozen=True)
class PairsToScore:
    """The pairs to score for one kind of score.

    Attributes:
        index: the source of the images.
        rows: the row of each pair's image in ``index``, integers (pairs,).
    """

    name: str
    index: Index
    rows: np.ndarray
    texts: list[str]

    def at(self, places: list[int]) -> PairsToScore:
        """Return some of the pairs."""
        return replace(self, rows=self.rows[places], texts=[self.texts[at] for at in places])

    def equal(self, other: PairsToScore) -> np.ndarray:
        """Return which pairs have the same image and text as the other's, bool (pairs,)."""
        mine, theirs = (
            pairs.index.digests[pairs.index.images[pairs.rows]] for pairs in (self, other)
        )
        texts = [a == b for a, b in zip(self.texts, other.texts, strict=True)]
        return (mine == theirs).all(axis=1) & np.array(texts, bool)


def match_pairs(matcher: Matcher | CachedMatcher, pairs: PairsToScore, size: int) -> np.ndarray:
    """Return a matcher's scores for images with texts, float32 (pairs,), cached or computed."""
    check_captions(lambda: _count_indistinct(matcher, list(dict.fromkeys(pairs.texts))))
    if isinstance(matcher, CachedMatcher):
        scores = recall_or_compute(
            matcher.scores,
            batch_keys(image_keys(pairs.index, pairs.rows), text_keys(pairs.texts), size),
            lambda missing: _score_batches(matcher.model, pairs.at(missing), size),
        )
    else:
        scores = np.concatenate(list(_score_batches(matcher, pairs, size)))
    check_varying(scores, f"all {len(scores):,} combinations of an image and a text the same score")
    return scores


def _score_batches(matcher: Matcher, pairs: PairsToScore, size: int) -> Iterator[np.ndarray]:
    import torch

    batches = decode_rows(pairs.index, pairs.rows, matcher.transform, size)
    title = f"matching ({pairs.name})"
    for i, pixels in enumerate(watch(batches, title, len(pairs.rows), "combinations", len)):
        texts = pairs.texts[i * size : (i + 1) * size]
        with torch.inference_mode():
            scores = matcher.match(torch.from_numpy(pixels), texts)
        outputs = scores.float().cpu().numpy()
        check_outputs(matcher, outputs)
        yield outputs


# A dual encoder as a classifier: the class whose prompts are nearest (Radford et al., 2021).


class ZeroShotClassifier:
    """A :class:`cfaug.core.protocols.Classifier` whose logits are cosines times the learnt scale.

    Args:
        classes: the classes, their names in prompts, and the prompts' templates.
    """

    def __init__(
        self, encoder: DualEncoder | CachedEncoder, classes: Classes, batch_size: int = 256
    ) -> None:
        where = "the classes to choose from"
        require_names(classes.names, where, "ask for: benchmark.classes=FILE gives names")
        if (warning := equal_names_warning(classes.names, where)) is not None:
            say_once(warning)
        prompts = embed_texts(encoder, fill_templates(classes.templates, classes.names), batch_size)
        shape = (len(classes.names), len(classes.templates), -1)
        self._vectors = class_vectors(prompts.reshape(shape))
        self._scale = float(encoder.logit_scale().detach())
        self._encoder = encoder
        self.classes: tuple[str, ...] = tuple(classes.labels)

    @property
    def transform(self) -> ImageTransform:
        """The encoder's own image transform."""
        return self._encoder.transform

    def classify(self, pixels: Tensor) -> Tensor:
        import torch

        embeddings = self._encoder.encode_image(pixels).float().cpu().numpy()
        return torch.from_numpy(self._scores(embeddings))

    def classify_images(self, pixels: Pixels, batch_size: int) -> np.ndarray:
        """Return the logits of the images of an index, float32 (images, classes).

        Cached embeddings are not computed again.
        """
        return self._scores(embed_images(self._encoder, pixels, batch_size))

    def _scores(self, images_ND: np.ndarray) -> np.ndarray:
        scores: np.ndarray = zero_shot_scores(images_ND, self._vectors) * self._scale
        return scores.astype(np.float32)
