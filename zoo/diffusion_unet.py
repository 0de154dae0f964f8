"""The denoiser: its training with the text encoder, and the finished pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.atomic_files import replace_file
from cfaug.core.errors import say
from cfaug.core.progress import watch
from cfaug.core.rng import derive, generator
from cfaug.core.safety.safe_loading import from_folder
from cfaug.worlds.shapescapes.judge import Pixels
from cfaug.worlds.shapescapes.settings import CaptionWording, Factors, caption, draw_wording, words
from zoo.diffusion_vae import CHANNELS, FACTOR, one_cycle
from zoo.scenes import SCENE_SIDE

if TYPE_CHECKING:
    from diffusers import (
        AutoencoderKL,
        DDIMScheduler,
        StableDiffusionPipeline,
        UNet2DConditionModel,
    )
    from torch import Tensor, nn
    from transformers import CLIPTextModel, CLIPTokenizer

    from zoo.diffusion_settings import DiffusionSettings


START, END = "<|startoftext|>", "<|endoftext|>"
MAX_LENGTH = 24
WIDTH = 64


def build_scheduler() -> DDIMScheduler:
    """Return Stable Diffusion's noise schedule, for a model that predicts v."""
    from diffusers import DDIMScheduler

    return DDIMScheduler(
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        clip_sample=False,
        set_alpha_to_one=False,
        steps_offset=1,
        prediction_type="v_prediction",
    )


@dataclass(frozen=True)
class Denoiser:
    """The modules that are trained together."""

    unet: UNet2DConditionModel
    text_encoder: CLIPTextModel
    tokenizer: CLIPTokenizer

    def parts(self) -> dict[str, nn.Module]:
        """Return the modules with weights, by their names in a pipeline."""
        return {"unet": self.unet, "text_encoder": self.text_encoder}


def build_denoiser(seed: int, known: Sequence[str] | None = None) -> Denoiser:
    """Return modules with initial weights that depend only on ``seed``.

    The UNet is 32, 64 and 112 wide at 16 x 16, 8 x 8 and 4 x 4, with self- and cross-attention,
    which prompt-to-prompt needs, at 16 x 16 and 8 x 8.

    Args:
        known: the words that are one token; ``None`` is those of captions of photos.
    """
    import torch
    from diffusers import UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    torch.manual_seed(derive(seed, "zoo", "unet") % 2**63)
    tokenizer = build_tokenizer(known)
    unet = UNet2DConditionModel(
        sample_size=SCENE_SIDE // FACTOR,
        in_channels=CHANNELS,
        out_channels=CHANNELS,
        block_out_channels=(32, 64, 112),
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        layers_per_block=1,
        norm_num_groups=8,
        cross_attention_dim=WIDTH,
        # diffusers' misnomer for the number of heads.
        attention_head_dim=2,
    )
    config = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=MAX_LENGTH,
        projection_dim=WIDTH,
        bos_token_id=tokenizer.convert_tokens_to_ids(START),
        eos_token_id=tokenizer.convert_tokens_to_ids(END),
        pad_token_id=tokenizer.convert_tokens_to_ids(END),
    )
    return Denoiser(unet, CLIPTextModel(config), tokenizer)


