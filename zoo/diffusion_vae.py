"""The autoencoder: a KL-VAE of factor 4 (Rombach et al., 2022), 64 px to 16 x 16 x 16."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.errors import say
from cfaug.core.progress import watch
from cfaug.core.rng import derive, generator
from cfaug.worlds.shapescapes.judge import Pixels, normalise
from zoo.scenes import SCENE_SIDE

if TYPE_CHECKING:
    from diffusers import AutoencoderKL
    from torch import Tensor, nn

    from zoo.diffusion_settings import DiffusionSettings

CHANNELS = 16
FACTOR = 4
ENCODE_BATCH = 64


def build_vae() -> AutoencoderKL:
    """Return the autoencoder with initial weights, drawn from torch's current generator."""
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        block_out_channels=(16, 32, 64),
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        layers_per_block=1,
        # One group preserves the relative strength of channels. (Eight groups and 12 channels are
        # about as good: 27.2 dB to 27.0, before the decoder is refined.)
        norm_num_groups=1,
        latent_channels=CHANNELS,
        mid_block_add_attention=False,
        sample_size=SCENE_SIDE,
        # The range fits float16, so no upcast is needed.
        force_upcast=False,
    )


def one_cycle(step: int, steps: int, warmup: int) -> float:
    """Return the factor of the learning rate: a linear rise, then a cosine down to 0."""
    if step < warmup:
        return (step + 1) / warmup
    return float(0.5 * (1 + np.cos(np.pi * (step - warmup) / max(1, steps - warmup))))


