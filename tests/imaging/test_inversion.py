"""Inversions and edits of photos against the papers' way, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cfaug.imaging.cross_attention import CrossAttention, tokenize
from cfaug.imaging.inversion import DirectInversion, EditFriendly, NullText
from tests.imaging import reference_photos as reference
from tests.imaging import tiny
from tests.imaging.reference import Explicit
from tests.imaging.reference_mapper import refinement_mapper
from tests.imaging.test_cross_attention import CASES, edited_map
from tests.imaging.test_photo_editing import CAPTION, EDITED, editor, job, photo
from tests.imaging.test_sharing import close

STEPS = 5
NEXT = DirectInversion(timestep="next")
"""As the authors' code inverts, which the reference follows."""
TOLERANCE = 0.0107
"""Loss at which null-text optimisation stops, such that photos stop at different updates."""
ADAM = 1e-4
"""How far null-text inversions may be apart: Adam divides rounding by the size of a gradient."""
SAID_AGAIN = CAPTION.capitalize()
"""Another text, the same tokens: an edit that changes nothing."""


def draw(image_editor, jobs):
    """Return the tree and final latents of jobs, and the inversions of its sources."""
    photos = {job.image.digest: image_editor._prepare(job) for job in jobs}
    tree, latents = image_editor._denoise(jobs, photos)
    with torch.no_grad():
        return tree, latents, image_editor._invert(tree, photos)


class Slow:
    """The reference's parts for one photo and its caption."""

    def __init__(self, image_editor, data, caption=CAPTION):
        # Loaded anew: the reference replaces the UNet's attention.
        loaded = image_editor.model.load()
        self.unet, self.encode = loaded.unet, loaded.encode
        self.ddim = reference.Ddim(loaded.scheduler, image_editor.steps)
        pixels = torch.from_numpy(np.array(image_editor._prepare(job(data)))).permute(2, 0, 1) / 255
        image = (pixels[None] * 2 - 1).to(loaded.dtype)
        scale = loaded.vae.config.scaling_factor
        with torch.no_grad():
            self.clean = loaded.vae.encode(image).latent_dist.mode()[0] * scale
            self.text, self.empty = loaded.encode(caption), loaded.encode("")

    def direct(self, edited, cfg, control):
        pivots = reference.ddim_loop(self.unet, self.ddim, self.clean, self.text)[::-1]
        texts = self.text, self.encode(edited)
        empties = [self.empty] * len(self.ddim.times)
        return reference.edit(
            self.unet, self.ddim, pivots[0], texts, empties, cfg, control, pivots[1:]
        )


def control_maps(p, steps=STEPS, until=0, edit=lambda base_map, own_map: own_map, limit=None):
    """Prompt-to-prompt's control of rows [without, without, with, with]."""

    def control(step, maps, is_cross):
        if is_cross and step < until:
            return torch.stack([*maps[:3], edit(maps[2], maps[3])])
        small = limit is None or maps.shape[2] <= limit
        if not is_cross and step < int(p * steps) and small:
            return torch.stack([*maps[:3], maps[2]])
        return maps

    return control


def check_direct(image_editor, jobs, limit=None):
    """Compare jobs drawn in one call with each drawn as the paper's code does."""
    tree, latents, _ = draw(image_editor, jobs)
    for single, (source, edited) in zip(jobs, tree.jobs, strict=True):
        slow = Slow(image_editor, single.image.content)
        close(latents[source], slow.clean, 0)
        if single.texts[1] == CAPTION:
            assert edited == source
            continue
        control = control_maps(single.draw.p, limit=limit)
        with torch.no_grad():
            wanted = slow.direct(EDITED, single.draw.cfg, control)
        close(latents[edited], wanted[1])
    return tree


@pytest.mark.slow
def test_an_edit_and_its_control_equal_the_source_put_back_at_every_step(calm_pipeline) -> None:
    check_direct(
        editor(calm_pipeline, cross=None, inversion=NEXT),
        [job(photo(1)), job(photo(1), (CAPTION, CAPTION))],
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "limit"), [("calm_pipeline", None), ("calm_velocity_pipeline", 16)]
)
def test_photos_shares_and_guidances_in_one_call_equal_one_at_a_time(name, limit, request) -> None:
    data = photo(1), photo(2)
    jobs = [
        job(data[0], p=0.2), job(data[0], p=0.8), job(data[1], p=0.6, cfg=3),
        job(data[0], (CAPTION, CAPTION)), job(data[0], p=0.8), job(data[0], p=0.2, cfg=3),
    ]  # fmt: skip
    settings = {"cross": None, "self_max_tokens": limit, "inversion": NEXT}
    image_editor = editor(request.getfixturevalue(name), max_rows=4, **settings)
    tree = check_direct(image_editor, jobs, limit)
    assert tree.jobs[1] == tree.jobs[4]


