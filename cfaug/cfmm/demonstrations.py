"""Solved examples that are shown before questions: a YAML file with some for each category.

::

    count:
      - image: dogs.jpg        # beside this file; or key: KEY, of the question set; or neither
        question: How many dogs are there?
        options: ["2", "3"]    # where the wording shows options
        rationale: I see a brown and a white dog.   # where thoughts are shown
        answer: "2"
    any: [...]                 # of categories that are not named
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.pixels import decode_image
from cfaug.core.prompt_files import read_yaml
from cfaug.data.sources.image_check import content_digest

if TYPE_CHECKING:
    from PIL.Image import Image

    from cfaug.core.question_sets import AskedImage

ANY = "any"
"""The category whose examples are shown for categories without examples of their own."""

KEYS = {"image", "key", "question", "options", "rationale", "answer"}


@dataclass(frozen=True)
class SolvedExample:
    """A question with its answer.

    Attributes:
        question: the text of the question.
        answer: the right answer.
        options: the options in the order in which they are shown; may be empty.
        rationale: the reasons for the answer; may be empty.
        image: the bytes of an image file; ``None`` for an example without an image.
        name: the image's name, for messages.
    """

    question: str
    answer: str
    options: tuple[str, ...] = ()
    rationale: str = ""
    image: bytes | None = None
    name: str = ""

    @cached_property
    def digest(self) -> str:
        """The digest of the image's content; empty without an image."""
        return "" if self.image is None else content_digest(self.image).hex()

    @property
    def content(self) -> tuple[str | tuple[str, ...], ...]:
        """All that the model is shown."""
        return self.question, self.answer, self.options, self.rationale, self.digest

    @cached_property
    def pixels(self) -> Image | None:
        """The image, decoded.

        Raises:
            UserError: if it is not an image, or too large.
        """
        return None if self.image is None else decode_image(self.image, self.name)


class Demonstrations:
    """Solved examples by category.

    Args:
        by_category: {category: its examples, in the order in which they are shown}; ``ANY`` stands
            for all other categories.
        source: the file of the examples, for messages.
    """

    def __init__(self, by_category: Mapping[str, Sequence[SolvedExample]], source: str) -> None:
        self.by_category = {name: tuple(own) for name, own in by_category.items()}
        self.source = source

    @cached_property
    def digests(self) -> set[str]:
        """Digests of all images that are shown; no question is asked about these."""
        every = [one.digest for own in self.by_category.values() for one in own]
        return {digest for digest in every if digest}

    def before(self, category: str, shots: int) -> tuple[SolvedExample, ...]:
        """Return the first examples of a category.

        Args:
            category: the category of a question.
            shots: number of examples to show.

        Raises:
            UserError: if there are fewer.
        """
        own = self.by_category.get(category, self.by_category.get(ANY, ()))
        if len(own) < shots:
            raise UserError(
                f"{self.source}: the category {category!r} has {len(own)} examples, and "
                f"benchmark.shots={shots} are asked for; add some, or under {ANY!r}"
            )
        return own[:shots]


def read_demonstrations(file: Path, asked: Sequence[AskedImage]) -> Demonstrations:
    """Read a file of solved examples; their images are read but not decoded.

    Args:
        file: the YAML file of examples by category.
        asked: the question set, whose images examples may name by key.

    Raises:
        UserError: naming the place, if an example is incomplete or its image is missing.
    """
    file = file.expanduser()
    if not file.is_file():
        raise UserError(f"benchmark.demonstrations={file}: there is no such file")
    found = read_yaml(file)
    if not isinstance(found, dict) or not all(isinstance(own, list) for own in found.values()):
        raise UserError(f"{file} should map each category to a list of examples")
    images = {one.key: one for one in asked}
    return Demonstrations(
        {
            str(category): [
                _read(example, f"{file}: {category}, example {number}", file.parent, images)
                for number, example in enumerate(own)
            ]
            for category, own in found.items()
        },
        str(file),
    )


def _read(given: Any, where: str, folder: Path, images: Mapping[str, AskedImage]) -> SolvedExample:
    if not isinstance(given, dict) or not set(given) <= KEYS:
        raise UserError(f"{where} should have the keys {', '.join(sorted(KEYS))}, and no other")
    texts = {name: given.get(name, "") for name in ("question", "answer", "rationale")}
    for name, text in texts.items():
        if not isinstance(text, str) or (name != "rationale" and not text.strip()):
            raise UserError(
                f"{where}: {name} should be a text, not {text!r}; YAML takes yes, no and numbers "
                "for something else: put them in quotation marks"
            )
    options = given.get("options", [])
    if not isinstance(options, list) or not all(isinstance(one, str) and one for one in options):
        raise UserError(f"{where}: options should be a list of texts, not {options!r}")
    if options and texts["answer"] not in options:
        raise UserError(f"{where}: the answer {texts['answer']!r} is not one of its options")
    image, name = _image(given, where, folder, images)
    return SolvedExample(**texts, options=tuple(options), image=image, name=name)


def _image(
    given: Mapping[str, Any], where: str, folder: Path, images: Mapping[str, AskedImage]
) -> tuple[bytes | None, str]:
    if "image" in given and "key" in given:
        raise UserError(f"{where} has image and key: choose one")
    if "key" in given:
        key = str(given["key"])
        if key not in images or images[key].image is None:
            raise UserError(f"{where}: the question set has no image {key!r}")
        source = images[key].image
        assert source is not None
        return source.read(), key
    if "image" not in given:
        return None, ""
    file = (folder / str(given["image"])).resolve()
    if not file.is_relative_to(folder.resolve()):
        raise UserError(f"{where}: the image {given['image']!r} lies outside of {folder}")
    try:
        return require_regular(file).read_bytes(), str(file)
    except OSError as error:
        raise UserError(f"{where}: the image {file} cannot be read: {error.strerror}") from error
