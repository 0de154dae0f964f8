"""The parts of a world as sets of PNG images with captions: for training, and for the tests.

Training: "real" (biased), "more_real" (the same scenes and further ones, as many as there are
counterfactual members), "counterfactual" (a biased scene and its minimal edit), "matched" (the
factors and captions of "counterfactual", every scene with its own pose, texture and noise) and
"unbiased" (unpaired). Tests: "id" and "id_retrieval" (biased), "ood" (every combination with no
factor at home, once, so that captions are unique), "ood_pairs" (such a scene and its subject swap),
"counterfactual_test" (every combination once, in pairs that differ by a subject swap) and
"real_test" (the first caption of each of those pairs with a scene of its own). Tests name colour
and background in every caption. "ve" and "ve_test" are ShapeScapes-VE: photos with three hypotheses
each, whose labels are those of entailment. Parts named "compositional_..." are those of
``cfaug.shapescapes.compositional.parts``.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
from PIL import Image

from cfaug.core.errors import UserError, say
from cfaug.core.files import replace_folder
from cfaug.core.processes import hold_lock
from cfaug.core.progress import watch
from cfaug.core.rng import generator
from cfaug.core.types import ENTAILMENT, CounterfactualSet, Edit, Example, Member
from cfaug.core.validation import Share, check_fields
from cfaug.core.words import right_articles
from cfaug.data.shards.shards import write_shards
from cfaug.shapescapes.compositional import parts as compositional
from cfaug.shapescapes.detector import HIDDEN
from cfaug.shapescapes.drawing import Scene, render
from cfaug.shapescapes.entailment import EntailmentPhoto, cover, photos
from cfaug.shapescapes.language import parse
from cfaug.shapescapes.settings import (
    FRAMES,
    PLACES,
    CaptionWording,
    Factors,
    WorldSettings,
    caption,
    draw_wording,
)
from cfaug.shapescapes.world import World


@dataclass(frozen=True)
class _PlannedScene:
    """A planned member: a scene, its caption, and the edit that made it."""

    scene: Scene
    text: str
    edit: Edit | None = None


def _png(scene: Scene, settings: WorldSettings, hidden: str | None = None) -> bytes:
    buffer = io.BytesIO()
    drawn = render(scene, settings.image_size, settings.look())
    Image.fromarray(cover(drawn, hidden)).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def _assemble(world: World, part: str, index: int, shots: list[_PlannedScene]) -> CounterfactualSet:
    key = f"{part}-{index:06d}"
    members = tuple(
        Member(
            text=shot.text,
            image_name=str(i),
            source_id=f"{key}-{i}",
            edit=shot.edit,
            label=shot.scene.factors.subject,
            extra=shot.scene.record(),
        )
        for i, shot in enumerate(shots)
    )
    return CounterfactualSet(
        key=key,
        group=key,
        members=members,
        images={str(i): _png(shot.scene, world.settings) for i, shot in enumerate(shots)},
        provenance={"world": world.settings.content_hash(), "part": part},
    )


def _training_wording(world: World, rng: np.random.Generator) -> CaptionWording:
    settings = world.settings
    return draw_wording(
        rng, drop_colour=settings.drop_colour, drop_background=settings.drop_background
    )


def _full_wording(rng: np.random.Generator) -> CaptionWording:
    return CaptionWording(int(rng.integers(len(FRAMES))))


def _real(world: World) -> Iterator[CounterfactualSet]:
    return _real_scenes(world, world.settings.real_scenes)


def _more_real(world: World) -> Iterator[CounterfactualSet]:
    return _real_scenes(world, _more_real_size(world.settings))


def _more_real_size(settings: WorldSettings) -> int:
    """Return the largest size that a control without counterfactuals needs: that of all data."""
    return settings.real_scenes + 2 * settings.counterfactual_pairs


def _real_scenes(world: World, count: int) -> Iterator[CounterfactualSet]:
    for index in range(count):
        rng = world.stream("real", index)
        drawn, wording = world.draw_biased(rng), _training_wording(world, rng)
        factors = world.plant(drawn, wording, "real", index)
        shot = _PlannedScene(world.scene(factors, "real", index), caption(factors, wording))
        yield _assemble(world, "real", index, [shot])


def _unbiased(world: World) -> Iterator[CounterfactualSet]:
    for index in range(world.settings.unbiased_scenes):
        rng = world.stream("unbiased", index)
        factors = world.draw_unbiased(rng)
        shot = _PlannedScene(
            world.scene(factors, "unbiased", index), caption(factors, _training_wording(world, rng))
        )
        yield _assemble(world, "unbiased", index, [shot])


def _pair(world: World, index: int) -> tuple[Factors, Factors, CaptionWording, Edit]:
    """Draw pair ``index``: both scenes' factors, their common wording, and the edit."""
    rng = world.stream("counterfactual", index)
    before = world.draw_biased(rng)
    kind, after = world.draw_edit(rng, before)
    wording = _training_wording(world, rng)
    if kind != "subject":
        # An edit of an unmentioned factor would give two images the same caption.
        wording = replace(wording, **{kind: True})
    return before, after, wording, Edit(kind, getattr(before, kind), getattr(after, kind))


