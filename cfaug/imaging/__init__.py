"""Joint generation of a set's images: sampler, shared attention, prompt-to-prompt."""
