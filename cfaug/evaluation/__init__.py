"""Benchmarks, each of which evaluates a given model without knowing the model's name."""
