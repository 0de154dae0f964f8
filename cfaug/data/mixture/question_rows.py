"""Questions about images as rows of a mixture: one row for each question, in the set's order."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.pixels import content_digest
from cfaug.data.index.disk_format import group_code
from cfaug.data.questions import COUNTERFACTUAL, QuestionImage, SourceQuestion

if TYPE_CHECKING:
    from cfaug.core.types import SourceImage

RULE = "questions-1"
"""The version of the rule for ``hash``, its prefix."""

DigestOf = Callable[["SourceImage"], str]


def read_digest(image: SourceImage) -> str:
    """Return the digest of an image's bytes, hexadecimal; the image is read once."""
    return image.digest


def name_digest(image: SourceImage) -> str:
    """Return the digest of the name of a rendered image, without rendering it.

    Args:
        image: an image whose name determines its content, as in the embedded world.
    """
    return content_digest(str(cast("Any", image).name).encode()).hex()


class QuestionRows:
    """The basic or the counterfactual questions of a set, as training examples.

    Unusable questions are left out and counted: those without an image, without a right answer
    among their options, with one option, or with equal options.

    Args:
        digest_of: a function that returns a digest of an image's content, equal for equal images.
    """

    extra_names: tuple[str, ...] = ()
    """Names of extra columns: none, as questions have no edits."""

    reading = None
    """No reading of the file: the questions are counted by ``counts``."""

    has_negatives = False

    def __init__(
        self,
        source: str,
        images: Sequence[QuestionImage],
        *,
        counterfactual: bool,
        digest_of: DigestOf = read_digest,
    ) -> None:
        self.source = source
        self.question_images = images
        self.counterfactual = counterfactual
        self.left_out: Counter[str] = Counter()
        self._digests: dict[int, str] = {}
        self._places: list[tuple[int, int]] = []
        for number, image in enumerate(images):
            for position, question in enumerate(image.questions):
                if (question.kind == COUNTERFACTUAL) != counterfactual:
                    continue
                reason = "no_image" if image.image is None else question.unscorable
                if reason:
                    self.left_out[reason] += 1
                else:
                    self._places.append((number, position))
        if not self._places:
            kind = COUNTERFACTUAL if counterfactual else "basic"
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.left_out.items())
            raise UserError(
                f"{source} has no {kind} question to learn from"
                + (f" ({reasons})" if reasons else "")
            )
        numbers = np.array([number for number, _ in self._places], np.int64)
        codes = np.zeros(len(images), np.uint64)
        for number in np.unique(numbers).tolist():
            shown = images[number].image
            assert shown is not None
            self._digests[number] = digest_of(shown)
            codes[number] = int.from_bytes(bytes.fromhex(self._digests[number])[:8], "little")
        groups = np.array([group_code(image.group) for image in images], np.uint64)
        # Adjacent images of one group, such as the two of a pair, form a set.
        new = np.r_[True, groups[numbers][1:] != groups[numbers][:-1]]
        self.images = numbers
        """Number of each row's image, int64."""
        self.groups = groups[numbers]
        """Code of each row's group, uint64."""
        self.contents = codes[numbers]
        """Code of the content of each row's image, uint64."""
        self.sets = np.cumsum(new) - 1
        """Number of each row's set, int64."""
        self.files = np.zeros(len(numbers), np.int32)
        """Number of each row's file: all have the same."""

    def __len__(self) -> int:
        return len(self._places)

    def image(self, row: int) -> QuestionImage:
        """Return a row's image with all its questions."""
        return self.question_images[self._places[row][0]]

    def question(self, row: int) -> SourceQuestion:
        """Return a row's question."""
        number, position = self._places[row]
        return self.question_images[number].questions[position]

    def key(self, row: int) -> str:
        """Return a row's name: ``<image>/<question>``, like the items of ``benchmark=vqa``."""
        return f"{self.image(row).key}/{self.question(row).id}"

    @property
    def hash(self) -> str:
        """The hash of the questions that are rows, and of the content of their images."""
        digest = hashlib.sha256()
        for row, (number, _) in enumerate(self._places):
            image, question = self.image(row), self.question(row)
            content = [
                image.key,
                image.group,
                question.id,
                question.kind,
                question.text,
                question.options,
                question.answer,
            ]
            digest.update(f"{json.dumps(content)} {self._digests[number]}\n".encode())
        return f"{RULE}:{digest.hexdigest()}"

    def kinds(self, rows: Iterable[int]) -> Mapping[str, int]:
        """Return {kind: number of questions} of some rows."""
        return Counter(self.question(row).kind for row in rows)
