"""Tiny vision-language models with random weights, saved as their home library saves them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

SIZE = 32
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}IMAGE\n"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""The shape of ChatML, with every family's own word for an image."""

LAYERS = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2,
          "num_attention_heads": 2}  # fmt: skip


def tokenizer(*special: str, max_length: int = 512, bos: bool = True):
    """Bytes, a few merges (so that a text may join its context), and tokens of one's own."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    signs = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("e", "d"), ("t", "h"), ("r", "ed"), ("Ġ", "red"), ("Ġ", "t"), (":", "Ġ")]
    words = ["<pad>", "<unk>", "<s>", "</s>", *signs, *("".join(pair) for pair in merges)]
    vocabulary = {word: number for number, word in enumerate(words)}
    inner = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", unk_token="<unk>", eos_token="</s>",
        model_max_length=max_length, **({"bos_token": "<s>"} if bos else {}),
    )  # fmt: skip
    made.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>", *special]})
    return made


def _text(kind: str, words, **changes):
    import transformers

    return getattr(transformers, kind)(**{
        "vocab_size": len(words), "num_key_value_heads": 2, "max_position_embeddings": 512,
        "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "initializer_range": 0.5,
        **LAYERS, **changes,
    })  # fmt: skip


def _save(kind: str, config, processor, folder: Path, seed: int) -> Path:
    import transformers

    torch.manual_seed(seed)
    model = getattr(transformers, kind)(config).eval()
    with torch.no_grad():  # some towers begin so small that no image would count
        for name, weights in model.named_parameters():
            if weights.ndim > 1:
                weights.copy_(torch.randn(weights.shape) * 0.3)
            elif "query" in name:
                weights.normal_()
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def save_llava(folder: Path, seed: int = 0, template: str | None = TEMPLATE) -> Path:
    from transformers import CLIPImageProcessor, CLIPVisionConfig, LlavaConfig, LlavaProcessor

    words = tokenizer("<image>")
    vision = CLIPVisionConfig(image_size=SIZE, patch_size=8, projection_dim=8, **LAYERS)
    config = LlavaConfig(
        vision_config=vision, text_config=_text("LlamaConfig", words),
        image_token_index=words.convert_tokens_to_ids("<image>"), vision_feature_layer=-1,
    )  # fmt: skip
    sizes = {"size": {"shortest_edge": SIZE}, "crop_size": {"height": SIZE, "width": SIZE}}
    processor = LlavaProcessor(
        CLIPImageProcessor(**sizes), words, patch_size=8, num_additional_image_tokens=1,
        vision_feature_select_strategy="default",
        chat_template=template and template.replace("IMAGE", "<image>"),
    )  # fmt: skip
    return _save("LlavaForConditionalGeneration", config, processor, folder, seed)


def save_llava_next(folder: Path, seed: int = 0) -> Path:
    """An image and its tiles, as many as fit its shape best."""
    import transformers as hf

    words = tokenizer("<image>")
    grids = [[SIZE, 2 * SIZE], [2 * SIZE, SIZE], [2 * SIZE, 2 * SIZE]]
    config = hf.LlavaNextConfig(
        vision_config=hf.CLIPVisionConfig(
            image_size=SIZE, patch_size=8, projection_dim=8, **LAYERS
        ),
        text_config=_text("LlamaConfig", words), image_grid_pinpoints=grids,
        image_token_index=words.convert_tokens_to_ids("<image>"), vision_feature_layer=-1,
    )  # fmt: skip
    sizes = {"size": {"shortest_edge": SIZE}, "crop_size": {"height": SIZE, "width": SIZE}}
    processor = hf.LlavaNextProcessor(
        hf.LlavaNextImageProcessor(**sizes, image_grid_pinpoints=grids), words, patch_size=8,
        num_additional_image_tokens=1, vision_feature_select_strategy="default",
        chat_template=TEMPLATE.replace("IMAGE", "<image>"),
    )  # fmt: skip
    return _save("LlavaNextForConditionalGeneration", config, processor, folder, seed)


def save_qwen2_vl(folder: Path, seed: int = 0) -> Path:
    """Images of any shape; positions in three dimensions."""
    import transformers as hf

    special = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
    words = tokenizer(*special, bos=False)
    ids = dict(zip(special, words.convert_tokens_to_ids(list(special)), strict=True))
    config = hf.Qwen2VLConfig(
        vision_config={"depth": 2, "embed_dim": 16, "hidden_size": 16, "num_heads": 2,
                       "mlp_ratio": 1, "patch_size": 8, "spatial_merge_size": 2,
                       "temporal_patch_size": 2},
        text_config=_text(
            "Qwen2VLTextConfig", words, max_window_layers=2,
            rope_parameters={"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]},
        ).to_dict(),
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"],
        image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"],
    )  # fmt: skip
    sides = {"min_pixels": 32 * 32, "max_pixels": 64 * 64, "patch_size": 8, "merge_size": 2}
    image = "<|vision_start|><|image_pad|><|vision_end|>"
    processor = hf.Qwen2VLProcessor(
        hf.Qwen2VLImageProcessor(**sides), words, hf.Qwen2VLVideoProcessor(**sides),
        chat_template=TEMPLATE.replace("IMAGE", image).replace("{{ bos_token }}", ""),
    )  # fmt: skip
    return _save("Qwen2VLForConditionalGeneration", config, processor, folder, seed)


def save_idefics3(folder: Path, seed: int = 0, tiles: int = 2) -> Path:
    """As SmolVLM, whose processor wants one more package: images in tiles, words between them."""
    import transformers as hf

    special = ("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>")
    words = tokenizer(*special)
    config = hf.Idefics3Config(
        vision_config=hf.Idefics3VisionConfig(image_size=SIZE, patch_size=8, **LAYERS),
        text_config=_text("LlamaConfig", words),
        image_token_id=words.convert_tokens_to_ids("<image>"), scale_factor=2, pad_token_id=0,
    )  # fmt: skip
    processor = hf.Idefics3Processor(
        hf.Idefics3ImageProcessor(
            size={"longest_edge": tiles * SIZE}, max_image_size={"longest_edge": SIZE}
        ),
        words, image_seq_len=4, chat_template=TEMPLATE.replace("IMAGE", "<image>"),
    )  # fmt: skip
    return _save("Idefics3ForConditionalGeneration", config, processor, folder, seed)


def save_internvl(folder: Path, seed: int = 0, tiles: int = 1) -> Path:
    import transformers as hf

    special = {"start_image_token": "<img>", "end_image_token": "</img>",
           "context_image_token": "<IMG_CONTEXT>", "video_token": "<video>"}  # fmt: skip
    words = tokenizer(*special.values())
    words.init_kwargs.update(special)
    for name, token in special.items():
        setattr(words, name, token)
        setattr(words, f"{name}_id", words.convert_tokens_to_ids(token))
    words._special_tokens_map.update(special)
    words.init_kwargs["extra_special_tokens"] = special
    config = hf.InternVLConfig(
        vision_config=hf.InternVLVisionConfig(image_size=[SIZE, SIZE], patch_size=[8, 8], **LAYERS),
        text_config=_text("Qwen2Config", words, max_window_layers=2),
        downsample_ratio=0.5, image_seq_length=4,
        image_token_id=words.convert_tokens_to_ids("<IMG_CONTEXT>"),
    )  # fmt: skip
    sizes = {"height": SIZE, "width": SIZE}
    processor = hf.InternVLProcessor(
        hf.GotOcr2ImageProcessor(size=sizes, crop_to_patches=tiles > 1, max_patches=tiles), words,
        hf.InternVLVideoProcessor(size=sizes), image_seq_length=4,
        chat_template=TEMPLATE.replace("IMAGE", "<IMG_CONTEXT>"),
    )  # fmt: skip
    return _save("InternVLForConditionalGeneration", config, processor, folder, seed)


def _qformer(kind: str, text) -> dict:
    import transformers

    vision = getattr(transformers, f"{kind}VisionConfig")(image_size=SIZE, patch_size=8, **LAYERS)
    qformer = getattr(transformers, f"{kind}QFormerConfig")(
        encoder_hidden_size=16, max_position_embeddings=256, vocab_size=300, **LAYERS
    )
    return {"vision_config": vision.to_dict(), "qformer_config": qformer.to_dict(),
            "text_config": text.to_dict(), "num_query_tokens": 4}  # fmt: skip


def _opt(words):
    from transformers import OPTConfig

    return OPTConfig(
        vocab_size=len(words), hidden_size=16, ffn_dim=16, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=512, word_embed_proj_dim=16,
        pad_token_id=0, bos_token_id=2, eos_token_id=3,
    )  # fmt: skip


def _t5(words):
    from transformers import T5Config

    return T5Config(
        vocab_size=len(words), d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2,
        pad_token_id=0, eos_token_id=3, decoder_start_token_id=0,
    )  # fmt: skip


def save_blip_2(folder: Path, seed: int = 0, t5: bool = False) -> Path:
    """Of OPT, or of T5, which is an encoder and a decoder."""
    from transformers import Blip2Config, Blip2Processor, BlipImageProcessor

    words = tokenizer("<image>")
    processor = Blip2Processor(
        BlipImageProcessor(size={"height": SIZE, "width": SIZE}), words, num_query_tokens=4
    )
    config = Blip2Config(
        **_qformer("Blip2", _t5(words) if t5 else _opt(words)),
        image_token_index=words.convert_tokens_to_ids("<image>"),
    )
    return _save("Blip2ForConditionalGeneration", config, processor, folder, seed)


def save_blip_2_t5(folder: Path, seed: int = 0) -> Path:
    return save_blip_2(folder, seed, t5=True)


def save_instructblip(folder: Path, seed: int = 0, t5: bool = False) -> Path:
    """Its queries read the question, too. Of OPT, or of T5."""
    import transformers as hf

    words = tokenizer("<image>")
    letters = "abcdefghijklmnopqrstuvwxyz?.,:"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{letter}" for letter in letters)]
    processor = hf.InstructBlipProcessor(
        hf.BlipImageProcessor(size={"height": SIZE, "width": SIZE}), words,
        hf.BertTokenizer(vocab={p: i for i, p in enumerate(pieces)}), num_query_tokens=4,
    )  # fmt: skip
    config = hf.InstructBlipConfig(
        **_qformer("InstructBlip", _t5(words) if t5 else _opt(words)),
        image_token_index=words.convert_tokens_to_ids("<image>"),
    )
    return _save("InstructBlipForConditionalGeneration", config, processor, folder, seed)


def save_instructblip_t5(folder: Path, seed: int = 0) -> Path:
    return save_instructblip(folder, seed, t5=True)


def save_paligemma(folder: Path, seed: int = 0) -> Path:
    """Image and prompt see all of each other: no part of a prompt can be shared by itself."""
    from transformers import PaliGemmaConfig, PaliGemmaProcessor, SiglipImageProcessor

    words = tokenizer("<image>")
    config = PaliGemmaConfig(
        vision_config={"model_type": "siglip_vision_model", "image_size": SIZE, "patch_size": 8,
                       "projection_dim": 16, **LAYERS},
        text_config=_text("GemmaConfig", words, head_dim=8).to_dict(),
        image_token_index=words.convert_tokens_to_ids("<image>"), projection_dim=16,
    )  # fmt: skip
    images = SiglipImageProcessor(size={"height": SIZE, "width": SIZE})
    images.image_seq_length = 16
    return _save("PaliGemmaForConditionalGeneration", config,
                 PaliGemmaProcessor(images, words), folder, seed)  # fmt: skip


SAVERS: dict[str, Callable[[Path], Path]] = {
    "llava": save_llava, "qwen2_vl": save_qwen2_vl, "idefics3": save_idefics3,
    "internvl": save_internvl, "blip_2": save_blip_2, "blip_2_t5": save_blip_2_t5,
    "instructblip": save_instructblip, "instructblip_t5": save_instructblip_t5,
    "paligemma": save_paligemma,
}  # fmt: skip
