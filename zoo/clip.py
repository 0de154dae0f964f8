"""Pre-train the tiny CLIP on clean, unbiased drawings: ``python -m zoo clip seed=0 out=DIR``.

The loss is CLIP's symmetric one (Radford et al., 2021, section 2.3). Captions sometimes leave out
the colour and the background, and in every other batch they name only the subject: without such
batches colour and background distinguish the scenes well enough, and shape was not learnt in 2,000
steps. Rebuilding with the seed, threads and versions in ``card.json`` gives the same metrics.

Two more continue from ``zoo:clip-0``, which knows drawings of one thing:

``python -m zoo clip_domains out=DIR`` teaches it the domains: the tokenizer gets their words,
and both towers are trained on scenes in every domain, of the diffusion model's size. Captions name
in turn only the subject, everything, and the subject with its domain.

``python -m zoo clip_things out=DIR`` teaches it pictures of several things: the tokenizer
gets the words for them ("a red ball left of a blue cube"), texts may be longer, and the text tower
gets a second layer. It is trained on drawings of one thing, as before, and on compositional
pictures, all drawn uniformly. Captions name only shapes or everything, in turn; some have another
form ("on the beach there is a ball that is red").
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from cfaug.core.rng import derive, generator
from cfaug.stats.choices import pair_similarities, winoground
from cfaug.worlds.shapescapes.compositional_edits import (
    EDITS,
    DescriptionForm,
    Picture,
    PictureDescription,
    PictureDistribution,
    draw_picture,
    relations,
    say,
    words_of_pictures,
)
from cfaug.worlds.shapescapes.compositional_parts import PairDistribution
from cfaug.worlds.shapescapes.judge import Pixels, normalise
from cfaug.worlds.shapescapes.settings import (
    DOMAINS,
    FRAMES,
    CaptionWording,
    Factors,
    WorldSettings,
    caption,
    draw_wording,
    words_of_domains,
)
from cfaug.worlds.shapescapes.world import World
from zoo.command import DrawingSettings, fit, make_model
from zoo.model import (
    TRANSFORM,
    build_model,
    build_tokenizer,
    go_on_from,
    load,
    save,
)
from zoo.scenes import PROMPTS, Scenes, draw, draw_unbiased, jitter, label, shift

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import VisionTextDualEncoderModel


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(DrawingSettings):
    """The settings of the command, given as ``name=value``.

    Attributes: those of :class:`zoo.command.DrawingSettings`, and
        subject_only_every: the period, in batches, at which captions name only the subject.
    """

    steps: int = 1_600
    lr: float = 1.5e-3
    weight_decay: float = 0.01
    subject_only_every: int = 2


def compare(
    model: VisionTextDualEncoderModel, tokens: Mapping[str, Any], pixels: Pixels, **options: Any
) -> Any:
    """Return the model's output for tokens and pixels, which are scaled like by the processor."""
    return model(pixel_values=normalise(pixels), **tokens, **options)


def train(settings: PretrainSettings) -> VisionTextDualEncoderModel:
    """Train from scratch with progress on stderr; return the model in evaluation mode."""
    import torch

    torch.manual_seed(derive(settings.seed, "zoo", "weights") % 2**63)
    model = build_model().train()
    drawings = draw_unbiased(settings.seed, "train", settings.scenes)
    tokenize = partial(build_tokenizer(), padding=True, return_tensors="pt")
    tokens = tokenize(drawings.texts)
    names = tokenize([f"a {factors.subject}" for factors in drawings.factors])
    order = generator(settings.seed, "zoo", "order")

    def loss(step: int) -> Tensor:
        rows = order.choice(settings.scenes, settings.batch_size, replace=False)
        inputs = names if step % settings.subject_only_every == 0 else tokens
        batch = {key: value[rows] for key, value in inputs.items()}
        value: Tensor = compare(model, batch, drawings.pixels[rows], return_loss=True).loss
        return value

    fit(model, loss, settings, settings.steps)
    return model.eval()


def zero_shot(
    model: VisionTextDualEncoderModel,
    pixels: Pixels,
    factors: Sequence[Factors],
    known: Sequence[str] | None = None,
    prompts: Mapping[str, Sequence[str]] = PROMPTS,
) -> dict[str, float]:
    """Return the zero-shot accuracy of the prompted factors.

    Args:
        known: the words of the tokenizer; ``None`` is those of captions of photos.
        prompts: the prompts by factor, in label order.
    """
    import torch

    tokenizer = build_tokenizer() if known is None else build_tokenizer(known)
    metrics: dict[str, float] = {"n": len(pixels)}
    for kind, texts in prompts.items():
        with torch.inference_mode():
            tokens = tokenizer(list(texts), padding=True, return_tensors="pt")
            logits = compare(model, tokens, pixels).logits_per_image
        guess = logits.argmax(1).numpy()
        metrics[f"{kind}_acc1"] = float(np.mean(guess == label(factors, kind)))
    return metrics


