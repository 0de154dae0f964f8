"""Social bias (SocialCounterfactuals): skewed retrieval for neutral prompts, grids, pronouns."""
