"""Shared attention of SD 3.5, FLUX.2 and SDXL, against the pipelines and maps written down."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.protocols import Progressive
from cfaug.core.types import Draw
from cfaug.imaging import schedules
from cfaug.imaging.model import PipelineFolder
from cfaug.imaging.shared_pipeline import SharedPipeline
from tests.imaging import tiny_pipelines
from tests.imaging.test_sharing import close
from tests.records import image_job

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    from written_down_joint import WrittenDownJoint, draw_set

PAIR = ("a red ball on the beach", "a blue ball on the beach")
SET = (*PAIR, "a red tree on the beach", "a red star on the sand")
STEPS = 4
DYNAMIC = {"use_dynamic_shifting": True}
BUILDS = {
    "sd3": functools.partial(tiny_pipelines.sd3, shift=3.0),
    "sd3_dynamic": functools.partial(tiny_pipelines.sd3, **DYNAMIC),
    "sd3_first": functools.partial(  # SD 3, before 3.5
        tiny_pipelines.sd3, shift=3.0, qk_norm=None, dual_attention_layers=()
    ),
    "klein": functools.partial(tiny_pipelines.klein, **DYNAMIC),
    "klein_base": functools.partial(tiny_pipelines.klein, is_distilled=False, **DYNAMIC),
    "klein_dev": functools.partial(tiny_pipelines.klein, guidance_embeds=True, **DYNAMIC),
    "sdxl": tiny_pipelines.sdxl,
}
UNGUIDED = ("klein", "klein_dev")
"""Without a row without text: distilled, or with the scale as an input."""
KLEIN = {"max_sequence_length": 24, "text_encoder_out_layers": (0, 1)}
TEXTS = {"sd3": {"max_sequence_length": 8}, "klein": KLEIN, "sdxl": {}}


def sharpened(build):
    """Attention far from uniform, so that a test of it can fail."""
    pipeline = build()
    network = getattr(pipeline, "unet", None) or pipeline.transformer
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if name.endswith(("norm_q.weight", "norm_k.weight")):
                weight.mul_(2)
            if name.endswith(("to_q.weight", "to_k.weight")) and "norm_q" not in name:
                weight.mul_(3)
    return pipeline


@pytest.fixture(autouse=True, scope="module")
def _dev_reads_texts_as_klein_does():
    """FLUX.2 dev's text encoder has 24 billion parameters; all the rest of its pipeline is used."""
    from diffusers import Flux2KleinPipeline, Flux2Pipeline

    def embed(system_message=None, **given):
        return Flux2KleinPipeline._get_qwen3_prompt_embeds(**given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Flux2Pipeline, "_get_mistral_3_small_prompt_embeds", staticmethod(embed))
        yield


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    @functools.cache
    def find(family):
        folder = tmp_path_factory.mktemp("pipelines") / family
        return tiny_pipelines.save(functools.partial(sharpened, BUILDS[family]), folder)

    return find


def texts_of(family):
    return TEXTS[family.split("_")[0]]


def editor(folder, family, dtype="fp32", **changes):
    side = 32 if family.startswith("klein") else None
    settings = {"steps": STEPS, "side": side, "text_settings": texts_of(family), **changes}
    model = {"dtype": dtype, "pipeline": "Flux2Pipeline" if family == "klein_dev" else None}
    return SharedPipeline(PipelineFolder(str(folder), device="cpu", **model), **settings)


def job(texts=PAIR, seed=1, p=0.5, cfg=4.0):
    return image_job(texts, Draw(seed, p, cfg))


def guidance(family, cfg=4.0):
    return 1.0 if family == "klein" else cfg


def noise_of(job, shape, independent=False):
    seed, initial = job.draw.seed, schedules.INITIAL
    images = [image * independent for image in range(len(job.texts))]
    return torch.from_numpy(
        np.stack([schedules.draw(seed, initial, image, shape) for image in images])
    )


def run(folder, family, job, dtype=torch.float32, *, independent=False):
    """diffusers' own loader and call, without shared attention: the pipeline and its images."""
    import diffusers

    plain = diffusers.DiffusionPipeline.from_pretrained(folder, torch_dtype=dtype)
    if family == "klein_dev":
        plain = diffusers.Flux2Pipeline(**plain.components)
    plain.set_progress_bar_config(disable=True)
    side = 32 if family.startswith("klein") else None
    shape = (16, 8, 8) if side else (4, *[plain.default_sample_size] * 2)
    noise = noise_of(job, shape, independent).to(dtype)
    images = plain(
        prompt=list(job.texts), latents=noise, num_inference_steps=STEPS, height=side, width=side,
        guidance_scale=job.draw.cfg, output_type="pt", **texts_of(family),
    ).images  # fmt: skip
    return plain, noise, images


