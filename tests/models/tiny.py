"""Tiny checkpoints with random weights, saved as their home libraries save them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image

WORDS = ["a", "red", "blue", "green", "ball", "cube", "star", "on", "the", "beach", "grass", "sand"]
CAPTIONS = ["a red ball on the beach", "a blue cube", "a green star on the grass", "the sand"]
SIZE = 32
TOWER = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
         "num_attention_heads": 2}  # fmt: skip


def tokenizer(inputs=("input_ids", "attention_mask"), max_length=16, numbers=None):
    """WORDS and four special tokens, by their place or by ``numbers``."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    vocabulary = numbers or {word: number for number, word in enumerate(words)}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    inner.normalizer = normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.BertProcessing(
        *((word, vocabulary[word]) for word in ("[SEP]", "[CLS]"))
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", model_max_length=max_length,
        model_input_names=list(inputs),
    )  # fmt: skip


def image_processor(**changes):
    from transformers import CLIPImageProcessor

    sizes = {"size": {"shortest_edge": SIZE}, "crop_size": {"height": SIZE, "width": SIZE}}
    return CLIPImageProcessor(**{**sizes, **changes})


def save_dual_encoder(folder: Path, *, dropout=0.0, dtype=torch.float32, seed=0) -> Path:
    """A VisionTextDualEncoderModel with a ConvNext tower: the zoo's kind."""
    import transformers as hf

    vision = hf.ConvNextConfig(
        image_size=SIZE, num_stages=2, hidden_sizes=[8, 16], depths=[1, 1],
        layer_scale_init_value=1.0, hidden_size=16,
    )  # fmt: skip
    text = hf.BertConfig(
        vocab_size=4 + len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16, hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )  # fmt: skip
    config = hf.VisionTextDualEncoderConfig.from_vision_text_configs(vision, text, projection_dim=8)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = hf.VisionTextDualEncoderModel(config).to(dtype)
    model.save_pretrained(folder)
    processor = hf.VisionTextDualEncoderProcessor(image_processor(), tokenizer())
    processor.save_pretrained(folder)
    return folder


def save_clip(folder: Path, seed=0, words=WORDS, positions=24, scale=1) -> Path:
    """A CLIPModel with its own tokenizer class; its weights are ``scale`` times the usual ones."""
    from transformers import CLIPConfig, CLIPModel, CLIPProcessor, CLIPTokenizer

    names = ["<|startoftext|>", "<|endoftext|>", *(f"{w}</w>" for w in words)]
    letters = sorted({c for w in words for c in w})
    names += [*letters, *(f"{c}</w>" for c in letters)]
    vocabulary = {name: i for i, name in enumerate(dict.fromkeys(names))}
    tokens = CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=77)
    text = {**TOWER, "vocab_size": len(vocabulary), "max_position_embeddings": positions,
            "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}  # fmt: skip
    vision = {**TOWER, "image_size": SIZE, "patch_size": 8}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=8))
    for parameter in model.parameters():
        parameter.data.mul_(scale)
    model.save_pretrained(folder)
    CLIPProcessor(image_processor(), tokens).save_pretrained(folder)
    return folder


def save_siglip(folder: Path, seed=0, mask=False) -> Path:
    """A SiglipModel: another loss in its home, an image squashed to a square, texts of full length.

    Its tokenizer makes no attention mask, or one of which the model knows nothing.
    """
    from transformers import SiglipConfig, SiglipImageProcessor, SiglipModel, SiglipProcessor

    text = {**TOWER, "vocab_size": 4 + len(WORDS), "max_position_embeddings": 12,
            "projection_size": 16}  # fmt: skip
    vision = {**TOWER, "image_size": SIZE, "patch_size": 8}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = SiglipModel(SiglipConfig(text_config=text, vision_config=vision))
    model.save_pretrained(folder)
    images = SiglipImageProcessor(size={"height": SIZE, "width": SIZE})
    inputs = ("input_ids", "attention_mask") if mask else ("input_ids",)
    words = tokenizer(inputs, max_length=12)
    SiglipProcessor(images, words).save_pretrained(folder)
    return folder


