"""The parts of a world as sets of PNG images with captions: for training, and for the tests.

Training: "real" (biased), "more_real" (the same scenes and further ones, as many as there are
counterfactual members), "counterfactual" (a biased scene and its minimal edit), "matched" (the
factors and captions of "counterfactual", every scene with its own pose, texture and noise) and
"unbiased" (unpaired). Tests: "id" and "id_retrieval" (biased), "find", "pool", "gate" and "test"
(further scenes like those of "id", for repairs), "ood" (every combination with no
factor at home, once, so that captions are unique), "ood_pairs" (such a scene and its subject swap),
"counterfactual_test" (every combination once, in pairs that differ by a subject swap) and
"real_test" (the first caption of each of those pairs with a scene of its own). Tests name colour
and background in every caption. "ve" and "ve_test" are ShapeScapes-VE: photos with three hypotheses
each, whose labels are those of entailment. Parts named "compositional_..." are those of
``cfaug.worlds.shapescapes.compositional_parts``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfaug.core.atomic_files import replace_folder
from cfaug.core.errors import UserError, say
from cfaug.core.processes import hold_lock
from cfaug.core.progress import watch
from cfaug.core.rng import generator
from cfaug.core.types import ENTAILMENT, CounterfactualSet, Edit, Example, Member
from cfaug.core.validation import Share, check_fields
from cfaug.data.captions import right_articles
from cfaug.data.shards.shards import write_shards
from cfaug.worlds.shapescapes import compositional_parts as compositional
from cfaug.worlds.shapescapes.detector import HIDDEN
from cfaug.worlds.shapescapes.drawing import Rendering, Scene, encode_png, render
from cfaug.worlds.shapescapes.language import parse
from cfaug.worlds.shapescapes.settings import (
    COMPOSITIONAL,
    FRAMES,
    PLACES,
    SUBJECTS,
    CaptionWording,
    Factors,
    WorldSettings,
    caption,
    draw_wording,
)
from cfaug.worlds.shapescapes.world import World, pick

# ShapeScapes-VE: does a photo entail a hypothesis, contradict it, or neither?
#
# A neutral hypothesis must be about something that the photo neither shows nor excludes. So in two
# of three photos something is covered in grey: the subject's colour (all of the subject but its
# outline against the background) or the background (all but the subject). A statement about the
# covered part is neutral.
#
# The hypothesis alone says nothing about the label: over six photos in a row every form of
# hypothesis (one that names a colour, a place, or both) has each label twice, and within a form all
# words are uniform and independent of the label. So photo and hypothesis are both needed. (The
# photo alone says something: if nothing is covered, no hypothesis is neutral.)

COVER = 128
"""The grey of covered parts, from 0 to 255."""

Forms = tuple[tuple[str, tuple[str, ...]], ...]

COLOUR, PLACE = ("colour",), ("background",)
BOTH = COLOUR + PLACE

PLAN: tuple[tuple[str | None, Forms], ...] = (
    (None, (("entailment", BOTH), ("entailment", COLOUR), ("contradiction", PLACE))),
    ("colour", (("neutral", COLOUR), ("neutral", BOTH), ("contradiction", PLACE))),
    ("background", (("neutral", PLACE), ("neutral", BOTH), ("contradiction", COLOUR))),
    (None, (("entailment", BOTH), ("entailment", PLACE), ("contradiction", COLOUR))),
    ("colour", (("neutral", COLOUR), ("entailment", PLACE), ("contradiction", BOTH))),
    ("background", (("neutral", PLACE), ("entailment", COLOUR), ("contradiction", BOTH))),
)
"""For six photos in a row: the covered part, and each hypothesis's label and named factors."""


@dataclass(frozen=True)
class Hypothesis:
    """A text and its label for a photo, one of ``cfaug.core.types.ENTAILMENT``."""

    text: str
    label: str


@dataclass(frozen=True)
class EntailmentPhoto:
    """A photo's content, its covered part, and its hypotheses."""

    factors: Factors
    hidden: str | None
    hypotheses: tuple[Hypothesis, ...]


