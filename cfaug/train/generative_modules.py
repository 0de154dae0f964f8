"""Generative models that learn to answer: their batches, their loss and their saved weights.

Imports Lightning, so it is only imported when a training starts or code takes it from ``cfaug``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset
from torchmetrics import MeanMetric

from cfaug.core.answers import Question
from cfaug.core.devices import send
from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.data.mixture.loader import KEEP_BYTES, RankBatch
from cfaug.data.mixture.order import rank_share
from cfaug.data.mixture.question_rows import QuestionRows
from cfaug.data.questions import SourceQuestion
from cfaug.editing.edit_prompts import EditAnswer, EditFormat, Wording, fill, read_wording
from cfaug.models import lora as adapters
from cfaug.models.checkpoints import longest_text, quiet, replace_checkpoint
from cfaug.models.encoder import Tunable
from cfaug.models.option_scores import EncodedQuestion
from cfaug.models.question_inputs import (
    Known,
    OptionRow,
    mean_costs,
    option_row,
    spread_costs,
    stack_rows,
)
from cfaug.models.vision_language import VisionLanguageModel
from cfaug.train.contrastive_module import gather_all
from cfaug.train.module import KeepsTrained, TrainingModule
from cfaug.train.records import Batch, Steps

if TYPE_CHECKING:
    from PIL.Image import Image

    from cfaug.models.prompts import Prompts
    from cfaug.models.question_inputs import QuestionReader


class TunedAnswerer(KeepsTrained, Tunable, VisionLanguageModel):
    """A vision-language model of transformers that is being tuned.

    The arguments are those of :class:`cfaug.models.vision_language.VisionLanguageModel`.
    """

    @property
    def fill(self) -> int:
        """The token that pads a text on the right."""
        tokenizer = self.processor.tokenizer
        known = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
        return next(int(token) for token in known if token is not None)

    def save(self, folder: Path) -> None:
        """Write a ``save_pretrained`` folder with the whole processor, adapters merged."""
        adapters.merge(self.model)
        with replace_checkpoint(folder) as fresh, quiet():
            self.model.save_pretrained(fresh)
            self.processor.save_pretrained(fresh)


class AnswerModule(TrainingModule):
    """Fine-tuning of a vision-language model on the right option of each question.

    All questions have equal weight. Their loss is the mean negative log-likelihood of the right
    option's tokens, which ``benchmark.reduction=token_mean`` ranks by. Batches come from
    ``cfaug.train.generative_modules.AnswerExamples``.

    Args:
        steps: the optimizer, the length of the run and its seed; ``None`` for the defaults.
        contrast: the weight of a second term, the cross-entropy of the right option in the softmax
            over the negated means of all options; 0 leaves it out, and wrong options are not read.
    """

    strict_loading = False  # a checkpoint holds only trained weights

    def __init__(
        self, tuned: TunedAnswerer, steps: Steps | None = None, contrast: float = 0.0
    ) -> None:
        super().__init__(steps)
        self.require(tuned, TunedAnswerer)
        self.tuned = tuned
        self.contrast = contrast

    @property
    def trained(self) -> TunedAnswerer:
        return self.tuned

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean loss of all questions."""
        (every,) = gather_all([self._costs(batch)[:, None]], batch["global_size"])
        return every.mean()

    def make_metric(self, name: str) -> MeanMetric:
        """Return the share of questions whose right option costs least; a tie is a miss."""
        return MeanMetric(sync_on_compute=False)

    def _costs(self, batch: Batch) -> Tensor:
        """Return the loss of each of this process's questions, (count,)."""
        scoring = self.tuned.scoring
        option_costs = torch.cat(
            [
                mean_costs(scoring, part["inputs"], part["targets"], part["learnt"])
                for part in batch["parts"]
            ]
        )
        right = batch["right"]
        table = option_costs.new_full((len(right), batch["options"]), float("inf"))
        table = table.index_put((batch["question"], batch["option"]), option_costs)
        costs = table.gather(1, right[:, None])[:, 0]
        if self.contrast:
            costs = costs + self.contrast * functional.cross_entropy(
                -table, right, reduction="none"
            )
        if self.observed:
            hits = (table <= table.gather(1, right[:, None])).sum(1) == 1
            hits = hits[: batch["count"], None].float()
            self.metrics.update(*gather_all([hits], batch["global_size"]))
        # A process without a question has read another's, as DDP waits for every parameter.
        return costs[: batch["count"]]

    def share(self, loss: Tensor, batch: Batch, step: list[Batch]) -> Tensor:
        """Return a batch's share of the step's loss by its questions, as if all were one batch."""
        return loss * (batch["global_size"] / sum(micro["global_size"] for micro in step))


