"""Annotators: descriptions of examples by a model, or from a file, before they are edited.

They caption images or find the objects in them. ``cfaug.generate.annotation`` runs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from cfaug.core.annotations import NO_RESULT
from cfaug.core.errors import RejectedError, UnavailableError, UserError, say
from cfaug.core.kept_records import KeptRecords, Record
from cfaug.core.pixels import decode_image, open_image, stack_pixels
from cfaug.core.processes import check_device, choose_device
from cfaug.core.protocols import Captioner, Detector, OpenVocabularyDetector
from cfaug.core.types import Example
from cfaug.core.weights import sha256, sha256_text
from cfaug.data.detections import DETECTIONS, detections_from_json, detections_to_json
from cfaug.data.shards.shards import disk_errors
from cfaug.data.sources.detection_files import DetectionFile
from cfaug.data.sources.lists import list_records
from cfaug.editing.protocols import TAGS, Tagger
from cfaug.editing.sentence import split
from cfaug.generate.crop_attributes import CropAttributes
from cfaug.settings.read_if import ReadIf

if TYPE_CHECKING:
    from PIL.Image import Image

    from cfaug.models.checkpoints import Checkpoint


BROKEN_PHOTO, NO_TEXT = "photo_broken", "no caption"
"""Reasons to reject an example: its image cannot be decoded, or the file has no caption for it."""


@dataclass(frozen=True)
class ModelAnnotator:
    """An annotator that runs a model, loaded on first use.

    Args:
        model: the specification of the model, a node of ``conf/model``.
        name: the key of the results in ``Example.extra``.
        device: a name for ``choose_device``; ``auto`` is CUDA where there is one.
    """

    model: Checkpoint
    name: str
    device: Annotated[str, NO_RESULT] = "auto"

    reads: ClassVar[tuple[str, ...]] = ("image",)
    protocol: ClassVar[type] = object

    def __post_init__(self) -> None:
        check_device(self.device, f"device of the annotator {self.name}")

    @cached_property
    def device_model(self) -> Any:
        """The model, on its device."""
        device = choose_device(self.device, f"device of the annotator {self.name}")
        return self.model.load(self.protocol).to(device)

    def identity(self) -> str:
        """Return a hash of the weights and of all settings that change an answer."""
        parts = [type(self).__qualname__, self.name, self.device]
        hashes = [self.model.weights_hash(), self.model.settings_hash()]
        return sha256_text(" ".join([*parts, *hashes, *self.own_settings()]))

    def own_settings(self) -> list[str]:
        """Return the settings that change an answer, other than model, name and device."""
        return []

    def describe(self) -> dict[str, str]:
        return {self.name: f"{self.model} sha256:{self.model.weights_hash()}"}


@dataclass(frozen=True)
class CaptionImages(ModelAnnotator):
    """Describes images with a Captioner: ``extra[name]`` becomes a list of one caption."""

    name: str = "captions"

    protocol: ClassVar[type] = Captioner

    def annotate(self, examples: Sequence[Example]) -> list[Annotation]:
        """Return ``{name: [caption]}`` for each example."""
        import torch

        transform = self.device_model.transform
        images = [transform(image) for image in decode_images(examples)]
        pixels = torch.from_numpy(stack_pixels(images, transform.size))
        return [{self.name: [caption]} for caption in self.device_model.caption(pixels)]


@dataclass(frozen=True)
class DetectObjects(ModelAnnotator):
    """Finds objects with a Detector: ``extra[name]`` becomes a list of label, score and box.

    Args:
        attributes: the part that adds attributes to each object; ``None`` adds no attributes.
    """

    name: str = DETECTIONS
    attributes: CropAttributes | None = None

    protocol: ClassVar[type] = Detector

    def annotate(self, examples: Sequence[Example]) -> list[Annotation]:
        """Return ``{name: [{"label": ..., "score": ..., "box": ...}, ...]}`` for each example.

        With ``attributes``, each object also has a list of attributes, in the form of
        ``cfaug.data.detections``.
        """
        images = list(decode_images(examples))
        detected = self.detect(examples, images)
        if self.attributes is None:
            return [{self.name: objects} for objects in detected]
        named = self.attributes.add(
            images, [detections_from_json(objects, "the detector") for objects in detected]
        )
        return [{self.name: detections_to_json(objects)} for objects in named]

    def detect(
        self, examples: Sequence[Example], images: Sequence[Image]
    ) -> list[list[dict[str, Any]]]:
        """Return the objects that the model finds in the image of each example."""
        detected: list[list[dict[str, Any]]] = self.device_model.detect(images)
        return detected

    def own_settings(self) -> list[str]:
        return [] if self.attributes is None else [self.attributes.identity()]

    def describe(self) -> dict[str, str]:
        return {**super().describe(), **_describe_attributes(self)}


def _describe_attributes(annotator: DetectObjects | DetectionsFromFile) -> dict[str, str]:
    attributes = annotator.attributes
    return {} if attributes is None else attributes.describe(f"{annotator.name}.attributes")


def decode_images(examples: Sequence[Example]) -> Iterator[Image]:
    """Yield the image of each example.

    Raises:
        RejectedError: if an image cannot be decoded; it names the example.
    """
    for example in examples:
        if example.image is None:
            raise UserError(f"example {example.key!r} has no image to annotate")
        data = example.image.read()
        try:
            yield decode_image(data, f"example {example.key!r}")
        except UserError as error:
            raise RejectedError(BROKEN_PHOTO, str(error)) from error


@dataclass(frozen=True)
class FileAnnotator:
    """An annotator that looks up existing annotations of examples by one of their identifiers.

    Args:
        column: the column that identifies the example.
        match: the field of an example that is looked up in the column: ``key``, ``group``,
            ``label`` or a name in its ``extra``, such as the one of its image's file.
        name: the key of the results in ``Example.extra``.
    """

    file: str
    column: str
    match: str
    name: str

    def wanted(self, example: Example) -> str:
        """Return the identifier of an example in the file."""
        known = {"key": example.key, "group": example.group, "label": example.label}
        wanted = known.get(self.match, example.extra.get(self.match))
        if wanted is None:
            raise UserError(
                f"example {example.key!r} has no {self.match!r}, by which {self.file} should name "
                f"it: choose match=key, group or label"
                + "".join(f" or {name}" for name in sorted(example.extra))
            )
        return str(wanted)

    @property
    def files(self) -> list[Path]:
        """The files to read."""
        return [Path(self.file).expanduser()]

    def check_source(self, examples: Sequence[Example]) -> None:
        """Refuse a missing file."""
        for file in self.files:
            if not file.is_file():
                raise UserError(
                    f"there is no file {file}, from which an annotator takes {self.name} "
                    "(recipe.annotators)"
                )

    @cached_property
    def file_hash(self) -> str:
        """The sha256 of the files."""
        try:
            return sha256(self.files)
        except OSError as error:
            raise UserError(
                f"{error.filename}, from which an annotator takes {self.name} "
                f"(recipe.annotators), cannot be read: {error.strerror}"
            ) from error

    def describe(self) -> dict[str, str]:
        return {self.name: f"{Path(self.file).name} sha256:{self.file_hash}"}


@dataclass(frozen=True)
class CaptionsFromFile(FileAnnotator):
    """Captions from a file: ``extra[name]`` becomes a list of captions.

    Args:
        file: a ``.jsonl``, ``.json``, ``.csv`` or ``.tsv`` file with one caption in each record; an
            image may have several records.
    """

    column: str = "key"
    text: str = "caption"
    match: str = "key"
    name: str = "captions"

    reads = ()
    """Results are not cached: a file is as fast as a cache."""

    def annotate(self, examples: Sequence[Example]) -> list[Annotation]:
        """Return ``{name: captions}`` for each example."""
        wanted = [self.wanted(example) for example in examples]
        for example, name in zip(examples, wanted, strict=True):
            if name not in self._captions:
                error = RejectedError(
                    NO_TEXT,
                    f"{self.file} has no caption of example {example.key!r}: no record has "
                    f"{self.column}={name!r}",
                )
                if len(examples) == 1 or any(name in self._captions for name in wanted):
                    raise error
                raise UnavailableError(str(error)) from error
        return [{self.name: self._captions[name]} for name in wanted]

    @cached_property
    def _captions(self) -> dict[str, list[str]]:
        captions: dict[str, list[str]] = {}
        for where, record in list_records(Path(self.file).expanduser()):
            for column in (self.column, self.text):
                if column not in record:
                    raise UserError(
                        f"{where} has no {column!r}; it has {', '.join(map(str, record))}"
                    )
            text = record[self.text]
            if not isinstance(text, str) or not text.strip():
                raise UserError(f"{where}: the caption {text!r} is empty or not a text")
            captions.setdefault(str(record[self.column]), []).append(" ".join(text.split()))
        return captions

    def identity(self) -> str:
        parts = [self.column, self.text, self.match, self.name]
        return sha256_text(" ".join([*parts, self.file_hash]))


# A cache of annotations on disk, so that a model runs only once on the same content.
#
# ``<cache>/annotations/<annotator>/`` holds the results of one annotator with certain weights and
# settings, each under the hash of the content that the annotator reads.

Annotation = Record


class AnnotationCache(KeptRecords):
    """The cached results of one annotator.

    Args:
        folder: the folder of all annotators' results, made when a result is added; ``None`` keeps
            results only in memory.
    """

    def __init__(self, folder: Path | None, identity: str) -> None:
        super().__init__(None if folder is None else folder / "annotations" / identity[:32])
        if self.damaged:
            say(f"{self.damaged} files in {self.folder} were damaged; their contents are "
                "annotated again")  # fmt: skip

    def _write(self, name: str, content: bytes) -> None:
        """Write a file."""
        assert self.folder is not None
        with disk_errors(self.folder, f"annotations {name}", len(content)):
            super()._write(name, content)


@dataclass(frozen=True)
class DetectMentioned(DetectObjects):
    """Finds the objects that the texts of an example mention: their nouns are detected by name.

    Nouns that follow each other, as in "fire hydrant", are one name. The model provides an
    OpenVocabularyDetector.
    """

    model: Annotated[Checkpoint, ReadIf(of="vocabulary")]
    tagger: Tagger | None = None
    """the tagger of parts of speech"""

    reads: ClassVar[tuple[str, ...]] = ("image", "texts")
    protocol: ClassVar[type] = OpenVocabularyDetector

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tagger is None:
            raise UserError(f"the annotator {self.name} looks for nouns: it needs a tagger")

    def detect(
        self, examples: Sequence[Example], images: Sequence[Any]
    ) -> list[list[dict[str, Any]]]:
        """Return the objects that the model finds for each example's nouns in its image."""
        nouns = [self.find_nouns(example.texts) for example in examples]
        detected: list[list[dict[str, Any]]] = self.device_model.detect_named(images, nouns)
        return detected

    def find_nouns(self, texts: Sequence[str]) -> tuple[str, ...]:
        """Return the distinct nouns of texts, in lower case and in order."""
        assert self.tagger is not None
        sentences = [split(text).words for text in texts]
        names: dict[str, None] = {}
        for words, tags in zip(sentences, self.tagger.tag(sentences), strict=True):
            run: list[str] = []
            for word, tag in [*zip(words, tags, strict=True), ("", "")]:
                if tag.startswith(TAGS["noun"]) and any(map(str.isalpha, word)):
                    run.append(word.lower())
                elif run:
                    names[" ".join(run)] = None
                    run = []
        return tuple(names)

    def own_settings(self) -> list[str]:
        """Return the settings of the nouns and of the attributes."""
        assert self.tagger is not None
        return [repr(self.tagger.describe()), *super().own_settings()]