def _pairs(world: World, part: str, *, same_scene: bool) -> Iterator[CounterfactualSet]:
    for index in range(world.settings.counterfactual_pairs):
        before, after, wording, edit = _pair(world, index)
        first = world.scene(before, part, index)
        second = Scene(after, first.seed) if same_scene else world.scene(after, part, index, 1)
        shots = [
            _PlannedScene(first, caption(before, wording)),
            _PlannedScene(second, caption(after, wording), edit if same_scene else None),
        ]
        yield _assemble(world, part, index, shots)


def _counterfactual(world: World) -> Iterator[CounterfactualSet]:
    return _pairs(world, "counterfactual", same_scene=True)


def _matched(world: World) -> Iterator[CounterfactualSet]:
    return _pairs(world, "matched", same_scene=False)


def _test(world: World, part: str, every: list[Factors]) -> Iterator[CounterfactualSet]:
    for index, factors in enumerate(every):
        text = caption(factors, _full_wording(world.stream(part, index)))
        yield _assemble(
            world, part, index, [_PlannedScene(world.scene(factors, part, index), text)]
        )


def _id(world: World) -> Iterator[CounterfactualSet]:
    count = world.settings.id_scenes
    drawn = [world.draw_biased(world.stream("id-factors", i)) for i in range(count)]
    return _test(world, "id", drawn)


def _id_retrieval(world: World) -> Iterator[CounterfactualSet]:
    return _test(world, "id_retrieval", world.id_combinations())


def _ood(world: World) -> Iterator[CounterfactualSet]:
    return _test(world, "ood", world.combinations(at_home=False))


def _ood_pairs(world: World) -> Iterator[CounterfactualSet]:
    return _swapped(world, "ood_pairs", world.ood_swaps(world.settings.ood_pairs))


def _counterfactual_test(world: World) -> Iterator[CounterfactualSet]:
    return _swapped(world, "counterfactual_test", world.test_pairs())


def _real_test(world: World) -> Iterator[CounterfactualSet]:
    for index, (factors, _) in enumerate(world.test_pairs()):
        # The wording of the pair with this caption.
        text = caption(factors, _full_wording(world.stream("counterfactual_test-wording", index)))
        yield _assemble(
            world,
            "real_test",
            index,
            [_PlannedScene(world.scene(factors, "real_test", index), text)],
        )


def _swapped(
    world: World, part: str, swaps: Iterable[tuple[Factors, str]]
) -> Iterator[CounterfactualSet]:
    for index, (factors, subject) in enumerate(swaps):
        wording = _full_wording(world.stream(f"{part}-wording", index))
        swapped = replace(factors, subject=subject)
        first = world.scene(factors, part, index)
        shots = [
            _PlannedScene(first, caption(factors, wording)),
            _PlannedScene(
                Scene(swapped, first.seed),
                caption(swapped, wording),
                Edit("subject", factors.subject, subject),
            ),
        ]
        yield _assemble(world, part, index, shots)


def _ve(world: World) -> Iterator[CounterfactualSet]:
    return _asked_photos(world, "ve", world.settings.ve_photos)


def _ve_test(world: World) -> Iterator[CounterfactualSet]:
    return _asked_photos(world, "ve_test", world.settings.ve_test_photos)


def _asked_photos(world: World, part: str, count: int) -> Iterator[CounterfactualSet]:
    for index, photo in enumerate(photos(world, part, count)):
        yield _asked(world, part, index, photo)