# Questions as batches: their images are read, and their prompts and options tokenized.

AnswerBatch = dict[str, Any]


def put(wording: Wording, question: SourceQuestion) -> Question:
    """Return a question in the form that ``benchmark=vqa`` uses without solved examples."""
    return Question(fill(wording.question, question.text, question.options), question.options)


@dataclass
class _PreparedImage:
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
        self._images: dict[int, _PreparedImage] = {}
        self._encoded: dict[tuple[int, int], EncodedQuestion] = {}

    def __getitems__(self, batch: RankBatch) -> AnswerBatch | UserError:
        """Return the options of a process's questions.

        ``parts`` are batches of ``cfaug.models.question_inputs.stack_rows``, each of rows that the
        model can read together. For all rows of all parts in order, ``question`` int64 is the index
        of the question among this process's, and ``option`` int64 that of the option among the
        included ones, of which a question has up to ``options``; ``right`` int64 (questions,) is
        the index of the right option. ``count`` is the number of questions; a process without any
        reads the rows of another's and leaves them out. ``global_size`` is the number of questions
        of all processes.

        For an image that cannot be read, the UserError that names it is returned and not raised:
        torch would pass it on from a worker as the text of a traceback.
        """
        try:
            return self._batch(batch)
        except UserError as error:
            return error

    def _batch(self, batch: RankBatch) -> AnswerBatch:
        mine = batch.rows if len(batch.rows) else batch.whole[:1]
        rows: list[OptionRow] = []
        places, right = list[tuple[int, int]](), []
        for number, (source, row) in enumerate(mine.tolist()):
            options, answer = self._read(source, row)
            if not self.every_option:
                options, answer = [options[answer]], 0
            rows += options
            places += [(number, option) for option in range(len(options))]
            right.append(answer)
        alike: dict[object, list[int]] = {}
        for position, encoded in enumerate(rows):
            alike.setdefault(encoded.shapes, []).append(position)
        order = [position for positions in alike.values() for position in positions]
        question, option = np.array(places, np.int64)[order].T
        return {
            "parts": [
                stack_rows([rows[n] for n in positions], self.fill) for positions in alike.values()
            ],
            "question": torch.from_numpy(question.copy()),
            "option": torch.from_numpy(option.copy()),
            "options": int(option.max()) + 1,
            "right": torch.tensor(right),
            "count": len(batch.rows),
            "global_size": len(batch.whole),
        }

    def _read(self, source: int, row: int) -> tuple[list[OptionRow], int]:
        """Return a question's options, and the index of the right one."""
        index = cast("QuestionRows", self.indexes[source])
        question, encoded = index.question(row), self._encoded.get((source, row))
        if encoded is None:
            encoded = self._encode(index, row)
            if int(index.contents[row]) in self._images:
                self._encoded[source, row] = encoded
        rows = [option_row(encoded, option, self.scoring) for option in encoded.options]
        assert question.answer is not None  # rows have right answers
        return rows, question.answer

    def _encode(self, index: QuestionRows, row: int) -> EncodedQuestion:
        """Tokenize a question; its image is prepared once, if there is room to keep it."""
        code, image = int(index.contents[row]), index.image(row)
        entry = self._images.get(code)
        if entry is None:
            assert image.image is not None  # rows have images
            entry = _PreparedImage(decode_image(image.image.read(), f"image {image.key}"))
            before = 0
        else:
            before = entry.bytes
        (encoded,) = self.reader.read(
            entry.pixels, [put(self.wording, index.question(row))], entry.known
        )
        if not isinstance(encoded, EncodedQuestion):
            raise UserError(
                f"{index.source}: the question {index.key(row)} is longer with its options than "
                f"the {self.reader.longest} tokens that the model reads: leave it out of the set"
            )
        if entry.bytes - before <= self._left:
            self._left -= entry.bytes - before
            self._images[code] = entry
        elif before:  # it has grown too large to be kept
            self._left += before
            del self._images[code]
        return encoded


# Checks that a model can read the questions it will learn from.

NAMED = 3
"""The largest number of questions that a message names."""


