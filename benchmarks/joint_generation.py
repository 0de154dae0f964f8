"""SD 3.5's and FLUX.2's transformers in ``generation.py``, with random weights."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from generation import Bench
from written_down import TEXTS
from written_down_joint import WrittenDownJoint, draw_set

if TYPE_CHECKING:
    from torch import Tensor

SHAPES: dict[str, dict[str, Any]] = {
    # As published: 2.5 and 4 billion parameters, 4,096 image tokens of a million pixels.
    "sd35": {"sample_size": 128, "num_layers": 24, "num_attention_heads": 24,
             "caption_projection_dim": 1536, "in_channels": 16, "out_channels": 16,
             "pos_embed_max_size": 384, "joint_attention_dim": 4096, "pooled_projection_dim": 2048,
             "dual_attention_layers": tuple(range(13)), "qk_norm": "rms_norm"},
    "sd35_tiny": {"sample_size": 32, "num_layers": 4, "num_attention_heads": 4,
                  "attention_head_dim": 32, "caption_projection_dim": 128, "in_channels": 4,
                  "out_channels": 4, "pos_embed_max_size": 32, "joint_attention_dim": 64,
                  "pooled_projection_dim": 64, "dual_attention_layers": (0, 1),
                  "qk_norm": "rms_norm"},
    "flux2": {"in_channels": 128, "num_layers": 5, "num_single_layers": 20,
              "num_attention_heads": 24, "joint_attention_dim": 7680, "guidance_embeds": False},
    "flux2_tiny": {"in_channels": 16, "num_layers": 1, "num_single_layers": 4,
                   "num_attention_heads": 4, "attention_head_dim": 32, "joint_attention_dim": 64,
                   "axes_dims_rope": (8, 8, 8, 8), "guidance_embeds": False},
}  # fmt: skip
TOKENS = {"sd35": 77 + 256, "sd35_tiny": 48, "flux2": 512, "flux2_tiny": 48}
"""Number of text tokens."""


@dataclass(frozen=True)
class Model:
    """Random weights in place of a ``PipelineFolder``: the same in both arms."""

    shape: str
    dtype: str
    device: str

    @property
    def kind(self) -> type:
        """The pipeline's class."""
        import diffusers

        flux = self.shape.startswith("flux2")
        return diffusers.Flux2KleinPipeline if flux else diffusers.StableDiffusion3Pipeline

    def is_here(self) -> bool:
        """Say that there is no folder."""
        return False

    def load(self) -> Any:
        """Return the pipeline; each text is embedded as its own random numbers."""
        import diffusers
        import torch

        from cfaug.imaging.model import DTYPES

        flux, config = self.shape.startswith("flux2"), SHAPES[self.shape]
        dtype = getattr(torch, DTYPES[self.dtype])
        width, count = config["joint_attention_dim"], TOKENS[self.shape]

        def encode_prompt(prompt: str, **_: object) -> tuple[Any, ...]:
            stream = torch.Generator().manual_seed(sum(map(ord, prompt)))
            hidden = torch.randn(1, count, width, generator=stream).to(self.device, dtype)
            if flux:
                return hidden, None
            pooled = torch.randn(1, config["pooled_projection_dim"], generator=stream)
            return hidden, None, pooled.to(self.device, dtype), None

        torch.manual_seed(0)
        kind = diffusers.Flux2Transformer2DModel if flux else diffusers.SD3Transformer2DModel
        with torch.device(self.device):
            transformer = kind(patch_size=1 if flux else 2, **config)
        if dtype != torch.float32:
            transformer = transformer.to(dtype)
        scheduler = diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=flux)
        parts = {"text_encoder": None, "tokenizer": None, "vae": diffusers.AutoencoderKL()}
        if not flux:
            parts |= dict.fromkeys(
                ("text_encoder_2", "tokenizer_2", "text_encoder_3", "tokenizer_3")
            )
        pipeline = self.kind(
            transformer=transformer.eval().requires_grad_(False), scheduler=scheduler, **parts
        )
        pipeline.encode_prompt = encode_prompt
        return pipeline

    def describe(self) -> dict[str, str]:
        """Return the name of the shape."""
        return {"diffusion": self.shape}


class JointBench(Bench):
    """Both engines over the same weights: the reference in float32, on a GPU under autocast."""

    def __init__(self, args: argparse.Namespace) -> None:
        import torch

        from cfaug.imaging import text_to_image
        from cfaug.imaging.attention import SharedAttention
        from cfaug.imaging.shared_pipeline import FAMILIES, SharedPipeline

        self.args, self.device = args, torch.device(args.device)
        side = 32 if args.weights == "flux2_tiny" else None
        self.ours = SharedPipeline(
            Model(args.weights, args.dtype, args.device), steps=args.steps, side=side,
            max_rows=args.rows,
        )  # fmt: skip
        model = Model(args.weights, "fp32", args.device)
        pipeline, self.processor = model.load(), WrittenDownJoint()
        pipeline.transformer.set_attn_processor(self.processor)
        self.processor.texts = TOKENS[args.weights]
        # How the network is called and which levels there are; attention is the processor's.
        family = getattr(text_to_image, FAMILIES[model.kind.__name__])
        self.loaded = family(pipeline, pipeline.transformer, SharedAttention(), side, {})
        self.levels, self.shape = self.loaded.levels(args.steps), self.loaded.shape

    def ask(self, rows: Tensor, step: int = 0) -> Tensor:
        """Call the reference's network: both texts, without and with guidance."""
        import torch

        encoded = [self.loaded.encode(text) for text in ("", "", *TEXTS)]
        texts = tuple(map(torch.stack, zip(*encoded, strict=True)))
        every = torch.arange(4, device=self.device)
        if not hasattr(self.processor, "source"):
            self.processor.source = every
        at = torch.tensor(self.levels.timesteps[step], dtype=torch.float32, device=self.device)
        cuda = self.device.type == "cuda"
        with torch.autocast(self.device.type, torch.float16, enabled=cuda):
            return self.loaded(rows, at, texts, every, every)

    def refer(self, p: float, cfg: float, noise: Callable[[int], Tensor]) -> Tensor:
        """Return the reference's pair."""
        return draw_set(self.ask, self.processor, noise(-1), (p, cfg), self.levels.sigmas.tolist())
