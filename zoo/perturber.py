"""Train the tiny perturber: ``python -m zoo perturber out=FOLDER seed=0``.

It writes a base model of lists of the embedded world's captions into ``FOLDER/base``, and the same
model tuned on edited captions by the code of ``python train.py experiment=lance_perturber``.
Rebuilding with the seed, threads and versions in ``card.json`` gives the same metrics.

``python -m zoo perturber_rows out=FILE.jsonl`` writes rows to tune a perturber on: captions
of the embedded world and their edits, from its own vocabulary, one edit a line. A share of the
scenes is held out: no row has or edits a caption into one of theirs.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.core.errors import UserError
from cfaug.core.outputs import check_output
from cfaug.core.rng import derive, generator
from cfaug.core.types import Example
from cfaug.core.validation import Seed
from cfaug.editing.causal_lm import CausalLM
from cfaug.editing.edit_checks import KIND_CORRECT, LABEL_KEPT
from cfaug.editing.edit_prompts import (
    ROWS,
    EditAnswer,
    EditFormat,
    read_prompts,
    split_by_caption,
    write_rows,
)
from cfaug.editing.instructed_edit import TunedModel
from cfaug.editing.protocols import CaptionEdit, VariationRequest
from cfaug.train import task as training
from cfaug.train.generative_tasks import EditData, LanguageTask
from cfaug.train.settings import LoggerSettings, OptimSettings, TrainerSettings
from cfaug.worlds.shapescapes.language import VALUES, WorldCheck, WorldVariations, parse
from cfaug.worlds.shapescapes.settings import (
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
from zoo import command
from zoo.command import Rates, count_parameters, fit, read, save_half
from zoo.language import pad
from zoo.model import END, build_word_tokenizer, split_words

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
    subject, colour, background = scene
    shown = Factors(subject, colour or "red", background or "beach")
    wording = {"colour": colour is not None, "background": background is not None}
    phrase = caption(shown, CaptionWording(0, **wording))
    photos = [caption(shown, CaptionWording(frame, **wording)) for frame in range(len(FRAMES))]
    return [*photos, *(f"a {domain} of {phrase}" for domain in DOMAINS if domain != PHOTO)]


def scene_of(text: str) -> Scene | None:
    """Return the scene of a caption of the world in any domain; ``None`` for another text."""
    statement = parse(text)
    return (
        None if statement is None else (statement.subject, statement.colour, statement.background)
    )


@dataclass(frozen=True, kw_only=True)
class RowSettings:
    """The settings of the command that writes rows, given as ``name=value``.

    Attributes:
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


def draw_answers(settings: RowSettings) -> list[EditAnswer]:
    """Draw captions and every prompt's edits of them, without edits into held-out scenes."""
    training, _ = split_scenes(settings.held_out, settings.seed)
    allowed = set(training)
    texts = [text for scene in training for text in captions_of(scene)]
    if settings.captions > len(texts):
        raise UserError(f"captions={settings.captions}: there are {len(texts)} to draw from")
    rng = generator(settings.seed, "zoo", "perturber", "rows")
    answers = []
    for row in rng.permutation(len(texts))[: settings.captions]:
        # All edits of the caption by every prompt, in random order.
        text = texts[row]
        requests = [
            VariationRequest(
                text,
                edit_prompt,
                len(SUBJECTS),
                derive(settings.seed, "rows", text, edit_prompt.name),
            )
            for edit_prompt in PROMPTS
        ]
        for request, variations in zip(requests, WorldVariations().vary(requests), strict=True):
            edits = [edit for edit in variations.texts if scene_of(edit) in allowed]
            if edits:
                kept = tuple(edits[: settings.variations])
                answers.append(EditAnswer(text, request.prompt.name, kept))
    return answers


def main_rows(argv: list[str]) -> int:
    """Write the rows."""
    settings = read(RowSettings, argv)
    file = Path(settings.out).expanduser()
    check_output(file, ROWS, "out", replace=False)
    answers = draw_answers(settings)
    write_rows(file, answers)
    edits = sum(len(answer.edits) for answer in answers)
    print(f"{file}: {edits:,} edits of {settings.captions:,} captions in {len(answers):,} answers")
    return 0