def save_open_clip(folder: Path, seed=0, picture=None, **changes) -> Path:
    """An open_clip model in the form that ``local-dir:`` loads."""
    import open_clip
    from safetensors.torch import save_file

    config = {
        "embed_dim": 8,
        "vision_cfg": {"image_size": SIZE, "layers": 1, "width": 16, "head_width": 8,
                       "patch_size": 8},
        "text_cfg": {"context_length": 12, "vocab_size": 49408, "width": 16, "heads": 2,
                     "layers": 1},
        **changes,
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        custom = config.get("custom_text") or "hf_model_name" in config["text_cfg"]
        kind = open_clip.CustomTextCLIP if custom else open_clip.CLIP
        kind = open_clip.CoCa if "multimodal_cfg" in config else kind
        model = kind(**{name: value for name, value in config.items() if name != "custom_text"})
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    preprocess = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.25, 0.3], "interpolation": "bicubic",
                  **(picture or {})}  # fmt: skip
    description = {"model_cfg": config, "preprocess_cfg": preprocess}
    (folder / "open_clip_config.json").write_text(json.dumps(description))
    return folder


def image(width=SIZE, height=SIZE, seed=0):
    """An image of noise."""
    draw = np.random.default_rng(seed)
    return Image.fromarray(draw.integers(0, 256, (height, width, 3), dtype=np.uint8))


def stack(owner, images):
    """Images as a model's transform prepares them, uint8 (n, 3, size, size)."""
    return torch.from_numpy(np.stack([owner.transform(picture) for picture in images]))


def pixels(count=4, seed=0):
    """Random images, uint8 (count, 3, 32, 32)."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, SIZE, SIZE), dtype=torch.uint8, generator=draw)


def _towers(**words):
    from transformers import BridgeTowerConfig

    # Transformers gives a vision tower of width w w // 64 heads, so 64 is the least.
    text = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2,
            "intermediate_size": 32, "vocab_size": 4 + len(WORDS), "max_position_embeddings": 14,
            "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0, **words}  # fmt: skip
    vision = {"hidden_size": 64, "num_hidden_layers": 4, "image_size": SIZE, "patch_size": 8}
    return BridgeTowerConfig(
        hidden_size=64, num_attention_heads=2, num_hidden_layers=2, text_config=text,
        vision_config=vision, contrastive_hidden_size=8, logit_scale_init_value=2.6592,
    )  # fmt: skip


def _save(model_class, config, processor, folder, seed) -> Path:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = model_class(config)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def _bridgetower_processor():
    from transformers import BridgeTowerImageProcessor, BridgeTowerProcessor

    images = BridgeTowerImageProcessor(
        size={"shortest_edge": SIZE}, crop_size={"shortest_edge": SIZE}, size_divisor=8
    )
    return BridgeTowerProcessor(images, tokenizer(max_length=77))


def save_bridgetower(folder: Path, seed=0, **words) -> Path:
    """A BridgeTowerForContrastiveLearning, its towers of different depths."""
    from transformers import BridgeTowerForContrastiveLearning

    made = BridgeTowerForContrastiveLearning
    return _save(made, _towers(**words), _bridgetower_processor(), folder, seed)


def save_bridgetower_itm(folder: Path, seed=0) -> Path:
    """A BridgeTowerForImageAndTextRetrieval."""
    from transformers import BridgeTowerForImageAndTextRetrieval

    made = BridgeTowerForImageAndTextRetrieval
    return _save(made, _towers(), _bridgetower_processor(), folder, seed)


def save_bridgetower_apart(folder: Path, seed=0) -> Path:
    """A BridgeTowerModel whose cross layers have transforms of their own."""
    from transformers import BridgeTowerModel

    config = _towers()
    config.share_cross_modal_transformer_layers = False
    return _save(BridgeTowerModel, config, _bridgetower_processor(), folder, seed)


def flava_config():
    from transformers import FlavaConfig

    text = {**TOWER, "vocab_size": 4 + len(WORDS), "max_position_embeddings": 16}
    image = {**TOWER, "image_size": SIZE, "patch_size": 8, "vocab_size": 8}
    return FlavaConfig(
        hidden_size=16, projection_dim=8, text_config=text, image_config=image,
        multimodal_config=TOWER, init_codebook=False,
    )  # fmt: skip


def flava_processor():
    from transformers import FlavaImageProcessor, FlavaProcessor

    square = {"height": SIZE, "width": SIZE}
    images = FlavaImageProcessor(size=square, crop_size=square)
    return FlavaProcessor(images, tokenizer())


def save_flava(folder: Path, seed=0) -> Path:
    """A FlavaForPreTraining, as the Hub holds flava-full."""
    from transformers import FlavaForPreTraining

    return _save(FlavaForPreTraining, flava_config(), flava_processor(), folder, seed)


def save_vilt(folder: Path, seed=0) -> Path:
    """A ViltForImageAndTextRetrieval."""
    import transformers as hf

    config = hf.ViltConfig(
        vocab_size=4 + len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=14, image_size=SIZE, patch_size=8,
        initializer_range=0.5,
    )  # fmt: skip
    images = hf.ViltImageProcessor(size={"shortest_edge": SIZE}, size_divisor=8)
    processor = hf.ViltProcessor(images, tokenizer(max_length=14))
    return _save(hf.ViltForImageAndTextRetrieval, config, processor, folder, seed)


def save_classifier(folder: Path, seed=0) -> Path:
    """A ViTForImageClassification of five classes."""
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    config = ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        image_size=SIZE, patch_size=8, initializer_range=0.5,
        id2label=dict(enumerate(["ball", "cube", "star", "beach", "sand"])),
    )  # fmt: skip
    images = ViTImageProcessor(size={"height": SIZE, "width": SIZE})
    return _save(ViTForImageClassification, config, images, folder, seed)


def save_entailer(folder: Path, seed=0, labels=("CONTRADICTION", "NEUTRAL", "ENTAILMENT")) -> Path:
    """A BertForSequenceClassification of three classes."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=4 + len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=24, initializer_range=0.5,
        id2label=dict(enumerate(labels)),
    )  # fmt: skip
    words = tokenizer(inputs=("input_ids", "token_type_ids", "attention_mask"), max_length=24)
    return _save(BertForSequenceClassification, config, words, folder, seed)


