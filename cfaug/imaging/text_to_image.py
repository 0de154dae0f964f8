"""Text-to-image pipelines of diffusers that share attention: SD 3.5, FLUX.2 and SDXL.

A class for each family says how its pipeline embeds a text, which noise levels it takes, how it
calls its network and decodes latents. Where no attention is shared, the images are the pipeline's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cfaug.core.devices import send
from cfaug.imaging.attention import SharedAttention
from cfaug.imaging.model import as_image
from cfaug.imaging.sampler import Texts
from cfaug.imaging.schedules import FLOW, NoiseLevels, read_prediction, scheduler_levels


@dataclass(frozen=True)
class TextToImage:
    """A loaded pipeline, whose network is the sampler's ``Network``.

    Args:
        pipeline: one of diffusers', on its device.
        network: its UNet or transformer.
        shared: the rows whose attention is shared.
        side: the height and width of an image in pixels; ``None`` for the pipeline's own.
        text_settings: further arguments of the pipeline's ``encode_prompt``.
    """

    pipeline: Any
    network: Any
    shared: SharedAttention
    side: int | None
    text_settings: Mapping[str, Any]

    def attach(self) -> None:
        """Share the network's attention."""
        self.shared.attach_joint(self.network)

    @property
    def guides(self) -> bool:
        """Whether guidance needs a row without text."""
        return True

    @property
    def reads_guidance(self) -> bool:
        """Whether any scale of guidance has an effect."""
        return True

    @property
    def prompts(self) -> dict[str, None]:
        """Further arguments that ``encode_prompt`` has to get."""
        return {}

    @property
    def patch(self) -> int:
        """The height and width of a network's token in latents of the autoencoder."""
        return 1

    @property
    def pixels(self) -> int:
        """The height and width of an image."""
        return self.side or int(self.pipeline.default_sample_size * self.pipeline.vae_scale_factor)

    @property
    def multiple(self) -> int:
        """The number of pixels whose multiple the side has to be."""
        return int(self.pipeline.vae_scale_factor) * self.patch

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of a latent."""
        side = self.pixels // int(self.pipeline.vae_scale_factor)
        return (self.network.config.in_channels, side, side)

    def encode(self, text: str) -> Texts:
        """Return what the network is told about one text, which is encoded alone."""
        hidden, _, pooled, _ = self.pipeline.encode_prompt(
            prompt=text, **self.prompts, do_classifier_free_guidance=False, **self.text_settings
        )
        return hidden[0], pooled[0]

    def levels(self, steps: int) -> NoiseLevels:
        """Return the noise levels of the pipeline, for Euler's method."""
        from diffusers import FlowMatchEulerDiscreteScheduler

        scheduler: Any = FlowMatchEulerDiscreteScheduler.from_config(self.pipeline.scheduler.config)
        scheduler.set_timesteps(**self._timing(scheduler.config, steps))
        return scheduler_levels(scheduler, FLOW)

    def _timing(self, config: Any, steps: int) -> dict[str, Any]:
        raise NotImplementedError

    def __call__(
        self, noisy: Tensor, timestep: Tensor, texts: Texts, text: Tensor, guidance: Tensor
    ) -> Tensor:
        """Return the network's prediction for each row, as a ``Network`` of the sampler does."""
        raise NotImplementedError

    def decode(self, latents: Tensor) -> Tensor:
        """Map latents (n, *shape) to images float32 (n, 3, H, W) in [0, 1]."""
        vae = self.pipeline.vae
        if vae.dtype == torch.float16 and vae.config.get("force_upcast"):
            vae.to(torch.float32)
        pixels: Tensor = vae.decode(self._unscale(latents).to(vae.dtype), return_dict=False)[0]
        return as_image(pixels, vae)

    def _unscale(self, latents: Tensor) -> Tensor:
        config = self.pipeline.vae.config
        return latents / config.scaling_factor + (config.get("shift_factor") or 0.0)


