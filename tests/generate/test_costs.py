"""The cost of a generation, against formulas, published numbers, and real runs that are counted."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit
from torch.utils.flop_counter import FlopCounterMode

from cfaug.core.types import Draw, Edit, Example, ImageJob, Proposal
from cfaug.generate.costs import GPUS, Work, count_cost
from cfaug.generate.image_server import ImageServer
from cfaug.generate.recipe import Pipeline, ShardPlan
from cfaug.generate.sampling import Draws, GridDraws
from cfaug.imaging.clip import LazyClipScorer
from cfaug.imaging.flops import (
    UncountedError,
    count_diffusion,
    count_encoder,
    count_operations,
    count_pipeline,
)
from cfaug.imaging.instructed_photos import InstructedPhotos, PhotoRequest
from cfaug.imaging.inversion import DirectInversion, EditFriendly, NullText
from cfaug.imaging.model import DiffusionWeights, PipelineFolder
from cfaug.imaging.photo_editing import InvertAndEdit, SameImage
from cfaug.imaging.prompt_to_prompt import PromptToPrompt
from cfaug.imaging.shared_pipeline import SharedPipeline
from cfaug.imaging.tree import plan, shared_steps
from cfaug.models.specs import HFClip
from cfaug.worlds.shapescapes.oracle import OracleSets
from tests.generate.photos import photo
from tests.imaging import tiny, tiny_pipelines

SD15 = "stable-diffusion-v1-5/stable-diffusion-v1-5"
EDIT = Edit("noun", "ball", "cube")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return tiny.save_pipeline(tmp_path_factory.mktemp("sd") / "tiny")


def proposals(texts=("a red ball", "a red cube"), count=2, image=None):
    return [
        Proposal(
            Example(f"k{n}", f"k{n}", texts[:1], image), texts, (None, *[EDIT] * (len(texts) - 1))
        )
        for n in range(count)
    ]


def cost_of(editor, draws, sets, scorers=None):
    whole = isinstance(editor, InvertAndEdit)
    pipeline = Pipeline(editor, scorers or {})
    return count_cost(pipeline, ShardPlan(sets, draws, 0, 64, whole_examples=whole))


def parts(cost):
    return {work.part: work for work in cost.work}


@pytest.mark.slow
def test_a_candidate_of_the_paper_has_the_published_weights_and_operations():
    model = DiffusionWeights(SD15, vae="stabilityai/sd-vae-ft-mse")
    sd = count_diffusion(model)
    assert sd.weights == 859_520_964 + 83_653_863 + 123_060_480
    assert sd.side == 512
    clip = "openai/clip-vit-large-patch14"
    assert count_encoder(clip, None).weights == 427_616_513
    scorers = {"clip": LazyClipScorer(HFClip(clip))}
    editor = PromptToPrompt(model, steps=100)
    cost = cost_of(editor, Draws(candidates=1), proposals(count=1), scorers)
    assert cost.total / 1e12 == pytest.approx(327, abs=0.5)
    assert cost.images == 2


@pytest.mark.slow
def test_sets_cost_what_a_real_run_does(weights):
    editor = PromptToPrompt(DiffusionWeights(str(weights), device="cpu"), steps=3)
    sets = proposals(("a red ball", "a red cube", "a red star"), count=1)
    alone = cost_of(editor, Draws(candidates=2), sets)
    assert (parts(alone)["UNet"].calls, alone.images) == (2 * 3 * 6, 6)
    draws = Draws(candidates=2, sampling="tree(2)")
    cost = cost_of(editor, draws, sets)
    jobs = [ImageJob(proposal, draw) for proposal in sets for draw in draws.draw(proposal.key, 0)]
    _ = editor._sampler
    real = count_operations(lambda: editor.edit(jobs))
    # Texts are projected once, not for every row, and each candidate of a tree decodes its base.
    decoded = parts(cost)["decoder"]
    assert cost.total - decoded.total == pytest.approx(real - 6 * decoded.operations, rel=0.06)
    assert cost.images == len_of_tree(jobs, editor.steps)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [("sd3", {"max_sequence_length": 8}), ("klein", {"text_encoder_out_layers": (0, 1)})],
)
def test_shared_pipelines_cost_what_a_real_run_does(tmp_path, name, settings):
    folder = tiny_pipelines.save(getattr(tiny_pipelines, name), tmp_path / name)
    editor = SharedPipeline(
        PipelineFolder(str(folder), device="cpu"), steps=3, side=32, text_settings=settings
    )
    guided = name != "klein"
    draws = Draws(candidates=2, sampling="tree(2)", guidance_scale=(4, 4) if guided else (1, 1))
    sets = proposals(("a red ball", "a red cube", "a red star"), count=1)
    jobs = [ImageJob(proposal, draw) for proposal in sets for draw in draws.draw(proposal.key, 0)]
    _ = editor._sampler
    real = count_operations(lambda: editor.edit(jobs))
    for file in folder.rglob("*.safetensors"):
        file.unlink()
    cost = cost_of(replace(editor), draws, sets)
    decoded, tree = parts(cost)["decoder"], plan(jobs, editor.steps)
    assert cost.total - decoded.total == pytest.approx(real - 6 * decoded.operations, rel=0.05)
    assert parts(cost)["network"].calls == (1 + guided) * tree.latent_steps(editor.steps)
    assert (cost.images, cost.side, cost.missing) == (len_of_tree(jobs, editor.steps), 32, [])


def len_of_tree(jobs, steps):
    """Return the number of different images: bases, and edits that share for as many steps."""
    texts = len(jobs[0].texts)
    seeds = {(job.proposal.key, job.draw.seed) for job in jobs}
    ways = {(job.proposal.key, job.draw.seed, shared_steps(job.draw.p, steps)) for job in jobs}
    return len(seeds) + (texts - 1) * len(ways)


def test_halving_costs_half_of_each_part_and_a_look_at_it(weights):
    editor = PromptToPrompt(DiffusionWeights(str(weights), device="cpu"), steps=8)
    cost = cost_of(editor, Draws(candidates=4, sampling="halving(1)"), proposals(count=1))
    assert parts(cost)["UNet"].calls == 2 * 2 * (4 * 4 + 2 * 4)
    assert cost.images == 2 * 4 + 2 * 2


@pytest.mark.parametrize(
    "inversion",
    [
        DirectInversion(),
        pytest.param(EditFriendly(0.25), marks=pytest.mark.slow),
        pytest.param(NullText(inner_steps=2, tolerance=1e-30, growth=0), marks=pytest.mark.slow),
    ],
    ids=lambda inversion: inversion.name,
)
def test_edits_of_photos_cost_what_a_real_run_does(weights, inversion):
    model = DiffusionWeights(str(weights), device="cpu")
    editor = InvertAndEdit(model, inversion, steps=3, cross=None)
    draws = GridDraws([0.34, 0.67])
    sets = proposals(image=photo(1), count=1)
    cost = cost_of(editor, draws, sets)
    jobs = [
        ImageJob(proposal, draw)
        for proposal in sets
        for draw in draws.draw(proposal.example.key, 0)
    ]
    _ = editor._engine
    real = count_operations(lambda: editor.edit(jobs))
    assert cost.missing == []
    assert cost.total == pytest.approx(real, rel=0.06)
    assert cost.images == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings", "pipeline"),
    [
        ("klein", {"num_inference_steps": 2, "text_encoder_out_layers": [0, 1]}, None),
        ("instruct_pix2pix", {"num_inference_steps": 2}, None),
        ("sdxl", {"num_inference_steps": 2, "strength": 0.5}, "StableDiffusionXLImg2ImgPipeline"),
    ],
)  # fmt: skip
def test_any_pipeline_is_counted_exactly_without_weights(tmp_path, name, settings, pipeline):
    folder = tiny_pipelines.save(getattr(tiny_pipelines, name), tmp_path / name)
    guidance, draw = (
        (None, Draw(1, 0.0, 1.0)) if name == "klein" else ("guidance_scale", Draw(1, 0.0, 2.0))
    )
    real = InstructedPhotos(
        PipelineFolder(str(folder), pipeline=pipeline, device="cpu"), settings=settings,
        guidance=guidance, side=64,
    )  # fmt: skip
    photo = np.zeros((64, 64, 3), np.uint8)
    _ = real._pipeline
    edit = count_operations(lambda: real.answer([PhotoRequest("a", photo, draw, (64, 64))]))
    image = 0
    if name == "klein":  # which makes images of texts, too
        image = count_operations(lambda: real.answer([PhotoRequest("a", None, draw, (64, 64))]))
    for file in folder.rglob("*.safetensors"):
        file.unlink()
    counted = count_pipeline(replace(real), draw, from_texts=name == "klein")
    assert (counted.image, counted.edit, counted.missing) == (image, edit, ())
    models = [part for part in real._pipeline.components.values() if hasattr(part, "parameters")]
    assert counted.weights == sum(p.numel() for part in models for p in part.parameters())


@pytest.mark.slow
def test_qwen_image_edit_is_exact_but_for_what_is_named(tmp_path, monkeypatch):
    # It edits in a megapixel, which is 16,384 tokens of a tiny model's photo.
    monkeypatch.setattr(pipeline_qwenimage_edit, "calculate_dimensions", lambda *_: (64, 64, None))
    folder = tiny_pipelines.save(tiny_pipelines.qwen_image_edit, tmp_path / "qwen")
    settings, draw = {"num_inference_steps": 1, "negative_prompt": " "}, Draw(1, 0.0, 2.0)
    real = InstructedPhotos(
        PipelineFolder(str(folder), device="cpu"), settings=settings, guidance="true_cfg_scale",
        side=64,
    )  # fmt: skip
    photo = np.zeros((64, 64, 3), np.uint8)
    _ = real._pipeline
    with FlopCounterMode(display=False) as counter:
        real.answer([PhotoRequest("a", photo, draw, (64, 64))])
    of_modules = counter.get_flop_counts()
    [pictures] = [counts for name, counts in of_modules.items() if name.endswith(".visual")]
    counted = count_pipeline(replace(real), draw, from_texts=False)
    assert counted.missing == ("the pictures' encoder of Qwen2_5_VLForConditionalGeneration",)
    assert counted.edit == counter.get_total_flops() - sum(pictures.values())
    assert sum(pictures.values()) > 0


def test_what_cannot_be_counted_is_named_and_not_guessed():
    unknown = PromptToPrompt(DiffusionWeights("nobody/nothing"), steps=4)
    cost = cost_of(unknown, Draws(candidates=2), proposals())
    assert cost.total == 0
    assert "hf download nobody/nothing" in cost.missing[0]
    server = cost_of(ImageServer("http://localhost:1/v1", "m"), None, proposals())
    assert server.missing == ["images: the server at http://localhost:1/v1 makes them"]
    klein = InstructedPhotos(PipelineFolder("nobody/klein"), guidance=None)
    with pytest.raises(UncountedError, match=r"--exclude '\*\.safetensors'"):
        count_pipeline(klein, Draw(0, 0.0, 1.0), from_texts=True)


def test_an_absurd_configuration_is_refused_before_it_is_built(weights, tmp_path):
    folder = shutil.copytree(weights, tmp_path / "sd")
    file = folder / "unet" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "layers_per_block": 10**9}))
    cost = cost_of(PromptToPrompt(DiffusionWeights(str(folder)), steps=4), None, proposals())
    assert "layers_per_block=1000000000 is absurd" in cost.missing[0]


def test_methods_without_models_cost_nothing():
    assert cost_of(SameImage(), None, proposals()).total == 0
    oracle = cost_of(OracleSets(64, "clear"), Draws(candidates=3), proposals())
    assert (oracle.total, oracle.side, oracle.missing) == (0, 64, [])
    assert oracle.images == 12


def test_hours_are_operations_over_the_peak_of_the_format_at_the_efficiency():
    work = [Work("a", 2, 3 * 10**15, "bf16"), Work("b", 1, 10**15, "fp32")]
    assert GPUS["A100"].seconds(work) == pytest.approx(6000 / (312 * 0.3) + 1000 / (19.5 * 0.3))
