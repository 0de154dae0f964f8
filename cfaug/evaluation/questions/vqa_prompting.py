"""How a model is asked the questions of a set, and how its answers are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cfaug.core.answers import Answered, Demonstration, Question
from cfaug.core.errors import UserError
from cfaug.core.files import read_yaml, require_regular
from cfaug.core.pixels import content_digest, decode_image
from cfaug.core.rng import generator
from cfaug.editing.edit_prompts import OPTIONS, Wording, fill
from cfaug.evaluation.questions.question_items import QuestionRow, Reply, rank_reply
from cfaug.evaluation.vqa_inference import Ask, Asker
from cfaug.stats.choices import Reduction, parse_answer

if TYPE_CHECKING:
    from PIL.Image import Image

    from cfaug.data.questions import QuestionImage


Protocol = Literal["rank", "write"]
Order = Literal["given", "shuffled"]
ChainOfThought = Literal["one_stage", "two_stage"]


@dataclass(frozen=True, kw_only=True)
class QuestionProtocol:
    """How questions are asked.

    Attributes:
        chain_of_thought: ``one_stage`` shows rationales in examples; ``two_stage`` has the model
            write one before options are ranked.
    """

    protocol: Protocol
    reduction: Reduction
    wording: Wording
    option_order: Order
    order_seed: int
    solved: Demonstrations
    shots: int
    chain_of_thought: ChainOfThought | None
    max_new_tokens: int

    @property
    def writes(self) -> bool:
        """Whether the model has to write text."""
        return self.protocol == "write" or self.chain_of_thought == "two_stage"

    def shown(self, category: str) -> tuple[SolvedExample, ...]:
        """Return the examples before a category's questions, with all parts that prompts need."""
        shown = self.solved.before(category, self.shots)
        for example in shown:
            lacks = "a rationale" if self.chain_of_thought and not example.rationale else ""
            if OPTIONS in self._template and not example.options:
                lacks = "the options that benchmark.wording shows"
            if lacks:
                raise UserError(
                    f"{self.solved.source}: the example {example.question!r} lacks {lacks}"
                )
        return shown

    @property
    def _template(self) -> str:
        if self.chain_of_thought == "two_stage":
            return self.wording.rationale
        return self.wording.written if self.protocol == "write" else self.wording.question

    def _order(self, row: QuestionRow) -> list[str]:
        options = row.question.options
        if self.option_order == "given":
            return list(options)
        order = generator(self.order_seed, "option order", row.name).permutation(len(options))
        return [options[index] for index in order]

    def put(self, row: QuestionRow, blind: bool, opening: str = "") -> Ask:
        """Return a question in the form that the model receives.

        Args:
            blind: whether to leave out all images, also those of examples.
        """
        examples = []
        for example in self.shown(row.image.category):
            filled = fill(self._template, example.question, example.options)
            answer = example.answer
            if self.chain_of_thought:
                answer = f"{example.rationale} {self.wording.marker} {example.answer}"
            examples.append(Demonstration(filled, answer, None if blind else example.pixels))
        text = fill(self._template, row.question.text, self._order(row))
        question = Question(text, row.question.options, tuple(examples), opening)
        return Ask(row.image.key, None if blind else row.image.image, question)

    def ask(
        self,
        asker: Asker,
        rows: Sequence[QuestionRow],
        *,
        blind: bool,
        beside: Sequence[Reply] | None = None,
    ) -> list[Reply]:
        """Return a reply to every question; one that is left out is not asked.

        Args:
            beside: replies to the same questions without the image, for ``pmi``; else ``None``.
        """
        if not self.writes:
            asks = [None if row.left_out else self.put(row, blind) for row in rows]
            return self._rank_all(asker, rows, asks, blind, beside)
        requests = [self.put(row, blind) for row in rows if not row.left_out]
        texts = iter(asker.write(requests, self.max_new_tokens))
        written = [None if row.left_out else next(texts) for row in rows]
        if self.protocol == "write":
            return [
                Reply(None, row.left_out) if text is None else self._read(row, text)
                for row, text in zip(rows, written, strict=True)
            ]
        # Rank the options of every question after the rationale that the model wrote for it.
        left, asks = list[QuestionRow](), list[Ask | None]()
        for row, answered in zip(rows, written, strict=True):
            text = "" if answered is None else answered.text or ""
            # Without the answer that the model may have written after it.
            thought = text.partition(self.wording.marker)[0].strip()
            problem = "" if answered is None else answered.left_out
            reason = row.left_out or problem or ("" if thought else "rationale")
            left.append(replace(row, left_out=reason))
            opening = f"{thought} {self.wording.marker}"
            asks.append(None if reason else self.put(row, blind, opening))
        replies = self._rank_all(asker, left, asks, blind, beside)
        return [
            replace(reply, text=None if answered is None else answered.text)
            for reply, answered in zip(replies, written, strict=True)
        ]

    def ask_prior(self, asker: Asker, rows: Sequence[QuestionRow]) -> list[Reply]:
        """Rank the options of every question after a prompt without the question."""
        asks: list[Ask | None] = []
        for row in rows:
            text = fill(self.wording.prior, "", self._order(row))
            ask = Ask(row.image.key, None, Question(text, row.question.options))
            asks.append(None if row.left_out else ask)
        return self._rank_all(asker, rows, asks, True, None)

    def _rank_all(
        self,
        asker: Asker,
        rows: Sequence[QuestionRow],
        asks: Sequence[Ask | None],
        blind: bool,
        beside: Sequence[Reply] | None,
    ) -> list[Reply]:
        ranked = iter(asker.rank([ask for ask in asks if ask is not None]))
        reduction: Reduction = "token_mean" if blind and self.reduction == "pmi" else self.reduction
        without = [None] * len(rows) if beside is None else [reply.answered for reply in beside]
        return [
            Reply(None, row.left_out)
            if row.left_out
            else rank_reply(next(ranked), row.question.options, reduction, other)
            for row, other in zip(rows, without, strict=True)
        ]

    def _read(self, row: QuestionRow, answered: Answered) -> Reply:
        if answered.text is None:
            return Reply(None, answered.left_out)
        answer = text = answered.text
        if self.chain_of_thought:  # rationale and answer, separated by a marker
            answer = text.rpartition(self.wording.marker)[2] if self.wording.marker in text else ""
        return Reply(parse_answer(answer, row.question.options), "", None, text)