def cover(drawn: Rendering, hidden: str | None) -> NDArray[np.uint8]:
    """Return a scene's pixels with a factor covered in grey: uint8 (size, size, 3).

    Args:
        hidden: the factor to cover: ``colour`` covers all pixels that the subject touches,
            ``background`` all pixels that do not show only the subject; ``None`` covers nothing.
    """
    if hidden is None:
        return drawn.pixels
    covered = drawn.touched if hidden == "colour" else ~drawn.solid
    return np.where(covered[..., None], np.uint8(COVER), drawn.pixels)


def photos(world: World, part: str, count: int) -> Iterator[EntailmentPhoto]:
    """Yield the first ``count`` photos of a part, their factors uniform and independent."""
    for index in range(count):
        rng = world.stream(part, index)
        factors = world.draw_unbiased(rng)
        hidden, forms = PLAN[index % len(PLAN)]
        hypotheses = []
        for label, named in forms:
            claimed = factors
            if hidden is not None:
                # The covered part could be anything: the hypothesis is independent of it, too.
                claimed = replace(claimed, **{hidden: pick(rng, world.values[hidden])})
            if label == "contradiction":
                wrong = pick(rng, [name for name in ("subject", *named) if name != hidden])
                values = SUBJECTS if wrong == "subject" else world.values[wrong]
                others = [value for value in values if value != getattr(claimed, wrong)]
                claimed = replace(claimed, **{wrong: pick(rng, others)})
            frame = int(rng.integers(len(FRAMES)))
            wording = CaptionWording(frame, "colour" in named, "background" in named)
            hypotheses.append(Hypothesis(caption(claimed, wording), label))
        yield EntailmentPhoto(factors, hidden, tuple(hypotheses))


Shot = tuple[Scene, str, Edit | None]
"""A member of a set: a scene, its caption, and the edit that made it."""


def _png(scene: Scene, settings: WorldSettings, hidden: str | None = None) -> bytes:
    drawn = render(scene, settings.image_size, settings.drawing_style())
    return encode_png(cover(drawn, hidden))


def _assemble(world: World, part: str, index: int, shots: list[Shot]) -> CounterfactualSet:
    """Return shots as a set, with a picture of each."""
    key = f"{part}-{index:06d}"
    members = tuple(
        Member(
            text=text,
            image_name=str(i),
            source_id=f"{key}-{i}",
            edit=edit,
            label=scene.factors.subject,
            extra=scene.record(),
        )
        for i, (scene, text, edit) in enumerate(shots)
    )
    images = {str(i): _png(scene, world.settings) for i, (scene, *_) in enumerate(shots)}
    return CounterfactualSet(key, key, members, images, provenance=_provenance(world, part))


def _provenance(world: World, part: str) -> dict[str, str]:
    return {"world": world.settings.content_hash(), "part": part}


def _training_wording(world: World, rng: np.random.Generator) -> CaptionWording:
    settings = world.settings
    return draw_wording(
        rng, drop_colour=settings.drop_colour, drop_background=settings.drop_background
    )


def _full_wording(world: World, stream: str, index: int) -> CaptionWording:
    return CaptionWording(int(world.stream(stream, index).integers(len(FRAMES))))


def _real(world: World, count: int) -> Iterator[CounterfactualSet]:
    for index in range(count):
        rng = world.stream("real", index)
        drawn, wording = world.draw_biased(rng), _training_wording(world, rng)
        factors = world.plant(drawn, wording, "real", index)
        shot = (world.scene(factors, "real", index), caption(factors, wording), None)
        yield _assemble(world, "real", index, [shot])


def _unbiased(world: World, count: int) -> Iterator[CounterfactualSet]:
    for index in range(count):
        rng = world.stream("unbiased", index)
        factors = world.draw_unbiased(rng)
        text = caption(factors, _training_wording(world, rng))
        shot = (world.scene(factors, "unbiased", index), text, None)
        yield _assemble(world, "unbiased", index, [shot])


