"""A tiny Stable Diffusion with random weights, saved as the Hub holds the real one."""

from __future__ import annotations

from pathlib import Path

import torch

WORDS = [
    "a", "red", "blue", "ball", "cube", "star", "tree", "on", "the", "beach", "grass", "sand",
    "dog", "hot", "house", "in", "front", "of", "with",
]  # fmt: skip
SAMPLE = 8
"""Height and width of the latents; images are twice as large."""


def tokenizer():
    """CLIP's own class: most WORDS are one token, other words fall into letters or pieces."""
    from transformers import CLIPTokenizer

    letters = [chr(c) for c in range(33, 127) if not chr(c).isupper()]
    names = [*letters, *(f"{c}</w>" for c in letters)]
    merges: list[tuple[str, str]] = []
    for word in WORDS:
        parts = [*word[:-1], f"{word[-1]}</w>"]
        for end in range(1, len(parts)):
            merges.append(("".join(parts[:end]), parts[end]))
    merges = list(dict.fromkeys(merges))
    names += ["".join(pair) for pair in merges]
    names += ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=77)


def unet(sample=SAMPLE, **changes):
    from diffusers import UNet2DConditionModel

    settings = {
        "sample_size": sample, "block_out_channels": (16, 32), "layers_per_block": 1,
        "down_block_types": ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        "cross_attention_dim": 16, "attention_head_dim": 2, "norm_num_groups": 8,
    }  # fmt: skip
    return UNet2DConditionModel(**{**settings, **changes})


def vae(scaling_factor=0.18215):
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        block_out_channels=(8, 16), latent_channels=4, norm_num_groups=4, sample_size=2 * SAMPLE,
        scaling_factor=scaling_factor,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    )  # fmt: skip


def text_encoder(tokens):
    from transformers import CLIPTextConfig, CLIPTextModel

    size = len(tokens)
    return CLIPTextModel(
        CLIPTextConfig(
            vocab_size=size, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
            num_attention_heads=2, max_position_embeddings=77, projection_dim=16,
            bos_token_id=size - 2, eos_token_id=size - 1, pad_token_id=size - 1,
        )
    )  # fmt: skip


def save_pipeline(
    folder: Path, *, prediction_type="epsilon", sample=SAMPLE, seed=0, calm=False
) -> Path:
    """Save a StableDiffusionPipeline of some 300,000 random weights; returns ``folder``.

    Attention logits are made large enough that maps are far from uniform, so that a test of
    attention can fail. A random UNet enlarges a difference some forty times a step; a calm one,
    with small answers to photos' latents of about unit size, can be compared over many steps.
    """
    from diffusers import PNDMScheduler, StableDiffusionPipeline

    tokens = tokenizer()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        parts = {
            "unet": unet(sample),
            "vae": vae(6.0) if calm else vae(),
            "text_encoder": text_encoder(tokens),
        }
    with torch.no_grad():
        for name, weight in parts["unet"].named_parameters():
            if name.endswith(("to_q.weight", "to_k.weight")):
                weight.mul_(6)
            if calm and name.startswith("conv_out"):
                weight.mul_(0.1)
    scheduler = PNDMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", steps_offset=1,
        skip_prk_steps=True, set_alpha_to_one=False, prediction_type=prediction_type,
    )  # fmt: skip
    pipeline = StableDiffusionPipeline(
        **parts, tokenizer=tokens, scheduler=scheduler, safety_checker=None,
        feature_extractor=None, requires_safety_checker=False,
    )  # fmt: skip
    pipeline.save_pretrained(folder)
    return folder