class StableDiffusion3(TextToImage):
    """SD 3 and 3.5: joint blocks of image and text, and in 3.5 medium also image-only attention."""

    @property
    def patch(self) -> int:
        return int(self.network.config.patch_size)

    @property
    def prompts(self) -> dict[str, None]:
        """The other encoders' texts: the same one."""
        return {"prompt_2": None, "prompt_3": None}

    def _timing(self, config: Any, steps: int) -> dict[str, Any]:
        from diffusers.pipelines.stable_diffusion_3 import pipeline_stable_diffusion_3 as module

        if not config.use_dynamic_shifting:
            return {"num_inference_steps": steps}
        ends = ("base_image_seq_len", "max_image_seq_len", "base_shift", "max_shift")
        tokens = (self.shape[1] // self.patch) ** 2
        return {
            "num_inference_steps": steps,
            "mu": module.calculate_shift(tokens, *(config[end] for end in ends)),
        }

    def __call__(
        self, noisy: Tensor, timestep: Tensor, texts: Texts, text: Tensor, guidance: Tensor
    ) -> Tensor:
        """Return the velocity of each row."""
        hidden, pooled = (tensor[text] for tensor in texts)
        velocity: Tensor = self.network(
            hidden_states=noisy,
            timestep=timestep.expand(len(noisy)),
            encoder_hidden_states=hidden,
            pooled_projections=pooled,
            return_dict=False,
        )[0]
        return velocity


class Flux2(TextToImage):
    """FLUX.2: double blocks, and single blocks of one sequence, the text's tokens first.

    The base weights of klein are guided by rows without text, distilled ones are not guided, and
    those of FLUX.2 dev read the scale.
    """

    @property
    def guides(self) -> bool:
        return self.reads_guidance and not self.network.config.guidance_embeds

    @property
    def reads_guidance(self) -> bool:
        return not self.pipeline.config.get("is_distilled")

    @property
    def patch(self) -> int:
        return 2

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of a latent, whose channels hold a patch."""
        side = self.pixels // self.multiple
        return (self.network.config.in_channels, side, side)

    def encode(self, text: str) -> Texts:
        """Return the hidden states of the text encoder."""
        hidden, _ = self.pipeline.encode_prompt(prompt=text, **self.text_settings)
        return (hidden[0],)

    def _timing(self, config: Any, steps: int) -> dict[str, Any]:
        from diffusers.pipelines.flux2 import pipeline_flux2_klein as module

        _, height, width = self.shape
        mu = module.compute_empirical_mu(image_seq_len=height * width, num_steps=steps)
        if config.get("use_flow_sigmas"):
            return {"num_inference_steps": steps, "mu": mu}
        return {"sigmas": np.linspace(1.0, 1 / steps, steps), "mu": mu}

    def __call__(
        self, noisy: Tensor, timestep: Tensor, texts: Texts, text: Tensor, guidance: Tensor
    ) -> Tensor:
        """Return the velocity of each row."""
        hidden = texts[0][text]
        self.shared.text_tokens = hidden.shape[1]
        velocity: Tensor = self.network(
            hidden_states=noisy.flatten(2).transpose(1, 2),
            timestep=timestep.to(noisy.dtype).expand(len(noisy)) / 1000,
            guidance=guidance if self.network.config.guidance_embeds else None,
            encoder_hidden_states=hidden,
            txt_ids=send(self.pipeline._prepare_text_ids(hidden[:1]), noisy.device),
            img_ids=send(self.pipeline._prepare_latent_ids(noisy[:1]), noisy.device),
            return_dict=False,
        )[0]
        return velocity.transpose(1, 2).unflatten(2, noisy.shape[2:])

    def _unscale(self, latents: Tensor) -> Tensor:
        vae = self.pipeline.vae
        mean, variance = (
            x[:, None, None].to(latents.dtype) for x in (vae.bn.running_mean, vae.bn.running_var)
        )
        scaled = latents * torch.sqrt(variance + vae.config.batch_norm_eps) + mean
        unpatched: Tensor = self.pipeline._unpatchify_latents(scaled)
        return unpatched


class StableDiffusionXL(TextToImage):
    """SDXL: the UNet of Stable Diffusion with a pooled text, and Euler's steps without noise."""

    def attach(self) -> None:
        self.shared.attach(self.network)

    def encode(self, text: str) -> Texts:
        """Return the hidden states and the pooled vector of the text encoders."""
        hidden, pooled = super().encode(text)
        if not text and self.pipeline.config.force_zeros_for_empty_prompt:
            return torch.zeros_like(hidden), torch.zeros_like(pooled)
        return hidden, pooled

    def levels(self, steps: int) -> NoiseLevels:
        from diffusers import EulerDiscreteScheduler

        config = self.pipeline.scheduler.config
        scheduler: Any = EulerDiscreteScheduler.from_config(config)
        scheduler.set_timesteps(steps)
        return scheduler_levels(scheduler, read_prediction(config))

    def __call__(
        self, noisy: Tensor, timestep: Tensor, texts: Texts, text: Tensor, guidance: Tensor
    ) -> Tensor:
        """Return the prediction of each row; the attention layers give each row its text."""
        hidden, pooled = texts
        size = (self.pixels, self.pixels)
        ids = self.pipeline._get_add_time_ids(
            size, (0, 0), size, dtype=pooled.dtype, text_encoder_projection_dim=pooled.shape[-1]
        )
        prediction: Tensor = self.network(
            noisy,
            timestep,
            encoder_hidden_states=hidden,
            added_cond_kwargs={
                "text_embeds": pooled[text],
                "time_ids": send(ids, noisy.device).expand(len(noisy), -1),
            },
            return_dict=False,
        )[0]
        return prediction

    def _unscale(self, latents: Tensor) -> Tensor:
        config = self.pipeline.vae.config
        mean, std = (config.get(name) for name in ("latents_mean", "latents_std"))
        if mean is None or std is None:
            return latents / config.scaling_factor
        means, stds = (latents.new_tensor(x)[:, None, None] for x in (mean, std))
        return latents * stds / config.scaling_factor + means