@dataclass(frozen=True, kw_only=True)
class PerturberSettings(RowSettings, Rates):
    """The settings of the command, given as ``name=value``.

    Attributes: those of :class:`zoo.command.Rates`, for the base model, and
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

    batch_size: int = 16
    lr: float = 8e-3
    warmup: int = 50
    weight_decay: float = 0.01
    base_steps: int = 300
    tune_steps: int = 700
    tune_lr: float = 5e-3
    tune_batch: int = 16
    tested: int = 60


# The base model: a LLaMA of two layers trained on lists of captions, without any edits.

SPECIAL = ("[PAD]", "[UNK]", END)
MAX_LENGTH = 256
WIDTH = 64
LISTED = 5
"""The number of captions of a list, besides the first."""


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of all words of captions and prompts, line numbers and line ends."""
    scenes = (scene for side in split_scenes(0, 0) for scene in side)
    texts = [text for scene in scenes for text in captions_of(scene)]
    prompts = [EditFormat.short().prompt(name, "") for name in EditFormat.short().prompts]
    numbers = [f"{n}." for n in range(1, 13)]
    known = dict.fromkeys([*sorted(set(split_words([*texts, *prompts], lines=True))), *numbers])
    return build_word_tokenizer(SPECIAL, tuple(known), MAX_LENGTH, causal=True, lines=True)


def lists(settings: PerturberSettings) -> Iterator[str]:
    """Yield endless lists of captions that differ in one thing: subject, colour, place or frame.

    The lists do not name the difference, so the model learns nothing about prompts. They contain no
    held-out scenes.
    """
    training, _ = split_scenes(settings.held_out, settings.seed)
    texts = [text for scene in training for text in captions_of(scene)]
    groups: dict[tuple[object, ...], list[str]] = {}
    for text in texts:
        statement = parse(text)
        assert statement is not None
        frame = text.split(" of ", 1)[0] if " of " in text else text.split(" a")[0]
        facts = (statement.subject, statement.colour, statement.background, frame)
        for position in range(len(facts)):
            key = (position, *facts[:position], *facts[position + 1 :])
            groups.setdefault(key, []).append(text)
    several = [group for group in groups.values() if len(group) > 1]
    rng = generator(settings.seed, "zoo", "perturber", "lists")
    while True:
        group = several[int(rng.integers(len(several)))]
        chosen = rng.permutation(len(group))[: 1 + LISTED]
        first, *rest = (group[i] for i in chosen)
        yield "\n".join([first, *(f"{n}. {text}" for n, text in enumerate(rest, 1))])


