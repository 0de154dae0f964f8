"""The tiny perturber of the embedded world: its training rows, its base model, its tuning."""
