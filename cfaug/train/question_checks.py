"""Checks that a model can read the questions it will learn from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.data.mixture.question_rows import QuestionRows
from cfaug.editing.question_wording import Wording, read_wording
from cfaug.models.option_scores import EncodedQuestion
from cfaug.train.answer_examples import put

if TYPE_CHECKING:
    from cfaug.models.prompts import Prompts
    from cfaug.models.question_reader import QuestionReader

NAMED = 3
"""The largest number of questions that a message names."""


def describe_question(
    prompts: Prompts, wording: str, index: QuestionRows, row: int
) -> dict[str, Any]:
    """Return a question in the form that the model reads, and the tokens that are learnt.

    Args:
        prompts: the prompts of the model; its weights are not needed.
        wording: the name or file of the words around a question.
        index: the index with the question.
        row: the question's row in the index.

    Returns:
        ``question``, its name; ``prompt``, with an image as one token; ``answer``; and ``learnt``,
        the answer's tokens.
    """
    asked = index.question(row)
    question = put(read_wording(wording), asked)
    text = prompts.text(question, image=True)
    assert asked.right is not None  # rows have right answers
    option = prompts.option(text, prompts.tokens(text), asked.right)
    learnt = prompts.tokenizer.convert_ids_to_tokens(option.ids[option.start :])
    return {
        "question": index.key(row), "prompt": text, "answer": asked.right, "learnt": list(learnt),
    }  # fmt: skip


def check_questions(
    reader: QuestionReader, wording: str, rows: Iterable[tuple[QuestionRows, int]]
) -> None:
    """Refuse questions that the model cannot read, or whose options are the same tokens to it.

    Only the first image is read. An image of another size can still make a question too long; such
    a question is refused when it is read.

    Args:
        reader: the model's reader of questions.
        wording: the name or file of the words around a question.
        rows: the questions.

    Raises:
        UserError: with their number and names; or for a text that contains one of the model's
            special tokens, or an option that has no token.
    """
    words, around = read_wording(wording), None
    alike, long = list[str](), list[str]()
    count = 0
    for index, row in rows:
        count += 1
        question = put(words, index.question(row))
        text = reader.prompts.text(question, image=True)
        ids = reader.prompts.tokens(text)
        options = reader.options(text, ids, question.options)
        if around is None:
            around = _image_tokens(reader, words, index, row, len(ids))
        tokens = [tuple(one.ids[one.start :]) for one in options]
        if len(set(tokens)) < len(tokens):
            alike.append(index.key(row))
        behind = max(len(one.ids) for one in options) + (len(ids) if reader.translates else 0)
        if behind + around > reader.longest:
            long.append(index.key(row))
    for names, what in (
        (long, f"are longer with an option than the {reader.longest} tokens that it reads"),
        (alike, "have options that are the same tokens to it"),
    ):
        if names:
            named = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
            raise UserError(
                f"{reader.folder}: {len(names):,} of {count:,} questions {what} ({named}): leave "
                "them out of the set, or choose another model"
            )


def _image_tokens(
    reader: QuestionReader, wording: Wording, index: QuestionRows, row: int, length: int
) -> int:
    """Return the number of tokens of a prompt's image beyond the one in the prompt's text.

    Args:
        reader: the model's reader of questions.
        wording: the words around a question.
        index: the index with the question.
        row: the question's row in the index.
        length: the number of tokens of the prompt's text.
    """
    image = index.image(row)
    assert image.image is not None  # rows have images
    pixels = decode_image(image.image.read(), f"image {image.key}")
    (asked,) = reader.read(pixels, [put(wording, index.question(row))])
    if not isinstance(asked, EncodedQuestion):
        return reader.longest
    return int(asked.inputs["input_ids"].shape[1]) - length
