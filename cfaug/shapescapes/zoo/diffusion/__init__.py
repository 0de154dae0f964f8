"""The tiny Stable Diffusion: stock diffusers classes that two cores can train from scratch."""