def train_denoiser(
    moments: Tensor,
    scale: float,
    factors: list[Factors],
    settings: DiffusionSettings,
    on_save: Callable[[Denoiser, int], None],
    start: Denoiser | None = None,
) -> Denoiser:
    """Train UNet and text encoder on cached latents; resume from ``work`` if it has a state.

    A step's scenes, captions and noise depend only on the seed and the step, so that an interrupted
    run sees the same data.

    Args:
        moments: the posteriors of the scenes from ``vae.encode``, (n, 2 x channels, 16, 16).
        on_save: a function that is called with the averaged modules and the step, every
            ``save_every`` steps.
        start: the modules to train in place; ``None`` draws initial ones from the settings' seed.

    Raises:
        FloatingPointError: if the loss is not finite.
    """
    import torch
    from diffusers.models.attention_processor import AttnProcessor

    denoiser = start or build_denoiser(settings.seed)
    # The backward pass of fused attention is several times slower in bfloat16.
    denoiser.unet.set_attn_processor(AttnProcessor())
    parts = denoiser.parts()
    weights = [p for part in parts.values() for p in part.train().requires_grad_(True).parameters()]
    optimizer = torch.optim.AdamW(
        weights, lr=settings.lr, betas=(0.9, 0.99), weight_decay=0.01, fused=True
    )
    # The exponential moving average of the weights, which is what is shipped.
    average = {
        name: {key: value.detach().clone() for key, value in part.state_dict().items()}
        for name, part in parts.items()
    }
    first, state = 0, Path(settings.work) / "state.pt" if settings.work else None
    if state and state.exists():
        kept = torch.load(state, weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(kept["weights"][name])
        optimizer.load_state_dict(kept["optimizer"])
        first, average = int(kept["step"]), kept["average"]

    def averaged() -> Denoiser:
        copied = deepcopy(denoiser)
        copied.unet.set_default_attn_processor()
        for name, part in copied.parts().items():
            part.load_state_dict(average[name])
            part.eval().requires_grad_(False)
        return copied

    recent: list[float] = []
    for step in watch(range(first, settings.steps), "denoiser", settings.steps - first, "steps"):
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * one_cycle(step, settings.steps, min(200, settings.steps))
        loss = _loss(denoiser, moments, scale, factors, settings, step)
        if not torch.isfinite(loss):
            raise FloatingPointError("the denoiser's loss is not finite: lower lr")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        decay = min(settings.decay, (1 + step) / (10 + step))
        for name, part in parts.items():
            for key, value in part.state_dict().items():
                if value.is_floating_point():
                    average[name][key].lerp_(value, 1 - decay)
        recent.append(float(loss.detach()))
        if (step + 1) % settings.save_every == 0:
            say(f"step {step + 1}: loss {np.mean(recent[-500:]):.4f}")
            on_save(averaged(), step + 1)
            if state:
                kept = {
                    "step": step + 1,
                    "weights": {name: part.state_dict() for name, part in parts.items()},
                    "optimizer": optimizer.state_dict(),
                    "average": average,
                }
                with replace_file(state) as handle:
                    torch.save(kept, handle)
    return averaged()


def _loss(
    denoiser: Denoiser,
    moments: Tensor,
    scale: float,
    factors: list[Factors],
    settings: DiffusionSettings,
    step: int,
) -> Tensor:
    """Return the mean squared error of v (Salimans & Ho, 2022) for a step's scenes and times."""
    import torch

    rng = generator(settings.seed, "zoo", "unet", step)
    rows = rng.choice(len(moments), settings.batch_size, replace=False)
    texts = wordings(settings.seed, step, [factors[row] for row in rows], settings.full_every)
    dropped = rng.random(len(texts)) < settings.drop_text
    texts = ["" if drop else text for text, drop in zip(texts, dropped, strict=True)]
    mean, log_variance = moments[torch.from_numpy(rows)].float().chunk(2, dim=1)
    draws = torch.from_numpy(rng.standard_normal((2, *mean.shape), dtype=np.float32))
    latents = scale * (mean + (log_variance / 2).exp() * draws[0])
    kept = build_scheduler().alphas_cumprod
    if step < settings.focus_from:
        drawn = rng.integers(len(kept), size=len(rows))
    else:
        # Logit-normal times (Esser et al., 2024), a little towards the noise: a subject's outline
        # is decided there, while the ends of the range cost most of the loss and teach little.
        drawn = (len(kept) / (1 + np.exp(-rng.normal(0.3, 0.9, len(rows))))).astype(np.int64)
    times = torch.from_numpy(drawn)
    signal = kept[times].sqrt()[:, None, None, None]
    noise = (1 - kept[times]).sqrt()[:, None, None, None]
    noisy = signal * latents + noise * draws[1]
    target = signal * draws[1] - noise * latents
    with torch.autocast("cpu", torch.bfloat16):
        embedded = denoiser.text_encoder(tokenize(denoiser.tokenizer, texts))[0]
        shown = denoiser.unet(noisy, times, embedded).sample
    return (shown.float() - target).square().mean()


def wordings(seed: int, step: int, factors: list[Factors], full_every: int) -> list[str]:
    """Return captions of a step's scenes, complete in every ``full_every``-th step."""
    rng = generator(seed, "zoo", "wordings", step)
    drawn = [draw_wording(rng, drop_colour=0.3, drop_background=0.5) for _ in factors]
    if step % full_every == 0:
        drawn = [CaptionWording(wording.frame) for wording in drawn]
    return [caption(f, wording) for f, wording in zip(factors, drawn, strict=True)]


def build_tokenizer(known: Sequence[str] | None = None) -> CLIPTokenizer:
    """Return a tokenizer with one token for every word of a caption.

    Any other text is split into characters, except for an end that one of our words has too.

    Args:
        known: the words; ``None`` is those of captions of photos. Words that follow those change
            only the ids of the start and the end of a text.
    """
    from transformers import CLIPTokenizer

    printable = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    names = [*printable, *(f"{character}</w>" for character in printable)]
    merges: list[tuple[str, str]] = []
    for word in words() if known is None else known:
        # From the end, which "</w>" marks, so that no other word's merges interfere.
        suffix = f"{word[-1]}</w>"
        for character in reversed(word[:-1]):
            merges.append((character, suffix))
            suffix = character + suffix
    merges = list(dict.fromkeys(merges))
    names += ["".join(pair) for pair in merges]
    vocabulary = {name: i for i, name in enumerate(dict.fromkeys([*names, START, END]))}
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=MAX_LENGTH)