def describe_question(
    prompts: Prompts, wording: str, index: QuestionRows, row: int
) -> dict[str, Any]:
    """Return a question in the form that the model reads, and the tokens that are learnt.

    Args:
        prompts: the prompts of the model; its weights are not needed.
        wording: the name or file of the words around a question.

    Returns:
        ``question``, its name; ``prompt``, with an image as one token; ``answer``; and ``learnt``,
        the answer's tokens.
    """
    source_question = index.question(row)
    question = put(read_wording(wording), source_question)
    text = prompts.text(question, image=True)
    assert source_question.right is not None  # rows have right answers
    option = prompts.option(text, prompts.tokens(text), source_question.right)
    learnt = prompts.tokenizer.convert_ids_to_tokens(option.ids[option.start :])
    return {
        "question": index.key(row), "prompt": text, "answer": source_question.right,
        "learnt": list(learnt),
    }  # fmt: skip


def check_questions(
    reader: QuestionReader, wording: str, rows: Iterable[tuple[QuestionRows, int]]
) -> None:
    """Refuse questions that the model cannot read, or whose options are the same tokens to it.

    Only the first image is read. An image of another size can still make a question too long; such
    a question is refused when it is read.

    Args:
        wording: the name or file of the words around a question.
    """
    words = read_wording(wording)
    around: int | None = None  # tokens of the first prompt's image beyond the one in its text
    alike, long = list[str](), list[str]()
    count = 0
    for index, row in rows:
        count += 1
        question = put(words, index.question(row))
        text = reader.prompts.text(question, image=True)
        ids = reader.prompts.tokens(text)
        options = reader.options(text, ids, question.options)
        if around is None:
            image = index.image(row)
            assert image.image is not None  # rows have images
            pixels = decode_image(image.image.read(), f"image {image.key}")
            (encoded,) = reader.read(pixels, [question])
            around = reader.longest
            if isinstance(encoded, EncodedQuestion):
                around = int(encoded.inputs["input_ids"].shape[1]) - len(ids)
        tokens = [tuple(option.ids[option.start :]) for option in options]
        if len(set(tokens)) < len(tokens):
            alike.append(index.key(row))
        behind = max(len(option.ids) for option in options) + (len(ids) if reader.translates else 0)
        if behind + around > reader.longest:
            long.append(index.key(row))
    for names, fault in (
        (long, f"are longer with an option than the {reader.longest} tokens that it reads"),
        (alike, "have options that are the same tokens to it"),
    ):
        if names:
            named = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
            raise UserError(
                f"{reader.folder}: {len(names):,} of {count:,} questions {fault} ({named}): leave "
                "them out of the set, or choose another model"
            )


@dataclass(frozen=True)
class TokenRow:
    """A prompt and its answer as tokens.

    Attributes:
        ids: the tokens of both, with those that begin and end a text.
        start: the index of the answer's first token; only tokens from there on are learnt.
    """

    ids: tuple[int, ...]
    start: int

    @property
    def answered(self) -> int:
        """The number of tokens of the answer."""
        return len(self.ids) - self.start


def collate(rows: Sequence[TokenRow], fill: int, rank: int = 0, world: int = 1) -> dict[str, Any]:
    """Return a process's share of a batch of rows, padded on the right.

    Args:
        rows: the rows of the whole batch.
        fill: the token that pads a row.

    Returns:
        ``ids``, the tokens, and ``shown``, 1 where they are not padding, int64 (local, longest);
        ``learnt``, the row and the place of each token that is learnt, counted from the second of
        a row, int64 (2, n); ``global_size`` and ``tokens``, the numbers of rows and of answers'
        tokens over all processes.
    """
    mine = [rows[i] for i in rank_share(np.arange(len(rows)), rank, world)]
    longest = max((len(row.ids) for row in mine), default=1)
    ids = np.full((len(mine), longest), fill, dtype=np.int64)
    shown = np.zeros_like(ids)
    answer = np.zeros(ids.shape, dtype=bool)
    for i, row in enumerate(mine):
        ids[i, : len(row.ids)], shown[i, : len(row.ids)] = row.ids, 1
        answer[i, row.start : len(row.ids)] = True
    return {
        "ids": torch.from_numpy(ids),
        "shown": torch.from_numpy(shown),
        "learnt": torch.from_numpy(np.stack(answer[:, 1:].nonzero())),
        "global_size": len(rows),
        "tokens": sum(row.answered for row in rows),
    }