def evaluate(folder: Path, settings: DrawingSettings) -> dict[str, float]:
    """Return the zero-shot accuracy of subject, colour and background on held-out drawings."""
    drawings = draw_unbiased(settings.seed, "held-out", settings.held_out)
    return zero_shot(load(folder), drawings.pixels, drawings.factors)


main = partial(make_model, "clip", PretrainSettings, train, save, evaluate)


PROMPTS_OF_DOMAINS = {**PROMPTS, "domain": tuple(f"a {domain} of a ball" for domain in DOMAINS)}
"""The prompts of zero-shot classification of a scene, by factor and in label order."""


@dataclass(frozen=True, kw_only=True)
class DomainSettings(DrawingSettings):
    """The settings of the command, given as ``name=value``.

    Attributes: those of :class:`zoo.command.DrawingSettings`, and
        start: the initial model.
        processes: the number of processes that draw scenes; affects only the time.
    """

    start: str = "zoo:clip-0"
    scenes: int = 8_000
    steps: int = 800
    lr: float = 1e-3
    weight_decay: float = 0.01
    processes: int = 1


def _draw_domains(settings: DomainSettings, part: str, count: int) -> Scenes:
    part, processes = f"clip-domains-{part}", settings.processes
    drawn = draw(settings.seed, part, count, domains=DOMAINS, processes=processes)
    return drawn.shrunk(TRANSFORM)


def extend_to_domains(name: str) -> VisionTextDualEncoderModel:
    """Return a tiny CLIP with the domains' words; tokens of the old model keep their embeddings.

    Args:
        name: the model whose tokens are the first of the new tokenizer's.
    """
    return go_on_from(name, build_model(words_of_domains()))


def train_domains(settings: DomainSettings) -> VisionTextDualEncoderModel:
    """Train another model further with progress on stderr; return it in evaluation mode."""
    import torch

    torch.manual_seed(settings.seed)
    model = extend_to_domains(settings.start).train()
    scenes = _draw_domains(settings, "train", settings.scenes)
    tokenizer = build_tokenizer(words_of_domains())
    order = generator(settings.seed, "zoo", "clip-domains", "order")
    with_domain = CaptionWording(1, colour=False, background=False)

    def loss(step: int) -> Tensor:
        rows = order.choice(settings.scenes, settings.batch_size, replace=False)
        factors = [scenes.factors[row] for row in rows]
        if step % 3 == 0:
            texts = [f"a {scene.subject}" for scene in factors]
        elif step % 3 == 1:
            drawn = [draw_wording(order, drop_colour=0.3, drop_background=0.4) for _ in factors]
            texts = [caption(scene, wording) for scene, wording in zip(factors, drawn, strict=True)]
        else:
            texts = [caption(scene, with_domain) for scene in factors]
        tokens = tokenizer(texts, padding=True, return_tensors="pt")
        pixels = jitter(scenes.pixels[rows], order)
        value: Tensor = compare(model, tokens, pixels, return_loss=True).loss
        return value

    fit(model, loss, settings, settings.steps, "CLIP in every domain")
    return model.eval()


def evaluate_domains(folder: Path, settings: DomainSettings) -> dict[str, float]:
    """Return the zero-shot accuracy of every factor on held-out scenes of all domains."""
    scenes = _draw_domains(settings, "held-out", settings.held_out)
    return zero_shot(
        load(folder), scenes.pixels, scenes.factors, words_of_domains(), PROMPTS_OF_DOMAINS
    )


main_domains = partial(
    make_model,
    "clip_domains",
    DomainSettings,
    train_domains,
    partial(save, known=words_of_domains()),
    evaluate_domains,
    leave_out=("processes",),
)


MAX_LENGTH = 24
"""The length of texts in tokens; "there is a ball that is red left of a cube that is blue in front
of a brick wall" has 22."""


@dataclass(frozen=True, kw_only=True)
class ThingsSettings(DrawingSettings):
    """The settings of the command, given as ``name=value``.

    Attributes: those of :class:`zoo.command.DrawingSettings`, and
        start: the initial model.
        single_every: the period, in batches, at which pictures show one thing, as in the training
            of ``start``.
        otherwise: the share of captions in another form.
    """

    start: str = "zoo:clip-0"
    scenes: int = 6_000
    steps: int = 1_200
    lr: float = 1.5e-3
    weight_decay: float = 0.01
    single_every: int = 4
    otherwise: float = 0.3


def _draw_pixels(picture: Picture, seed: int, world: World) -> Pixels:
    png = picture.draw(seed, world.settings)
    return np.asarray(Image.open(io.BytesIO(png))).transpose(2, 0, 1)


def _world(seed: int) -> World:
    return World(WorldSettings(style="drawing", seed=seed))