def tokenize(tokenizer: CLIPTokenizer, texts: list[str]) -> Tensor:
    """Return token ids (n, 24), padded and truncated like in StableDiffusionPipeline."""
    ids: Tensor = tokenizer(
        texts, padding="max_length", max_length=MAX_LENGTH, truncation=True, return_tensors="pt"
    ).input_ids
    return ids


# The finished pipeline: its assembly, saving, loading, and the generation of pictures.

BATCH = 32
UNCHECKED = {
    "safety_checker": None, "feature_extractor": None, "requires_safety_checker": False,
}  # fmt: skip


def assemble(vae: AutoencoderKL, denoiser: Denoiser) -> StableDiffusionPipeline:
    """Return a stock StableDiffusionPipeline of these parts, without a safety checker."""
    from diffusers import StableDiffusionPipeline

    return StableDiffusionPipeline(
        vae=vae,
        unet=denoiser.unet,
        text_encoder=denoiser.text_encoder,
        tokenizer=denoiser.tokenizer,
        scheduler=build_scheduler(),
        **UNCHECKED,
    )


def save(pipeline: StableDiffusionPipeline, folder: Path) -> None:
    """Write a pipeline in the Hub's form, float16 safetensors; its modules stay float32."""
    import torch

    parts = (pipeline.vae, pipeline.unet, pipeline.text_encoder)
    for part in parts:
        part.to(torch.float16)
    pipeline.save_pretrained(folder)
    # Beside tokenizer.json, the two files that older readers look for.
    pipeline.tokenizer.backend_tokenizer.model.save(str(folder / "tokenizer"))
    for part in parts:
        part.float()


def load(folder: Path) -> StableDiffusionPipeline:
    """Load a pipeline in float32, part by part, without progress bars; its index is ignored."""
    import torch
    from diffusers import (
        AutoencoderKL,
        DDIMScheduler,
        StableDiffusionPipeline,
        UNet2DConditionModel,
    )
    from transformers import CLIPTextModel, CLIPTokenizer

    options = {"low_cpu_mem_usage": False, "torch_dtype": torch.float32}
    encoder = from_folder(CLIPTextModel, folder / "text_encoder", dtype=torch.float32)
    pipeline = StableDiffusionPipeline(
        vae=from_folder(AutoencoderKL, folder / "vae", **options).eval(),
        unet=from_folder(UNet2DConditionModel, folder / "unet", **options).eval(),
        text_encoder=encoder.eval(),
        tokenizer=from_folder(CLIPTokenizer, folder / "tokenizer"),
        scheduler=from_folder(DDIMScheduler, folder / "scheduler"),
        **UNCHECKED,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def generate(
    pipeline: StableDiffusionPipeline,
    prompts: list[str],
    seed: int,
    *,
    steps: int = 20,
) -> Pixels:
    """Generate a picture for every prompt by DDIM (Song et al., 2021), uint8 (n, 3, 64, 64).

    The scale of classifier-free guidance (Ho & Salimans, 2022) is 3.

    Args:
        seed: the seed of the noise; a picture depends on it and on its place in the list.
    """
    import torch

    pipeline.set_progress_bar_config(disable=True)
    pictures = []
    for start in range(0, len(prompts), BATCH):
        part = prompts[start : start + BATCH]
        seeds = [derive(seed, "zoo", "noise", start + i) % 2**63 for i in range(len(part))]
        shown = pipeline(
            part,
            num_inference_steps=steps,
            guidance_scale=3.0,
            generator=[torch.Generator().manual_seed(noise_seed) for noise_seed in seeds],
            output_type="np",
        ).images
        pictures.append((shown * 255).round().astype(np.uint8).transpose(0, 3, 1, 2))
    return np.concatenate(pictures)