class TunedLanguageModel(KeepsTrained):
    """A causal language model of transformers that is being tuned, with its tokenizer.

    Args:
        longest: the largest number of tokens of a prompt and its answer; longer ones are truncated.
        start: whether the beginning-of-text token, if the tokenizer has one, is put first.
        owner: the model's specification, which errors name.
    """

    held_in_evaluation: tuple[nn.Module, ...] = ()

    def __init__(
        self, model: Any, tokenizer: Any, longest: int, *, start: bool, owner: str
    ) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.longest = min(longest, longest_text(model, tokenizer))
        self.start = start
        self.owner = owner
        if tokenizer.eos_token_id is None:
            raise UserError(f"{owner}: its tokenizer has no token that ends a text")

    @property
    def fill(self) -> int:
        """The token that pads a row."""
        pad = self.tokenizer.pad_token_id
        return int(self.tokenizer.eos_token_id if pad is None else pad)

    @quiet()
    def encode(self, edit_format: EditFormat, answers: Sequence[EditAnswer]) -> list[TokenRow]:
        """Return each prompt followed by its answer, truncated to the model's length.

        Prompt and answer are tokenized separately, like the prompt when the model is used.
        """
        first = [self.tokenizer.bos_token_id] if self.start else []
        first = [token for token in first if token is not None]
        rows = []
        for sample in answers:
            prompt = [*first, *self._ids(edit_format.prompt(sample.prompt, sample.caption))]
            if len(prompt) >= self.longest:
                raise UserError(
                    f"{self.owner}: the prompt {sample.prompt!r} about {sample.caption[:60]!r} has "
                    f"{len(prompt)} tokens, and {self.longest} are read with the answer: choose "
                    "data.format=short, a larger data.max_length or a model that reads more"
                )
            answer = [*self._ids(edit_format.response(sample.edits)), self.tokenizer.eos_token_id]
            rows.append(TokenRow(tuple([*prompt, *answer][: self.longest]), len(prompt)))
        return rows

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def costs(self, batch: Batch) -> Tensor:
        """Return the negative log-likelihood of each row's answer: (local,), float32, in nats."""
        device = next(self.model.parameters()).device
        ids, shown, learnt = (send(batch[name], device) for name in ("ids", "shown", "learnt"))
        logits = self.model(input_ids=ids, attention_mask=shown, use_cache=False).logits[:, :-1]
        return spread_costs(logits, ids[:, 1:], learnt).sum(1)

    def save(self, folder: Path, edit_format: EditFormat, base: adapters.BaseModel | None) -> None:
        """Write a ``save_pretrained`` folder, or only the adapters; whole or not at all.

        Args:
            base: the base model of the adapters; ``None`` merges them.
        """
        if base is None:
            adapters.merge(self.model)
        with replace_checkpoint(folder) as fresh, quiet():
            if base is None:
                self.model.save_pretrained(fresh)
            else:
                adapters.save(self.model, fresh, base)
            self.tokenizer.save_pretrained(fresh)
            edit_format.write(fresh)


class LanguageModule(TrainingModule):
    """Fine-tuning of a language model on answers to prompts; all their tokens weigh the same."""

    strict_loading = False  # a checkpoint holds only trained weights

    def __init__(self, tuned: TunedLanguageModel, steps: Steps) -> None:
        super().__init__(steps)
        self.require(tuned, TunedLanguageModel)
        self.tuned = tuned

    @property
    def trained(self) -> TunedLanguageModel:
        return self.tuned

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean negative log-likelihood of the batch's answer tokens."""
        costs = self._costs(batch)
        (every,) = gather_all([costs[:, None]], batch["global_size"])
        return every.sum() / batch["tokens"]

    def _costs(self, batch: Batch) -> Tensor:
        if len(batch["ids"]):
            return self.tuned.costs(batch)
        # The last batch can leave this process without a row, and DDP waits for every parameter:
        # read a blank and discard it.
        blank = torch.zeros((1, 2), dtype=torch.int64)
        whole = {"ids": blank, "shown": blank + 1, "learnt": torch.zeros((2, 1), dtype=torch.int64)}
        return self.tuned.costs(whole)[:0]

    def weight(self, batch: Batch) -> float:
        return float(batch["tokens"])

    def share(self, loss: Tensor, batch: Batch, step: list[Batch]) -> Tensor:
        """Return a batch's share of the step's loss by its tokens, as if all were one batch."""
        return loss * (batch["tokens"] / sum(micro["tokens"] for micro in step))
