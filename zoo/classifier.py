"""Train a tiny classifier with a planted shortcut: ``python -m zoo classifier out=FOLDER``.

``shortcut=colour seed=0``. It learns subjects from scenes of a world that binds them to a factor
(:class:`cfaug.worlds.shapescapes.WorldSettings`), in every domain, so that errors on edited photos
are due to the planted factor alone. It is a stock ConvNeXt (Liu et al., 2022) of transformers, for
the same reasons as the vision tower of :mod:`zoo.model`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cfaug.core.rng import derive, generator
from cfaug.worlds.shapescapes import WorldSettings
from cfaug.worlds.shapescapes.drawing import Scene, render
from cfaug.worlds.shapescapes.judge import Pixels
from cfaug.worlds.shapescapes.settings import DOMAINS, SUBJECTS, edit_factors
from cfaug.worlds.shapescapes.world import World
from zoo.command import DrawingSettings, fit, make_model, save_half
from zoo.model import IMAGE_SIZE, TRANSFORM, build_image_processor
from zoo.scenes import SCENE_SIDE, jitter

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import ConvNextForImageClassification


@dataclass(frozen=True, kw_only=True)
class ClassifierSettings(DrawingSettings):
    """The settings of the command, given as ``name=value``.

    Attributes: those of :class:`zoo.command.DrawingSettings`, and
        shortcut: the planted factor, a name of ``cfaug.worlds.shapescapes.settings.SHORTCUTS``.
        world: the seed of the world, which assigns each subject its home.
        bias: the probability that a training scene is at home.
        domains: those of the training scenes, separated by commas.
    """

    shortcut: str = "none"
    world: int = 0
    bias: float = 0.95
    domains: str = ",".join(DOMAINS)
    scenes: int = 4_000
    steps: int = 500
    held_out: int = 400

    @cached_property
    def scenery(self) -> World:
        """The world of the training scenes."""
        return World(
            WorldSettings(
                image_size=SCENE_SIDE,
                bias=self.bias,
                style="clear",
                seed=self.world,
                shortcut=self.shortcut,
                domains=tuple(self.domains.split(",")),
            )
        )


def draw_scenes(world: World, part: str, count: int) -> list[Scene]:
    """Draw scenes like the world's training data: biased, and different in every ``part``."""
    return [world.scene(world.draw_biased(world.stream(part, i)), part, i, 0) for i in range(count)]


def show(scenes: list[Scene], world: World) -> Pixels:
    """Return the classifier's pictures of scenes, uint8 (n, 3, 32, 32)."""
    style = world.settings.drawing_style()
    return np.stack([TRANSFORM(render(scene, SCENE_SIDE, style).image()) for scene in scenes])


def label(scenes: list[Scene]) -> NDArray[np.int64]:
    """Return the label of each scene's subject, (n,)."""
    return np.array([SUBJECTS.index(scene.factors.subject) for scene in scenes])


def build_model() -> ConvNextForImageClassification:
    """Return the classifier with initial weights, drawn from torch's current generator."""
    from transformers import ConvNextConfig, ConvNextForImageClassification

    return ConvNextForImageClassification(
        ConvNextConfig(
            image_size=IMAGE_SIZE,
            patch_size=2,
            num_stages=3,
            hidden_sizes=[16, 40, 56],
            depths=[0, 2, 1],
            layer_scale_init_value=1.0,
            id2label=dict(enumerate(SUBJECTS)),
            label2id={name: i for i, name in enumerate(SUBJECTS)},
        )
    )


def train(settings: ClassifierSettings) -> ConvNextForImageClassification:
    """Train from scratch with progress on stderr; return the model in evaluation mode."""
    import torch
    from torch.nn.functional import cross_entropy

    names = ("zoo", "classifier", settings.shortcut)
    torch.manual_seed(derive(settings.seed, *names) % 2**63)
    model = build_model().train()
    scenes = draw_scenes(settings.scenery, f"classifier-{settings.seed}", settings.scenes)
    pixels = show(scenes, settings.scenery)
    labels = torch.from_numpy(label(scenes))
    rng = generator(settings.seed, *names, "order")

    def loss(step: int) -> Tensor:
        rows = rng.choice(len(pixels), settings.batch_size, replace=False)
        seen = torch.from_numpy(jitter(pixels[rows], rng))
        return cross_entropy(model(pixel_values=TRANSFORM.normalize(seen)).logits, labels[rows])

    title = f"classifier, shortcut {settings.shortcut}, seed {settings.seed}"
    fit(model, loss, settings, settings.steps, title)
    return model.eval()


def edits(scenes: list[Scene], world: World, kind: str) -> Iterator[Scene]:
    """Yield each scene with one factor changed to another value, drawn uniformly."""
    for i, scene in enumerate(scenes):
        rng = world.stream(f"edits-{kind}", i)
        others = [value for value in world.values[kind] if value != getattr(scene.factors, kind)]
        to = others[int(rng.integers(len(others)))]
        yield replace(scene, factors=edit_factors(scene.factors, kind, to))


def evaluate(folder: Path, settings: ClassifierSettings) -> dict[str, float]:
    """Return the accuracy on held-out scenes, and on the oracle's edits of each of their factors.

    The scenes follow the training distribution. ``drop_`` is the accuracy that an edit costs, and
    ``delta_p_`` the mean absolute change of the true class's probability (LANCE, section 4.2).
    """
    import torch
    from transformers import ConvNextForImageClassification

    from cfaug.core.safety.safe_loading import from_folder

    model = from_folder(ConvNextForImageClassification, folder, dtype=torch.float32).eval()

    def predict(scenes: list[Scene]) -> NDArray[np.float64]:
        pixels = TRANSFORM.normalize(torch.from_numpy(show(scenes, world)))
        with torch.inference_mode():
            probabilities = model(pixel_values=pixels).logits.double().softmax(dim=1)
        return np.asarray(probabilities)

    world, count = settings.scenery, settings.held_out
    scenes = draw_scenes(world, "classifier-held-out", count)
    labels = label(scenes)
    before = predict(scenes)
    accuracy = float((before.argmax(1) == labels).mean())
    metrics = {"n": count, "iid_acc1": accuracy}
    for kind in world.values:
        after = predict(list(edits(scenes, world, kind)))
        changed = float((after.argmax(1) == labels).mean())
        metrics[f"edited_{kind}_acc1"] = changed
        metrics[f"drop_{kind}"] = accuracy - changed
        metrics[f"delta_p_{kind}"] = float(np.abs(before - after)[range(count), labels].mean())
    return metrics


def save(model: ConvNextForImageClassification, folder: Path) -> None:
    """Write weights (float16 safetensors), configuration and image processor."""
    save_half(model, build_image_processor(), folder)


main = partial(make_model, "classifier", ClassifierSettings, train, save, evaluate)
