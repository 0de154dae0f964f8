"""Questions as batches: their images are read, and their prompts and options tokenized."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch.utils.data import Dataset

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.question_sets import AskedQuestion
from cfaug.core.questions import Question
from cfaug.data.mixture.loader import KEEP_BYTES, Share
from cfaug.data.mixture.question_rows import QuestionRows
from cfaug.editing.question_wording import Wording, fill
from cfaug.models.option_batches import OptionRow, option_row, stack_rows
from cfaug.models.option_scores import EncodedQuestion
from cfaug.models.question_reader import Known

if TYPE_CHECKING:
    from PIL.Image import Image

    from cfaug.train.answer_module import TunedAnswerer

AnswerBatch = dict[str, Any]


def put(wording: Wording, question: AskedQuestion) -> Question:
    """Return a question in the form that ``benchmark=vqa`` uses without solved examples.

    Args:
        wording: the words around the question.
        question: a question of a set.
    """
    return Question(fill(wording.question, question.text, question.options), question.options)


@dataclass
class _Image:
    """An image, and the model's inputs that were made from it."""

    pixels: Image
    known: Known = field(default_factory=Known)

    @property
    def bytes(self) -> int:
        """The size in memory."""
        width, height = self.pixels.size
        return 3 * width * height + self.known.bytes


class AnswerExamples(Dataset[AnswerBatch]):
    """A dataset that turns a process's share of questions into batches of prompts with options.

    Args:
        indexes: the basic and the counterfactual questions.
        tuned: the model, whose processor prepares the questions.
        wording: the words around a question.
        every_option: whether a batch includes the wrong options, too.
        keep_bytes: the memory for prepared images that are kept, in bytes.
    """

    def __init__(
        self,
        indexes: Sequence[QuestionRows | None],
        tuned: TunedAnswerer,
        wording: Wording,
        *,
        every_option: bool = False,
        keep_bytes: int = KEEP_BYTES,
    ) -> None:
        self.indexes = indexes
        self.reader = tuned.reader
        self.scoring = tuned.scoring
        self.fill = tuned.fill
        self.wording = wording
        self.every_option = every_option
        self._left = keep_bytes
        self._images: dict[int, _Image] = {}
        self._asked: dict[tuple[int, int], EncodedQuestion] = {}

    def __getitems__(self, share: Share) -> AnswerBatch | UserError:
        """Return the options of a process's questions.

        ``parts`` are batches of ``cfaug.models.option_batches.stack_rows``, each of rows that the
        model can read together. For all rows of all parts in order, ``question`` int64 is the index
        of the question among this process's, and ``option`` int64 that of the option among the
        included ones; ``right`` int64 (questions,) is the index of the right option. ``count`` is
        the number of questions; a process without any reads the rows of another's and leaves them
        out. ``global_size`` is the number of questions of all processes.

        For an image that cannot be read, the UserError that names it is returned and not raised:
        torch would pass it on from a worker as the text of a traceback.
        """
        try:
            return self._batch(share)
        except UserError as error:
            return error

    def _batch(self, share: Share) -> AnswerBatch:
        mine = share.rows if len(share.rows) else share.whole[:1]
        rows: list[OptionRow] = []
        places, right = list[tuple[int, int]](), []
        for number, (source, row) in enumerate(mine.tolist()):
            asked, answer = self._read(source, row)
            if not self.every_option:
                asked, answer = [asked[answer]], 0
            rows += asked
            places += [(number, option) for option in range(len(asked))]
            right.append(answer)
        alike: dict[object, list[int]] = {}
        for place, one in enumerate(rows):
            alike.setdefault(one.shapes, []).append(place)
        order = [place for own in alike.values() for place in own]
        question, option = np.array(places, np.int64)[order].T
        return {
            "parts": [stack_rows([rows[n] for n in own], self.fill) for own in alike.values()],
            "question": torch.from_numpy(question.copy()),
            "option": torch.from_numpy(option.copy()),
            "right": torch.tensor(right),
            "count": len(share.rows),
            "global_size": len(share.whole),
        }

    def _read(self, source: int, row: int) -> tuple[list[OptionRow], int]:
        """Return a question's options, and the index of the right one."""
        index = cast("QuestionRows", self.indexes[source])
        question, asked = index.question(row), self._asked.get((source, row))
        if asked is None:
            asked = self._ask(index, row)
            if int(index.contents[row]) in self._images:
                self._asked[source, row] = asked
        rows = [option_row(asked, one, self.scoring) for one in asked.options]
        assert question.answer is not None  # rows have right answers
        return rows, question.answer

    def _ask(self, index: QuestionRows, row: int) -> EncodedQuestion:
        """Tokenize a question; its image is decoded and prepared once, if there is room to keep it.

        Raises:
            UserError: naming the question, if the model cannot read it.
        """
        code, image = int(index.contents[row]), index.image(row)
        one = self._images.get(code)
        if one is None:
            assert image.image is not None  # rows have images
            one = _Image(decode_image(image.image.read(), f"image {image.key}"))
            before = 0
        else:
            before = one.bytes
        (asked,) = self.reader.read(one.pixels, [put(self.wording, index.question(row))], one.known)
        if not isinstance(asked, EncodedQuestion):
            raise UserError(
                f"{index.source}: the question {index.key(row)} is longer with its options than "
                f"the {self.reader.longest} tokens that the model reads: leave it out of the set"
            )
        if one.bytes - before <= self._left:
            self._left -= one.bytes - before
            self._images[code] = one
        elif before:  # it has grown too large to be kept
            self._left += before
            del self._images[code]
        return asked