def save_detector(folder: Path, seed=0) -> Path:
    """A YolosForObjectDetection of three classes, on images of up to 32 x 48."""
    from transformers import YolosConfig, YolosForObjectDetection, YolosImageProcessor

    config = YolosConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        image_size=[SIZE, SIZE], patch_size=8, num_detection_tokens=6, initializer_range=0.5,
        id2label={0: "ball", 1: "cube", 2: "star"},
    )  # fmt: skip
    images = YolosImageProcessor(size={"shortest_edge": SIZE, "longest_edge": 48})
    return _save(YolosForObjectDetection, config, images, folder, seed)


def save_owlv2(folder: Path, seed=0) -> Path:
    """An Owlv2ForObjectDetection of 16 boxes, which reads each name alone."""
    import transformers as hf

    layers = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2,
              "num_attention_heads": 2, "initializer_range": 0.5}  # fmt: skip
    config = hf.Owlv2Config(
        text_config={"vocab_size": 4 + len(WORDS), "max_position_embeddings": 8, "pad_token_id": 0,
                     "bos_token_id": 2, "eos_token_id": 3, **layers},
        vision_config={"image_size": SIZE, "patch_size": 8, **layers},
        projection_dim=16,
    )  # fmt: skip
    processor = hf.Owlv2Processor(
        hf.Owlv2ImageProcessor(size={"height": SIZE, "width": SIZE}), tokenizer(max_length=8)
    )
    return _save(hf.Owlv2ForObjectDetection, config, processor, folder, seed)


def save_grounding_dino(folder: Path, seed=0) -> Path:
    """A GroundingDinoForObjectDetection of 12 boxes, which reads all names in one text."""
    import transformers as hf

    # The model looks for BERT's own numbers of the special tokens and of the full stop.
    numbers = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, ".": 1012, "?": 1029}
    numbers |= {word: 200 + i for i, word in enumerate(WORDS)}
    words = tokenizer(("input_ids", "token_type_ids", "attention_mask"), 16, numbers)
    backbone = hf.SwinConfig(
        image_size=SIZE, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4,
        out_indices=[1, 2], initializer_range=0.5,
    )  # fmt: skip
    text = hf.BertConfig(
        vocab_size=1030, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16, initializer_range=0.5,
    )  # fmt: skip
    config = hf.GroundingDinoConfig(
        backbone_config=backbone, text_config=text, num_queries=12, d_model=32, max_text_len=16,
        encoder_layers=1, decoder_layers=2, encoder_ffn_dim=16, decoder_ffn_dim=16,
        encoder_attention_heads=2, decoder_attention_heads=2, num_feature_levels=2,
        encoder_n_points=2, decoder_n_points=2, init_std=0.5,
    )  # fmt: skip
    images = hf.GroundingDinoImageProcessor(size={"shortest_edge": SIZE, "longest_edge": 48})
    processor = hf.GroundingDinoProcessor(images, words)
    return _save(hf.GroundingDinoForObjectDetection, config, processor, folder, seed)


