"""Tiny editing pipelines of diffusers with random weights, saved as the Hub holds the real ones."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.imaging import tiny


def _flow(**changes):
    import diffusers

    settings = {"shift": 1.0, "use_dynamic_shifting": False, **changes}
    return diffusers.FlowMatchEulerDiscreteScheduler(**settings)


def _clip_text(tokens, kind="CLIPTextModel"):
    import transformers

    size = len(tokens)
    config = transformers.CLIPTextConfig(
        vocab_size=size, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=77, projection_dim=16,
        bos_token_id=size - 2, eos_token_id=size - 1, pad_token_id=size - 1,
    )  # fmt: skip
    return getattr(transformers, kind)(config)


def _t5():
    from transformers import T5Config, T5EncoderModel, T5Tokenizer

    letters = [(chr(c), -3.0) for c in range(33, 127)]
    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), *letters]
    config = T5Config(
        vocab_size=len(vocabulary), d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=2
    )
    return T5EncoderModel(config), T5Tokenizer(vocab=vocabulary, extra_ids=0)


def _qwen_tokens(*special):
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import Qwen2Tokenizer

    letters = sorted(ByteLevel.alphabet())
    words = Qwen2Tokenizer(
        vocab={letter: i for i, letter in enumerate(letters)}, merges=[],
        extra_special_tokens=["<|im_start|>", "<|im_end|>", *special],
    )  # fmt: skip
    words.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>{% endfor %}"
    )
    return words


def _vae(**changes):
    import diffusers

    return diffusers.AutoencoderKL(
        block_out_channels=(8, 16), latent_channels=4, norm_num_groups=4, sample_size=32,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        **changes,
    )  # fmt: skip


def instruct_pix2pix():
    import diffusers

    tokens = tiny.tokenizer()
    return diffusers.StableDiffusionInstructPix2PixPipeline(
        unet=tiny.unet(in_channels=8), vae=tiny.vae(), text_encoder=tiny.text_encoder(tokens),
        tokenizer=tokens, scheduler=diffusers.PNDMScheduler(skip_prk_steps=True),
        safety_checker=None, feature_extractor=None, requires_safety_checker=False,
    )  # fmt: skip


def flagging():
    """InstructPix2Pix with a safety checker that flags every image."""
    import transformers as hf
    from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker

    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
              "num_attention_heads": 2, "image_size": 32, "patch_size": 8}  # fmt: skip
    checker = StableDiffusionSafetyChecker(hf.CLIPConfig(vision_config=vision, projection_dim=8))
    checker.concept_embeds_weights.data.fill_(-2.0)  # below every cosine
    checker.special_care_embeds_weights.data.fill_(2.0)
    pipeline = instruct_pix2pix()
    sides = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    pipeline.register_modules(
        safety_checker=checker, feature_extractor=hf.CLIPImageProcessor(**sides)
    )
    return pipeline


def sdxl():
    """Text to image, as the weights are published: img2img is another class of the same parts."""
    import diffusers

    first, second = tiny.tokenizer(), tiny.tokenizer()
    unet = tiny.unet(
        cross_attention_dim=32, addition_embed_type="text_time", addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=6 * 8 + 16,
    )  # fmt: skip
    return diffusers.StableDiffusionXLPipeline(
        unet=unet, vae=tiny.vae(), text_encoder=_clip_text(first),
        text_encoder_2=_clip_text(second, "CLIPTextModelWithProjection"), tokenizer=first,
        tokenizer_2=second, scheduler=diffusers.EulerDiscreteScheduler(),
    )  # fmt: skip


def sd3(dual_attention_layers=(0,), qk_norm="rms_norm", **flow):
    """SD 3.5 medium's features: a second, image-only attention, and normalised queries and keys."""
    import diffusers

    first, second = tiny.tokenizer(), tiny.tokenizer()
    text, words = _t5()
    transformer = diffusers.SD3Transformer2DModel(
        sample_size=16, patch_size=2, in_channels=4, out_channels=4, num_layers=2,
        attention_head_dim=8, num_attention_heads=4, joint_attention_dim=32,
        caption_projection_dim=32, pooled_projection_dim=32, pos_embed_max_size=32,
        dual_attention_layers=dual_attention_layers, qk_norm=qk_norm,
    )  # fmt: skip
    return diffusers.StableDiffusion3Pipeline(
        transformer=transformer, scheduler=_flow(**flow),
        vae=_vae(shift_factor=0.1), text_encoder=_clip_text(first, "CLIPTextModelWithProjection"),
        text_encoder_2=_clip_text(second, "CLIPTextModelWithProjection"), tokenizer=first,
        tokenizer_2=second, text_encoder_3=text, tokenizer_3=words,
    )  # fmt: skip


