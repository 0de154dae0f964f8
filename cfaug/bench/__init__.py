"""Benchmarks: each asks a question of a model it is handed, and never learns the model's name."""
