"""Log-likelihoods of options behind a prompt: read whole, one by one, or with all they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from cfaug.errors import UserError
from cfaug.models.prompts import Option
from cfaug.models.shared_prefix import Decoder, Read
from cfaug.types import OptionScore

AHEAD = 1e-3
"""What log-probabilities of a prompt may differ by, whatever stands behind it: rounding."""


Shape: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class Asked:
    """A question as a model reads it.

    Attributes:
        inputs: what the processor makes of images and prompt, one row.
        head: how many tokens there are up to the last of an image, that included; of a prompt
            without images, one.
        options: tokens of prompt and option behind the head; none begins within the head.
    """

    inputs: dict[str, Tensor]
    head: int
    options: tuple[Option, ...]

    @property
    def common(self) -> list[int]:
        """What all options have before them, behind the head."""
        first = self.options[0].ids
        length = min(one.start for one in self.options)
        for one in self.options:
            pairs = zip(first[:length], one.ids, strict=False)
            length = next((n for n, (a, b) in enumerate(pairs) if a != b), length)
        return first[:length]

    def whole(self, option: Option) -> dict[str, Tensor]:
        """Return what the model takes of prompt and option together."""
        ids = self.inputs["input_ids"]
        behind = torch.tensor([option.ids], dtype=ids.dtype, device=ids.device)
        made = {}
        for name, tensor in self.inputs.items():
            if tensor.shape != ids.shape:
                made[name] = tensor
                continue
            more = behind if name == "input_ids" else torch.zeros_like(behind).to(tensor.dtype)
            more = torch.ones_like(more) if name == "attention_mask" else more
            made[name] = torch.cat([tensor[:, : self.head], more], dim=1)
        return made


class Continued:
    """Options as texts that go on from a prompt: decoders such as LLaVA's.

    Args:
        model: of transformers.
    """

    translates = False

    def __init__(self, model: Any) -> None:
        self.decoder = Decoder(model)

    def model_of(self, inputs: dict[str, Tensor]) -> Any:
        """Without an image, a model with a Q-Former is its language model alone."""
        return self.decoder.model_of(inputs)

    def shape(self, asked: Asked) -> Shape:
        """Return what must be equal for questions to be read together."""
        ids = asked.inputs["input_ids"].shape
        rest = sorted((n, tuple(t.shape)) for n, t in asked.inputs.items() if t.shape != ids)
        return (asked.head, *rest)

    def check(self, asked: Asked, owner: object) -> None:
        """Refuse a model whose prompt looks different with an option behind it.

        Args:
            asked: any question.
            owner: the folder, for the error.

        Raises:
            UserError: if what it says of the prompt depends on the option.
        """
        option = max(asked.options, key=lambda one: len(one.ids))
        prompt = Option(option.ids[: option.start], option.start)
        alone = self.decoder.tell(asked.whole(prompt))[0]
        before = self.decoder.tell(asked.whole(option))[0][: len(alone)]
        if not torch.allclose(alone, before, rtol=AHEAD, atol=AHEAD):
            raise UserError(
                f"{owner} holds a {type(self.decoder.model).__name__}, which looks at an option "
                "before it has read the prompt to its end (as PaliGemma's prefix does): its "
                "options have no likelihood behind the prompt"
            )

    def whole(self, asked: Asked) -> list[OptionScore]:
        """Score options one at a time, all read anew for each: slow and simple."""
        scores = []
        for option in asked.options:
            told = self.decoder.tell(asked.whole(option))[0]
            wanted = option.ids[option.start :]
            first = asked.head + option.start - 1
            scores.append(score(told[first : first + len(wanted)], wanted))
        return scores

    def shared(
        self, images: Sequence[Sequence[Asked]], tokens_at_once: int
    ) -> list[list[list[OptionScore]]]:
        """Score all options of several images' questions; an image is read once.

        Args:
            images: of each its questions, which are the same up to the head; of all of them the
                inputs have the same shapes up to the head.
            tokens_at_once: places in the caches of what is read together; a text alone may have
                more.

        Returns:
            For each image, for each question, for each option its score.

        Raises:
            ValueError: if options differ in their first token behind the image.
        """
        head = images[0][0].head
        firsts = [own[0].inputs for own in images]
        inputs = {
            name: torch.cat([
                one[name][:, :head] if one[name].shape == one["input_ids"].shape else one[name]
                for one in firsts
            ])
            for name in firsts[0]
        }  # fmt: skip
        read = self.decoder.read(inputs, head)
        asked = [(image, one) for image, own in enumerate(images) for one in own]
        found: list[list[OptionScore]] = []
        longest = head + max(len(one.common) for _, one in asked)
        for rows in chunks(asked, max(1, tokens_at_once // longest)):
            found += self._questions(read, rows, tokens_at_once)
        scores = iter(found)
        return [[next(scores) for _ in own] for own in images]

    def _questions(
        self, read: Read, rows: Sequence[tuple[int, Asked]], tokens_at_once: int
    ) -> list[list[OptionScore]]:
        common = [one.common for _, one in rows]
        if not all(common):
            raise ValueError("options differ in their first token behind the image")
        before, _ = self.decoder.read_on(read.take([image for image, _ in rows]), common, "left")
        assert before.ahead is not None
        options = [(row, option) for row, (_, one) in enumerate(rows) for option in one.options]
        told = self._rest(before, options, [len(one) for one in common], tokens_at_once)
        scores: list[list[OptionScore]] = [[] for _ in rows]
        for number, (row, option) in enumerate(options):
            ahead = before.ahead[row][None]
            every = torch.cat([ahead, told[number]]) if number in told else ahead
            skipped = option.start - len(common[row])
            wanted = option.ids[option.start :]
            scores[row].append(score(every[skipped : skipped + len(wanted)], wanted))
        return scores

    def _rest(
        self,
        before: Read,
        options: Sequence[tuple[int, Option]],
        known: Sequence[int],
        tokens_at_once: int,
    ) -> dict[int, Tensor]:
        """Return what is told behind the tokens of each option; one of one token needs none."""
        rest = [(row, option.ids[known[row] : -1]) for row, option in options]
        longer = [number for number, (_, ids) in enumerate(rest) if ids]
        width = before.mask.shape[1] + max((len(ids) for _, ids in rest), default=0)
        told: dict[int, Tensor] = {}
        for some in chunks(longer, max(1, tokens_at_once // width)):
            part = before.take([rest[number][0] for number in some])
            _, log_p = self.decoder.read_on(part, [rest[number][1] for number in some], "right")
            told.update(zip(some, log_p, strict=True))
        return told


def score(log_p: Tensor, wanted: Sequence[int]) -> OptionScore:
    """Add up log-probabilities (places, words) of the wanted word of each place."""
    index = torch.tensor(list(wanted), device=log_p.device)[:, None]
    return OptionScore(float(-log_p.gather(-1, index).double().sum()), len(wanted))


def chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Yield items in parts of a size."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
