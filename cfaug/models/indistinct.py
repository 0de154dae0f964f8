"""Captions that a model cannot tell apart: different words that become the same tokens.

A small vocabulary, or a limit on the length, makes one text of "a photo of a tench" and "a photo of
a shark". Whatever is then measured with such captions, such as recall or accuracy, is about chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError, say_once
from cfaug.core.words import normalise_caption

WARNED_SHARE = 0.01
"""Share of indistinct captions above which a warning is given."""
DEFAULT_LIMIT = 0.2
"""Share of indistinct captions above which an evaluation is refused."""
MOST_CAPTIONS = 5000
"""Number of training captions that are compared: a share needs no more."""
BATCH = 1024

Tokenize = Callable[[Sequence[str]], Mapping[str, Any]]
"""``tokenize`` of a dual encoder or a matcher."""


@dataclass(frozen=True)
class Indistinct:
    """How many captions a model reads as the same tokens as another one.

    Attributes:
        captions: the number of captions that differ by more than case, punctuation and spaces.
        sequences: the number of different sequences of tokens that they become.
        alike: the number of captions that share their tokens with another caption.
        example: two of these; empty if there are none.
    """

    captions: int
    sequences: int
    alike: int
    example: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """The share of captions that share their tokens with another caption."""
        return self.alike / self.captions if self.captions else 0.0

    def __str__(self) -> str:
        text = f"{self.captions:,} different captions are {self.sequences:,} to the model"
        if not self.example:
            return text
        first, second = self.example
        return (
            f"{text}: it reads {self.share:.0%} of them like another, as {first!r} and {second!r}"
        )


def count_indistinct(tokenize: Tokenize, texts: Sequence[str]) -> Indistinct:
    """Count captions that become the same tokens, without padding.

    Captions that differ in case, punctuation or spaces alone count as one caption.
    """

    def read(some: list[str]) -> list[Hashable]:
        tokens = tokenize(some)
        if "attention_mask" in tokens:  # the width of the padding depends on the batch
            ids, mask = (tokens[name].numpy() for name in ("input_ids", "attention_mask"))
            return [row[used != 0].tobytes() for row, used in zip(ids, mask, strict=True)]
        columns = [column.numpy() for column in tokens.values()]
        return [b"".join(row.tobytes() for row in rows) for rows in zip(*columns, strict=True)]

    return _count(read, texts)


def count_in_folder(
    folder: Path, max_length: int | None, texts: Sequence[str]
) -> Indistinct | None:
    """Count indistinct captions by a folder's ``tokenizer.json``, without loading its model."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        return None
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_padding()
    if max_length is not None:
        tokenizer.enable_truncation(max_length)
    return _count(
        lambda some: [tuple(encoding.ids) for encoding in tokenizer.encode_batch(some)], texts
    )


def _count(read: Callable[[list[str]], list[Hashable]], texts: Sequence[str]) -> Indistinct:
    different: dict[str, str] = {}
    for text in texts:
        different.setdefault(normalise_caption(text), text)
    captions = list(different.values())
    keys: list[Hashable] = []
    for start in range(0, len(captions), BATCH):
        keys += read(captions[start : start + BATCH])
    counts = Counter(keys)
    example: tuple[str, ...] = ()
    if len(counts) < len(captions):
        most = counts.most_common(1)[0][0]
        example = tuple(text for text, key in zip(captions, keys, strict=True) if key == most)[:2]
    alike = sum(count for count in counts.values() if count > 1)
    return Indistinct(len(captions), len(counts), alike, example)


_CHECK: ContextVar[tuple[str, float] | None] = ContextVar("indistinct captions", default=None)
"""The name of a benchmark, and its limit."""


@contextmanager
def refuse_indistinct(name: str, limit: float) -> Iterator[None]:
    """Within this context, warn of indistinct captions, and refuse them above a share.

    Args:
        limit: the share of indistinct captions in [0, 1] above which they are refused.
    """
    token = _CHECK.set((name, limit))
    try:
        yield
    finally:
        _CHECK.reset(token)


def check_captions(count: Callable[[], Indistinct]) -> None:
    """Warn of captions that a model cannot tell apart, or refuse them, as the context says.

    Raises:
        UserError: if the share of indistinct captions is above the limit.
    """
    check = _CHECK.get()
    if check is None:
        return
    name, limit = check
    alike = count()
    if alike.share > limit:
        raise UserError(
            f"{name}: {alike}: such captions say nothing about it. Choose a model "
            "that was trained on such text, as model=clip_vit_b32, or evaluate all the same with "
            "max_indistinct=1"
        )
    if alike.share > WARNED_SHARE:
        say_once(f"warning: {name}: {alike}")