@dataclass(frozen=True)
class DetectionsFromFile(FileAnnotator):
    """Objects from a file of detections: ``extra[name]`` becomes a list of objects.

    Args:
        file: the path of COCO's instances or results, Visual Genome's ``objects.json`` or
            ``attributes.json``, or a ``.jsonl``; see ``cfaug.data.sources.detection_files``.
        more: the paths of further files: the categories of COCO's results, Visual Genome's other
            file.
        column: the column of a ``.jsonl`` that names the image; "" is the first usual name present.
        match: the field of an example that names the image: ``key``, ``group`` (the photo) or a
            name in its ``extra``. The file may have it with or without folder and extension.
        attributes: the part that adds attributes to objects that have none in the file; ``None``
            adds no attributes.
    """

    column: str = ""
    match: str = "group"
    name: str = DETECTIONS
    more: Sequence[str] = ()
    attributes: CropAttributes | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """The parts of an example that results are cached by: none without a model."""
        return () if self.attributes is None else ("image", "key", "group", "label", "extra")

    def annotate(self, examples: Sequence[Example]) -> list[Annotation]:
        """Return ``{name: [...]}`` for each example, in the form of ``cfaug.data.detections``.

        Raises:
            RejectedError: if the file lacks an example's image, or its entry is invalid, such as a
                box outside the image or a score that is not a number.
        """
        names = [self.wanted(example) for example in examples]
        if len(examples) > 1 and not any(name in self._objects for name in names):
            raise UnavailableError(
                f"{self.file} has no entry for any of {len(examples)} images, the first of them "
                f"{names[0]!r}: choose another match than {self.match}, or another file"
            )
        detections = []
        for example, name in zip(examples, names, strict=True):
            size: tuple[int, int] | None = None  # the file has it, or the image is missing
            if example.image is not None and self._objects.size(name) is None:
                data = example.image.read()
                try:
                    size = open_image(data, f"example {example.key!r}").size
                except UserError as error:
                    raise RejectedError(BROKEN_PHOTO, str(error)) from error
            detections.append(self._objects.find(name, size))
        if self.attributes is not None:
            detections = self.attributes.add(list(decode_images(examples)), detections)
        return [{self.name: detections_to_json(objects)} for objects in detections]

    @property
    def files(self) -> list[Path]:
        return [Path(file).expanduser() for file in (self.file, *self.more)]

    @cached_property
    def _objects(self) -> DetectionFile:
        file, *more = self.files
        return DetectionFile(file, more, self.column or None)

    def identity(self) -> str:
        """Return a hash of the files and of the settings."""
        attributes = [] if self.attributes is None else [self.attributes.identity()]
        return sha256_text(
            " ".join([self.column, self.match, self.name, self.file_hash, *attributes])
        )

    def describe(self) -> dict[str, str]:
        return {**super().describe(), **_describe_attributes(self)}