def leave_out_too(replies: Sequence[Reply], seen: Sequence[Reply]) -> list[Reply]:
    """Leave out the questions left out with the image, so that both count the same questions.

    Args:
        replies: replies without the image.
        seen: replies with the image, to the same questions.
    """
    return [
        replace(reply, chosen=None, left_out=reply.left_out or other.left_out)
        if other.left_out
        else reply
        for reply, other in zip(replies, seen, strict=True)
    ]


# Solved examples that are shown before questions: a YAML file with some for each category.
#
# ::
#
#     count:
#       - image: dogs.jpg        # beside this file; or key: KEY, of the question set; or neither
#         question: How many dogs are there?
#         options: ["2", "3"]    # where the wording shows options
#         rationale: I see a brown and a white dog.   # where thoughts are shown
#         answer: "2"
#     any: [...]                 # of categories that are not named

ANY = "any"
"""The category whose examples are shown for categories without examples of their own."""
KEYS = {"image", "key", "question", "options", "rationale", "answer"}


@dataclass(frozen=True)
class SolvedExample:
    """A question with its answer.

    Attributes:
        options: the options in the order in which they are shown; may be empty.
        rationale: the reasons for the answer; may be empty.
        image: the bytes of an image file; ``None`` for an example without an image.
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
        """The image, decoded."""
        return None if self.image is None else decode_image(self.image, self.name)


class Demonstrations:
    """Solved examples by category.

    Args:
        by_category: {category: its examples, in the order in which they are shown}; ``ANY`` stands
            for all other categories.
        source: the file of the examples, for messages.
    """

    def __init__(self, by_category: Mapping[str, Sequence[SolvedExample]], source: str) -> None:
        self.by_category = {name: tuple(examples) for name, examples in by_category.items()}
        self.source = source

    @cached_property
    def digests(self) -> set[str]:
        """Digests of all images that are shown; no question is asked about these."""
        every = [example.digest for examples in self.by_category.values() for example in examples]
        return {digest for digest in every if digest}

    def before(self, category: str, shots: int) -> tuple[SolvedExample, ...]:
        """Return the first examples of a category."""
        examples = self.by_category.get(category, self.by_category.get(ANY, ()))
        if len(examples) < shots:
            raise UserError(
                f"{self.source}: the category {category!r} has {len(examples)} examples, and "
                f"benchmark.shots={shots} are asked for; add some, or under {ANY!r}"
            )
        return examples[:shots]


def read_demonstrations(file: Path, question_images: Sequence[QuestionImage]) -> Demonstrations:
    """Read a file of solved examples; their images are read but not decoded.

    Args:
        question_images: the question set, whose images examples may name by key.
    """
    file = file.expanduser()
    if not file.is_file():
        raise UserError(f"benchmark.demonstrations={file}: there is no such file")
    content = read_yaml(file)
    if not isinstance(content, dict) or not all(
        isinstance(examples, list) for examples in content.values()
    ):
        raise UserError(f"{file} should map each category to a list of examples")
    images = {image.key: image for image in question_images}
    return Demonstrations(
        {
            str(category): [
                _read(example, f"{file}: {category}, example {number}", file.parent, images)
                for number, example in enumerate(examples)
            ]
            for category, examples in content.items()
        },
        str(file),
    )


def _read(
    given: Any, where: str, folder: Path, images: Mapping[str, QuestionImage]
) -> SolvedExample:
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
    if not isinstance(options, list) or not all(
        isinstance(option, str) and option for option in options
    ):
        raise UserError(f"{where}: options should be a list of texts, not {options!r}")
    if options and texts["answer"] not in options:
        raise UserError(f"{where}: the answer {texts['answer']!r} is not one of its options")
    image: bytes | None = None
    name = ""
    if "image" in given and "key" in given:
        raise UserError(f"{where} has image and key: choose one")
    if "key" in given:
        name = str(given["key"])
        source = images[name].image if name in images else None
        if source is None:
            raise UserError(f"{where}: the question set has no image {name!r}")
        image = source.read()
    elif "image" in given:
        file = (folder / str(given["image"])).resolve()
        if not file.is_relative_to(folder.resolve()):
            raise UserError(f"{where}: the image {given['image']!r} lies outside of {folder}")
        try:
            image, name = require_regular(file).read_bytes(), str(file)
        except OSError as error:
            raise UserError(
                f"{where}: the image {file} cannot be read: {error.strerror}"
            ) from error
    return SolvedExample(**texts, options=tuple(options), image=image, name=name)
