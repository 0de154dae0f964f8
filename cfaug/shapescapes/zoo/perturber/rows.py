"""Rows to tune a perturber on: ``python -m cfaug zoo perturber_rows out=FILE.jsonl``.

The rows are captions of the embedded world and their edits, from its own vocabulary, one edit a
line. A share of the scenes is held out: no row has or edits a caption into one of theirs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.core.errors import UserError
from cfaug.core.rng import derive, generator
from cfaug.core.types import Example
from cfaug.core.validation import Seed
from cfaug.editing.edit_checks import KIND_CORRECT, LABEL_KEPT
from cfaug.editing.edit_prompts import EditAnswer, EditFormat, read_prompts, write_rows
from cfaug.editing.instructed_edit import TunedModel
from cfaug.editing.protocols import CaptionEdit, VariationRequest
from cfaug.shapescapes.language import VALUES, WorldCheck, WorldVariations, parse
from cfaug.shapescapes.settings import (
    COLOURS,
    DOMAINS,
    FRAMES,
    PHOTO,
    PLACES,
    SUBJECTS,
    CaptionWording,
    Factors,
    caption,
)
from cfaug.shapescapes.zoo.command import FittingSettings, Rates, fit, run
from cfaug.shapescapes.zoo.command import read as read_settings
from cfaug.shapescapes.zoo.language.training import pad
from cfaug.shapescapes.zoo.model import END, build_word_tokenizer, split_words

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast


Scene = tuple[str, str | None, str | None]
"""Subject, colour and place; a caption may leave out the latter two."""
PROMPTS = tuple(prompt for prompt in read_prompts("plain") if prompt.name in VALUES)
"""All prompts except that of objects, since the world has none."""


def split_scenes(share: float, seed: int) -> tuple[list[Scene], list[Scene]]:
    """Return the training scenes and the held-out scenes."""
    colours, places = (None, *COLOURS), (None, *PLACES)
    every: list[Scene] = list(itertools.product(SUBJECTS, colours, places))
    order = generator(seed, "zoo", "perturber", "split").permutation(len(every)).tolist()
    aside = round(share * len(every))
    chosen = set(order[:aside])
    sides = ([s for i, s in enumerate(every) if (i in chosen) == held] for held in (False, True))
    training, held = sides
    return training, held


def captions_of(scene: Scene) -> list[str]:
    """Return every caption of a scene: one in each frame as a photo, one in each other domain."""
    subject, colour, place = scene
    shown = Factors(subject, colour or "red", place or "beach")
    wording = {"colour": colour is not None, "background": place is not None}
    phrase = caption(shown, CaptionWording(0, **wording))
    photos = [caption(shown, CaptionWording(frame, **wording)) for frame in range(len(FRAMES))]
    return [*photos, *(f"a {domain} of {phrase}" for domain in DOMAINS if domain != PHOTO)]


def scene_of(text: str) -> Scene | None:
    """Return the scene of a caption of the world in any domain; ``None`` for another text."""
    said = parse(text)
    return None if said is None else (said.subject, said.colour, said.background)


def draw_answers(settings: RowSettings) -> list[EditAnswer]:
    """Draw captions and every prompt's edits of them, without edits into held-out scenes."""
    training, _ = split_scenes(settings.held_out, settings.seed)
    allowed = set(training)
    texts = [text for scene in training for text in captions_of(scene)]
    if settings.captions > len(texts):
        raise UserError(f"captions={settings.captions}: there are {len(texts)} to draw from")
    rng = generator(settings.seed, "zoo", "perturber", "rows")
    drawn = [texts[i] for i in rng.permutation(len(texts))[: settings.captions]]
    answers = []
    for text in drawn:
        for request, edits in _vary(text, settings):
            kept = [edit for edit in edits if scene_of(edit) in allowed][: settings.variations]
            if kept:
                answers.append(EditAnswer(text, request.prompt.name, tuple(kept)))
    return answers


def _vary(text: str, settings: RowSettings) -> Iterator[tuple[VariationRequest, tuple[str, ...]]]:
    """Yield every prompt with all edits of a caption, in random order."""
    requests = [
        VariationRequest(text, one, len(SUBJECTS), derive(settings.seed, "rows", text, one.name))
        for one in PROMPTS
    ]
    for request, said in zip(requests, WorldVariations().vary(requests), strict=True):
        yield request, said.texts


