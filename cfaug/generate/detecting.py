"""Further annotators of the objects in images, in addition to the plain detector.

They detect the objects that a caption mentions by name, or read objects from a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from cfaug.core.detections import DETECTIONS, detections_to_json
from cfaug.core.errors import RejectedError, UnavailableError, UserError
from cfaug.core.pixels import open_image
from cfaug.core.protocols import OpenVocabularyDetector
from cfaug.core.read_with import ReadWith
from cfaug.core.types import Example
from cfaug.core.weights import sha256_text
from cfaug.data.sources.detection_files import DetectionFile
from cfaug.editing.protocols import TAGS, Tagger
from cfaug.editing.sentence import split
from cfaug.generate.annotation_cache import Annotation
from cfaug.generate.annotators import BROKEN_PHOTO, DetectObjects, FileAnnotator, decode_images
from cfaug.generate.crop_attributes import CropAttributes


@dataclass(frozen=True)
class DetectMentioned(DetectObjects):
    """Finds the objects that the texts of an example mention: their nouns are detected by name.

    Nouns that follow each other, as in "fire hydrant", are one name.

    Args:
        model: the specification of a model that provides an OpenVocabularyDetector.
        name: the key of the results in ``Example.extra``.
        device: a name for ``choose_device``; ``auto`` is CUDA where there is one.
        attributes: the part that adds attributes to each object; ``None`` adds no attributes.
        tagger: the part-of-speech tagger that finds the nouns; required.
    """

    tagger: Tagger | None = None

    reads: ClassVar[tuple[str, ...]] = ("image", "texts")
    protocol: ClassVar[type] = OpenVocabularyDetector

    read_with: ClassVar[ReadWith] = {"model.vocabulary": []}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tagger is None:
            raise UserError(f"the annotator {self.name} looks for nouns: it needs a tagger")

    def detect(
        self, examples: Sequence[Example], images: Sequence[Any]
    ) -> list[list[dict[str, Any]]]:
        """Return the objects that the model finds for each example's nouns in its image."""
        nouns = [self.find_nouns(one.texts) for one in examples]
        found: list[list[dict[str, Any]]] = self.device_model.detect_named(images, nouns)
        return found

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
        name: the key of the results in ``Example.extra``.
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
        """Return ``{name: [...]}`` for each example, in the form of ``cfaug.core.detections``.

        Raises:
            RejectedError: if the file lacks an example's image, or its entry is invalid, such as a
                box outside the image or a score that is not a number.
            UserError: if the file lacks all of several images, because it names them differently.
        """
        names = [self.wanted(one) for one in examples]
        if len(examples) > 1 and not any(name in self._objects for name in names):
            raise UnavailableError(
                f"{self.file} has no entry for any of {len(examples)} images, the first of them "
                f"{names[0]!r}: choose another match than {self.match}, or another file"
            )
        found = [
            self._objects.find(name, self._size(one, name))
            for one, name in zip(examples, names, strict=True)
        ]
        if self.attributes is not None:
            found = self.attributes.add(list(decode_images(examples)), found)
        return [{self.name: detections_to_json(objects)} for objects in found]

    def _size(self, example: Example, name: str) -> tuple[int, int] | None:
        """Return the size of an example's image; ``None`` if the file has it or it is missing."""
        if example.image is None or self._objects.size(name) is not None:
            return None
        data = example.image.read()
        try:
            size: tuple[int, int] = open_image(data, f"example {example.key!r}").size
        except UserError as error:
            raise RejectedError(BROKEN_PHOTO, str(error)) from error
        return size

    @property
    def files(self) -> list[Path]:
        """The files to read."""
        return [Path(one).expanduser() for one in (self.file, *self.more)]

    @cached_property
    def _objects(self) -> DetectionFile:
        file, *more = self.files
        return DetectionFile(file, more, self.column or None)

    def identity(self) -> str:
        """Return a hash of the files and of the settings.

        Raises:
            UserError: if a file cannot be read.
        """
        own = [] if self.attributes is None else [self.attributes.identity()]
        return sha256_text(" ".join([self.column, self.match, self.name, self.file_hash, *own]))

    def describe(self) -> dict[str, str]:
        """Return the file's name and hash, and the model that ranked attributes, for the card."""
        more = (
            {} if self.attributes is None else self.attributes.describe(f"{self.name}.attributes")
        )
        return {**super().describe(), **more}
