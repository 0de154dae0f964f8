"""Images of a set drawn together: sampler, shared attention, prompt-to-prompt."""
