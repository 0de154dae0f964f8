"""Compositional tests: published numbers beside one's own."""