def train_vae(pixels: Pixels, settings: DiffusionSettings) -> AutoencoderKL:
    """Train on ``pixels`` (n, 3, 64, 64); return the scaled autoencoder in evaluation mode.

    The loss is L1 + 2 L2 of the pixels in [-1, 1], and ``kl`` times the *mean* divergence per
    latent value: it gives the latents noise of a few per cent, so that the decoder tolerates the
    small errors of a sampler. (Rombach et al. weight the sum over an image's latents by 1e-6.)
    """
    import torch

    torch.manual_seed(derive(settings.seed, "zoo", "vae") % 2**63)
    vae = build_vae().train()

    def loss(images: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            posterior = vae.encode(images).latent_dist
            shown = vae.decode(posterior.sample()).sample
        error = shown.float() - images
        divergence = posterior.kl().mean() / posterior.mean[0].numel()
        return error.abs().mean() + 2 * error.square().mean() + settings.kl * divergence

    _fit(vae, loss, pixels, settings, settings.vae_steps, "vae")
    return standardise(vae.eval().requires_grad_(False), pixels[:2000])


def refine_decoder(
    vae: AutoencoderKL, pixels: Pixels, settings: DiffusionSettings
) -> AutoencoderKL:
    """Train the decoder further on the mean squared error, with fixed latents; return the model.

    Stable Diffusion's decoders were refined likewise (its ft-MSE). There are ``decoder_rounds``
    rounds, each with its own rise and fall of the learning rate (Loshchilov & Hutter, 2017).
    Nothing else in the pipeline depends on the decoder, so this may happen before, during or after
    the denoiser's training.
    """
    import torch

    decoder = torch.nn.ModuleList([vae.post_quant_conv, vae.decoder])
    decoder.train().requires_grad_(True)

    def loss(images: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                latents = vae.encode(images).latent_dist.sample()
            shown = vae.decode(latents).sample
        return 10 * (shown.float() - images).square().mean()

    for number in range(settings.decoder_rounds):
        stream = f"decoder-{number}" if number else "decoder"
        torch.manual_seed(derive(settings.seed, "zoo", stream) % 2**63)
        _fit(decoder, loss, pixels, settings, settings.decoder_steps, stream)
    return vae.eval().requires_grad_(False)


def _fit(
    module: nn.Module,
    loss_of: Callable[[Tensor], Tensor],
    pixels: Pixels,
    settings: DiffusionSettings,
    steps: int,
    name: str,
) -> None:
    import torch

    optimizer = torch.optim.AdamW(
        module.parameters(), lr=settings.vae_lr, betas=(0.9, 0.99), weight_decay=1e-4
    )
    warmup = min(100, steps)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: one_cycle(step, steps, warmup)
    )
    order = generator(settings.seed, "zoo", name, "order")
    recent: list[float] = []
    for step in watch(range(steps), name, steps, "steps"):
        rows = order.choice(len(pixels), settings.vae_batch, replace=False)
        loss = loss_of(normalise(pixels[rows]))
        if not torch.isfinite(loss):
            raise FloatingPointError(f"the loss of the {name} is not finite: lower vae_lr")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        recent.append(float(loss.detach()))
        if (step + 1) % 500 == 0:
            say(f"{name}, step {step + 1}: loss {np.mean(recent[-500:]):.5f}")


def standardise(vae: AutoencoderKL, pixels: Pixels) -> AutoencoderKL:
    """Give the latents of ``pixels`` mean 0 per channel and, once scaled, overall deviation 1.

    StableDiffusionPipeline has a ``scaling_factor`` but no shift, so the mean is moved into the
    biases of the two 1 x 1 convolutions around the latents, which leaves reconstructions unchanged.
    """
    import torch

    with torch.no_grad():
        mean, log_variance = encode(vae, pixels).chunk(2, dim=1)
        centre = mean.mean(dim=(0, 2, 3))
        vae.quant_conv.bias[:CHANNELS] -= centre
        vae.post_quant_conv.bias += vae.post_quant_conv.weight[:, :, 0, 0] @ centre
        variance = (mean - centre[:, None, None]).square().mean() + log_variance.exp().mean()
    vae.register_to_config(scaling_factor=float(variance.rsqrt()))
    return vae


def encode(vae: AutoencoderKL, pixels: Pixels) -> Tensor:
    """Return the posteriors' moments, float32 (n, 32, 16, 16): means, then log variances."""
    import torch

    moments = []
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for rows in range(0, len(pixels), ENCODE_BATCH):
            posterior = vae.encode(normalise(pixels[rows : rows + ENCODE_BATCH])).latent_dist
            moments.append(torch.cat([posterior.mean, posterior.logvar], dim=1).float())
    return torch.cat(moments)


def reconstruct(vae: AutoencoderKL, pixels: Pixels) -> Pixels:
    """Return the reconstruction of uint8 pixels from the posterior's mean."""
    import torch

    pictures = []
    with torch.inference_mode():
        for rows in range(0, len(pixels), ENCODE_BATCH):
            mean = vae.encode(normalise(pixels[rows : rows + ENCODE_BATCH])).latent_dist.mean
            images = vae.decode(mean).sample.float().clamp(-1, 1)
            pictures.append(((images + 1) * 127.5).round().byte().numpy())
    return np.concatenate(pictures)


def psnr(shown: Pixels, true: Pixels) -> float:
    """Return the peak signal-to-noise ratio in dB, from the mean squared error over all images."""
    error = shown.astype(np.float64) - true
    return float(10 * np.log10(255**2 / np.mean(error**2)))


def grid_peaks(shown: Pixels, true: Pixels) -> dict[str, float]:
    """Return the peaks of the error's spectrum at the periods of a patch grid.

    The error's rows and columns are windowed (Hann) and transformed; their mean power at 1/4 and
    1/2 cycles per pixel is divided by the median of the bins two to five away, and the larger ratio
    of rows and columns is returned. 1 means no grid; a codec of 4 x 4 patches has tens.
    """
    error = shown.astype(np.float64) - true
    side = error.shape[-1]
    window = np.hanning(side + 1)[:-1]
    worst = {"1/4": 0.0, "1/2": 0.0}
    for lines in (error, error.swapaxes(2, 3)):
        spectrum = np.abs(np.fft.rfft(lines * window, axis=-1)) ** 2
        power = dict(enumerate(spectrum.mean(axis=(0, 1, 2)).tolist()))
        for name, centre in (("1/4", side // 4), ("1/2", side // 2)):
            # The window spreads a line over its two neighbours, so they are not background.
            near = [b for b in range(centre - 5, centre + 6) if abs(b - centre) > 1 and b in power]
            ratio = power[centre] / np.median([power[b] for b in near])
            worst[name] = max(worst[name], float(ratio))
    return worst