def _pairs(world: World, count: int, part: str) -> Iterator[CounterfactualSet]:
    for index in range(count):
        rng = world.stream("counterfactual", index)
        before = world.draw_biased(rng)
        kind, after = world.draw_edit(rng, before)
        wording = _training_wording(world, rng)
        if kind != "subject":
            # An edit of an unmentioned factor would give two images the same caption.
            wording = replace(wording, **{kind: True})
        edit: Edit | None = Edit(kind, getattr(before, kind), getattr(after, kind))
        first = world.scene(before, part, index)
        second = Scene(after, first.seed)
        if part == "matched":
            second, edit = world.scene(after, part, index, 1), None
        captions = caption(before, wording), caption(after, wording)
        yield _assemble(
            world, part, index, [(first, captions[0], None), (second, captions[1], edit)]
        )


def _tests(
    world: World, part: str, every: Iterable[Factors], wording: str = ""
) -> Iterator[CounterfactualSet]:
    """Yield a scene of its own for each combination of factors.

    Args:
        wording: the random stream of the captions' wording, if it is not that of the part.
    """
    for index, factors in enumerate(every):
        text = caption(factors, _full_wording(world, wording or part, index))
        yield _assemble(world, part, index, [(world.scene(factors, part, index), text, None)])


def _biased(world: World, count: int, part: str) -> Iterator[CounterfactualSet]:
    drawn = (world.draw_biased(world.stream(f"{part}-factors", index)) for index in range(count))
    return _tests(world, part, drawn)


def _swapped(
    world: World, part: str, swaps: Iterable[tuple[Factors, str]]
) -> Iterator[CounterfactualSet]:
    for index, (factors, subject) in enumerate(swaps):
        wording = _full_wording(world, f"{part}-wording", index)
        swapped, first = replace(factors, subject=subject), world.scene(factors, part, index)
        second, edit = Scene(swapped, first.seed), Edit("subject", factors.subject, subject)
        captions = caption(factors, wording), caption(swapped, wording)
        yield _assemble(
            world, part, index, [(first, captions[0], None), (second, captions[1], edit)]
        )


def _entailment_photos(world: World, count: int, part: str) -> Iterator[CounterfactualSet]:
    """Yield photos with their hypotheses, which are one set and share the image."""
    for index, photo in enumerate(photos(world, part, count)):
        key, scene = f"{part}-{index:06d}", world.scene(photo.factors, part, index)
        extra = {**scene.record(), HIDDEN: photo.hidden}
        members = tuple(
            Member(hypothesis.text, "0", f"{key}-{i}", label=hypothesis.label, extra=extra)
            for i, hypothesis in enumerate(photo.hypotheses)
        )
        images = {"0": _png(scene, world.settings, photo.hidden)}
        yield CounterfactualSet(key, key, members, images, provenance=_provenance(world, part))


class _Part(NamedTuple):
    """A part: a function that yields its sets from their number, and one that returns it."""

    make: Callable[[World, int], Iterator[CounterfactualSet]]
    size: Callable[[World], int]


PARTS: Mapping[str, _Part] = {
    "real": _Part(_real, lambda world: world.settings.real_scenes),
    # The largest size that a control without counterfactuals needs: that of all data.
    "more_real": _Part(
        _real, lambda world: world.settings.real_scenes + 2 * world.settings.counterfactual_pairs
    ),
    **{
        part: _Part(partial(_pairs, part=part), lambda world: world.settings.counterfactual_pairs)
        for part in ("counterfactual", "matched")
    },
    "unbiased": _Part(_unbiased, lambda world: world.settings.unbiased_scenes),
    **{
        part: _Part(partial(_biased, part=part), lambda world: world.settings.id_scenes)
        for part in ("id", "find", "pool", "gate", "test")
    },
    "id_retrieval": _Part(
        lambda world, _: _tests(world, "id_retrieval", world.id_combinations()),
        lambda world: len(world.id_combinations()),
    ),
    "ood": _Part(
        lambda world, _: _tests(world, "ood", world.combinations(at_home=False)),
        lambda world: len(world.combinations(at_home=False)),
    ),
    "ood_pairs": _Part(
        lambda world, count: _swapped(world, "ood_pairs", world.ood_swaps(count)),
        lambda world: world.settings.ood_pairs,
    ),
    "counterfactual_test": _Part(
        lambda world, _: _swapped(world, "counterfactual_test", world.test_pairs()),
        lambda world: len(world.test_pairs()),
    ),
    "real_test": _Part(
        lambda world, _: _tests(
            world,
            "real_test",
            (factors for factors, _ in world.test_pairs()),
            "counterfactual_test-wording",  # that of the pair with this caption
        ),
        lambda world: len(world.test_pairs()),
    ),
    "ve": _Part(partial(_entailment_photos, part="ve"), lambda world: world.settings.ve_photos),
    "ve_test": _Part(
        partial(_entailment_photos, part="ve_test"), lambda world: world.settings.ve_test_photos
    ),
    **{
        COMPOSITIONAL + part: _Part(
            partial(compositional.make, part), partial(compositional.count, part)
        )
        for part in compositional.PARTS
    },
}