def main(argv: list[str]) -> int:
    """Write the rows."""
    settings = read_settings(RowSettings, argv)
    file = Path(settings.out)
    if file.exists():
        raise UserError(f"{file} exists already: remove it or choose another out=FILE.jsonl")
    answers = draw_answers(settings)
    write_rows(file, answers)
    edits = sum(len(answer.edits) for answer in answers)
    print(f"{file}: {edits:,} edits of {settings.captions:,} captions in {len(answers):,} answers")
    return 0


if __name__ == "__main__":
    run(main)


@dataclass(frozen=True, kw_only=True)
class RowSettings:
    """The settings of the command that writes rows, given as ``name=value``.

    Attributes:
        out: the JSON Lines file to write.
        seed: the seed of the held-out and the drawn captions.
        captions: the number of captions, without repetitions.
        variations: the largest number of edits of one caption by one prompt.
        held_out: the share of scenes that occur in no caption and no edit.
    """

    out: str
    seed: Seed = 0
    captions: int = 3000
    variations: int = 5
    held_out: float = 0.2


@dataclass(frozen=True, kw_only=True)
class PerturberSettings(Rates):
    """The settings of the command, given as ``name=value``.

    Attributes: those of :class:`cfaug.shapescapes.zoo.command.Rates`, for the base model, and
        out: the folder to write, with ``base`` in it; must not exist.
        seed: the seed of the held-out scenes, the weights, the texts and their order.
        captions: the setting of :class:`RowSettings`.
        variations: the setting of :class:`RowSettings`.
        held_out: the setting of :class:`RowSettings`.
        base_steps: the base model's number of steps on lists of captions.
        tune_steps: the largest number of steps of the tuning on rows, by ``cfaug.train``.
        tune_lr: the peak of the tuning's learning rate.
        tune_batch: the number of answers in a step of the tuning.
        tested: the number of held-out captions that the card's shares are measured on.
    """

    out: str
    seed: Seed = 0
    captions: int = 3000
    variations: int = 5
    held_out: float = 0.2
    batch_size: int = 16
    lr: float = 8e-3
    warmup: int = 50
    weight_decay: float = 0.01
    base_steps: int = 300
    tune_steps: int = 700
    tune_lr: float = 5e-3
    tune_batch: int = 16
    tested: int = 60

    @property
    def rows(self) -> RowSettings:
        """The settings of the rows for the tuning."""
        return RowSettings(
            out=self.out, seed=self.seed, captions=self.captions,
            variations=self.variations, held_out=self.held_out,
        )  # fmt: skip


# The base model: a LLaMA of two layers trained on lists of captions, without any edits.

SPECIAL = ("[PAD]", "[UNK]", END)
MAX_LENGTH = 256
WIDTH = 64
LISTED = 5
"""The number of captions of a list, besides the first."""


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of all words of captions and prompts, line numbers and line ends."""
    scenes = (scene for side in split_scenes(0, 0) for scene in side)
    said = [text for scene in scenes for text in captions_of(scene)]
    prompts = [EditFormat.short().prompt(name, "") for name in EditFormat.short().prompts]
    numbers = [f"{n}." for n in range(1, 13)]
    known = dict.fromkeys([*sorted(set(split_words([*said, *prompts], lines=True))), *numbers])
    return build_word_tokenizer(SPECIAL, tuple(known), MAX_LENGTH, causal=True, lines=True)


def build_model(vocabulary: int) -> LlamaForCausalLM:
    """Return the model with initial weights, drawn from torch's current generator.

    An answer is mostly copied from the caption, line by line. Rotary positions with frequencies for
    such short texts, and widely spread initial weights, learn that in some 200 steps; a GPT-2 of
    the same size had not learnt it after 2,000.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    end = SPECIAL.index(END)
    config = LlamaConfig(
        vocab_size=vocabulary, max_position_embeddings=MAX_LENGTH, hidden_size=WIDTH,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
        intermediate_size=2 * WIDTH, initializer_range=0.1, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 200.0},
        bos_token_id=end, eos_token_id=end, pad_token_id=SPECIAL.index("[PAD]"),
    )  # fmt: skip
    return LlamaForCausalLM(config)