def save_llava(folder: Path, seed=0) -> Path:
    """A LlavaForConditionalGeneration: 16 places of its text are the image."""
    import transformers as hf

    words = tokenizer(max_length=64)
    words.add_special_tokens({"additional_special_tokens": ["<image>"]})
    layers = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2,
              "num_attention_heads": 2, "initializer_range": 0.5}  # fmt: skip
    vision = hf.CLIPVisionConfig(image_size=SIZE, patch_size=8, projection_dim=8, **layers)
    text = hf.LlamaConfig(
        vocab_size=len(words), num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0,
        bos_token_id=2, eos_token_id=3, **layers,
    )  # fmt: skip
    image = words.convert_tokens_to_ids("<image>")
    config = hf.LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=image, vision_feature_layer=-1
    )
    processor = hf.LlavaProcessor(
        image_processor(), words, patch_size=8, vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )  # fmt: skip
    return _save(hf.LlavaForConditionalGeneration, config, processor, folder, seed)


def save_blip(folder: Path, seed=0, kind="BlipForConditionalGeneration") -> Path:
    """A BLIP of one of its classes: by default, it writes captions."""
    import transformers as hf

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, "[DEC]"]
    words = hf.BertTokenizer(vocab={p: i for i, p in enumerate(pieces)}, bos_token="[DEC]")
    tower = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2,
             "num_attention_heads": 2, "initializer_range": 0.5, "projection_dim": 8}  # fmt: skip
    text = {**tower, "vocab_size": len(pieces), "max_position_embeddings": 24, "bos_token_id": 16,
            "eos_token_id": 3, "sep_token_id": 3, "pad_token_id": 0, "encoder_hidden_size": 16,
            "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # fmt: skip
    config = hf.BlipConfig(
        text_config=text, vision_config={**tower, "image_size": SIZE, "patch_size": 8},
        projection_dim=8, image_text_hidden_size=8,
    )  # fmt: skip
    images = hf.BlipImageProcessor(size={"height": SIZE, "width": SIZE})
    processor = hf.BlipProcessor(images, words)
    return _save(getattr(hf, kind), config, processor, folder, seed)


def save_blip_2(folder: Path, seed=0) -> Path:
    """A Blip2ForConditionalGeneration with OPT, as Salesforce/blip2-opt-2.7b: four queries."""
    import transformers as hf

    words = tokenizer(max_length=128)
    processor = hf.Blip2Processor(
        hf.BlipImageProcessor(size={"height": SIZE, "width": SIZE}), words, num_query_tokens=4
    )
    tower = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
             "num_attention_heads": 2, "initializer_range": 0.5}  # fmt: skip
    config = hf.Blip2Config(
        vision_config=hf.Blip2VisionConfig(image_size=SIZE, patch_size=8, **tower),
        qformer_config=hf.Blip2QFormerConfig(
            encoder_hidden_size=16, max_position_embeddings=16, vocab_size=16, **tower
        ),
        text_config=hf.OPTConfig(
            vocab_size=len(words), hidden_size=16, ffn_dim=16, num_hidden_layers=1,
            num_attention_heads=2, max_position_embeddings=160, word_embed_proj_dim=16,
            init_std=0.5, pad_token_id=0, bos_token_id=2, eos_token_id=3,
        ),
        num_query_tokens=4, image_token_index=words.convert_tokens_to_ids("<image>"),
    )  # fmt: skip
    return _save(hf.Blip2ForConditionalGeneration, config, processor, folder, seed)


SAVERS = {
    "dual": save_dual_encoder, "clip": save_clip, "siglip": save_siglip,
    "open_clip": save_open_clip, "bridgetower": save_bridgetower,
    "bridgetower_itm": save_bridgetower_itm, "flava": save_flava, "vilt": save_vilt,
    "classifier": save_classifier, "entailer": save_entailer, "detector": save_detector,
    "llava": save_llava, "blip": save_blip, "blip_2": save_blip_2, "owlv2": save_owlv2,
    "grounding_dino": save_grounding_dino,
}  # fmt: skip


def save_all(shelf: Path, *names: str) -> dict[str, Path]:
    """Save one of each named kind; return their folders."""
    return {name: SAVERS[name](shelf / name) for name in names}


def name_encoder(folders, name, **settings):
    """The specification of a dual encoder that ``save_all`` saved."""
    from cfaug.models.specs import BridgeTower, HFClip, OpenClip

    if name == "open_clip":
        return OpenClip(str(folders[name]), **settings)
    kind = BridgeTower if name == "bridgetower" else HFClip
    return kind(str(folders[name]), **settings)
