"""Ask a model questions in batches and cache the answers, so that no question is put twice.

Answers are cached under the hash of the whole batch they were given in, so that their last digits
do not depend on earlier questions: an interrupted evaluation resumes and produces identical bytes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cfaug.core.answers import Answered, Question
from cfaug.core.kept_records import KeptRecords
from cfaug.core.pixels import content_digest, decode_image
from cfaug.core.progress import Progress
from cfaug.core.protocols import Answerer, WritesAnswers
from cfaug.core.types import OptionScore
from cfaug.evaluation import cached_model
from cfaug.evaluation.cached_model import CachedAnswerer, explain_refusal, place_keys
from cfaug.evaluation.inference import evaluating

if TYPE_CHECKING:
    from PIL.Image import Image

    from cfaug.core.types import SourceImage

Record = Mapping[str, Any]
Batch = list[int]


@dataclass(frozen=True)
class Ask:
    """A question about an image.

    Attributes:
        name: the image's name, for messages.
        image: the image; ``None`` asks without an image.
    """

    name: str
    image: SourceImage | None
    question: Question

    @property
    def digest(self) -> str:
        """The digest of the image's content; empty without an image."""
        return "" if self.image is None else self.image.digest


class Asker:
    """Asks one model questions.

    Args:
        batch_size: number of questions given to the model at once; the questions about one image
            are never divided, even if there are more of them.
    """

    def __init__(self, model: Answerer | CachedAnswerer, batch_size: int) -> None:
        self._model = model
        self._size = batch_size
        self._kept = model.records if isinstance(model, CachedAnswerer) else KeptRecords(None)
        self._digests: dict[int, tuple[Image, str]] = {}

    @property
    def writes(self) -> bool:
        """Whether the model can write answers; the model is loaded to find out."""
        return isinstance(self._loaded, WritesAnswers)

    @property
    def _loaded(self) -> Any:
        model = self._model
        return model.model if isinstance(model, CachedAnswerer) else model

    def rank(self, asks: Sequence[Ask]) -> list[Answered]:
        """Return the scores of every question's options; equal questions have equal ones."""

        def answer(batch: Sequence[Ask]) -> list[Record]:
            places: dict[str, list[int]] = {}
            for position, ask in enumerate(batch):
                places.setdefault(ask.digest, []).append(position)
            images = [_decode(batch[members[0]]) for members in places.values()]
            questions = [
                [batch[position].question for position in members] for members in places.values()
            ]
            given = self._loaded.answer(images, questions)
            records: dict[int, Record] = {}
            for members, answers in zip(places.values(), given, strict=True):
                for position, answered in zip(members, answers, strict=True):
                    records[position] = {
                        "nll": [score.nll for score in answered.scores],
                        "tokens": [score.tokens for score in answered.scores],
                        "left_out": answered.left_out,
                    }
            return [records[position] for position in range(len(batch))]

        answers = []
        for record in self._recall(asks, "rank", answer):
            scores = zip(record["nll"], record["tokens"], strict=True)
            scored = tuple(OptionScore(nll, tokens) for nll, tokens in scores)
            answers.append(Answered(scored, record["left_out"]))
        return answers

    def write(self, asks: Sequence[Ask], max_new_tokens: int) -> list[Answered]:
        """Return a written answer to every question, or the reason why it was left out.

        Args:
            asks: the questions; their options are ignored.
        """

        def answer(batch: Sequence[Ask]) -> list[Record]:
            shown: dict[str, Image | None] = {}
            for ask in batch:
                if ask.digest not in shown:
                    shown[ask.digest] = _decode(ask)
            images = [shown[ask.digest] for ask in batch]
            given = self._loaded.write(images, [ask.question for ask in batch], max_new_tokens)
            return [
                {"text": answered.text}
                | ({"left_out": answered.left_out} if answered.left_out else {})
                for answered in given
            ]

        records = self._recall(asks, f"write {max_new_tokens}", answer)
        return [
            Answered(text=record["text"])
            if record["text"] is not None
            else Answered(left_out=record["left_out"])
            for record in records
        ]

    def _recall(
        self, asks: Sequence[Ask], kind: str, answer: Callable[[Sequence[Ask]], list[Record]]
    ) -> list[Record]:
        """Return the answer to every question; batches that are not in the cache are computed."""
        keys = [self._key(ask) for ask in asks]
        batches = list(_batches(asks, keys, self._size))
        kept = {
            position: name.hex()
            for batch in batches
            for position, name in zip(
                batch,
                place_keys(b"".join([kind.encode(), *(keys[p] for p in batch)]), len(batch)),
                strict=True,
            )
        }
        total = len(kept)
        records: dict[str, Record] = {}
        since = time.monotonic()
        with Progress("answering", total, "questions") as progress:
            try:
                for batch in batches:
                    names = [kept[position] for position in batch]
                    if all(name in self._kept for name in names):
                        progress.skip(len(batch))
                        continue
                    with evaluating(self._loaded):
                        answers = answer([asks[position] for position in batch])
                    records.update(zip(names, answers, strict=True))
                    progress.advance(len(batch))
                    if time.monotonic() - since > cached_model.KEPT_SECONDS:
                        self._keep(records)
                        records, since = {}, time.monotonic()
            finally:  # save the answers before an image that cannot be decoded
                self._keep(records)
        by_key = {keys[position]: self._kept[name] for position, name in kept.items()}
        return [by_key[key] for key in keys]

    def _keep(self, records: Mapping[str, Record]) -> None:
        if self._kept.folder is None or not records:
            self._kept.add(records)
            return
        with explain_refusal(self._kept.folder):
            self._kept.add(records)

    def _key(self, ask: Ask) -> bytes:
        """Return a key for everything except the model that an answer depends on."""
        question = ask.question
        shown = []
        for example in question.demonstrations:
            digest, image = "", example.image
            if image is not None:
                if id(image) not in self._digests:
                    pixels = f"{image.mode}{image.size}".encode() + image.tobytes()
                    # With the image, which stays alive: its id could be reused otherwise.
                    self._digests[id(image)] = image, content_digest(pixels).hex()
                digest = self._digests[id(image)][1]
            shown.append((example.question, example.answer, digest))
        content = [ask.digest, question.text, question.options, shown, question.opening]
        return content_digest(json.dumps(content).encode())


def _batches(asks: Sequence[Ask], keys: Sequence[bytes], size: int) -> Iterator[Batch]:
    """Yield the places of distinct questions, grouped by image."""
    by_image: dict[str, Batch] = {}
    for position in {key: position for position, key in reversed([*enumerate(keys)])}.values():
        by_image.setdefault(asks[position].digest, []).append(position)
    groups = []
    for digest, positions in sorted(by_image.items(), key=lambda item: min(item[1])):
        positions.sort()
        step = len(positions) if digest else size  # questions without image may be split anywhere
        groups += [positions[start : start + step] for start in range(0, len(positions), step)]
    batch: Batch = []
    for group in groups:
        if batch and len(batch) + len(group) > size:
            yield batch
            batch = []
        batch = batch + group
    if batch:
        yield batch


def _decode(ask: Ask) -> Image | None:
    return None if ask.image is None else decode_image(ask.image.read(), f"image {ask.name}")
