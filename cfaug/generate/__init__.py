"""Captions to counterfactual sets: the plan, its parts, their shards."""