def lists(settings: PerturberSettings) -> Iterator[str]:
    """Yield endless lists of captions that differ in one thing: subject, colour, place or frame.

    The lists do not name the difference, so the model learns nothing about prompts. They contain no
    held-out scenes.
    """
    training, _ = split_scenes(settings.held_out, settings.seed)
    texts = [text for scene in training for text in captions_of(scene)]
    groups: dict[tuple[object, ...], list[str]] = {}
    for text in texts:
        said = parse(text)
        assert said is not None
        frame = text.split(" of ", 1)[0] if " of " in text else text.split(" a")[0]
        facts = (said.subject, said.colour, said.background, frame)
        for place in range(len(facts)):
            key = (place, *facts[:place], *facts[place + 1 :])
            groups.setdefault(key, []).append(text)
    several = [group for group in groups.values() if len(group) > 1]
    rng = generator(settings.seed, "zoo", "perturber", "lists")
    while True:
        group = several[int(rng.integers(len(several)))]
        chosen = rng.permutation(len(group))[: 1 + LISTED]
        first, *rest = (group[i] for i in chosen)
        yield "\n".join([first, *(f"{n}. {text}" for n, text in enumerate(rest, 1))])


def train_base(settings: PerturberSettings, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Train on lists, each between two ``<|endoftext|>``."""
    import torch

    torch.manual_seed(derive(settings.seed, "zoo", "perturber", "weights") % 2**63)
    model = build_model(len(tokenizer)).train()
    stream = lists(settings)

    def loss(_: int) -> Tensor:
        return _next_words(model, tokenizer, [next(stream) for _ in range(settings.batch_size)])

    rates = {field.name: getattr(settings, field.name) for field in fields(Rates)}
    fit(model, loss, FittingSettings(steps=settings.base_steps, **rates), "lists of captions")
    return model.eval()


def _next_words(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]
) -> Tensor:
    import torch
    from torch.nn import functional

    end = SPECIAL.index(END)
    rows = [[end, *ids, end][:MAX_LENGTH] for ids in tokenizer(list(texts))["input_ids"]]
    ids = torch.from_numpy(pad(rows, 0))
    # The end is a token to be predicted; the padding after it is not.
    lengths = torch.tensor([len(row) for row in rows])
    asked = torch.arange(ids.shape[1] - 1)[None] < (lengths - 1)[:, None]
    shown = ids[:, :-1]
    logits = model(shown, attention_mask=torch.ones_like(shown)).logits
    return functional.cross_entropy(logits[asked], ids[:, 1:][asked])


ASKED_FOR = 8
"""The number of variations of a caption by a prompt, the editor's default."""


def held_out_captions(settings: RowSettings, count: int) -> list[str]:
    """Return captions of held-out scenes, drawn by the settings' seed."""
    _, held = split_scenes(settings.held_out, settings.seed)
    texts = [text for scene in held for text in captions_of(scene)]
    order = generator(settings.seed, "zoo", "perturber", "tested").permutation(len(texts))
    return [texts[i] for i in order[:count]]


def evaluate(folder: Path, captions: Sequence[str], seed: int = 0) -> dict[str, Any]:
    """Return the quality of a tuned model's variations of captions by every prompt.

    Args:
        seed: the seed of the sampling, like an editor's.

    Returns:
        By prompt and over ``all``: ``answered``, the share of requests with a variation;
        ``parse``, ``kind`` and ``label``, the shares of variations that are captions of the world,
        that are of the requested kind, and that keep the subject; ``edits``, the number of distinct
        variations per request.
    """
    model = TunedModel(str(folder))
    asked = [
        (prompt, VariationRequest(text, prompt, ASKED_FOR, 1000 * seed + number))
        for number, text in enumerate(captions)
        for prompt in PROMPTS
    ]
    answers = model.vary([request for _, request in asked])
    check, counted = WorldCheck(), []
    for (prompt, request), said in zip(asked, answers, strict=True):
        example = Example("tested", "tested", (request.caption,))
        edits = [
            CaptionEdit(0, example, request.caption, text, prompt.name, prompt.kind)
            for text in said.texts
        ]
        notes = [verdict.notes for verdict in check.judge(edits)]
        counted.append((prompt.name, said.texts, notes))
    names = [*(prompt.name for prompt in PROMPTS), "all"]
    return {name: _shares([one for one in counted if name in (one[0], "all")]) for name in names}


def _shares(counted: Sequence[tuple[str, Sequence[str], Sequence[Any]]]) -> dict[str, float]:
    texts = [text for _, some, _ in counted for text in some]
    notes = [note for _, _, some in counted for note in some]
    count = max(1, len(texts))
    return {
        "answered": round(sum(bool(some) for _, some, _ in counted) / len(counted), 4),
        "parse": round(sum(parse(text) is not None for text in texts) / count, 4),
        "kind": round(sum(bool(note[KIND_CORRECT]) for note in notes) / count, 4),
        "label": round(sum(bool(note[LABEL_KEPT]) for note in notes) / count, 4),
        "edits": round(len(texts) / len(counted), 2),
    }