@pytest.mark.parametrize("family", BUILDS)
def test_without_shared_attention_images_are_the_pipeline_s_own(shelf, family):
    """From the same noise: its steps, shifts, guidance and decoding."""
    set_job = job(SET, p=0.0, cfg=guidance(family))
    _, _, wanted = run(shelf(family), family, set_job)
    ours = editor(shelf(family), family)
    assert isinstance(ours, Progressive)
    images = ours.decode(ours.sample([set_job])[0])
    assert images.std() > 0.01
    assert (images - wanted).abs().max() < 1e-5


def expected(folder, family, job, *, dtype=torch.float64, share_texts=False):
    """The reference's set, at the noise levels that the pipeline's own call has set.

    Noise is independent: with the same noise, the queries and keys of a tiny model's images hardly
    differ, and sharing them would change little.
    """
    plain, noise, _ = run(folder, family, job, dtype, independent=True)
    settings, guided = texts_of(family), family not in UNGUIDED
    processor = WrittenDownJoint(share_texts=share_texts)
    shown = [*[""] * len(job.texts) * guided, *job.texts]
    sigmas, timesteps = plain.scheduler.sigmas.tolist(), plain.scheduler.timesteps
    network, options = getattr(plain, "unet", None) or plain.transformer, {}
    network.set_attn_processor(processor)
    if family.startswith("klein"):
        hidden = torch.cat([plain.encode_prompt(text, **settings)[0] for text in shown])
        processor.texts = hidden.shape[1]
        at, words = torch.arange(64), torch.arange(hidden.shape[1])
        places = torch.stack([at * 0, at // 8, at % 8, at * 0], 1)
        lines = torch.stack([words * 0, words * 0, words * 0, words], 1)

        def ask(x, step):
            moment = timesteps[step].expand(len(x)).to(dtype) / 1000
            read = torch.full((len(x),), job.draw.cfg) if family == "klein_dev" else None
            (out,) = network(
                x.flatten(2).mT, hidden, moment, places, lines, read, return_dict=False
            )
            return out.mT.unflatten(2, (8, 8))
    elif family == "sdxl":
        pairs = [
            plain.encode_prompt(text, do_classifier_free_guidance=False)[::2] for text in shown
        ]
        hidden, pooled = (torch.cat(x) for x in zip(*pairs, strict=True))
        silent = torch.tensor([not text for text in shown])  # the empty text is zeros, not encoded
        hidden[silent], pooled[silent] = 0, 0
        sizes = torch.tensor([[16.0, 16, 0, 0, 16, 16]], dtype=dtype).expand(len(shown), -1)
        noise = noise * plain.scheduler.init_noise_sigma
        options["scale"] = lambda sigma: 1 / math.hypot(1, sigma)

        def ask(x, step):
            added = {"text_embeds": pooled, "time_ids": sizes}
            return network(x, timesteps[step], hidden, added_cond_kwargs=added).sample
    else:
        pairs = [
            plain.encode_prompt(text, None, None, do_classifier_free_guidance=False, **settings)[
                ::2
            ]
            for text in shown
        ]
        hidden, pooled = (torch.cat(x) for x in zip(*pairs, strict=True))

        def ask(x, step):
            moment = timesteps[step].expand(len(x))
            return network(x, hidden, pooled, moment, return_dict=False)[0]

    with torch.inference_mode():
        sharing = job.draw.p, job.draw.cfg
        return draw_set(ask, processor, noise, sharing, sigmas, guided=guided, **options)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["sd3", "klein", "klein_dev", "sdxl"])
def test_pairs_and_sets_equal_maps_written_down(shelf, family):
    folder, cfg = shelf(family), guidance(family)
    draw = functools.partial(editor, folder, family, noise="independent")
    jobs = [job(p=0.3, cfg=cfg), job(SET, seed=2, p=0.8, cfg=cfg)]
    wanted = [expected(folder, family, set_job) for set_job in jobs]
    for max_rows in (64, 6):  # in one call; and with bases that lend to the following calls
        drawn = draw("fp64", max_rows=max_rows).sample(jobs)
        for written_down, latents in zip(wanted, drawn, strict=True):
            assert latents.dtype == torch.float64
            close(latents, written_down, 1e-12)
    for written_down, latents in zip(wanted, draw().sample(jobs), strict=True):
        assert latents.dtype == torch.float32
        close(latents.double(), written_down, 1e-5)
    [free] = draw().sample([job(SET, seed=2, p=0, cfg=cfg)])
    assert (free[1:] - wanted[1][1:]).abs().amax((1, 2, 3)).min() > 1e-2
    if family != "sdxl":  # whose texts are not in the sequence
        wrong = expected(folder, family, jobs[1], share_texts=True)
        assert (wrong[1:] - wanted[1][1:]).abs().amax((1, 2, 3)).min() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("family", ["sd3", "klein"])
def test_trees_halving_and_batches_are_their_single_runs(shelf, family):
    """In float32, whose bytes depend on the batch as Stable Diffusion's do: 1e-5."""
    cfg = guidance(family)
    jobs = [job(p=p, seed=seed, cfg=cfg) for seed, p in ((1, 0.2), (1, 0.6), (1, 0.9), (2, 0.6))]
    image_editor = editor(shelf(family), family, noise="independent")
    alone = [image_editor.sample([single])[0] for single in jobs]
    for latents, wanted in zip(image_editor.sample(jobs), alone, strict=True):
        close(latents, wanted, 1e-5)
    assert torch.equal(alone[0][0], alone[2][0])  # the base does not depend on p
    assert (alone[0][1] - alone[2][1]).abs().max() > 1e-2
    kept = image_editor.sample_halving(jobs, 1, lambda numbers, _: numbers[1::2])
    assert list(kept) == [1, 3]
    for number, latents in kept.items():
        close(latents, alone[number], 1e-5)
    seen = []
    image_editor._loaded.network.register_forward_pre_hook(
        lambda _, args, given: seen.append(len(args[0] if args else given["hidden_states"])),
        with_kwargs=True,
    )
    image_editor.sample([job(p=p, cfg=cfg) for p in (0.2, 0.6, 0.9)])
    # One base and a trunk, and a branch for each other p from where it leaves the trunk.
    assert [rows * (2 if family == "klein" else 1) for rows in seen] == [4, 6, 8, 8]


def test_diffusers_own_processors_run_with_the_backend_that_is_set(shelf):
    image_editor = editor(shelf("klein"), "klein", noise="independent")
    network, single = image_editor._loaded.network, job(p=0.8, cfg=1.0)
    kinds = {type(processor) for processor in network.attn_processors.values()}
    assert {kind.__module__.split(".")[0] for kind in kinds} == {"diffusers"}
    [wanted] = image_editor.sample([single])
    network.set_attention_backend("_native_math")
    with torch.profiler.profile() as profile:
        [latents] = image_editor.sample([single])
    close(latents, wanted, 1e-5)
    assert any("_scaled_dot_product_attention_math" in e.key for e in profile.key_averages())


def test_a_text_is_the_base_s_where_its_end_is_cut(shelf):
    image_editor = editor(shelf("klein"), "klein")
    assert not image_editor.same_text(PAIR)
    assert image_editor.same_text((PAIR[0], PAIR[1], PAIR[0]))
    long = " ".join(["a red ball"] * 9)
    assert image_editor.same_text((f"{long} here", f"{long} there"))


def test_what_cannot_be_shared_is_refused(shelf, tmp_path):
    with pytest.raises(UserError, match=r"is distilled.*guidance_scale=\[1,1\]"):
        editor(shelf("klein"), "klein").sample([job(cfg=4.0)])
    with pytest.raises(UserError, match=r"side=33 should be a multiple of 4"):
        editor(shelf("sd3"), "sd3", side=33).sample([job()])
    folder = tiny_pipelines.save(tiny_pipelines.instruct_pix2pix, tmp_path / "other")
    with pytest.raises(UserError, match=r"InstructPix2PixPipeline cannot be shared.*Flux2Klein"):
        editor(folder, "sd3")


def test_the_card_names_weights_and_settings(shelf):
    described = editor(shelf("sd3"), "sd3").describe()
    assert described["pipeline"] == "StableDiffusion3Pipeline"
    assert (described["licence"], described["steps"]) == ("apache-2.0", str(STEPS))
    assert described["sharing"] == "ip2p"
    assert described["text_settings"] == '{"max_sequence_length": 8}'


def test_arguments_that_encode_prompt_does_not_take_are_refused(shelf):
    """Those about prompts too: a negative prompt would be read by nothing."""
    for setting in ("banana", "negative_prompt", "device"):
        says = rf"text_settings.{setting}: StableDiffusion3Pipeline .* choose from .*clip_skip"
        with pytest.raises(UserError, match=says):
            editor(shelf("sd3"), "sd3", text_settings={setting: "ugly"})