def extend_to_things(name: str) -> VisionTextDualEncoderModel:
    """Return a tiny CLIP with a tokenizer that knows the words for several things.

    Known tokens and positions keep their embeddings; the second layer of the text tower is the
    identity at first.

    Args:
        name: the model whose tokens are the first of the new tokenizer's.
    """
    model = build_model(words_of_pictures(), max_length=MAX_LENGTH, text_layers=2)
    for key, value in model.state_dict().items():
        if ".layers.1." in key and ("out_proj" in key or "fc2" in key):
            value.zero_()
    return go_on_from(name, model)


def describe(picture: Picture, rng: np.random.Generator, otherwise: float) -> str:
    """Return a description of a picture with the omissions of captions, possibly in another form.

    Args:
        otherwise: the probability of another form.
    """
    drop, form, relation = rng.random(3), rng.random(2) < otherwise, None
    if len(picture.things) == 2 and rng.random() < 0.5:
        true = relations(*picture.things)
        relation = true[int(rng.integers(len(true)))]
    things = tuple(
        (thing.shape, thing.colour if gone >= 0.3 else None)
        for thing, gone in zip(picture.things, drop, strict=False)
    )
    description = PictureDescription(
        things, relation, picture.background if drop[2] >= 0.5 else None
    )
    if rng.random() < 0.5 and len(things) == 2:
        description = description.turned()
    return say(
        description, DescriptionForm(int(rng.integers(len(FRAMES))), bool(form[0]), bool(form[1]))
    )


def train_things(settings: ThingsSettings) -> VisionTextDualEncoderModel:
    """Train another model further with progress on stderr; return it in evaluation mode."""
    import torch

    names = ("zoo", "clip-things")
    torch.manual_seed(derive(settings.seed, *names) % 2**63)
    model = extend_to_things(settings.start).train()
    drawings = draw_unbiased(settings.seed, "train", settings.scenes // settings.single_every)
    # Clean pictures with uniform colours; three of four show two things, the others one.
    world = _world(settings.seed)
    law, drawn, pictures = PictureDistribution(world), [], []
    for i in range(settings.scenes):
        picture = draw_picture(generator(settings.seed, *names, "train", i), law, 2 if i % 4 else 1)
        drawn.append(
            _draw_pixels(picture, derive(settings.seed, *names, "train", i, "scene"), world)
        )
        pictures.append(picture)
    several = np.stack(drawn)
    tokenizer = build_tokenizer(words_of_pictures(), MAX_LENGTH)
    order = generator(settings.seed, *names, "order")

    def loss(step: int) -> Tensor:
        single = step % settings.single_every == 0
        pixels = drawings.pixels if single else several
        rows = order.choice(len(pixels), settings.batch_size, replace=False)
        if single:
            texts = [
                f"a {drawings.factors[r].subject}" if step % 8 == 0 else drawings.texts[r]
                for r in rows
            ]
        elif step % 3 == 0:
            shapes = (tuple((t.shape, None) for t in pictures[r].things) for r in rows)
            texts = [say(PictureDescription(some)) for some in shapes]
        else:
            texts = [describe(pictures[r], order, settings.otherwise) for r in rows]
        tokens = tokenizer(texts, padding=True, return_tensors="pt")
        seen = shift(pixels[rows], order)
        value: Tensor = compare(model, tokens, seen, return_loss=True).loss
        return value

    fit(model, loss, settings, settings.steps, "CLIP of several things")
    return model.eval()


def evaluate_things(folder: Path, settings: ThingsSettings) -> dict[str, float]:
    """Return the metrics of the tiny CLIP of one thing, and those of pairs by category of edit.

    The latter are text, image and group scores on held-out pairs of drawings.
    """
    import torch

    model, world, count = load(folder), _world(settings.seed), settings.held_out
    items = PairDistribution("zoo_held_out", EDITS, turn=True)
    drawn = [items.draw(world, i) for i in range(count)]
    texts = [text for pair in drawn for text in pair.captions]
    images = [
        _draw_pixels(picture, pair.seed, world) for pair in drawn for picture in pair.pictures
    ]
    tokenizer = build_tokenizer(words_of_pictures(), MAX_LENGTH)
    tokens = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        output = compare(model, tokens, np.stack(images))
    sims = pair_similarities(
        output.text_embeds.reshape(count, 2, -1), output.image_embeds.reshape(count, 2, -1)
    )
    categories = np.array([pair.category for pair in drawn])
    metrics = evaluate(folder, settings)
    for name in EDITS:
        for metric, value in winoground(sims[categories == name]).items():
            metrics[f"{name} {metric}"] = round(value, 4)
    return metrics


main_things = partial(
    make_model,
    "clip_things",
    ThingsSettings,
    train_things,
    partial(save, known=words_of_pictures()),
    evaluate_things,
)