def _asked(world: World, part: str, index: int, photo: EntailmentPhoto) -> CounterfactualSet:
    """Return a photo with its hypotheses, which are one set and share the image."""
    key, scene = f"{part}-{index:06d}", world.scene(photo.factors, part, index)
    extra = {**scene.record(), HIDDEN: photo.hidden}
    members = tuple(
        Member(one.text, "0", f"{key}-{i}", label=one.label, extra=extra)
        for i, one in enumerate(photo.hypotheses)
    )
    return CounterfactualSet(
        key=key,
        group=key,
        members=members,
        images={"0": _png(scene, world.settings, photo.hidden)},
        provenance={"world": world.settings.content_hash(), "part": part},
    )


_MAKERS: Mapping[str, Callable[[World], Iterator[CounterfactualSet]]] = MappingProxyType(
    {
        "real": _real,
        "more_real": _more_real,
        "counterfactual": _counterfactual,
        "matched": _matched,
        "unbiased": _unbiased,
        "id": _id,
        "id_retrieval": _id_retrieval,
        "ood": _ood,
        "ood_pairs": _ood_pairs,
        "counterfactual_test": _counterfactual_test,
        "real_test": _real_test,
        "ve": _ve,
        "ve_test": _ve_test,
        **compositional.MAKERS,
    }
)
UNEDITED_PARTS = ("ve", "ve_test")
"""Parts in which no member is an edit of another."""


def check_part(part: str) -> None:
    """Raise a ``UserError`` unless ``part`` is one of this world's parts."""
    if part not in _MAKERS:
        raise UserError(f"no part is called {part!r}; choose from {', '.join(_MAKERS)}")


def make_part(settings: WorldSettings, part: str) -> Iterator[CounterfactualSet]:
    """Yield the sets of one part, drawn on demand."""
    check_part(part)
    settings.known_seed()
    return _MAKERS[part](World(settings))


def part_size(settings: WorldSettings, part: str) -> int:
    """Return the number of sets of a part, without drawing any."""
    check_part(part)
    world = World(settings)
    sizes: dict[str, Callable[[], int]] = {
        "real": lambda: settings.real_scenes,
        "more_real": lambda: _more_real_size(settings),
        "counterfactual": lambda: settings.counterfactual_pairs,
        "matched": lambda: settings.counterfactual_pairs,
        "unbiased": lambda: settings.unbiased_scenes,
        "id": lambda: settings.id_scenes,
        "id_retrieval": lambda: len(world.id_combinations()),
        "ood": lambda: len(world.combinations(at_home=False)),
        "ood_pairs": lambda: settings.ood_pairs,
        "counterfactual_test": lambda: len(world.test_pairs()),
        "real_test": lambda: len(world.test_pairs()),
        "ve": lambda: settings.ve_photos,
        "ve_test": lambda: settings.ve_test_photos,
        **{name: partial(one.count, settings) for name, one in compositional.NAMED.items()},
    }
    return sizes[part]()


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

    Args:
        part: a name of ``cfaug.shapescapes.parts``.
        root: the folder of all shards (``paths.shards``).
    """
    folder = part_folder(world, part, root)
    if folder.exists():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(folder.parent / f".{part}.lock"):
            if not folder.exists():
                _make(world, part, folder)
    except OSError as error:
        raise UserError(f"cannot write shards to {folder}: {error.strerror}") from error
    return folder


def _make(world: WorldSettings, part: str, folder: Path) -> None:
    """Draw a part into its folder, all of it or nothing; only called under the part's lock."""
    count = part_size(world, part)
    say(f"drawing {count} sets of ShapeScapes ({part}) into {folder}")
    sets = watch(make_part(world, part), f"drawing {part}", count, "sets")
    with replace_folder(folder) as fresh:
        write_shards(sets, fresh)


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
    said = parse(example.text)
    if said is None or example.label in ENTAILMENT:
        kind = "no caption of the embedded world" if said is None else "a hypothesis with a label"
        raise UserError(
            f"data.leave_out: example {example.key!r}, {example.text!r}, is {kind}: leave_out is "
            "for captions of data.source=shapescapes:PART"
        )
    colour, background = generator(seed, "leave-out", example.key).random(2)
    text = example.text
    if said.background is not None and background < shares.background:
        text = text.replace(f" {PLACES[said.background]}", "")
    if said.colour is not None and colour < shares.colour:
        text = right_articles(text.replace(f"{said.colour} {said.subject}", said.subject))
    return replace(example, texts=(text,))