def train_base(settings: PerturberSettings, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Train on lists, each between two ``<|endoftext|>``.

    An answer is mostly copied from the caption, line by line. Rotary positions with frequencies for
    such short texts, and widely spread initial weights, learn that in some 200 steps; a GPT-2 of
    the same size had not learnt it after 2,000.
    """
    import torch
    from torch.nn import functional
    from transformers import LlamaConfig, LlamaForCausalLM

    stream, end = lists(settings), SPECIAL.index(END)
    config = LlamaConfig(
        vocab_size=len(tokenizer), max_position_embeddings=MAX_LENGTH, hidden_size=WIDTH,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
        intermediate_size=2 * WIDTH, initializer_range=0.1, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 200.0},
        bos_token_id=end, eos_token_id=end, pad_token_id=SPECIAL.index("[PAD]"),
    )  # fmt: skip
    torch.manual_seed(derive(settings.seed, "zoo", "perturber", "weights") % 2**63)
    model = LlamaForCausalLM(config).train()

    def loss(step: int) -> Tensor:
        texts = [next(stream) for _ in range(settings.batch_size)]
        rows = [[end, *ids, end][:MAX_LENGTH] for ids in tokenizer(texts)["input_ids"]]
        ids = torch.from_numpy(pad(rows, 0))
        # The end is a token to be predicted; the padding after it is not.
        lengths = torch.tensor([len(row) for row in rows])
        predicted = torch.arange(ids.shape[1] - 1)[None] < (lengths - 1)[:, None]
        shown = ids[:, :-1]
        logits = model(shown, attention_mask=torch.ones_like(shown)).logits
        return functional.cross_entropy(logits[predicted], ids[:, 1:][predicted])

    fit(model, loss, settings, settings.base_steps, "lists of captions")
    return model.eval()


# The tuning on rows.

VALIDATION = 0.1
"""The share of the rows' captions that are held out to choose the weights."""


def tune(settings: PerturberSettings, base: Path, folder: Path) -> dict[str, Any]:
    """Tune all weights of the base model on the rows, and write them in float16.

    Returns:
        Counts, steps, and the loss of held-out answers before and after.
    """
    answers = draw_answers(settings)
    learnt, validation = split_by_caption(answers, VALIDATION, settings.seed)
    task = LanguageTask(
        model=CausalLM(str(base), device="cpu"),
        optim=OptimSettings(
            lr=settings.tune_lr, weight_decay=0.0, schedule="cosine", warmup=settings.warmup
        ),
        trainer=TrainerSettings(
            max_steps=settings.tune_steps, max_epochs=None, accelerator="cpu",
            val_every_steps=max(1, settings.tune_steps // 4),
        ),
        logger=LoggerSettings(), seed=settings.seed, data_seed=settings.seed,
        data=EditData(None, "short", batch_size=settings.tune_batch, validation=VALIDATION),
        edit_format=EditFormat.short(), training=tuple(learnt), validation=tuple(validation),
    )  # fmt: skip
    before = task.measure(task.load())["evaluation"]["all"]
    with tempfile.TemporaryDirectory() as temporary:
        run_folder = Path(temporary) / "perturber" / "zoo" / "seed=0"
        run_folder.mkdir(parents=True)
        result = training.fit(task, run_folder, attempt=0)
        tuned = CausalLM(str(run_folder / "checkpoint"), device="cpu")
        save_half(tuned.model, tuned.tokenizer, folder)
    EditFormat.short().write(folder)
    return {
        "rows": dict(task.counts),
        "steps": {"run": result.end_step, "kept": result.best_step},
        "held_out_loss": {"before": before, "after": result.measured["evaluation"]},
    }


def held_out_captions(settings: RowSettings, count: int) -> list[str]:
    """Return captions of held-out scenes, drawn by the settings' seed."""
    _, held = split_scenes(settings.held_out, settings.seed)
    texts = [text for scene in held for text in captions_of(scene)]
    order = generator(settings.seed, "zoo", "perturber", "tested").permutation(len(texts))
    return [texts[i] for i in order[:count]]


def evaluate(folder: Path, captions: Sequence[str], seed: int = 0) -> dict[str, Any]:
    """Return the quality of a tuned model's variations of captions by every prompt.

    Returns:
        By prompt and over ``all``: ``answered``, the share of requests with a variation;
        ``parse``, ``kind`` and ``label``, the shares of variations that are captions of the world,
        that are of the requested kind, and that keep the subject; ``edits``, the number of distinct
        variations per request.
    """
    # Eight variations of a caption by a prompt are the editor's default.
    requests = [
        VariationRequest(text, prompt, 8, 1000 * seed + number)
        for number, text in enumerate(captions)
        for prompt in PROMPTS
    ]
    check, answers = WorldCheck(), []
    for request, variations in zip(requests, TunedModel(str(folder)).vary(requests), strict=True):
        example, prompt = Example("tested", "tested", (request.caption,)), request.prompt
        edits = [
            CaptionEdit(0, example, request.caption, text, prompt.name, prompt.kind)
            for text in variations.texts
        ]
        notes = [verdict.notes for verdict in check.judge(edits)]
        answers.append((prompt.name, variations.texts, notes))
    shares = {}
    for name in (*(prompt.name for prompt in PROMPTS), "all"):
        selected = [answer for answer in answers if name in (answer[0], "all")]
        texts = [text for _, some, _ in selected for text in some]
        notes = [note for _, _, some in selected for note in some]
        count = max(1, len(texts))
        shares[name] = {
            "answered": round(sum(bool(some) for _, some, _ in selected) / len(selected), 4),
            "parse": round(sum(parse(text) is not None for text in texts) / count, 4),
            "kind": round(sum(bool(note[KIND_CORRECT]) for note in notes) / count, 4),
            "label": round(sum(bool(note[LABEL_KEPT]) for note in notes) / count, 4),
            "edits": round(len(texts) / len(selected), 2),
        }
    return shares


def main(argv: list[str]) -> int:
    """Train both and write them with one ``card.json``."""
    settings = read(PerturberSettings, argv)
    with command.fresh_folder(settings.out) as folder:
        began = time.process_time()
        tokenizer = build_tokenizer()
        model = train_base(settings, tokenizer)
        save_half(model, tokenizer, folder / "base")
        EditFormat.short().write(folder / "base")
        between = time.process_time()
        tuned = tune(settings, folder / "base", folder)
        seconds = {"base": between - began, "tuning": time.process_time() - between}
        facts = {
            "metrics": evaluate(
                folder, held_out_captions(settings, settings.tested), settings.seed
            ),
            **tuned,
            "words": len(tokenizer),
            "parameters": count_parameters(model),
            "processor_seconds": {name: round(value, 1) for name, value in seconds.items()},
        }
        libraries = ("torch", "transformers", "lightning")
        command.write_card(folder, "perturber", settings, facts, libraries=libraries)
    return 0