def kontext():
    import diffusers

    tokens = tiny.tokenizer()
    text, words = _t5()
    transformer = diffusers.FluxTransformer2DModel(
        patch_size=1, in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16,
        num_attention_heads=2, joint_attention_dim=32, pooled_projection_dim=16,
        axes_dims_rope=(4, 4, 8), guidance_embeds=True,
    )  # fmt: skip
    return diffusers.FluxKontextPipeline(
        transformer=transformer, vae=_vae(shift_factor=0.1),
        scheduler=_flow(), text_encoder=_clip_text(tokens),
        tokenizer=tokens, text_encoder_2=text, tokenizer_2=words,
    )  # fmt: skip


def klein(is_distilled=True, guidance_embeds=False, **flow):
    import diffusers
    from transformers import Qwen3Config, Qwen3ForCausalLM

    words = _qwen_tokens()
    text = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(words), hidden_size=16, intermediate_size=16, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=2, head_dim=8,
        )
    )  # fmt: skip
    vae = diffusers.AutoencoderKLFlux2(
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(8, 16), layers_per_block=1, latent_channels=4, norm_num_groups=4,
        sample_size=32,
    )  # fmt: skip
    transformer = diffusers.Flux2Transformer2DModel(
        patch_size=1, in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16,
        num_attention_heads=2, joint_attention_dim=32, axes_dims_rope=(4, 4, 4, 4),
        guidance_embeds=guidance_embeds,
    )  # fmt: skip
    return diffusers.Flux2KleinPipeline(
        scheduler=_flow(**flow), vae=vae, text_encoder=text,
        tokenizer=words, transformer=transformer, is_distilled=is_distilled,
    )  # fmt: skip


def qwen_image_edit():
    import diffusers
    import transformers as hf

    special = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
    words = _qwen_tokens(*special)
    ids = dict(zip(special, words.convert_tokens_to_ids(list(special)), strict=True))
    config = hf.Qwen2_5_VLConfig(
        text_config={
            "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": len(words),
            "max_window_layers": 2, "bos_token_id": 0, "eos_token_id": 0,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]
            },
        },
        vision_config={
            "depth": 2, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2,
            "out_hidden_size": 16, "patch_size": 8, "window_size": 32,
            "fullatt_block_indexes": [1],
        },
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"],
        image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"],
    )  # fmt: skip
    sides = {"min_pixels": 32 * 32, "max_pixels": 64 * 64, "patch_size": 8, "merge_size": 2}
    vae = diffusers.AutoencoderKLQwenImage(
        base_dim=8, z_dim=4, dim_mult=[1, 2, 2], num_res_blocks=1,
        temperal_downsample=[False, True], latents_mean=[0.0] * 4, latents_std=[1.0] * 4,
    )  # fmt: skip
    transformer = diffusers.QwenImageTransformer2DModel(
        patch_size=2, in_channels=16, out_channels=4, num_layers=1, attention_head_dim=16,
        num_attention_heads=2, joint_attention_dim=16, axes_dims_rope=(8, 4, 4),
    )  # fmt: skip
    return diffusers.QwenImageEditPipeline(
        scheduler=_flow(), vae=vae,
        text_encoder=hf.Qwen2_5_VLForConditionalGeneration(config), tokenizer=words,
        processor=hf.Qwen2VLProcessor(
            hf.Qwen2VLImageProcessor(**sides), words, hf.Qwen2VLVideoProcessor(**sides)
        ),
        transformer=transformer,
    )  # fmt: skip


def save(build, folder: Path, seed: int = 0, **changes) -> Path:
    """Save a pipeline of random weights and a model card; return ``folder``."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        build(**changes).save_pretrained(folder)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\nTiny.\n")
    return folder