def check_part(part: str) -> None:
    """Raise a ``UserError`` unless ``part`` is one of this world's parts."""
    if part not in PARTS:
        raise UserError(f"no part is called {part!r}; choose from {', '.join(PARTS)}")


def make_part(settings: WorldSettings, part: str) -> Iterator[CounterfactualSet]:
    """Yield the sets of one part, drawn on demand."""
    check_part(part)
    settings.known_seed()
    world = World(settings)
    return PARTS[part].make(world, PARTS[part].size(world))


def part_size(settings: WorldSettings, part: str) -> int:
    """Return the number of sets of a part, without drawing any."""
    check_part(part)
    return PARTS[part].size(World(settings))


# Shards of a world, made on first use and cached by content.


def part_folder(world: WorldSettings, part: str, root: Path) -> Path:
    """Return the folder of a part's shards, without making it."""
    check_part(part)
    return root / f"shapescapes-{world.content_hash()}" / part


def ensure(world: WorldSettings, part: str, root: Path) -> Path:
    """Return the folder with a part's shards, making it first if it does not exist.

    Several processes may call this at once: one draws, the others wait. A part is drawn in a
    private folder that is renamed when complete, so that a killed process leaves no incomplete
    folder under the final name, and no lock.
    """
    folder = part_folder(world, part, root)
    if folder.exists():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(folder.parent / f".{part}.lock"):
            if not folder.exists():
                count = part_size(world, part)
                say(f"drawing {count} sets of ShapeScapes ({part}) into {folder}")
                sets = watch(make_part(world, part), f"drawing {part}", count, "sets")
                with replace_folder(folder) as fresh:
                    write_shards(sets, fresh)
    except OSError as error:
        raise UserError(f"cannot write shards to {folder}: {error.strerror}") from error
    return folder


# Shortened captions of the world, so that words can be inserted.


@dataclass(frozen=True)
class LeaveOut:
    """The shares of captions that leave out colour and background.

    Attributes:
        colour: the share of captions without the subject's colour, from 0 to 1.
        background: the share of captions without the background, from 0 to 1.
    """

    colour: Share = 0.0
    background: Share = 0.0

    def __post_init__(self) -> None:
        check_fields(self, "data.leave_out")


def read_leave_out(given: Mapping[str, float]) -> LeaveOut:
    """Return the setting ``data.leave_out``."""
    unknown = [name for name in given if name not in ("colour", "background")]
    if unknown:
        raise UserError(f"data.leave_out.{unknown[0]}: choose from colour, background")
    return LeaveOut(**given)


def shorten_caption(example: Example, shares: LeaveOut, seed: int) -> Example:
    """Return an example with a caption that leaves out colour and background with these shares.

    The choice is keyed by the example, so that a larger share shortens all captions that a smaller
    one does. The frame ("there is ...") stays.

    Args:
        shares: the shares of captions that leave out the colour and the background.
    """
    statement = parse(example.text)
    if statement is None or example.label in ENTAILMENT:
        kind = (
            "no caption of the embedded world" if statement is None else "a hypothesis with a label"
        )
        raise UserError(
            f"data.leave_out: example {example.key!r}, {example.text!r}, is {kind}: leave_out is "
            "for captions of data.source=shapescapes:PART"
        )
    colour, background = generator(seed, "leave-out", example.key).random(2)
    text = example.text
    if statement.background is not None and background < shares.background:
        text = text.replace(f" {PLACES[statement.background]}", "")
    if statement.colour is not None and colour < shares.colour:
        text = right_articles(
            text.replace(f"{statement.colour} {statement.subject}", statement.subject)
        )
    return replace(example, texts=(text,))
