"""Annotators: what a model, or a file, says of examples before they are edited.

A stage of its own: captions for images that have none, the objects in a photo. Its results are kept
by content, so that a run that was interrupted, and any other that meets the same images, asks no
model twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.data.sources.lists import list_records
from cfaug.devices import check_device, choose_device
from cfaug.errors import UserError
from cfaug.generate.annotation_cache import Annotation, AnnotationCache
from cfaug.generate.failures import Attempt, Failure, attempt
from cfaug.pixels import decode_image, stack_pixels
from cfaug.progress import Progress
from cfaug.protocols import Annotator, Captioner, Detector
from cfaug.types import Example
from cfaug.weights import sha256, sha256_text

if TYPE_CHECKING:
    from PIL.Image import Image

    from cfaug.pretrained import Checkpoint

BATCH = 16
"""Contents that an annotator is asked about at once."""

SECONDS_AT_RISK = 20.0
"""How long results may wait to be written: a process that is killed loses no more."""


@dataclass(frozen=True)
class AnnotationStage:
    """Adds to examples what annotators say of them, each annotator after the one before.

    Contents are asked about in batches of ``batch`` different ones, in the order of the examples,
    whatever the cache holds: so an interrupted run gives, when it is resumed, the same bytes as one
    that was not.

    Args:
        annotators: in the order in which they see an example; each sees what those before said.
        cache: folder in which results are kept; ``None`` keeps nothing on disk.
        batch: contents that an annotator is asked about at once.
        texts_from: name of an annotation that is a list of texts, which become the texts of
            examples that have none; ``None`` leaves the texts alone.

    Raises:
        UserError: if two annotators have the same name, or ``batch`` is below 1.
    """

    annotators: Sequence[Annotator]
    cache: Path | None = None
    batch: int = BATCH
    texts_from: str | None = None

    def __post_init__(self) -> None:
        names = [one.name for one in self.annotators]
        for name in names:
            if names.count(name) > 1:
                raise UserError(f"the annotator {name!r} is duplicated: give each its own name")
        if self.batch < 1:
            raise UserError(f"a batch of {self.batch} examples to annotate: must be at least 1")

    @cached_property
    def _caches(self) -> list[AnnotationCache | None]:
        return [
            AnnotationCache(self.cache, one.identity()) if one.reads else None
            for one in self.annotators
        ]

    def annotate(self, examples: Sequence[Example]) -> Attempt[Example]:
        """Annotate the examples of one shard, or of a whole source.

        Returns:
            By place, the annotated examples, and those that failed with the reason. Failures are
            not kept: the next run tries again.

        Raises:
            UserError: if an annotator gives a name that an example's source gave already; if every
                one of a batch of examples fails; if results cannot be written.
        """
        done = dict(enumerate(examples))
        failed: dict[int, Failure] = {}
        for annotator, kept in zip(self.annotators, self._caches, strict=True):
            places = list(done)
            some = [done[place] for place in places]
            if kept is None:
                found = attempt(some, annotator.annotate, lambda one: one.key)
            else:
                found = _ask(some, annotator, kept, self.batch)
            failed |= {places[row]: failure for row, failure in found.lost_by_place().items()}
            done = {places[row]: _merge(some[row], one) for row, one in sorted(found.done.items())}
        if self.texts_from is not None:
            done = {place: _with_texts(one, self.texts_from) for place, one in done.items()}
        return Attempt(done, failed)

    def identities(self) -> dict[str, str]:
        """Return by annotator a hash of its weights and of all settings that change an answer."""
        return {f"annotator {one.name} (identity)": one.identity() for one in self.annotators}

    def describe(self) -> dict[str, str]:
        """Return names, revisions and hashes of the weights, for the card."""
        return {name: said for one in self.annotators for name, said in one.describe().items()}


def _merge(example: Example, found: Annotation) -> Example:
    twice = sorted(set(example.extra) & set(found))
    if twice:
        raise UserError(
            f"example {example.key!r} has {twice[0]!r} already, from its source: give the "
            "annotator another name"
        )
    return replace(example, extra={**example.extra, **found})


def _with_texts(example: Example, name: str) -> Example:
    if example.texts:
        return example
    texts = example.extra.get(name)
    if not isinstance(texts, Sequence) or isinstance(texts, str) or not texts:
        raise UserError(
            f"example {example.key!r} has no texts, and no list of texts named {name!r} from an "
            f"annotator; it has {', '.join(sorted(example.extra)) or 'no annotations'}"
        )
    return replace(example, texts=tuple(texts))


def _ask(
    examples: Sequence[Example], annotator: Annotator, kept: AnnotationCache, size: int
) -> Attempt[Annotation]:
    """Return what an annotator says of each example, by place."""
    keys = [content_key(one, annotator.reads) for one in examples]
    first: dict[str, Example] = {}
    for key, example in zip(keys, examples, strict=True):
        first.setdefault(key, example)
    lost = _fill(kept, first, annotator, size)
    done = {row: kept[key] for row, key in enumerate(keys) if key in kept}
    failed = {
        row: Failure(examples[row].key, lost[key].error)
        for row, key in enumerate(keys)
        if key in lost
    }
    return Attempt(done, failed)


def _fill(
    kept: AnnotationCache, contents: Mapping[str, Example], annotator: Annotator, size: int
) -> dict[str, Failure]:
    """Ask about every content that is not known, write on the way, and return what failed."""
    lost: dict[str, Failure] = {}
    fresh: dict[str, Annotation] = {}
    written = time.monotonic()
    every = list(contents)
    with Progress(f"annotating: {annotator.name}", len(every), "examples") as progress:
        try:
            for start in range(0, len(every), size):
                keys = every[start : start + size]
                if all(key in kept for key in keys):
                    progress.skip(len(keys))
                    continue
                # The whole batch, with what is known of it: the last digits depend on the batch.
                some = [contents[key] for key in keys]
                found = attempt(some, annotator.annotate, lambda one: one.key)
                answers = {keys[row]: one for row, one in found.done.items()}
                fresh |= {key: one for key, one in answers.items() if key not in kept}
                lost |= {keys[row]: failure for row, failure in found.lost_by_place().items()}
                if time.monotonic() - written > SECONDS_AT_RISK:
                    kept.add(fresh)
                    fresh, written = {}, time.monotonic()
                progress.advance(len(keys))
        finally:
            kept.add(fresh)
    return lost


def content_key(example: Example, reads: Sequence[str]) -> str:
    """Return the hash of the parts of an example that an annotator reads.

    Args:
        example: any.
        reads: of ``key``, ``group``, ``texts``, ``image``, ``label`` and ``extra``.
    """
    parts: dict[str, Any] = {name: getattr(example, name) for name in reads if name != "image"}
    if "image" in reads:
        parts["image"] = None if example.image is None else example.image.digest
    if "extra" in parts:
        parts["extra"] = dict(parts["extra"])
    return sha256_text(json.dumps(parts, sort_keys=True))


@dataclass(frozen=True)
class _ModelAnnotator:
    """An annotator that asks a model, loaded when it is first asked.

    Args:
        model: which one, as ``conf/model`` names it.
        name: under which results are kept in ``Example.extra``.
        device: see ``cfaug.devices.choose_device``; ``auto`` is CUDA where there is one.
    """

    model: Checkpoint
    name: str
    device: str = "auto"

    reads = ("image",)
    protocol = object

    def __post_init__(self) -> None:
        check_device(self.device, f"device of the annotator {self.name}")

    @cached_property
    def _device_model(self) -> Any:
        device = choose_device(self.device, f"device of the annotator {self.name}")
        return self.model.load(self.protocol).to(device)

    def identity(self) -> str:
        """Return a hash of the weights and of all settings that change an answer."""
        parts = [type(self).__qualname__, self.name, self.device]
        return sha256_text(
            " ".join([*parts, self.model.weights_hash(), self.model.settings_hash()])
        )

    def describe(self) -> dict[str, str]:
        """Return the model with its settings, and the hash of its weights, for the card."""
        return {self.name: f"{self.model} sha256:{self.model.weights_hash()}"}


@dataclass(frozen=True)
class CaptionImages(_ModelAnnotator):
    """Describes images: ``extra[name]`` becomes a list of one caption.

    Args:
        model: one that provides a Captioner.
        name: under which results are kept in ``Example.extra``.
        device: see ``cfaug.devices.choose_device``; ``auto`` is CUDA where there is one.
    """

    name: str = "captions"

    protocol = Captioner

    def annotate(self, examples: Sequence[Example]) -> list[Annotation]:
        """Return ``{name: [caption]}`` for each example.

        Raises:
            UserError: naming the example, if its image is missing or cannot be decoded.
        """
        import torch

        transform = self._device_model.transform
        images = [transform(image) for image in _images(examples)]
        pixels = torch.from_numpy(stack_pixels(images, transform.size))
        return [{self.name: [caption]} for caption in self._device_model.caption(pixels)]


@dataclass(frozen=True)
class DetectObjects(_ModelAnnotator):
    """Finds objects in images: ``extra[name]`` becomes a list of label, score and box.

    Args:
        model: one that provides a Detector.
        name: under which results are kept in ``Example.extra``.
        device: see ``cfaug.devices.choose_device``; ``auto`` is CUDA where there is one.
    """

    name: str = "detections"

    protocol = Detector

    def annotate(self, examples: Sequence[Example]) -> list[Annotation]:
        """Return ``{name: [{"label": ..., "score": ..., "box": ...}, ...]}`` for each example.

        Raises:
            UserError: naming the example, if its image is missing or cannot be decoded.
        """
        found = self._device_model.detect(list(_images(examples)))
        return [{self.name: objects} for objects in found]


def _images(examples: Sequence[Example]) -> Iterator[Image]:
    for example in examples:
        if example.image is None:
            raise UserError(f"example {example.key!r} has no image to annotate")
        yield decode_image(example.image.read(), f"example {example.key!r}")


@dataclass(frozen=True)
class CaptionsFromFile:
    """Captions that somebody made already: ``extra[name]`` becomes the list of them.

    Args:
        file: ``.jsonl``, ``.json``, ``.csv`` or ``.tsv``, a caption a record; an image may have
            several.
        column: of what names the example.
        text: column of the caption.
        match: what of an example the column names: ``key``, ``group``, ``label`` or a name in its
            ``extra``, such as that of its image.
        name: under which results are kept in ``Example.extra``.
    """

    file: str
    column: str = "key"
    text: str = "caption"
    match: str = "key"
    name: str = "captions"

    reads = ()
    """A file answers faster than a cache."""

    def annotate(self, examples: Sequence[Example]) -> list[Annotation]:
        """Return ``{name: captions}`` for each example.

        Raises:
            UserError: naming the example, if the file has no caption of it.
        """
        return [{self.name: self._captions_of(example)} for example in examples]

    def _captions_of(self, example: Example) -> list[str]:
        known = {"key": example.key, "group": example.group, "label": example.label}
        wanted = known.get(self.match, example.extra.get(self.match))
        if wanted is None:
            raise UserError(
                f"example {example.key!r} has no {self.match!r}, by which {self.file} should name "
                f"it: choose match=key, group or label"
                + "".join(f" or {name}" for name in sorted(example.extra))
            )
        captions = self._captions.get(str(wanted))
        if captions is None:
            raise UserError(
                f"{self.file} has no caption of example {example.key!r}: no record has "
                f"{self.column}={wanted!r}"
            )
        return captions

    @cached_property
    def _captions(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for where, record in list_records(Path(self.file).expanduser()):
            for column in (self.column, self.text):
                if column not in record:
                    raise UserError(
                        f"{where} has no {column!r}; it has {', '.join(map(str, record))}"
                    )
            text = record[self.text]
            if not isinstance(text, str) or not text.strip():
                raise UserError(f"{where}: the caption {text!r} is empty or not a text")
            found.setdefault(str(record[self.column]), []).append(" ".join(text.split()))
        return found

    def identity(self) -> str:
        """Return a hash of the file and of the settings."""
        parts = [self.column, self.text, self.match, self.name]
        return sha256_text(" ".join([*parts, sha256([Path(self.file).expanduser()])]))

    def describe(self) -> dict[str, str]:
        """Return the file's name and hash, for the card."""
        file = Path(self.file).expanduser()
        return {self.name: f"{file.name} sha256:{sha256([file])}"}
