"""The tiny perturber of the embedded world: its rows, its base model, how it is tuned."""