@torch.no_grad()
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["replace", "refine"])
def test_cross_attention_of_photos_equals_maps_written_down(calm_pipeline, kind) -> None:
    base, edited, base_words, edited_words, new = CASES["longer edit"]
    until = int(0.5 * (STEPS + 1))

    def edit(source_map, own_map):
        return edited_map(source_map, own_map, kind, base_words, edited_words, {new: 2.0})

    slow = Slow(editor(calm_pipeline), photo(3), base)
    wanted = slow.direct(edited, 7.5, control_maps(0.4, until=until, edit=edit))
    control = CrossAttention(kind, steps=0.5, edited_weight=2.0)
    image_editor = editor(calm_pipeline, cross=control, max_rows=2, inversion=NEXT)
    tree, latents, _ = draw(image_editor, [job(photo(3), (base, edited), p=0.4)])
    close(latents[tree.jobs[0][1]], wanted[1])


@pytest.mark.slow
@pytest.mark.parametrize("inversion", [DirectInversion(), EditFriendly(), NullText(inner_steps=2)])
def test_photos_and_shares_together_are_what_they_are_alone(calm_pipeline, inversion) -> None:
    jobs = [job(photo(seed), p=p) for seed in (1, 2) for p in (0.2, 0.7)]
    image_editor = editor(calm_pipeline, inversion=inversion, steps=4, max_rows=4)
    tree, together, inverted = draw(image_editor, jobs)
    assert len(inverted) == 2
    for at, single in enumerate(jobs):
        tree_alone, alone, [inversion_alone] = draw(image_editor, [single])
        tolerance = ADAM if inversion.depends_on_guidance else 1e-10
        close(together[list(tree.jobs[at])], alone[list(tree_alone.jobs[0])], tolerance)
        close(inverted[at // 2].latents, inversion_alone.latents, tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["calm_pipeline", "calm_velocity_pipeline"])
def test_null_text_equals_one_photo_at_a_time(name, request) -> None:
    """Embeddings, the way back and an edit; photos stop by themselves."""
    settings = {"inner_steps": 6, "tolerance": TOLERANCE, "growth": 0.0}
    jobs = [job(photo(seed), p=0.6, cfg=cfg) for seed, cfg in ((1, 7.5), (2, 3.0), (3, 7.5))]
    image_editor = editor(
        request.getfixturevalue(name), inversion=NullText(**settings), cross=None, max_rows=4
    )
    tree, latents, inverted = draw(image_editor, jobs)
    counts = []
    for at, single in enumerate(jobs):
        slow = Slow(image_editor, single.image.content)
        _, empties, way, updates = reference.null_text(
            slow.unet, slow.ddim, slow.clean, slow.text, slow.empty, single.draw.cfg,
            inner_steps=6, epsilon=TOLERANCE, growth=0.0,
        )  # fmt: skip
        counts.append(updates)
        close(inverted[at].empty, torch.stack(empties), ADAM)
        close(inverted[at].latents, torch.stack(way), ADAM)
        with torch.no_grad():
            wanted = reference.edit(
                slow.unet, slow.ddim, way[0], (slow.text, slow.encode(EDITED)), empties,
                single.draw.cfg, control_maps(0.6),
            )  # fmt: skip
        close(latents[list(tree.jobs[at])], wanted, ADAM)
    # Not all of them stop at the same update, and some stop early: otherwise nothing was tested.
    assert len({tuple(updates) for updates in counts}) > 1
    assert min(map(min, counts)) < 6


@pytest.mark.slow
def test_edit_friendly_levels_and_noise_equal_one_level_at_a_time(calm_pipeline) -> None:
    """With all steps taken; and with the inversion's text and guidance the photo comes back."""
    inversion = EditFriendly(skipped=0.0, guidance=3.5)
    image_editor = editor(calm_pipeline, inversion=inversion, cross=None, max_rows=4)
    jobs = [job(photo(1), (CAPTION, SAID_AGAIN), p=p, cfg=3.5) for p in (0.0, 1.0)]
    jobs += [job(photo(1), p=0.0, cfg=15.0), job(photo(2), (CAPTION, SAID_AGAIN), p=0.0, cfg=3.5)]
    tree, latents, inverted = draw(image_editor, jobs)
    slow = Slow(image_editor, photo(1))
    noises = [
        (inverted[0].latents[i] - one_scale * slow.clean) / rest
        for i, (one_scale, rest) in enumerate(
            image_editor._engine[0].schedule.scales(i) for i in range(5)
        )
    ]
    with torch.no_grad():
        levels, added = reference.edit_friendly(
            slow.unet, slow.ddim, slow.clean, noises, slow.text, slow.empty, 3.5
        )
    close(inverted[0].latents, torch.stack(levels))
    close(inverted[0].noise, torch.stack(added))
    # The noise of each level is drawn by itself: about standard normal, about uncorrelated.
    drawn = torch.stack(noises).flatten(1)
    assert (torch.corrcoef(drawn) - torch.eye(5)).abs().max() < 0.25
    assert (drawn.std(1) - 1).abs().max() < 0.2
    assert not torch.allclose(inverted[0].latents[0], inverted[1].latents[0])
    for at in (0, 1, 3):
        source, edited = tree.jobs[at]
        close(latents[edited], latents[source])
    source, edited = tree.jobs[2]
    assert (latents[edited] - latents[source]).abs().max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    "inversion",
    [
        DirectInversion(),
        pytest.param(EditFriendly(), marks=pytest.mark.slow),
        pytest.param(NullText(inner_steps=1), marks=pytest.mark.slow),
    ],
)
def test_a_source_that_is_remembered_is_the_source_computed_again(calm_pipeline, inversion) -> None:
    jobs = [job(photo(seed), p=p) for seed in (1, 2) for p in (0.4, 1.0)]
    jobs.append(job(photo(2), (CAPTION, CAPTION)))
    drawn = []
    for remember in (True, False):
        settings = {"inversion": inversion, "remember": remember, "self_max_tokens": 16}
        image_editor = editor(calm_pipeline, **settings, max_rows=6)
        tree, latents, _ = draw(image_editor, jobs)
        drawn.append(latents)
        sources = tree.image == 0
        assert (tree.end[sources] > 0).all() == (not remember)
    close(drawn[0], drawn[1])


@pytest.mark.slow
def test_direct_inversion_at_its_own_timesteps_asks_what_ddim_asks(calm_pipeline) -> None:
    """One step written out: the model sees level 3's latents at level 3's timestep."""
    image_editor = editor(calm_pipeline, cross=None)
    _, _, [inversion] = draw(image_editor, [job(photo(1))])
    slow = Slow(image_editor, photo(1))
    time, ddim = slow.ddim.times[3], slow.ddim
    with torch.no_grad():
        slow.unet.set_attn_processor(Explicit())
        x = inversion.latents[3][None]
        noise = reference.ask(slow.unet, x, time, slow.text[None])
    kept, after = ddim.level(time), ddim.level(slow.ddim.times[2])
    clean = (x - (1 - kept) ** 0.5 * noise) / kept**0.5
    close(inversion.latents[2], (after**0.5 * clean + (1 - after) ** 0.5 * noise)[0])
    close(inversion.latents[-1], slow.clean, 0)
    assert inversion.attention is not None
    assert len(inversion.attention) == STEPS


@torch.no_grad()
@pytest.mark.slow
def test_edits_of_photos_equal_those_of_the_released_mapper(calm_pipeline) -> None:
    """In float64; edits with more tokens than the caption were .18 to .87 apart."""
    base, text = "a red ball on sand", "a red zoo on the sand"
    tokens = [tokenize(tiny.tokenizer(), caption) for caption in (base, text)]
    mapper, alphas = refinement_mapper(
        *(text_tokens.ids[: text_tokens.length] for text_tokens in tokens), 77
    )
    share = torch.tensor(alphas, dtype=torch.float64)

    def edit(source_map, own_map):
        return source_map[..., mapper] * share + own_map * (1 - share)

    slow = Slow(editor(calm_pipeline), photo(3), base)
    until = int(0.5 * (STEPS + 1))
    wanted = slow.direct(text, 7.5, control_maps(0.4, until=until, edit=edit))
    image_editor = editor(calm_pipeline, cross=CrossAttention("refine", steps=0.5), inversion=NEXT)
    tree, latents, _ = draw(image_editor, [job(photo(3), (base, text), p=0.4)])
    close(latents[tree.jobs[0][1]], wanted[1], 1e-12)
